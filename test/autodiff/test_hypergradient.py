"""Derivatives of whole training runs, in which `adjoint of` asks for the steps' derivatives: by learning rate, first weights
and data, in both modes and twice.  Against complex steps through the same run in numpy; JAX's are in test_jax.py.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
NAMES = ("rate", "W", "X", "Y", "XV", "YV")


@cache
def generated(name: str) -> Any:
    """The data of an example."""
    spec = importlib.util.spec_from_file_location("examples_data", EXAMPLES / "data.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.generate(name)


def run(steps: int, rate: Any, W: Any, X: Any, Y: Any, XV: Any, YV: Any) -> Any:
    """The loss after training; complex numbers go through it."""
    for _ in range(steps):
        r = np.tanh(X @ W)
        W = W - rate * (((r - Y) * (1 - r * r)) @ X) / len(Y)
    return np.mean((np.tanh(XV @ W) - YV) ** 2) / 2


def by_complex_step(name: str, given: dict[str, Any], steps: int) -> Any:
    """The derivative of `run` by one of its arguments."""
    out = np.zeros(given[name].shape)
    for at in np.ndindex(out.shape):
        moved = np.asarray(given[name], dtype=complex)
        moved[at] += 1e-30j
        out[at] = np.imag(run(steps, **{**given, name: moved})) / 1e-30
    return out


@pytest.fixture(scope="module")
def program() -> upl.Program:
    return upl.load(EXAMPLES / "hypergradient.upl")


def close(found: Any, wanted: Any) -> None:
    """To 1e-10 of the greatest element."""
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10 * np.max(np.abs(wanted)))


@pytest.mark.parametrize("engine", ["interp", "token", "native"])
def test_both_modes(program: upl.Program, engine: Any) -> None:
    d = generated("hypergradient")
    wanted = {n: by_complex_step(n, d.inputs, d.params["T"]) for n in NAMES}
    assert all(np.all(w != 0) for w in wanted.values())
    out = upl.compile(upl.grad(program, of="L", wrt=NAMES), engine)(**d.inputs, T=d.params["T"])
    for n in NAMES:
        close(out[f"d_{n}"], wanted[n])
    rng = np.random.default_rng(3)
    along = {n: rng.standard_normal(d.inputs[n].shape) for n in NAMES}
    forward = upl.compile(upl.jvp(program, of="L", wrt=NAMES), engine)
    out = forward(**d.inputs, **{f"t_{n}": t for n, t in along.items()}, T=d.params["T"])
    close(out["t_L"], sum(np.sum(wanted[n] * along[n]) for n in NAMES))


def test_second_derivatives(program: upl.Program) -> None:
    """The Hessian by rate and weights, against differences of complex steps."""
    d = generated("hypergradient")
    names, steps = ("rate", "W"), d.params["T"]
    out = upl.compile(upl.hessian(program, of="L", wrt=names))(**d.inputs, T=steps)
    for a in names:
        for b in names:
            np.testing.assert_allclose(out[f"H_{a}_{b}"], np.transpose(out[f"H_{b}_{a}"]), rtol=1e-10, atol=1e-13)
            for at in np.ndindex(d.inputs[b].shape):
                ahead, behind = (d.inputs[b].copy() for _ in range(2))
                ahead[at] += 1e-5
                behind[at] -= 1e-5
                found = [by_complex_step(a, {**d.inputs, b: v}, steps) for v in (ahead, behind)]
                column = out[f"H_{a}_{b}"][(..., *at)]
                np.testing.assert_allclose(column, (found[0] - found[1]) / 2e-5, rtol=1e-6, atol=1e-9)


def test_the_rate_is_learned(program: upl.Program) -> None:
    """Descent along the hypergradient: each better rate leaves a smaller loss after the same number of steps."""
    d = generated("hypergradient")
    f = upl.compile(upl.grad(program, of="L", wrt="rate"), "native")
    given, losses = dict(d.inputs), []
    for _ in range(5):
        out = f(**given, T=d.params["T"])
        losses.append(float(out["L"]))
        given["rate"] = given["rate"] - 0.3 * out["d_rate"]
    assert losses == sorted(losses, reverse=True) and len(set(losses)) == 5


def test_the_tape_of_a_run_is_shortened() -> None:
    """Every second step is kept, and the two between are fired again, their own adjoints included: the same numbers."""
    d = generated("hypergradient")
    g = upl.grad(upl.load(EXAMPLES / "hypergradient.upl", T=8), of="L", wrt=NAMES)
    shorter = upl.checkpoint(g, along="t", every=2)
    runs = [upl.compile(p, gather="ordered") for p in (g, shorter)]
    outs = [f(**d.inputs) for f in runs]
    for n in NAMES:
        np.testing.assert_array_equal(outs[0][f"d_{n}"], outs[1][f"d_{n}"])
    assert runs[1].stats["peak_waiting"] < runs[0].stats["peak_waiting"]


@pytest.mark.parametrize("name", ["training", "iris_batch"])
def test_other_runs_twice(name: str) -> None:
    """First and second derivatives of other examples that train, by first weights and data."""
    d = generated(name)
    p = upl.load(EXAMPLES / f"{name}.upl", **{k: v for k, v in d.params.items() if k != "D"})
    upl.check_grads(p, "W_out", list(p.inputs), d.inputs, order=2, rtol=1e-4, atol=1e-5)
