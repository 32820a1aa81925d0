"""Gathers that need no pipeline: integer sums, least and greatest, and, or; within the cycle of the probe."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.layouts import MODE_BITS, VALUE_BITS, Dimensions, Mode
from upl_mlir.hw.fp.model import BINARY32


def f32_less(a: Value, b: Value) -> Value:
    """Whether a comes before b in the order of binary32 in which -0 is less than +0; neither is a NaN."""
    return Mux(a[-1] != b[-1], a[-1], Mux(a[-1], a[:31] > b[:31], a[:31] < b[:31]))


def f32_nan(a: Value) -> Value:
    """Whether a is a NaN."""
    return a[:31] > BINARY32.infinity


class InPlace(wiring.Component):
    """result (out) of `mode` (in) on left and right (in); overflow (out, 1) of an integer sum. Combinational."""

    def __init__(self, d: Dimensions):
        super().__init__(
            {
                "mode": In(MODE_BITS),
                "left": In(VALUE_BITS),
                "right": In(VALUE_BITS),
                "result": Out(VALUE_BITS),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One case an operator; a NaN wins over every number."""
        m = Module()
        a, b = self.left, self.right
        total = Signal(VALUE_BITS)
        m.d.comb += total.eq(a + b)
        nan = f32_nan(a) | f32_nan(b)
        less_f, less_i = Signal(), Signal()
        m.d.comb += [less_f.eq(f32_less(a, b)), less_i.eq(a.as_signed() < b.as_signed())]
        with m.Switch(self.mode):
            with m.Case(Mode.ADD_I32):
                m.d.comb += self.result.eq(total)
                m.d.comb += self.overflow.eq((a[-1] == b[-1]) & (total[-1] != a[-1]))
            with m.Case(Mode.MIN_F32):
                m.d.comb += self.result.eq(Mux(nan, BINARY32.nan, Mux(less_f, a, b)))
            with m.Case(Mode.MAX_F32):
                m.d.comb += self.result.eq(Mux(nan, BINARY32.nan, Mux(less_f, b, a)))
            with m.Case(Mode.MIN_I32):
                m.d.comb += self.result.eq(Mux(less_i, a, b))
            with m.Case(Mode.MAX_I32):
                m.d.comb += self.result.eq(Mux(less_i, b, a))
            with m.Case(Mode.AND_BOOL):
                m.d.comb += self.result.eq(a & b)
            with m.Case(Mode.OR_BOOL):
                m.d.comb += self.result.eq(a | b)
            with m.Case(Mode.XOR_BOOL):
                m.d.comb += self.result.eq(a ^ b)
        return m
