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

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from upl_mlir.diagnostics import error
from upl_mlir.hw.circuit.blocks import Crossing, Delay, VariableDelay, Window, held, lane_window
from upl_mlir.hw.circuit.conditions import Conditions
from upl_mlir.hw.circuit.control import Marks, delayed, loop_nest, walked
from upl_mlir.hw.circuit.loops import LoopNest
from upl_mlir.hw.circuit.ram import Ram
from upl_mlir.hw.circuit.turns import Operand, Turns
from upl_mlir.hw.circuit.wires import Fed, Probe, Wires
from upl_mlir.numbers.words import to_words
from upl_mlir.passes.circuit.body import INTEGER, TRUTH, Node
from upl_mlir.passes.circuit.channels.buffers import Buffer
from upl_mlir.passes.circuit.channels.feeds import Read, Steps, affine
from upl_mlir.passes.circuit.channels.inputs import places
from upl_mlir.passes.circuit.channels.links import VARYING, Link
from upl_mlir.passes.circuit.channels.outputs import Output
from upl_mlir.passes.circuit.channels.outputs import turns as turns_of
from upl_mlir.passes.circuit.nest import Bools
from upl_mlir.passes.circuit.placed import LEAD
from upl_mlir.passes.circuit.plan import Plan
from upl_mlir.passes.circuit.process import OTHER_ENGINES
from upl_mlir.passes.circuit.stages import Site, last_summand, matters

QUEUE_IN_LUTS = 8
"""Words of a lane's queue that are in LUTs: a longer one takes two block RAMs instead of 54 LUT sites a 16 words."""


