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
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from upl_mlir.hw.circuit.blocks import Window
from upl_mlir.hw.circuit.control import Marks, Permits, Tally, delayed, loop_nest, walked
from upl_mlir.hw.circuit.loops import LoopNest
from upl_mlir.hw.circuit.ram import Target, copied
from upl_mlir.hw.circuit.streams import StreamIn
from upl_mlir.hw.circuit.wires import Fed, Wires
from upl_mlir.passes.circuit.channels.inputs import Input, awaited
from upl_mlir.passes.circuit.placed import LEAD
from upl_mlir.passes.circuit.plan import Plan

BEHIND = 3
"""Words that may be taken before `open` knows of them: a clock each for `came`, `change`, and `room`."""


class Head:
    """Builds the module of the head.

    Whether a slot passes is decided from a few registers: each input counts its words on its own (`Permits`).  The decision
    goes to a register for each process, which serves its part of the head and its lanes: there a slot passes a clock later.
    """

    def __init__(self, plan: Plan, wires: Sequence[Wires], streams: Sequence[StreamIn], room: Value, target: Target):
        self.plan, self.wires, self.streams, self.room, self.target = plan, wires, streams, room, target
        self.m = m = Module()
        self.go, self.start, self.busy = Signal(), Signal(), Signal()
        """Whether a slot passes; whether it is the one before a run's first one; whether a run needs it."""
        begun = Signal(2, name="begun")
        m.d.sync += begun.eq(Cat(self.start, self.busy))
        self.starts: dict[int, Value] = {}
        self.wanted: dict[int, Value] = {}
        before, at, now = begun, 0, self.busy
        for n in sorted(range(len(plan.parts)), key=lambda n: plan.parts[n].nest.start):
            slots = plan.parts[n].nest.start - at
            if slots:
                went = copied(m, self.go, f"went_to_{n}")
                m.submodules[f"start_{n}"] = mark = Marks(max(0, slots - 2), target, 2)
                m.d.comb += [mark.mark.eq(before), mark.enable.eq(went)]
                # What is decided waits for these bits, so they come from a register, not from a memory.
                coming = delayed(m, mark.later, min(1, slots - 1), went, f"coming_{n}")
                before = delayed(m, coming, 1, went, f"begins_{n}")
                at += slots
                now = Mux(went, coming[1], before[1])
            self.starts[n], self.wanted[n] = before[0], now
        self.nests: dict[int, LoopNest] = {}
        counted = {n for i in plan.inputs for n in (i.by, i.until)}
        for n in sorted(counted | {f.feed.part for w in wires for f in w.feeds if f.feed.shared}):
            self.nests[n] = nest = loop_nest(plan.parts[n].nest, plan.slots)
            m.submodules[f"nest_{n}"] = nest
            m.d.comb += [nest.enable.eq(wires[n].went), nest.start.eq(self.starts[n])]

    def build(self) -> Module:
        """The whole module."""
        m, plan = self.m, self.plan
        m.submodules.run = run = LoopNest([plan.slots], [0])
        free = run.last | ~run.running
        begins, goes = Const(1), self.room
        for n, (i, stream) in enumerate(zip(plan.inputs, self.streams, strict=True)):
            ready, first = self._entry(i, stream, n)
            if i in awaited(plan.inputs, plan.parts):
                begins &= first
            goes &= ready | (free if not plan.parts[i.by].nest.start else ~self.wanted[i.by])
        m.d.comb += [
            self.go.eq(goes), self.busy.eq(~free | begins), self.start.eq(goes & free & begins),
            run.enable.eq(self.go), run.start.eq(self.start),
        ]  # fmt: skip
        for n, wires in enumerate(self.wires):
            m.d.sync += [wires.went.eq(self.go), wires.enable[0].eq(wires.went), wires.start[0].eq(self.starts[n])]
        for n, s in enumerate(plan.streams):
            strobe, word = self.wires[s.sent.part].sent[s.sent][-1]
            (fed,) = [f for f in self.wires[s.feed.part].feeds if f.feed is s.feed]
            self._pass(fed, strobe, word, f"stream_{n}")
        return m

    def _entry(self, i: Input, stream: StreamIn, n: int) -> tuple[Value, Value]:
        """Whether the words are there that the next slot of the process needs, and those that the next run begins with.
        Words are taken while there is room.

        `room` are the places that are free, less `BEHIND` and one: what is asked of them is their sign, a register.  `open`
        is that sign a clock later, a register beside the port, so that no path leads from a counter to the port and back.
        """
        m, nest, went = self.m, self.nests[i.until], self.wires[i.until].went
        size = i.size
        m.submodules[f"need_{n}"] = need = Permits(self.plan.parts[i.by].nest, self.plan.slots, i.need, size)
        m.submodules[f"free_{n}"] = freed = Tally(i.need if i.held else i.free)
        begin = size - 1 - BEHIND
        room, take = Signal(range(-1 - BEHIND, size), init=begin, name=f"room_{n}"), Signal(name=f"take_{n}")
        change = Signal(range(-1, max(w for _, w in (i.need if i.held else i.free).runs) + 1), name=f"change_{n}")
        open_ = Signal(init=begin >= 0, name=f"open_{n}")
        if i.held:
            mark = self._boundary(nest, i.need.level) | self.starts[i.by]
        else:
            mark = self._boundary(nest, i.free.level) | nest.steps & nest.carry[-1]
        m.submodules[f"late_{n}"] = gone = Marks(i.after, self.target)
        m.d.comb += [
            take.eq(stream.valid & open_), stream.take.eq(take),
            need.takes.eq(take), need.passes.eq(self.go & self.wanted[i.by]),
            gone.mark.eq(mark), gone.enable.eq(went), freed.event.eq(went & gone.later),
        ]  # fmt: skip
        came = Signal(name=f"came_{n}")
        m.d.sync += [
            came.eq(take), open_.eq(~room[-1]), change.eq(Mux(freed.event, freed.words, 0) - came), room.eq(room + change),
        ]  # fmt: skip
        for k, f in enumerate(i.feeds):
            self._pass(Fed(f, i.places(f), i.words, i.held), take, stream.data, f"{n}_{k}" if len(i.feeds) > 1 else f"{n}")
        late = self.plan.parts[i.by].nest.start and i in awaited(self.plan.inputs, self.plan.parts)
        return need.ready, self._first(i, came, n) if late else need.ready

    def _first(self, i: Input, came: Value, n: int) -> Value:
        """Whether the words of the first group of a run are there, for a process that starts later than the circuit.

        Its next slot may be one of the run before.  A run that began without the words would stop the slots that bring out
        what the run before sends.
        """
        m, first = self.m, i.need.runs[0][1]
        more = Signal(range(-i.words - first, i.size + 1), init=-first, name=f"more_{n}")
        early = Signal(name=f"early_{n}")
        m.d.sync += [more.eq(more + came - Mux(self.start, i.words, 0)), early.eq(~more[-1] & ~self.start)]
        return early

    def _boundary(self, nest: LoopNest, level: int) -> Any:
        """Whether an iteration of a loop outside of loop `level` ends in this slot, and another one begins."""
        return nest.steps & nest.carry[:level].any() if level else Const(0)

    def _pass(self, fed: Fed, take: Value, data: Value, name: str) -> None:
        """To the lanes' own windows, or by a window here to all lanes."""
        m, f = self.m, fed.feed
        wires, lanes = self.wires[f.part], self.plan.parts[f.part].nest.lanes
        if not f.shared:
            strobe, word, lane, place = wires.own[f][0]
            at, last = Signal.like(place, name=f"place_{name}"), Const(1)
            m.d.sync += [strobe.eq(take), word.eq(data), place.eq(at)]
            if f.dealt and lanes > 1:
                count, last = Signal.like(lane, name=f"lane_{name}"), Signal(name=f"last_lane_{name}")
                m.d.comb += last.eq(count == lanes - 1)
                m.d.sync += lane.eq(count)
                with m.If(take):
                    m.d.sync += count.eq(Mux(last, 0, count + 1))
            with m.If(take):
                m.d.sync += at.eq(at + last)
            return
        wide, went = len(self.plan.parts) > 1, wires.went
        for k, r in enumerate(f.reads):
            m.submodules[f"window_{name}_{k}"] = window = Window(self.plan.numbers.width, fed.window, self.target, wide=wide)
            slots = LEAD + r.site.stage - Window.LATENCY
            address = walked(
                m, r.at, 0, fed.words, fed.window, self.nests[f.part], went, slots, f"walk_{name}_{k}", self.target
            )
            m.d.comb += [
                window.write.eq(take), window.data_in.eq(data), window.read_enable.eq(went),
                window.read_address.eq(address),
            ]  # fmt: skip
            m.d.sync += wires.shared[r][0].eq(window.data_out)
