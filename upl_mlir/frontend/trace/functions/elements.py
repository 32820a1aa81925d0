# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""numpy's functions on the elements of traced arrays: its ufuncs, and those that choose among values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from upl_mlir.frontend.tensor import Apply, Expr, Number
from upl_mlir.frontend.trace.array import Array, as_array, computed, numbers, truths
from upl_mlir.frontend.trace.contract import matmul
from upl_mlir.frontend.trace.node import current
from upl_mlir.frontend.trace.position import fail
from upl_mlir.ops import SPOKEN


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


TRUE, FALSE = Apply("==", (Number(0), Number(0))), Apply("!=", (Number(0), Number(0)))
_and = _logical(lambda a, b: Apply("?:", (a, b, FALSE)), "logical_and")
_or = _logical(lambda a, b: Apply("?:", (a, TRUE, b)), "logical_or")
_not = _logical(lambda a: Apply("?:", (a, FALSE, TRUE)), "logical_not")
_xor = _logical(lambda a, b: Apply("?:", (a, Apply("?:", (b, FALSE, TRUE)), b)), "logical_xor")
_equal = _compare("==")


def _of_truths(f: Callable[..., Array], of_truths: Callable[..., Array]) -> Callable[..., Array]:
    """An operation that is another one on truth values: numpy adds them as `or`."""

    def call(a: Any, b: Any) -> Array:
        x, y = as_array(a), as_array(b)
        return of_truths(x, y) if x.boolean and y.boolean else f(x, y)

    return call


_exp, _expm1, _log, _log1p, _sqrt = map(_real, ("exp", "expm1", "log", "log1p", "sqrt"))
_tanh, _abs, _sin = map(_real, ("tanh", "abs", "sin"))
_mul = _real("*")


def _still(a: Expr) -> Expr:
    return Apply("stop_gradient", (a,))


def still(x: Any) -> Array:
    """The same elements, through which no derivative goes."""
    return computed(_still, numbers(as_array(x)), word="stop_gradient")


def _floor(x: Any) -> Array:
    """With the derivative 0, as JAX has it; in UPL itself that must be said."""
    return computed(lambda a: Apply("floor", (_still(a),)), numbers(as_array(x)), word="floor")


def truncated(x: Any) -> Array:
    """Towards 0."""
    x = as_array(x)
    return where(x < 0, -_floor(-x), _floor(x))


def rounded(x: Any, *, even: bool = True) -> Array:
    """The nearest whole number; of two, the even one, or that away from 0."""
    x = as_array(x)
    low = _floor(x)
    up = _equal(low, 2 * _floor(low / 2)) if even else x < 0
    rest = x - low
    return where((rest < 0.5) | ((rest <= 0.5) & up), low, low + 1)


def _round(x: Any, decimals: int = 0, out: Any = None) -> Array:
    """numpy.round, which scales by a power of ten."""
    if out is not None:
        raise fail("UPL1932", "round: the option `out` cannot be traced", help="leave it out")
    scale = 10.0 ** abs(decimals)
    if not decimals:
        return rounded(x)
    return rounded(as_array(x) * scale) / scale if decimals > 0 else rounded(as_array(x) / scale) * scale


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


def _clip(x: Any, lo: Any = None, hi: Any = None, *, min: Any = None, max: Any = None) -> Array:
    out = as_array(x)
    lo, hi = (min if lo is None else lo), (max if hi is None else hi)
    out = out if lo is None else _real("max", "clip")(out, lo)
    return out if hi is None else _real("min", "clip")(out, hi)


def _logaddexp(a: Any, b: Any) -> Array:
    a, b = as_array(a), as_array(b)
    high = where(a > b, a, b)
    low = where(a > b, b, a)
    differ = _or(is_finite(high), _compare("!=")(low, high))  # of two equal infinities there is no difference
    return high + _log1p(_exp(where(differ, low - high, 0)))


def is_nan(x: Any) -> Array:
    """Which elements are no number."""
    x = numbers(as_array(x))
    return _compare("!=")(x, x)


def is_finite(x: Any) -> Array:
    """Which elements are numbers, and not infinite."""
    x = numbers(as_array(x))
    return _equal(x - x, 0)


