"""The ends of a circuit: AXI4-Stream in and out, with registered outputs, a word in each clock."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.circuit.ram import Ram, Target


class StreamIn(wiring.Component):
    """What comes by tdata, tlast, tvalid, tready is offered as `data` and `last` while `valid`, until `take`."""

    def __init__(self, width: int):
        super().__init__(
            {
                "tdata": In(width), "tlast": In(1), "tvalid": In(1), "tready": Out(1, init=1),
                "data": Out(width), "last": Out(1), "valid": Out(1), "take": In(1),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        """Two words: that which is offered, and one that came when it could not go on. While the latter is there, tready
        is 0."""
        m = Module()
        offered, came = Cat(self.data, self.last), Cat(self.tdata, self.tlast)
        held = Signal.like(came)
        goes = self.take | ~self.valid
        with m.If(goes):
            m.d.sync += [offered.eq(Mux(self.tready, came, held)), self.valid.eq(self.tvalid | ~self.tready)]
        with m.If(self.tready):
            m.d.sync += held.eq(came)
        m.d.sync += self.tready.eq(goes | self.tready & ~self.tvalid)
        return m


class StreamOut(wiring.Component):
    """A queue: `data` and `last` go in with `write`, and come out by tdata, tlast, tvalid, tready, four clocks later at
    the earliest.

    If `room` is 1 in a clock, `reserve` words may be written in that clock and after it, whatever `room` is later, and
    whether or not any go out.  `depth` is a power of two; four words more may be on their way out.
    """

    def __init__(self, width: int, depth: int, reserve: int, target: Target = "generic"):
        if depth < 2 or depth & (depth - 1) or not 1 <= reserve <= depth:
            raise ValueError(f"depth={depth}, reserve={reserve}: expected a power of two, and at most as many words")
        self.width, self.depth, self.reserve, self.target = width, depth, reserve, target
        super().__init__(
            {
                "data": In(width), "last": In(1), "write": In(1), "room": Out(1),
                "tdata": Out(width), "tlast": Out(1), "tvalid": Out(1), "tready": In(1),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        """A memory with two registers behind it, which move together, and a `StreamIn`, so that what lets them move is a
        register.

        What is asked of the number of words is the sign of a counter, and so a register, too.
        """
        m = Module()
        m.submodules.ram = ram = Ram(self.width + 1, self.depth, 2, self.target)
        m.submodules.end = end = StreamIn(self.width)
        write, read = Signal(range(self.depth)), Signal(range(self.depth))
        rest = signed(self.depth.bit_length() + 1)
        more = Signal(rest, init=-1)  # words, less 1
        over = Signal(rest, init=self.reserve - self.depth - 1)  # the same, less those at which there is room
        coming, moves, reads = Signal(), Signal(), Signal()
        m.d.comb += [
            moves.eq(end.tready), reads.eq(moves & ~more[-1]), self.room.eq(over[-1]),
            ram.write_address.eq(write), ram.write_data.eq(Cat(self.data, self.last)), ram.write_enable.eq(self.write),
            ram.read_address.eq(read), ram.read_enable.eq(moves), Cat(end.tdata, end.tlast).eq(ram.read_data),
            self.tdata.eq(end.data), self.tlast.eq(end.last), self.tvalid.eq(end.valid),
            end.take.eq(self.tready & end.valid),
        ]  # fmt: skip
        m.d.sync += [more.eq(more + self.write - reads), over.eq(over + self.write - reads)]
        with m.If(self.write):
            m.d.sync += write.eq(write + 1)
        with m.If(reads):
            m.d.sync += read.eq(read + 1)
        with m.If(moves):
            m.d.sync += [coming.eq(reads), end.tvalid.eq(coming)]
        return m
