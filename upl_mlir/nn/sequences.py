# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Layers for sequences ``[n, time, features]``: the gated recurrent unit and attention with several heads."""

from __future__ import annotations

from typing import Any

import numpy as np

from upl_mlir.frontend.trace.loops import scan
from upl_mlir.frontend.trace.position import fail
from upl_mlir.nn import initial
from upl_mlir.nn.functions import attention, gru_cell
from upl_mlir.nn.initial import Initial, Shape
from upl_mlir.nn.layers import Layer, need_axes, stateless


def gru(
    hidden: int, *, every: bool = False, weights: Initial = initial.glorot, inner: Initial = initial.orthogonal
) -> Layer:
    """A gated recurrent unit along time, from zeros: its hidden values after the last step ``[n, hidden]``, or after
    `every` one ``[n, time, hidden]``.  One recurrence in UPL (`upl.scan`), of any length.
    """

    def make(rng: np.random.Generator, shape: Shape) -> tuple[Any, Shape]:
        need_axes("gru", shape, 2)
        time, features = shape
        p = {
            "w": np.concatenate([weights(rng, (features, hidden)) for _ in range(3)], axis=1),
            "u": np.concatenate([inner(rng, (hidden, hidden)) for _ in range(3)], axis=1),
            "b": np.zeros(3 * hidden), "c": np.zeros(3 * hidden),
        }  # fmt: skip
        return p, (time, hidden) if every else (hidden,)

    def run(p: Any, x: Any) -> Any:
        def step(h: Any, now: Any) -> tuple[Any, Any]:
            h = gru_cell(p, h, now)
            return h, h if every else None

        first = np.zeros_like(x[:, 0] @ p["w"][:, :hidden])
        last, hs = scan(step, first, np.swapaxes(x, 0, 1))
        return np.swapaxes(hs, 0, 1) if every else last

    return stateless(make, run)


def self_attention(heads: int, *, causal: bool = False, weights: Initial = initial.glorot) -> Layer:
    """Attention of a sequence to itself: queries, keys and values are products of it, features are shared among `heads`.

    Parameters: ``q k v`` [features, heads, features / heads], ``o`` [heads, features / heads, features].
    """

    def make(rng: np.random.Generator, shape: Shape) -> tuple[Any, Shape]:
        need_axes("self_attention", shape, 2)
        d = shape[-1]
        if d % heads:
            help = "the number of heads divides that of features"
            raise fail("UPL1931", f"self_attention: {d} features for {heads} heads", help=help)
        split, back = (d, heads, d // heads), (heads, d // heads, d)
        p = {name: weights(rng, (d, d)).reshape(split) for name in "qkv"}
        return p | {"o": weights(rng, (d, d)).reshape(back)}, shape

    def run(p: Any, x: Any) -> Any:
        q, k, v = (np.einsum("ntd,dhe->nhte", x, p[name]) for name in "qkv")
        return np.einsum("nhte,hed->ntd", attention(q, k, v, causal=causal), p["o"])

    return stateless(make, run)