def _is_infinite(x: Any) -> Array:
    return _not(_or(is_finite(x), is_nan(x)))


def _is_close(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    a, b = as_array(a), as_array(b)
    close = _or(_equal(a, b), _and(is_finite(b), _abs(a - b) <= atol + rtol * _abs(b)))
    return _or(close, _and(is_nan(a), is_nan(b))) if equal_nan else close


def _numbers_for_nan(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Array:
    """numpy.nan_to_num"""
    x = as_array(x)
    most = float(np.finfo(x.dtype).max) if x.dtype.kind == "f" else 1.0
    infinite = where(x > 0, most if posinf is None else posinf, -most if neginf is None else neginf)
    return where(is_nan(x), nan, where(is_finite(x), x, infinite))


def _select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Array:
    """numpy.select: the value of the first condition that holds."""
    if len(condlist) != len(choicelist):
        message = f"select: {len(condlist)} conditions and {len(choicelist)} values"
        raise fail("UPL1931", message, help="give one value for each condition")
    out = as_array(default)
    for condition, value in reversed([*zip(condlist, choicelist, strict=True)]):
        out = where(condition, value, out)
    return out


def _piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **options: Any) -> Array:
    """numpy.piecewise: the value of the last condition that holds, else that of a last function without one, else 0."""
    conditions = list(condlist) if isinstance(condlist, list | tuple) else [condlist]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        message = f"piecewise: {len(conditions)} conditions and {len(funclist)} functions"
        raise fail("UPL1931", message, help="give one function for each condition, and one more for all else")
    values = [f(x, *args, **options) if callable(f) else f for f in funclist]
    out = as_array(values[len(conditions)] if len(values) > len(conditions) else 0.0)
    for condition, value in zip(conditions, values, strict=False):
        out = where(condition, value, out)
    return out


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
    return where(as_array(x) > 0, 1, where(as_array(x) < 0, -1, still(x)))


def _step(x: Any, h: Any) -> Array:
    """numpy.heaviside"""
    x = as_array(x)
    return where(x > 0, 1, where(x < 0, 0, where(is_nan(x), still(x), h)))


def _arccosh(x: Any) -> Array:
    """Exact near 1, and log(2 x) where the square of x would overflow."""
    x = as_array(x)
    t = where(x < 1e7, x, 2) - 1
    return where(x < 1e7, _log1p(t + _sqrt(t * (t + 2))), _log(x) + math.log(2))


def _arctanh(x: Any) -> Array:
    return (_log1p(x) - _log1p(-as_array(x))) / 2


def _sinc(x: Any) -> Array:
    """sin(pi x) / (pi x); near 0 its series, which has the derivatives there."""
    angle = as_array(x) * math.pi
    square, series = angle * angle, as_array(0.0)
    for n in reversed(range(7)):
        series = series * square + (-1) ** n / math.factorial(2 * n + 1)
    near = _abs(angle) < 0.5
    away = where(near, 1, angle)
    return where(near, series, _sin(away) / away)


def _extreme_number(op: str) -> Callable[..., Array]:
    """numpy.fmax and fmin: of a number and no number, the number."""

    def call(a: Any, b: Any) -> Array:
        return where(is_nan(a), b, where(is_nan(b), a, _real(op)(a, b)))

    return call


def _hypot(a: Any, b: Any) -> Array:
    """By the greater one, whose square may overflow; that of an infinite one and no number is infinite, as in C."""
    a, b = numbers(as_array(a)), numbers(as_array(b))
    high = _real("max")(_abs(still(a)), _abs(still(b)))
    scale = where(_and(high > 0, is_finite(high)), high, 1)
    length = scale * _sqrt(_power(a / scale, 2) + _power(b / scale, 2))
    return where(_or(_is_infinite(a), _is_infinite(b)), math.inf, length)


_TAIL = (
    0.5107913526210115, 0.3435803422069067, 0.13973604627801475, 0.01822111575329492, -0.010755330944036532,
    -0.0032395925295271534, 0.0015453060141013286, 0.0004186479710660508, -0.0003315365766901461, -1.71852541704069e-05,
    7.223418829504806e-05, -1.7076638145079572e-05, -1.084298532996441e-05, 8.06710621122023e-06,
    -5.776423611511427e-07, -1.835078540898153e-06, 1.0305699215291105e-06, 1.5720540066794157e-08,
    -3.262460935296672e-07, 1.497143526022312e-07, 3.600084529207994e-08, -5.145629434357735e-08, 6.520434614401537e-09,
    6.597367302900275e-09, -1.9111737286078935e-09,
)
"""Coefficients of the polynomial in `erfc`, fitted: from 0.5 to 26 it is within 1.2e-15 of erfc, relative to it."""


def erfc(x: Any) -> Array:
    """scipy.special.erfc, 1 - erf(x), without its cancellation.

    For x > 0, exp(x²) erfc(x) is t times a polynomial in 2t - 1, where t = 2/(2 + x).  The square is split, as exp makes its
    rounding large."""
    x = numbers(as_array(x))
    size = _abs(still(x))
    size = where(size < 32, size, 32)  # beyond, and of what is no number: 0
    t = 2 / (2 + size)
    at, series = 2 * t - 1, as_array(0.0)
    for c in reversed(_TAIL):
        series = series * at + c
    near = _floor(size * 16) / 16
    tail = _exp(-near * near) * _exp((near - size) * (near + size)) * t * series
    value = where(size < 0.5, 1 - _real("erf")(x), where(x < 0, 2 - tail, tail))
    value = where(is_nan(x), x, value)
    slope = -2 / math.sqrt(math.pi) * _exp(-x * x)
    return computed(lambda v, a, s: Apply("with_derivative", (v, a, s)), value, x, slope, word="erfc")


def _whole(x: Any) -> bool:
    """Whether an array is known, and of whole numbers."""
    node = as_array(x).operand().node
    value = getattr(node, "value", None)
    return value is not None and bool(np.all(np.asarray(value) == np.floor(value)))


def _halves(x: Array) -> tuple[Array, Array]:
    """A number as a sum of two, each of half the bits."""
    scaled = x * (2.0**12 + 1 if current().single else 2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


def _rest(a: Array, b: Array) -> tuple[Array, Array]:
    """For a >= 0 and b > 0 a multiple of b, as often as a quotient of floats says, and what `a` exceeds it by.

    Exact: the product is a sum of two numbers (Dekker 1971), and what is left of a number by a rounded quotient is a number.
    """
    times = _floor(a / b)
    product = times * b
    (th, tl), (bh, bl) = _halves(times), _halves(b)
    error = ((th * bh - product) + th * bl + tl * bh) + tl * bl
    return times, (a - product) - error


def remainder_to_zero(a: Any, b: Any) -> Array:
    """numpy.fmod: with the sign of the first.  Exact, as in C, also where the quotient rounds up to a whole number."""
    x, y = numbers(as_array(a)), numbers(as_array(b))
    if _whole(y):  # the product is exact, and so is an index that is made this way
        return x - truncated(x / y) * y
    p, q = _abs(still(x)), _abs(still(y))
    less = p < q
    q = where(less, 1, q)
    times, first = _rest(where(less, 0, p), q)
    rest = first
    for _ in range(2 if current().single else 1):  # a quotient of 63 bits, a float's at a time
        _, again = _rest(_abs(rest), q)
        rest = where(rest < 0, -again, again)
    rest = where(less, p, where(rest < 0, rest + q, rest))
    value = where(x < 0, -rest, rest)
    count = where(less, 0, where(first < 0, times - 1, times))
    slope = where(_xor(x < 0, y < 0), count, -count)
    return computed(lambda v, *pairs: Apply("with_derivative", (v, *pairs)), value, x, as_array(1.0), y, slope, word="fmod")


def _mod(a: Any, b: Any) -> Array:
    """numpy.remainder: with the sign of the second."""
    x, y = numbers(as_array(a)), numbers(as_array(b))
    if _whole(y):
        return x - _floor(x / y) * y
    rest = remainder_to_zero(x, y)
    return where(_and(_compare("!=")(rest, 0), _xor(rest < 0, y < 0)), rest + y, rest)


def _floor_divide(a: Any, b: Any) -> Array:
    """numpy.floor_divide: what is left of a remainder has a whole quotient, but for rounding."""
    x, y = still(a), still(b)
    if _whole(b):
        return _floor(x / y)
    rest = _mod(x, y)
    off = _and(_compare("!=")(rest, 0), _not(is_finite(y)))
    return where(off, where(_xor(x < 0, y < 0), -1, 0), rounded((x - where(off, 0, rest)) / y))


UFUNCS: dict[str, Callable[..., Any]] = {
    "add": _of_truths(_real("+"), _or), "subtract": _real("-"), "multiply": _of_truths(_mul, _and),
    "divide": _real("/"), "negative": _real("neg"),
    "positive": lambda x: numbers(as_array(x)), "power": _power, "float_power": _power,
    "square": lambda x: _power(x, 2), "reciprocal": lambda x: 1 / as_array(x),
    "floor_divide": _floor_divide, "remainder": _mod,
    "maximum": _of_truths(_real("max", "maximum"), _or), "minimum": _of_truths(_real("min", "minimum"), _and),
    "fmax": _extreme_number("max"), "fmin": _extreme_number("min"),
    **{name: _real(f.name, name) for f in SPOKEN.values() for name in f.ufuncs},
    "absolute": _abs, "fabs": _abs, "floor": _floor, "ceil": lambda x: -_floor(-as_array(x)),
    "arctan": lambda x: _real("atan2", "arctan")(x, 1),
    "arcsin": _arcsin, "arccos": _arccos, "arcsinh": _arcsinh, "sign": _sign,
    "exp2": lambda x: _exp(as_array(x) * math.log(2)), "log2": lambda x: _log(x) / math.log(2),
    "log10": lambda x: _log(x) / math.log(10), "expm1": _expm1, "logaddexp": _logaddexp,
    "sinh": lambda x: (_expm1(x) - _expm1(-as_array(x))) / 2, "cosh": lambda x: (_exp(x) + _exp(-as_array(x))) / 2,
    "hypot": _hypot, "erfc": erfc, "deg2rad": lambda x: as_array(x) * (math.pi / 180),
    "radians": lambda x: as_array(x) * (math.pi / 180), "cbrt": _cbrt,
    "less": _compare("<"), "less_equal": _compare("<="), "greater": _compare(">"), "greater_equal": _compare(">="),
    "equal": _compare("=="), "not_equal": _compare("!="), "logical_and": _and, "logical_or": _or,
    "logical_not": _not, "logical_xor": _xor, "bitwise_and": _bitwise(_and, "&"), "bitwise_or": _bitwise(_or, "|"),
    "bitwise_xor": _bitwise(_xor, "^"), "invert": _bitwise(_not, "~"), "heaviside": _step,
    "isnan": is_nan, "isfinite": is_finite, "isinf": _is_infinite, "rint": rounded, "trunc": truncated,
    "fmod": remainder_to_zero, "divmod": lambda a, b: (_floor_divide(a, b), _mod(a, b)),
    "modf": lambda x: (as_array(x) - truncated(x), truncated(x)), "arccosh": _arccosh, "arctanh": _arctanh,
    "logaddexp2": lambda a, b: _logaddexp(as_array(a) * math.log(2), as_array(b) * math.log(2)) / math.log(2),
    "degrees": lambda x: as_array(x) * (180 / math.pi), "rad2deg": lambda x: as_array(x) * (180 / math.pi),
    "matmul": matmul,
}  # fmt: skip
"""numpy's (and scipy.special's) ufuncs, by their names."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": where, "clip": _clip, "round": _round, "around": _round, "fix": truncated, "sinc": _sinc, "select": _select,
    "piecewise": _piecewise, "isclose": _is_close, "nan_to_num": _numbers_for_nan, "real": lambda a: a,
    "isposinf": lambda x: _and(_is_infinite(x), as_array(x) > 0),
    "isneginf": lambda x: _and(_is_infinite(x), as_array(x) < 0),
}  # fmt: skip
"""numpy's other functions of elements, by their names."""
