"""Floating point by exact rationals: the gold model of the units, for any widths of exponent and mantissa.

Everything is computed exactly with `Fraction` and rounded once, to nearest, ties to even; it shares no method with the
RTL. Bit patterns are integers; every NaN that comes out is the canonical one (positive, only the top mantissa bit set).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property


@dataclass(frozen=True)
class Format:
    """A binary format in the manner of IEEE 754: `exponent` and `mantissa` are widths in bits, without the sign."""

    exponent: int
    mantissa: int

    @property
    def bits(self) -> int:
        """Width of a value."""
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        """What is added to the exponent of a normal number."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def exponent_ones(self) -> int:
        """The exponent field of infinities and NaNs."""
        return (1 << self.exponent) - 1

    @property
    def infinity(self) -> int:
        """The bits of +infinity."""
        return self.exponent_ones << self.mantissa

    @cached_property
    def nan(self) -> int:
        """The bits of the canonical NaN."""
        return self.infinity | 1 << (self.mantissa - 1)

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << (self.bits - 1)


BINARY32 = Format(8, 23)


def is_nan(f: Format, a: int) -> bool:
    """Whether the bits are a NaN."""
    return a & (f.sign - 1) > f.infinity


def is_infinite(f: Format, a: int) -> bool:
    """Whether the bits are an infinity."""
    return a & (f.sign - 1) == f.infinity


def exact(f: Format, a: int) -> Fraction:
    """The number that finite bits mean; the sign of a zero is lost."""
    field, fraction = a >> f.mantissa & f.exponent_ones, a & ((1 << f.mantissa) - 1)
    significand = fraction + (1 << f.mantissa if field else 0)
    value = Fraction(significand) * Fraction(2) ** (max(field, 1) - f.bias - f.mantissa)
    return -value if a & f.sign else value


def rounded(f: Format, value: Fraction, negative: bool) -> int:
    """The bits nearest to an exact value, ties to even; `negative` is the sign of a zero result."""
    sign = f.sign if value < 0 or (value == 0 and negative) else 0
    size = abs(value)
    if size == 0:
        return sign
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length() - 1, 1 - f.bias)
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - f.mantissa)
    steps = round(size / unit)  # Python rounds a Fraction to nearest, ties to even
    if steps < 1 << f.mantissa:
        return sign | steps
    bits = (exponent + f.bias << f.mantissa) + steps - (1 << f.mantissa)
    return sign | min(bits, f.infinity)


def add(f: Format, a: int, b: int) -> int:
    """a + b."""
    if is_nan(f, a) or is_nan(f, b) or (is_infinite(f, a) and is_infinite(f, b) and a != b):
        return f.nan
    if is_infinite(f, a) or is_infinite(f, b):
        return a if is_infinite(f, a) else b
    return rounded(f, exact(f, a) + exact(f, b), negative=bool(a & b & f.sign))


def mul(f: Format, a: int, b: int) -> int:
    """a * b."""
    sign = (a ^ b) & f.sign
    if is_nan(f, a) or is_nan(f, b):
        return f.nan
    if is_infinite(f, a) or is_infinite(f, b):
        return f.nan if not (a & ~f.sign and b & ~f.sign) else sign | f.infinity
    return rounded(f, exact(f, a) * exact(f, b), negative=bool(sign))


def fma(f: Format, a: int, b: int, c: int) -> int:
    """a * b + c, rounded once."""
    sign = (a ^ b) & f.sign
    if is_nan(f, a) or is_nan(f, b) or is_nan(f, c):
        return f.nan
    if is_infinite(f, a) or is_infinite(f, b):
        product = mul(f, a, b)
        return f.nan if is_nan(f, product) or (is_infinite(f, c) and c != product) else product
    if is_infinite(f, c):
        return c
    return rounded(f, exact(f, a) * exact(f, b) + exact(f, c), negative=bool(sign and c & f.sign))


def div(f: Format, a: int, b: int) -> int:
    """a / b."""
    sign = (a ^ b) & f.sign
    if is_nan(f, a) or is_nan(f, b) or (is_infinite(f, a) and is_infinite(f, b)):
        return f.nan
    if is_infinite(f, a):
        return sign | f.infinity
    if is_infinite(f, b):
        return sign
    if exact(f, b) == 0:
        return f.nan if exact(f, a) == 0 else sign | f.infinity
    return rounded(f, exact(f, a) / exact(f, b), negative=bool(sign))


def sqrt(f: Format, a: int) -> int:
    """The square root of a; -0 stays."""
    if a == f.sign or a in (0, f.infinity):
        return a
    if is_nan(f, a) or a & f.sign:
        return f.nan
    value = exact(f, a)
    # A root to 2 * mantissa + 8 bits behind the leading one, and a last bit that tells whether anything was cut off.
    shift = 2 * (f.mantissa + 8) + f.bias + 2 * f.mantissa
    scaled = int(value * 4**shift)
    root = math.isqrt(scaled)
    sticky = 0 if root * root == scaled else 1
    return rounded(f, Fraction(2 * root + sticky, 2 << shift), negative=False)


def less(f: Format, a: int, b: int) -> bool:
    """Whether a is below b; never if one is a NaN."""
    return not is_nan(f, a) and not is_nan(f, b) and _key(f, a) < _key(f, b)


def equal(f: Format, a: int, b: int) -> bool:
    """Whether a is b; never if one is a NaN."""
    return not is_nan(f, a) and not is_nan(f, b) and _key(f, a) == _key(f, b)


def least(f: Format, a: int, b: int) -> int:
    """The lesser one; -0 is below +0, and a NaN is what comes out."""
    if is_nan(f, a) or is_nan(f, b):
        return f.nan
    return min(a, b, key=lambda x: (_key(f, x), not x & f.sign))


def greatest(f: Format, a: int, b: int) -> int:
    """The greater one; likewise."""
    return f.nan if is_nan(f, a) or is_nan(f, b) else negated(f, least(f, negated(f, a), negated(f, b)))


def negated(f: Format, a: int) -> int:
    """-a, with a NaN's sign turned, too."""
    return a ^ f.sign


def from_integer(f: Format, value: int) -> int:
    """The nearest number."""
    return rounded(f, Fraction(value), negative=value < 0)


def to_integer(f: Format, a: int) -> int | None:
    """a without its fraction; None if that is no integer of 32 bits with sign."""
    if is_nan(f, a) or is_infinite(f, a):
        return None
    whole = math.trunc(exact(f, a))
    return whole if -(2**31) <= whole < 2**31 else None


def _key(f: Format, a: int) -> Fraction:
    """Orders all that is no NaN."""
    if is_infinite(f, a):
        beyond = Fraction(2) ** (2 << f.exponent)
        return -beyond if a & f.sign else beyond
    return exact(f, a)
