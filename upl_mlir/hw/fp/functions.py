"""exp, log, tanh and the logistic function at high clocks, an operation a cycle; and what they compute, on arrays.

A function is brought to a short range, where a table of polynomials gives it in fixed point (`fixed.py`).  Results are not
the nearest numbers, but within `ULP` units in the last place of the exact ones.  `exp`, `log`, … are the same arithmetic
on arrays, bit for bit.

    exponential  classes | log2(e) x … | shift | shift | sign | polynomial … | as the multiplier's last five
    logarithm    classes | zeros | zeros | shift | shift | order | split | polynomial … | times m - 1 … | plus e ln 2 |
                 half | groups | zeros | shift | shift | special | round
    tanh         classes | shift | shift | row | polynomial … | times x … | one place | round
    logistic     as the exponential of -|a|, polynomial included | shift | shift | row | polynomial … | times the power … |
                 as the multiplier's last five
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import Any, Literal

import numpy as np
from amaranth.hdl import Cat, Const, Mux, Signal, signed
from numpy.typing import NDArray

from upl_mlir.hw.fp.fixed import Fixed, Integers, Table, pieces, polynomial_steps, product_steps, table
from upl_mlir.hw.fp.model import BINARY32, Format
from upl_mlir.hw.fp.pipe import PASSED, Pipe, Step, picked, powers_of_shift

Words = NDArray[np.uint32]
ULP = 0.6
"""The bound on the errors, in units in the last place of the exact result."""
FRACTION = 30
"""Places after the point in fixed point."""
ROWS = 7
"""Bits that choose a row of most tables."""
LOG2_E = 49570624150
"""log2(e), with 35 places after the point."""
LOG2_E_PLACES = 35
"""Places of log2(e) after the point."""
LN_2 = 47632711549
"""The natural logarithm of 2, with 36 places after the point."""
LN_2_PLACES = 36
"""Places of ln 2 after the point."""
LIFTED = ("group", "rest", "high")
"""What `lifted` leaves for no more than the step after it."""
NAN = np.uint32(BINARY32.nan)
BIAS, MANTISSA = BINARY32.bias, BINARY32.mantissa


class Function(Fixed):
    """A function of one operand of binary32."""

    def __init__(
        self, f: Format = BINARY32, latency: int | None = None, passed: int = 1,
        target: Literal["generic", "ecp5"] = "generic",
    ):  # fmt: skip
        if f != BINARY32:
            raise ValueError(f"{f}: expected binary32, for which the tables are made")
        super().__init__(f, latency, passed, target)

    @classmethod
    def operands(cls, f: Format) -> dict[str, int]:
        """One."""
        return {"a": f.bits}

    def lifted(self, pipe: Pipe, s: Step) -> tuple[Step, Signal, Any]:
        """Four steps, and what one more begins with: `value` with its highest 1 on top, and how many zeros there were, 63 at
        most. The lower bits come up first if the upper 32 are 0: to count the zeros of all at once would take too long."""
        half, width = 32, len(s["value"])
        s = pipe.cut(s, high=s["value"][-half:].any())
        value = pipe.named(Mux(s["high"], s["value"], s["value"] << half)[:width], "value")
        s = pipe.cut(s, value=value, filled=pipe.filled(pipe.named(value[-half:], "top")))
        group, nibble = pipe.group(pipe.named(s["value"][-half:], "top"), s["filled"], "zeros")
        s = pipe.cut(s, ("filled",), group=group, nibble=nibble)
        first, last = [4, 3, 2], [1, 0]
        s = pipe.cut(s, ("nibble",), value=pipe.left(s["value"], s["group"][::-1], first, "lifted"),
                     rest=pipe.within(s["nibble"], "zeros"))  # fmt: skip
        value = pipe.left(s["value"], picked(s["rest"], last), last, "lifted")
        return s, value, Cat(s["rest"], s["group"], ~s["high"])


# -- exp ----------------------------------------------------------------------------------------------------------------
@cache
def powers_of_two() -> Table:
    """2**x for x in 0..1."""
    return table(lambda x: (x * Decimal(2).ln()).exp(), pieces(0, 1, 1 << ROWS), FRACTION, FRACTION - ROWS, 2)


POWER = 8
"""Bits of the whole part of a power of two, without its sign; beyond, all is 0 or infinite."""
SMALL = 6
"""Numbers of a greater exponent are too great for a power of e."""


class Exponential(Function):
    """exp(a)."""

    @classmethod
    def steps(cls, f: Format) -> int:
        """As listed above."""
        return 4 + product_steps(f.mantissa + 1, LOG2_E.bit_length()) + polynomial_steps(powers_of_two()) + 5

    def _steps(self, pipe: Pipe) -> Step:
        s = self._classes(pipe)
        s = self._power(pipe, self._reduced(pipe, s, s["a"][-1]))
        return self._finish(pipe, s | {"sign": Signal(1, name="positive")}, s["total"], Const(0))

    def _reduced(self, pipe: Pipe, s: Step, negative: Any, **more: Signal) -> Step:
        """x log2(e), with 8 and 30 places: `power`, with a sign, row `at` and rest `d`. Too great or too small numbers are
        `infinite` or `zero`."""
        f = self.format
        significand, field, _ = self._parts(s, "a")
        nan = self._nan(s, "a")
        great = s["a"][f.mantissa : -1] > f.bias + SMALL
        distance = (f.bias + SMALL - field)[: f.exponent]
        values = {
            "nan": nan, "negative": negative, "infinite": great & ~negative, "zero": great & negative & ~nan,
            "distance": distance,
        }  # fmt: skip
        named = {name: pipe.named(value, f"reduced_{name}") for name, value in values.items()}
        s = self.product(pipe, {**more, **named, PASSED: s[PASSED]}, "product", significand,
                         Const(LOG2_E, LOG2_E.bit_length()))  # fmt: skip
        width = POWER + FRACTION
        x = s["product"][len(s["product"]) - width :]
        first, last = powers_of_shift(width)
        far = s["distance"][len(first) + len(last) :].any()
        near = right(pipe, x, picked(s["distance"], first), first)
        s = pipe.cut(s, ("product", "distance"), x=Mux(far, 0, near)[:width], rest=picked(s["distance"], last))
        s = pipe.cut(s, ("rest",), x=right(pipe, s["x"], s["rest"], last))
        sign = s["negative"]
        x = (Cat(s["x"], Const(0, 1)) ^ sign.replicate(width + 1)) + sign
        rows = FRACTION - ROWS
        return pipe.cut(s, ("x", "negative"), d=x[:rows], at=x[rows:FRACTION], power=x[FRACTION : width + 1].as_signed())

    def _power(self, pipe: Pipe, s: Step) -> Step:
        """2**(power + at + d): what `_finish` asks for."""
        s = self.polynomial(pipe, s, powers_of_two())
        exponent = Signal(signed(self.format.exponent + 3))
        self._m.d.comb += exponent.eq(s["power"] + self.format.bias)
        total = pipe.named(s["total"][: FRACTION + 2], "whole")
        return {k: v for k, v in s.items() if k != "power"} | {"exponent": exponent, "total": total}


def right(pipe: Pipe, x: Any, distance: Any, powers: list[int]) -> Any:
    """x moved right by the bits of `distance` for these powers of two."""
    for place, k in enumerate(powers):
        x = pipe.named(Mux(distance[place], x[1 << k :], x)[: len(x)], f"moved{k}")
    return x


def exp(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """What `Exponential` computes."""
    a = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.int64)
    negative = a >> 31 == 1
    power, total = _power(a, negative)
    with np.errstate(all="ignore"):
        value = np.ldexp(total.astype(np.float64), power - FRACTION).astype(np.float32)
    great = (a >> MANTISSA & 0xFF) > BIAS + SMALL
    value = np.where(great, np.where(negative, np.float32(0), np.float32(np.inf)), value)
    return np.where(np.isnan(x), NAN.view(np.float32), value)


def _power(a: Integers, negative: Any) -> tuple[Integers, Integers]:
    """The power of two, and the number in fixed point."""
    field = np.maximum(a >> MANTISSA & 0xFF, 1)
    product = significand_of(a) * LOG2_E >> (MANTISSA + 1 + LOG2_E.bit_length() - POWER - FRACTION)
    distance = np.minimum(BIAS + SMALL - field & 0xFF, 63)
    y = product >> distance
    y = np.where(negative, -y, y)
    low = FRACTION - ROWS
    return y >> FRACTION, powers_of_two().evaluate(y >> low & (1 << ROWS) - 1, y & (1 << low) - 1)


def significand_of(a: Integers) -> Integers:
    return (a & (1 << MANTISSA) - 1) | np.where(a >> MANTISSA & 0xFF, 1 << MANTISSA, 0)


# -- log ----------------------------------------------------------------------------------------------------------------
BIG = 52
"""A significand m whose row is not below counts as m / 2, so that m - 1 is small on both sides of 1."""
REST = MANTISSA - ROWS


@cache
def logarithms() -> Table:
    """log(m) / (m - 1), for m in 1 to 1 + BIG/128, and from half of that to 1."""
    ends = pieces(1, 2, 1 << ROWS)
    halves = [(str(Decimal(a) / 2), str(Decimal(b) / 2)) for a, b in ends[BIG:]]
    return table(lambda m: m.ln() / (m - 1), ends[:BIG] + halves, FRACTION, REST, 2)


POINT = MANTISSA + 1 + FRACTION
"""Places after the point of (m - 1) g, and of the sum."""
SUM = 7 + POINT
"""Bits of the sum: seven before the point hold the least and the greatest logarithm, and its sign."""


class Logarithm(Function):
    """log(a), which is e ln 2 + (m - 1) g(m) for a = m 2**e; e is 1 more than the exponent where m counts as half.

    So the sum has the sign of the exponent, and that of its two parts whose sign is another one is the less.
    """

    @classmethod
    def steps(cls, f: Format) -> int:
        """As listed above."""
        t = logarithms()
        return 15 + polynomial_steps(t) + product_steps(f.mantissa, t.magnitude(0))

    def _steps(self, pipe: Pipe) -> Step:
        s = self.polynomial(pipe, self._split(pipe, self._ordered(pipe)), logarithms())
        whole, low = s["size"], MANTISSA + 1 - (LN_2_PLACES - FRACTION)
        ends = Const(LN_2, 36)
        high_part, low_part = self._block(pipe, "ln_high", whole, ends[18:]), self._block(pipe, "ln_low", whole, ends[:18])

        def times(_: Step) -> dict[str, Any]:
            return {"whole": Cat(Const(0, 18), high_part) + low_part}

        s = self.product(pipe, s, "product", s["far"], s["total"][: logarithms().magnitude(0)], True,
                         [lambda _: {}, lambda _: {}, times], ("far", "total", "size"))  # fmt: skip
        less = s["less"]
        total = Cat(Const(0, low), s["whole"])[:SUM] + (Cat(s["product"], Const(0, SUM))[:SUM] ^ less.replicate(SUM)) + less
        s = pipe.cut(s, ("product", "whole", "less"), value=total[:SUM])
        return self._rounds(pipe, *self.lifted(pipe, s))

    def _ordered(self, pipe: Pipe) -> Step:
        """The significand with its highest 1 on top, whether it counts as half, and the exponent."""
        f = self.format
        s, (significand, field, _), zero, nan = self._not_below_zero(pipe)
        s = self._normalise(pipe, {
            "value": pipe.named(significand, "significand"), "field": pipe.named(field, "field"), PASSED: s[PASSED],
            "nan": pipe.named(nan, "nan"), "zero": pipe.named(zero, "zero"),
            "infinite": pipe.named(s["a_ones"], "infinite"),
        }, "value")  # fmt: skip
        exponent = Signal(signed(f.exponent + 2))
        self._m.d.comb += exponent.eq(s["field"] - s["value_zeros"] - f.bias)
        s = pipe.cut(s, ("value", "value_zeros", "field"), fraction=s["value"][: f.mantissa], exponent=exponent)
        return pipe.cut(s, big=s["fraction"][REST:] >= BIG)

    def _split(self, pipe: Pipe, s: Step) -> Step:
        """Row and rest; `far` is |m - 1| with 24 places, `size` that of e; `less`: the product is subtracted."""
        fraction, big, exponent = s["fraction"], s["big"], s["exponent"]
        below = exponent[-1]
        less = big ^ below
        size = (exponent ^ below.replicate(len(exponent))) + less
        return pipe.cut(
            s, ("fraction", "big", "exponent"), at=fraction[REST:], d=fraction[:REST], size=size[:8], less=less,
            far=Mux(big, (1 << MANTISSA) - fraction, Cat(Const(0, 1), fraction))[:MANTISSA],
            sign=s["zero"] | ~s["infinite"] & below,
        )  # fmt: skip

    def _rounds(self, pipe: Pipe, s: Step, value: Signal, zeros: Any) -> Step:
        """The nearest number; of 0 the field is 0."""
        f = self.format
        field = Mux(value[-1], (f.bias + SUM - POINT - 1 - zeros)[: f.exponent], 0)
        s = pipe.cut(s, LIFTED, value=value, field=field)
        other = s["nan"] | s["infinite"] | s["zero"]
        kept = s["value"][SUM - f.mantissa - 3 :]
        x = Mux(other, 0, Cat(s["value"][: SUM - f.mantissa - 3].any(), kept))
        s = pipe.cut(p=s[PASSED], sign=s["sign"], nan=s["nan"], x=x[: f.mantissa + 4],
                     field=Mux(other, f.exponent_ones, s["field"])[: f.exponent])  # fmt: skip
        return pipe.cut(p=s[PASSED], result=self._special(self._rounded(s["x"], s["field"]), s["sign"], s["nan"]))


def log(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """What `Logarithm` computes."""
    a = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.int64) & 0x7FFFFFFF
    significand = significand_of(a)
    zeros = MANTISSA + 1 - np.frexp(significand.astype(np.float64))[1]
    exponent = np.maximum(a >> MANTISSA, 1) - BIAS - zeros
    fraction = significand << zeros & (1 << MANTISSA) - 1
    big = fraction >> REST >= BIG
    below = exponent < 0
    exponent = exponent + big
    far = np.where(big, (1 << MANTISSA) - fraction, fraction << 1)
    g = logarithms().evaluate(fraction >> REST, fraction & (1 << REST) - 1)
    product, whole = far * g, np.abs(exponent) * LN_2 << (POINT - LN_2_PLACES)
    total = np.where(big ^ below, whole - product, whole + product)
    with np.errstate(all="ignore"):
        value = nearest(total, -POINT)
        value = np.where(below, -value, value)
        value = np.where(a == BINARY32.infinity, np.float32(np.inf), np.where(a == 0, np.float32(-np.inf), value))
        return np.where((x < 0) | np.isnan(x), NAN.view(np.float32), value + np.float32(0))


def nearest(total: Integers, exponent: Any) -> NDArray[np.float32]:
    """total * 2**exponent, rounded once; what binary64 has no place for is in its lowest bit."""
    lost = np.maximum(np.frexp(total.astype(np.float64))[1] - 50, 0)
    kept = total >> lost
    kept = kept | (kept << lost != total)
    return np.ldexp(kept.astype(np.float64), lost + exponent).astype(np.float32)


# -- tanh ---------------------------------------------------------------------------------------------------------------
LINES = 5
"""Bits that choose a row within 0 to 1, and within each power of two beyond."""
BINADES = 4
"""1 to 2, … 8 to 16; beyond, all is 1."""
PLACES = 27
"""Places after the point of a number below 1."""


@cache
def tangents() -> Table:
    """tanh(x) / x for x in 0 to 1, and tanh(x) beyond."""

    def tanh(x: Decimal) -> Decimal:
        e = (2 * x).exp()
        return (e - 1) / (e + 1)

    many = 1 << LINES
    first = table(lambda x: tanh(x) / x, pieces(0, 1, many), FRACTION, PLACES - LINES, 3)
    ends = [p for k in range(BINADES) for p in pieces(1 << k, 2 << k, many)]
    return Table(FRACTION, first.bits, first.rows + table(tanh, ends, FRACTION, first.bits, 3).rows)


class HyperbolicTangent(Function):
    """tanh(a)."""

    @classmethod
    def steps(cls, f: Format) -> int:
        """As listed above."""
        t = tangents()
        return 6 + polynomial_steps(t) + product_steps(f.mantissa + 1, t.magnitude(0))

    def _steps(self, pipe: Pipe) -> Step:
        f = self.format
        s = self.polynomial(pipe, self._row(pipe), tangents())
        s = self.product(pipe, s, "product", s["times"], s["total"][: FRACTION + 1], True, (), ("times", "total"))
        # Below 1, the highest 1 moves up if the exponent has room.
        value = pipe.named(s["product"][: f.mantissa + 1 + FRACTION], "value")
        left = ~value[-1] & (s["field"] != 1)
        value = pipe.named(Mux(left, Cat(Const(0, 1), value[:-1]), value), "moved")
        low = len(value) - f.mantissa - 3
        s = pipe.cut(s, ("product",), x=Cat(value[:low].any(), value[low:]),
                     field=Mux(value[-1], s["field"] - left, 0)[: f.exponent])  # fmt: skip
        number = Mux(s["nan"], f.infinity, self._rounded(s["x"], s["field"]))[: f.bits - 1]
        return pipe.cut(p=s[PASSED], result=self._special(number, s["sign"], s["nan"]))

    def _row(self, pipe: Pipe) -> Step:
        """Row and rest; `times`, with the exponent `field`, is what the table's number is multiplied by: a, or 1."""
        f = self.format
        s = self._classes(pipe)
        significand, field, sign = self._parts(s, "a")
        first, last = powers_of_shift(PLACES + 1)
        # Below 1, the field is at most bias - 1, and its complement says how far it is from the bias.
        distance = ~s["a"][f.mantissa : -2]
        far = distance[len(first) + len(last) :].any()
        x = Cat(Const(0, PLACES - f.mantissa), significand)
        near = right(pipe, x, picked(distance, first), first)
        s = pipe.cut(p=s[PASSED], sign=sign, nan=self._nan(s, "a"), significand=significand, field=field,
                     x=Mux(far, 0, near)[: PLACES + 1], rest=picked(distance, last), above=field >= f.bias,
                     end=field >= f.bias + BINADES)  # fmt: skip
        s = pipe.cut(s, ("rest",), x=right(pipe, s["x"], s["rest"], last)[:PLACES])
        above, bits = s["above"], PLACES - LINES
        binade = (s["field"] - (f.bias - 1))[:3]
        fraction = Cat(Const(0, PLACES - f.mantissa), s["significand"][: f.mantissa])
        place = pipe.named(Mux(s["end"], -1, Mux(above, fraction, s["x"]))[:PLACES], "place")
        return pipe.cut(
            p=s[PASSED], sign=s["sign"], nan=s["nan"], d=place[:bits],
            at=Cat(place[bits:], Mux(s["end"], BINADES, Mux(above, binade, 0))[:3]),
            times=Mux(above, 1 << f.mantissa, s["significand"]), field=Mux(above, f.bias, s["field"]),
        )  # fmt: skip


