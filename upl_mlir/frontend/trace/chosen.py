"""Elements that arrays of numbers choose: `x[k]`, `x[i, j]`, `np.take`, `x.at[k].add(v)` and `upl.segment_sum`.

The numbers are data, so which elements are read or added to is known when the program runs: the arrows of the UPL program
have them in their index.  They are floats as all traced values are, and exact up to 2^53 (2^24 in single precision).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from upl_mlir.dialects.upl import Gather
from upl_mlir.frontend.tensor import Apply, Expr, Number
from upl_mlir.frontend.trace.arithmetic import by_arithmetic, whole_numbers
from upl_mlir.frontend.trace.array import Array, as_array, broadcast, common_shape, computed, made, numbers
from upl_mlir.frontend.trace.indexing import ByData
from upl_mlir.frontend.trace.late import LATE
from upl_mlir.frontend.trace.node import Fill, Leaf, Node, Phase, Pick, Scatter, Shape, current, places
from upl_mlir.frontend.trace.position import fail
from upl_mlir.frontend.trace.reshape import moveaxis, reshape, transpose

EXACT_SINGLE = 2**24
"""Integers that a float of 32 bits has without gaps: what an index may be."""


def pick(a: Array, key: Any, axis: int, *, wraps: bool = True) -> Array:
    """The elements of an array that numbers choose along an axis; their shape stands in its place, as in numpy.

    Raises UplError (UPL1931, UPL1932); a number out of bounds that is data ends the run with an error.
    """
    if (found := by_arithmetic(a, key, axis, wraps=wraps)) is not None:
        return found
    at = _indices(key, a.shape[axis], wraps)
    shape = (*a.shape[:axis], *at.shape, *a.shape[axis + 1 :])
    if 0 in shape:
        return LATE["filled"](shape, 0.0)
    source, which = _node(numbers(a)), _node(at)
    number, loops, span = current().common()
    return made(Pick(number, shape, loops, span, source, which, axis, wraps))


def scatter(
    value: Any, key: Any, axis: int, shape: Shape, *, wraps: bool = True, op: Gather = Gather.SUM
) -> Array:  # fmt: skip
    """An array of the given shape that has the elements of `value` at the numbers along an axis, those of one place joined
    by `op`; elsewhere what it makes of nothing."""
    at = _indices(key, shape[axis], wraps)
    wanted = (*shape[:axis], *at.shape, *shape[axis + 1 :])
    try:
        values = broadcast(numbers(as_array(value)), wanted)
    except ValueError:
        found = as_array(value).shape
        raise fail("UPL1931", f"an array of shape {found} is added at places of shape {wanted}",
                   help="make the shapes equal, or such that they broadcast") from None  # fmt: skip
    if 0 in wanted:
        return LATE["filled"](shape, float(op.empty))
    summands, which = _node(values), _node(at)
    number, loops, span = current().common()
    return made(Scatter(number, shape, loops, span, summands, which, axis, wraps, op))


def elements(a: Array, key: ByData) -> Array:
    """``x[key]``, where arrays of numbers are in the key."""
    part = a[key.basic]
    axis, at, part, wraps = _one_axis(part, key)
    out = pick(part, at, axis, wraps=wraps)
    count = as_array(at).ndim
    return out if axis == key.place else moveaxis(out, range(axis, axis + count), range(key.place, key.place + count))


def added(a: Array, value: Any, key: ByData) -> Array:
    """An array of the shape of `a` that has the sums of the elements of `value` at ``a[key]``, 0 elsewhere."""
    part = a[key.basic]
    axis, at, flat, wraps = _one_axis(part, key)
    count = as_array(at).ndim
    new = as_array(value)
    if axis != key.place or len(key.axes) > 1:
        shape = (*flat.shape[:axis], *flat.shape[axis + 1 :])
        wanted = (*shape[: key.place], *as_array(at).shape, *shape[key.place :])
        try:
            new = broadcast(numbers(new), wanted)
        except ValueError:
            raise fail("UPL1931", f"an array of shape {new.shape} is added at places of shape {wanted}",
                       help="make the shapes equal, or such that they broadcast") from None  # fmt: skip
        new = moveaxis(new, range(key.place, key.place + count), range(axis, axis + count))
    sums = scatter(new, at, axis, flat.shape, wraps=wraps)
    if len(key.axes) > 1:
        rest = [n for n in range(part.ndim) if n not in key.axes]
        sums = reshape(sums, [part.shape[n] for n in (*key.axes, *rest)])
        sums = transpose(sums, np.argsort([*key.axes, *rest]))
    if part.shape == a.shape:
        return sums
    out = LATE["filled"](a.shape, 0.0).copy()
    out[key.basic] = sums
    return out


def _one_axis(part: Array, key: ByData) -> tuple[int, Any, Array, bool]:
    """One axis and one array of numbers for all those of a key, the array that they choose from, and whether numbers below 0
    count from its end."""
    if len(key.axes) == 1:
        return key.axes[0], key.arrays[0], part, True
    at = together(key.arrays, [part.shape[n] for n in key.axes])
    return 0, at, in_front(part, key.axes), False


def in_front(a: Array, axes: Sequence[int]) -> Array:
    """The array with some axes as one, the first."""
    rest = [n for n in range(a.ndim) if n not in axes]
    return reshape(transpose(a, [*axes, *rest]), (-1, *(a.shape[n] for n in rest)))


def together(keys: Sequence[Any], extents: Sequence[int], *, wraps: bool = True) -> Any:
    """One number for numbers along several axes, as they are together one axis; out of its bounds where one of them is."""
    arrays, total = [numbers(as_array(k)) for k in keys], int(np.prod(extents))
    shape = common_shape([k.shape for k in arrays], "the numbers of an index")
    strides = [int(np.prod(extents[n + 1 :])) for n in range(len(extents))]
    known = [_known(k) for k in arrays]
    for values, extent in zip(known, extents, strict=True):
        if values is not None:
            _checked(values, extent, wraps)
    ranges = [whole_numbers(k) for k in arrays]

    def number(*ks: Expr) -> Expr:
        sum_: Expr = Number(0)
        inside: Expr | None = None
        for k, found, extent, stride in zip(ks, ranges, extents, strides, strict=True):
            low, high = (-extent, 2 * extent) if found is None else found[1]
            if wraps and low < 0:
                k = Apply("+", (k, Number(extent))) if high < 0 else Apply(
                    "?:", (Apply("<", (k, Number(0))), Apply("+", (k, Number(extent))), k))  # fmt: skip
                low, high = (low + extent, high + extent) if high < 0 else (min(0, low + extent), max(high, extent - 1))
            if found is None or not 0 <= low <= high < extent:
                there = Apply("&&", (Apply("<=", (Number(0), k)), Apply("<", (k, Number(extent)))))
                inside = there if inside is None else Apply("&&", (inside, there))
            sum_ = Apply("+", (sum_, Apply("*", (k, Number(stride)))))
        return sum_ if inside is None else Apply("?:", (inside, sum_, Number(total)))

    if all(values is not None for values in known):
        at = [np.broadcast_to(np.asarray(values), shape).astype(np.int64) for values in known]
        at = [np.where(k < 0, k + n, k) for k, n in zip(at, extents, strict=True)] if wraps else at
        there = np.logical_and.reduce([(k >= 0) & (k < n) for k, n in zip(at, extents, strict=True)])
        return np.where(there, sum(k * n for k, n in zip(at, strides, strict=True)), total)
    return computed(number, *arrays, word="index")


def segment_sum(values: Any, ids: Any, num_segments: int) -> Any:
    """The sums of the rows of `values` with the same number in `ids`, as an array of `num_segments` rows, as in JAX.

    On numpy arrays it adds up at once.  Raises UplError (UPL1931, UPL1932).
    """
    return _segments(values, ids, num_segments, Gather.SUM, np.add)


def segment_max(values: Any, ids: Any, num_segments: int) -> Any:
    """The greatest of the rows of `values` with the same number in `ids`, as `segment_sum`; -inf where there is none."""
    return _segments(values, ids, num_segments, Gather.MAX, np.maximum)


def segment_min(values: Any, ids: Any, num_segments: int) -> Any:
    """The least of the rows of `values` with the same number in `ids`, as `segment_sum`; inf where there is none."""
    return _segments(values, ids, num_segments, Gather.MIN, np.minimum)


def _segments(values: Any, ids: Any, num_segments: int, op: Gather, join: np.ufunc) -> Any:
    if not isinstance(values, Array) and not isinstance(ids, Array):
        rows = np.asarray(values)
        nothing: float = op.empty
        if rows.dtype.kind in "iub":
            whole = np.iinfo(rows.dtype if rows.dtype.kind != "b" else np.uint8)
            nothing = op.empty_integer(int(whole.min), int(whole.max))
        out = np.full((num_segments, *rows.shape[np.ndim(ids) :]), nothing, rows.dtype)
        join.at(out, np.asarray(ids), rows)
        return out
    rows, at = as_array(values), as_array(ids)
    if rows.shape[: at.ndim] != at.shape:
        raise fail("UPL1931", f"segment_{op.name.lower()}: values of shape {rows.shape}, numbers of shape {at.shape}",
                   help="each row has one number")  # fmt: skip
    return scatter(rows, at, 0, (num_segments, *rows.shape[at.ndim :]), op=op)


def take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Array:
    """numpy's `take`."""
    if out is not None or mode != "raise":
        raise fail("UPL1932", "take: the options `out` and `mode` cannot be traced", help="leave them out")
    array = as_array(a)
    if axis is None:
        array, axis = array._call("reshape", -1), 0  # pyright: ignore[reportPrivateUsage]
    return pick(array, as_array(indices), axis + array.ndim if axis < 0 else axis)


