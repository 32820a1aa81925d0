"""Addition and multiplication at high clocks: an operation a cycle, rounded to nearest even, subnormals included.

    adder       compare | order | distance | align | align | add | carry | zeros | limit | shift | shift | round
    multiplier  classes | order | zeros | zeros | shift | shift and block | block | sums | sum | one place |
                tiny | align | align | round
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from typing import Literal

from amaranth.hdl import Cat, Const, Mux, Signal, signed

from upl_mlir.hw.fp.blocks import WIDTH
from upl_mlir.hw.fp.model import Format
from upl_mlir.hw.fp.pipe import PASSED, Pipe, Pipelined, Step, picked, powers_of_shift


class Adder(Pipelined):
    """a + b."""

    @classmethod
    def steps(cls, f: Format) -> int:
        """As listed above."""
        return 12

    def _steps(self, pipe: Pipe) -> Step:
        return self._round(pipe, self._lift(pipe, self._add(pipe, self._align(pipe, self._order(pipe)))))

    def _order(self, pipe: Pipe) -> Step:
        """The operand of greater magnitude comes first."""
        s = self._classes(pipe, swap=self.a[:-1] < self.b[:-1])
        significand_a, field_a, sign_a = self._parts(s, "a")
        significand_b, field_b, sign_b = self._parts(s, "b")
        swap, subtract = s["swap"], sign_a ^ sign_b
        nan = self._nan(s, "a") | self._nan(s, "b") | s["a_ones"] & s["b_ones"] & subtract
        return pipe.cut(
            big=Mux(swap, significand_b, significand_a), small=Mux(swap, significand_a, significand_b),
            field=Mux(swap, field_b, field_a), other=Mux(swap, field_a, field_b), sign=Mux(swap, sign_b, sign_a),
            subtract=subtract, both=sign_a & sign_b, infinite=s["a_ones"] | s["b_ones"], nan=nan, p=s[PASSED],
        )  # fmt: skip

    def _align(self, pipe: Pipe, s: Step) -> Step:
        """The lesser one moved to the place of the greater one, with three bits more; then the sum's operands are there."""
        s = pipe.cut(s, ("other",), distance=(s["field"] - s["other"])[: self.format.exponent])
        wide = Cat(Const(0, 3), s["small"])
        width = len(wide)
        first, last = powers_of_shift(width)
        distance = s["distance"]
        far = distance[(width - 1).bit_length() :].any()
        near = pipe.right(wide, picked(distance, first), first, "aligned")
        s = pipe.cut(
            s, ("small", "distance"), x=Mux(far, s["small"].any(), near)[:width], rest=Mux(far, 0, picked(distance, last))
        )
        return pipe.cut(s, ("x", "rest"), x=pipe.right(s["x"], s["rest"], last, "aligned"))

    def _add(self, pipe: Pipe, s: Step) -> Step:
        """Sum or difference; a carry moves it right by one, and the exponent up."""
        width = len(s["x"])
        subtract = s["subtract"]
        total = pipe.named(Cat(Const(0, 3), s["big"]) + (s["x"] ^ subtract.replicate(width)) + subtract, "total")
        s = pipe.cut(s, ("big", "x", "subtract"), total=total[:width], carry=total[width] & ~subtract)
        total, carry = s["total"], s["carry"]
        value = pipe.named(Mux(carry, Cat(total[0] | total[1], total[2:], 1), total), "value")
        return pipe.cut(
            s, ("total",), value=value, filled=pipe.filled(value), room=(s["field"] - 1)[: self.format.exponent],
            field=s["field"] + carry, zero=~value.any(),
        )  # fmt: skip

    def _lift(self, pipe: Pipe, s: Step) -> Step:
        """The highest 1 to the top, as far as the exponent has room."""
        f = self.format
        s = pipe.cut(s, ("filled",), zeros=pipe.zeros(s["value"], s["filled"], "zeros"))
        left = Mux(s["carry"], 0, Mux(s["zeros"] > s["room"], s["room"], s["zeros"]))[: len(s["zeros"])]
        s = pipe.cut(s, ("zeros", "room", "carry"), left=left)
        first, last = powers_of_shift(1 << len(s["left"]))
        s = pipe.cut(
            s, ("left",), value=pipe.left(s["value"], picked(s["left"], first), first, "normal"),
            rest=picked(s["left"], last), field=(s["field"] - s["left"])[: f.exponent + 1],
        )  # fmt: skip
        value = pipe.left(s["value"], s["rest"], last, "normal")
        return pipe.cut(s, ("rest",), value=value, field=Mux(value[-1], s["field"], 0)[: f.exponent])

    def _round(self, pipe: Pipe, s: Step) -> Step:
        f = self.format
        infinite = s["infinite"] | (s["field"] == f.exponent_ones)
        sign = Mux(s["zero"] & ~s["infinite"], s["both"], s["sign"])
        number = Mux(infinite, Const(f.infinity, f.bits - 1), self._rounded(s["value"], s["field"]))
        return pipe.cut(p=s[PASSED], result=Mux(s["nan"], Const(f.nan, f.bits), Cat(number[: f.bits - 1], sign)))


