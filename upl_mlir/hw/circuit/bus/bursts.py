"""The addresses of a port: which burst is the next one, by counters and one adder."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.circuit.bus.layout import Walk
from upl_mlir.hw.circuit.loops import LoopNest


class Bursts(wiring.Component):
    """The bursts of a walk, one after the other: while `valid`, one of `length` words from `address` on is offered, until
    `take`.

    `start` begins a run at the array's first word `base`; it is ignored while there are bursts left.  Addresses count
    words and have `bits` bits.
    """

    def __init__(self, walk: Walk, bits: int):
        self.walk = walk
        super().__init__(
            {
                "start": In(1), "base": In(bits), "take": In(1),
                "valid": Out(1), "address": Out(bits), "length": Out(range(walk.full + 1)),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        """A step of loop k adds its stride, less what the loops inside have added."""
        m = Module()
        loops = self.walk.loops
        m.submodules.nest = nest = LoopNest([n for n, _ in loops], [0] * len(loops))
        m.d.comb += [
            nest.start.eq(self.start & ~self.valid), nest.enable.eq(self.take | ~self.valid), self.valid.eq(nest.running),
            self.length.eq(self.walk.full if not loops else Mux(nest.carry[len(loops) - 1], self.walk.full, self.walk.rest)),
        ]  # fmt: skip
        step = Const(0, len(self.address))
        inner = 0
        for k, (n, stride) in reversed([*enumerate(loops)]):
            step = Mux(nest.carry[k], Const(stride - inner, len(self.address)), step)
            inner += (n - 1) * stride
        with m.If(~self.valid):
            m.d.sync += self.address.eq(self.base + self.walk.offset)
        with m.Elif(self.take):
            m.d.sync += self.address.eq(self.address + step)
        return m
