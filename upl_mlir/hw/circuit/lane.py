"""A lane of a process: counters, conditions, what is read of ports and of earlier instances, units, what is sent.

All registers of a lane are gated by its enable but those that bring something from the lane before: a lane does in
each clock what the lane before did one clock earlier.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false
# Amaranth's values and components are untyped.

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from upl_mlir.diagnostics import error
from upl_mlir.hw.circuit.blocks import Crossing, Delay, VariableDelay, Window
from upl_mlir.hw.circuit.control import MOST_BOXES, Conditions, Marks, Walk, delayed, loop_nest
from upl_mlir.hw.circuit.loops import LoopNest
from upl_mlir.hw.circuit.ram import Target
from upl_mlir.hw.circuit.units import BITS, result, unit, wires
from upl_mlir.passes.circuit.body import TRUTH, Node
from upl_mlir.passes.circuit.links import VARYING, Link
from upl_mlir.passes.circuit.nest import Bools
from upl_mlir.passes.circuit.plan import Plan
from upl_mlir.passes.circuit.ports import LEAD, Input, Output, Read, places, turns
from upl_mlir.passes.circuit.process import OTHER_ENGINES
from upl_mlir.passes.circuit.stages import Site, matters

QUEUE_IN_LUTS = 8
"""Words of a lane's queue that are in LUTs: a longer one takes two block RAMs instead of 54 LUT sites a 16 words."""


@dataclass(eq=False)
class Wires:
    """What goes between lanes, by lane: enables, starts, results; and by input what comes from the ports."""

    enable: list[Signal]
    start: list[Signal]
    written: dict[str, list[Signal]]
    """"result" and "total"."""
    shared: dict[Read, list[Signal]] = field(default_factory=dict)
    own: dict[Input, list[tuple[Signal, Signal, Signal]]] = field(default_factory=dict)
    """Strobe, word, lane (for words that are dealt)."""
    sent: dict[Output, list[tuple[Signal, Signal]]] = field(default_factory=dict)
    """Strobe and word, a clock behind the lane."""


@dataclass(frozen=True, eq=False)
class Probe:
    """What a site of a lane reads: `word` where `strobe` is 1."""

    site: Site
    lane: int
    strobe: Value
    word: Value


