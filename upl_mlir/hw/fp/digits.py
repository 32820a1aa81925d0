"""Division and square root at high clocks: an operation a cycle, a digit of the result in each step.

    divider     classes | order | zeros | zeros | shift | shift | a digit in each of mantissa + 3 | rest | one place | tiny |
                align | align | round
    root        classes | zeros | zeros | shift | shift | first digit | a digit in each of mantissa + 1 | round

Rests are not restored: where one is below zero, the next step adds what it would have subtracted. The digits, which are the
signs of the rests, are those of division with restoring.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Cat, Const, Mux, Signal, signed

from upl_mlir.hw.fp.model import Format
from upl_mlir.hw.fp.pipe import PASSED, Pipe, Pipelined, Step


class Divider(Pipelined):
    """a / b."""

    @classmethod
    def steps(cls, f: Format) -> int:
        """As listed above."""
        return f.mantissa + 15

    def _steps(self, pipe: Pipe) -> Step:
        s = self._digits(pipe, self._normalise(pipe, self._order(pipe), "a", "b"))
        # What is left of the dividend, or so much less by the divisor; 0 says that the quotient is exact.
        rest = (s["rest"] + Mux(s["rest"][-1], s["b"], 0))[: len(s["b"])]
        quotient = Cat(~s["rest"][-1], s["quotient"])
        s = pipe.cut(s, ("rest", "b", "quotient"), lost=rest, quotient=quotient)
        return self._finish(pipe, s, s["quotient"], s["lost"].any())

    def _order(self, pipe: Pipe) -> Step:
        """What the result is if it is no quotient of two numbers; the exponent is that of a quotient below 1."""
        s = self._classes(pipe)
        (a, field_a, sign_a), (b, field_b, sign_b) = self._parts(s, "a"), self._parts(s, "b")
        zero_a, zero_b = self._zero(s, "a"), self._zero(s, "b")
        both = s["a_ones"] & s["b_ones"] | zero_a & zero_b
        exponent = Signal(signed(self.format.exponent + 3))
        self._m.d.comb += exponent.eq(field_a - field_b)
        return pipe.cut(
            a=a, b=b, exponent=exponent, sign=sign_a ^ sign_b, nan=self._nan(s, "a") | self._nan(s, "b") | both,
            infinite=s["a_ones"] | zero_b, zero=zero_a | s["b_ones"], p=s[PASSED],
        )  # fmt: skip

    def _digits(self, pipe: Pipe, s: Step) -> Step:
        """The first step ends with the operands normalised; from then on there is a rest, between -b and b."""
        f = self.format
        exponents = [Signal(signed(f.exponent + 3), name=f"exponent_{n}") for n in range(3)]
        self._m.d.comb += exponents[0].eq(s["exponent"] + s["b_zeros"])
        s = pipe.cut(s, ("b_zeros",), a=s["a"], b=s["b"], exponent=exponents[0])
        self._m.d.comb += exponents[1].eq(s["exponent"] - s["a_zeros"])
        rest, width = s["a"] - s["b"], f.mantissa + 2
        s = pipe.cut(s, ("a", "a_zeros"), rest=rest[:width], exponent=exponents[1])
        self._m.d.comb += exponents[2].eq(s["exponent"] + (f.bias - 1))
        s = s | {"exponent": exponents[2]}
        for n in range(f.mantissa + 2):
            positive = ~s["rest"][-1]
            rest = Cat(Const(0, 1), s["rest"]) + (Cat(s["b"], Const(0, 2)) ^ positive.replicate(width + 1)) + positive
            quotient = Cat(positive, s["quotient"]) if n else positive
            s = pipe.cut(s, rest=rest[:width], quotient=quotient)
        return s


class SquareRoot(Pipelined):
    """The square root of a. No root lies in the middle of two numbers: one digit more says how to round."""

    @classmethod
    def steps(cls, f: Format) -> int:
        """As listed above."""
        return f.mantissa + 8

    @classmethod
    def operands(cls, f: Format) -> dict[str, int]:
        """One."""
        return {"a": f.bits}

    def _steps(self, pipe: Pipe) -> Step:
        f = self.format
        s = self._digits(pipe, self._begin(pipe))
        root = pipe.named(Cat(~s["rest"][-1], s["root"]), "whole")
        number = Cat(root[1 : 1 + f.mantissa], s["field"]) + root[0]
        return pipe.cut(p=s[PASSED], result=self._special(number[: f.bits - 1], s["sign"], s["nan"]))

    def _begin(self, pipe: Pipe) -> Step:
        """Of an odd exponent the lowest bit goes to the number, which is below 4 then; of what is no number the root is that
        of 1, so that only field, sign and NaN count."""
        f = self.format
        s, (significand, field, sign), zero, nan = self._not_below_zero(pipe)
        s = self._normalise(pipe, {
            "value": pipe.named(significand, "significand"), "field": pipe.named(field + f.bias, "field"),
            "sign": sign, "nan": pipe.named(nan, "nan"), "zero": pipe.named(zero, "zero"),
            "infinite": pipe.named(s["a_ones"] | nan, "infinite"), PASSED: s[PASSED],
        }, "value")  # fmt: skip
        # Half of the exponent, with the bias again: (field + bias) / 2.
        twice = (s["field"] - s["value_zeros"])[: f.exponent + 1]
        s = pipe.cut(s, ("value_zeros",), value=s["value"], field=twice)
        odd = s["field"][0]
        other = s["zero"] | s["infinite"]
        wide = Mux(odd, Cat(Const(0, 1), s["value"]), s["value"])
        wide = pipe.named(Mux(other, 1 << f.mantissa, wide)[: f.mantissa + 2], "wide")
        field = Mux(s["infinite"], f.exponent_ones, Mux(s["zero"], 0, s["field"][1:]))[: f.exponent]
        # The first digit is 1.
        first = Mux(wide[-1], Mux(wide[-2], 2, 1), 0)[:2]
        return pipe.cut(p=s[PASSED], sign=s["sign"], nan=s["nan"], field=field, left=wide[:-2],
                        rest=Cat(first, Const(0, 1)))  # fmt: skip

    def _digits(self, pipe: Pipe, s: Step) -> Step:
        """Two digits of the number come down for one of the root; with n digits of it the rest has n + 2 bits."""
        for n in range(1, self.format.mantissa + 2):
            positive = ~s["rest"][-1]
            root = Cat(positive, s["root"]) if n > 1 else Const(1, 1)
            left = s["left"] if "left" in s else Const(0, 0)
            down = Cat(Const(0, max(0, 2 - len(left))), left[-2:])
            # 4 * root + 1 is subtracted, or 4 * root + 3 added: in both ways the last two bits are 1.
            other = Cat(Const(3, 2), root ^ positive.replicate(n), positive)
            rest = Cat(down, s["rest"]) + Cat(other, positive)
            more = {"left": left[:-2]} if len(left) > 2 else {}
            s = pipe.cut(s, ("left",), rest=rest[: n + 3], root=root, **more)
        return s
