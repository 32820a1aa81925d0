# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
"""Rules for products and folds over windows: each becomes one statement, a product under one sum, or a fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_letters
from typing import Any

import numpy as np

from upl_mlir.dialects.upl import Gather
from upl_mlir.frontend.jaxpr import shapes
from upl_mlir.frontend.jaxpr.evaluate import traced
from upl_mlir.frontend.trace import reshape as places_of
from upl_mlir.frontend.trace.array import Array, numbers
from upl_mlir.frontend.trace.contract import einsum
from upl_mlir.frontend.trace.functions import folds
from upl_mlir.frontend.trace.position import fail
from upl_mlir.poly.expr import IndexExpr


def dot_general(eqn: Any, x: Any, y: Any) -> Array:
    """Batch dimensions first, then those of the left operand that are left, then those of the right one."""
    (left, right), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    a, b = numbers(traced(x)), numbers(traced(y))
    letters = iter(ascii_letters)
    one = [next(letters) for _ in a.shape]
    two = [next(letters) for _ in b.shape]
    for m, n in (*zip(left, right, strict=True), *zip(left_batch, right_batch, strict=True)):
        two[n] = one[m]
    batch = [one[n] for n in left_batch]
    out = [*batch, *(c for n, c in enumerate(one) if n not in (*left, *left_batch)),
           *(c for n, c in enumerate(two) if n not in (*right, *right_batch))]  # fmt: skip
    return einsum(f"{''.join(one)},{''.join(two)}->{''.join(out)}", a, b)


def _windows(
    a: Array, first: int, sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Array:  # fmt: skip
    """The windows of an array along its dimensions from `first` on: their places there, the places in a window behind."""
    index = list(map(IndexExpr.of, (f"i{n}" for n in range(a.ndim))))
    shape = list(a.shape)
    for n, (size, stride, dilation) in enumerate(zip(sizes, strides, dilations, strict=True)):
        at = first + n
        shape[at] = max(0, (a.shape[at] - (dilation * (size - 1) + 1)) // stride + 1)
        index[at] = index[at] * stride + IndexExpr.of(f"i{a.ndim + n}") * dilation
    return a.view((*shape, *sizes), tuple(index), writable=False)


def convolution(eqn: Any, x: Any, kernel: Any) -> Array:
    """With strides, dilations, padding and groups, in any order of dimensions."""
    p = eqn.params
    d = p["dimension_numbers"]
    if p["batch_group_count"] != 1:
        raise fail("UPL1936", "a convolution in groups of the batch is not built", help="reshape the batch")
    a = places_of.transpose(numbers(traced(x)), d.lhs_spec)
    k = places_of.transpose(numbers(traced(kernel)), d.rhs_spec)
    spatial = a.ndim - 2
    config = [(0, 0, 0)] * 2 + [
        (low, high, dilation - 1) for (low, high), dilation in zip(p["padding"], p["lhs_dilation"], strict=True)
    ]
    if any(part != (0, 0, 0) for part in config):
        a = shapes.padded(a, np.float64(0), config)
    groups = p["feature_group_count"]
    outputs, inputs = k.shape[:2]
    w = _windows(a, 2, k.shape[2:], p["window_strides"], p["rhs_dilation"])
    places, taps = ascii_letters[:spatial], ascii_letters[spatial : 2 * spatial]
    if groups == 1:
        out = einsum(f"Nx{places}{taps},Fx{taps}->NF{places}", w, k)
    else:
        w = places_of.reshape(w, (w.shape[0], groups, inputs, *w.shape[2:]))
        k = places_of.reshape(k, (groups, outputs // groups, *k.shape[1:]))
        out = einsum(f"NGx{places}{taps},GFx{taps}->NGF{places}", w, k)
        out = places_of.reshape(out, (out.shape[0], outputs, *out.shape[3:]))
    back = np.argsort(d.out_spec)
    return places_of.transpose(out, [int(n) for n in back])


def reduce_window(gather: Gather) -> Callable[..., Array]:
    """A fold over windows along all dimensions."""
    fold = {Gather.SUM: folds.fold_sum, Gather.MAX: folds.fold_max, Gather.MIN: folds.fold_min}[gather]
    empty = {Gather.SUM: 0.0, Gather.MAX: -np.inf, Gather.MIN: np.inf}[gather]

    def rule(eqn: Any, x: Any) -> Array:
        p, a = eqn.params, numbers(traced(x))
        config = [(low, high, d - 1) for (low, high), d in zip(p["padding"], p["base_dilation"], strict=True)]
        if any(part != (0, 0, 0) for part in config):
            a = shapes.padded(a, np.float64(empty), config)
        sizes = p["window_dimensions"]
        wide = [n for n, size in enumerate(sizes) if size > 1]
        w = _windows(a, 0, sizes, p["window_strides"], p["window_dilation"])
        w = w[(*[slice(None)] * a.ndim, *(slice(None) if n in wide else 0 for n in range(a.ndim)))]
        return fold(w, tuple(range(a.ndim, a.ndim + len(wide)))) if wide else w

    return rule
