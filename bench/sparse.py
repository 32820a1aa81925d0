"""Programs that data decide, natively, beside C by hand, scipy and JAX: python -m bench.sparse

Each row is the least of many calls, taken in turns in one process, one thread; C has no checks, ours has all of them.
Results are compared.  scipy (whose indices have 32 bits, the others 64) and JAX are left out where they are not installed.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import upl_mlir as upl

HERE = Path(__file__).resolve().parent
ROUNDS, CALLS = 12, 4
"""Rounds of so many calls of each in turn."""
COO = """program coo
output Y<i> in 0<=i<m
node Elem<e> { in v, row: int, col: int; v -> Mul.v<col,e>; row -> Mul.row<col,e> }
node Mul<j,e> { in x, v, row: int; x*v -> Sum.s<row> }
node Sum<i> in 0<=i<m { in @(+) s[##]; s -> Y }
input X<j> in 0<=j<n { ## -> Mul.x<j,*> }
input Col<e>: int in 0<=e<z { -> Elem.col }
input Row<e>: int in 0<=e<z { -> Elem.row }
input V<e> in 0<=e<z { -> Elem.v }
param z >= 1
param n >= 1
param m >= 1
"""
RANK = """program pagerank
output Rank<v>
node Edge<e> { in src: int, dst: int; dst -> Msg.dst<t,src,e> for t in 0..T-1 }
node R<t,v> in 0<=t<=T, 0<=v<n { in r, out; if t<T: r/out ## -> Msg.r<t,v,*>; if t==T: r -> Rank<v> }
node Msg<t,v,e> { in r, dst: int; r -> Sum.s<t,dst> }
node Sum<t,v> in 0<=t<T, 0<=v<n { in @(+) s[##]; 0.15/n + 0.85*s -> R.r<t+1,v> }
input R0<v> in 0<=v<n { -> R.r<0,v> }
input Out<v> in 0<=v<n { #T+1 -> R.out<*,v> }
input To<e>: int in 0<=e<m { -> Edge.dst }
input From<e>: int in 0<=e<m { -> Edge.src }
param T >= 1
param m >= 1
param n >= 1
"""
ROWS = """program rows
param b >= 1
param k >= 1
param r >= 1
input Id<i>: int in 0<=i<b { -> Row.id<i> }
input Table<j,c> in 0<=j<r, 0<=c<k { ## -> Get.w<j,*,c> }
output Y<i,c>
node Row<i> in 0<=i<b { in id: int; 1 -> Get.one<id,i,c> for c in 0..k-1 }
node Get<j,i,c> { in w, one: int; w*one -> Y<i,c> }
"""
MESSAGES = """program messages
output Y<v,c>
node E<e> { in s: int, d: int, g; g -> M.g<s,e,c> for c in 0..f-1; d -> M.d<s,e,c> for c in 0..f-1 }
node M<v,e,c> { in h, g, d: int; g*h -> Sum.x<d,c> }
node Sum<v,c> in 0<=v<n, 0<=c<f { in @(+) x[##]; x -> Y }
input H<v,c> in 0<=v<n, 0<=c<f { ## -> M.h<v,*,c> }
input G<e> in 0<=e<m { -> E.g<e> }
input To<e>: int in 0<=e<m { -> E.d<e> }
input From<e>: int in 0<=e<m { -> E.s<e> }
param f >= 1
param m >= 1
param n >= 1
"""


def kernels() -> ctypes.CDLL:
    """The C by hand, compiled for this computer."""
    out = Path(tempfile.mkdtemp()) / "sparse.so"
    subprocess.run(["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", out, HERE / "sparse.c"], check=True)
    return ctypes.CDLL(str(out))


def at(a: Any) -> ctypes.c_void_p:
    """The address of an array."""
    return ctypes.c_void_p(a.ctypes.data)


def least(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Milliseconds of the fastest call of each, in turns."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            for _ in range(CALLS):
                start = time.perf_counter()
                call()
                found[name] = min(found[name], 1e3 * (time.perf_counter() - start))
    return found


def jitted(f: Callable[..., Any], *args: Any) -> Callable[[], Any] | None:
    """A function compiled by JAX in double precision on given arrays; None where JAX is not installed."""
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    run, given = jax.jit(f), [jax.numpy.asarray(a) for a in args]
    return lambda: jax.block_until_ready(run(*given))


def gradient(f: Callable[..., Any], d: Any, *args: Any) -> Callable[[], Any] | None:
    """The value of a function of reals and its derivatives, weighted by `d`, by JAX; None where it is not installed."""
    try:
        import jax
    except ImportError:
        return None

    def both(d: Any, *args: Any) -> Any:
        y, back = jax.vjp(f, *args)
        return (y, *back(d))

    return jitted(both, d, *args)


def row(name: str, ours: Callable[[], Any], z: Any, by_hand: Callable[[], Any], y: Any, **peers: Any) -> None:
    """One line of the table; `z` and `y` are the array of the result, or tuples of the arrays of all."""
    z, y = (a if isinstance(a, tuple) else (a,) for a in (z, y))
    ours(), by_hand()
    for n, (a, b) in enumerate(zip(z, y, strict=True)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        for peer in peers.values():
            if peer is not None:
                found = peer()
                np.testing.assert_allclose(np.asarray(found[n] if len(y) > 1 else found), b, rtol=1e-9, atol=1e-12)
    t = least({"ours": ours, "C": by_hand, **{n: p for n, p in peers.items() if p is not None}})
    others = [f"{t[n]:.3g}" if n in t else "–" for n in ("scipy", "jax")]
    print(f"| {name} | {t['ours']:.3g} | {t['C']:.3g} | {t['C'] / t['ours']:.2f} | {' | '.join(others)} |", flush=True)


def main() -> None:
    """The table."""
    import scipy.sparse as sp

    c, rng = kernels(), np.random.default_rng(0)
    print("| kernel | native, ms | C, ms | C by native | scipy, ms | JAX, ms |\n|---|---|---|---|---|---|")
    m, w = 100_000, 10
    v, col, count, x = rng.random((m, w)), rng.integers(0, m, (m, w)), np.full(m, w), rng.random(m)
    y, z = np.zeros(m), np.zeros(m)
    f = upl.compile(upl.load(HERE.parent / "examples" / "spmv.upl"), engine="native")
    a = sp.csr_matrix((v.ravel(), col.ravel(), np.arange(0, m * w + 1, w)), shape=(m, m))
    row("sparse product, ELL, 10⁶", lambda: f(V=v, Col=col, Count=count, X=x, out={"Y": z}), z,
        lambda: c.ell(m, w, at(v), at(col), at(count), at(x), at(y)), y, scipy=lambda: a @ x,
        jax=jitted(lambda v, k, x: (v * x[k]).sum(1), v, col, x))  # fmt: skip
    e = 1_000_000
    v, r, col = rng.random(e), np.sort(rng.integers(0, m, e)), rng.integers(0, m, e)
    g = upl.compile(upl.load(COO), engine="native")
    b = sp.coo_matrix((v, (r, col)), shape=(m, m))
    row("sparse product, coordinates, 10⁶", lambda: g(V=v, Row=r, Col=col, X=x, m=m, out={"Y": z}), z,
        lambda: c.coo(e, m, at(v), at(r), at(col), at(x), at(y)), y, scipy=lambda: b @ x,
        jax=jitted(lambda v, r, k, x: _zeros(m).at[r].add(v * x[k]), v, r, col, x))  # fmt: skip
    ids, table = rng.integers(0, 50_000, 512), rng.random((50_000, 64))
    y2, z2 = np.zeros((512, 64)), np.zeros((512, 64))
    h = upl.compile(upl.load(ROWS), engine="native")
    row("512 rows of 50 000, 64 wide", lambda: h(Id=ids, Table=table, out={"Y": z2}), z2,
        lambda: c.rows(512, 64, at(ids), at(table), at(y2)), y2, jax=jitted(lambda i, t: t[i], ids, table))  # fmt: skip
    n, e, k = 10_000, 200_000, 32
    src, dst, weight, hidden = rng.integers(0, n, e), rng.integers(0, n, e), rng.random(e), rng.random((n, k))
    y3, z3 = np.zeros((n, k)), np.zeros((n, k))
    q = upl.compile(upl.load(MESSAGES), engine="native")
    row("messages of 32 along 200 000 edges", lambda: q(From=src, To=dst, G=weight, H=hidden, out={"Y": z3}), z3,
        lambda: c.messages(n, e, k, at(src), at(dst), at(hidden), at(weight), at(y3)), y3,
        jax=jitted(lambda s, d, w, h: _zeros((n, k)).at[d].add(w[:, None] * h[s]), src, dst, weight, hidden))  # fmt: skip
    n, e, steps = 100_000, 1_000_000, 20
    src, dst = rng.integers(0, n, e), rng.integers(0, n, e)
    out, r0 = np.bincount(src, minlength=n) + 1.0, rng.random(n)
    y, z, s1, s2 = (np.zeros(n) for _ in range(4))
    p = upl.compile(upl.load(RANK), engine="native")
    link = sp.csr_matrix((np.ones(e), (dst, src)), shape=(n, n))
    row("PageRank, 10⁵ pages, 10⁶ links, 20 steps",
        lambda: p(From=src, To=dst, Out=out, R0=r0, T=steps, out={"Rank": z}), z,
        lambda: c.pagerank(n, e, steps, at(src), at(dst), at(out), at(r0), at(y), at(s1), at(s2)), y,
        scipy=lambda: _ranks(lambda given: link @ given, r0, out, steps))  # fmt: skip
    gradients(c, rng)


def gradients(c: ctypes.CDLL, rng: Any) -> None:
    """The rows of values with gradients."""
    m, w = 100_000, 10
    v, col, count, x = rng.random((m, w)), rng.integers(0, m, (m, w)), np.full(m, w), rng.random(m)
    d, (y, z), (dx, ex), (dv, ev) = rng.random(m), np.zeros((2, m)), np.zeros((2, m)), np.zeros((2, m, w))
    f = upl.compile(upl.vjp(upl.load(HERE.parent / "examples" / "spmv.upl"), of="Y", wrt=["V", "X"]), engine="native")
    row("gradient of ELL by values and vector",
        lambda: f(V=v, Col=col, Count=count, X=x, d_Y=d, out={"Y": z, "d_V": ev, "d_X": ex}), (z, ev, ex),
        lambda: c.ell_gradient(m, m, w, *map(at, (v, col, count, x, d, y, dv, dx))), (y, dv, dx),
        jax=gradient(lambda v, x: (v * x[col]).sum(1), d, v, x))  # fmt: skip
    n, e, k = 10_000, 200_000, 32
    src, dst, weight, hidden = rng.integers(0, n, e), rng.integers(0, n, e), rng.random(e), rng.random((n, k))
    d, (y, z), (dh, eh), (dg, eg) = rng.random((n, k)), np.zeros((2, n, k)), np.zeros((2, n, k)), np.zeros((2, e))
    q = upl.compile(upl.vjp(upl.load(MESSAGES), of="Y", wrt=["H", "G"]), engine="native")
    row("gradient of messages by both",
        lambda: q(From=src, To=dst, G=weight, H=hidden, d_Y=d, out={"Y": z, "d_H": eh, "d_G": eg}), (z, eh, eg),
        lambda: c.messages_gradient(n, e, k, *map(at, (src, dst, hidden, weight, d, y, dh, dg))), (y, dh, dg),
        jax=gradient(lambda h, g: _zeros((n, k)).at[dst].add(g[:, None] * h[src]), d, hidden, weight))  # fmt: skip


def _zeros(shape: Any) -> Any:
    import jax.numpy as jnp

    return jnp.zeros(shape)


def _ranks(spread: Callable[[Any], Any], r: Any, out: Any, steps: int) -> Any:
    for _ in range(steps):
        r = 0.15 / len(r) + 0.85 * spread(r / out)
    return r


if __name__ == "__main__":
    main()
