"""Division by small integers, and multiplication by powers of two: pipelined, exact, without multipliers.

A significand is divided by an odd number from its highest digits on; what is carried from digit to digit is the remainder
(de Dinechin and Didier, Table-based division by small integer constants, 2012).  A digit has two bits, so that the table of
a divisor below 16 has six inputs.  That the last remainder is not 0 is all that rounding asks for beyond the quotient.

    divider     classes | three digits, … | align | align | round
    scale down  classes | distance | align | align | round
    scale up    classes | zeros | limit | shift | shift | infinity
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false, reportPrivateUsage=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.fp.model import Format
from upl_mlir.hw.fp.pipe import Pipe, Step, chosen, picked, powers_of_shift, spread

DIGIT = 2
"""Bits of the quotient that come from one table."""
DIGITS = 3
"""Digits of a step."""
GREATEST = 15
"""The greatest odd divisor."""


class Unary(wiring.Component):
    """As `units.Binary`, of one operand; `steps` is the greatest latency, and the default one."""

    def __init__(self, f: Format, steps: int, latency: int | None, passed: int):
        self.format, self.steps = f, steps
        self.latency = steps if latency is None else latency
        if not 1 <= self.latency <= steps:
            raise ValueError(f"latency={self.latency}: expected 1 to {steps}")
        self.kept = spread(steps, self.latency)
        super().__init__(
            {
                "a": In(f.bits), "pass_in": In(passed), "result": Out(f.bits), "pass_out": Out(passed),
                "enable": In(1, init=1),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        """The steps, one after the other."""
        m = Module()
        s = self._steps(Pipe(m, self.enable, self.kept))
        m.d.comb += [self.result.eq(s["r"]), self.pass_out.eq(s["p"])]
        return m

    def _steps(self, pipe: Pipe) -> Step:
        raise NotImplementedError

    def _classes(self, pipe: Pipe) -> Step:
        """The first step: significand with its hidden bit, exponent field (1 for subnormals), and what is no number."""
        f = self.format
        fraction, field = self.a[: f.mantissa], self.a[f.mantissa : f.mantissa + f.exponent]
        some = field.any()
        return pipe.cut(
            p=self.pass_in, sign=self.a[-1], significand=Cat(fraction, some), field=Cat(field[0] | ~some, field[1:]),
            ones=field.all(), low=fraction.any(),
        )  # fmt: skip

    def _shown(self, pipe: Pipe, s: Step, number: Any, sign: Any) -> Step:
        f = self.format
        return pipe.cut(p=s["p"], r=Mux(s["ones"] & s["low"], Const(f.nan, f.bits), Cat(number[: f.bits - 1], sign)))

    def _lower(self, pipe: Pipe, s: Step, places: int) -> Step:
        """What becomes of the exponent field if the number gets less by so many powers of two: `tiny` is a number whose
        significand has to move right by `distance`; an `ample` field lets it move left by one."""
        f = self.format
        tiny = s["field"] <= places
        distance = Mux(tiny, (places + 1 - s["field"])[: places.bit_length()], 0)
        out = {
            "field": (s["field"] - places)[: f.exponent], "tiny": tiny, "ample": s["field"] >= places + 2,
            "distance": Cat(distance, Const(0, f.mantissa.bit_length() + 1)),
        }  # fmt: skip
        return {name: pipe.named(value, f"lower_{name}") for name, value in out.items()}

    def _align_and_round(self, pipe: Pipe, s: Step, flip: bool) -> Step:
        """x: a significand with three bits more, the lowest of them sticky; its highest bit, or the next one, is 1, or the
        number is `tiny`."""
        f = self.format
        left = ~s["x"][-1] & s["ample"]
        width = len(s["x"])
        x = pipe.named(Mux(left, Cat(Const(0, 1), s["x"])[:width], s["x"]), "x")
        first, last = powers_of_shift(width)
        distance = s["distance"]
        far = distance[(width - 1).bit_length() :].any()
        near = pipe.right(x, picked(distance, first), first, "aligned")
        s = pipe.cut(
            s, ("x", "distance", "ample"), x=Mux(far, x.any(), near)[:width], rest=Mux(far, 0, picked(distance, last)),
            field=Mux(s["tiny"], 0, s["field"] - ~s["x"][-1])[: f.exponent],
        )  # fmt: skip
        s = pipe.cut(s, ("rest", "tiny"), x=pipe.right(s["x"], s["rest"], last, "aligned"))
        x = s["x"]
        up = x[2] & (x[0] | x[1] | x[3])
        # A carry out of the fraction goes into the exponent: this is how the encoding is made.
        number = Mux(
            s["ones"], Const(f.infinity, f.bits - 1), (Cat(x[3 : 3 + f.mantissa], s["field"]) + up)[: f.bits - 1]
        )
        return self._shown(pipe, s, number, s["sign"] ^ flip)


class DivideByConstant(Unary):
    """a / divisor, an integer m*2^e whose odd part m is 3 to 15; it may be negative."""

    def __init__(self, f: Format, divisor: int, latency: int | None = None, passed: int = 1):
        size = abs(divisor)
        self.odd = size // (size & -size) if size else 0
        if not 3 <= self.odd <= GREATEST:
            raise ValueError(f"divisor={divisor}: expected an odd number of 3 to {GREATEST} times a power of two")
        self.divisor = divisor
        self.digits = -(-(f.mantissa + 3) // DIGIT)
        super().__init__(f, 4 - (-self.digits // DIGITS), latency, passed)

    def _steps(self, pipe: Pipe) -> Step:
        f, known = self.format, self.odd.bit_length() - 1  # so many bits are less than the divisor
        s = self._classes(pipe)
        top = f.mantissa + 1 - known
        s |= {"rest": pipe.named(Cat(Const(0, DIGIT * self.digits - top), s["significand"][:top]), "rest"),
              "remainder": pipe.named(s["significand"][top:], "remainder"), "q": Signal(0)}  # fmt: skip
        more = self._lower(pipe, s, abs(self.divisor).bit_length() - 1)
        for n in range(0, self.digits, DIGITS):
            now = dict.fromkeys(("rest", "remainder", "q"))
            quotient, remainder, rest = s["q"], s["remainder"], s["rest"]
            for _ in range(min(DIGITS, self.digits - n)):
                digit, remainder = self._digit(pipe, rest[-DIGIT:], remainder)
                quotient, rest = Cat(digit, quotient), rest[:-DIGIT]
            s = pipe.cut(s, (*now, "significand", *more), q=quotient, remainder=remainder, rest=rest,
                         **({name: s[name] for name in more} if n else more))  # fmt: skip
        q = s["q"]
        over = len(q) - (f.mantissa + 3)  # a bit too many, if the digits do not fit
        sticky = s["remainder"].any() | (q[:over].any() if over else Const(0))
        s |= {"x": pipe.named(Cat(sticky, q[over:]), "quotient")}
        return self._align_and_round(pipe, {k: v for k, v in s.items() if k not in ("q", "remainder", "rest")},
                                     self.divisor < 0)  # fmt: skip

    def _digit(self, pipe: Pipe, bits: Value, remainder: Value) -> tuple[Any, Any]:
        """Digit of the quotient, and next remainder."""
        size = self.odd.bit_length()
        at = pipe.named(Cat(bits, remainder, Const(0, size))[: DIGIT + size], "at")
        rows = [v // self.odd % (1 << DIGIT) | v % self.odd << DIGIT for v in range(1 << len(at))]
        row = pipe.named(chosen(at, rows, DIGIT + size), "row")
        return row[:DIGIT], row[DIGIT:]


class ScaleByPowerOfTwo(Unary):
    """a * 2^exponent."""

    def __init__(self, f: Format, exponent: int, latency: int | None = None, passed: int = 1):
        self.exponent = exponent
        super().__init__(f, 6 if exponent > 0 else 5, latency, passed)

    def _steps(self, pipe: Pipe) -> Step:
        return self._up(pipe) if self.exponent > 0 else self._down(pipe)

    def _down(self, pipe: Pipe) -> Step:
        s = self._classes(pipe)
        x = Cat(Const(0, 3), s["significand"])
        s = pipe.cut(s, ("significand",), x=x, **(self._lower(pipe, s, -self.exponent) | {"ample": Const(0)}))
        return self._align_and_round(pipe, s, False)

    def _up(self, pipe: Pipe) -> Step:
        """The highest 1 to the top, as far as the exponent grows."""
        f = self.format
        s = self._classes(pipe)
        filled = pipe.filled(s["significand"])
        s = pipe.cut(s, zeros=pipe.zeros(s["significand"], pipe.named(filled, "filled"), "zeros"))
        size = len(s["zeros"])
        left = Mux(s["zeros"] > self.exponent, self.exponent, s["zeros"])[:size]
        s = pipe.cut(s, ("zeros",), left=left, field=s["field"] + self.exponent)
        first, last = powers_of_shift(1 << size)
        s = pipe.cut(
            s, ("left", "significand"), rest=picked(s["left"], last), field=(s["field"] - s["left"])[: len(s["field"])],
            x=pipe.left(s["significand"], picked(s["left"], first), first, "normal"),
        )  # fmt: skip
        x = pipe.left(s["x"], s["rest"], last, "normal")
        s = pipe.cut(s, ("rest",), x=x, field=Mux(x[-1], s["field"], 0))
        infinite = s["ones"] | (s["field"] >= f.exponent_ones)
        number = Mux(infinite, Const(f.infinity, f.bits - 1), Cat(s["x"][: f.mantissa], s["field"][: f.exponent]))
        return self._shown(pipe, s, number, s["sign"])
