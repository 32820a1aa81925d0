"""What networks are made of: links that hold what they cannot deliver, and switches with fair arbiters."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import Out
from amaranth.utils import bits_for

from upl_mlir.hw.ports import queue_ends


class Link(wiring.Component):
    """w_*: tokens in; r_*: tokens out, `cycles` later or more; `depth` of them may be under way. Ready and valid depend on
    registers only. free (out): how many more it would take; used (out): how many are inside.
    """

    def __init__(self, width: int, depth: int, cycles: int):
        self.width, self.depth, self.cycles = width, depth, cycles
        super().__init__(
            {
                **queue_ends(width),
                "free": Out(range(depth + 1), init=depth),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A delay, a queue at the end, and credits at the beginning."""
        m = Module()
        m.submodules.fifo = fifo = SyncFIFO(width=self.width, depth=self.depth)
        goes, leaves, credit = Signal(), Signal(), Signal()
        m.d.comb += [
            self.w_ready.eq(self.free != 0),
            goes.eq(self.w_valid & self.w_ready),
            self.r_valid.eq(fifo.r_rdy),
            self.r_data.eq(fifo.r_data),
            fifo.r_en.eq(self.r_ready),
            leaves.eq(self.r_valid & self.r_ready),
        ]
        valid, what, back = goes, self.w_data, leaves
        for stage in range(self.cycles - 1):
            next_valid, next_back = Signal(name=f"valid{stage}"), Signal(name=f"back{stage}")
            next_what = Signal(self.width, name=f"data{stage}")
            m.d.sync += [next_valid.eq(valid), next_what.eq(what), next_back.eq(back)]
            valid, what, back = next_valid, next_what, next_back
        m.d.comb += [fifo.w_en.eq(valid), fifo.w_data.eq(what), credit.eq(back)]
        m.d.sync += self.free.eq(self.free - goes + credit)
        return m


@dataclass(frozen=True)
class Source:
    """Where a switch takes tokens from: whether there is one, the token, the number of the output it wants (one-hot, a bit
    an output), and the signal that tells that it was taken."""

    valid: Value
    payload: Value
    wants: Value
    taken: Signal


@dataclass(frozen=True)
class Sink:
    """Where a switch puts tokens: whether one comes, the token, and whether it is taken; and which sources have to leave
    room for others (`modest`), and whether there is room for these (`roomy`)."""

    valid: Signal
    payload: Signal
    ready: Value
    modest: Container[int] = ()
    roomy: Value | None = None


def switch(
    m: Module, name: str, sources: Sequence[Source], sinks: Sequence[Sink], paths: Container[tuple[int, int]]
) -> None:
    """Join sources with sinks, along `paths` (source, sink) only: each sink takes turns among those who want it."""
    taken: list[list[Value]] = [[] for _ in sources]
    for n, sink in enumerate(sinks):
        callers = [s for s in range(len(sources)) if (s, n) in paths]
        asks = Signal(len(callers), name=f"{name}_asks{n}")
        for k, s in enumerate(callers):
            allowed = sink.roomy if s in sink.modest and sink.roomy is not None else 1
            m.d.comb += asks[k].eq(sources[s].valid & sources[s].wants[n] & allowed)
        grants = turns(m, f"{name}_{n}", asks, sink.ready)
        payload: Value = sources[callers[0]].payload
        for k, s in list(enumerate(callers))[1:]:
            payload = Mux(grants[k], sources[s].payload, payload)
        m.d.comb += [sink.valid.eq(asks.any()), sink.payload.eq(payload)]
        for k, s in enumerate(callers):
            taken[s].append(grants[k] & sink.ready)
    for source, by in zip(sources, taken, strict=True):
        m.d.comb += source.taken.eq(Cat(*by).any())


def turns(m: Module, name: str, asks: Value, ready: Value) -> Value:
    """One bit of `asks`, or none if there is none: in turns, the next one when the one before is taken (`ready`)."""
    count = len(asks)
    if count == 1:
        return asks
    last = Signal(count, name=f"{name}_last")  # the bits above the one that was granted last
    grants = Signal(count, name=f"{name}_grants")
    above = Signal(count, name=f"{name}_above")
    m.d.comb += [
        above.eq(asks & last),
        grants.eq(Mux(above.any(), above & (~above + 1)[:count], asks & (~asks + 1)[:count])),
    ]
    with m.If(asks.any() & ready):
        m.d.sync += last.eq(~(grants | (grants - 1)[:count]))
    return grants


def one_hot(m: Module, name: str, number: Value, count: int) -> Signal:
    """A bit for each number below `count`."""
    out = Signal(count, name=name)
    m.d.comb += out.eq(Cat(*(number == n for n in range(count))))
    return out


def count_bits(bits: Sequence[Value], name: str, m: Module) -> Signal:
    """How many of the bits are 1."""
    out = Signal(bits_for(len(bits)), name=name)
    total: Value = bits[0]
    for bit in bits[1:]:
        total = total + bit
    m.d.comb += out.eq(total)
    return out
