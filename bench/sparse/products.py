# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportArgumentType=false
"""Sparse products, chosen rows, messages on graphs: values and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import upl_mlir as upl
from bench.sparse.measure import HERE, Row, at, jax_gradient, jitted, kernels, numba, torch
from bench.sparse.programs import COO, MESSAGES, RANK, ROWS

EXAMPLES = HERE.parent.parent / "examples"
MANY = 1_000_000
"""Numbers of a sparse matrix."""


def rows() -> Iterator[Row]:
    """The lines."""
    rng = np.random.default_rng(0)
    yield from ell(rng)
    yield coordinates(rng)
    yield from ranks(rng)
    yield chosen(rng)
    yield chosen_gradient(rng)
    yield from messages(rng)
    yield passing(rng)


def narrow(rng: Any, most: int, shape: Any) -> Any:
    """Indices below a number, of 32 bits."""
    return rng.integers(0, most, shape).astype(np.int32)


def compiled(text: Any, **options: Any) -> Callable[..., Any]:
    """A program as native code, called with a dictionary of results."""
    return upl.compile(upl.load(text) if not isinstance(text, upl.Program) else text, engine="native", **options)


def token(text: Any, **given: Any) -> Callable[[], Any]:
    """A call on the token engine."""
    params = {n: v for n, v in given.items() if isinstance(v, int)}
    f = upl.compile(upl.load(text), engine="token", **params)
    arrays = {n: v for n, v in given.items() if not isinstance(v, int)}
    return lambda: f(**arrays)


def ell(rng: Any) -> Iterator[Row]:
    """A sparse matrix by rows of ten numbers each."""
    import scipy.sparse as sp

    m, w = MANY // 10, 10
    v, x, d = rng.random((m, w)), rng.random(m), rng.random(m)
    col, count = narrow(rng, m, (m, w)), np.full(m, w, np.int32)
    y = np.zeros(m)
    program = upl.load(EXAMPLES / "spmv.upl")
    f = compiled(program)

    def loops(v: Any, col: Any, count: Any, x: Any) -> Any:
        y = np.zeros(len(v))
        for i in range(len(v)):
            for p in range(count[i]):
                y[i] += v[i, p] * x[col[i, p]]
        return y

    for bits, c in (("", kernels()), (", indices of 64 bits", kernels("int64_t"))):
        if bits:
            col, count = col.astype(np.int64), count.astype(np.int64)
        a = sp.csr_matrix((v.ravel(), col.ravel(), np.arange(0, m * w + 1, w)), shape=(m, m))
        given = {"V": v, "Col": col, "Count": count, "X": x}
        peers = {
            "scipy": partial(a.__matmul__, x), "JAX": jitted(lambda v, k, x: (v * x[k]).sum(1), v, col, x),
            "numba": numba(loops, v, col, count, x), "PyTorch": torch(lambda t, v, k, x: (v * x[k]).sum(1), v, col, x),
        }  # fmt: skip
        yield Row(
            f"sparse product, ELL, 10⁶{bits}", partial(f, **given, out={"Y": y}),
            partial(c.ell, m, w, at(v), at(col), at(count), at(x), at(y)), {"Y": y}, peers if not bits else {},
            token(EXAMPLES / "spmv.upl", **given) if not bits else None,
        )  # fmt: skip
    c, col, count = kernels(), col.astype(np.int32), count.astype(np.int32)
    dx, dv = np.zeros(m), np.zeros((m, w))
    g = compiled(upl.vjp(program, of="Y", wrt=["V", "X"]))
    yield Row(
        "the same with gradients by both",
        partial(g, V=v, Col=col, Count=count, X=x, d_Y=d, out={"Y": y, "d_V": dv, "d_X": dx}),
        partial(c.ell_gradient, m, m, w, *map(at, (v, col, count, x, d, y, dv, dx))), {"Y": y, "d_V": dv, "d_X": dx},
        {"JAX": jax_gradient(lambda v, x: (v * x[col]).sum(1), d, v, x),
         "PyTorch": torch(lambda t, v, k, x: (v * x[k]).sum(1), v, col, x, d=d)},
    )  # fmt: skip


def coordinates(rng: Any) -> Row:
    """A sparse matrix as a list of numbers with row and column, sorted by rows."""
    import scipy.sparse as sp

    m, e, c = MANY // 10, MANY, kernels()
    v, x, y = rng.random(e), rng.random(m), np.zeros(m)
    r, col = np.sort(narrow(rng, m, e)), narrow(rng, m, e)
    f, b = compiled(COO), sp.coo_matrix((v, (r, col)), shape=(m, m))

    def loops(v: Any, r: Any, col: Any, x: Any) -> Any:
        y = np.zeros(len(x))
        for e in range(len(v)):
            y[r[e]] += v[e] * x[col[e]]
        return y

    peers = {
        "scipy": partial(b.__matmul__, x), "JAX": jitted(lambda v, r, k, x: _zeros(m).at[r].add(v * x[k]), v, r, col, x),
        "numba": numba(loops, v, r, col, x),
        "PyTorch": torch(lambda t, v, r, k, x: t.zeros(m, dtype=t.float64).index_add(0, r, v * x[k]), v, r, col, x),
    }  # fmt: skip
    return Row(
        "sparse product, coordinates, 10⁶", partial(f, V=v, Row=r, Col=col, X=x, m=m, out={"Y": y}),
        partial(c.coo, e, m, at(v), at(r), at(col), at(x), at(y)), {"Y": y}, peers,
        token(COO, V=v, Row=r, Col=col, X=x, m=m),
    )  # fmt: skip


def ranks(rng: Any) -> Iterator[Row]:
    """PageRank."""
    import scipy.sparse as sp

    n, e, steps, c = 100_000, MANY, 20, kernels()
    src, dst = narrow(rng, n, e), narrow(rng, n, e)
    out, r0 = np.bincount(src, minlength=n) + 1.0, rng.random(n)
    y, s1, s2 = np.zeros((3, n))
    link = sp.csr_matrix((np.ones(e), (dst, src)), shape=(n, n))

    def by(spread: Callable[[Any], Any], r: Any) -> Any:
        for _ in range(steps):
            r = 0.15 / n + 0.85 * spread(r / out)
        return r

    def jax_steps(src: Any, dst: Any, out: Any, r: Any) -> Any:
        import jax

        def step(_: Any, r: Any) -> Any:
            return 0.15 / n + 0.85 * _zeros(n).at[dst].add((r / out)[src])

        return jax.lax.fori_loop(0, steps, step, r)

    def loops(src: Any, dst: Any, out: Any, r: Any) -> Any:
        for _ in range(steps):
            s, given = np.zeros(len(r)), r / out
            for e in range(len(src)):
                s[dst[e]] += given[src[e]]
            r = 0.15 / len(r) + 0.85 * s
        return r

    def torch_steps(t: Any, src: Any, dst: Any, out: Any, r: Any) -> Any:
        for _ in range(steps):
            r = 0.15 / n + 0.85 * t.zeros(n, dtype=t.float64).index_add(0, dst, (r / out)[src])
        return r

    given = {"From": src, "To": dst, "Out": out, "R0": r0}
    yield Row(
        "PageRank, 10⁵ pages, 10⁶ links, 20 steps", partial(compiled(RANK), **given, T=steps, out={"Rank": y}),
        partial(c.pagerank, n, e, steps, *map(at, (src, dst, out, r0, y, s1, s2))), {"Rank": y},
        {"scipy": lambda: by(lambda r: link @ r, r0), "JAX": jitted(jax_steps, src, dst, out, r0),
         "numba": numba(loops, src, dst, out, r0), "PyTorch": torch(torch_steps, src, dst, out, r0)},
        token(RANK, **given, T=2), steps / 2,
    )  # fmt: skip


def chosen(rng: Any) -> Row:
    """Rows of a table."""
    ids, table, c = narrow(rng, 50_000, 512), rng.random((50_000, 64)), kernels()
    y = np.zeros((512, 64))

    def loops(ids: Any, table: Any) -> Any:
        return table[ids]

    return Row(
        "512 rows of 50 000, 64 wide", partial(compiled(ROWS), Id=ids, Table=table, out={"Y": y}),
        partial(c.rows, 512, 64, at(ids), at(table), at(y)), {"Y": y},
        {"JAX": jitted(loops, ids, table), "numba": numba(loops, ids, table),
         "PyTorch": torch(lambda t, i, w: w[i], ids, table)}, token(ROWS, Id=ids, Table=table),
    )  # fmt: skip


def chosen_gradient(rng: Any) -> Row:
    """Chosen rows and a linear layer, with the derivatives by the whole table and by the layer."""
    b, r, k, c = 512, 50_000, 64, kernels()
    ids, table, w, d = narrow(rng, r, b), rng.random((r, k)), rng.random((k, k)), rng.random((b, k))
    y, dt, dw = np.zeros((b, k)), np.zeros((r, k)), np.zeros((k, k))
    f = compiled(upl.vjp(upl.load(EXAMPLES / "sparse" / "embedding.upl"), of="Y", wrt=["Table", "W"]))
    return Row(
        "rows and a layer 64 by 64, with gradients",
        partial(f, Table=table, Id=ids, W=w, d_Y=d, out={"Y": y, "d_Table": dt, "d_W": dw}),
        partial(c.embedding_gradient, b, k, k, r, *map(at, (ids, table, w, d, y, dt, dw))),
        {"Y": y, "d_Table": dt, "d_W": dw},
        {"JAX": jax_gradient(lambda t, w: t[ids] @ w, d, table, w),
         "PyTorch": torch(lambda t, i, table, w: table[i] @ w, ids, table, w, d=d)},
    )  # fmt: skip


def messages(rng: Any) -> Iterator[Row]:
    """Weighted messages along edges."""
    n, e, k, c = 10_000, 200_000, 32, kernels()
    src, dst, weight, hidden = narrow(rng, n, e), narrow(rng, n, e), rng.random(e), rng.random((n, k))
    d, y, dh, dg = rng.random((n, k)), np.zeros((n, k)), np.zeros((n, k)), np.zeros(e)
    program = upl.load(MESSAGES)

    def loops(src: Any, dst: Any, w: Any, h: Any) -> Any:
        y = np.zeros(h.shape)
        for e in range(len(src)):
            for j in range(h.shape[1]):
                y[dst[e], j] += w[e] * h[src[e], j]
        return y

    given = {"From": src, "To": dst, "G": weight, "H": hidden}
    yield Row(
        "messages of 32 along 200 000 edges", partial(compiled(program), **given, out={"Y": y}),
        partial(c.messages, n, e, k, *map(at, (src, dst, hidden, weight, y))), {"Y": y},
        {"JAX": jitted(lambda s, d, w, h: _zeros((n, k)).at[d].add(w[:, None] * h[s]), src, dst, weight, hidden),
         "numba": numba(loops, src, dst, weight, hidden),
         "PyTorch": torch(lambda t, s, d, w, h: t.zeros_like(h).index_add(0, d, w[:, None] * h[s]),
                          src, dst, weight, hidden)},
        token(MESSAGES, **given),
    )  # fmt: skip
    yield Row(
        "the same with gradients by both ",
        partial(compiled(upl.vjp(program, of="Y", wrt=["H", "G"])), **given, d_Y=d, out={"Y": y, "d_H": dh, "d_G": dg}),
        partial(c.messages_gradient, n, e, k, *map(at, (src, dst, hidden, weight, d, y, dh, dg))),
        {"Y": y, "d_H": dh, "d_G": dg},
        {"JAX": jax_gradient(lambda h, g: _zeros((n, k)).at[dst].add(g[:, None] * h[src]), d, hidden, weight),
         "PyTorch": torch(lambda t, s, d, h, w: t.zeros_like(h).index_add(0, d, w[:, None] * h[s]),
                          src, dst, hidden, weight, d=d)},
    )  # fmt: skip


def passing(rng: Any) -> Row:
    """Message passing: a layer of 32 by 32 and tanh at each vertex, sums along edges, all derivatives."""
    n, e, k, c = 10_000, 200_000, 32, kernels()
    src, dst, h, w = narrow(rng, n, e), narrow(rng, n, e), rng.normal(size=(n, k)), rng.normal(size=(k, k))
    d, y, dh, dw = rng.random((n, k)), np.zeros((n, k)), np.zeros((n, k)), np.zeros((k, k))
    f = compiled(upl.vjp(upl.load(EXAMPLES / "sparse" / "message_passing.upl"), of="Out", wrt=["H", "W"]))

    def in_jax(h: Any, w: Any) -> Any:
        import jax.numpy as jnp

        return h.at[dst].add(jnp.tanh(h @ w)[src])

    return Row(
        "message passing, tanh of a layer 32 by 32, with gradients",
        partial(f, From=src, To=dst, H=h, W=w, d_Out=d, out={"Out": y, "d_H": dh, "d_W": dw}),
        partial(c.passing_gradient, n, e, k, *map(at, (src, dst, h, w, d, y, dh, dw))), {"Out": y, "d_H": dh, "d_W": dw},
        {"JAX": jax_gradient(in_jax, d, h, w),
         "PyTorch": torch(lambda t, s, d, h, w: h.index_add(0, d, t.tanh(h @ w)[s]), src, dst, h, w, d=d)},
    )  # fmt: skip


def _zeros(shape: Any) -> Any:
    import jax.numpy as jnp

    return jnp.zeros(shape)
