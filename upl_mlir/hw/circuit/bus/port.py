"""Between the bus and a port of a circuit: the bursts that the port takes, and a queue."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.circuit.bus.bursts import Bursts
from upl_mlir.hw.circuit.bus.layout import Walk
from upl_mlir.hw.circuit.bus.master import ADDRESS, WORD


class Port(wiring.Component):
    """`start` begins the walk over an array at the word `base`; `left`: there are bursts left.

    To the master, as `Master` says: `request`, `address`, `length`, `begin`, `passes`, and `word`, which comes from memory
    or goes there.  A burst is asked for when all its words are in the queue, or have room in it: so it never waits for the
    circuit, which may itself wait for the bus.  To the circuit: a stream of numbers of `bits` bits by `data`, `valid`,
    `ready`; `signed` numbers fill their words in memory up with their sign.
    """

    def __init__(self, walk: Walk, output: bool, bits: int, burst: int, signed: bool = False):
        self.walk, self.output, self.bits, self.burst, self.signed = walk, output, bits, burst, signed
        inward, outward = (In, Out) if output else (Out, In)
        super().__init__(
            {
                "start": In(1), "base": In(ADDRESS), "left": Out(1),
                "request": Out(1), "address": Out(ADDRESS), "length": Out(range(walk.full + 1)), "begin": In(1),
                "passes": In(1), "word": outward(WORD),
                "data": inward(bits), "valid": inward(1), "ready": outward(1),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        """The queue has room for two bursts: one passes on one side while the other one does on the other side."""
        m = Module()
        m.submodules.bursts = bursts = Bursts(self.walk, ADDRESS)
        m.submodules.queue = queue = SyncFIFOBuffered(width=self.bits, depth=2 * self.burst)
        if self.output:
            fits = queue.r_level >= bursts.length
            m.d.comb += [
                queue.w_data.eq(self.data), queue.w_en.eq(self.valid), self.ready.eq(queue.w_rdy),
                queue.r_en.eq(self.passes), self.word.eq(queue.r_data.as_signed() if self.signed else queue.r_data),
            ]  # fmt: skip
        else:
            fits = queue.w_level <= self.burst
            m.d.comb += [
                queue.w_data.eq(self.word), queue.w_en.eq(self.passes),
                self.data.eq(queue.r_data), self.valid.eq(queue.r_rdy), queue.r_en.eq(self.ready),
            ]  # fmt: skip
        m.d.comb += [
            bursts.start.eq(self.start), bursts.base.eq(self.base), bursts.take.eq(self.begin), self.left.eq(bursts.valid),
            self.request.eq(bursts.valid & fits), self.address.eq(bursts.address), self.length.eq(bursts.length),
        ]  # fmt: skip
        return m
