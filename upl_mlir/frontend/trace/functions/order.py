# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Sorting and what is made of it.

An element's rank is the number of those that come before it; the sorted array has at place k the sum of the elements whose
rank is k, which is one.  So to sort n elements is n² comparisons, and n² choices for each array that goes along: no loop,
no place that data choose, the same on every engine.  The ranks have no derivative, so that of sorting is the permutation's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from upl_mlir.frontend.tensor import Apply, Expr, Number
from upl_mlir.frontend.trace.array import Array, as_array, computed, numbers
from upl_mlir.frontend.trace.functions.elements import FALSE, TRUE, UFUNCS, is_nan, where
from upl_mlir.frontend.trace.functions.folds import fold_sum, plain
from upl_mlir.frontend.trace.position import fail
from upl_mlir.frontend.trace.reshape import axis_of, moveaxis, reshape

_and, _or, _not, _equal = (UFUNCS[name] for name in ("logical_and", "logical_or", "logical_not", "equal"))


@cache
def _counts(n: int) -> Any:
    return np.arange(n, dtype=float)


def places(n: int) -> Array:
    """0, 1, …: one constant of the program, however often it is asked for."""
    return as_array(_counts(n))


def _before(a: Expr, b: Expr) -> Expr:
    return Apply("?:", (Apply("!=", (b, b)), Apply("==", (a, a)), Apply("<", (a, b))))


def before(a: Any, b: Any) -> Array:
    """Whether one number comes before another; what is no number comes last."""
    return computed(_before, numbers(as_array(a)), numbers(as_array(b)), boolean=True, word="before")


def ranks(keys: Sequence[Array], *, descending: bool = False) -> Array:
    """How many elements along the last axis come before each: by the first key, then by the next one, at last by place."""
    n = keys[0].shape[-1]

    def first(j: Expr, i: Expr, *values: Expr) -> Expr:
        out = Apply("<", (j, i))
        for other, own in reversed([*zip(values[: len(keys)], values[len(keys) :], strict=True)]):
            low, high = (own, other) if descending else (other, own)
            out = Apply("?:", (_before(low, high), TRUE, Apply("?:", (_before(high, low), FALSE, out))))
        return Apply("?:", (out, Number(1), Number(0)))

    others, own = [key[..., None, :] for key in keys], [key[..., :, None] for key in keys]
    return fold_sum(computed(first, places(n), places(n)[:, None], *others, *own, word="before"), -1)


def permuted(x: Array, rank: Array, wanted: Any = None) -> Array:
    """The elements along the last axis in the order of their ranks; or only those of the ranks `wanted`."""
    order = places(x.shape[-1]) if wanted is None else as_array(wanted)
    return fold_sum(where(_equal(rank[..., None, :], order[:, None]), x[..., None, :], 0), -1)


def ordered(
    arrays: Sequence[Any], axis: int, keys: int = 1, *, descending: bool = False, most: int | None = None
) -> list[Array]:  # fmt: skip
    """Arrays of one shape, ordered along an axis by the first `keys` of them, of which the first counts most; what is alike
    stays in its order.  With `most`, only so many are kept."""
    moved = [moveaxis(numbers(as_array(a)), axis, -1) for a in arrays]
    rank = ranks(moved[:keys], descending=descending)
    wanted = None if most is None else np.arange(most, dtype=float)
    return [moveaxis(permuted(a, rank, wanted), -1, axis) for a in moved]


def along(x: Array, at: Array) -> Array:
    """The elements along the last axis that whole numbers from 0 choose, row by row; 0 where there is none."""
    return fold_sum(where(_equal(at[..., :, None], places(x.shape[-1])), x[..., None, :], 0), -1)


def _line(a: Any, axis: Any) -> tuple[Array, int]:
    """The array, flat if there is no axis, and the axis."""
    x = numbers(as_array(a))
    x = reshape(x, -1) if axis is None else x
    return x, axis_of(x, -1 if axis is None else axis)


def _sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Array:
    plain("sort", order=order)
    x, at = _line(a, axis)
    return ordered([x], at)[0]


