# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Indexing as numpy does it, with integers, slices, `None` and `...`: which element of the array each element of the
result is.  Indices of traced loops may stand where integers may, in affine expressions."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, NoReturn, SupportsIndex

import numpy as np

from upl_mlir.frontend.trace.late import LATE
from upl_mlir.frontend.trace.node import Index, Loop, Shape
from upl_mlir.frontend.trace.position import fail
from upl_mlir.poly.expr import IndexExpr


class LoopIndex:
    """The index of a traced loop, or a linear expression of such indices: `low` and `high` are its bounds."""

    __array_ufunc__ = None

    def __init__(self, expr: IndexExpr, loops: dict[str, Loop]):
        self.expr, self.loops = expr, loops

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value."""
        return _bounds(self.expr, self.loops)

    def _combined(self, other: Any, op: Any) -> Any:
        if isinstance(other, LoopIndex):
            return LoopIndex(op(self.expr, other.expr), self.loops | other.loops)
        if isinstance(other, int | np.integer) and not isinstance(other, bool):
            return LoopIndex(op(self.expr, int(other)), self.loops)
        return op(LATE["as_array"](self), other)

    def __add__(self, other: Any) -> Any:
        return self._combined(other, operator.add)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._combined(other, operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __neg__(self) -> LoopIndex:
        return LoopIndex(-self.expr, self.loops)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, LoopIndex):
            return LATE["as_array"](self) * LATE["as_array"](other)
        return self._combined(other, operator.mul)

    __rmul__ = __mul__

    def _as_array(self, other: Any, op: Any) -> Any:
        return op(LATE["as_array"](self), other)

    def __truediv__(self, other: Any) -> Any:
        return self._as_array(other, operator.truediv)

    def __rtruediv__(self, other: Any) -> Any:
        return self._as_array(other, lambda a, b: b / a)

    def __pow__(self, other: Any) -> Any:
        return self._as_array(other, operator.pow)

    def __rpow__(self, other: Any) -> Any:
        return self._as_array(other, lambda a, b: b**a)

    def __lt__(self, other: Any) -> Any:
        return self._as_array(other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._as_array(other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._as_array(other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._as_array(other, operator.ge)

    def __eq__(self, other: Any) -> Any:
        return self._as_array(other, operator.eq)

    def __ne__(self, other: Any) -> Any:
        return self._as_array(other, operator.ne)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __index__(self) -> int:
        raise fail(
            "UPL1933", "the index of a traced loop is no number: its body is run once for all rounds",
            help="use Python's range, whose rounds are traced one by one",
        )  # fmt: skip

    __int__ = __index__

    def __array__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise fail(
            "UPL1933", "an ordinary numpy array stands beside the index of a traced loop, or is read at it",
            help="pass the array to the traced function as an argument, or give it to upl.scan",
        )  # fmt: skip

    def __bool__(self) -> bool:
        self.__index__()
        raise AssertionError


def _bounds(e: IndexExpr, loops: dict[str, Loop]) -> tuple[int, int]:
    low = high = 0
    for monomial, c in e.terms:
        if not monomial:
            low, high = low + c, high + c
            continue
        (atom,) = monomial
        last = c * (loops[str(atom)].extent - 1)
        low, high = low + min(0, last), high + max(0, last)
    return low, high


def select(shape: Shape, key: Any) -> tuple[Shape, Index]:
    """The shape of ``x[key]``, and for its element ``i0, i1, …`` the index in an array `shape`.

    Raises UplError: UPL1931 (out of bounds), UPL1932 (a key that is not affine).
    """
    parts = list(key) if isinstance(key, tuple) else [key]
    given = sum(1 for p in parts if p is not None and p is not Ellipsis)
    dots = sum(1 for p in parts if p is Ellipsis)
    if given > len(shape) or dots > 1:
        message = f"{given} indices for an array with {len(shape)} dimensions" if dots < 2 else "more than one `...`"
        raise fail("UPL1931", message, help=f"the shape is {shape}")
    if not dots:
        parts.append(Ellipsis)
    at = next(n for n, p in enumerate(parts) if p is Ellipsis)
    parts[at : at + 1] = [slice(None)] * (len(shape) - given)
    out: list[int] = []
    index: list[IndexExpr] = []
    for part in parts:
        axis = len(index)
        if part is None:
            out.append(1)
        elif isinstance(part, slice):
            start, step, extent = _slice(part, axis, shape[axis])
            index.append(IndexExpr.of(f"i{len(out)}") * step + start)
            out.append(extent)
        else:
            index.append(_integer(part, axis, shape[axis]))
    return tuple(out), tuple(index)


@dataclass(frozen=True)
class ByData:
    """A key with arrays of numbers: first `basic`, whole along their axes, then the arrays.

    `axes` are those of what `basic` gives; the dimensions of the numbers begin at `place` in the result, as in numpy.
    """

    basic: tuple[Any, ...]
    arrays: tuple[Any, ...]
    axes: tuple[int, ...]
    place: int


def by_data(shape: Shape, key: Any) -> ByData | None:
    """How a key with arrays of numbers is read; None for other keys.  Raises UplError (UPL1932) where it adds dimensions."""
    parts = list(key) if isinstance(key, tuple) else [key]
    if not any(map(_numbers, parts)):
        return None
    if sum(p is Ellipsis for p in parts) > 1 or any(p is None for p in parts):
        raise fail("UPL1932", "an array of numbers as an index stands beside slices and integers",
                   help="add dimensions afterwards: x[k][:, None]")  # fmt: skip
    given = sum(p is not Ellipsis for p in parts)
    if given > len(shape):
        raise fail("UPL1931", f"{given} indices for an array with {len(shape)} dimensions", help=f"the shape is {shape}")
    at = next((n for n, p in enumerate(parts) if p is Ellipsis), len(parts))
    parts[at : at + 1] = [slice(None)] * (len(shape) - given)
    advanced = [n for n, p in enumerate(parts) if not isinstance(p, slice)]  # integers, too
    together = advanced[-1] - advanced[0] == len(advanced) - 1
    arrays, axes, dimensions = list[Any](), list[int](), 0
    for p in parts:
        if _numbers(p):
            arrays.append(p)
            axes.append(dimensions)
        dimensions += _numbers(p) or isinstance(p, slice)
    basic = tuple(slice(None) if _numbers(p) else p for p in parts)
    return ByData(basic, tuple(arrays), tuple(axes), advanced[0] if together else 0)


def _numbers(part: Any) -> bool:
    """Whether a part of a key is an array of numbers: traced, numpy's, or a list."""
    return isinstance(part, list) or (isinstance(part, np.ndarray) and part.ndim > 0) or LATE["is_traced"](part)