def tanh(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """What `HyperbolicTangent` computes."""
    a = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.int64) & 0x7FFFFFFF
    field, significand = np.maximum(a >> MANTISSA, 1), significand_of(a)
    above, end = field >= BIAS, field >= BIAS + BINADES
    below = significand << (PLACES - MANTISSA - 1) >> np.clip(BIAS - 1 - field, 0, 63)
    fraction = (significand & (1 << MANTISSA) - 1) << (PLACES - MANTISSA)
    place = np.where(end, (1 << PLACES) - 1, np.where(above, fraction, below))
    low = PLACES - LINES
    row = np.where(end, BINADES, np.where(above, field - (BIAS - 1), 0)) << LINES | place >> low
    total = tangents().evaluate(row, place & (1 << low) - 1)
    product = np.where(above, total << MANTISSA, significand * total)
    value = nearest(product, np.where(above, BIAS, field) - BIAS - MANTISSA - FRACTION)
    return np.where(np.isnan(x), NAN.view(np.float32), np.copysign(value, x))


# -- the logistic function -------------------------------------------------------------------------------------------------
SHARES = 6
"""Bits that choose a row of 1 / (1 + q)."""


@cache
def shares() -> Table:
    """1 / (1 + q) for q in 0..1; a little more, so that none is below a half."""
    ends = pieces(0, 1, 1 << SHARES)
    return table(lambda q: 1 / (1 + q) + Decimal(2) ** (1 - FRACTION), ends, FRACTION, FRACTION - SHARES, 3)