def _sort_places(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Array:
    """numpy.argsort: stable, whatever is asked for."""
    plain("argsort", order=order)
    x, at = _line(a, axis)
    x = moveaxis(x, at, -1)
    return moveaxis(permuted(places(x.shape[-1]), ranks([x])), -1, at)


def _lexsort(keys: Any, axis: int = -1) -> Array:
    """numpy.lexsort: the last key counts most."""
    parts = [as_array(k) for k in keys]
    moved = [moveaxis(k, axis_of(k, axis), -1) for k in reversed(parts)]
    return moveaxis(permuted(places(moved[0].shape[-1]), ranks(moved)), -1, axis)


def along_or_none(x: Array, at: Array, none: float = math.nan) -> Array:
    """The same; what is out of bounds gives no number (NaN), as in JAX, or another value."""
    return where(_and(at >= 0, at < x.shape[-1]), along(x, at), none)


def _take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Array:
    x, at = _line(arr, axis)
    k = moveaxis(as_array(indices), at, -1)
    return moveaxis(along_or_none(moveaxis(x, at, -1), where(k < 0, k + x.shape[at], k)), -1, at)


def _quantile(
    a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: Any = False, method: str = "linear",
    keepdims: Any = False,
) -> Array:  # fmt: skip
    """numpy.quantile: between the two nearest elements, in proportion."""
    if isinstance(q, Array) or method != "linear" or out is not None:
        raise fail("UPL1932", "quantile: the parts must be known, and the method be linear",
                   help="give numbers: np.quantile(x, 0.9)")  # fmt: skip
    parts = np.asarray(q, float)
    if parts.size and not (parts.min() >= 0 and parts.max() <= 1):
        raise fail("UPL1931", f"quantile: {q} is not between 0 and 1", help="np.percentile counts from 0 to 100")
    x = numbers(as_array(a))
    axes = sorted(range(x.ndim) if axis is None else (axis_of(x, n) for n in np.atleast_1d(axis)))
    rest = [n for n in range(x.ndim) if n not in axes]
    x = reshape(moveaxis(x, axes, range(-len(axes), 0)), (*(x.shape[n] for n in rest), -1))
    n = x.shape[-1]
    place = parts.reshape(-1) * (n - 1)
    low, high = np.floor(place), np.ceil(place)
    rank = ranks([x])
    below, above = permuted(x, rank, low), permuted(x, rank, high)
    part = place - low
    found = where(part > 0, below * (1 - part) + above * part, below) if part.any() else below
    bad = fold_sum(numbers(is_nan(x)), -1, keepdims=True) > 0
    found = moveaxis(where(bad, math.nan, found), -1, 0)
    shape = [1 if n in axes else as_array(a).shape[n] for n in range(as_array(a).ndim)] if keepdims is True else None
    return reshape(found, (*parts.shape, *(found.shape[1:] if shape is None else shape)))


def _median(a: Any, axis: Any = None, out: Any = None, overwrite_input: Any = False, keepdims: Any = False) -> Array:
    return _quantile(a, 0.5, axis, out, keepdims=keepdims)


def _percentile(a: Any, q: Any, *args: Any, **options: Any) -> Array:
    return _quantile(a, q if isinstance(q, Array) else np.asarray(q, float) / 100, *args, **options)


def _searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Array:
    """numpy.searchsorted: how many elements come before each number."""
    plain("searchsorted", sorter=sorter)
    row, numbers_ = as_array(a), as_array(v)[..., None]
    return fold_sum(numbers(before(row, numbers_) if side == "left" else _not(before(numbers_, row))), -1)


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Array:
    """numpy.interp: the sum over all pieces of the one in which a number lies."""
    plain("interp", period=period)
    at, points, values = as_array(x), as_array(xp), as_array(fp)
    if points.ndim != 1 or points.shape != values.shape:
        raise fail("UPL1931", f"interp: points of shape {points.shape}, values of shape {values.shape}",
                   help="both are vectors of one length")  # fmt: skip
    inner = at[..., None]
    inside = _and(points[:-1] <= inner, inner < points[1:])
    slope = (values[1:] - values[:-1]) / (points[1:] - points[:-1])
    out = fold_sum(where(inside, values[:-1] + slope * (inner - points[:-1]), 0), -1)
    out = where(at < points[0], values[0] if left is None else left, out)
    out = where(at >= points[-1], where(at > points[-1], values[-1] if right is None else right, values[-1]), out)
    return where(is_nan(at), at, out)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sort": _sort, "argsort": _sort_places, "lexsort": _lexsort, "median": _median, "quantile": _quantile,
    "percentile": _percentile, "take_along_axis": _take_along_axis, "searchsorted": _searchsorted, "interp": _interp,
}  # fmt: skip
"""numpy's functions that sort, by their names."""
