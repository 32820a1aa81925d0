"""The head of a circuit: takes words from the input ports and decides in each clock whether a slot passes.

A slot passes if there is room for what it may send and every word is there that the next group of iterations needs.  A run
begins when the words of its first groups are there.  Between runs slots pass freely, so that what is under way comes out.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from amaranth.hdl import Const, Module, Mux, Signal, Value

from upl_mlir.hw.circuit.blocks import Window
from upl_mlir.hw.circuit.control import Marks, Tally, delayed, loop_nest, walked
from upl_mlir.hw.circuit.loops import LoopNest
from upl_mlir.hw.circuit.ram import Target
from upl_mlir.hw.circuit.streams import StreamIn
from upl_mlir.hw.circuit.wires import Fed, Wires
from upl_mlir.passes.circuit.channels.inputs import Input, awaited
from upl_mlir.passes.circuit.placed import LEAD
from upl_mlir.passes.circuit.plan import Plan

BEHIND = 3
"""Words that may be taken before `open` knows of them: a clock each for `came`, `change`, and `room`."""


@dataclass(frozen=True, eq=False)
class _Entry:
    """An input at the head: whether it has the words of the next group."""

    enough: Value
    needs: Value
    """A group ends in this slot, or the first one of a process that starts later than the circuit begins after it."""
    awaited: bool
    """A run does not begin before they are there."""


class Head:
    """Builds the module of the head.

    A nest of counters leads: that of a process which starts with the circuit.  The others start so many slots later as
    their processes do.
    """

    def __init__(self, plan: Plan, wires: Sequence[Wires], streams: Sequence[StreamIn], room: Value, target: Target):
        self.plan, self.wires, self.streams, self.room, self.target = plan, wires, streams, room, target
        self.m = m = Module()
        self.go, self.start = Signal(), Signal()
        self.starts: dict[int, Value] = {}
        leader = min(range(len(plan.parts)), key=lambda n: plan.parts[n].nest.start)
        self.leads = {n: part.nest.start == 0 for n, part in enumerate(plan.parts)}
        wanted = {leader, *(i.by for i in plan.inputs), *(f.feed.part for w in wires for f in w.feeds if f.feed.shared)}
        before, at = self.start, 0
        for n in sorted(range(len(plan.parts)), key=lambda n: plan.parts[n].nest.start):
            slots = plan.parts[n].nest.start - at
            if slots:
                m.submodules[f"start_{n}"] = mark = Marks(slots - 1, target)
                m.d.comb += [mark.mark.eq(before), mark.enable.eq(self.go)]
                before = delayed(m, mark.later, 1, self.go, f"begins_{n}")  # a register: `go` waits for some of them
                at += slots
            self.starts[n] = before
        self.nests: dict[int, LoopNest] = {}
        for n in sorted(wanted):
            self.nests[n] = nest = loop_nest(plan.parts[n].nest, plan.slots)
            m.submodules["nest" if n == leader else f"nest_{n}"] = nest
        self.leader = self.nests[leader]

    def build(self) -> Module:
        """The whole module."""
        m = self.m
        active = Signal()
        free = self.leader.last | ~active
        entries = [self._entry(i, s, n) for n, (i, s) in enumerate(zip(self.plan.inputs, self.streams, strict=True))]
        m.d.comb += [
            self.go.eq(reduce(and_, [e.enough | ~e.needs for e in entries], self.room)),
            self.start.eq(self.go & free & reduce(and_, [e.enough for e in entries if e.awaited], Const(1))),
        ]  # fmt: skip
        for n, nest in self.nests.items():
            m.d.comb += [nest.enable.eq(self.go), nest.start.eq(self.starts[n])]
        with m.If(self.go & free):
            m.d.sync += active.eq(self.start)
        for n, wires in enumerate(self.wires):
            m.d.sync += [wires.enable[0].eq(self.go), wires.start[0].eq(self.starts[n])]
        for n, s in enumerate(self.plan.streams):
            strobe, word = self.wires[s.sent.part].sent[s.sent][-1]
            (fed,) = [f for f in self.wires[s.feed.part].feeds if f.feed is s.feed]
            self._pass(fed, strobe, word, f"stream_{n}")
        return m

    def _entry(self, i: Input, stream: StreamIn, n: int) -> _Entry:
        """Words are taken while there is room.

        `more` are the words that have come beyond those of the next group, `room` the places that are free, less `BEHIND`
        and one: what is asked of them is their sign, a register.  `open` is that sign a clock later, a register beside the
        port, so that no path leads from a counter to the port and back.
        """
        m, nest, first = self.m, self.nests[i.by], self.leads[i.by]
        size = i.size
        m.submodules[f"need_{n}"] = need = Tally(i.need, ahead=True)
        m.submodules[f"free_{n}"] = freed = Tally(i.need if i.held else i.free)
        most = max(w for _, w in i.need.runs)
        more = Signal(range(-most, size + 1), init=-i.need.runs[0][1], name=f"more_{n}")
        begin = size - 1 - BEHIND
        room, take = Signal(range(-1 - BEHIND, size), init=begin, name=f"room_{n}"), Signal(name=f"take_{n}")
        change = Signal(range(-1, max(w for _, w in (i.need if i.held else i.free).runs) + 1), name=f"change_{n}")
        open_ = Signal(init=begin >= 0, name=f"open_{n}")
        start = self.starts[i.by]
        needs, ends = self._boundary(nest, i.need.level), self._boundary(nest, i.free.level) | nest.steps & nest.carry[-1]
        m.submodules[f"late_{n}"] = gone = Marks(i.after, self.target)
        m.d.comb += [
            take.eq(stream.valid & open_), stream.take.eq(take),
            need.event.eq(self.go & (needs | start)),
            gone.mark.eq(needs | start if i.held else ends), gone.enable.eq(self.go),
            freed.event.eq(self.go & gone.later),
        ]  # fmt: skip
        came = Signal(name=f"came_{n}")  # a word counts a clock after it was taken
        m.d.sync += [
            came.eq(take), open_.eq(~room[-1]),
            more.eq(Mux(need.event, more + came - need.words, more + came)),
            change.eq(Mux(freed.event, freed.words, 0) - came), room.eq(room + change),
        ]  # fmt: skip
        for k, f in enumerate(i.feeds):
            self._pass(Fed(f, i.places(f), i.words, i.held), take, stream.data, f"{n}_{k}" if len(i.feeds) > 1 else f"{n}")
        return _Entry(~more[-1], needs if first else needs | start, i in awaited(self.plan.inputs, self.plan.parts))

    def _boundary(self, nest: LoopNest, level: int) -> Any:
        """Whether an iteration of a loop outside of loop `level` ends in this slot, and another one begins."""
        return nest.steps & nest.carry[:level].any() if level else Const(0)

    def _pass(self, fed: Fed, take: Value, data: Value, name: str) -> None:
        """To the lanes' own windows, or by a window here to all lanes."""
        m, f = self.m, fed.feed
        wires, lanes = self.wires[f.part], self.plan.parts[f.part].nest.lanes
        if not f.shared:
            strobe, word, lane = wires.own[f][0]
            m.d.sync += [strobe.eq(take), word.eq(data)]
            if f.dealt and lanes > 1:
                count = Signal.like(lane, name=f"lane_{name}")
                m.d.sync += lane.eq(count)
                with m.If(take):
                    m.d.sync += count.eq(count + 1)
                    with m.If(count == lanes - 1):
                        m.d.sync += count.eq(0)
            return
        wide = len(self.plan.parts) > 1
        for k, r in enumerate(f.reads):
            m.submodules[f"window_{name}_{k}"] = window = Window(self.plan.numbers.width, fed.window, self.target, wide=wide)
            slots = LEAD + r.site.stage - Window.LATENCY
            address = walked(
                m, r.at, 0, fed.words, fed.window, self.nests[f.part], self.go, slots, f"walk_{name}_{k}", self.target
            )
            m.d.comb += [
                window.write.eq(take), window.data_in.eq(data), window.read_enable.eq(self.go),
                window.read_address.eq(address),
            ]  # fmt: skip
            m.d.sync += wires.shared[r][0].eq(window.data_out)
