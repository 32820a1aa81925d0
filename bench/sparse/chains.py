"""Chains of steps that data decide: a best path with its way back, a knapsack, iterations that end when they are exact."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

import upl_mlir as upl
from bench.sparse.measure import Row, at, jitted, kernels, numba
from bench.sparse.products import EXAMPLES, compiled, token


def rows() -> Iterator[Row]:
    """The lines."""
    rng = np.random.default_rng(1)
    yield from viterbi(rng)
    yield from knapsack(rng)
    yield newton(rng)


def viterbi(rng: Any) -> Iterator[Row]:
    """The best path through 200 states."""
    states, steps, c = 200, 2000, kernels()
    start, move, seen = rng.random(states), rng.random((states, states)), rng.random((steps, states))
    best, top, path = np.zeros((steps + 1, states)), np.zeros((steps, states)), np.zeros(steps + 1, np.int64)
    given = {"Start": start, "Move": move, "Seen": seen}
    file = EXAMPLES / "sparse" / "viterbi.upl"

    def in_jax(start: Any, move: Any, seen: Any) -> Any:
        import jax
        import jax.numpy as jnp

        def step(b: Any, o: Any) -> Any:
            to = b[:, None] + move
            return to.max(0) + o, to.argmax(0)

        last, came = jax.lax.scan(step, start, seen)
        end = jnp.argmax(last)
        _, path = jax.lax.scan(lambda s, p: (p[s], p[s]), end, came, reverse=True)
        return jnp.concatenate([path, end[None]])

    def loops(start: Any, move: Any, seen: Any) -> Any:
        steps, n = seen.shape
        best, came, path = start.copy(), np.zeros((steps, n), np.int64), np.zeros(steps + 1, np.int64)
        for t in range(steps):
            top = np.full(n, -np.inf)
            for r in range(n):
                for s in range(n):
                    v = best[r] + move[r, s]
                    if v > top[s]:
                        top[s], came[t, s] = v, r
            best = top + seen[t]
        path[steps] = np.argmax(best)
        for t in range(steps - 1, -1, -1):
            path[t] = came[t, path[t + 1]]
        return path

    small = given | {"Seen": seen[:20]}
    yield Row(
        "Viterbi, 200 states, 2000 steps, with the path", partial(compiled(file), **given),
        partial(c.viterbi, steps, states, *map(at, (start, move, seen, best, top, path))), {"Path": path},
        {"JAX": jitted(in_jax, start, move, seen), "numba": numba(loops, start, move, seen)},
        token(file, **small), steps / 20,
    )  # fmt: skip
    dmove, dseen = np.zeros((states, states)), np.zeros((steps, states))

    def score(move: Any, seen: Any) -> Any:
        import jax

        last, _ = jax.lax.scan(lambda b, o: ((b[:, None] + move).max(0) + o, None), start, seen)
        return last.max()

    yield Row(
        "its score with gradients by moves and observations",
        partial(compiled(upl.grad(upl.load(file), of="Score", wrt=["Move", "Seen"])), **given),
        partial(c.viterbi_gradient, steps, states, *map(at, (start, move, seen, best, top, path, dmove, dseen))),
        {"d_Move": dmove, "d_Seen": dseen}, {"JAX": _gradient(score, (0, 1), move, seen)},
    )  # fmt: skip


def knapsack(rng: Any) -> Iterator[Row]:
    """The best value of 200 items."""
    n, room, c = 200, 10_000, kernels()
    weight, value, zero = rng.integers(1, 500, n).astype(np.int32), rng.random(n), np.zeros(room + 1)
    two, every, y, d = np.zeros((2, room + 1)), np.zeros((n + 1, room + 1)), np.zeros(()), np.zeros(n)
    given = {"Weight": weight, "Value": value, "Zero": zero}
    file = EXAMPLES / "sparse" / "knapsack.upl"

    def by_hand() -> None:
        two[0] = 0
        y[...] = c.knapsack(n, room, at(weight), at(value), at(two))

    def with_gradient() -> None:
        every[0] = 0
        y[...] = c.knapsack_gradient(n, room, at(weight), at(value), at(every), at(d))

    def in_jax(value: Any) -> Any:
        import jax
        import jax.numpy as jnp

        at = jnp.arange(room + 1)

        def step(b: Any, item: Any) -> Any:
            w, v = item
            return jnp.maximum(b, jnp.where(at >= w, b[at - w] + v, -jnp.inf)), None

        last, _ = jax.lax.scan(step, zero, (jnp.asarray(weight), value))
        return last[room]

    def loops(weight: Any, value: Any, zero: Any) -> Any:
        b = zero.copy()
        for i in range(len(weight)):
            for c in range(len(b) - 1, weight[i] - 1, -1):
                b[c] = max(b[c], b[c - weight[i]] + value[i])
        return b[-1]

    def in_numpy() -> Any:
        b = zero
        for w, v in zip(weight, value, strict=True):
            b = np.concatenate([b[:w], np.maximum(b[w:], b[:-w] + v)])
        return b[room]

    np.testing.assert_allclose(in_numpy(), _run(by_hand, y))
    yield Row(
        "knapsack, 200 items, 10⁴ places", partial(compiled(file), **given), by_hand, {"Y": y},
        {"JAX": jitted(in_jax, value), "numba": numba(loops, weight, value, zero)}, token(file, **given),
    )  # fmt: skip
    yield Row(
        "the same with the gradient by values", partial(compiled(upl.grad(upl.load(file), of="Y", wrt="Value")), **given),
        with_gradient, {"Y": y, "d_Value": d}, {"JAX": _gradient(in_jax, 0, value, whole=True)},
    )  # fmt: skip


def newton(rng: Any) -> Row:
    """Kepler's equation for a million bodies, each of which stops when it is exact."""
    n, most, c = 1_000_000, 30, kernels()
    m, e = rng.uniform(0, 2 * np.pi, n), rng.uniform(0, 0.7, n)
    y, k = np.zeros(n), np.zeros(n, np.int64)
    file = EXAMPLES / "newton.upl"

    def in_jax(m: Any, e: Any) -> Any:
        import jax
        import jax.numpy as jnp

        def step(state: Any) -> Any:
            x, k, on, _ = state
            after = x - (x - e * jnp.sin(x) - m) / (1 - e * jnp.cos(x))
            new = jnp.where(on, after, x)
            return new, k + on, on & (jnp.abs(new - x) > 1e-10) & (k < most), k

        start = (m, jnp.zeros(n, jnp.int64), jnp.ones(n, bool), jnp.zeros(n, jnp.int64))
        return jax.lax.while_loop(lambda s: s[2].any(), step, start)[0]

    def loops(m: Any, e: Any) -> Any:
        out = np.zeros(len(m))
        for i in range(len(m)):
            x = m[i]
            for _ in range(most):
                after = x - (x - e[i] * np.sin(x) - m[i]) / (1 - e[i] * np.cos(x))
                done = not abs(after - x) > 1e-10
                x = after
                if done:
                    break
            out[i] = x
        return out

    few = 100_000
    return Row(
        "Kepler's equation, 10⁶ bodies, each to its end", partial(compiled(file), M=m, e=e),
        partial(c.newton, n, most, *map(at, (m, e, y, k))), {"E": y},
        {"JAX": jitted(in_jax, m, e), "numba": numba(loops, m, e)}, token(file, M=m[:few], e=e[:few]), n / few,
    )  # fmt: skip


def _run(call: Any, y: Any) -> Any:
    call()
    return y


def _gradient(f: Any, by: Any, *args: Any, whole: bool = False) -> Any:
    """The derivatives of a function of JAX, with its value as well if `whole`; None where JAX is not installed."""
    try:
        import jax
    except ImportError:
        return None
    return jitted(jax.value_and_grad(f, by) if whole else lambda *a: jax.value_and_grad(f, by)(*a)[1], *args)
