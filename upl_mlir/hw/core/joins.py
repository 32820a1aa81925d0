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

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.hash import set_of
from upl_mlir.hw.core.layouts import (
    Dimensions,
    Failure,
    Kind,
    activation_layout,
    key_layout,
    node_layout,
    token_layout,
    walk_layout,
)
from upl_mlir.hw.core.phases import Phase, first_probe, next_index, used_once
from upl_mlir.hw.core.presence import ROW_BITS, Presence, row_of
from upl_mlir.hw.core.records import Records, handed_on, service_ports
from upl_mlir.hw.core.stages import change_layout
from upl_mlir.hw.core.store import join_shape


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
                "node_en": In(1),
                "node_address": In(d.node_bits),
                "node_data": In(node_layout(d)),
                "walk_en": In(1),
                "walk_address": In(d.node_bits + d.input_bits),
                "walk_data": In(walk_layout(d)),
                "failure": Out(Failure),
                "failing": Out(token_layout(d)),
                "stopped": In(1),
                "idle": Out(1),
                "walking": Out(1),
                "probing": Out(1),
                "look": In(shape.set_bits),
                "mask": In(shape.set_bits, init=d.sets - 1),
                **service_ports(d, shape),
                **({"change": Out(change_layout(d))} if d.stages else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fetch (node table), then probe after probe in one stage that reads, decides and writes."""
        d = self.d
        m = Module()
        token = token_layout(d)
        m.submodules.records = records = Records(d, self.shape)
        m.submodules.presence = presence = Presence(d)
        m.submodules.nodes = nodes = Memory(shape=node_layout(d), depth=1 << d.node_bits, init=[])
        m.submodules.walks = walks = Memory(shape=walk_layout(d), depth=1 << (d.node_bits + d.input_bits), init=[])
        for memory, enable, address, written in (
            (nodes, self.node_en, self.node_address, self.node_data),
            (walks, self.walk_en, self.walk_address, self.walk_data),
        ):
            port = memory.write_port()
            m.d.comb += [port.en.eq(enable), port.addr.eq(address), port.data.eq(written)]
        node_read, walk_read = nodes.read_port(), walks.read_port()
        stopped = Signal()
        m.d.comb += stopped.eq((self.failure != Failure.NONE) | self.stopped)

        # ---- fetch: the token and, a cycle later, its rows of the tables
        waiting = Signal(token)  # the token whose rows are there
        waiting_valid = Signal()
        begin = Signal()  # it moves on to the probes
        can_fetch = ~waiting_valid | begin
        offered = self.token.payload
        m.d.comb += [
            self.token.ready.eq(can_fetch & ~stopped),
            node_read.en.eq(can_fetch),
            node_read.addr.eq(offered.node),
            walk_read.en.eq(can_fetch),
            walk_read.addr.eq(Cat(offered.input, offered.node)),
        ]
        with m.If(can_fetch):
            m.d.sync += [waiting.eq(offered), waiting_valid.eq(self.token.valid & ~stopped)]

        # ---- the probe stage: registers
        working = Signal()
        current, row, walk = Signal(token), Signal(node_layout(d)), Signal(walk_layout(d))
        home_row = Signal(ROW_BITS)  # where the partners of the token are counted
        phase = Signal(Phase)
        key = Signal(key_layout(d))  # what the record just read is compared with
        at_set = Signal(self.shape.set_bits)
        todo = Signal(d.max_inputs)  # counted inputs yet to be probed
        input_now = Signal(d.input_bits)
        values = Signal(data.ArrayLayout(32, d.max_inputs))
        missed = Signal()
        joined = Signal()  # the token is in its shared record, which is whole
        place = Signal(d.tag_bits)  # the full index that is being tried
        left_after = Signal(d.multiplicity_bits)  # of the current token after a firing in this cycle
        m.d.comb += left_after.eq(current.multiplicity)
        # Records that a firing uses, besides the last one: those of counted inputs, and last the shared one.
        saved_valid = Signal(d.max_inputs + 1)

        # ---- what the probe stage decides
        again = Signal()  # another probe for the same token
        next_phase = Signal(Phase)
        # The record that is next: of a counted input, the shared one, the token's own, the first one at the next index. That
        # is known late; what these are, and their sets, early.
        choice = Signal(d.max_inputs + 3)
        of_shared, of_own, of_onward = d.max_inputs, d.max_inputs + 1, d.max_inputs + 2
        next_place = Signal(d.tag_bits)
        next_todo = Signal(d.max_inputs)
        next_input = Signal(d.input_bits)
        hold = Signal()  # nothing can be done in this cycle
        finish = Signal()
        fire = Signal()
        fired_values = Signal(data.ArrayLayout(32, d.max_inputs))
        failing = Signal(Failure)
        free_stage = (~working | finish) & ~stopped
        m.d.comb += [
            finish.eq(working & ~again & ~hold), next_place.eq(place), begin.eq(free_stage & waiting_valid),
            next_todo.eq(todo),
        ]  # fmt: skip

        own = Signal(d.max_inputs)
        counted_token = Signal()
        m.d.comb += [own.eq(1 << current.input), counted_token.eq((row.counted & own) != 0)]

        # Sets are known before it is: of each class at the index that is tried, and of the token itself.
        def sets_at(node: Value, at: Value, keys: Value) -> list[Value]:
            tags = [*(at & keys[i] for i in range(d.max_inputs)), at]
            return [set_of((Const(n, d.class_bits), node, tag), self.shape.set_bits) for n, tag in enumerate(tags)]

        sets = sets_at(current.node, place, row.keys)
        own_class = Signal(d.class_bits)
        m.d.comb += own_class.eq(current.input)
        own_set = set_of((own_class, current.node, current.tag), self.shape.set_bits)

        # ---- what may come next into the stage
        fresh = node_read.data
        fresh_own = Signal(d.max_inputs)
        m.d.comb += fresh_own.eq(1 << waiting.input)
        fresh_sets = sets_at(waiting.node, waiting.tag, fresh.keys)
        start = first_probe(m, d, fresh, fresh_own, waiting.tag, "start", waiting.input, fresh_sets)
        everywhere: Value = waiting.tag
        for i in range(d.max_inputs):
            everywhere = everywhere & fresh.keys[i]
        fresh_row = row_of(waiting.node, everywhere, d)
        probe, home = Signal(key_layout(d)), Signal(self.shape.set_bits)
        with m.If(working & (hold | stopped)):
            m.d.comb += records.address.eq(at_set)
        with m.Elif(~working & ~waiting_valid):
            m.d.comb += records.address.eq(self.look)
        with m.Else():
            m.d.comb += records.address.eq(home)

        m.d.comb += records.fresh.eq((again & ~hold) | begin)
        with m.If(again & ~hold):
            m.d.sync += [
                phase.eq(next_phase), key.eq(probe), at_set.eq(home), todo.eq(next_todo), input_now.eq(next_input),
                place.eq(next_place), current.multiplicity.eq(left_after),
            ]  # fmt: skip
        with m.If(begin):
            m.d.sync += [
                working.eq(1), current.eq(waiting), row.eq(fresh), walk.eq(walk_read.data), key.eq(probe), at_set.eq(home),
                phase.eq(start["phase"]), todo.eq(start["todo"]), input_now.eq(start["input"]), missed.eq(0),
                place.eq(waiting.tag), saved_valid.eq(0), joined.eq(0), home_row.eq(fresh_row),
            ]  # fmt: skip
            for i in range(d.max_inputs):
                m.d.sync += values[i].eq(Mux(fresh_own[i], waiting.value, 0))
        with m.Elif(finish):
            m.d.sync += working.eq(0)

        # ---- one more field value for a token with open fields
        onward, last = next_index(m, d, walk, place)
        further_sets = sets_at(current.node, onward, row.keys)
        further = first_probe(m, d, row, own, onward, "further", current.input, further_sets)

        # ---- the next record, of the same token or of the next one
        counted = [(Const(i, d.class_bits), place & row.keys[i], sets[i]) for i in range(d.max_inputs)]
        shared_one = (Const(d.max_inputs, d.class_bits), place, sets[d.max_inputs])
        own_one, further_one, start_one = (own_class, current.tag, own_set), *(
            (one["class"], one["tag"], one["set"]) for one in (further, start)
        )
        chosen = [
            reduce(or_, [Mux(bit, candidate, 0) for bit, candidate in zip([*choice, ~again], candidates, strict=True)])
            for candidates in zip(*counted, shared_one, own_one, further_one, start_one, strict=True)
        ]
        m.d.comb += [
            probe.valid.eq(1), probe["class"].eq(chosen[0]), probe.node.eq(Mux(again, current.node, waiting.node)),
            probe.tag.eq(chosen[1]), home.eq(chosen[2] & self.mask),
        ]  # fmt: skip
        inputs = [*range(d.max_inputs), input_now, input_now, further["input"]]
        m.d.comb += next_input.eq(reduce(or_, [Mux(bit, one, 0) for bit, one in zip(choice, inputs, strict=True)]))

        hopeless = Signal()  # another input of the node has no token at all
        needed = Cat(row.counted & ~own, ((row.plain & ~own) != 0) & ~joined)
        m.d.comb += [
            presence.address.eq(Mux(begin, fresh_row, home_row)), presence.at.eq(home_row),
            hopeless.eq((needed & presence.absent) != 0), presence.changes.eq(records.write_key_en),
            presence.kind.eq(key["class"]), presence.comes.eq(records.write_key.valid),
        ]  # fmt: skip

        def walk_on() -> None:
            """After an index has been tried: the next one, or store what is left, or be done."""
            with m.If(left_after != 0):
                with m.If(last | hopeless):
                    m.d.comb += [again.eq(1), next_phase.eq(Phase.OWN), choice.eq(1 << of_own)]
                with m.Else():
                    m.d.comb += [again.eq(1), next_phase.eq(further["phase"]), choice.eq(1 << of_onward),
                                 next_todo.eq(further["todo"]), next_place.eq(onward)]  # fmt: skip

        def commit_next(pending: Value) -> None:
            """Write back the records that a firing has used, or go on if there are none."""
            with m.If(pending != 0):
                m.d.comb += [again.eq(1), next_phase.eq(Phase.COMMIT), choice.eq(pending & (~pending + 1))]
            with m.Elif(counted_token):
                walk_on()

        def attempt_fire() -> Value:
            """Offer the activation; the value says whether it was taken."""
            m.d.comb += [fire.eq(1), hold.eq(~self.activation.ready)]
            with m.If(self.activation.ready & counted_token):
                m.d.comb += left_after.eq(used_once(current.multiplicity, d))
            return self.activation.ready

        def probe_counted(these: Value) -> None:
            """The record of the first of some counted inputs is next."""
            lowest = these & (~these + 1)
            m.d.comb += [again.eq(1), next_phase.eq(Phase.COUNTED), choice.eq(lowest), next_todo.eq(these & ~lowest)]

        found, state = records.hit, records.state
        write_key_en, write_state_en, write_value = Signal(), Signal(), Signal.like(records.write_value)
        m.d.comb += [
            records.at.eq(at_set), records.key.eq(key), records.wanted.eq(working & (phase != Phase.FIRE) & ~stopped),
            *handed_on(self, records),
            records.write_way.eq(Mux(found, records.way, records.free_way)),
            records.value_set.eq(at_set), records.value_way.eq(records.write_way),
            records.write_key.eq(key), records.write_state.eq(state), records.write_values.eq(records.values),
            self.activation.valid.eq(fire & records.ready),
            records.write_key_en.eq(write_key_en & records.ready),
            records.write_state_en.eq(write_state_en & records.ready),
            records.write_value.eq(Mux(records.ready, write_value, 0)),
            self.activation.payload.node.eq(current.node),
            self.activation.payload.tag.eq(place),
            self.activation.payload["values"].eq(fired_values),
            fired_values.eq(values),
        ]  # fmt: skip

        def free_record() -> None:
            m.d.comb += [write_key_en.eq(1), records.write_key.valid.eq(0)]

        def note(*statements: object) -> None:
            """What is remembered of a probe, once it is known what there is."""
            with m.If(records.ready):
                m.d.sync += statements

        def allocate() -> None:
            """Take a free way for the key; there must be no hit."""
            with m.If(records.free):
                m.d.comb += [write_key_en.eq(1), write_state_en.eq(1), write_value.eq(~0)]
            with m.Else():
                m.d.comb += [hold.eq(1), records.evict.eq(1)]
                with m.If(records.full):
                    m.d.comb += failing.eq(Failure.FULL)

        # All of this is as if it were known by now what there is; if it is not, the cycle is held, and nothing written.
        with m.If(working & ~stopped):
            m.d.comb += self.probing.eq((phase != Phase.FIRE) & records.ready)
            with m.Switch(phase):
                with m.Case(Phase.FIRE):
                    with m.If((row.plain | row.counted) & own == 0):
                        m.d.comb += failing.eq(Failure.BAD_TOKEN)
                    with m.Elif(attempt_fire()):
                        commit_next(Const(0, d.max_inputs))

                with m.Case(Phase.COUNTED):
                    shared = Signal()
                    m.d.comb += shared.eq(((row.plain & ~own) != 0) & ~joined)
                    final = (todo == 0) & ~shared
                    after = Signal(d.multiplicity_bits)
                    m.d.comb += after.eq(used_once(state.left, d))
                    with m.If(found & final):
                        for i in range(d.max_inputs):
                            m.d.comb += fired_values[i].eq(Mux(input_now == i, records.values[0], values[i]))
                        with m.If(attempt_fire()):
                            m.d.comb += [write_state_en.eq(1), records.write_state.left.eq(after)]
                            with m.If(state.left == 1):
                                free_record()
                            commit_next(saved_valid)
                    with m.Elif(found):
                        for i in range(d.max_inputs):
                            with m.If(input_now == i):
                                note(values[i].eq(records.values[0]), saved_valid[i].eq(1))
                        m.d.comb += [again.eq(1), next_phase.eq(Phase.SHARED), choice.eq(1 << of_shared)]
                        with m.If(todo != 0):
                            probe_counted(todo)
                    with m.Else():
                        note(saved_valid.eq(0))
                        with m.If(counted_token):
                            walk_on()
                        with m.Elif(~joined):
                            note(missed.eq(1))
                            m.d.comb += [again.eq(1), next_phase.eq(Phase.SHARED), choice.eq(1 << of_shared)]

                with m.Case(Phase.SHARED):
                    mine = Signal(d.max_inputs)
                    m.d.comb += mine.eq(Mux(counted_token, 0, own))
                    present = Signal(d.max_inputs)
                    m.d.comb += present.eq(Mux(found, state.present, 0))
                    whole = Signal()
                    m.d.comb += [whole.eq(((present | mine) == row.plain) & ~missed),
                                 self.walking.eq(counted_token & records.ready)]  # fmt: skip
                    # A plain token with plain partners comes here first: they, and it, wait for the counted ones here.
                    partners = Signal(d.max_inputs)
                    m.d.comb += partners.eq(Mux(counted_token | (mine == row.plain), 0, row.counted))
                    with m.If((present & mine) != 0):
                        m.d.comb += failing.eq(Failure.DUPLICATE)
                    with m.Elif((current.kind != Kind.COMPLETE) & (mine != 0) & (current.multiplicity != 1)):
                        m.d.comb += failing.eq(Failure.BAD_TOKEN)
                    with m.Elif(whole & (partners == 0)):
                        for i in range(d.max_inputs):
                            m.d.comb += fired_values[i].eq(Mux(present[i], records.values[i], values[i]))
                        with m.If(attempt_fire()):
                            with m.If(found):
                                free_record()
                            commit_next(saved_valid)
                    with m.Elif(counted_token):
                        note(saved_valid.eq(0))
                        walk_on()
                    with m.Else():
                        m.d.comb += [records.write_state.present.eq(present | mine), records.write_state.left.eq(1)]
                        for i in range(d.max_inputs):
                            with m.If(mine[i]):
                                m.d.comb += records.write_values[i].eq(current.value)
                        with m.If(found):
                            m.d.comb += [write_state_en.eq(1), write_value.eq(mine)]
                        with m.Else():
                            allocate()
                        with m.If(found & whole & ~hopeless):
                            probe_counted(partners)
                            note(joined.eq(1), saved_valid[d.max_inputs].eq(1))
                            for i in range(d.max_inputs):
                                with m.If(present[i]):
                                    note(values[i].eq(records.values[i]))

                with m.Case(Phase.COMMIT):
                    after = Signal(d.multiplicity_bits, name="after_commit")
                    m.d.comb += [after.eq(used_once(state.left, d)), records.write_state.left.eq(after),
                                 write_state_en.eq(1)]  # fmt: skip
                    with m.If(state.left == 1):
                        free_record()
                    lowest = saved_valid & (~saved_valid + 1)
                    rest = Signal(d.max_inputs + 1)
                    m.d.comb += rest.eq(saved_valid & ~lowest)
                    note(saved_valid.eq(rest))
                    commit_next(rest)

                with m.Case(Phase.OWN):
                    m.d.comb += [
                        records.write_state.left.eq(current.multiplicity), records.write_state.present.eq(0),
                        records.write_values[0].eq(current.value),
                    ]  # fmt: skip
                    with m.If(found):
                        m.d.comb += failing.eq(Failure.DUPLICATE)
                    with m.Else():
                        allocate()

        with m.If(working & ~records.ready):
            m.d.comb += hold.eq(1)
        with m.If(records.corrupt):
            m.d.comb += failing.eq(Failure.PARITY)
        with m.If((failing != Failure.NONE) & ~stopped & (records.ready | records.corrupt)):
            m.d.sync += [self.failure.eq(failing), self.failing.eq(current)]
        m.d.comb += [

            self.idle.eq(~working & ~waiting_valid),
        ]  # fmt: skip
        if d.stages:
            m.d.comb += [self.change.any.eq(records.write_key_en), self.change.comes.eq(records.write_key.valid),
                         self.change.key.eq(key)]  # fmt: skip
        return m
