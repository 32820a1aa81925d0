"""A Wishbone master that moves words between memory and queues, a burst at a time."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from enum import IntEnum
from typing import Any

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

WORD = 32  # bits of a word on the bus
SELECTS = WORD // 8  # lines that say which bytes of a word are meant
ADDRESS = 30
"""Bits of an address on the bus, which counts words: 32 count the bytes of 4 GiB."""


class Cycle(IntEnum):
    """What a master says by CTI of the word that it asks for."""

    SINGLE = 0b000
    """It is the only one."""
    GOES_ON = 0b010
    """The next address follows in the next cycle."""
    LAST = 0b111
    """It is the last one of a burst."""


def master_ports() -> dict[str, Any]:
    """The bus as the master sees it; BTE is 0: addresses of a burst go on without wrapping."""
    return {
        "adr": Out(ADDRESS), "dat_w": Out(WORD), "dat_r": In(WORD), "sel": Out(SELECTS), "cyc": Out(1), "stb": Out(1),
        "we": Out(1), "cti": Out(3), "bte": Out(2), "ack": In(1), "err": In(1),
    }  # fmt: skip


class Master(wiring.Component):
    """Bursts for `reads` queues that words go into and, numbered after them, `writes` queues that they come from.

    While `request_N` is 1, queue N asks for a burst of `length_N` words from `address_N` on, which it has the room or the
    words for; in the clock with `begin_N` the master takes it over.  In each clock with `pass_N` a word passes: for a
    reading queue `dat_r`, for a writing one `word_N`.  Writing queues come first, and of two the one with the lesser number.

    `busy`: a burst is under way; with `hold` no further one begins.  `failed`: in this clock the bus answers `adr` with an
    error, which ends the burst.
    """

    def __init__(self, reads: int, writes: int, most: int):
        self.reads, self.queues, self.most = reads, reads + writes, most
        ports: dict[str, Any] = {"hold": In(1), "busy": Out(1), "failed": Out(1)}
        for n in range(self.queues):
            ports |= {
                f"request_{n}": In(1), f"address_{n}": In(ADDRESS), f"length_{n}": In(range(most + 1)),
                f"begin_{n}": Out(1), f"pass_{n}": Out(1),
            }  # fmt: skip
        ports |= {f"word_{n}": In(WORD) for n in range(reads, self.queues)}
        super().__init__(master_ports() | ports)

    def elaborate(self, platform: object) -> Module:
        """After each burst the bus is free for a clock, so that other masters get it."""
        m = Module()
        which, left, single = Signal(range(self.queues)), Signal(range(self.most)), Signal()  # words after this one
        passes, last = Signal(), Signal()
        m.d.comb += [
            self.cyc.eq(self.busy), self.stb.eq(self.busy), self.sel.eq((1 << SELECTS) - 1), last.eq(left == 0),
            self.failed.eq(self.busy & self.err), passes.eq(self.busy & self.ack & ~self.err),
        ]  # fmt: skip
        with m.If(single):
            m.d.comb += self.cti.eq(Cycle.SINGLE)
        with m.Elif(last):
            m.d.comb += self.cti.eq(Cycle.LAST)
        with m.Else():
            m.d.comb += self.cti.eq(Cycle.GOES_ON)
        if self.queues > self.reads:
            words = [getattr(self, f"word_{n}") for n in range(self.reads, self.queues)]
            m.d.comb += self.dat_w.eq(Array([*[words[0]] * self.reads, *words])[which])
        free: Any = ~self.busy & ~self.hold
        for n in [*range(self.reads, self.queues), *range(self.reads)]:
            request, length = getattr(self, f"request_{n}"), getattr(self, f"length_{n}")
            begin = getattr(self, f"begin_{n}")
            m.d.comb += [begin.eq(free & request), getattr(self, f"pass_{n}").eq(passes & (which == n))]
            with m.If(begin):
                m.d.sync += [
                    self.busy.eq(1), which.eq(n), self.we.eq(n >= self.reads), self.adr.eq(getattr(self, f"address_{n}")),
                    left.eq(length - 1), single.eq(length == 1),
                ]  # fmt: skip
            free &= ~request
        with m.If(passes):
            m.d.sync += [self.adr.eq(self.adr + 1), left.eq(left - 1), self.busy.eq(~last)]
        with m.If(self.failed):
            m.d.sync += self.busy.eq(0)
        return m
