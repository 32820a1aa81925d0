# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""numpy's functions on traced arrays: elementwise ones, folds, products of matrices, shapes.

None of them has a derivative here: that is UPL's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from upl_mlir.diagnostics import did_you_mean
from upl_mlir.dialects.upl import Gather
from upl_mlir.frontend.tensor import Apply, Expr, Number
from upl_mlir.frontend.trace.array import Array, as_array, broadcast, computed, filled, made, numbers, truths
from upl_mlir.frontend.trace.chosen import take
from upl_mlir.frontend.trace.contract import dot, einsum, matmul, outer, tensordot
from upl_mlir.frontend.trace.late import LATE, METHODS
from upl_mlir.frontend.trace.node import Operand, Shape, current
from upl_mlir.frontend.trace.position import fail
from upl_mlir.frontend.trace.reshape import (
    axis_of,
    concatenate,
    diagonal,
    expand_dims,
    flip,
    moveaxis,
    pad,
    repeat,
    reshape,
    roll,
    sliding_window_view,
    split,
    squeeze,
    stack,
    stack_columns,
    stack_rows,
    swapaxes,
    tile,
    transpose,
)
from upl_mlir.ops import SPOKEN
from upl_mlir.poly.expr import IndexExpr

# -- elementwise -------------------------------------------------------------------------------------------------------


def _real(op: str, word: str = "") -> Callable[..., Array]:
    """An operation on numbers."""

    def call(*args: Any) -> Array:
        return computed(lambda *a: Apply(op, a), *(numbers(as_array(a)) for a in args), word=word or op)

    return call


def _compare(op: str) -> Callable[..., Array]:
    def call(a: Any, b: Any) -> Array:
        operands = numbers(as_array(a)), numbers(as_array(b))
        return computed(lambda *x: Apply(op, x), *operands, boolean=True, word=op)

    return call


def _logical(make: Callable[..., Expr], word: str) -> Callable[..., Array]:
    def call(*args: Any) -> Array:
        return computed(make, *(truths(as_array(a)) for a in args), boolean=True, word=word)

    return call


def _bitwise(f: Callable[..., Array], word: str) -> Callable[..., Array]:
    """`& | ^ ~`: of truth values only."""

    def call(*args: Any) -> Array:
        arrays = [as_array(a) for a in args]
        if not all(a.boolean for a in arrays):
            raise fail("UPL1932", f"`{word}` is for truth values here", help="numbers are floats: compare them first")
        return f(*arrays)

    return call


_TRUE, _FALSE = Apply("==", (Number(0), Number(0))), Apply("!=", (Number(0), Number(0)))
_and = _logical(lambda a, b: Apply("?:", (a, b, _FALSE)), "logical_and")
_or = _logical(lambda a, b: Apply("?:", (a, _TRUE, b)), "logical_or")
_not = _logical(lambda a: Apply("?:", (a, _FALSE, _TRUE)), "logical_not")
_xor = _logical(lambda a, b: Apply("?:", (a, Apply("?:", (b, _FALSE, _TRUE)), b)), "logical_xor")
_exp, _log, _log1p, _sqrt, _tanh, _abs = map(_real, ("exp", "log", "log1p", "sqrt", "tanh", "abs"))
_mul = _real("*")


def _floor(x: Any) -> Array:
    """With the derivative 0, as JAX has it; in UPL itself that must be said."""
    x = numbers(as_array(x))
    return computed(lambda a: Apply("floor", (Apply("stop_gradient", (a,)),)), x, word="floor")


def _power(x: Any, y: Any) -> Array:
    """Small whole powers are products, as in JAX: they have derivatives everywhere."""
    n: Any = y.item() if isinstance(y, np.ndarray | np.generic) and np.ndim(y) == 0 else y
    if not isinstance(n, int | float) or n not in (1, 2, 3, 4, -1, -2, -3, -4):
        return _real("**", "power")(x, y)
    base = numbers(as_array(x))
    power = base
    for _ in range(int(abs(n)) - 1):
        power = _mul(power, base)
    return power if n > 0 else _real("/")(1, power)


