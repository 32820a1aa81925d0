"""Scalar arithmetic as UPL means it: IEEE without traps for reals, 64-bit integers with overflow as an error.

Python raises where IEEE has a value (1/0, log(-1), exp(1000)); these functions return the value.  Integer operations
that have no value raise `Trap`; the engine adds the node and the index.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass

INT_MIN, INT_MAX = -(2**63), 2**63 - 1


@dataclass
class Trap(Exception):
    """An operation that has no value; `why` says which and on what."""

    why: str


class EntryTable(dict[int, int | float]):
    """A constant array as `{index: entry}`; reading outside is a Trap."""

    def __init__(self, name: str, lower: int, values: tuple[int | float, ...]):
        super().__init__(enumerate(values, lower))
        self.name = name

    def __missing__(self, key: int) -> int | float:
        bounds = f"{min(self)}..{max(self)}" if self else "nothing"
        raise Trap(f"`{self.name}[{key}]` is outside the array, which has {bounds}")


# -- integers ------------------------------------------------------------------------------------------------------
def overflow(x: int) -> int:
    """Always raises: `x` does not fit 64 bits."""
    raise Trap(f"integer overflow: {x} does not fit 64 bits")


def in_range(x: int) -> int:
    """The integer itself.  Raises Trap if it does not fit 64 bits."""
    return x if INT_MIN <= x <= INT_MAX else overflow(x)


def floordiv(a: int, b: int) -> int:
    """The quotient rounded down.  Raises Trap for b = 0."""
    return in_range(a // _nonzero(a, b, "floordiv"))


def ceildiv(a: int, b: int) -> int:
    """The quotient rounded up.  Raises Trap for b = 0."""
    return in_range(-(-a // _nonzero(a, b, "ceildiv")))


def mod(a: int, b: int) -> int:
    """``a - b*(a floordiv b)``.  Raises Trap for b = 0."""
    return a % _nonzero(a, b, "mod")


def divide_to_zero(a: int, b: int) -> int:
    """The quotient rounded towards zero.  Raises Trap for b = 0."""
    q = abs(a) // abs(_nonzero(a, b, "/"))
    return in_range(q if (a < 0) == (b < 0) else -q)


def remainder_to_zero(a: int, b: int) -> int:
    """The remainder of `divide_to_zero`, of the sign of `a`.  Raises Trap for b = 0."""
    r = abs(a) % abs(_nonzero(a, b, "rem"))
    return -r if a < 0 else r


def int_power(a: int, b: int) -> int:
    """``a ** b``; for b < 0 the quotient 1/a**|b| rounded towards zero.  Raises Trap on overflow and for 0 ** -1."""
    if b < 0:
        _nonzero(a, a, "**")
        return a if a == 1 or (a == -1 and b % 2) else 1 if a == -1 else 0
    if abs(a) > 1 and b > 64:
        raise Trap(f"integer overflow: {a} ** {b} does not fit 64 bits")
    return in_range(a**b)


def _nonzero(a: int, b: int, what: str) -> int:
    if not b:
        raise Trap(f"integer division by zero: {a} {what} {b}")
    return b


def to_int(x: float) -> int:
    """A real without its fraction.  Raises Trap for NaN, infinities and what does not fit 64 bits."""
    if -9.223372036854775808e18 <= x < 9.223372036854775808e18:
        return int(x)
    raise Trap(f"{x!r} has no 64-bit integer value")


# -- reals ---------------------------------------------------------------------------------------------------------
def divide(a: float, b: float) -> float:
    """IEEE division."""
    if b:
        return a / b
    if math.isnan(a) or a == 0.0:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def minimum(a: float, b: float) -> float:
    """The lesser value; NaN if one is NaN; -0.0 is less than 0.0 (IEEE 754-2019 `minimum`)."""
    if a < b:
        return a
    if b < a:
        return b
    if a == b:
        return a if math.copysign(1.0, a) < 0 else b
    return math.nan


def maximum(a: float, b: float) -> float:
    """The greater value; NaN if one is NaN; 0.0 is greater than -0.0 (IEEE 754-2019 `maximum`)."""
    if a > b:
        return a
    if b > a:
        return b
    if a == b:
        return b if math.copysign(1.0, a) < 0 else a
    return math.nan


def min_number(a: float, b: float) -> float:
    """The lesser value; a NaN is ignored."""
    return b if math.isnan(a) else a if math.isnan(b) else minimum(a, b)


def max_number(a: float, b: float) -> float:
    """The greater value; a NaN is ignored."""
    return b if math.isnan(a) else a if math.isnan(b) else maximum(a, b)


def _total(f: Callable[[float], float], *, odd: bool = False) -> Callable[[float], float]:
    """The function with NaN outside its domain and an infinity where the result is too large."""

    def g(x: float) -> float:
        try:
            return f(x)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.copysign(math.inf, x) if odd else math.inf

    return g


def log(x: float) -> float:
    """Natural logarithm; log(0) = -inf, log of a negative number is NaN."""
    return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan


def _logarithm(f: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: f(x) if x > 0 else -math.inf if x == 0 else math.nan


def log1p(x: float) -> float:
    """log(1+x)."""
    return math.log1p(x) if x > -1 else -math.inf if x == -1 else math.nan


def sqrt(x: float) -> float:
    """Square root; NaN for a negative number."""
    return math.sqrt(x) if x >= 0 else math.nan


def rsqrt(x: float) -> float:
    """1/sqrt(x)."""
    return divide(1.0, sqrt(x))


def cbrt(x: float) -> float:
    """Cube root."""
    return math.cbrt(x)


def power(a: float, b: float) -> float:
    """IEEE `pow`."""
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        if a == 0.0:  # a pole
            return math.copysign(math.inf, a) if b % 2 == 1 else math.inf
        return math.nan


def fused(a: float, b: float, c: float) -> float:
    """``a*b + c`` with one rounding, for programs that ask for it by `math.fma`."""
    from fractions import Fraction

    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)) or a == 0.0 or b == 0.0:
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


exp = _total(math.exp)
exp2 = _total(lambda x: math.pow(2.0, x))
expm1 = _total(math.expm1)
log2 = _logarithm(math.log2)
log10 = _logarithm(math.log10)
sin, cos, tan = _total(math.sin), _total(math.cos), _total(math.tan)
asin, acos, atan = _total(math.asin), _total(math.acos), math.atan
cosh, tanh = _total(math.cosh), math.tanh
sinh = _total(math.sinh, odd=True)
asinh, acosh = math.asinh, _total(math.acosh)
atan2, erf = math.atan2, math.erf


def atanh(x: float) -> float:
    """Inverse hyperbolic tangent; infinite at ±1."""
    return math.atanh(x) if -1 < x < 1 else math.copysign(math.inf, x) if abs(x) == 1 else math.nan


def sigmoid(x: float) -> float:
    """``1/(1+exp(-x))``, in the form that cannot overflow."""
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-x))
    e = math.exp(x)
    return e / (1.0 + e)


def integral(f: Callable[[float], int]) -> Callable[[float], float]:
    """A rounding function on reals that keeps infinities, NaN and the sign of zero."""
    return lambda x: math.copysign(float(f(x)), x) if math.isfinite(x) else x


floor, ceil, trunc = integral(math.floor), integral(math.ceil), integral(math.trunc)
round_even = integral(round)


def round_away(x: float) -> float:
    """The nearest integer, halves away from zero."""
    if not math.isfinite(x):
        return x
    down = math.floor(abs(x))
    return math.copysign(float(down + (abs(x) - down >= 0.5)), x)


def round_f32(x: float) -> float:
    """The nearest f32 value, as a Python float; infinities where it is too large."""
    cell = array("f", (0.0,))
    cell[0] = x
    return cell[0]
