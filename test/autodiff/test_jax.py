"""The examples' derivatives against JAX in double precision: values, gradients to 1e-10, both modes, second order.

JAX is an oracle only (the extra `oracle`); each function below is written for it from the mathematics, not from the UPL
program.  The derivative program must itself pass `upl check` in full, but for what data decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.api.programs import reverse
from upl_mlir.passes.analysis.obligations import Status

jax = pytest.importorskip("jax", reason="JAX, the oracle, is not installed: pip install 'upl-mlir[oracle]'")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
Arrays = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Case:
    """One example: what is differentiated by what, at which sizes, and the same function for JAX."""

    name: str
    of: str
    wrt: tuple[str, ...]
    function: Callable[[Arrays], Any]
    params: Mapping[str, int] = field(default_factory=dict)
    sizes: tuple[tuple[str, Any], ...] = ()  # given when the program is loaded
    data: Callable[[np.random.Generator, dict[str, Any]], None] = lambda rng, given: None
    decided_by_data: bool = False
    second_order: bool = True

    def __str__(self) -> str:
        return f"{self.name}: {self.of}"

    def inputs(self, rng: np.random.Generator) -> dict[str, Any]:
        """Random inputs; `data` changes those that need it."""
        p = load(self)
        given: dict[str, Any] = {
            n: rng.standard_normal(v.shape(**self.params)) for n, v in p.inputs.items() if v.dtype == np.float64
        }
        self.data(rng, given)
        return given

    def value(self, given: Arrays) -> Any:
        """The function, for JAX."""
        return self.function({n: jnp.asarray(v) for n, v in given.items()})


@cache
def load(case: Case) -> upl.Program:
    return upl.load(EXAMPLES / f"{case.name}.upl", **dict(case.sizes))


@cache
def gradient(case: Case) -> upl.Program:
    return reverse(load(case), of=case.of, wrt=case.wrt)


# -- the functions, for JAX --------------------------------------------------------------------------------------------
def cholesky(a):
    lower = jnp.tril(a["A"])
    n = len(lower)
    L = jnp.zeros_like(lower)
    for j in range(n):
        d = jnp.sqrt(lower[j, j] - jnp.sum(L[j, :j] ** 2))
        L = L.at[j, j].set(d)
        for i in range(j + 1, n):
            L = L.at[i, j].set((lower[i, j] - jnp.dot(L[i, :j], L[j, :j])) / d)
    return L


def conv2d(a):
    x, g = jnp.pad(a["X"], 1), a["G"]
    H, W = a["X"].shape
    # Y[i,j] = tanh(sum over a,b of X[i+a,j+b] G[a,b])
    return jnp.tanh(sum(x[p : p + H, q : q + W] * g[p, q] for p in range(3) for q in range(3)))


def conv_strided(a):
    out = jax.lax.conv_general_dilated(a["X"][None], a["W"], (2, 2), "VALID")[0]
    return out + a["Bias"][:, None, None]


def gmm(a):
    q = (a["X"][:, None, :] - a["M"][None]) * jnp.exp(-a["S"])[None]
    log = jnp.sum(-0.5 * q * q - a["S"][None] - 0.5 * jnp.log(2 * jnp.pi), axis=2)
    return jnp.sum(jax.nn.logsumexp(jax.nn.log_softmax(a["A"])[None] + log, axis=1))


def jacobi1d(steps):
    def f(a):
        u = a["A"]
        for _ in range(steps):
            u = jnp.concatenate([u[:1], (u[:-2] + u[1:-1] + u[2:]) / 3, u[-1:]])
        return u

    return f


def jacobi2d(steps):
    def f(a):
        u = a["A"]
        for _ in range(steps):
            mean = (u[1:-1, 1:-1] + u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 5
            u = u.at[1:-1, 1:-1].set(mean)
        return u

    return f


def wave(steps):
    def f(a):
        before, u = a["U0"], a["U1"]
        for _ in range(steps - 1):
            inner = 2 * u[1:-1] - before[1:-1] + a["C"] * (u[:-2] - 2 * u[1:-1] + u[2:])
            before, u = u, jnp.concatenate([u[:1], inner, u[-1:]])
        return u

    return f


def lstm(output):
    def f(a):
        h, c, rows = a["H0"], a["C0"], []
        for x in a["X"]:
            z = [x @ a["W"][g] + h @ a["V"][g] + a["B"][g] for g in range(4)]
            enter, keep, new, show = jax.nn.sigmoid(z[0]), jax.nn.sigmoid(z[1]), jnp.tanh(z[2]), jax.nn.sigmoid(z[3])
            c = keep * c + enter * new
            h = show * jnp.tanh(c)
            rows.append(h)
        return jnp.stack(rows) if output == "Y" else c

    return f


def mds(a):
    x = a["X"]
    n = len(x)
    i, j = jnp.triu_indices(n, 1)
    wanted = jnp.zeros((n, n)).at[: n - 1, 1:].set(a["D"])[i, j]  # the array's element 0 is (0, 1)
    return jnp.sum((jnp.sqrt(jnp.sum((x[i] - x[j]) ** 2, axis=1)) - wanted) ** 2)


def hypergradient(a):
    """Trained by JAX's own derivatives."""
    def loss(w, x, y):
        return jnp.mean((jnp.tanh(x @ w) - y) ** 2) / 2

    w = a["W"]
    for _ in range(4):
        w = w - a["rate"] * jax.grad(loss)(w, a["X"], a["Y"])
    return loss(w, a["XV"], a["YV"])


