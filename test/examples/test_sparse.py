"""The programs of `examples/sparse` against JAX: values, gradients to 1e-10, second order to 1e-8, on token engines, and
gradients on the machine, in f32.

Beside them SpMV by its matrix and by its vector, and a polynomial whose degree is data.  Each function below is written from
the mathematics; the data decide the ways, so it may use them as plain numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.engines.token.all_sizes import LoopsOrTokens

jax = pytest.importorskip("jax", reason="JAX, the oracle, is not installed: pip install 'upl-mlir[oracle]'")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RNG: Any = np.random.default_rng(5)
HORNER = """program horner
param n >= 1
param M >= 0
input C<k> in 0<=k<=M    { ## -> Step.c<*,k> }
input X<i> in 0<=i<n     { -> Begin.x }
input Degree<i>: int in 0<=i<n { -> Begin.deg }
output Y<i>
node Begin<i> { in x, deg: int; 0*x -> Step.s<i,deg>; x -> Step.x<i,deg> }
node Step<i,k> in 0<=i<n, 0<=k<=M {
  in s, x, c
  y = s*x + c
  if k>0:  y -> Step.s<i,k-1>
  if k>0:  x -> Step.x<i,k-1>
  if k==0: y -> Y<i>
}
"""
"""Each point has a polynomial of its own degree, of the same coefficients."""


@dataclass(frozen=True, eq=False)
class Case:
    """A program with data; `function` takes the arrays and gives the output `of` in JAX."""

    source: str
    of: str
    wrt: tuple[str, ...]
    arrays: Mapping[str, Any]
    function: Callable[[Mapping[str, Any]], Any]
    params: Mapping[str, int] = field(default_factory=dict)


def _embedding(a: Mapping[str, Any]) -> Any:
    return a["Table"][a["Id"]] @ a["W"]


def _pagerank(a: Mapping[str, Any]) -> Any:
    r = a["R0"]
    for _ in range(4):
        r = 0.15 / len(r) + 0.85 * jnp.zeros_like(r).at[a["To"]].add(a["W"] * r[a["From"]])
    return r


def _message_passing(a: Mapping[str, Any]) -> Any:
    h = jnp.asarray(a["H"])
    return h.at[a["To"]].add(jnp.tanh(h @ a["W"])[a["From"]])


def _viterbi(a: Mapping[str, Any]) -> Any:
    best = a["Start"]
    for seen in a["Seen"]:
        best = jnp.max(best[:, None] + a["Move"], axis=0) + seen
    return jnp.max(best)


def _knapsack(a: Mapping[str, Any]) -> Any:
    best = a["Zero"]
    for w, v in zip(a["Weight"], a["Value"], strict=True):
        best = jnp.concatenate([best[:w], jnp.maximum(best[w:], best[: len(best) - w] + v)])
    return best[-1]


def _lower_solve(a: Mapping[str, Any]) -> Any:
    x: list[Any] = []
    for i, n in enumerate(a["Count"]):
        s = sum((a["V"][i, p] * x[a["Col"][i, p]] for p in range(n)), jnp.asarray(0.0))
        x.append((a["B"][i] - s) / a["Diag"][i])
    return jnp.stack(x)


def _spmv(a: Mapping[str, Any]) -> Any:
    used = np.arange(a["Col"].shape[1]) < a["Count"][:, None]
    return jnp.sum(jnp.where(used, a["V"] * a["X"][a["Col"]], 0.0), axis=1)


def _horner(a: Mapping[str, Any]) -> Any:
    return jnp.stack([sum(a["C"][k] * x**k for k in range(d + 1)) for x, d in zip(a["X"], a["Degree"], strict=True)])


def _normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


N = 6
CASES = {
    "embedding": Case(
        "embedding", "Y", ("Table", "W"), {"Table": _normal(5, 3), "Id": np.array([4, 0, 4, 2]), "W": _normal(3, 2)},
        _embedding, {"n": 5, "d": 3, "b": 4, "m": 2},
    ),
    "pagerank": Case(
        "pagerank", "R", ("R0", "W"),
        {"From": RNG.integers(0, 5, 11), "To": RNG.integers(0, 5, 11), "W": _normal(11), "R0": _normal(5)},
        _pagerank, {"n": 5, "m": 11, "T": 4},
    ),
    "message_passing": Case(
        "message_passing", "Out", ("H", "W"),
        {"H": _normal(4, 3), "W": _normal(3, 3), "From": np.array([0, 1, 1, 3, 0]), "To": np.array([1, 2, 0, 2, 2])},
        _message_passing, {"n": 4, "m": 5, "d": 3},
    ),
    "viterbi": Case(
        "viterbi", "Score", ("Start", "Move", "Seen"), {"Start": _normal(3), "Move": _normal(3, 3), "Seen": _normal(4, 3)},
        _viterbi, {"T": 4, "S": 3},
    ),
    "knapsack": Case(
        "knapsack", "Y", ("Value",), {"Weight": np.array([2, 3, 1, 4]), "Value": _normal(4) ** 2, "Zero": np.zeros(7)},
        _knapsack, {"n": 4, "C": 6},
    ),
    "lower_solve": Case(
        "lower_solve", "X", ("V", "Diag", "B"),
        {
            "V": _normal(N, 2), "Col": np.array([[0, 0], [0, 0], [1, 0], [2, 0], [3, 1], [0, 4]]),
            "Count": np.array([0, 1, 2, 1, 2, 2]), "Diag": 2 + _normal(N) ** 2, "B": _normal(N),
        },
        _lower_solve, {"n": N, "w": 2},
    ),
    "spmv": Case(
        "spmv", "Y", ("V", "X"),
        {"V": _normal(4, 3), "Col": RNG.permuted(np.tile(np.arange(5), (4, 1)), axis=1)[:, :3],
         "Count": np.array([3, 0, 2, 1]), "X": _normal(5)},
        _spmv, {"m": 4, "n": 5, "w": 3},
    ),
    "horner": Case(
        HORNER, "Y", ("C", "X"), {"C": _normal(5), "X": _normal(4), "Degree": np.array([4, 0, 2, 3])},
        _horner, {"n": 4, "M": 4},
    ),
}  # fmt: skip
ENGINES = ("interp", "token", "native")


@cache
def program(name: str) -> upl.Program:
    source = CASES[name].source
    if "{" in source:
        return upl.load(source)
    place = EXAMPLES / f"{source}.upl"
    return upl.load(place if place.exists() else EXAMPLES / "sparse" / f"{source}.upl")


@cache
def gradient(name: str) -> upl.Program:
    c = CASES[name]
    p = program(name)
    return upl.vjp(p, of=c.of, wrt=list(c.wrt)) if p.outputs[c.of].fields else upl.grad(p, of=c.of, wrt=list(c.wrt))


def weights(name: str) -> Any:
    return np.random.default_rng(1).normal(size=np.shape(CASES[name].function(CASES[name].arrays)))


def seeded(name: str) -> dict[str, Any]:
    """The arrays of a gradient: with the seed, where it takes one."""
    c, of = CASES[name], f"d_{CASES[name].of}"
    return {**c.arrays, **({of: weights(name)} if of in gradient(name).inputs else {})}


def objective(name: str) -> Callable[..., Any]:
    """The number that is differentiated, as a function of the arrays of `wrt`."""
    c = CASES[name]
    w = weights(name) if program(name).outputs[c.of].fields else 1.0
    return lambda *x: jnp.sum(w * c.function({**c.arrays, **dict(zip(c.wrt, x, strict=True))}))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("order", ["fifo", "random"])
@pytest.mark.parametrize("engine", ENGINES)
def test_values_and_gradients(name: str, engine: str, order: str) -> None:
    c = CASES[name]
    out = upl.compile(gradient(name), engine=engine, order=order, **c.params)(**seeded(name))
    np.testing.assert_allclose(out[c.of], c.function(c.arrays), rtol=1e-13, atol=1e-14)
    want = jax.grad(objective(name), argnums=tuple(range(len(c.wrt))))(*(c.arrays[n] for n in c.wrt))
    for n, x in zip(c.wrt, want, strict=True):
        np.testing.assert_allclose(out[f"d_{n}"], x, rtol=1e-10, atol=1e-12, err_msg=n)


@pytest.mark.parametrize("name", CASES)
def test_gradients_by_loops(name: str) -> None:
    """Natively these move no tokens, and neither do the programs."""
    for p, arrays in ((program(name), CASES[name].arrays), (gradient(name), seeded(name))):
        f = upl.compile(p, engine="native", **CASES[name].params)
        f(**arrays)
        native = f._native
        assert isinstance(native, LoopsOrTokens) and not native._by_tokens


@pytest.mark.parametrize("name", CASES)
def test_gradients_on_the_machine(name: str) -> None:
    """The same, as far as f32 goes."""
    c = CASES[name]
    out = upl.compile(gradient(name), engine="rtl", **c.params)(**seeded(name))
    np.testing.assert_allclose(out[c.of], c.function(c.arrays), rtol=1e-5, atol=1e-5)
    want = jax.grad(objective(name), argnums=tuple(range(len(c.wrt))))(*(c.arrays[n] for n in c.wrt))
    for n, x in zip(c.wrt, want, strict=True):
        np.testing.assert_allclose(out[f"d_{n}"], x, rtol=1e-4, atol=1e-5, err_msg=n)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_second_order(name: str, engine: str) -> None:
    """The Hessian by the first of `wrt`, times a vector: reverse over reverse."""
    c = CASES[name]
    first = f"d_{c.wrt[0]}"
    try:
        second = upl.vjp(gradient(name), of=first, wrt=c.wrt[0])
    except upl.UplError as e:
        assert e.diagnostics[0].code == "UPL1402" and name in ("knapsack", "viterbi"), e
        return  # piecewise linear: the gradient does not depend on what it is taken by
    x = c.arrays[c.wrt[0]]
    u = np.random.default_rng(2).normal(size=np.shape(x))
    f, at = objective(name), [c.arrays[n] for n in c.wrt]
    hu = jax.grad(lambda y: jnp.sum(u * jax.grad(f)(y, *at[1:])))(at[0])
    (seed,) = (n for n in second.inputs if n not in seeded(name))
    (result,) = (n for n in second.outputs if n not in gradient(name).outputs)
    out = upl.compile(second, engine=engine, **c.params)(**seeded(name), **{seed: u})
    np.testing.assert_allclose(out[result], hu, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_refuted(name: str) -> None:
    """All that stays open is what data decide; the gradient's text is read back as the same program."""
    g = gradient(name)
    for p in (program(name), g):
        assert p.check().ok, [o.message for o in p.check().obligations if o.status.name == "REFUTED"]
    c = CASES[name]
    again = upl.compile(upl.load(str(g)), gather="ordered", **c.params)(**seeded(name))
    for n, x in upl.compile(g, gather="ordered", **c.params)(**seeded(name)).items():
        np.testing.assert_array_equal(again[n], x, err_msg=n)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_the_matrix_of_spmv(mode: str) -> None:
    """The Jacobian of SpMV by the vector is the matrix."""
    c = CASES["spmv"]
    found = upl.compile(upl.jacobian(program("spmv"), of="Y", wrt="X", mode=mode), engine="interp", **c.params)(**c.arrays)
    want = np.zeros((4, 5))
    for i, n in enumerate(c.arrays["Count"]):
        np.add.at(want[i], c.arrays["Col"][i, :n], c.arrays["V"][i, :n])
    np.testing.assert_array_equal(found["J_Y_X"], want)


def test_the_way_back_of_viterbi() -> None:
    """The path is the one that makes the score, found among all."""
    c = CASES["viterbi"]
    out = upl.compile(program("viterbi"), engine="token", **c.params)(**c.arrays)
    found: dict[tuple[int, ...], Any] = {}
    for path in np.ndindex(*[3] * 5):
        steps = pairwise(path)
        found[path] = c.arrays["Start"][path[0]] + sum(
            c.arrays["Move"][r, s] + c.arrays["Seen"][t, s] for t, (r, s) in enumerate(steps)
        )
    best = max(found, key=lambda p: found[p])
    assert tuple(out["Path"]) == best
    np.testing.assert_allclose(out["Score"], found[best], rtol=1e-14)
