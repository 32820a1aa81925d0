# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""numpy's folds of traced arrays, those of all elements up to each among them, and what statistics makes of folds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from upl_mlir.dialects.upl import Gather
from upl_mlir.frontend.trace import loops
from upl_mlir.frontend.trace.array import Array, as_array, broadcast, filled, made, numbers, truths
from upl_mlir.frontend.trace.contract import matmul
from upl_mlir.frontend.trace.functions.elements import UFUNCS, is_nan, where
from upl_mlir.frontend.trace.node import Operand, Shape, current
from upl_mlir.frontend.trace.position import fail
from upl_mlir.frontend.trace.reshape import axis_of, diagonal, expand_dims, flip, moveaxis, reshape
from upl_mlir.poly.expr import IndexExpr

_sqrt, _abs = UFUNCS["sqrt"], UFUNCS["absolute"]


def _fold(gather: Gather, word: str) -> Callable[..., Array]:
    """A fold along axes, as numpy's reductions."""

    def call(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **rest: Any) -> Array:
        plain(word, dtype=dtype, out=out, **rest)
        x = numbers(as_array(a))
        axes = tuple(range(x.ndim)) if axis is None else tuple(axis_of(x, n) for n in np.atleast_1d(axis))
        if len(set(axes)) < len(axes):
            raise fail("UPL1931", f"{word}: an axis is given twice", help=f"axis={axis}, for the shape {x.shape}")
        kept = [n for n in range(x.ndim) if n not in axes]
        index: list[IndexExpr] = []
        for n in range(x.ndim):
            index.append(IndexExpr.of(f"r{sorted(axes).index(n)}" if n in axes else f"i{kept.index(n)}"))
        inner = x.operand()
        own = {f"i{n}": e for n, e in enumerate(index)}
        read = Operand(inner.node, tuple(e.substitute(own) for e in inner.index))
        over = tuple(x.shape[n] for n in sorted(axes))
        shape: Shape = tuple(x.shape[n] for n in kept)
        result = made(current().compute(shape, lambda e: e, [read], over=over, gather=gather, word=word)) if over else x
        if keepdims is True:
            for n in sorted(axes):
                result = expand_dims(result, n)
        return result

    return call


def plain(word: str, **options: Any) -> None:
    """Refuse options that would change the meaning."""
    for name, value in options.items():
        if value is not None and value is not np._NoValue and not (name == "dtype" and np.dtype(value).kind == "f"):  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
            raise fail("UPL1932", f"{word}: the option `{name}` cannot be traced", help="leave it out")


fold_sum = _fold(Gather.SUM, "sum")
fold_max = _fold(Gather.MAX, "max")
fold_min = _fold(Gather.MIN, "min")
fold_prod = _fold(Gather.PRODUCT, "prod")


def _all(a: Any, axis: Any = None, **rest: Any) -> Array:
    x = numbers(truths(as_array(a)))
    return (fold_min if x.size else fold_prod)(x, axis, **rest) > 0  # of no elements the extrema do not exist


def _any(a: Any, axis: Any = None, **rest: Any) -> Array:
    x = numbers(truths(as_array(a)))
    return (fold_max if x.size else fold_sum)(x, axis, **rest) > 0


def _mean(a: Any, axis: Any = None, **rest: Any) -> Array:
    x = as_array(a)
    total = fold_sum(x, axis, **rest)
    count = x.size if axis is None else math.prod(x.shape[axis_of(x, n)] for n in np.atleast_1d(axis))
    return total / count


def _var(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: Any = False) -> Array:
    x = numbers(as_array(a))
    count = x.size if axis is None else math.prod(x.shape[axis_of(x, n)] for n in np.atleast_1d(axis))
    d = x - _mean(x, axis, keepdims=True)
    return fold_sum(d * d, axis, dtype, out, keepdims) / (count - ddof)


def _std(a: Any, *args: Any, **rest: Any) -> Array:
    return _sqrt(_var(a, *args, **rest))


