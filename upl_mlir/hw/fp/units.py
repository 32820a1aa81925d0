"""Pipelined addition and multiplication: one operation a cycle, rounded to nearest even, subnormals included."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.fp.model import Format
from upl_mlir.hw.fp.parts import (
    Stages,
    leading_zeros,
    normalised,
    round_field,
    round_normal,
    shift_right_sticky,
    unpack,
)


class Binary(wiring.Component):
    """a, b (in, the format's width) and `pass_in` (in, `passed` bits: whatever belongs to the operation); after
    `latency` cycles result (out), with its `pass_out`. enable (in, 1): 0 holds everything."""

    def __init__(self, f: Format, latency: int, passed: int = 1):
        self.format = f
        self.latency = latency
        super().__init__(
            {
                "a": In(f.bits),
                "b": In(f.bits),
                "pass_in": In(passed),
                "result": Out(f.bits),
                "pass_out": Out(passed),
                "enable": In(1, init=1),
            }
        )


class Adder(Binary):
    """a + b."""

    def elaborate(self, platform: object) -> Module:
        """Four steps: order and align, add, normalise, round."""
        f = self.format
        m = Module()
        stages = Stages(m, 4, self.latency, self.enable)
        a, b = unpack(m, f, self.a, "a"), unpack(m, f, self.b, "b")
        swap = Signal()
        m.d.comb += swap.eq(self.a[: f.bits - 1] < self.b[: f.bits - 1])
        big, small = Signal(f.mantissa + 1), Signal(f.mantissa + 1)
        field, distance = Signal(f.exponent), Signal(f.exponent)
        m.d.comb += [
            big.eq(Mux(swap, b.significand, a.significand)),
            small.eq(Mux(swap, a.significand, b.significand)),
            field.eq(Mux(swap, b.field, a.field)),
            distance.eq(Mux(swap, b.field - a.field, a.field - b.field)),
        ]
        aligned = shift_right_sticky(m, Cat(Const(0, 3), small), distance, "aligned")
        sign = Signal()
        m.d.comb += sign.eq(Mux(swap, b.sign, a.sign))
        invalid = a.nan | b.nan | (a.infinite & b.infinite & (a.sign ^ b.sign))
        s = stages.cut(
            1, big=big, aligned=aligned, field=field, sign=sign, subtract=a.sign ^ b.sign, nan=invalid,
            infinite=a.infinite | b.infinite, both_negative=a.sign & b.sign, passed=self.pass_in,
        )  # fmt: skip

        total = Signal(f.mantissa + 5)
        wide = Cat(Const(0, 3), s["big"])
        m.d.comb += total.eq(Mux(s["subtract"], wide - s["aligned"], wide + s["aligned"]))
        s = stages.cut(2, total=total, **{k: v for k, v in s.items() if k not in ("big", "aligned", "subtract")})

        total = s["total"]
        zeros = leading_zeros(m, total[:-1], "zeros")
        room = Signal(f.exponent)
        m.d.comb += room.eq(s["field"] - 1)
        left = Signal(range(f.mantissa + 6))
        m.d.comb += left.eq(Mux(zeros > room, room, zeros))
        normal, place = Signal(f.mantissa + 4), Signal(signed(f.exponent + 2))
        with m.If(total[-1]):
            m.d.comb += [normal.eq(Cat(total[0] | total[1], total[2:])), place.eq(s["field"] + 1)]
        with m.Else():
            m.d.comb += normal.eq(total[:-1] << left)
            m.d.comb += place.eq(Mux(normal[-1], s["field"] - left, 0))
        zero = Signal()
        m.d.comb += zero.eq(total == 0)
        rest = {k: v for k, v in s.items() if k not in ("total", "field")}
        s = stages.cut(3, normal=normal, place=place, zero=zero, **rest)

        sign = Mux(s["zero"] & ~s["infinite"], s["both_negative"], s["sign"])
        rounded = round_field(m, f, sign, s["place"], s["normal"], "sum")
        result = Signal(f.bits)
        m.d.comb += result.eq(
            Mux(s["nan"], f.nan, Mux(s["infinite"], Cat(Const(f.infinity, f.bits - 1), s["sign"]), rounded))
        )
        s = stages.cut(4, result=result, passed=s["passed"])
        m.d.comb += [self.result.eq(s["result"]), self.pass_out.eq(s["passed"])]
        return m


class Multiplier(Binary):
    """a * b."""

    def elaborate(self, platform: object) -> Module:
        """Four steps: normalise, multiply, align a tiny product, round."""
        f = self.format
        m = Module()
        stages = Stages(m, 4, self.latency, self.enable)
        a, b = unpack(m, f, self.a, "a"), unpack(m, f, self.b, "b")
        exponent_a, significand_a = normalised(m, f, a, "a_normal")
        exponent_b, significand_b = normalised(m, f, b, "b_normal")
        infinite = a.infinite | b.infinite
        s = stages.cut(
            1, x=significand_a, y=significand_b, exponent=exponent_a + exponent_b, sign=a.sign ^ b.sign,
            nan=a.nan | b.nan | (infinite & (a.zero | b.zero)), infinite=infinite, zero=a.zero | b.zero,
            passed=self.pass_in,
        )  # fmt: skip

        product = Signal(2 * f.mantissa + 2)
        m.d.comb += product.eq(s["x"] * s["y"])
        s = stages.cut(2, product=product, **{k: v for k, v in s.items() if k not in ("x", "y")})

        product = s["product"]
        high, exponent = Signal(2 * f.mantissa + 2), Signal(signed(f.exponent + 3))
        m.d.comb += high.eq(Mux(product[-1], product, product << 1))
        m.d.comb += exponent.eq(s["exponent"] + product[-1])
        short = Signal(f.mantissa + 4)
        m.d.comb += short.eq(Cat(high[: f.mantissa - 1] != 0, high[f.mantissa - 1 :]))
        keep = {k: s[k] for k in ("sign", "nan", "infinite", "zero", "passed")}
        s = stages.cut(3, short=short, exponent=exponent, **keep)

        rounded = round_normal(m, f, s["sign"], s["exponent"], s["short"], "product")
        result = Signal(f.bits)
        with m.If(s["nan"]):
            m.d.comb += result.eq(f.nan)
        with m.Elif(s["infinite"]):
            m.d.comb += result.eq(Cat(Const(f.infinity, f.bits - 1), s["sign"]))
        with m.Elif(s["zero"]):
            m.d.comb += result.eq(Cat(Const(0, f.bits - 1), s["sign"]))
        with m.Else():
            m.d.comb += result.eq(rounded)
        s = stages.cut(4, result=result, passed=s["passed"])
        m.d.comb += [self.result.eq(s["result"]), self.pass_out.eq(s["passed"])]
        return m
