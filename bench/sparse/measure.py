# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportMissingImports=false
"""What a row of the table is, how it is measured, and C by hand."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROUNDS, CALLS = 12, 4
"""At least so many rounds, of so many calls of each in turn; fewer if calls are slow."""
LEAST_S = 5.0
"""All calls of a row take at least so long: other programs of a computer slow short calls for seconds."""
ROUND_S = 1.0
"""What a round takes at most, if more than one call of each takes longer."""
PEERS = ("scipy", "JAX", "numba", "PyTorch")
Call = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """A line: our call, of whose results those of some names are compared with the arrays that C by hand fills; the peers,
    who return the same, or the first of them.  Ours and C fill the same arrays where they can: the same places in memory.

    `token` is a call on the token engine, of a problem of which this one is `scale` times the size.
    """

    name: str
    ours: Call
    c: Call
    filled: Mapping[str, Any]
    peers: Mapping[str, Call | None] = field(default_factory=dict[str, Call | None])
    token: Call | None = None
    scale: float = 1.0


def kernels(index: str = "int32_t") -> ctypes.CDLL:
    """The C by hand, compiled for this computer; its indices have this type."""
    out = Path(tempfile.mkdtemp()) / "kernels.so"
    flags = ["-O3", "-march=native", "-ffast-math", f"-DIndex={index}", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-o", out, HERE / "kernels.c", "-lm"], check=True)
    found = ctypes.CDLL(str(out))
    for name in ("viterbi", "viterbi_gradient", "knapsack", "knapsack_gradient"):
        getattr(found, name).restype = ctypes.c_double
    return found


def at(a: Any) -> ctypes.c_void_p:
    """The address of an array, which lives as long as it."""
    return a.ctypes.data_as(ctypes.c_void_p)


def jitted(f: Callable[..., Any], *args: Any) -> Call | None:
    """A function compiled by JAX in double precision on given arrays; None where JAX is not installed."""
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    run, given = jax.jit(f), [jax.numpy.asarray(a) for a in args]
    return lambda: jax.block_until_ready(run(*given))


def jax_gradient(f: Callable[..., Any], d: Any, *args: Any) -> Call | None:
    """The value of a function of reals and its derivatives, weighted by `d`, by JAX; None where it is not installed."""
    try:
        import jax
    except ImportError:
        return None

    def both(d: Any, *args: Any) -> Any:
        y, back = jax.vjp(f, *args)
        return (y, *back(d))

    return jitted(both, d, *args)


def numba(f: Callable[..., Any], *args: Any) -> Call | None:
    """A function compiled by numba on given arrays; None where it is not installed."""
    try:
        from numba import njit
    except ImportError:
        return None
    run = njit(f)
    return lambda: run(*args)


def torch(f: Callable[..., Any], *args: Any, d: Any = None) -> Call | None:
    """A function of PyTorch on given arrays on one thread, with `d` its value and derivatives by the reals among the
    arguments; None where it is not installed."""
    try:
        import torch as t
    except ImportError:
        return None
    t.set_num_threads(1)
    given = [t.from_numpy(a) for a in args]
    if d is None:
        return lambda: f(t, *given)
    reals = [g.requires_grad_() for g in given if g.dtype == t.float64]
    weight = t.from_numpy(d)

    def both() -> Any:
        y = f(t, *given)
        return (y.detach(), *t.autograd.grad(y, reals, weight))

    return both


def measured(row: Row, *, token: bool) -> str:
    """The line of the table, with `token` that of the token engine as well; the results of all are compared first."""
    first = {n: np.array(a) for n, a in row.ours().items()}
    for a in row.filled.values():
        a.fill(0)
    row.c()
    for n, b in row.filled.items():
        np.testing.assert_allclose(first[n], b, rtol=1e-9, atol=1e-12, err_msg=f"{row.name}, {n}")
    calls = {"ours": row.ours, "C": row.c}
    for name, call in row.peers.items():
        if call is None:
            continue
        found = call()
        for a, b in zip(found if isinstance(found, tuple | list) else (found,), row.filled.values(), strict=False):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-9, atol=1e-12, err_msg=f"{row.name}, {name}")
        calls[name] = call
    t = least(calls)
    ratio = f"{t['C'] / t['ours']:.2f}"
    others = [f"{t[n]:.3g}" if n in t else "–" for n in PEERS]
    by_token = "–"
    if token and row.token is not None:
        row.token()
        start = time.perf_counter()
        row.token()
        took = 1e3 * (time.perf_counter() - start) * row.scale
        by_token = f"{'≈ ' if row.scale != 1 else ''}{took:.3g}"
    return f"| {row.name} | {t['ours']:.3g} | {t['C']:.3g} | {ratio} | {' | '.join(others)} | {by_token} |"


def least(calls: Mapping[str, Call]) -> dict[str, float]:
    """Milliseconds of the fastest call of each, in turns.

    The order of the turns changes from round to round: who comes after a peer that fills the caches finds its data gone.
    """
    found = dict.fromkeys(calls, float("inf"))
    turns, order = list(calls.items()), Random(0)
    spent, done = 0.0, 0
    while done < ROUNDS or spent < LEAST_S:
        done += 1
        order.shuffle(turns)
        for name, call in turns:
            for _ in range(CALLS):
                start = time.perf_counter()
                call()
                took = time.perf_counter() - start
                spent += took
                found[name] = min(found[name], 1e3 * took)
                if took * CALLS * len(calls) > ROUND_S:
                    break
        if spent > ROUNDS * ROUND_S:
            break
    return found