WIDTHS = (3, 4, 2, 3)


def perceptron(a):
    def one(x, w):
        for k in range(len(WIDTHS) - 1):
            x = jax.nn.relu(x @ w[k, : WIDTHS[k], : WIDTHS[k + 1]])
        return x

    return jax.vmap(one)(a["X"], a["W"])


def mlp(a):
    z = a["X"]
    for k in range(len(WIDTHS) - 1):
        z = z @ a["W"][k, : WIDTHS[k], : WIDTHS[k + 1]] + a["B"][k, : WIDTHS[k + 1]]
        z = jnp.tanh(z) if k < len(WIDTHS) - 2 else z
    return jnp.mean(jax.nn.logsumexp(z, axis=1) - jnp.sum(z * a["Y"], axis=1))


def matrix_chain(a):
    out = a["A"][0, : WIDTHS[0], : WIDTHS[1]]
    for k in range(1, len(WIDTHS) - 1):
        out = out @ a["A"][k, : WIDTHS[k], : WIDTHS[k + 1]]
    return out


def softmax_loss(a):
    return -jnp.mean(jnp.sum(a["Y"] * jax.nn.log_softmax(a["X"]), axis=1))


def triangular_solve(a):
    return jax.scipy.linalg.solve_triangular(a["L"], a["B"], lower=True)


def upsample(a):
    x = a["X"]
    m, n = x.shape
    out = jnp.zeros((2 * m - 1, 2 * n - 1)).at[::2, ::2].set(x)
    out = out.at[1::2, ::2].set((x[:-1] + x[1:]) / 2).at[::2, 1::2].set((x[:, :-1] + x[:, 1:]) / 2)
    return out.at[1::2, 1::2].set((x[:-1, :-1] + x[1:, :-1] + x[:-1, 1:] + x[1:, 1:]) / 4)


def kepler(a):
    """The root of E - e sin E = M, differentiated as an implicit function (the iteration has converged)."""
    m, e = a["M"], a["e"]

    @jax.custom_jvp
    def solve(m, e):
        E = m
        for _ in range(30):
            E = E - (E - e * jnp.sin(E) - m) / (1 - e * jnp.cos(E))
        return E

    @solve.defjvp
    def _(primals, tangents):
        E = solve(*primals)
        return E, (tangents[0] + jnp.sin(E) * tangents[1]) / (1 - primals[1] * jnp.cos(E))

    return solve(m, e)


def floyd_warshall(a):
    d = a["W"]
    for k in range(len(d)):
        d = jnp.minimum(d, d[:, k : k + 1] + d[k : k + 1, :])
    return d


# -- data --------------------------------------------------------------------------------------------------------------
def positive_definite(rng, given):
    m = rng.standard_normal(given["A"].shape)
    given["A"] = np.tril(m @ m.T + len(m) * np.eye(len(m)))


def well_conditioned(rng, given):
    given["L"] = np.tril(given["L"]) + 4 * np.eye(len(given["L"]))


def rows_of_ones(rng, given):
    given["Y"] = np.exp(given["Y"]) / np.exp(given["Y"]).sum(axis=1, keepdims=True)


def at_least_one(rng, given):
    given["w1"], given["w2"] = np.float64(1.7), np.float64(0.6)


def anomalies(rng, given):
    given["M"], given["e"] = rng.uniform(0.1, 3, given["M"].shape), rng.uniform(0.05, 0.6, given["e"].shape)


def lengths(rng, given):
    given["W"] = rng.uniform(1, 9, given["W"].shape)
    np.fill_diagonal(given["W"], 0.0)


