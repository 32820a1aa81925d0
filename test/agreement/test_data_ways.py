"""Programs whose ways data decide (`ways.py`): values and derivatives up to second order against JAX; engines agree.

Nothing of these programs is refused, but a second derivative through a product, which is a stated limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from agreement.ways import Ways, ways
from upl_mlir.hw.machine import Machine, Matching, Organisation

jax = pytest.importorskip("jax", reason="JAX, the oracle, is not installed: pip install 'upl-mlir[oracle]'")
jax.config.update("jax_enable_x64", True)

FEW, MANY = range(6), range(6, 30)
BESIDE = Matching(organisation=Organisation.DIRECT, capacity=4096, beside=64)
MACHINES = (Machine(), Machine(cores=2), Machine(matching=Matching(capacity=4, ways=2)), Machine(matching=BESIDE))


def _stats(run: Any) -> dict[str, Any]:
    return {k: v for k, v in run.stats.items() if k not in ("engine", "seconds")}


def _same_engines(p: upl.Program, w: Ways, given: dict[str, Any]) -> None:
    """All engines that move tokens: the same bits and counts, in both orders of arrival."""
    for order in ("fifo", "random"):
        first = upl.compile(p, engine="interp", order=order, gather="ordered", seed=w.seed)
        want = first(**given)
        for engine in ("token", "reference"):
            run = upl.compile(p, engine=engine, order=order, gather="ordered", seed=w.seed)
            for n, x in run(**given).items():
                np.testing.assert_array_equal(x, want[n], err_msg=f"{engine} {order} {n}")
            if engine == "token" or order == "fifo":
                assert _stats(run) == _stats(first)


def examine(seed: int) -> None:
    """One program, with all that must hold of it."""
    w = ways(seed)
    p, rng = upl.load(w.text), np.random.default_rng(seed)
    at = [w.arrays[n] for n in w.wrt]
    y = np.asarray(w.value(*at))
    d, moves = rng.normal(size=y.shape), [rng.normal(size=x.shape) for x in at]

    def f(*x: Any) -> Any:
        return (w.value(*x) * d).sum()

    every = tuple(range(len(at)))
    g = upl.vjp(p, of="Y", wrt=list(w.wrt))
    report = g.check()
    assert report.ok, [o.message for o in report.obligations if o.status.name == "REFUTED"]
    given = {**w.arrays, "d_Y": d}
    out = upl.compile(g, engine="interp")(**given)
    np.testing.assert_allclose(out["Y"], y, rtol=1e-12, atol=1e-12)
    for n, x in zip(w.wrt, jax.grad(f, argnums=every)(*at), strict=True):
        np.testing.assert_allclose(out[f"d_{n}"], x, rtol=1e-10, atol=1e-10, err_msg=n)
    _same_engines(upl.load(str(g)), w, given)
    tangent = upl.compile(upl.jvp(p, of="Y", wrt=list(w.wrt)), engine="interp")
    moved = tangent(**w.arrays, **{f"t_{n}": t for n, t in zip(w.wrt, moves, strict=True)})["t_Y"]
    np.testing.assert_allclose(moved, jax.jvp(w.value, tuple(at), tuple(moves))[1], rtol=1e-10, atol=1e-10)
    try:
        second = upl.vjp(g, of=f"d_{w.wrt[0]}", wrt=[*w.wrt, "d_Y"])
    except upl.UplError as e:
        assert e.diagnostics[0].code == "UPL1404" and "through `@(*)`" in str(e), e
        return
    (seed_of,) = (n for n in second.inputs if n not in given)
    hu = jax.grad(lambda *x: (jax.grad(f)(*x) * moves[0]).sum(), argnums=every)(*at)
    twice = upl.compile(second, engine="interp")(**given, **{seed_of: moves[0]})
    for n, x in zip(w.wrt, hu, strict=True):
        np.testing.assert_allclose(twice[f"d_{n}_2"], x, rtol=1e-8, atol=1e-8, err_msg=n)


@pytest.mark.parametrize("seed", FEW)
def test_a_few(seed: int) -> None:
    examine(seed)


@pytest.mark.parametrize("seed", MANY)
def test_many(seed: int) -> None:
    examine(seed)


@pytest.mark.parametrize("seed", FEW)
def test_gradients_on_the_machine(seed: int) -> None:
    """In f32; by turns on machines of one core and of two, with a store in which records spill, and with a direct one."""
    w = ways(seed)
    g = upl.vjp(upl.load(w.text), of="Y", wrt=list(w.wrt))
    y = np.asarray(w.value(*(w.arrays[n] for n in w.wrt)))
    given = {**w.arrays, "d_Y": np.random.default_rng(seed).normal(size=y.shape)}
    want = upl.compile(g, engine="interp")(**given)
    got = upl.compile(g, engine="rtl", machine=MACHINES[seed % len(MACHINES)])(**given)
    for name, x in want.items():
        np.testing.assert_allclose(got[name], x, rtol=1e-4, atol=1e-4, err_msg=name)


def test_results_do_not_depend_on_the_order_of_arrival() -> None:
    """Token by token at random, 2,000 times: the same bits in ordered mode."""
    for seed in range(8):
        w = ways(seed)
        p = upl.load(w.text)
        want = upl.compile(p, gather="ordered", engine="interp")(**w.arrays)["Y"]
        for s in range(250):
            run = upl.compile(p, gather="ordered", engine="token", order="random", seed=s)
            np.testing.assert_array_equal(run(**w.arrays)["Y"], want)