class Lane:
    """Builds the module of a lane.

    Where lanes start together, a bit of control that is the same as in the lane before comes from there, over a register,
    and is not computed again.
    """

    def __init__(self, plan: Plan, number: int, wires: Wires, target: Target, watched: bool, before: Lane | None):
        self.plan, self.number, self.wires, self.target, self.watched = plan, number, wires, target, watched
        self.m = m = Module()
        self.enable = wires.enable[number]
        m.submodules.nest = self.nest = loop_nest(plan.nest)
        m.d.comb += [self.nest.enable.eq(self.enable), self.nest.start.eq(wires.start[number])]
        self.conditions = Conditions(m, self.nest.counters, self.nest.extents, self.enable)
        self.where = {n: plan.nest.mask(f, plan.process.sizes)[..., number] for n, f in matters(plan.process).items()}
        self.probes: list[Probe] = []
        self.before = before if plan.nest.skew == 0 else None
        self.control: dict[object, Value] = {}
        """Bits and addresses, for the next lane."""
        self._values: dict[tuple[Node, int], Value] = {}
        self._hops: dict[tuple[str, int], Value] = {}
        self._lines: dict[tuple[str, int], dict[int, Value]] = {}
        self._count = 0

    # -- the lane -----------------------------------------------------------------------------------------------------
    def build(self) -> Module:
        """The whole module."""
        self._pass_on()
        at = self.plan.at
        for name, node in (("result", self.plan.process.body.result), ("total", self.plan.process.body.total)):
            if node is not None and self.where[node].any():
                self.m.d.comb += self.wires.written[name][self.number].eq(self.value(node, at.end(node)))
        for o in self.plan.outputs:
            self._send(o)
        return self.m

    def _pass_on(self) -> None:
        """To the next lane: the enable; start and what lanes share `skew` slots later; all over a register that
        always goes on."""
        n, m = self.number, self.m
        if n + 1 < len(self.wires.enable):
            m.d.sync += self.wires.enable[n + 1].eq(self.enable)
        skew = self.plan.nest.skew
        if n + 1 < len(self.wires.start):
            m.d.sync += self.wires.start[n + 1].eq(self._marks(self.wires.start[n], skew, "start_skewed"))
        for k, wire in enumerate(self.wires.shared.values()):
            if n + 1 < len(wire):
                m.d.sync += wire[n + 1].eq(self._delay(wire[n], skew, f"word_{k}_skewed"))
        for wire in self.wires.own.values():
            if n + 1 < len(wire):
                m.d.sync += [to.eq(what) for to, what in zip(wire[n + 1], wire[n], strict=True)]

    # -- values -------------------------------------------------------------------------------------------------------
    def value(self, node: Node, stage: int) -> Value:
        """A node's value for an operation that begins at a stage."""
        key = (node, stage)
        if key not in self._values:
            self._values[key] = self._made(node, stage)
        return self._values[key]

    def _made(self, node: Node, stage: int) -> Value:
        if node.kind == "constant" and node.bits == TRUTH:
            return Const(int(node.number), TRUTH)
        if node.kind == "constant":
            return Const(struct.unpack("<I", struct.pack("<f", node.number))[0], BITS)
        for s in self.plan.sites:
            if s.node is node and s.written is not None and s.stage == stage:
                return self._probed(s, self._linked(s))
        first = self.plan.at.start[node] if node.kind == "read" else self.plan.at.end(node)
        if stage > first:
            return self._delay(self.value(node, first), stage - first, f"value_{self._number()}")
        if node.kind == "read":
            return self._of_port(node)
        return self._select(node) if node.kind == "select" else self._unit(node)

    def _unit(self, node: Node) -> Any:
        args: list[Any] = [self.value(a, self.plan.at.start[node]) for a in node.args]
        wired = wires(node.kind, args)
        if wired is not None:
            return wired
        made = unit(node.kind, self.plan.units, self.target)
        n = self._number()
        self.m.submodules[f"{node.kind.partition(' ')[0]}_{n}"] = made
        if node.kind == "sub":
            args[1] = Cat(args[1][:-1], ~args[1][-1])
        self.m.d.comb += made.enable.eq(self.enable)
        self.m.d.comb += [getattr(made, name).eq(arg) for name, arg in zip("abc", args, strict=False)]
        return result(node.kind, made)

    def _select(self, node: Node) -> Value:
        """The choices that occur in this lane, by one register."""
        stage = self.plan.at.start[node]
        left = self.where[node]
        cases: list[tuple[Value, Value]] = []
        for n, arg in enumerate(node.args):
            taken = left if n == len(node.args) - 1 else left & self._mask(node, n)
            if not taken.any():
                continue
            left = left & ~taken
            when = Const(1) if not left.any() else self.condition(taken, left, stage)
            cases.append((when, self.value(arg, stage)))
        chosen = cases[-1][1]
        for when, value in reversed(cases[:-1]):
            chosen = Mux(when, value, chosen)
        out = Signal(node.bits, name=f"chosen_{self._number()}", reset_less=True)
        with self.m.If(self.enable):
            self.m.d.sync += out.eq(chosen)
        return out

    def _mask(self, node: Node, case: int) -> Bools:
        return self.plan.nest.mask(node.when[case], self.plan.process.sizes)[..., self.number]

    def condition(self, yes: Bools, no: Bools, stage: int) -> Any:
        """Whether an instance at a stage is one of `yes`, and none of `no`."""

        def computed() -> Value:
            shape = self.nest.extents
            bit = self.conditions.of(yes.reshape(shape), no.reshape(shape))
            if bit is None:
                name = self.plan.process.name
                what = f"a condition of `{name}` is not a union of at most {MOST_BOXES} boxes of its loops: no circuit yet"
                raise error("UPL2003", what, self.plan.process.span, help=OTHER_ENGINES)
            if isinstance(bit, Const):
                return bit
            return delayed(self.m, bit, LEAD + stage - Conditions.LATENCY, self.enable, f"when_{self._number()}")

        return self._passed((yes.tobytes(), no.tobytes(), stage), computed)

    def _passed(self, key: object, computed: Callable[[], Value]) -> Value:
        """Control as the lane before has it, else computed."""
        if key not in self.control:
            value = self.before.control.get(key) if self.before is not None else None
            if value is None or isinstance(value, Const):
                value = computed()
            else:
                value = self._hop(value)
            self.control[key] = value
        return self.control[key]

    def _hop(self, value: Value) -> Value:
        register = Signal(len(value), name=f"passed_{self._number()}")
        self.m.d.sync += register.eq(value)
        return register

    # -- what is read ---------------------------------------------------------------------------------------------------
    def _of_port(self, node: Node) -> Value:
        for i in self.plan.inputs:
            for r in i.reads:
                if r.site.node is node:
                    word = self.wires.shared[r][self.number] if i.shared else self._of_window(i, r)
                    return self._probed(r.site, word)
        raise AssertionError(node.array)

    def _of_window(self, i: Input, r: Read) -> Value:
        """The lane's own window, at an address that follows its counters."""
        if i.held:
            return self._held(i, r)
        m, n = self.m, self._number()
        strobe, word, lane = self.wires.own[i][self.number]
        m.submodules[f"window_{n}"] = window = Window(BITS, i.window, self.target)
        m.d.comb += [
            window.write.eq(strobe & (lane == self.number) if i.dealt else strobe), window.data_in.eq(word),
            window.read_enable.eq(self.enable),
        ]  # fmt: skip
        address = self.address(i, r, self.nest, r.first + r.lane_step * self.number, self.enable)
        m.d.comb += window.read_address.eq(address)
        return window.data_out

    def _held(self, i: Input, r: Read) -> Value:
        """The word that is read, until the first instance comes that reads the next one; more of them wait behind.

        There are never too many: the head lets a word come only when a place is free again.
        """
        m, n, nest = self.m, self._number(), self.plan.nest
        strobe, word, lane = self.wires.own[i][self.number]
        at = np.reshape(places(r, nest), nest.extents)
        new = np.reshape(np.diff(at.ravel(), prepend=-1) != 0, nest.extents)
        loads = self.condition(new, ~new, r.site.stage - 1) & self._running(r.site.stage - 1) & self.enable
        leaves: Value = loads  # the word of a place goes on: to the place before, or to `now`
        now = Signal(BITS, name=f"now_{n}", reset_less=True)
        waiting = [Signal(BITS, name=f"waiting_{n}_{k}", reset_less=True) for k in range(i.window)]
        full = [Signal(name=f"full_{n}_{k}") for k in range(i.window)]
        with m.If(loads):
            m.d.sync += now.eq(waiting[0])
        for k in range(i.window):
            last = k == i.window - 1
            comes = strobe & (lane == self.number) if last else Signal(name=f"moves_{n}_{k}")
            if not last:
                m.d.comb += comes.eq(full[k + 1] & ~full[k])  # a clock later than it could be, and no path through all
            m.d.sync += full[k].eq(comes | full[k] & ~leaves)
            with m.If(comes):
                m.d.sync += waiting[k].eq(word if last else waiting[k + 1])
            leaves = comes
        return now

    def address(self, i: Input, r: Read, nest: LoopNest, first: int, enable: Value) -> Value:
        """The address of a read, so early that the word is there at the read's stage."""
        name = f"walk_{self._number()}"
        return self._passed(
            (r, first), lambda: walked(self.m, i, r, nest, first, enable, name, self.plan.nest.lanes, self.target)
        )  # fmt: skip

    def _linked(self, s: Site) -> Value:
        """What an earlier instance wrote."""
        link = next(k for k in self.plan.links[s] if k.lane == self.number)
        what = "total" if not s.index else "result"
        if link.constant is None:
            return self._varying(what, link, s)
        return self._tapped(what, link)[link.constant]

    def _tapped(self, what: str, link: Link) -> dict[int, Value]:
        """All lengths that this lane has of one source: a line with taps, or links back."""
        key = (what, link.source)
        if key not in self._lines:
            found = {
                k.constant
                for s in self.plan.sites if s.written is not None and (what == "total") == (not s.index)
                for k in self.plan.links[s] if k.lane == self.number and k.source == link.source
            }  # fmt: skip
            lengths = sorted(n for n in found if n is not None)
            self._lines[key] = self._line(what, link.source, lengths)
        return self._lines[key]

    def _line(self, what: str, source: int, lengths: list[int]) -> dict[int, Value]:
        out: dict[int, Value] = {}
        value, before = self._from(what, source), 0
        for k, length in enumerate(lengths):
            if source > self.number and k == 0:
                lag = source - self.number
                self.m.submodules[f"back_{self._number()}"] = back = Crossing(BITS, length, lag, self.target)
                self.m.d.comb += [
                    back.data_in.eq(value), back.write_enable.eq(self.wires.enable[source]),
                    back.read_enable.eq(self.enable),
                ]  # fmt: skip
                value = back.data_out
            else:
                value = self._delay(value, length - before, f"line_{self._number()}")
            out[length], before = value, length
        return out

    def _varying(self, what: str, link: Link, s: Site) -> Value:
        """A line whose length depends on the block."""
        lengths = [n if n is not None else link.shortest for n in link.lengths]
        value, less = self._from(what, link.source), 0
        if link.source > self.number:
            lag = link.source - self.number
            less = link.shortest - VARYING
            self.m.submodules[f"back_{self._number()}"] = back = Crossing(BITS, less, lag, self.target)
            self.m.d.comb += [
                back.data_in.eq(value), back.write_enable.eq(self.wires.enable[link.source]),
                back.read_enable.eq(self.enable),
            ]  # fmt: skip
            value = back.data_out
        rest = [n - less for n in lengths]
        self.m.submodules[f"varying_{self._number()}"] = line = VariableDelay(BITS, max(rest), self.target)
        block = self.nest.counters[self.plan.nest.block]
        length = Signal(range(max(rest) + 1), name=f"length_{self._number()}")
        with self.m.Switch(block):
            for b, n in enumerate(rest):
                with self.m.Case(b):
                    self.m.d.comb += length.eq(n)
        late = delayed(self.m, length, LEAD + s.stage - VariableDelay.AHEAD, self.enable, f"length_{self._number()}")
        self.m.d.comb += [line.data_in.eq(value), line.enable.eq(self.enable), line.length.eq(late)]
        return line.data_out

    def _from(self, what: str, source: int) -> Value:
        """A result of another lane; of an earlier one over a register a lane."""
        written = self.wires.written[what]
        if source >= self.number:
            return written[source]
        key = (what, source)
        if key not in self._hops:
            hop = written[source]
            for n in range(source + 1, self.number + 1):
                register = Signal(BITS, name=f"{what}_of_{source}_at_{n}", reset_less=True)
                self.m.d.sync += register.eq(hop)
                hop = register
            self._hops[key] = hop
        return self._hops[key]

    def _probed(self, s: Site, word: Value) -> Value:
        """The word that a site reads; noted if somebody wants to watch."""
        if self.watched:
            here = self.plan.nest.mask(s.when, self.plan.process.sizes)[..., self.number]
            strobe = self.condition(here, ~here, s.stage) & self._running(s.stage) & self.enable
            self.probes.append(Probe(s, self.number, strobe, word))
        return word

    def _running(self, stage: int) -> Value:
        name = f"running_{self._number()}"
        return self._passed(
            ("running", stage), lambda: delayed(self.m, self.nest.running, LEAD + stage, self.enable, name)
        )  # fmt: skip

    # -- what is sent -----------------------------------------------------------------------------------------------------
    def _send(self, o: Output) -> None:
        """The words of this lane to the last lane and the port."""
        n, m = self.number, self.m
        strobe, word = self.wires.sent[o][n]
        mine, value = Const(0), Const(0, BITS)
        if n in o.lanes:
            mine, value = self._turns(o) if len(o.lanes) > 1 else self._at_once(o)
        before, came = self.wires.sent[o][n - 1] if n else (Const(0), Const(0, BITS))
        goes = mine & self.enable
        m.d.sync += [strobe.eq(goes | before), word.eq(Mux(goes, value, came) if n in o.lanes else came)]

    def _at_once(self, o: Output) -> tuple[Value, Value]:
        return self._sends(o, o.when[..., self.number]), self.wires.written["result"][self.number]

    def _sends(self, o: Output, when: Bools) -> Value:
        """Whether the instance whose result is there is one of those."""
        return self.condition(when, ~when, self.plan.at.result) & self._running(self.plan.at.result)

    def _turns(self, o: Output) -> tuple[Value, Value]:
        """Words wait until it is this lane's turn; one that another lane has and this one has not waits as a gap."""
        m, at = self.m, self.plan.at.result
        some, own = o.when.any(axis=-1), o.when[..., self.number]
        depth = 1 << max(1, (o.depth - 1).bit_length())
        n = self._number()
        m.submodules[f"queue_{n}"] = queue = Window(BITS + 1, depth, self.target, QUEUE_IN_LUTS)
        mine = self.control[o, "turn"] = self._turn(o, n)
        place = Signal(range(depth), name=f"place_{n}")
        with m.If(self.enable & mine):
            m.d.sync += place.eq(place + 1)
        flag = Const(1) if (own == some).all() else self.condition(own, some & ~own, at)
        m.d.comb += [
            queue.write.eq(self._sends(o, some) & self.enable),
            queue.data_in.eq(Cat(self.wires.written["result"][self.number], flag)),
            queue.read_address.eq(place), queue.read_enable.eq(self.enable),
        ]  # fmt: skip
        there = delayed(m, mine, Window.LATENCY, self.enable, f"turn_{n}")
        return there & queue.data_out[BITS], queue.data_out[:BITS]

    def _turn(self, o: Output, n: int) -> Value:
        """Whether it is this lane's turn: a slot after the lane before."""
        if self.before is not None and (o, "turn") in self.before.control:
            return delayed(self.m, self._hop(self.before.control[o, "turn"]), 1, self.enable, f"turn_before_{n}")
        self.m.submodules[f"turns_{n}"] = nest = LoopNest([turns(o), self.plan.nest.lanes], [0, 0])
        wait = self._marks(self.wires.start[self.number], LEAD + self.plan.at.result + o.wait, f"wait_{n}")
        self.m.d.comb += [nest.start.eq(wait), nest.enable.eq(self.enable)]
        return nest.running & (nest.c1 == self.number)

    # -- parts --------------------------------------------------------------------------------------------------------
    def _delay(self, value: Value, slots: int, name: str) -> Value:
        if not slots:
            return value
        self.m.submodules[name] = made = Delay(len(value), slots, self.target)
        self.m.d.comb += [made.data_in.eq(value), made.enable.eq(self.enable)]
        return made.data_out

    def _marks(self, mark: Value, slots: int, name: str) -> Value:
        if not slots:
            return mark
        self.m.submodules[name] = made = Marks(slots, self.target)
        self.m.d.comb += [made.mark.eq(mark), made.enable.eq(self.enable)]
        return made.later

    def _number(self) -> int:
        self._count += 1
        return self._count


def walked(
    m: Module, i: Input, r: Read, nest: LoopNest, first: int, enable: Value, name: str, lanes: int,
    target: Target,
) -> Value:
    """The address of a read along a nest, so early that the word is there at the read's stage."""
    words = i.words // lanes if i.dealt else i.words
    steps = [*r.steps, *[0] * (len(nest.extents) - len(r.steps))]
    m.submodules[name] = walk = Walk(i.window, nest.extents, first, steps, words)
    m.d.comb += [walk.steps.eq(nest.steps), walk.carry.eq(nest.carry), walk.enable.eq(enable)]
    slots = LEAD + r.site.stage - Window.LATENCY
    m.submodules[f"{name}_delay"] = late = Delay(len(walk.address), slots, target)
    m.d.comb += [late.data_in.eq(walk.address), late.enable.eq(enable)]
    return late.data_out
