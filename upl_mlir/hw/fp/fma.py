"""Pipelined fused multiply-add: a * b + c with one rounding, to nearest even, subnormals included."""

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
from upl_mlir.hw.fp.parts import Stages, leading_zeros, normalised, round_normal, shift_right_sticky, unpack


class FusedMultiplyAdd(wiring.Component):
    """a, b, c (in, the format's width); after `latency` cycles result (out) = a * b + c. enable (in, 1): 0 holds all."""

    def __init__(self, f: Format, latency: int):
        self.format = f
        self.latency = latency
        ports = {name: In(f.bits) for name in ("a", "b", "c")}
        super().__init__({**ports, "result": Out(f.bits), "enable": In(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        """Five steps: normalise; multiply and align; add; normalise; round.

        The product has 2p bits (p = mantissa + 1) and two zeros below. c begins so far on the left that the whole product
        lies below a quarter of its lowest bit, and is moved right from there; if it belongs even further left, the product
        only tells the rounding that there is something, and its exact place does not matter.
        """
        f = self.format
        m = Module()
        stages = Stages(m, 5, self.latency, self.enable)
        p = f.mantissa + 1
        a, b, c = unpack(m, f, self.a, "a"), unpack(m, f, self.b, "b"), unpack(m, f, self.c, "c")
        exponent_a, significand_a = normalised(m, f, a, "a_normal")
        exponent_b, significand_b = normalised(m, f, b, "b_normal")
        exponent_c, significand_c = normalised(m, f, c, "c_normal")
        infinite, sign = a.infinite | b.infinite, a.sign ^ b.sign
        s = stages.cut(
            1, x=significand_a, y=significand_b, z=significand_c, exponent=exponent_a + exponent_b, exponent_c=exponent_c,
            sign=sign, sign_c=c.sign, infinite=infinite | c.infinite, sign_infinite=Mux(infinite, sign, c.sign),
            nan=a.nan | b.nan | c.nan | (infinite & (a.zero | b.zero)) | (infinite & c.infinite & (sign ^ c.sign)),
            only_c=a.zero | b.zero, c_zero=c.zero, c=self.c,
        )  # fmt: skip

        width = 3 * p + 5
        product = Signal(2 * p)
        m.d.comb += product.eq(s["x"] * s["y"])
        distance = Signal(signed(f.exponent + 5))
        m.d.comb += distance.eq(s["exponent"] - s["exponent_c"] + p + 3)
        exponent = Signal(signed(f.exponent + 4))
        far_left = distance < 0
        m.d.comb += exponent.eq(Mux(far_left, s["exponent_c"] - p - 3, s["exponent"]))
        start = Cat(Const(0, 2 * p + 4), s["z"], Const(0, 1))
        aligned = shift_right_sticky(m, start, Mux(far_left, 0, distance)[: f.exponent + 4], "aligned")
        gone = ("x", "y", "z", "exponent", "exponent_c")
        rest = {k: v for k, v in s.items() if k not in gone}
        s = stages.cut(2, product=product, aligned=aligned, exponent=exponent, **rest)

        wide = Cat(Const(0, 2), s["product"])
        subtract = s["sign"] ^ s["sign_c"]
        difference = Signal(signed(width + 1))
        m.d.comb += difference.eq(s["aligned"] - wide)
        total, negative = Signal(width), Signal()
        m.d.comb += [
            negative.eq(subtract & (difference < 0)),  # the product is the greater one
            total.eq(Mux(subtract, Mux(negative, -difference, difference), s["aligned"] + wide)),
        ]
        total_sign = Mux(negative, s["sign"], s["sign_c"])
        rest = {k: v for k, v in s.items() if k not in ("product", "aligned", "sign")}
        s = stages.cut(3, total=total, total_sign=total_sign, sign=s["sign"], **rest)

        total = s["total"]
        zeros = leading_zeros(m, total, "zeros")
        high, place = Signal(width), Signal(signed(f.exponent + 4))
        m.d.comb += [high.eq(total << zeros), place.eq(s["exponent"] - 2 * p + width - 1 - zeros)]
        short = Signal(p + 3)
        m.d.comb += short.eq(Cat(high[: width - p - 2] != 0, high[width - p - 2 :]))
        zero = Signal()
        m.d.comb += zero.eq(total == 0)
        rest = {k: v for k, v in s.items() if k not in ("total", "exponent")}
        s = stages.cut(4, short=short, place=place, zero=zero, **rest)

        rounded = round_normal(m, f, s["total_sign"], s["place"], s["short"], "sum")
        result = Signal(f.bits)
        with m.If(s["nan"]):
            m.d.comb += result.eq(f.nan)
        with m.Elif(s["infinite"]):
            m.d.comb += result.eq(Cat(Const(f.infinity, f.bits - 1), s["sign_infinite"]))
        with m.Elif(s["only_c"] & ~s["c_zero"]):
            m.d.comb += result.eq(s["c"])
        with m.Elif(s["only_c"] | s["zero"]):
            # Two zeros keep a common sign; what cancels is +0.
            m.d.comb += result.eq(Cat(Const(0, f.bits - 1), s["only_c"] & s["sign"] & s["sign_c"]))
        with m.Else():
            m.d.comb += result.eq(rounded)
        s = stages.cut(5, result=result)
        m.d.comb += self.result.eq(s["result"])
        return m
