"""The join pipe of the hashed matching unit: tokens of plain and counted inputs meet their partners, a probe a cycle.

A token is taken when the last probe of the one before it is done, in the same cycle; what it reads, decides and writes is
therefore atomic, and the order in which tokens are taken is the order of the firings (the gold model's).
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory, ReadPort
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.layouts import (
    Dimensions,
    Failure,
    TokenKind,
    activation_layout,
    key_layout,
    node_layout,
    token_layout,
    walk_layout,
)
from upl_mlir.hw.core.phases import Actions, Ahead, JoinStages, Phase, first_probe, next_index, used_once
from upl_mlir.hw.core.stages import change_layout
from upl_mlir.hw.core.stores.hash import home_of
from upl_mlir.hw.core.stores.presence import Presence, row_of
from upl_mlir.hw.core.stores.records import Records, handed_on, service_ports
from upl_mlir.hw.core.stores.store import join_shape
from upl_mlir.hw.ports import writes, written


@dataclass
class _Begun:
    """The first probe of the next token and its row of counters; the key and the set of the record that is read next."""

    start: dict[str, Signal]
    row: Value
    probe: Value
    home: Value


class Joins(wiring.Component):
    """token (in stream): tokens of plain and counted inputs, completed gathers among them. activation (out stream).

    node_*, walk_*: writes to the two tables. failure, failing (out): why the unit has stopped, and with which token; stopped
    (in): something else has. idle, used, spilled, walking, probing, spilling, detouring, look_way, look_spilled (in),
    looked_key, looked_state: as in `Matching`; look (in): the set. mask (in): the bits of the hash that are used;
    words, cycles: see `Spill`; change (out, if stages are told apart): of the records in this cycle.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        self.shape = shape = join_shape(d)
        super().__init__(
            {
                "token": In(stream.Signature(token_layout(d))),
                "activation": Out(stream.Signature(activation_layout(d))),
                **writes("node", d.node_bits, node_layout(d)),
                **writes("walk", d.node_bits + d.input_bits, walk_layout(d)),
                "failure": Out(Failure),
                "failing": Out(token_layout(d)),
                "stopped": In(1),
                "idle": Out(1),
                "walking": Out(1),
                "probing": Out(1),
                "look": In(shape.set_bits),
                "mask": In(shape.home_bits, init=-1),
                **service_ports(d, shape),
                **({"change": Out(change_layout(d))} if d.stages else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fetch (node table), then probe after probe in one stage that reads, decides and writes.

        Cycle 0: a token is taken; its node goes to the tables.
        Cycle 1: the node's rows are there (`waiting`); the set of the token's first record goes to the store.
        Cycle 2: the record is there (`working`); the phase decides: fire, write the record, probe another one (`again`,
            its set goes to the store in the same cycle), or finish. Without partners to look for that is all of it.
        Cycle 3 and on: further probes, one a cycle; a record that is not in its set, or an activation that is not taken,
            holds the cycle (`hold`).
        The next token begins (`begin`) in the cycle in which the one before it finishes.
        """
        d = self.d
        m = Module()
        m.submodules.records = records = Records(d, self.shape)
        s = JoinStages(d, records)
        m.submodules.presence = presence = Presence(d)
        node_read, walk_read = self._tables(m)
        m.d.comb += s.stopped.eq((self.failure != Failure.NONE) | self.stopped)
        self._fetch(m, s, node_read, walk_read)
        m.d.comb += s.left_after.eq(s.current.multiplicity)
        homes, own_home = self._homes(m, s)
        begun = self._begin(m, s, records, node_read.data, walk_read.data)
        ahead = self._ahead(m, s)
        self._next(m, s, begun, homes, own_home, ahead)
        self._expect(m, s, records, presence, begun.row)
        self._access(m, s, records)
        self._decide(m, s, records, Actions(m, d, s, records, self.activation, ahead))
        self._finish(m, s, records)
        return m

    def _tables(self, m: Module) -> tuple[ReadPort, ReadPort]:
        """Read ports of the tables of nodes and of walks; what is read comes a cycle later."""
        d = self.d
        m.submodules.nodes = nodes = Memory(shape=node_layout(d), depth=1 << d.node_bits, init=[])
        m.submodules.walks = walks = Memory(shape=walk_layout(d), depth=1 << (d.node_bits + d.input_bits), init=[])
        written(m, nodes, self, "node")
        written(m, walks, self, "walk")
        node_read, walk_read = nodes.read_port(), walks.read_port()
        return node_read, walk_read

    def _fetch(self, m: Module, s: JoinStages, node_read: ReadPort, walk_read: ReadPort) -> None:
        """Cycle 0: the token and, a cycle later, its rows of the tables."""
        can_fetch = ~s.waiting_valid | s.begin
        offered = self.token.payload
        m.d.comb += [
            self.token.ready.eq(can_fetch & ~s.stopped),
            node_read.en.eq(can_fetch),
            node_read.addr.eq(offered.node),
            walk_read.en.eq(can_fetch),
            walk_read.addr.eq(Cat(offered.input, offered.node)),
        ]
        with m.If(can_fetch):
            m.d.sync += [s.waiting.eq(offered), s.waiting_valid.eq(self.token.valid & ~s.stopped)]

    def _home(self, class_: Value, node: Value, tag: Value) -> Value:
        """The set and the chain of a record."""
        return home_of((class_, node, tag), self.shape.set_bits, self.shape.chain_bits)

    def _homes_at(self, node: Value, at: Value, keys: Value) -> list[Value]:
        """The homes of an instance's records: of each counted input, and of the shared one."""
        d = self.d
        tags = [*(at & keys[i] for i in range(d.max_inputs)), at]
        return [self._home(Const(n, d.class_bits), node, tag) for n, tag in enumerate(tags)]

    def _homes(self, m: Module, s: JoinStages) -> tuple[list[Value], Value]:
        """Cycle 2, known before the record is: the homes at the index that is tried, and that of the token itself."""
        free_stage = (~s.working | s.finish) & ~s.stopped
        m.d.comb += [
            s.finish.eq(s.working & ~s.again & ~s.hold), s.next_place.eq(s.place), s.begin.eq(free_stage & s.waiting_valid),
            s.next_todo.eq(s.todo),
        ]  # fmt: skip

        m.d.comb += [s.own.eq(1 << s.current.input), s.counted_token.eq((s.row.counted & s.own) != 0)]

        homes = self._homes_at(s.current.node, s.place, s.row.keys)
        m.d.comb += s.own_class.eq(s.current.input)
        return homes, self._home(s.own_class, s.current.node, s.current.tag)

    def _begin(self, m: Module, s: JoinStages, records: Records, fresh: Value, fresh_walk: Value) -> _Begun:
        """Cycle 1: what comes next into the probe stage: the next probe of its token, or the first one of the next token."""
        d = self.d
        fresh_own = Signal(d.max_inputs)
        m.d.comb += fresh_own.eq(1 << s.waiting.input)
        fresh_homes = self._homes_at(s.waiting.node, s.waiting.tag, fresh.keys)
        start = first_probe(m, d, fresh, fresh_own, s.waiting.tag, "start", s.waiting.input, fresh_homes)
        everywhere: Value = s.waiting.tag
        for i in range(d.max_inputs):
            everywhere = everywhere & fresh.keys[i]
        fresh_row = row_of(s.waiting.node, everywhere, d)
        probe, home = Signal(key_layout(d)), Signal(self.shape.home_bits)
        with m.If(s.working & (s.hold | s.stopped)):
            m.d.comb += records.address.eq(s.home)
        with m.Elif(~s.working & ~s.waiting_valid):
            m.d.comb += records.address.eq(self.look)
        with m.Else():
            m.d.comb += records.address.eq(home)

        m.d.comb += records.fresh.eq((s.again & ~s.hold) | s.begin)
        with m.If(s.again & ~s.hold):
            m.d.sync += [
                s.phase.eq(s.next_phase), s.key.eq(probe), s.home.eq(home), s.todo.eq(s.next_todo),
                s.input_now.eq(s.next_input), s.place.eq(s.next_place), s.current.multiplicity.eq(s.left_after),
            ]  # fmt: skip
        with m.If(s.begin):
            m.d.sync += [
                s.working.eq(1), s.current.eq(s.waiting), s.row.eq(fresh), s.walk.eq(fresh_walk), s.key.eq(probe),
                s.home.eq(home), s.phase.eq(start["phase"]), s.todo.eq(start["todo"]), s.input_now.eq(start["input"]),
                s.missed.eq(0), s.place.eq(s.waiting.tag), s.saved_valid.eq(0), s.joined.eq(0), s.home_row.eq(fresh_row),
            ]  # fmt: skip
            for i in range(d.max_inputs):
                m.d.sync += s.values[i].eq(Mux(fresh_own[i], s.waiting.value, 0))
        with m.Elif(s.finish):
            m.d.sync += s.working.eq(0)
        return _Begun(start, fresh_row, probe, home)

    def _ahead(self, m: Module, s: JoinStages) -> Ahead:
        """Cycle 2: one more field value for a token with open fields."""
        d = self.d
        onward, last = next_index(m, d, s.walk, s.place)
        further_homes = self._homes_at(s.current.node, onward, s.row.keys)
        further = first_probe(m, d, s.row, s.own, onward, "further", s.current.input, further_homes)
        return Ahead(onward, last, further)

    def _next(self, m: Module, s: JoinStages, begun: _Begun, homes: list[Value], own_home: Value, ahead: Ahead) -> None:
        """The record that is read next, of the same token or of the next one."""
        d, probe = self.d, begun.probe
        counted = [(Const(i, d.class_bits), s.place & s.row.keys[i], homes[i]) for i in range(d.max_inputs)]
        shared_one = (Const(d.max_inputs, d.class_bits), s.place, homes[d.max_inputs])
        own_one, further_one, start_one = (s.own_class, s.current.tag, own_home), *(
            (one["class"], one["tag"], one["home"]) for one in (ahead.first, begun.start)
        )
        chosen = [
            reduce(or_, [Mux(bit, candidate, 0) for bit, candidate in zip([*s.choice, ~s.again], candidates, strict=True)])
            for candidates in zip(*counted, shared_one, own_one, further_one, start_one, strict=True)
        ]
        m.d.comb += [
            probe.valid.eq(1), probe["class"].eq(chosen[0]), probe.node.eq(Mux(s.again, s.current.node, s.waiting.node)),
            probe.tag.eq(chosen[1]), begun.home.eq(chosen[2] & self.mask),
        ]  # fmt: skip
        inputs = [*range(d.max_inputs), s.input_now, s.input_now, ahead.first["input"]]
        m.d.comb += s.next_input.eq(reduce(or_, [Mux(bit, one, 0) for bit, one in zip(s.choice, inputs, strict=True)]))

    def _expect(self, m: Module, s: JoinStages, records: Records, presence: Presence, fresh_row: Value) -> None:
        """Whether there can be partners at all: counters of a row that is read when the token begins."""
        needed = Cat(s.row.counted & ~s.own, ((s.row.plain & ~s.own) != 0) & ~s.joined)
        m.d.comb += [
            presence.address.eq(Mux(s.begin, fresh_row, s.home_row)), presence.at.eq(s.home_row),
            s.hopeless.eq((needed & presence.absent) != 0), presence.changes.eq(records.write_key_en),
            presence.kind.eq(s.key["class"]), presence.comes.eq(records.write_key.valid),
        ]  # fmt: skip

    def _access(self, m: Module, s: JoinStages, records: Records) -> None:
        """Cycle 2: the ports of the store, and the activation; nothing is written before it is known what there is."""
        m.d.comb += [
            records.at.eq(s.home), records.key.eq(s.key),
            records.wanted.eq(s.working & (s.phase != Phase.FIRE) & ~s.stopped),
            *handed_on(self, records),
            records.write_way.eq(Mux(records.hit, records.way, records.free_way)),
            records.value_set.eq(s.home), records.value_way.eq(records.write_way),
            records.write_key.eq(s.key), records.write_state.eq(records.state), records.write_values.eq(records.values),
            self.activation.valid.eq(s.fire & records.ready),
            records.write_key_en.eq(s.write_key_en & records.ready),
            records.write_state_en.eq(s.write_state_en & records.ready),
            records.write_value.eq(Mux(records.ready, s.write_value, 0)),
            self.activation.payload.node.eq(s.current.node),
            self.activation.payload.tag.eq(s.place),
            self.activation.payload["values"].eq(s.fired_values),
            s.fired_values.eq(s.values),
        ]  # fmt: skip

    def _decide(self, m: Module, s: JoinStages, records: Records, act: Actions) -> None:
        """Cycle 2: what the phase makes of its record, as if it were known by now what there is; if it is not,
        the cycle is held, and nothing written."""
        with m.If(s.working & ~s.stopped):
            m.d.comb += self.probing.eq((s.phase != Phase.FIRE) & records.ready)
            with m.Switch(s.phase):
                with m.Case(Phase.FIRE):
                    self._fire(m, s, act)
                with m.Case(Phase.COUNTED):
                    self._counted(m, s, records, act)
                with m.Case(Phase.SHARED):
                    self._shared(m, s, records, act)
                with m.Case(Phase.COMMIT):
                    self._commit(m, s, records, act)
                with m.Case(Phase.OWN):
                    self._own(m, s, records, act)

    def _fire(self, m: Module, s: JoinStages, act: Actions) -> None:
        """The token alone makes the firing; what is left of its multiplicity is stored, where it counts."""
        with m.If((s.row.plain | s.row.counted) & s.own == 0):
            m.d.comb += s.failing.eq(Failure.BAD_TOKEN)
        with m.Else(), m.If(act.attempt_fire() & (s.current.multiplicity != self.d.unbounded)):
            act.commit_next(Const(0, self.d.max_inputs))

    def _counted(self, m: Module, s: JoinStages, records: Records, act: Actions) -> None:
        """The record of a counted input: the last one fires, others are kept; without it the index is given up."""
        d, found, state = self.d, records.hit, records.state
        shared = Signal()
        m.d.comb += shared.eq(((s.row.plain & ~s.own) != 0) & ~s.joined)
        final = (s.todo == 0) & ~shared
        after = Signal(d.multiplicity_bits)
        m.d.comb += after.eq(used_once(state.left, d))
        with m.If(found & final):
            for i in range(d.max_inputs):
                m.d.comb += s.fired_values[i].eq(Mux(s.input_now == i, records.values[0], s.values[i]))
            with m.If(act.attempt_fire()):
                m.d.comb += [s.write_state_en.eq(1), records.write_state.left.eq(after)]
                with m.If(state.left == 1):
                    act.free_record()
                act.commit_next(s.saved_valid)
        with m.Elif(found):
            for i in range(d.max_inputs):
                with m.If(s.input_now == i):
                    act.note(s.values[i].eq(records.values[0]), s.saved_valid[i].eq(1))
            m.d.comb += [s.again.eq(1), s.next_phase.eq(Phase.SHARED), s.choice.eq(1 << s.of_shared)]
            with m.If(s.todo != 0):
                act.probe_counted(s.todo)
        with m.Else():
            act.note(s.saved_valid.eq(0))
            with m.If(s.counted_token):
                act.walk_on()
            with m.Elif(~s.joined):
                act.note(s.missed.eq(1))
                m.d.comb += [s.again.eq(1), s.next_phase.eq(Phase.SHARED), s.choice.eq(1 << s.of_shared)]

    def _shared(self, m: Module, s: JoinStages, records: Records, act: Actions) -> None:
        """The record of the plain inputs: it fires if it is whole, else takes in a plain token; a counted one walks on."""
        d, found, state = self.d, records.hit, records.state
        mine = Signal(d.max_inputs)
        m.d.comb += mine.eq(Mux(s.counted_token, 0, s.own))
        present = Signal(d.max_inputs)
        m.d.comb += present.eq(Mux(found, state.present, 0))
        whole = Signal()
        m.d.comb += [whole.eq(((present | mine) == s.row.plain) & ~s.missed),
                     self.walking.eq(s.counted_token & records.ready)]  # fmt: skip
        # A plain token with plain partners comes here first: they, and it, wait for the counted ones here.
        partners = Signal(d.max_inputs)
        m.d.comb += partners.eq(Mux(s.counted_token | (mine == s.row.plain), 0, s.row.counted))
        with m.If((present & mine) != 0):
            m.d.comb += s.failing.eq(Failure.DUPLICATE)
        with m.Elif((s.current.kind != TokenKind.COMPLETE) & (mine != 0) & (s.current.multiplicity != 1)):
            m.d.comb += s.failing.eq(Failure.BAD_TOKEN)
        with m.Elif(whole & (partners == 0)):
            for i in range(d.max_inputs):
                m.d.comb += s.fired_values[i].eq(Mux(present[i], records.values[i], s.values[i]))
            with m.If(act.attempt_fire()):
                with m.If(found):
                    act.free_record()
                act.commit_next(s.saved_valid)
        with m.Elif(s.counted_token):
            act.note(s.saved_valid.eq(0))
            act.walk_on()
        with m.Else():
            m.d.comb += [records.write_state.present.eq(present | mine), records.write_state.left.eq(1)]
            for i in range(d.max_inputs):
                with m.If(mine[i]):
                    m.d.comb += records.write_values[i].eq(s.current.value)
            with m.If(found):
                m.d.comb += [s.write_state_en.eq(1), s.write_value.eq(mine)]
            with m.Else():
                act.allocate()
            with m.If(found & whole & ~s.hopeless):
                act.probe_counted(partners)
                act.note(s.joined.eq(1), s.saved_valid[d.max_inputs].eq(1))
                for i in range(d.max_inputs):
                    with m.If(present[i]):
                        act.note(s.values[i].eq(records.values[i]))

    def _commit(self, m: Module, s: JoinStages, records: Records, act: Actions) -> None:
        """A record that a firing has used is counted down, and freed at 0."""
        d, state = self.d, records.state
        after = Signal(d.multiplicity_bits, name="after_commit")
        m.d.comb += [after.eq(used_once(state.left, d)), records.write_state.left.eq(after),
                     s.write_state_en.eq(1)]  # fmt: skip
        with m.If(state.left == 1):
            act.free_record()
        lowest = s.saved_valid & (~s.saved_valid + 1)
        rest = Signal(d.max_inputs + 1)
        m.d.comb += rest.eq(s.saved_valid & ~lowest)
        act.note(s.saved_valid.eq(rest))
        act.commit_next(rest)

    def _own(self, m: Module, s: JoinStages, records: Records, act: Actions) -> None:
        """What is left of a counted token is stored."""
        m.d.comb += [
            records.write_state.left.eq(s.current.multiplicity), records.write_state.present.eq(0),
            records.write_values[0].eq(s.current.value),
        ]  # fmt: skip
        with m.If(records.hit):
            m.d.comb += s.failing.eq(Failure.DUPLICATE)
        with m.Else():
            act.allocate()

    def _finish(self, m: Module, s: JoinStages, records: Records) -> None:
        """The cycle is held until the record is there; the first failure is kept."""
        with m.If(s.working & ~records.ready):
            m.d.comb += s.hold.eq(1)
        with m.If(records.corrupt):
            m.d.comb += s.failing.eq(Failure.PARITY)
        with m.If((s.failing != Failure.NONE) & ~s.stopped & (records.ready | records.corrupt)):
            m.d.sync += [self.failure.eq(s.failing), self.failing.eq(s.current)]
        m.d.comb += self.idle.eq(~s.working & ~s.waiting_valid)
        if self.d.stages:
            m.d.comb += [self.change.any.eq(records.write_key_en), self.change.comes.eq(records.write_key.valid),
                         self.change.key.eq(s.key)]  # fmt: skip