def in_open_loop() -> bool:
    """Whether a loop that data end is being traced: there, arrays of numbers are no indices."""
    return any(isinstance(loop, Phase) for loop in current().loops)


def _known(at: Array) -> Any:
    """The numbers of an array that is no data, None for another one."""
    node = at._storage.node  # pyright: ignore[reportPrivateUsage]
    if isinstance(node, Leaf) and node.value is not None and at._index == places(node.shape):  # pyright: ignore[reportPrivateUsage]
        return node.value
    return np.full(at.shape, node.value) if isinstance(node, Fill) else None


def _checked(values: Any, extent: int, wraps: bool) -> None:
    """Raises UplError (UPL1931, UPL1932) for known numbers that are no indices."""
    if (values != np.floor(values)).any():
        raise fail("UPL1932", "an index has whole numbers", help="x[k.astype(int)]")
    least = -extent if wraps else 0
    if values.size and not (least <= values.min() and values.max() < extent):
        shown = f"an index from {values.min():g} to {values.max():g}"
        raise fail("UPL1931", f"{shown} is out of bounds for an axis of extent {extent}", help="count from 0")


def _indices(key: Any, extent: int, wraps: bool) -> Array:
    """The numbers of an index as a traced array."""
    at = as_array(key)
    if (values := _known(at)) is not None:
        _checked(values, extent, wraps)
    if at.boolean:
        help_ = "np.where(condition, a, b), or sums of values that are 0 elsewhere"
        raise fail("UPL1932", "truth values cannot be an index: how many elements they choose is data", help=help_)
    if in_open_loop():
        raise fail("UPL1932", "an array of numbers is no index inside a loop that data end",
                   help="use a loop with a known number of rounds")  # fmt: skip
    if current().single and extent > EXACT_SINGLE:
        raise fail("UPL1932", f"an index below {extent} does not fit a float of 32 bits", help="compute in double precision")
    return at


def _node(a: Array) -> Node:
    """The node that holds the elements of an array in their own order."""
    a.operand()  # is it still valid?
    own = a.own()
    return own._storage.node  # pyright: ignore[reportPrivateUsage]


LATE.update(elements=elements, added=added)
