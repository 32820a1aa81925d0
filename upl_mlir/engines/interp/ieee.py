"""Scalar arithmetic as UPL means it: IEEE without traps for reals, 64-bit integers with overflow as an error.

Python raises where IEEE has a value (1/0, log(-1), exp(1000)); these functions return the value.  Integer operations
that have no value raise `Trap`; the engine adds the node and the index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from upl_mlir import ops
from upl_mlir.numbers import floats
from upl_mlir.ops import total

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
divide, power = floats.divide, floats.power


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


def rsqrt(x: float) -> float:
    """1/sqrt(x)."""
    return divide(1.0, math.sqrt(x)) if x >= 0 else math.nan


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


FUNCTIONS: Mapping[str, Callable[..., float]] = {f.name: total(f) for f in ops.FUNCTIONS}
"""The elementary functions, by name."""


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


round_f32 = floats.as_single
