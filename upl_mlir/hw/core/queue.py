"""The token queue of a core: short and fast, and behind it a backing memory of its own, so that it always takes tokens.

Tokens leave in the order in which they came. While some are in the backing memory, new ones go there too, and the front
is filled from there: reads are pipelined, so that only the first one is waited for.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from upl_mlir.hw.ports import queue_ends


def following(place: Signal, words: int):
    """The place after this one in a ring of `words`."""
    return Mux(place == words - 1, 0, place + 1)


class TokenQueue(wiring.Component):
    """w_*: tokens in; r_*: tokens out; ready and valid depend on registers only.

    level (out): tokens that wait; spilling (out): one goes to the backing memory in this cycle. full (out): there is no
    room for the token that is offered, which never changes if nothing leaves. used_words, cycles (in): how much of the
    backing memory is used, and the latency of a read, up to `words` and `latency`.
    """

    def __init__(self, width: int, front: int, words: int, latency: int):
        assert front > 2, "a queue of 2 takes nothing in the cycle in which its second token moves up"
        self.width, self.front, self.words, self.latency = width, front, words, latency
        super().__init__(
            {
                **queue_ends(width),
                "level": Out(range(front + words + 1)),
                "spilling": Out(1),
                "full": Out(1),
                "used_words": In(range(words + 1), init=words),
                "cycles": In(range(latency + 1), init=latency),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A queue in front, a ring of words behind it, and reads of the ring under way."""
        m = Module()
        words = self.words
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=self.width, depth=self.front)
        m.submodules.backing = backing = Memory(shape=self.width, depth=words, init=[])
        write, read = backing.write_port(), backing.read_port()
        head, tail = Signal(range(words)), Signal(range(words))
        held = Signal(bits_for(words))  # tokens in the backing memory that have not been asked for
        asked = Signal(bits_for(self.front))  # reads under way
        pipeline = Signal(self.latency)  # a bit for each
        last, before = Signal(range(self.latency + 1)), Signal(range(self.latency + 1))
        direct, room = Signal(), Signal()
        m.d.comb += [direct.eq((held == 0) & (asked == 0) & fifo.w_rdy), room.eq(held + asked < self.used_words)]
        spill, ask, arrives = Signal(), Signal(), Signal()
        m.d.comb += [
            self.w_ready.eq(direct | room),
            spill.eq(self.w_valid & ~direct & room),
            ask.eq((held != 0) & (fifo.level + asked < self.front)),
            last.eq(self.cycles - 1),
            before.eq(self.cycles - 2),
            arrives.eq(pipeline.bit_select(last, 1)),
            write.en.eq(spill),
            write.addr.eq(tail),
            write.data.eq(self.w_data),
            read.addr.eq(head),
            read.en.eq(1),
            fifo.w_en.eq(arrives | (direct & self.w_valid)),
            fifo.w_data.eq(Mux(arrives, read.data, self.w_data)),
            self.r_valid.eq(fifo.r_rdy),
            self.r_data.eq(fifo.r_data),
            fifo.r_en.eq(self.r_ready),
            self.level.eq(fifo.level + held + asked),
            self.spilling.eq(spill),
            self.full.eq(self.w_valid & ~self.w_ready),
        ]
        # The word is read when its latency is over, a cycle before it goes on.
        due = Mux(self.cycles == 1, ask, pipeline.bit_select(before, 1))
        m.d.sync += [
            pipeline.eq(Cat(ask, pipeline)),
            held.eq(held + spill - ask),
            asked.eq(asked + ask - arrives),
        ]
        with m.If(spill):
            m.d.sync += tail.eq(following(tail, words))
        with m.If(due):
            m.d.sync += head.eq(following(head, words))
        return m