def where(condition: Any, x: Any = None, y: Any = None) -> Array:
    """As numpy.where with three arguments."""
    if x is None or y is None:
        raise fail(
            "UPL1932", "np.where with one argument gives indices, which depend on values",
            help="give both values: np.where(condition, a, b)",
        )  # fmt: skip
    choices = numbers(as_array(x)), numbers(as_array(y))
    return computed(lambda c, a, b: Apply("?:", (c, a, b)), truths(as_array(condition)), *choices, word="where")


def triangle(side: int) -> Callable[..., Array]:
    """`np.tril` (-1) and `np.triu` (1)."""

    def call(m: Any, k: int = 0) -> Array:
        x = numbers(as_array(m))
        ones = np.ones(x.shape[-2:])
        return where((np.tril if side < 0 else np.triu)(ones, k), x, 0)

    return call


def _clip(x: Any, lo: Any = None, hi: Any = None, *, min: Any = None, max: Any = None) -> Array:
    out = as_array(x)
    lo, hi = (min if lo is None else lo), (max if hi is None else hi)
    out = out if lo is None else _real("max", "clip")(out, lo)
    return out if hi is None else _real("min", "clip")(out, hi)


def _expm1(x: Any) -> Array:
    """Exact near 0, where exp(x) - 1 would cancel: 2 t / (1 - t) with t = tanh(x/2)."""
    x = numbers(as_array(x))
    t = _tanh(where(_abs(x) < 1, x, 0) / 2)
    return where(_abs(x) < 1, 2 * t / (1 - t), _exp(x) - 1)


def _logaddexp(a: Any, b: Any) -> Array:
    a, b = as_array(a), as_array(b)
    high = where(a > b, a, b)
    low = where(a > b, b, a)
    return high + _log1p(_exp(low - high))


def _arcsin(x: Any) -> Array:
    x = as_array(x)
    return _real("atan2", "arcsin")(x, _sqrt((1 - x) * (1 + x)))


def _arccos(x: Any) -> Array:
    x = as_array(x)
    return _real("atan2", "arccos")(_sqrt((1 - x) * (1 + x)), x)


def _arcsinh(x: Any) -> Array:
    """Exact near 0, and log(2 x) where the square of x would overflow."""
    x = as_array(x)
    size = where(x < 0, -x, x)  # unlike that of abs, its derivative at 0 is not 0
    s = where(size < 1e7, size, 1)
    out = where(size < 1e7, _log1p(s + s * s / (1 + _sqrt(1 + s * s))), _log(size) + math.log(2))
    return where(x < 0, -out, out)


def _cbrt(x: Any) -> Array:
    x = as_array(x)
    root = _power(where(x < 0, -x, x), 1 / 3)
    return where(x < 0, -root, root)


def _sign(x: Any) -> Array:
    return where(as_array(x) > 0, 1, where(as_array(x) < 0, -1, 0))


def _mod(a: Any, b: Any) -> Array:
    a, b = as_array(a), as_array(b)
    return a - _floor(a / b) * b


