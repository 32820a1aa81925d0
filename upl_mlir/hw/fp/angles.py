"""sin and cos at high clocks, an operation a cycle; and what they compute, on arrays, bit for bit.

An angle is counted in quarters of a turn: t = a 2/pi, of which the places down to 2**-58 are needed, as numbers come so near
to whole quarters, and only the last two bits before the point.  So of 2/pi there is a window for each exponent (Payne and
Hanek 1983).  The rest r, at most half a quarter, gives a sine, as r times a table, or a cosine, by a table.

    sine  classes | window | window | blocks | blocks | sums | sum | rest | half | groups | zeros | shift | shift |
          polynomial … | times r … | as the multiplier's last five
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cache
from typing import Any, ClassVar

import numpy as np
from amaranth.hdl import Cat, Const, Mux, Signal, signed
from numpy.typing import NDArray

from upl_mlir.hw.fp.blocks import WIDTH
from upl_mlir.hw.fp.fixed import Integers, Table, pieces, polynomial_steps, product_steps, table
from upl_mlir.hw.fp.functions import BIAS, FRACTION, LIFTED, MANTISSA, NAN, Function, nearest, right, significand_of
from upl_mlir.hw.fp.model import BINARY32, Format
from upl_mlir.hw.fp.pipe import PASSED, Pipe, Step, chosen

PI = "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651"
PLACES = 58
"""Places of an angle in quarters."""
GUARD = 24
"""More places of the windows: as many as a significand has bits."""
WINDOW = 2 + PLACES + GUARD
"""Bits of a window: two before the point, which are the quarter, and the places."""
LEAST = BIAS - 12
"""Exponent field of the first window. Angles below are near enough to their sines, and take that window as well."""
TIMES = 30
"""Bits of r that are multiplied."""
LINES = 4
"""Bits that choose a row of a sine or of a cosine."""


NEAR = 3
"""The lowest bits of a field move its window within a wider one, which the others choose."""


@cache
def windows() -> list[int]:
    """The bits of 2/pi for all exponent fields that are equal but for their lowest bits: the highest one's, and more above.
    Those below `LEAST` have its window."""
    with localcontext() as context:
        context.prec = len(PI)
        turn, some = 2 / Decimal(PI), 1 << NEAR
        return [int(turn * 2 ** (max(n, LEAST // some) * some + some - 1 - BIAS - MANTISSA + PLACES + GUARD))
                % (1 << WINDOW + some - 1) for n in range((BINARY32.exponent_ones + 1) // some)]  # fmt: skip


def _sine(x: Decimal) -> Decimal:
    """By its series."""
    total, power, n = Decimal(0), x, 1
    while abs(power) > Decimal("1e-45"):
        total, power, n = total + power, -power * x * x / ((n + 1) * (n + 2)), n + 2
    return total


@cache
def waves() -> Table:
    """For r in 0 to 1/2: sin(r pi/2) / r, then twice the cosine, so that neither is below 1."""
    quarter = Decimal(PI) / 2
    ends = pieces(0, 0.5, 1 << LINES)
    sines = table(lambda r: _sine(r * quarter) / r, ends, FRACTION, FRACTION - LINES, 3)
    cosines = table(lambda r: 2 * _sine((1 - r) * quarter), ends, FRACTION, FRACTION - LINES, 3)
    return Table(FRACTION, sines.bits, sines.rows + cosines.rows)


class Sine(Function):
    """sin(a); so many `quarters` of a turn are added to |a|, and the sign of a counts if there are none."""

    quarters: ClassVar[int] = 0

    @classmethod
    def steps(cls, f: Format) -> int:
        """As listed above."""
        return 13 + polynomial_steps(waves()) + product_steps(TIMES, waves().magnitude(0)) + 5

    def _steps(self, pipe: Pipe) -> Step:
        f, t = self.format, waves()
        s = self._rest(pipe, self._turned(pipe))
        s, value, zeros = self.lifted(pipe, s)
        exponent = Signal(signed(f.exponent + 3), name="exponent_of_rest")
        self._m.d.comb += exponent.eq(Mux(s["cosine"], f.bias - 1, s["field"] + (f.bias - LEAST - 1) - zeros))
        times = Mux(s["cosine"], 1 << (TIMES - 1), value[-TIMES:])
        s = pipe.cut(s, (*LIFTED, "value", "field", "cosine"), times=times, exponent=exponent)
        s = self.polynomial(pipe, s, t)
        s = self.product(pipe, s, "product", s["times"], s["total"][: t.magnitude(0)], True, (), ("times", "total"))
        upper = pipe.named(s["product"][: TIMES + FRACTION + 1], "upper")
        # Of 0 the product is 0, with an exponent below all others.
        more = {"infinite": s["nan"], "zero": Const(0, 1)}
        return self._finish(pipe, {k: v for k, v in s.items() if k != "product"} | more, upper, Const(0))

    def _turned(self, pipe: Pipe) -> Step:
        """The angle in quarters, `t`; `field` is less than `LEAST` if the exponent is less than that of the window."""
        f = self.format
        s = self._classes(pipe)
        significand, field, sign = self._parts(s, "a")
        small, bits = field < LEAST, s["a"][f.mantissa : -1]
        far, near = bits[NEAR:], Mux(small, LEAST % (1 << NEAR), bits[:NEAR])
        s = pipe.cut(p=s[PASSED], nan=s["a_ones"], sign=sign & (self.quarters == 0), small=small, significand=significand,
                     field=Mux(small, field, LEAST)[: f.exponent], distance=~near[:NEAR],
                     window=chosen(far, windows(), WINDOW + (1 << NEAR) - 1))  # fmt: skip
        window = right(pipe, s["window"], s["distance"], [*range(NEAR)])[:WINDOW]
        s = pipe.cut(s, ("distance",), window=window)
        low = f.mantissa + 1 - WIDTH
        window = s["window"]
        cuts = [window[n : n + WIDTH] for n in range(0, WINDOW, WIDTH)]
        products = {
            (name, n): self._block(pipe, f"{name}_{n}", part, w)
            for name, part in (("low", s["significand"][:low]), ("high", s["significand"][low:])) for n, w in enumerate(cuts)
        }  # fmt: skip
        s = pipe.cut(s, ("significand", "window"))
        s = pipe.cut(s)

        def summed(name: str, shift: int) -> Any:
            """The products of every second part of the window lie beside each other."""
            lines: list[Any] = []
            for first in (0, 1):
                parts: list[Any] = [Const(0, shift + WIDTH * first)]
                for n in range(first, len(cuts), 2):
                    product = products[name, n]
                    parts += [product, Const(0, max(0, 2 * WIDTH - len(product)))]
                lines.append(Cat(*parts)[:WINDOW])
            return (lines[0] + lines[1])[:WINDOW]

        s = pipe.cut(s, low=summed("low", 0), high=summed("high", low))
        return pipe.cut(s, ("low", "high"), t=(s["low"] + s["high"])[GUARD:WINDOW])

    def _rest(self, pipe: Pipe, s: Step) -> Step:
        """The distance from the nearest whole quarter, with the row of the table, and whether it asks for a cosine."""
        t = s["t"]
        over = t[PLACES - 1]
        quarter = (t[PLACES:] + over + self.quarters)[:2]
        cosine = quarter[0]
        value = ((t[:PLACES] ^ over.replicate(PLACES)) + over)[:PLACES]
        s = pipe.cut(s, ("t",), value=value, cosine=cosine, sign=s["sign"] ^ quarter[1] ^ (~cosine & over))
        place = Mux(s["small"], 0, s["value"][PLACES - 1 - FRACTION : PLACES - 1])[:FRACTION]
        low = FRACTION - LINES
        place = pipe.named(place, "place")
        return {k: v for k, v in s.items() if k != "small"} | {
            "at": pipe.named(Cat(place[low:], s["cosine"]), "at"), "d": pipe.named(place[:low], "d"),
        }  # fmt: skip


class Cosine(Sine):
    """cos(a)."""

    quarters = 1


def sin(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """What `Sine` computes."""
    return _wave(x, 0)


def cos(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """What `Cosine` computes."""
    return _wave(x, 1)


def _wave(x: NDArray[np.float32], quarters: int) -> NDArray[np.float32]:
    a = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.int64)
    negative = (a >> 31 == 1) & (quarters == 0)
    a = a & 0x7FFFFFFF
    field = np.minimum(np.maximum(a >> MANTISSA, 1), BINARY32.exponent_ones - 1)
    small = field < LEAST
    t = _turned(significand_of(a), np.maximum(field, LEAST))
    over = t >> (PLACES - 1) & 1
    quarter = (t >> PLACES) + over + quarters & 3
    fraction = t & (1 << PLACES) - 1
    rest = np.where(over, (1 << PLACES) - fraction, fraction)
    cosine = quarter & 1 == 1
    place = np.where(small, 0, rest >> (PLACES - 1 - FRACTION) & (1 << FRACTION) - 1)
    low = FRACTION - LINES
    total = waves().evaluate(place >> low | quarter % 2 << LINES, place & (1 << low) - 1)
    upper = rest >> 29
    zeros = PLACES - np.where(upper, np.frexp(upper.astype(np.float64))[1] + 29, np.frexp((rest & (1 << 29) - 1) * 1.0)[1])
    times = np.where(cosine, 1 << (TIMES - 1), rest << np.minimum(zeros, PLACES) >> (PLACES - TIMES))
    exponent = np.where(cosine, -1, np.where(small, field - LEAST, 0) - 1 - zeros)
    value = nearest(times * total, exponent - (TIMES - 1) - FRACTION)
    minus = negative ^ (quarter >> 1 == 1) ^ (~cosine & (over == 1))
    return np.where(a >= BINARY32.infinity, NAN.view(np.float32), np.where(minus, -value, value))


def _turned(significand: Integers, field: Integers) -> Integers:
    """The angle in quarters, by parts of a window that 64 bits hold when they are multiplied."""
    size, most = WINDOW // 3, (1 << NEAR) - 1
    all_ = [windows()[n >> NEAR] >> (most - (n & most)) for n in range(BINARY32.exponent_ones)]
    carry, parts = np.zeros_like(significand), []
    for n in range(3):
        part = np.array([w >> size * n & (1 << size) - 1 for w in all_], np.int64)[field]
        product = significand * part + carry
        carry = product >> size
        parts.append(product & (1 << size) - 1)
    return parts[2] << (2 * size - GUARD) | parts[1] << (size - GUARD) | parts[0] >> GUARD
