"""Small types by rationals (docs/numbers.md): an operation's exact result, and the nearest number of a type to it.

This shares no code with `numbers/rounding.py`, which computes with f64 numbers.
"""

from __future__ import annotations

import math
from fractions import Fraction

from xdsl.dialects import arith
from xdsl.dialects import math as mlir_math
from xdsl.ir import Operation

from upl_mlir.numbers.formats import FixedFormat, FloatFormat

ROOT_DIGITS = 80
"""Binary digits of a square root that is not exact; a 1 behind them stands for the rest."""


def exactly(op: type[Operation], *args: float) -> Fraction | None:
    """The exact result of an operation on finite numbers; None where f64 has a rule of its own (infinities, NaN, division by
    0, zeros with signs) or no exact result (functions)."""
    if not all(isinstance(a, int) or math.isfinite(a) for a in args):
        return None
    if op is arith.SIToFPOp:
        return Fraction(args[0]) or None
    if op is mlir_math.SqrtOp:
        return None if args[0] <= 0 else _root(Fraction(args[0]))
    if op in (mlir_math.PowFOp, mlir_math.FPowIOp):
        return Fraction(args[0]) ** 2 or None if args[1] == 2 else None
    if len(args) != 2:
        return None
    a, b = map(Fraction, args)
    if op is arith.AddfOp:
        return a + b or None
    if op is arith.SubfOp:
        return a - b or None
    if op is arith.MulfOp:
        return a * b or None
    return a / b or None if op is arith.DivfOp and b else None


def _root(x: Fraction) -> Fraction:
    """The square root, or a number on the same side of every number of a small type."""
    shifted = (x.numerator << 2 * (ROOT_DIGITS + 200)) // x.denominator
    root = math.isqrt(shifted)
    exact = root * root == shifted and (x.numerator << 2 * (ROOT_DIGITS + 200)) % x.denominator == 0
    return Fraction(2 * root + (not exact), 2 << ROOT_DIGITS + 200)


def nearest(x: float | Fraction, f: FloatFormat | FixedFormat) -> float:
    """The nearest number of a type; of two, the even one."""
    if isinstance(x, float) and not math.isfinite(x):
        if isinstance(f, FloatFormat):
            return x
        step = 0 if math.isnan(x) else f.greatest_step if x > 0 else f.least_step
        return float(Fraction(step, f.scale))
    exact = Fraction(x)
    if isinstance(f, FixedFormat):
        return float(Fraction(min(max(round(exact * f.scale), f.least_step), f.greatest_step), f.scale))
    if not exact:
        return math.copysign(0.0, x)
    size = abs(exact)
    lowest = size.numerator.bit_length() - size.denominator.bit_length() - 1  # its exponent, or less by up to two
    place = max(f.least_place, lowest - f.precision)
    while size >= Fraction(2) ** (place + f.precision):
        place += 1
    steps = round(size / Fraction(2) ** place)
    value = steps * Fraction(2) ** place
    sized = math.inf if value > Fraction(f.greatest) else float(value)
    return -sized if exact < 0 else sized
