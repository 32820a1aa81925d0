"""Arithmetic of small types on f64 numbers: each operation computes exactly, then rounds once (docs/numbers.md).

A sum, product, quotient or square root of f16 or bf16 numbers may be computed in f64 and rounded then: an f64 has 53 bits,
which is at least twice 11 and two more, so the second rounding changes nothing (S. A. Figueroa, "When is double rounding
innocuous?", SIGNUM Newsletter 30(3), 1995). The theorem leaves subnormal results open; there, sums are exact, products have
at most 22 bits and so are exact in f64, quotients are farther from the middle of two numbers than an f64 of them errs, and
square roots are never subnormal.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from upl_mlir.numbers.floats import divide, power
from upl_mlir.numbers.formats import FixedFormat, FloatFormat, Format

Rounding = Callable[[float], float]


class Arithmetic:
    """The operations of a small type that are not those of f64 with a rounding behind; operands are numbers of the type."""

    round: Rounding
    """The nearest number of the type, of two equally near ones the even one."""

    def product(self, a: float, b: float) -> float:
        """a * b."""
        return self.round(a * b)

    def quotient(self, a: float, b: float) -> float:
        """a / b."""
        return self.round(divide(a, b))

    def root(self, a: float) -> float:
        """The square root."""
        return self.round(math.sqrt(a) if a >= 0 else math.nan)

    def power(self, a: float, b: float) -> float:
        """a ** b: the product for a square, else the f64 result, rounded."""
        return self.product(a, a) if b == 2.0 else self.round(power(a, b))

    def of_integer(self, n: int) -> float:
        """The nearest number to an integer of 64 bits."""
        return self.round(float(odd(n)))


def odd(n: int) -> int:
    """An integer of 64 bits cut to 53: the lowest bit kept is 1 if any bit below it was, so that rounding it again is
    rounding once."""
    if -(1 << 53) <= n <= 1 << 53:
        return n
    return n & ~0x7FF | (0x400 if n & 0x7FF else 0)


class FloatArithmetic(Arithmetic):
    """Of f16 and bf16."""

    def __init__(self, f: FloatFormat):
        precision, least, greatest = f.precision, f.least_place, f.greatest
        frexp, ldexp = math.frexp, math.ldexp

        def rounded(x: float) -> float:
            if x - x != 0.0 or x == 0.0:  # NaN, infinities, zeros
                return x
            place = max(frexp(x)[1] - precision, least)
            y = ldexp(round(ldexp(x, -place)), place)
            return math.copysign(y if abs(y) <= greatest else math.inf, x)

        self.round = rounded


class FixedArithmetic(Arithmetic):
    """Of fixed point: what is too large is the greatest or least number, what has no value 0."""

    def __init__(self, f: FixedFormat):
        self.format = f
        scale, low, high = float(f.scale), f.least_step, f.greatest_step
        least, greatest = low / scale, high / scale

        def rounded(x: float) -> float:
            t = x * scale
            if t > low:
                return greatest if t >= high else round(t) / scale
            return least if t <= low else 0.0  # NaN: neither

        self.round = rounded

    def _held(self, steps: int) -> float:
        f = self.format
        return min(max(steps, f.least_step), f.greatest_step) / f.scale

    def _nearest(self, a: int, b: int) -> float:
        """a / b in steps, for b != 0."""
        q, r = divmod(a, b) if b > 0 else divmod(-a, -b)
        twice = 2 * r - abs(b)
        return self._held(q + (twice > 0 or (twice == 0 and q & 1)))

    def product(self, a: float, b: float) -> float:
        """a * b."""
        if not self.format.wide:
            return self.round(a * b)
        scale = self.format.scale
        return self._nearest(int(a * scale) * int(b * scale), scale)

    def quotient(self, a: float, b: float) -> float:
        """a / b; by 0 the greatest or least number by the sign of a, and 0 for 0 / 0."""
        if not self.format.wide or not b:
            return self.round(divide(a, b))
        scale = self.format.scale
        return self._nearest(int(a * scale) * scale, int(b * scale))

    def root(self, a: float) -> float:
        """The square root; 0 for a number below 0."""
        if not self.format.wide or a <= 0:
            return self.round(math.sqrt(a)) if a > 0 else 0.0
        square = int(a * self.format.scale) * self.format.scale
        low = math.isqrt(square)
        return self._held(low + (square - low * low > low))  # no root lies in the middle of two numbers


def arithmetic(f: Format) -> Arithmetic:
    """The operations of a type."""
    return FixedArithmetic(f) if isinstance(f, FixedFormat) else FloatArithmetic(f)
