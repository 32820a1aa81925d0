"""What the tests of derivatives share: a derived program held to everything that every derived program must satisfy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.api.programs import reverse

ROOT = Path(__file__).resolve().parent.parent.parent
Arrays = dict[str, Any]


@cache
def load(source: str, **overrides: Any) -> upl.Program:
    """A program from an example's name or from text; `overrides` must be hashable, so lists come as tuples."""
    given = {n: list(v) if isinstance(v, tuple) else v for n, v in overrides.items()}
    return upl.load(source if "{" in source else ROOT / "examples" / f"{source}.upl", **given)


@cache
def vjp(source: str, of: str, wrt: str, **overrides: Any) -> upl.Program:
    """The derivative of a program; `wrt` separates ports by spaces."""
    return reverse(load(source, **overrides), of=of, wrt=wrt.split())


def consistent(g: upl.Program, inputs: Arrays, *, proved: bool = True) -> Arrays:
    """The results of a derived program, after looking at what must hold of every one:

    `check` refutes nothing (and proves all, with `proved`); the printed text reads back to the same results; arrival
    order changes nothing, not a bit in ordered mode.
    """
    report = g.check()
    assert report.ok, [o.message for o in report.obligations if o.status.name == "REFUTED"]
    if proved:
        assert all(o.status.name == "PROVED" for o in report.obligations)
    again = upl.load(str(g))
    ordered = upl.compile(g, gather="ordered")(**inputs)
    runs = [upl.compile(p, order="random", seed=s, gather="ordered") for s, p in enumerate((g, g, again))]
    for run in runs:
        found = run(**inputs)
        assert found.keys() == ordered.keys()
        for name, value in ordered.items():
            assert np.array_equal(value, found[name]), name
    relaxed = upl.compile(g, order="random", seed=7)(**inputs)
    for name, value in ordered.items():
        np.testing.assert_allclose(relaxed[name], value, rtol=1e-12, atol=1e-13)
    assert not any(np.isnan(v).any() for v in ordered.values())
    return ordered


def slopes(f: Callable[[Arrays], float], inputs: Mapping[str, Any], name: str, h: float = 1e-3) -> Any:
    """The derivative of a number by every entry of one input, by central differences of fourth order."""
    x = np.asarray(inputs[name], dtype=float)
    out = np.zeros_like(x)
    for at in np.ndindex(*x.shape):
        total = 0.0
        for k, weight in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
            moved = x.copy()
            moved[at] += k * h
            total += weight * f({**inputs, name: moved})
        out[at] = total / (12 * h)
    return out


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator of reproducible data."""
    return np.random.default_rng(20210329)


class Tools:
    """The functions above, as a fixture: test modules cannot import one another."""

    load = staticmethod(load)
    vjp = staticmethod(vjp)
    consistent = staticmethod(consistent)
    slopes = staticmethod(slopes)


@pytest.fixture(scope="session")
def tools() -> type[Tools]:
    """Loading, differentiating, comparing."""
    return Tools
