"""Static control: numbers of words by group, marks that come later, addresses along a loop nest."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.circuit.blocks import Delay
from upl_mlir.hw.circuit.loops import LoopNest
from upl_mlir.hw.circuit.ram import UNMERGED, Target
from upl_mlir.passes.circuit.channels.feeds import Steps
from upl_mlir.passes.circuit.channels.inputs import Runs
from upl_mlir.passes.circuit.nest import Nest


class Tally(wiring.Component):
    """`words` is the number of the current group; `event` goes on to the next one, and after the last to the first.

    It begins with the first group, or with the second one if it is `ahead`.
    """

    def __init__(self, runs: Runs, ahead: bool = False):
        self.runs = runs.runs
        first = self.runs[0][0]
        second = 1 % len(self.runs)
        self.begins = (0, first) if not ahead else (0, first - 1) if first > 1 else (second, self.runs[second][0])
        super().__init__({"event": In(1), "words": Out(range(max(w for _, w in self.runs) + 1))})

    def elaborate(self, platform: object) -> Module:
        """The number of the run, and how many of its groups come after this one."""
        m = Module()
        if len(self.runs) == 1:
            m.d.comb += self.words.eq(self.runs[0][1])
            return m
        longest = max(n for n, _ in self.runs)
        run, groups = self.begins
        number, left = Signal(range(len(self.runs)), init=run), Signal(range(longest), init=groups - 1)
        final = Signal(init=groups == 1)
        with m.Switch(number):
            for k, (_, words) in enumerate(self.runs):
                with m.Case(k):
                    m.d.comb += self.words.eq(words)
        with m.If(self.event):
            m.d.sync += [left.eq(left - 1), final.eq(left == 1)]
            with m.If(final), m.Switch(number):
                for k in range(len(self.runs)):
                    then = (k + 1) % len(self.runs)
                    groups = self.runs[then][0]
                    with m.Case(k):
                        m.d.sync += [number.eq(then), left.eq(groups - 1), final.eq(groups == 1)]
        return m


MARKS_IN_REGISTERS = 16
"""Slots by which a mark is delayed by registers; a memory in LUTs with what masks it takes as many LUTs. Chosen."""


class Marks(wiring.Component):
    """`later` is `mark` a number of slots later, and 0 for what came before a reset: memories keep their words."""

    def __init__(self, slots: int, target: Target, width: int = 1):
        self.slots, self.target, self.width = slots, target, width
        super().__init__({"mark": In(width), "later": Out(width), "enable": In(1)})

    def elaborate(self, platform: object) -> Module:
        """Registers, or a memory that is not believed before all its words were written anew."""
        m = Module()
        if self.slots <= MARKS_IN_REGISTERS:
            m.d.comb += self.later.eq(delayed(m, self.mark, self.slots, self.enable, "mark"))
            return m
        m.submodules.line = line = Delay(self.width, self.slots, self.target)
        left, clean = Signal(range(self.slots + 1), init=self.slots - 1), Signal()
        with m.If(self.enable & ~clean):
            m.d.sync += [left.eq(left - 1), clean.eq(left == 0)]
        m.d.comb += [
            line.data_in.eq(self.mark), line.enable.eq(self.enable),
            self.later.eq(line.data_out & clean.replicate(self.width)),
        ]  # fmt: skip
        return m


class Walk(wiring.Component):
    """An address along a loop nest, modulo a power of two: ``first + sum(steps * counters)``, `words` more in each
    run."""

    def __init__(self, depth: int, extents: Sequence[int], first: int, steps: Sequence[int], words: int):
        self.depth, self.first = depth, first % depth
        inner = [k * (n - 1) for k, n in zip(steps, extents, strict=True)]
        self.changes = [(k - sum(inner[n + 1 :])) % depth for n, k in enumerate(steps)]
        self.changes.append((words - sum(inner)) % depth)
        super().__init__(
            {"steps": In(1), "carry": In(len(extents) + 1), "enable": In(1), "address": Out(range(depth), init=self.first)}
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        """One adder: what it adds depends on the loop that goes on."""
        m = Module()
        change = Signal.like(self.address, init=0)
        for k, n in enumerate(self.changes):
            with m.If(self.carry[k]):
                m.d.comb += change.eq(n)
        with m.If(self.enable & self.steps):
            m.d.sync += self.address.eq(self.address + change)
        return m


class Permits(wiring.Component):
    """Counts the words of an input, and says of one slot after the other whether those are there that it needs.

    The slots are those of the runs of a process, from the one before its first iteration on; `slots` of them are a run, and
    those of the next run follow at once.  `takes`: a word comes.  `ready`: the words of the next of these slots are there;
    `passes`: it passes.  Nothing else is known here of the slots that pass.  So that one can pass in each clock, one that is
    ready may wait here behind another one.
    """

    def __init__(self, nest: Nest, slots: int, need: Runs, size: int):
        self.nest, self.slots, self.need, self.size = nest, slots, need, size
        super().__init__({"takes": In(1), "passes": In(1), "ready": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """`more` are the words that have come beyond those of the next group: what is asked of them is their sign, a
        register."""
        m = Module()
        m.submodules.groups = groups = loop_nest(self.nest, self.slots, self.need.level)
        m.submodules.need = need = Tally(self.need, ahead=True)
        most = max(w for _, w in self.need.runs)
        more = Signal(range(-most, self.size + 1), init=-self.need.runs[0][1])
        came = Signal(attrs=UNMERGED)  # the port may be far
        begun, both, needs, goes = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            needs.eq(groups.steps | ~begun), goes.eq(~both & ~(needs & more[-1])),
            groups.start.eq(1), groups.enable.eq(goes), need.event.eq(goes & needs),
        ]  # fmt: skip
        m.d.sync += [
            came.eq(self.takes), more.eq(Mux(need.event, more - need.words + came, more + came)), begun.eq(begun | goes),
            self.ready.eq(goes | both | self.ready & ~self.passes),
            both.eq((both | goes & self.ready) & ~self.passes),
        ]  # fmt: skip
        return m


def loop_nest(nest: Nest, slots: int | None = None, level: int | None = None) -> LoopNest:
    """The counters of a nest, with all slots that pass idle; of `slots` in all, or without any after the last
    iteration; of the outer loops only, if there is a `level`."""
    extents, every = [*nest.extents[:level], 1], [*nest.every[:level], 1]
    idle = [every[k] - extents[k + 1] * every[k + 1] for k in range(len(every) - 1)]
    whole = every[0] * extents[0]
    after = 0 if slots is None else slots - whole
    if idle and not idle[-1]:
        extents.pop()
        return LoopNest(extents, [after, *idle[:-1]])
    return LoopNest(extents, [after, *idle])


def delayed(m: Module, value: Value, slots: int, enable: Value, name: str) -> Any:
    """A bit or a few, some slots later, by registers that begin with 0."""
    value = Value.cast(value)
    for n in range(slots):
        register = Signal(value.shape(), name=f"{name}_{n}")
        with m.If(enable):
            m.d.sync += register.eq(value)
        value = register
    return value


def walked(
    m: Module, at: Steps, lane: int, words: int, depth: int, nest: LoopNest, enable: Value, slots: int, name: str,
    target: Target,
) -> Value:
    """The address of a lane's word along a nest, modulo `depth`, so many slots after its counters; in each run it is `words`
    more."""
    steps = [*at.steps, *[0] * (len(nest.extents) - len(at.steps))]
    m.submodules[name] = walk = Walk(depth, nest.extents, at.first + at.lane_step * lane, steps, words)
    m.d.comb += [walk.steps.eq(nest.steps), walk.carry.eq(nest.carry), walk.enable.eq(enable)]
    m.submodules[f"{name}_delay"] = late = Delay(len(walk.address), slots, target)
    m.d.comb += [late.data_in.eq(walk.address), late.enable.eq(enable)]
    return late.data_out