UFUNCS: dict[str, Callable[..., Array]] = {
    "add": _real("+"), "subtract": _real("-"), "multiply": _mul, "divide": _real("/"), "negative": _real("neg"),
    "positive": lambda x: numbers(as_array(x)), "power": _power, "float_power": _power,
    "square": lambda x: _power(x, 2), "reciprocal": lambda x: 1 / as_array(x),
    "floor_divide": lambda a, b: _floor(as_array(a) / b), "remainder": _mod, "maximum": _real("max", "maximum"),
    "minimum": _real("min", "minimum"), "fmax": _real("max", "fmax"), "fmin": _real("min", "fmin"),
    **{name: _real(f.name, name) for f in SPOKEN.values() for name in f.ufuncs},
    "absolute": _abs, "fabs": _abs, "floor": _floor, "ceil": lambda x: -_floor(-as_array(x)),
    "arctan": lambda x: _real("atan2", "arctan")(x, 1),
    "arcsin": _arcsin, "arccos": _arccos, "arcsinh": _arcsinh, "sign": _sign,
    "exp2": lambda x: _exp(as_array(x) * math.log(2)), "log2": lambda x: _log(x) / math.log(2),
    "log10": lambda x: _log(x) / math.log(10), "expm1": _expm1, "logaddexp": _logaddexp,
    "sinh": lambda x: (_expm1(x) - _expm1(-as_array(x))) / 2, "cosh": lambda x: (_exp(x) + _exp(-as_array(x))) / 2,
    "hypot": lambda a, b: _sqrt(_power(a, 2) + _power(b, 2)), "deg2rad": lambda x: as_array(x) * (math.pi / 180),
    "radians": lambda x: as_array(x) * (math.pi / 180), "cbrt": _cbrt,
    "less": _compare("<"), "less_equal": _compare("<="), "greater": _compare(">"), "greater_equal": _compare(">="),
    "equal": _compare("=="), "not_equal": _compare("!="), "logical_and": _and, "logical_or": _or,
    "logical_not": _not, "logical_xor": _xor, "bitwise_and": _bitwise(_and, "&"), "bitwise_or": _bitwise(_or, "|"),
    "bitwise_xor": _bitwise(_xor, "^"), "invert": _bitwise(_not, "~"), "heaviside": lambda x, h: where(
        as_array(x) > 0, 1, where(as_array(x) < 0, 0, h)),
    "matmul": matmul,
    "vecdot": lambda a, b: fold_sum(_mul(a, b), -1),
}  # fmt: skip
"""numpy's (and scipy.special's) ufuncs, by their names."""

# -- folds -------------------------------------------------------------------------------------------------------------


def _fold(gather: Gather, word: str) -> Callable[..., Array]:
    """A fold along axes, as numpy's reductions."""

    def call(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **rest: Any) -> Array:
        _plain(word, dtype=dtype, out=out, **rest)
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


def _plain(word: str, **options: Any) -> None:
    """Refuse options that would change the meaning."""
    for name, value in options.items():
        if value is not None and value is not np._NoValue and not (name == "dtype" and np.dtype(value).kind == "f"):  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
            raise fail("UPL1932", f"{word}: the option `{name}` cannot be traced", help="leave it out")


fold_sum = _fold(Gather.SUM, "sum")
fold_max = _fold(Gather.MAX, "max")
fold_min = _fold(Gather.MIN, "min")
fold_prod = _fold(Gather.PRODUCT, "prod")


def _all(a: Any, axis: Any = None, **rest: Any) -> Array:
    return fold_min(numbers(truths(as_array(a))), axis, **rest) > 0


def _any(a: Any, axis: Any = None, **rest: Any) -> Array:
    return fold_max(numbers(truths(as_array(a))), axis, **rest) > 0


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


def _cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Array:
    """By a triangle of ones: sums have constant ranges."""
    _plain("cumsum", dtype=dtype, out=out)
    x = reshape(as_array(a), -1) if axis is None else as_array(a)
    at = axis_of(x, 0 if axis is None else axis)
    ones = np.tril(np.ones((x.shape[at], x.shape[at])))
    moved = matmul(moveaxis(x, at, -1), ones.T)
    return moveaxis(moved, -1, at)


def _diff(a: Any, n: int = 1, axis: int = -1) -> Array:
    x = moveaxis(numbers(as_array(a)), axis, 0)
    for _ in range(n):
        x = x[1:] - x[:-1]
    return moveaxis(x, 0, axis)


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    x = as_array(x)
    vector = isinstance(axis, int) or (axis is None and x.ndim == 1)
    if ord in (None, "fro") or (ord == 2 and vector):
        return _sqrt(fold_sum(_power(x, 2), axis, keepdims=keepdims))
    if ord == 1 and vector:
        return fold_sum(_abs(x), axis, keepdims=keepdims)
    raise fail("UPL1932", f"norm: ord={ord!r} cannot be traced", help="the 2-norm of vectors and the Frobenius norm can")