def _integer(part: Any, axis: int, extent: int) -> IndexExpr:
    if isinstance(part, LoopIndex):
        expr, (low, high) = part.expr, part.bounds
    elif not isinstance(part, bool | np.bool_) and isinstance(part, SupportsIndex) and not getattr(part, "shape", ()):
        low = high = operator.index(part)
        expr = IndexExpr.of(low)
    else:
        kind = "a list" if isinstance(part, list) else type(part).__name__
        raise fail(
            "UPL1932", f"an index may be an integer, a slice, None or `...`; this one is {kind}",
            help="data-dependent choices are written with np.where; fixed ones as np.stack([x[2], x[0]])",
        )  # fmt: skip
    if -extent <= low and high < 0:
        return expr + extent
    if not 0 <= low <= high < extent:
        shown = f"index {low}" if low == high else f"an index from {low} to {high}"
        raise fail("UPL1931", f"{shown} is out of bounds for axis {axis} of extent {extent}", help="shorten the range")
    return expr


def _slice(part: slice, axis: int, extent: int) -> tuple[IndexExpr, int, int]:
    """Start, step and number of elements."""
    if not any(isinstance(v, LoopIndex) for v in (part.start, part.stop, part.step)):
        start, stop, step = part.indices(extent)
        return IndexExpr.of(start), step, len(range(start, stop, step))
    step = 1 if part.step is None else operator.index(part.step)
    start = part.start if part.start is not None else 0
    stop = part.stop if part.stop is not None else extent
    length = stop - start
    if isinstance(length, LoopIndex):
        fixed = length.expr.constant
        if fixed is None:
            help = "both bounds must move alike, as in x[k : k + 3]; or use Python's range"
            raise fail("UPL1932", "the length of this slice depends on the index of a traced loop", help=help)
        length = fixed
    count = max(0, -(-length // step)) if step > 0 else 0
    if not count:
        return IndexExpr(), step, 0
    loops = {n: loop for v in (start, stop) if isinstance(v, LoopIndex) for n, loop in v.loops.items()}
    first = _integer(start, axis, extent)
    _integer(LoopIndex(first, loops), axis, extent)
    last = LoopIndex(first + step * (count - 1), loops)
    if last.bounds[0] >= 0:
        _integer(last, axis, extent)
    return first, step, count