def extreme_place(least: bool) -> Callable[..., Array]:
    """`np.argmax` and `np.argmin`: the first place of the greatest or least element; of one that is no number, if there is
    any."""
    best, word = (fold_min, "argmin") if least else (fold_max, "argmax")

    def call(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Array:
        plain(word, out=out)
        x = numbers(as_array(a))
        if axis is None and keepdims is True:
            return reshape(call(x), (1,) * x.ndim)
        x = reshape(x, -1) if axis is None else x
        at = axis_of(x, -1 if axis is None else axis)
        n = x.shape[at]
        here = expand_dims(np.arange(n, dtype=float), tuple(range(1, x.ndim - at)))
        found = UFUNCS["logical_or"](UFUNCS["equal"](x, best(x, at, keepdims=True)), is_nan(x))
        return fold_min(where(found, here, float(n)), at, keepdims=keepdims)

    return call


_STARTS = {"add": 0.0, "multiply": 1.0, "maximum": -math.inf, "minimum": math.inf, "logaddexp": -math.inf}


def cumulative(op: str, a: Any, axis: int, *, backward: bool = False) -> Array:
    """A fold by a ufunc of all elements up to each: a recurrence along the axis."""
    x = moveaxis(numbers(as_array(a)), axis, 0)
    x = flip(x, 0) if backward else x

    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        new = UFUNCS[op](carry, row)
        return new, new

    _, out = loops.scan(step, filled(x.shape[1:], _STARTS[op]), x)
    out = flip(out, 0) if backward else as_array(out)
    return moveaxis(out, 0, axis)


def _up_to(op: str, word: str) -> Callable[..., Array]:
    """`np.cumsum` and `np.cumprod`."""

    def call(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Array:
        plain(word, dtype=dtype, out=out)
        x = reshape(as_array(a), -1) if axis is None else as_array(a)
        return cumulative(op, x, axis_of(x, 0 if axis is None else axis))

    return call


def accumulated(op: str, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Array:
    """A ufunc's `accumulate`.  Raises UplError (UPL1932) for those that have none here."""
    if op not in _STARTS:
        raise fail("UPL1932", f"numpy's `{op}.accumulate` cannot be traced", help="upl.scan goes along an axis")
    return _up_to(op, f"{op}.accumulate")(a, axis, dtype, out)


def _diff(a: Any, n: int = 1, axis: int = -1) -> Array:
    x = moveaxis(numbers(as_array(a)), axis, 0)
    for _ in range(n):
        x = x[1:] - x[:-1]
    return moveaxis(x, 0, axis)


def _gradient(f: Any, *spacing: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """numpy.gradient: central differences, at the ends those of neighbours."""
    x = numbers(as_array(f))
    axes = list(range(x.ndim)) if axis is None else [axis_of(x, n) for n in np.atleast_1d(axis)]
    steps = list(spacing) * len(axes) if len(spacing) == 1 else list(spacing) or [1.0] * len(axes)
    if edge_order != 1 or len(steps) != len(axes) or any(np.ndim(h) for h in steps):
        raise fail("UPL1932", "gradient: this form cannot be traced", help="one distance for each axis, edge_order=1")
    out: list[Array] = []
    for at, h in zip(axes, steps, strict=True):
        y = moveaxis(x, at, 0)
        d = filled(y.shape, 0.0)
        d[1:-1] = (y[2:] - y[:-2]) / (2 * h)
        d[0], d[-1] = (y[1] - y[0]) / h, (y[-1] - y[-2]) / h
        out.append(moveaxis(d, 0, at))
    return out[0] if len(out) == 1 else tuple(out)


def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Array:
    y = as_array(y)
    heights = moveaxis(y, axis, -1)
    if x is None:
        widths = as_array(dx)
    else:
        places = as_array(x)
        widths = _diff(places if places.ndim == 1 else moveaxis(places, axis, -1))
    return fold_sum(widths * (heights[..., 1:] + heights[..., :-1]), -1) / 2


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    x = as_array(x)
    axes = None if axis is None else tuple(axis_of(x, n) for n in np.atleast_1d(axis))
    vector = len(axes) == 1 if axes is not None else x.ndim == 1
    if ord is None or (ord == "fro" and not vector) or (ord == 2 and vector):
        return _sqrt(fold_sum(x * x, axis, keepdims=keepdims))
    size = _abs(x)
    if vector and isinstance(ord, int | float):
        if math.isinf(ord):
            return (fold_max if ord > 0 else fold_min)(size, axis, keepdims=keepdims)
        if ord == 0:
            return _count(x, axis, keepdims=keepdims)
        if ord == 1:
            return fold_sum(size, axis, keepdims=keepdims)
        return fold_sum(UFUNCS["power"](size, ord), axis, keepdims=keepdims) ** (1 / ord)
    if ord in (1, -1, math.inf, -math.inf) and not keepdims and (axes is not None or x.ndim == 2):
        rows, columns = axes or (0, 1)
        over, rest = (rows, columns) if abs(ord) == 1 else (columns, rows)
        total = fold_sum(size, over)
        return (fold_max if ord > 0 else fold_min)(total, rest - (over < rest))
    help = "norms of vectors can, of matrices the Frobenius norm, 1 and inf; for 2, the greatest of np.linalg.svdvals"
    raise fail("UPL1932", f"norm: ord={ord!r} cannot be traced", help=help)


def _vector_norm(x: Any, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Array:
    x = as_array(x)
    if axis is None and not keepdims:
        return _norm(reshape(x, -1), ord)
    if isinstance(axis, int):
        return _norm(x, ord, axis, keepdims)
    raise fail("UPL1932", "vector_norm: along several axes it cannot be traced", help="reshape, so that they are one")


def _average(a: Any, axis: Any = None, weights: Any = None) -> Array:
    if weights is None:
        return _mean(a, axis)
    x, w = as_array(a), as_array(weights)
    if w.ndim == 1 < x.ndim and axis is not None:  # as numpy: along the axis
        w = reshape(w, tuple(-1 if n == axis_of(x, axis) else 1 for n in range(x.ndim)))
    return fold_sum(x * w, axis) / fold_sum(broadcast(w, x.shape), axis)


def _count(a: Any, axis: Any = None, *, keepdims: Any = False) -> Array:
    """numpy.count_nonzero"""
    return fold_sum(numbers(truths(as_array(a))), axis, keepdims=keepdims)


def _without_nan(fold: Callable[..., Array], empty: float) -> Callable[..., Array]:
    """`np.nansum` and `np.nanprod`."""
    return lambda a, *args, **options: fold(where(is_nan(a), empty, a), *args, **options)


def _mean_without_nan(a: Any, axis: Any = None, **options: Any) -> Array:
    there = UFUNCS["logical_not"](is_nan(a))
    return fold_sum(where(there, a, 0), axis, **options) / fold_sum(numbers(there), axis, **options)


def _covariance(m: Any, *, rowvar: bool = True, bias: bool = False, ddof: int | None = None) -> Array:
    """numpy.cov of the rows (or columns) of one array."""
    x = numbers(as_array(m))
    x = x if rowvar or x.ndim < 2 else x.T
    d = x - _mean(x, -1, keepdims=True)
    count = x.shape[-1] - ((0 if bias else 1) if ddof is None else ddof)
    return (matmul(d, d.T) if x.ndim > 1 else fold_sum(d * d)) / count


def _correlations(x: Any, *, rowvar: bool = True) -> Array:
    """numpy.corrcoef of one array."""
    c = _covariance(x, rowvar=rowvar)
    if not c.ndim:
        return c / c
    s = _sqrt(diagonal(c))
    return c / s[:, None] / s[None, :]


def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Array:
    plain("trace", dtype=dtype, out=out)
    return fold_sum(diagonal(a, offset, axis1, axis2), -1)


UFUNCS["vecdot"] = lambda a, b: fold_sum(UFUNCS["multiply"](a, b), -1)
REDUCED: dict[str, Callable[..., Array]] = {
    "add": fold_sum, "multiply": fold_prod, "maximum": fold_max, "minimum": fold_min, "logical_and": _all,
    "logical_or": _any,
}  # fmt: skip
"""The folds that ufuncs' `reduce` is."""
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": fold_sum, "prod": fold_prod, "max": fold_max, "min": fold_min, "amax": fold_max, "amin": fold_min,
    "mean": _mean, "var": _var, "std": _std, "all": _all, "any": _any, "cumsum": _up_to("add", "cumsum"),
    "cumprod": _up_to("multiply", "cumprod"), "argmax": extreme_place(least=False), "argmin": extreme_place(least=True),
    "diff": _diff, "gradient": _gradient, "trapezoid": _trapezoid, "norm": _norm, "vector_norm": _vector_norm,
    "matrix_norm": lambda x, *, ord="fro": _norm(x, ord, (-2, -1)), "average": _average, "count_nonzero": _count,
    "ptp": lambda a, axis=None, **rest: fold_max(a, axis, **rest) - fold_min(a, axis, **rest),
    "nansum": _without_nan(fold_sum, 0.0), "nanprod": _without_nan(fold_prod, 1.0), "nanmean": _mean_without_nan,
    "cov": _covariance, "corrcoef": _correlations, "trace": _trace,
}  # fmt: skip
"""numpy's folds, by their names."""