class Logistic(Exponential):
    """1 / (1 + exp(-a)): with q = exp(-|a|), it is 1 / (1 + q), or q times that."""

    @classmethod
    def steps(cls, f: Format) -> int:
        """As listed above."""
        more = 3 + polynomial_steps(shares()) + product_steps(FRACTION + 2, shares().magnitude(0))
        return super().steps(f) + more

    def _steps(self, pipe: Pipe) -> Step:
        f = self.format
        s = self._classes(pipe)
        s = self._quotient(pipe, s)
        s = self.polynomial(pipe, s, shares())
        s = self.product(pipe, s, "product", s["times"], s["total"][: FRACTION + 1], True, (), ("times", "total"))
        exponent = Signal(signed(f.exponent + 3))
        self._m.d.comb += exponent.eq(s["power"] + (f.bias - 1))
        upper = pipe.named(s["product"][: 2 * FRACTION + 1], "upper")
        s = {k: v for k, v in s.items() if k != "product"}
        more = {"exponent": exponent, "sign": Const(0, 1), "infinite": Const(0, 1)}
        return self._finish(pipe, s | more, upper, Const(0))

    def _quotient(self, pipe: Pipe, s: Step) -> Step:
        """Row and rest of q; `times` 2**`power` is what its share is multiplied by: q, or 1."""
        positive = pipe.named(~s["a"][-1], "positive")
        s = self._reduced(pipe, s, Const(1), positive=positive)
        s = self.polynomial(pipe, s, powers_of_two())
        number = s["total"][: FRACTION + 2]
        first, last = powers_of_shift(FRACTION + 2)
        distance = pipe.named(-s["power"], "distance")[: POWER + 1]
        far = s["zero"] | distance[len(first) + len(last) :].any()
        near = right(pipe, number, picked(distance, first), first)
        s = pipe.cut(s, ("total",), times=number, x=Mux(far, 0, near)[: FRACTION + 2], rest=picked(distance, last))
        s = pipe.cut(s, ("rest",), x=right(pipe, s["x"], s["rest"], last))
        q = pipe.named(Mux(s["x"][FRACTION:].any(), -1, s["x"])[:FRACTION], "q")  # 1 is the end of the last row
        low, positive = FRACTION - SHARES, s["positive"]
        power = Signal(signed(len(s["power"])))
        self._m.d.comb += power.eq(Mux(positive, 0, s["power"]))
        return pipe.cut(s, ("x", "positive"), d=q[:low], at=q[low:], power=power, zero=s["zero"] & ~positive,
                        times=Mux(positive, 1 << FRACTION, s["times"])[: FRACTION + 2])  # fmt: skip


def sigmoid(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """What `Logistic` computes."""
    a = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.int64)
    positive, great = a >> 31 == 0, (a >> MANTISSA & 0xFF) > BIAS + SMALL
    power, number = _power(a, True)
    q = np.where(great, 0, number >> np.minimum(-power, 63))
    q = np.minimum(q, (1 << FRACTION) - 1)
    low = FRACTION - SHARES
    share = shares().evaluate(q >> low, q & (1 << low) - 1)
    value = nearest(np.where(positive, 1 << FRACTION, number) * share, np.where(positive, 0, power) - 2 * FRACTION)
    value = np.where(great & ~positive, np.float32(0), value)
    return np.where(np.isnan(x), NAN.view(np.float32), value)
