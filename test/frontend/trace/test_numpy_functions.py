"""numpy's functions in traced functions: values against numpy, derivatives against JAX, on the interpreter and natively."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

jax: Any = pytest.importorskip("jax")
jnp: Any = importlib.import_module("jax.numpy")
jax.config.update("jax_enable_x64", True)
sys.path.insert(0, str(Path(__file__).parent))
REAL, OTHER = (getattr(importlib.import_module("numpy_functions"), name) for name in ("REAL", "OTHER"))
sys.path.pop(0)


def near(got: Any, want: Any, part: float) -> None:
    """Up to a part of the greatest element; what is no number, and the infinite, in the same places."""
    got, want = np.asarray(got, float), np.asarray(want, float)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=part, atol=part * np.max(np.abs(want[np.isfinite(want)]), initial=1e-3))


def all_of(cases: Any, module: Any) -> Any:
    """The functions of a group as one of all their arguments."""

    def run(*args: Any) -> Any:
        return [f(module, *given) for (f, _), given in zip(cases.values(), args, strict=True)]

    return run


@pytest.mark.parametrize("engine", ["interp", "native"], indirect=True)
@pytest.mark.parametrize("group", [*REAL, *(f"other {name}" for name in OTHER)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning:numpy")
def test_values(group: str, engine: str) -> None:
    cases = REAL[group] if group in REAL else OTHER[group.removeprefix("other ")]
    args = [given for _, given in cases.values()]
    for name, got, want in zip(cases, upl.function(all_of(cases, np))(*args), all_of(cases, np)(*args), strict=True):
        near(got, want, 3e-14)


@pytest.mark.parametrize("engine", ["interp", "native"], indirect=True)
@pytest.mark.parametrize("group", REAL)
def test_derivatives(group: str, engine: str) -> None:
    """Of the sum of the sines of all elements."""
    cases = REAL[group]
    args = [given for _, given in cases.values()]
    wrt = tuple(range(len(args)))
    got = upl.grad(lambda *a: sum(np.sum(np.sin(y)) for y in all_of(cases, np)(*a)), wrt)(*args)
    for (name, (f, given)), found in zip(cases.items(), got, strict=True):
        want = jax.grad(lambda a, f=f: jnp.sum(jnp.sin(f(jnp, *a))))(tuple(map(jnp.asarray, given)))
        for a, b in zip(found, want, strict=True):
            near(a, b, 1e-12)
