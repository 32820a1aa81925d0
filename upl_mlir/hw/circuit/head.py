"""The head of a process: takes words from the input ports and decides in each clock whether a slot passes.

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
from upl_mlir.hw.circuit.control import Marks, Tally, loop_nest
from upl_mlir.hw.circuit.lane import Wires, walked
from upl_mlir.hw.circuit.ram import Target
from upl_mlir.hw.circuit.streams import StreamIn
from upl_mlir.hw.circuit.units import BITS
from upl_mlir.passes.circuit.plan import Plan
from upl_mlir.passes.circuit.ports import Input, late

BEHIND = 3
"""Words that may be taken before `open` knows of them: a clock each for `came`, `change`, and `room`."""


@dataclass(frozen=True, eq=False)
class _Entry:
    """An input at the head: whether it has the words of the next group."""

    enough: Value
    needs: Value
    """A group ends in this slot."""


class Head:
    """Builds the module of the head."""

    def __init__(self, plan: Plan, wires: Wires, streams: Sequence[StreamIn], room: Value, target: Target):
        self.plan, self.wires, self.streams, self.room, self.target = plan, wires, streams, room, target
        self.m = m = Module()
        self.go, self.start = Signal(), Signal()
        m.submodules.nest = self.nest = loop_nest(plan.nest, plan.nest.slots)

    def build(self) -> Module:
        """The whole module."""
        m, nest = self.m, self.nest
        active = Signal()
        free = nest.last | ~active
        entries = [self._entry(i, s, n) for n, (i, s) in enumerate(zip(self.plan.inputs, self.streams, strict=True))]
        m.d.comb += [
            self.go.eq(reduce(and_, [e.enough | ~e.needs for e in entries], self.room)),
            self.start.eq(self.go & free & reduce(and_, [e.enough for e in entries], Const(1))),
            nest.enable.eq(self.go), nest.start.eq(self.start),
        ]  # fmt: skip
        with m.If(self.go & free):
            m.d.sync += active.eq(self.start)
        m.d.sync += [self.wires.enable[0].eq(self.go), self.wires.start[0].eq(self.start)]
        return m

    def _entry(self, i: Input, stream: StreamIn, n: int) -> _Entry:
        """Words are taken while there is room.

        `more` are the words that have come beyond those of the next group, `room` the places that are free, less `BEHIND`
        and one: what is asked of them is their sign, a register.  `open` is that sign a clock later, a register beside the
        port, so that no path leads from a counter to the port and back.
        """
        m, nest = self.m, self.nest
        size = i.window * (self.plan.nest.lanes if i.dealt else 1)
        m.submodules[f"need_{n}"] = need = Tally(i.need, ahead=True)
        m.submodules[f"free_{n}"] = freed = Tally(i.need if i.held else i.free)
        most = max(w for _, w in i.need.runs)
        more = Signal(range(-most, size + 1), init=-i.need.runs[0][1], name=f"more_{n}")
        first = size - 1 - BEHIND
        room, take = Signal(range(-1 - BEHIND, size), init=first, name=f"room_{n}"), Signal(name=f"take_{n}")
        change = Signal(range(-1, max(w for _, w in (i.need if i.held else i.free).runs) + 1), name=f"change_{n}")
        open_ = Signal(init=first >= 0, name=f"open_{n}")
        needs, ends = self._boundary(i.need.level), self._boundary(i.free.level) | nest.steps & nest.carry[-1]
        after = late(self.plan.nest, i.shared, [r.site for r in i.reads])
        m.submodules[f"late_{n}"] = gone = Marks(after, self.target)
        m.d.comb += [
            take.eq(stream.valid & open_), stream.take.eq(take),
            need.event.eq(self.go & (needs | self.start)),
            gone.mark.eq(needs | self.start if i.held else ends), gone.enable.eq(self.go),
            freed.event.eq(self.go & gone.later),
        ]  # fmt: skip
        came = Signal(name=f"came_{n}")  # a word counts a clock after it was taken
        m.d.sync += [
            came.eq(take), open_.eq(~room[-1]),
            more.eq(Mux(need.event, more + came - need.words, more + came)),
            change.eq(Mux(freed.event, freed.words, 0) - came), room.eq(room + change),
        ]  # fmt: skip
        self._pass(i, stream, take, n)
        return _Entry(~more[-1], needs)

    def _boundary(self, level: int) -> Any:
        """Whether an iteration of a loop outside of loop `level` ends in this slot, and another one begins."""
        return self.nest.steps & self.nest.carry[:level].any() if level else Const(0)

    def _pass(self, i: Input, stream: StreamIn, take: Value, n: int) -> None:
        """To the lanes' own windows, or by a window here to all lanes."""
        m = self.m
        if not i.shared:
            strobe, word, lane = self.wires.own[i][0]
            m.d.sync += [strobe.eq(take), word.eq(stream.data)]
            if i.dealt and self.plan.nest.lanes > 1:
                count = Signal.like(lane, name=f"lane_{n}")
                m.d.sync += lane.eq(count)
                with m.If(take):
                    m.d.sync += count.eq(count + 1)
                    with m.If(count == self.plan.nest.lanes - 1):
                        m.d.sync += count.eq(0)
            return
        for k, r in enumerate(i.reads):
            m.submodules[f"window_{n}_{k}"] = window = Window(BITS, i.window, self.target)
            address = walked(m, i, r, self.nest, r.first, self.go, f"walk_{n}_{k}", self.plan.nest.lanes, self.target)
            m.d.comb += [
                window.write.eq(take), window.data_in.eq(stream.data), window.read_enable.eq(self.go),
                window.read_address.eq(address),
            ]  # fmt: skip
            m.d.sync += self.wires.shared[r][0].eq(window.data_out)
