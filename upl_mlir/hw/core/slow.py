"""The iterative units behind one door: division, square root, and Euclidean division of integers, one at a time."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.alu import Code
from upl_mlir.hw.core.layouts import REGISTER_BITS, Dimensions, Failure
from upl_mlir.hw.fp.iterative import Divider, IntegerDivider, SquareRoot
from upl_mlir.hw.fp.model import BINARY32


class SlowUnit(wiring.Component):
    """start (in): an operation for `context`; if the unit is busy, refused (out) has the context's bit and it must come
    again. valid (out): a result is there until take (in). failure (out): of the operation that ends."""

    def __init__(self, d: Dimensions):
        self.d = d
        super().__init__(
            {
                "start": In(1),
                "code": In(Code),
                "a": In(32),
                "b": In(32),
                "context": In(d.context_bits),
                "register": In(REGISTER_BITS),
                "last": In(1),
                "refused": Out(d.contexts),
                "valid": Out(1),
                "result": Out(32),
                "out_context": Out(d.context_bits),
                "out_register": Out(REGISTER_BITS),
                "out_last": Out(1),
                "take": In(1),
                "failure": Out(Failure),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """ceildiv is floordiv, one more where a rest is left; the remainder is floordiv's."""
        d = self.d
        m = Module()
        m.submodules.divider = divider = Divider(BINARY32, d.div_cycles)
        m.submodules.root = root = SquareRoot(BINARY32, d.sqrt_cycles)
        m.submodules.integer = integer = IntegerDivider(32, d.div_cycles)
        busy = Signal()
        code = Signal(Code)
        zero, lowest = Signal(), Signal()
        m.d.comb += self.refused.eq(Mux(self.start & busy, 1 << self.context, 0))
        begin = self.start & ~busy
        real = (self.code == Code.DIV_F32) | (self.code == Code.SQRT_F32)
        m.d.comb += [
            divider.a.eq(self.a), divider.b.eq(self.b), divider.start.eq(begin & (self.code == Code.DIV_F32)),
            root.a.eq(self.a), root.start.eq(begin & (self.code == Code.SQRT_F32)),
            integer.a.eq(self.a), integer.b.eq(self.b), integer.start.eq(begin & ~real),
        ]  # fmt: skip
        with m.If(begin):
            m.d.sync += [
                busy.eq(1), code.eq(self.code), self.out_context.eq(self.context), self.out_register.eq(self.register),
                self.out_last.eq(self.last), zero.eq(~real & (self.b == 0)),
                # The one quotient that does not fit.
                lowest.eq((self.code != Code.MOD_I32) & ~real & (self.a == 1 << 31) & (self.b == (1 << 32) - 1)),
            ]  # fmt: skip
        done = divider.done | root.done | integer.done
        value = Signal(32)
        with m.Switch(code):
            with m.Case(Code.DIV_F32):
                m.d.comb += value.eq(divider.result)
            with m.Case(Code.SQRT_F32):
                m.d.comb += value.eq(root.result)
            with m.Case(Code.FLOORDIV_I32):
                m.d.comb += value.eq(integer.result)
            with m.Case(Code.CEILDIV_I32):
                m.d.comb += value.eq(integer.result + (integer.rest != 0))
            with m.Default():
                m.d.comb += value.eq(integer.rest)
        with m.If(done):
            m.d.sync += [self.valid.eq(1), self.result.eq(value)]
            with m.If(zero):
                m.d.comb += self.failure.eq(Failure.DIVISION)
            with m.Elif(lowest):
                m.d.comb += self.failure.eq(Failure.OVERFLOW)
        with m.Elif(self.take):
            m.d.sync += [self.valid.eq(0), busy.eq(Const(0, 1))]
        return m