def _average(a: Any, axis: Any = None, weights: Any = None) -> Array:
    if weights is None:
        return _mean(a, axis)
    return fold_sum(as_array(a) * weights, axis) / fold_sum(broadcast(as_array(weights), as_array(a).shape), axis)


def _like(value: float | None) -> Callable[..., Array]:
    def call(a: Any, fill: Any = None, dtype: Any = None, shape: Any = None, **_: Any) -> Array:
        if value is not None:
            fill, dtype = value, (fill if dtype is None else dtype)
        _plain("…_like", dtype=dtype)
        return _full(as_array(a).shape if shape is None else shape, fill)

    return call


def _new(value: float | None) -> Callable[..., Array]:
    """`np.zeros(n, like=x)` and its kin."""

    def call(shape: Any, fill: Any = None, *_: Any, dtype: Any = None, **__: Any) -> Array:
        _plain("zeros, ones, full", dtype=dtype)
        return _full(shape, fill if value is None else value)

    return call


def _full(shape: Any, value: Any) -> Array:
    extents = tuple(int(n) for n in np.atleast_1d(shape)) if shape != () else ()
    if isinstance(value, int | float) and math.isfinite(value):
        return filled(extents, float(value))
    return broadcast(as_array(value), extents).copy()


def _trace(a: Any, *_: Any, **__: Any) -> Array:
    return fold_sum(diagonal(a), -1)


def _array(x: Any, *_: Any, **__: Any) -> Array:
    return as_array(x).copy()


def _softmax(x: Any, axis: Any = None) -> Array:
    """scipy.special.softmax, and the name that people look for."""
    e = _exp(x - fold_max(x, axis, keepdims=True))
    return e / fold_sum(e, axis, keepdims=True)


def broadcast_to(a: Any, shape: Any, **_: Any) -> Array:
    """As in numpy."""
    wanted = tuple(int(n) for n in np.atleast_1d(shape))
    try:
        return broadcast(as_array(a), wanted)
    except ValueError:
        message = f"an array of shape {as_array(a).shape} does not broadcast to {wanted}"
        raise fail("UPL1931", message, help="extents must be equal or 1, counted from the last dimension") from None


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": fold_sum, "prod": fold_prod, "max": fold_max, "min": fold_min, "amax": fold_max, "amin": fold_min,
    "mean": _mean, "var": _var, "std": _std, "all": _all, "any": _any, "cumsum": _cumsum, "diff": _diff, "norm": _norm,
    "average": _average,
    "where": where, "clip": _clip, "dot": dot, "vdot": lambda a, b: dot(reshape(a, -1), reshape(b, -1)),
    "inner": lambda a, b: tensordot(a, b, (-1, -1)) if as_array(a).ndim and as_array(b).ndim else _mul(a, b),
    "outer": outer, "take": take, "einsum": einsum, "tensordot": tensordot, "matmul": matmul, "trace": _trace,
    "diagonal": diagonal, "diag": diagonal, "transpose": transpose, "permute_dims": transpose, "swapaxes": swapaxes,
    "matrix_transpose": lambda a: swapaxes(a, -1, -2), "moveaxis": moveaxis, "reshape": reshape,
    "ravel": lambda a, *_: reshape(a, -1), "expand_dims": expand_dims, "squeeze": squeeze, "concatenate": concatenate,
    "sliding_window_view": sliding_window_view,
    "split": split, "array_split": lambda a, n, axis=0: split(a, n, axis, even=False), "pad": pad,
    "stack": stack, "vstack": stack_rows, "hstack": stack_columns, "flip": flip, "roll": roll,
    "tile": tile, "repeat": repeat, "broadcast_to": broadcast_to, "tril": triangle(-1),
    "triu": triangle(1), "zeros_like": _like(0), "ones_like": _like(1), "empty_like": _like(0), "full_like": _like(None),
    "zeros": _new(0), "ones": _new(1), "empty": _new(0), "full": _new(None), "copy": _array, "array": _array,
    "asarray": lambda x, *_, **__: as_array(x), "shape": lambda a: a.shape, "ndim": lambda a: a.ndim,
    "size": lambda a, axis=None: a.size if axis is None else a.shape[axis], "softmax": _softmax,
    "fliplr": lambda a: flip(a, 1), "flipud": lambda a: flip(a, 0),
    "atleast_1d": lambda a: a if a.ndim else reshape(a, 1), "real": lambda a: a,
}  # fmt: skip
"""numpy's other functions, by their names."""