class Lane:
    """Builds the module of a lane.

    Where lanes start together, a bit of control that is the same as in the lane before comes from there, over a register,
    and is not computed again.
    """

    def __init__(
        self, plan: Plan, of: int, number: int, wires: Sequence[Wires], turns: Turns, watched: bool, before: Lane | None
    ):
        self.plan, self.of, self.number, self.target, self.watched = plan, of, number, turns.target, watched
        self.turns = turns
        self.wide = len(plan.parts) > 1
        self.part, self.wires, self.others = plan.parts[of], wires[of], wires
        self.units, self.width = turns.made, plan.numbers.width
        self.m = m = Module()
        self.enable = self.wires.enable[number]
        m.submodules.nest = self.nest = loop_nest(self.part.nest)
        m.d.comb += [self.nest.enable.eq(self.enable), self.nest.start.eq(self.wires.start[number])]
        nest = self.part.nest
        scales = [nest.lanes if f == nest.along else 1 for f in nest.order]
        scales += [1] * (len(self.nest.extents) - len(scales))
        self.conditions = Conditions(m, self.nest.counters, self.nest.extents, self.enable, scales)
        self.where = {n: self.part.mask(f)[..., number] for n, f in matters(self.part.process).items()}
        self.probes: list[Probe] = []
        self.before = before if self.part.nest.skew == 0 else None
        self.control: dict[object, Value] = {}
        """Bits and addresses, for the next lane."""
        self._values: dict[tuple[Node, int], Value] = {}
        self._hops: dict[tuple[int, str, int], Value] = {}
        self._lines: dict[tuple[int, str, int], dict[int, Value]] = {}
        self._count = 0

    # -- the lane -----------------------------------------------------------------------------------------------------
    def build(self) -> Module:
        """The whole module."""
        self._pass_on()
        at, body = self.part.at, self.part.process.body
        for name, node in (("result", body.result), ("total", body.total)):
            if node is not None and self.where[node].any():
                self.m.d.comb += self.wires.written[name][self.number].eq(self.value(node, at.end(node)))
        for o in self.wires.sent:
            self._send(o)
        for b, wire in self.wires.stored.items():
            self._store(b, *wire[self.number])
        return self.m

    def _pass_on(self) -> None:
        """To the next lane: the enable; start and what lanes share `skew` slots later; all over a register that
        always goes on."""
        n, m = self.number, self.m
        if n + 1 < len(self.wires.enable):
            m.d.sync += self.wires.enable[n + 1].eq(self.enable)
        skew = self.part.nest.skew
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
        if node.kind == "constant" and node.bits:
            return Const(int(node.number), node.bits)
        if node.kind == "constant":
            return Const(self._word(node.number), self.width)
        for s in self.part.sites:
            if s.node is node and s.stage == stage and (s in self.part.links or s in self.part.buffers):
                return self._probed(s, self._linked(s) if s in self.part.links else self._buffered(s))
        first = self.part.at.start[node] if node.kind == "read" else self.part.at.end(node)
        if stage > first:
            return self._delay(self.value(node, first), stage - first, f"value_{self._number()}")
        if node.kind == "index":
            return self._index(node, stage)
        if node.kind == "read":
            return Value.cast(self._of_stream(node)[: node.bits or self.width])
        return self._select(node) if node.kind == "select" else self._unit(node)

    def _word(self, number: float) -> int:
        """The bits of a constant."""
        return int(to_words(np.array([number]), self.plan.numbers.kind.format)[0])

    def _unit(self, node: Node) -> Any:
        if self.turns.shares(node):
            stage = self.part.at.start[node]
            whole = node.kind == "sub"  # of a difference an operand may be changed
            operands_ = [Operand(self.value(a, stage)) if whole else self._operand(a, stage) for a in node.args]
            return self.turns.use(node, self.number, self._running(stage), operands_, self.wires)
        args = self._summed(node) if node.kind == "sum" else [self.value(a, self.part.at.start[node]) for a in node.args]
        wired = self.units.wires(node.kind, args)
        if wired is not None:
            return wired
        made = self.units.unit(node.kind)
        n = self._number()
        self.m.submodules[f"{node.kind.partition(' ')[0]}_{n}"] = made
        self.m.d.comb += made.enable.eq(self.wires.enable_of(self.m, self.number, f"enable_of_{n}"))
        operands = self.units.operands(node.kind, args)
        self.m.d.comb += [getattr(made, name).eq(arg) for name, arg in zip("abc", operands, strict=False)]
        return self.units.result(node.kind, made)

    def _summed(self, node: Node) -> list[Value]:
        """Of a running sum: the sum so far, the summand, and whether there is a sum so far."""
        stage = self.part.at.start[node]
        first = self.where[node] & self._mask(node, 0)
        later = self.where[node] & ~first
        before = self.value(node.args[0], stage) if later.any() else Const(0, self.width)
        return [before, self.value(node.args[1], stage), self.condition(later, first, stage)]

    def _operand(self, node: Node, stage: int) -> Operand:
        """An operand of a unit that is shared.  A choice between a constant and something else is made where the process is
        chosen, so that it takes no LUTs of its own."""
        begins = self.part.at.start[node]
        if node.kind == "select" and node.bits != TRUTH and len(node.args) == 2 and self.part.at.end(node) == stage:
            first = self.where[node] & self._mask(node, 0)
            left = self.where[node] & ~first
            if node.args[0].kind == "constant" and first.any() and left.any():
                name = f"keeps_{self._number()}"
                key = "keeps", left.tobytes(), first.tobytes(), stage
                keep = self._passed(key, lambda: self._kept(left, first, begins, name))
                value = self._delay(self.value(node.args[1], begins), 1, f"value_{self._number()}")
                return Operand(value, keep, self._word(node.args[0].number))
        return Operand(self.value(node, stage))

    def _kept(self, yes: Bools, no: Bools, stage: int, name: str) -> Value:
        """A register a slot after a stage: whether an instance is one of `yes` there, and not one of `no`."""
        out = Signal(name=name)
        with self.m.If(self.enable):
            self.m.d.sync += out.eq(self.condition(yes, no, stage) & self._running(stage))
        return out

    def _select(self, node: Node) -> Value:
        """The choices that occur in this lane, by one register."""
        stage = self.part.at.start[node]
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
        out = Signal(node.bits or self.width, name=f"chosen_{self._number()}", reset_less=True)
        with self.m.If(self.enable):
            self.m.d.sync += out.eq(chosen)
        return out

    def _mask(self, node: Node, case: int) -> Bools:
        return self.part.mask(node.when[case])[..., self.number]

    def condition(self, yes: Bools, no: Bools, stage: int) -> Any:
        """Whether an instance at a stage is one of `yes`, and none of `no`."""

        def computed() -> Value:
            shape = self.nest.extents
            bit = self.conditions.of(yes.reshape(shape), no.reshape(shape))
            if bit is None:
                name = self.part.process.name
                what = f"a condition of `{name}` is neither few boxes of its loops nor within few half-planes"
                raise error("UPL2003", what, self.part.process.span, help=OTHER_ENGINES)
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
    def _of_stream(self, node: Node) -> Value:
        for fed in self.wires.feeds:
            for r in fed.feed.reads:
                if r.site.node is node:
                    shared = fed.feed.shared
                    return self._probed(r.site, self.wires.shared[r][self.number] if shared else self._of_window(fed, r))
        raise AssertionError(node.array)

    def _of_window(self, fed: Fed, r: Read) -> Value:
        """The lane's own window, at an address that follows its counters."""
        if fed.held:
            return self._held(fed, r)
        m, n, dealt = self.m, self._number(), fed.feed.dealt
        strobe, word, lane, place = self.wires.own[fed.feed][self.number]
        m.submodules[f"window_{n}"] = window = lane_window(self.width, fed.window, self.target, self.wide)
        words = fed.words // self.part.nest.lanes if dealt else fed.words
        m.d.comb += [
            window.write_enable.eq(strobe & (lane == self.number) if dealt else strobe), window.write_data.eq(word),
            window.write_address.eq(place), window.read_enable.eq(self.enable),
            window.read_address.eq(self._address(r.at, words, fed.window, LEAD + r.site.stage - Window.LATENCY)),
        ]  # fmt: skip
        return window.read_data

    def _address(self, at: Steps, words: int, depth: int, slots: int) -> Value:
        """An address along the lane's nest, so many slots after its counters."""
        name = f"walk_{self._number()}"
        key = (at, at.first + at.lane_step * self.number, words, depth, slots)
        return self._passed(
            key, lambda: walked(self.m, at, self.number, words, depth, self.nest, self.enable, slots, name, self.target)
        )  # fmt: skip

    def _index(self, node: Node, stage: int) -> Value:
        """An index expression as an integer, so many slots after the counters as a stage is."""
        part = self.part
        values = np.broadcast_to(np.asarray(part.nest.evaluate(node.index[0], part.process.sizes)), part.nest.shape)
        steps = affine(values, np.ones_like(values, dtype=bool))
        assert steps is not None, node.index
        low, high = int(values.min()), int(values.max())
        bits = max(high.bit_length(), (-low - 1).bit_length() if low < 0 else 0) + 1
        # The sign is a bit more; modulo a power of two, negative numbers are as others.
        word = self._address(steps, 0, 1 << bits, LEAD + stage)
        return Value.cast(Cat(word, word[-1].replicate(INTEGER - bits)))

    def _held(self, fed: Fed, r: Read) -> Value:
        """The word that is read, until the first instance comes that reads the next one; more of them wait behind.

        There are never too many: the head lets a word come only when a place is free again.
        """
        m, n, nest = self.m, self._number(), self.part.nest
        strobe, word, lane, _ = self.wires.own[fed.feed][self.number]
        at = np.reshape(places(r, nest), nest.extents)
        new = np.reshape(np.diff(at.ravel(), prepend=-1) != 0, nest.extents)
        loads = self.condition(new, ~new, r.site.stage - 1) & self._running(r.site.stage - 1) & self.enable
        return held(m, loads, strobe & (lane == self.number), word, fed.window, n)

    def _buffered(self, s: Site) -> Value:
        """A word that an instance of the same lane stored."""
        m, n, b = self.m, self._number(), self.part.buffers[s]
        writer = self.others[self._writer(s)]
        strobe, place = writer.stored[b][self.number]
        written = writer.written["result"][self.number]
        m.submodules[f"buffer_{n}"] = ram = Ram(len(written), b.places, Window.LATENCY, self.target, wide=self.wide)
        m.d.comb += [
            ram.write_address.eq(place), ram.write_data.eq(written),
            ram.write_enable.eq(strobe), ram.read_enable.eq(self.enable),
            ram.read_address.eq(self._address(b.read, b.words, b.places, LEAD + s.stage - Window.LATENCY)),
        ]  # fmt: skip
        return ram.read_data

    def _store(self, b: Buffer, strobe: Signal, place: Signal) -> None:
        """Strobe and place of the lane's results, for a buffer that reads them."""
        at, p = self.part.at.result, self.part.process
        done = self.part.mask(p.domain & last_summand(p))[..., self.number]
        self.m.d.comb += [
            strobe.eq(self._sends(done) & self.enable), place.eq(self._address(b.write, b.words, b.places, LEAD + at)),
        ]  # fmt: skip

    def _writer(self, s: Site) -> int:
        return self.of if s.own else next(n for n, p in enumerate(self.plan.parts) if p.process.name == s.array)

    def _linked(self, s: Site) -> Value:
        """What an earlier instance wrote."""
        link = next(k for k in self.part.links[s] if k.lane == self.number)
        what = "total" if s.running else "result"
        if link.constant is None:
            return self._varying(what, link, s)
        return self._tapped(what, link, self._writer(s))[link.constant]

    def _tapped(self, what: str, link: Link, writer: int) -> dict[int, Value]:
        """All lengths that this lane has of one source: a line with taps, or links back."""
        key = (writer, what, link.source)
        if key not in self._lines:
            found = {
                k.constant
                for s, links in self.part.links.items() if (what == "total") == s.running and self._writer(s) == writer
                for k in links if k.lane == self.number and k.source == link.source
            }  # fmt: skip
            lengths = sorted(n for n in found if n is not None)
            self._lines[key] = self._line(what, writer, link.source, lengths)
        return self._lines[key]

    def _line(self, what: str, writer: int, source: int, lengths: list[int]) -> dict[int, Value]:
        out: dict[int, Value] = {}
        value, before = self._from(what, writer, source), 0
        for k, length in enumerate(lengths):
            if source > self.number and k == 0:
                lag = source - self.number
                self.m.submodules[f"back_{self._number()}"] = back = Crossing(len(value), length, lag, self.target)
                self.m.d.comb += [
                    back.data_in.eq(value), back.write_enable.eq(self.others[writer].enable[source]),
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
        writer = self._writer(s)
        value, less = self._from(what, writer, link.source), 0
        if link.source > self.number:
            lag = link.source - self.number
            less = link.shortest - VARYING
            self.m.submodules[f"back_{self._number()}"] = back = Crossing(len(value), less, lag, self.target)
            self.m.d.comb += [
                back.data_in.eq(value), back.write_enable.eq(self.others[writer].enable[link.source]),
                back.read_enable.eq(self.enable),
            ]  # fmt: skip
            value = back.data_out
        rest = [n - less for n in lengths]
        self.m.submodules[f"varying_{self._number()}"] = line = VariableDelay(len(value), max(rest), self.target)
        block = self.nest.counters[self.part.nest.block]
        length = Signal(range(max(rest) + 1), name=f"length_{self._number()}")
        with self.m.Switch(block):
            for b, n in enumerate(rest):
                with self.m.Case(b):
                    self.m.d.comb += length.eq(n)
        late = delayed(self.m, length, LEAD + s.stage - VariableDelay.AHEAD, self.enable, f"length_{self._number()}")
        self.m.d.comb += [line.data_in.eq(value), line.enable.eq(self.enable), line.length.eq(late)]
        return line.data_out

    def _from(self, what: str, writer: int, source: int) -> Value:
        """A result of another lane; of an earlier one over a register a lane."""
        written = self.others[writer].written[what]
        if source >= self.number:
            return written[source]
        key = (writer, what, source)
        if key not in self._hops:
            hop = written[source]
            for n in range(source + 1, self.number + 1):
                register = Signal(len(hop), name=f"{what}_of_{source}_at_{n}", reset_less=True)
                self.m.d.sync += register.eq(hop)
                hop = register
            self._hops[key] = hop
        return self._hops[key]

    def _probed(self, s: Site, word: Value) -> Value:
        """The word that a site reads; noted if somebody wants to watch."""
        if self.watched:
            here = self.part.mask(s.when)[..., self.number]
            strobe = self.condition(here, ~here, s.stage) & self._running(s.stage) & self.enable
            self.probes.append(Probe(self.of, s, self.number, strobe, word))
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
        mine, value = Const(0), Const(0, self.width)
        if n in o.lanes:
            mine, value = self._turns(o) if len(o.lanes) > 1 else self._at_once(o)
        before, came = self.wires.sent[o][n - 1] if n else (Const(0), Const(0, self.width))
        goes = mine & self.enable
        m.d.sync += [strobe.eq(goes | before), word.eq(Mux(goes, value, came) if n in o.lanes else came)]

    def _at_once(self, o: Output) -> tuple[Value, Value]:
        return self._sends(o.when[..., self.number]), self.wires.written["result"][self.number]

    def _sends(self, when: Bools) -> Value:
        """Whether the instance whose result is there is one of those."""
        return self.condition(when, ~when, self.part.at.result) & self._running(self.part.at.result)

    def _turns(self, o: Output) -> tuple[Value, Value]:
        """Words wait until it is this lane's turn; one that another lane has and this one has not waits as a gap."""
        m, at = self.m, self.part.at.result
        some, own = o.when.any(axis=-1), o.when[..., self.number]
        depth = 1 << (o.depth - 1).bit_length()
        n = self._number()
        m.submodules[f"queue_{n}"] = queue = Ram(
            self.width + 1, depth, Window.LATENCY, self.target, QUEUE_IN_LUTS, self.wide
        )  # fmt: skip
        mine = self._later((o, "turn"), lambda: self._turn(o, n), f"turn_before_{n}")
        place = self._later((o, "place"), lambda: self._counted(mine, depth, f"place_{n}"), f"place_before_{n}")
        sends = self._sends(some)
        at_end = self._passed((o, "end"), lambda: self._counted(sends, depth, f"end_{n}"))
        written = self.wires.written["result"][self.number]
        flag = Const(1) if (own == some).all() else self.condition(own, some & ~own, at)
        m.d.comb += [
            queue.write_enable.eq(sends & self.enable), queue.write_address.eq(at_end),
            queue.write_data.eq(Cat(written, Const(0, self.width - len(written)), flag)),
            queue.read_address.eq(place), queue.read_enable.eq(self.enable),
        ]  # fmt: skip
        there = delayed(m, mine, Window.LATENCY, self.enable, f"turn_{n}")
        return there & queue.read_data[self.width], queue.read_data[:self.width]

    def _later(self, key: object, computed: Callable[[], Value], name: str) -> Value:
        """Control as the lane before has it a slot earlier, else computed."""
        value = self.before.control.get(key) if self.before is not None else None
        self.control[key] = out = computed() if value is None else delayed(self.m, self._hop(value), 1, self.enable, name)
        return out

    def _counted(self, event: Value, modulo: int, name: str) -> Signal:
        """The number of slots before this one with an event, modulo a power of two."""
        count = Signal(range(modulo), name=name)
        with self.m.If(self.enable & event):
            self.m.d.sync += count.eq(count + 1)
        return count

    def _turn(self, o: Output, n: int) -> Value:
        """Whether it is this lane's turn, by counting: a slot after the lane before."""
        lanes = self.part.nest.lanes
        self.m.submodules[f"turns_{n}"] = nest = LoopNest([turns_of(o), lanes], [0, o.pace - lanes])
        wait = self._marks(self.wires.start[self.number], LEAD + self.part.at.result + o.wait, f"wait_{n}")
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
