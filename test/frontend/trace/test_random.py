"""Random Python functions that read, write, slice and fold arrays: as UPL programs they give what numpy gives, and their
derivatives are those of differences along a line.

What is at stake is the translation: which operations join one node, when a write may go in place, views, loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

N = 4


def operations(rng: np.random.Generator, depth: int = 0) -> list[Callable[[list[Any]], Any]]:
    """Steps on a list of arrays of shape (N, N); a step may replace an array, write into one, or loop over steps."""
    steps: list[Callable[[list[Any]], Any]] = []
    for _ in range(int(rng.integers(2, 6))):
        a, b, c = (int(i) for i in rng.integers(0, 3, 3))
        lo = int(rng.integers(0, 3))
        hi = int(rng.integers(lo + 1, N + 1))
        axis, scale = int(rng.integers(0, 2)), float(rng.normal())
        kind = int(rng.integers(0, 13 if depth < 1 else 12))

        def step(v: list[Any], kind=kind, a=a, b=b, c=c, lo=lo, hi=hi, axis=axis, scale=scale) -> None:
            match kind:
                case 0:
                    v[a][lo:hi] = np.sin(v[b][lo:hi]) * v[c][:1]
                case 1:
                    v[a][:, lo] = v[b][lo] + v[c].sum(axis)
                case 2:
                    v[a] += scale * v[b].T
                case 3:
                    v[a][...] = (v[b] @ v[c]) * 0.3
                case 4:
                    view = v[a][::-1, lo:hi]
                    view[:-1] = view[1:] * 0.5
                    v[b][0, :] = v[a][hi - 1] * scale
                case 5:
                    v[a][lo, lo:] *= v[a][lo, 0]
                case 6:
                    t = np.tanh(v[b])
                    v[a][...] = t * t + t[lo] - np.where(t > 0, v[c], scale)
                case 7:
                    v[a][...] = np.concatenate([v[b][:lo], v[c][lo:]], axis=0)
                case 8:
                    v[a][...] = v[b].reshape(N * N)[::-1].reshape(N, N) * np.mean(v[c], axis, keepdims=True)
                case 9:
                    old = v[a] * 1
                    v[a][lo:hi, axis] = 0
                    v[b] -= old * v[a]
                case 10:
                    e = np.exp(np.cos(v[b]) - 1)
                    v[a][...] = e / e.sum(axis=axis, keepdims=True)
                case 11:
                    np.add(v[a].T[lo], v[b][:, lo], out=v[c][lo]) if a != c else None
                case _:
                    raise AssertionError(kind)

        if kind == 12:
            body = operations(rng, depth + 1)

            def step(v: list[Any], body=body) -> None:
                for k in upl.range(1, 4):
                    for s in body:
                        s(v)
                    v[0][k, :] = v[1][k - 1] / k

        steps.append(step)
    return steps


def function_of(seed: int) -> Callable[[Any, Any], Any]:
    steps = operations(np.random.default_rng(seed))

    def f(x: Any, y: Any) -> Any:
        v = [x, y, x * y]
        for s in steps:
            s(v)
        return np.sum(np.tanh(v[0]) * v[1]) + np.sum(np.sin(v[2]) * v[0])

    return f


@pytest.mark.parametrize("seed", range(18))
def test_random_functions(seed: int) -> None:
    f = function_of(seed)
    rng = np.random.default_rng([seed, 1])
    x, y, t, u = rng.normal(size=(4, N, N))
    value, (dx, dy) = upl.value_and_grad(f, argnums=(0, 1))(x, y)
    np.testing.assert_allclose(value, f(x.copy(), y.copy()), rtol=1e-11, atol=1e-11)
    # the derivative along (t, u): four differences, the error of which is of the eighth order
    h, weights = 1e-4, (4 / 5, -1 / 5, 4 / 105, -1 / 280)
    along = sum(
        w * (f(x + n * h * t, y + n * h * u) - f(x - n * h * t, y - n * h * u)) / h for n, w in enumerate(weights, 1)
    )
    np.testing.assert_allclose(np.sum(dx * t) + np.sum(dy * u), along, rtol=1e-6, atol=1e-7)
