"""Operations of reals for which Python raises where IEEE has a value."""

from __future__ import annotations

import math
from array import array


def divide(a: float, b: float) -> float:
    """IEEE division."""
    if b:
        return a / b
    if math.isnan(a) or a == 0.0:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def as_single(x: float) -> float:
    """The nearest number of binary32: an infinity where that is beyond the greatest."""
    cell = array("f", (0.0,))
    cell[0] = x
    return cell[0]


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