NET = (("K", len(WIDTHS)), ("N", WIDTHS))
TRAINED = Case(
    "hypergradient", "L", ("rate", "W", "X", "Y", "XV", "YV"), hypergradient, {"T": 4, "m": 5, "v": 3, "n": 2}
)

CASES = [
    Case("perceptron", "R", ("X", "W"), perceptron, {"D": 2}, NET),
    Case("mlp", "Loss", ("X", "W", "B"), mlp, {"D": 3}, NET, data=rows_of_ones),
    Case("softmax", "Loss", ("X",), softmax_loss, {"D": 3, "n": 4}, data=rows_of_ones),
    Case("softmax", "P", ("X",), lambda a: jax.nn.softmax(a["X"]), {"D": 3, "n": 4}, data=rows_of_ones),
    Case("conv2d", "Y", ("X", "G"), conv2d, {"H": 4, "W": 5}),
    Case("conv_strided", "Y", ("X", "W", "Bias"), conv_strided, {"C": 2, "K": 2, "P": 2, "Q": 3}),
    Case("jacobi1d", "B", ("A",), jacobi1d(4), {"T": 4, "n": 7}),
    Case("jacobi2d", "B", ("A",), jacobi2d(3), {"T": 3, "m": 4, "n": 5}),
    Case("wave", "Y", ("U0", "U1", "C"), wave(4), {"T": 4, "n": 6}),
    Case("lstm", "Y", ("X", "W", "V", "B", "H0", "C0"), lstm("Y"), {"T": 2, "E": 2, "H": 3}),
    Case("lstm", "C", ("X", "V", "C0"), lstm("C"), {"T": 3, "E": 2, "H": 2}),
    Case("triangular_solve", "X", ("L", "B"), triangular_solve, {"n": 5}, data=well_conditioned),
    Case("cholesky", "L", ("A",), cholesky, {"n": 4}, data=positive_definite),
    Case("gmm", "L", ("X", "A", "M", "S"), gmm, {"D": 3, "K": 2, "n": 2}),
    Case("mds", "Stress", ("X", "D"), mds, {"n": 5, "K": 2}),
    Case("scalars", "Y", ("w1", "w2"), lambda a: a["w2"] * jnp.log(a["w1"]) + jnp.sqrt(a["w2"] * jnp.log(a["w1"])),
         data=at_least_one),
    Case("matrix_chain", "P", ("A",), matrix_chain, sizes=(("K", len(WIDTHS) - 1), ("N", WIDTHS))),
    Case("matmul", "C", ("A", "B"), lambda a: a["A"] @ a["B"], {"m": 3, "n": 2, "r": 4}),
    Case("diagonal", "Y", ("A", "D"), lambda a: jnp.diagonal(a["A"]) * a["D"], {"n": 4}),
    Case("diagonal", "Tr", ("A",), lambda a: jnp.trace(a["A"]), {"n": 4}),
    Case("reshape", "Y", ("A", "W"), lambda a: (a["A"].reshape(-1, 4) * a["W"]).T, {"n": 2}),
    Case("upsample", "Y", ("X",), upsample, {"m": 3, "n": 4}),
    Case("scan", "Y", ("X",), lambda a: jnp.cumsum(a["X"]), sizes=(("K", 3), ("P", (1, 2, 4, 7)))),
    Case("floyd_warshall", "S", ("W",), floyd_warshall, {"n": 4}, data=lengths),
    TRAINED,
    Case("newton", "E", ("M", "e"), kepler, {"n": 4}, data=anomalies, decided_by_data=True, second_order=False),
]  # fmt: skip


@pytest.mark.parametrize("engine", ["interp", "token", "native"])
def test_the_derivatives_of_a_training_run_on_every_engine(engine: Any) -> None:
    """By the rate, the first weights and all data, and second derivatives by rate and weights."""
    given = TRAINED.inputs(np.random.default_rng(6))
    wanted = jax.grad(TRAINED.value)({n: jnp.asarray(v) for n, v in given.items()})
    out = upl.compile(gradient(TRAINED), engine)(**given, **TRAINED.params)
    for n in TRAINED.wrt:
        close(out[f"d_{n}"], wanted[n], 1e-10)
    names = ("rate", "W")
    rest = {n: v for n, v in given.items() if n not in names}
    inner = {n: jnp.asarray(given[n]) for n in names}
    exact = jax.hessian(lambda x: TRAINED.value({**rest, **x}))(inner)
    found = upl.compile(upl.hessian(load(TRAINED), of="L", wrt=names), engine)(**given, **TRAINED.params)
    for a in names:
        for b in names:
            close(found[f"H_{a}_{b}"], exact[a][b], 1e-10)