METHODS.update({
    "sum": fold_sum, "prod": fold_prod, "max": fold_max, "min": fold_min, "mean": _mean, "var": _var, "std": _std,
    "all": _all, "any": _any, "cumsum": _cumsum, "clip": _clip, "dot": dot, "trace": _trace, "diagonal": diagonal,
    "swapaxes": swapaxes, "squeeze": squeeze, "repeat": repeat, "ravel": lambda a, *_: reshape(a, -1),
    "flatten": lambda a, *_: reshape(a, -1).copy(),
    "transpose": lambda a, *axes: transpose(a, (axes[0] if len(axes) == 1 else axes) or None),
    "reshape": lambda a, *shape, **options: reshape(a, shape[0] if len(shape) == 1 else shape, **options),
    "astype": lambda a, dtype, **_: _astype(a, dtype), "conj": lambda a: a,
})  # fmt: skip
"""Methods of arrays."""


def _astype(a: Array, dtype: Any) -> Array:
    kind = np.dtype(dtype).kind
    if kind == "b":
        return truths(a)
    if kind == "f":
        return numbers(a)
    raise fail("UPL1932", f"astype({np.dtype(dtype)}) cannot be traced: numbers are floats", help="use np.floor")


# -- numpy's protocols ---------------------------------------------------------------------------------------------------


def call_ufunc(ufunc: Any, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """A ufunc on traced arrays.  Raises UplError (UPL1932) for what cannot be traced."""
    name: str = ufunc.__name__
    if method == "reduce":
        folds = {"add": fold_sum, "multiply": fold_prod, "maximum": fold_max, "minimum": fold_min, "logical_and": _all}
        if name in folds:
            axis = options.pop("axis", 0)
            return folds[name](*inputs, axis=axis, **options)
    if method == "outer" and name in UFUNCS:
        a, b = as_array(inputs[0]), as_array(inputs[1])
        return UFUNCS[name](a[(..., *(None,) * b.ndim)], b)
    if method != "__call__" or name not in UFUNCS:
        shown = name if method == "__call__" else f"{name}.{method}"
        raise _unsupported(shown, UFUNCS)
    if options.get("where", True) is not True:
        raise fail("UPL1932", f"{name}: the option `where` cannot be traced", help="use np.where")
    return UFUNCS[name](*inputs)


def call_function(func: Any, args: Any, kwargs: Any) -> Any:
    """A function of numpy on traced arrays.  Raises UplError (UPL1932) for what cannot be traced."""
    name: str = func.__name__
    if name not in FUNCTIONS:
        raise _unsupported(name, FUNCTIONS)
    kwargs.pop("like", None)
    try:
        return FUNCTIONS[name](*args, **kwargs)
    except TypeError as e:
        if "argument" not in str(e):
            raise
        message = f"np.{name}: this way to call it cannot be traced ({e})"
        raise fail("UPL1932", message, help="leave the option out") from None


def _unsupported(name: str, known: dict[str, Any]) -> Exception:
    help = did_you_mean(name, known) or "write it with elementwise functions, sums, products and slices"
    return fail("UPL1932", f"numpy's `{name}` cannot be traced", help=f"{help}; docs/frontends.md lists what can be")


def install() -> None:
    """Let traced arrays find these functions."""
    LATE.update(call_ufunc=call_ufunc, call_function=call_function, stack=stack)
