"""Arithmetic that notes how large results become: on numbers, or on intervals, which hold for all numbers in them.

A program that runs in it gives the range of all its results, partial sums included; so it says how many bits before the
point a fixed-point type needs.  Intervals are rounded outwards, so what they say is proved (Moore, Kearfott and Cloud 2009).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from upl_mlir.numbers.floats import divide, power
from upl_mlir.numbers.rounding import Arithmetic


class Undecided(Exception):
    """What happens next depends on where in their intervals numbers are."""


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """All numbers from `low` to `high`.  Two of them are equal, as numbers are, if both are the same one number."""

    low: float
    high: float

    @staticmethod
    def of(x: Interval | float) -> Interval:
        """An interval, or that of one number.  A NaN may be any number."""
        if isinstance(x, Interval):
            return x
        return Interval(-math.inf, math.inf) if math.isnan(x) else Interval(float(x), float(x))

    @staticmethod
    def over(*ends: float) -> Interval:
        """The interval of some numbers, with room for the rounding of each."""
        if any(map(math.isnan, ends)):
            return Interval(-math.inf, math.inf)
        return Interval(_down(min(ends)), _up(max(ends)))

    def __add__(self, other: Interval | float) -> Interval:
        o = Interval.of(other)
        return Interval.over(self.low + o.low, self.high + o.high)

    def __sub__(self, other: Interval | float) -> Interval:
        o = Interval.of(other)
        return Interval.over(self.low - o.high, self.high - o.low)

    def __rsub__(self, other: float) -> Interval:
        return Interval.of(other) - self

    def __mul__(self, other: Interval | float) -> Interval:
        o = Interval.of(other)
        return Interval.over(*(_times(x, y) for x in (self.low, self.high) for y in (o.low, o.high)))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __abs__(self) -> Interval:
        if self.low >= 0:
            return self
        return -self if self.high <= 0 else Interval(0.0, max(-self.low, self.high))

    def __lt__(self, other: Interval | float) -> bool | Maybe:
        o = Interval.of(other)
        return _decided(self.high < o.low, self.low >= o.high)

    def __le__(self, other: Interval | float) -> bool | Maybe:
        o = Interval.of(other)
        return _decided(self.high <= o.low, self.low > o.high)

    def __gt__(self, other: Interval | float) -> bool | Maybe:
        return Interval.of(other) < self

    def __ge__(self, other: Interval | float) -> bool | Maybe:
        return Interval.of(other) <= self

    def __eq__(self, other: object) -> bool | Maybe:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not isinstance(other, Interval | float | int):
            return NotImplemented
        o = Interval.of(other)
        return _decided(self.low == self.high == o.low == o.high, self.high < o.low or self.low > o.high)

    def __ne__(self, other: object) -> bool | Maybe:  # pyright: ignore[reportIncompatibleMethodOverride]
        same = self == other
        return same if isinstance(same, Maybe) else not same

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __float__(self) -> float:
        return self.low

    def __int__(self) -> int:
        if int(self.low) != int(self.high):
            raise Undecided
        return int(self.low)


class Maybe:
    """A truth value that depends on where in their intervals numbers are; whoever must know it raises Undecided, and so does
    an integer that is made of it."""

    def __bool__(self) -> bool:
        raise Undecided

    def __ne__(self, other: object) -> Maybe:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self

    __eq__ = __ne__  # pyright: ignore[reportAssignmentType]
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __int__(self) -> int:
        raise Undecided

    __index__ = __int__

    def _counts(self, other: object) -> Maybe:
        raise Undecided

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _counts
    __lt__ = __le__ = __gt__ = __ge__ = _counts


def _decided(yes: bool, no: bool) -> bool | Maybe:
    return yes if yes or no else Maybe()


def _number(x: Any) -> Interval:
    """A number, or a truth value as one."""
    return Interval(0.0, 1.0) if isinstance(x, Maybe) else Interval.of(x)


def _chosen(condition: Any, yes: Any, no: Any) -> Any:
    """One of two values; where the condition is open, an interval round both."""
    if not isinstance(condition, Maybe):
        return yes if condition else no
    a, b = Interval.of(yes), Interval.of(no)
    return Interval(min(a.low, b.low), max(a.high, b.high))


def _down(x: float) -> float:
    return math.nextafter(x, -math.inf)


def _up(x: float) -> float:
    return math.nextafter(x, math.inf)


def _times(x: float, y: float) -> float:
    return 0.0 if x == 0 or y == 0 else x * y  # an end of infinity is not reached


def _monotone(f: Callable[[float], float]) -> Callable[[Any], Interval]:
    """A function that grows, on intervals."""

    def g(x: Any) -> Interval:
        x = Interval.of(x)
        ends = Interval.over(f(x.low), f(x.high))
        return Interval(_down(ends.low), _up(ends.high))  # a function of libm errs by less than a unit

    return g


def _within(low: float, high: float) -> Callable[..., Interval]:
    return lambda *_: Interval(low, high)


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _log1p(x: float) -> float:
    return _log(1 + x)


def _expm1(x: float) -> float:
    return math.expm1(x) if x < 709 else math.inf


def _logistic(x: float) -> float:
    return 1 / (1 + _exp(-x))


def _floor(x: float) -> float:
    return float(math.floor(x)) if math.isfinite(x) else x


def _ends(choose: Callable[[float, float], float]) -> Callable[[Any, Any], Interval]:
    """The lesser or the greater of two numbers."""

    def g(a: Any, b: Any) -> Interval:
        x, y = Interval.of(a), Interval.of(b)
        return Interval(choose(x.low, y.low), choose(x.high, y.high))

    return g


ON_INTERVALS: Mapping[str, Callable[..., Any]] = {
    "float": _number, "chosen": _chosen,
    "minimum": _ends(min), "maximum": _ends(max), "floor": _monotone(_floor),
    "exp": _monotone(_exp), "log": _monotone(_log), "tanh": _monotone(math.tanh), "erf": _monotone(math.erf),
    "sigmoid": _monotone(_logistic), "log1p": _monotone(_log1p), "expm1": _monotone(_expm1),
    "sin": _within(-1.0, 1.0), "cos": _within(-1.0, 1.0), "atan2": _within(-4.0, 4.0), "tan": _within(-math.inf, math.inf),
}  # fmt: skip
"""The functions of generated source that take other forms on intervals."""


@dataclass(eq=False)
class Watch(Arithmetic):
    """Notes the range of all results.  `error`: what a result may be off by, which widens intervals: half a step, a power of
    two, of a type that has all multiples of the step."""

    error: float = 0.0
    low: float = 0.0
    high: float = 0.0
    results: int = 0
    names: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])

    def round(self, x: Any) -> Any:
        """The result itself, noted."""
        self.results += 1
        if self.rounds(x):
            x = Interval.of(x)
        if isinstance(x, Interval):
            if self.error:
                x = Interval(_down(x.low - self.error), _up(x.high + self.error))
            self.low, self.high = min(self.low, x.low), max(self.high, x.high)
        elif math.isnan(x):
            self.low, self.high = -math.inf, math.inf
        else:
            self.low, self.high = min(self.low, x), max(self.high, x)
        return x

    def rounds(self, x: Any) -> bool:
        """Whether a number by itself, such as a constant, may be another one in the type."""
        return bool(self.error) and not isinstance(x, Interval) and not (x / (2 * self.error)).is_integer()

    def quotient(self, a: Any, b: Any) -> Any:
        """a / b."""
        if not isinstance(a, Interval) and not isinstance(b, Interval):
            return self.round(divide(a, b))
        a, b = Interval.of(a), Interval.of(b)
        if b.low <= 0 <= b.high:
            return self.round(Interval(-math.inf, math.inf))
        return self.round(Interval.over(*(divide(x, y) for x in (a.low, a.high) for y in (b.low, b.high))))

    def root(self, a: Any) -> Any:
        """The square root."""
        if isinstance(a, Interval):
            return self.round(Interval.over(math.sqrt(max(a.low, 0.0)), math.sqrt(max(a.high, 0.0))))
        return super().root(a)

    def power(self, a: Any, b: Any) -> Any:
        """a ** b."""
        if not isinstance(a, Interval) and not isinstance(b, Interval):
            return super().power(a, b)
        a, n = Interval.of(a), Interval.of(b)
        if n.low != n.high or not n.low.is_integer() or n.low < 0:
            return self.round(Interval(-math.inf, math.inf))
        size = abs(a) if n.low % 2 == 0 else a
        return self.round(Interval.over(power(size.low, n.low), power(size.high, n.low)))
