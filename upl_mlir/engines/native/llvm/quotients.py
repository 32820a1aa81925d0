"""Quotients by literals as products with the inverse, which takes a machine an eighth of the time in vectors.

The inverse is a sum of two numbers, the second one being what the first lacks: x / c = x * high + x * low, rounded once.  So
a quotient is within 0.51 units in the last place, and exact where the exact one is a number of the type (21.0 / 3 is 7).
The first number is rounded towards 0: then both have one sign, and infinities and zeros give what a division gives.  Of
results below the smallest normal number times 2**53 the last bit may differ.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from upl_mlir.engines.native.llvm.lanes import Format, Lanes

EXTREME = {"f64": 900, "f32": 90}
"""Literals beyond 2 to this power, or below its inverse, are divided by: what an inverse lacks may be no normal number."""


def by_literal(b: Lanes, x: str, c: float) -> str | None:
    """x / c, where the machine fuses a product and a sum; None for a literal that has no such inverse, or an exact one."""
    parts = inverse(b.format, c)
    return None if parts is None else b.fma(x, parts[0], b.mul(x, parts[1]))


def inverse(f: Format, c: float) -> tuple[float, float] | None:
    """The inverse of a literal in two parts."""
    real: Any = np.float64 if f.suffix == "f64" else np.float32
    with np.errstate(over="ignore"):
        c = float(real(c))
    if not 2.0 ** -EXTREME[f.suffix] <= abs(c) <= 2.0 ** EXTREME[f.suffix]:
        return None
    exact = 1 / Fraction(c)
    high = real(float(exact))
    if abs(Fraction(float(high))) > abs(exact):
        high = np.nextafter(high, real(0))
    low = real(float(exact - Fraction(float(high))))
    return None if low == 0 else (float(high), float(low))
