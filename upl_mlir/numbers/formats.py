"""Small types of numbers as data: their names, widths and ranges.  Nothing here computes.

Every number of such a type is an f64 as well, and engines that work with words of the processor carry it as that f64.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

MAX_BITS = 32
"""The widest fixed-point number."""


@dataclass(frozen=True)
class FloatFormat:
    """A binary format of IEEE 754's kind: `exponent` bits, and a significand of `precision` bits with its hidden one."""

    name: str
    exponent: int
    precision: int

    @property
    def bits(self) -> int:
        """The width of a number."""
        return self.exponent + self.precision

    @property
    def greatest_exponent(self) -> int:
        """The exponent of the greatest finite number; its negative plus 1 is that of the least normal one."""
        return (1 << self.exponent - 1) - 1

    @property
    def least_place(self) -> int:
        """The power of two of which every number is a multiple."""
        return 2 - self.greatest_exponent - self.precision

    @property
    def greatest(self) -> float:
        """The greatest finite number."""
        return (2.0 - 2.0 ** (1 - self.precision)) * 2.0**self.greatest_exponent

    @property
    def unit(self) -> float:
        """The distance from 1 to the next number."""
        return 2.0 ** (1 - self.precision)


@dataclass(frozen=True)
class FixedFormat:
    """Signed fixed point: `integer` bits with the sign, `fraction` bits.  A number is a multiple of 2**-fraction."""

    integer: int
    fraction: int

    @property
    def name(self) -> str:
        """As `--real` takes it."""
        return f"q{self.integer}.{self.fraction}"

    @property
    def bits(self) -> int:
        """The width of a number."""
        return self.integer + self.fraction

    @property
    def scale(self) -> int:
        """How many steps there are in 1."""
        return 1 << self.fraction

    @property
    def least_step(self) -> int:
        """The least number, in steps of 2**-fraction."""
        return -(1 << self.bits - 1)

    @property
    def greatest_step(self) -> int:
        """The greatest number, in steps."""
        return (1 << self.bits - 1) - 1

    @property
    def wide(self) -> bool:
        """Whether products, quotients and square roots need more than the 53 bits of an f64 to be rounded once.

        A quotient of two numbers of n bits differs from the middle between two numbers by at least 2**-n steps if it is
        not that middle, and an f64 of it by less than 2**(n-54); a product has 2n-1 bits; for a square root the same
        argument gives n <= 26 as well.
        """
        return self.bits > 26


Format = FloatFormat | FixedFormat

F16 = FloatFormat("f16", 5, 11)
BF16 = FloatFormat("bf16", 8, 8)
SPELLING = "f64, f32, f16, bf16, or fixed point as q8.8 (8 bits before the point with the sign, 8 behind it)"
"""What `--real` takes, for messages."""


@cache
def small_format(name: str) -> Format | None:
    """The small type of this name; `q8.8` may be written `q<8.8>`.  None if there is none.

    Raises ValueError, which says why, for fixed point of a width that there is not.
    """
    for f in (F16, BF16):
        if name == f.name:
            return f
    found = re.fullmatch(r"q(<?)([0-9]{1,9})\.([0-9]{1,9})(>?)", name)
    if found is None or bool(found[1]) != bool(found[4]):
        return None
    integer, fraction = int(found[2]), int(found[3])
    if integer < 1:
        raise ValueError("one bit before the point is the sign: expected 1 or more there")
    if not 2 <= integer + fraction <= MAX_BITS:
        raise ValueError(f"{integer + fraction} bits: expected 2 to {MAX_BITS} in all")
    return FixedFormat(integer, fraction)