def close(found: Any, wanted: Any, tolerance: float) -> None:
    """Relative to the greatest element: derivatives of sums cancel."""
    wanted = np.asarray(wanted)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * max(1e-300, np.abs(wanted).max(initial=0)))


def seed_of(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    """The random cotangent, as the derivative program takes it; none for one number."""
    port = load(case).outputs[case.of]
    return {f"d_{case.of}": rng.standard_normal(port.shape(**case.params))} if port.fields else {}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value_and_gradient(case: Case) -> None:
    rng = np.random.default_rng(20211121)
    given, seed = case.inputs(rng), seed_of(case, rng)
    g = gradient(case)
    report = g.check()
    unproved = {o.status for o in report.obligations} - {Status.PROVED}
    assert unproved <= ({Status.UNPROVED} if case.decided_by_data else set()), unproved
    out = upl.compile(g)(**given, **seed, **case.params)
    rest = {n: given[n] for n in given if n not in case.wrt}
    value, back = jax.vjp(lambda x: case.value({**rest, **x}), {n: jnp.asarray(given[n]) for n in case.wrt})
    close(out[case.of], value, 1e-11 if case.decided_by_data else 1e-13)
    cotangent = seed.get(f"d_{case.of}", 1.0)
    (wanted,) = back(jnp.asarray(cotangent, dtype=jnp.float64))
    for n in case.wrt:
        close(out[f"d_{n}"], wanted[n], 1e-9 if case.decided_by_data else 1e-10)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reverse_is_the_transpose_of_forward(case: Case) -> None:
    """<J v, w> = <v, J^T w> for random v and w."""
    rng = np.random.default_rng(1)
    given, seed = case.inputs(rng), seed_of(case, rng)
    v = {n: rng.standard_normal(np.shape(given[n])) for n in case.wrt}
    t = upl.jvp(load(case), of=case.of, wrt=case.wrt)
    forward = upl.compile(t)(**given, **{f"t_{n}": x for n, x in v.items()}, **case.params)[f"t_{case.of}"]
    out = upl.compile(gradient(case))(**given, **seed, **case.params)
    left = np.sum(forward * seed.get(f"d_{case.of}", 1.0))
    parts = [v[n] * out[f"d_{n}"] for n in case.wrt]
    size = sum(np.abs(p).sum() for p in parts)
    assert abs(left - sum(p.sum() for p in parts)) <= 1e-12 * size


SECOND = [c for c in CASES if c.second_order]


@pytest.mark.parametrize("case", SECOND, ids=str)
def test_second_order_is_symmetric(case: Case) -> None:
    """<u, H v> = <v, H u> for the Hessian H of <w, f>, forward over reverse."""
    rng = np.random.default_rng(2)
    given, seed = case.inputs(rng), seed_of(case, rng)
    names = case.wrt
    from upl_mlir.api.programs import _with_tangent  # of several derivatives at once, along all variables

    h = upl.compile(_with_tangent(gradient(case), tuple(f"d_{n}" for n in names), names))

    def times(v: Arrays) -> dict[str, Any]:
        out = h(**given, **seed, **{f"t_{n}": x for n, x in v.items()}, **case.params)
        return {n: out[f"t_d_{n}"] for n in names}

    u, v = ({n: rng.standard_normal(np.shape(given[n])) for n in names} for _ in range(2))
    hu, hv = times(u), times(v)
    left, right = (sum(np.sum(a[n] * b[n]) for n in names) for a, b in ((u, hv), (v, hu)))
    size = sum(np.abs(u[n] * hv[n]).sum() + np.abs(v[n] * hu[n]).sum() for n in names)
    assert abs(left - right) <= 1e-11 * size + 1e-300


def test_the_hessian_of_a_mixture_is_jaxs() -> None:
    case = next(c for c in CASES if c.name == "gmm")
    rng = np.random.default_rng(3)
    given = case.inputs(rng)
    rest = {n: a for n, a in given.items() if n != "M"}
    exact = jax.hessian(lambda m: case.value({**rest, "M": m}))(jnp.asarray(given["M"]))
    h = upl.compile(upl.hvp(load(case), of="L", wrt="M"))
    for at in np.ndindex(*given["M"].shape):
        v = np.zeros_like(given["M"])
        v[at] = 1.0
        close(h(**given, t_M=v, **case.params)["t_d_M"], exact[(..., *at)], 1e-10)
