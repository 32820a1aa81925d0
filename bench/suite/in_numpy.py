# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
"""A function of JAX run by numpy: its names mean numpy's functions, its loops are Python's."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np


def scan(step: Callable[..., Any], state: Any, xs: Any, length: int = 0, *, reverse: bool = False) -> Any:
    """`jax.lax.scan`."""
    given = xs if isinstance(xs, tuple) else (xs,)
    count = length if xs is None else len(given[0])
    out: list[Any] = []
    for i in reversed(range(count)) if reverse else range(count):
        x = None if xs is None else tuple(a[i] for a in given)
        state, y = step(state, x if isinstance(xs, tuple) or x is None else x[0])
        out.append(y)
    if reverse:
        out.reverse()
    if not out or out[0] is None:
        return state, None
    stacked = tuple(np.stack(parts) for parts in zip(*(y if isinstance(y, tuple) else (y,) for y in out), strict=True))
    return state, stacked if isinstance(out[0], tuple) else stacked[0]


def loop(first: int, behind: int, step: Callable[..., Any], state: Any) -> Any:
    """`jax.lax.fori_loop`."""
    for i in range(first, behind):
        state = step(i, state)
    return state


def _softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


_NN = SimpleNamespace(softmax=_softmax, sigmoid=lambda x: 1 / (1 + np.exp(-x)))


def in_numpy(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function; what numpy has not is an AttributeError when it runs."""
    assert isinstance(f, FunctionType)
    jax = SimpleNamespace(nn=_NN)
    return FunctionType(f.__code__, {**f.__globals__, "jnp": np, "jax": jax, "scan": scan, "loop": loop}, f.__name__)