class Multiplier(Pipelined):
    """a * b, on three blocks of 18 by 18 bits for binary32, on one for significands of up to 18 bits."""

    def __init__(
        self, f: Format, latency: int | None = None, passed: int = 1, target: Literal["generic", "ecp5"] = "generic"
    ):
        if not 1 <= f.mantissa <= 23 or f.bias < f.mantissa + 2:
            raise ValueError(f"{f}: expected a mantissa of 1 to 23 bits, and a bias that is greater by 2 at least")
        super().__init__(f, latency, passed, target)

    @classmethod
    def steps(cls, f: Format) -> int:
        """As listed above."""
        return 14

    def _steps(self, pipe: Pipe) -> Step:
        s = self._order(pipe)
        s = self._multiply(pipe, self._normalise(pipe, s, "y"))
        return self._finish(pipe, s, s["upper"], s["lost"])

    def _order(self, pipe: Pipe) -> Step:
        """A subnormal operand comes second; the product of two is below half of the least number, and rounds to 0."""
        s = self._classes(pipe)
        significand_a, field_a, sign_a = self._parts(s, "a")
        significand_b, field_b, sign_b = self._parts(s, "b")
        zero = self._zero(s, "a") | self._zero(s, "b")
        infinite = s["a_ones"] | s["b_ones"]
        swap = ~s["a_some"]
        return pipe.cut(
            x=Mux(swap, significand_b, significand_a), y=Mux(swap, significand_a, significand_b), exponent=field_a + field_b,
            sign=sign_a ^ sign_b, nan=self._nan(s, "a") | self._nan(s, "b") | infinite & zero, infinite=infinite,
            zero=zero | swap & ~s["b_some"], p=s[PASSED],
        )  # fmt: skip

    def _one_block(self, pipe: Pipe, s: Step) -> Step:
        """The same where one block has the whole product: of f16 and bf16."""
        f = self.format
        product = self._block(pipe, "whole", s["x"], s["y"])
        exponents = [Signal(signed(f.exponent + 3), name=f"exponent_{n}") for n in range(2)]
        self._m.d.comb += exponents[0].eq(s["exponent"] - f.bias)
        s = pipe.cut(s, ("x", "y"), exponent=exponents[0])
        self._m.d.comb += exponents[1].eq(s["exponent"] - s["y_zeros"])
        s = pipe.cut(s, ("y_zeros",), exponent=exponents[1])
        s = pipe.cut(s, product=product)
        return pipe.cut(s, ("product",), upper=s["product"][1:], lost=s["product"][0])

    def _multiply(self, pipe: Pipe, s: Step) -> Step:
        """Three products of parts by blocks, whose registers end two steps, and the smallest one of rows; then their sum, of
        which the outer two do not overlap. The exponent is that of a product below 2."""
        f = self.format
        size = f.mantissa + 1
        if size <= WIDTH:
            return self._one_block(pipe, s)
        low = max(1, min(18, size - 3))  # what is lost of the lowest product is sticky only: rounding needs three bits more
        high = size - low
        x, y = s["x"], s["y"]
        blocks = {
            name: self._block(pipe, name, a, b)
            for name, a, b in (("low", x[:low], y[:low]), ("cross", x[:low], y[low:]), ("other", y[:low], x[low:]))
        }
        exponent = Signal(signed(f.exponent + 3))
        self._m.d.comb += exponent.eq(s["exponent"] - f.bias)
        s = pipe.cut(s, ("x", "y"), a=x[low:], b=y[low:], exponent=exponent)
        rows = [Mux(s["b"][k], Cat(Const(0, k), s["a"]), 0) for k in range(high)]
        halves = [sum(some, Const(0)) for some in (rows[: high // 2], rows[high // 2 :])]
        exponent = Signal(signed(f.exponent + 3))
        self._m.d.comb += exponent.eq(s["exponent"] - s["y_zeros"])
        s = pipe.cut(s, ("a", "b", "y_zeros"), first=halves[0], last=halves[1], exponent=exponent)
        s = pipe.cut(s, ("first", "last"), low=blocks["low"], middle=blocks["cross"] + blocks["other"],
                     high=(s["first"] + s["last"])[: 2 * high])  # fmt: skip
        upper = Cat(s["low"][low:], s["high"]) + s["middle"]
        return pipe.cut(s, ("low", "middle", "high"), upper=upper[: 2 * size - low], lost=s["low"][:low].any())
