"""Elements that arrays of numbers choose: `x[k]`, `np.take`, `x.at[k].add(v)` and `upl.segment_sum`.

The numbers are data, so which elements are read or added to is known when the program runs: the arrows of the UPL program
have them in their index.  They are floats as all traced values are, and exact up to 2^53 (2^24 in single precision).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from upl_mlir.frontend.trace.arithmetic import by_arithmetic
from upl_mlir.frontend.trace.array import Array, as_array, broadcast, made, numbers
from upl_mlir.frontend.trace.late import LATE
from upl_mlir.frontend.trace.node import Fill, Leaf, Node, Pick, Scatter, Shape, current
from upl_mlir.frontend.trace.position import fail

EXACT_SINGLE = 2**24
"""Integers that a float of 32 bits has without gaps: what an index may be."""


def pick(a: Array, key: Any, axis: int) -> Array:
    """The elements of an array that numbers choose along an axis; their shape stands in its place, as in numpy.

    A number below 0 counts from the end.  Raises UplError (UPL1931, UPL1932); one out of bounds ends the run with an error.
    """
    if (found := by_arithmetic(a, key, axis)) is not None:
        return found
    at = _indices(key, a.shape[axis])
    shape = (*a.shape[:axis], *at.shape, *a.shape[axis + 1 :])
    if 0 in shape:
        return LATE["filled"](shape, 0.0)
    source, which = _node(numbers(a)), _node(at)
    number, loops, span = current().common()
    return made(Pick(number, shape, loops, span, source, which, axis))


def scatter(value: Any, key: Any, axis: int, shape: Shape) -> Array:
    """An array of the given shape that has the sums of the elements of `value` at the numbers along an axis, 0 elsewhere."""
    at = _indices(key, shape[axis])
    wanted = (*shape[:axis], *at.shape, *shape[axis + 1 :])
    try:
        values = broadcast(numbers(as_array(value)), wanted)
    except ValueError:
        found = as_array(value).shape
        raise fail("UPL1931", f"an array of shape {found} is added at places of shape {wanted}",
                   help="make the shapes equal, or such that they broadcast") from None  # fmt: skip
    if 0 in wanted:
        return LATE["filled"](shape, 0.0)
    summands, which = _node(values), _node(at)
    number, loops, span = current().common()
    return made(Scatter(number, shape, loops, span, summands, which, axis))


def segment_sum(values: Any, ids: Any, num_segments: int) -> Any:
    """The sums of the rows of `values` with the same number in `ids`, as an array of `num_segments` rows, as in JAX.

    On numpy arrays it adds up at once.  Raises UplError (UPL1931, UPL1932).
    """
    if not isinstance(values, Array) and not isinstance(ids, Array):
        rows = np.asarray(values)
        out = np.zeros((num_segments, *rows.shape[np.ndim(ids) :]), rows.dtype)
        np.add.at(out, np.asarray(ids), rows)
        return out
    rows, at = as_array(values), as_array(ids)
    if rows.shape[: at.ndim] != at.shape:
        raise fail("UPL1931", f"segment_sum: values of shape {rows.shape}, numbers of shape {at.shape}",
                   help="each row has one number")  # fmt: skip
    return scatter(rows, at, 0, (num_segments, *rows.shape[at.ndim :]))


def take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Array:
    """numpy's `take`."""
    if out is not None or mode != "raise":
        raise fail("UPL1932", "take: the options `out` and `mode` cannot be traced", help="leave them out")
    array = as_array(a)
    if axis is None:
        array, axis = array._call("reshape", -1), 0  # pyright: ignore[reportPrivateUsage]
    return pick(array, as_array(indices), axis + array.ndim if axis < 0 else axis)


def _indices(key: Any, extent: int) -> Array:
    """The numbers of an index as a traced array."""
    at = as_array(key)
    known = at._storage.node  # pyright: ignore[reportPrivateUsage]
    values = known.value if isinstance(known, Leaf) else np.array(known.value) if isinstance(known, Fill) else None
    if values is not None:
        if (values != np.floor(values)).any():
            raise fail("UPL1932", "an index has whole numbers", help="x[k.astype(int)]")
        if values.size and not (-extent <= values.min() and values.max() < extent):
            shown = f"an index from {values.min():g} to {values.max():g}"
            raise fail("UPL1931", f"{shown} is out of bounds for an axis of extent {extent}", help="count from 0")
    if at.boolean:
        help_ = "np.where(condition, a, b), or sums of values that are 0 elsewhere"
        raise fail("UPL1932", "truth values cannot be an index: how many elements they choose is data", help=help_)
    if current().loops:
        raise fail("UPL1932", "an array of numbers is no index inside a loop that is traced once", help="use Python's range")
    if current().single and extent > EXACT_SINGLE:
        raise fail("UPL1932", f"an index below {extent} does not fit a float of 32 bits", help="compute in double precision")
    return at


def _node(a: Array) -> Node:
    """The node that holds the elements of an array in their own order."""
    a.operand()  # is it still valid?
    own = a.own()
    return own._storage.node  # pyright: ignore[reportPrivateUsage]


LATE.update(pick=pick, scatter=scatter)
