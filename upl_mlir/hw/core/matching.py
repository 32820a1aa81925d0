"""The matching unit with a hashed store: one probe of the store a cycle, one token after the other.

A token is taken when the last probe of the one before it is done, in the same cycle; what it reads, decides and writes is
therefore atomic, and the order in which tokens are taken is the order of the firings (the gold model's). Gathers give
their additions to the reducer and go on; a completed gather comes back as a token of its own.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.detours import detours
from upl_mlir.hw.core.gathering import gather
from upl_mlir.hw.core.hash import set_of
from upl_mlir.hw.core.inplace import InPlace
from upl_mlir.hw.core.layouts import (
    FIRST_GATHER,
    Dimensions,
    Failure,
    Kind,
    activation_layout,
    added_layout,
    key_layout,
    node_layout,
    state_layout,
    token_layout,
    walk_layout,
)
from upl_mlir.hw.core.phases import Detour, Phase, first_probe, next_index, used_once
from upl_mlir.hw.core.presence import Presence
from upl_mlir.hw.core.reducer import Reducer
from upl_mlir.hw.core.spill import Spill
from upl_mlir.hw.core.store import Store

COMPLETED_DEPTH = 16
"""Completed gathers that can wait to be taken again."""
RESERVED = 8
"""Places among them for what is under way when a token is taken."""


class Matching(wiring.Component):
    """The unit. token (in stream), activation (out stream).

    node_*, walk_*: writes to the two tables; they must not come while tokens are under way.
    failure (out): why the unit has stopped, for the token `failing` (out).
    idle (out): nothing is under way. used (out): records in the store, spilled (out): those in backing memory.
    taken, taken_node (out): a token was taken for a node (a completed gather is not taken again). walking,
    waiting_activation, waiting_reducer, probing (out): what happens in this cycle, for the counters.
    look (in), look_way (in): at rest, the set and way to look at, or look_spilled (in) the record of the backing memory, if
    it is not 0; looked_key, looked_state (out): the record, two cycles later.
    added (out): the operation that the reducer begins in this cycle.
    spilling, waiting_backing (out): a record goes to the backing memory; a token waits for it.
    """

    def __init__(self, d: Dimensions):
        self.d = d
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
                "idle": Out(1),
                "used": Out(range(d.sets * d.ways + d.spill_words + 2)),
                "spilled": Out(range(d.spill_words + 2)),
                "taken": Out(1),
                "taken_node": Out(d.node_bits),
                "walking": Out(1),
                "probing": Out(1),
                "waiting_activation": Out(1),
                "waiting_reducer": Out(1),
                "look": In(d.set_bits),
                "look_way": In(d.way_bits),
                "look_spilled": In(range(d.spill_words + 1)),
                "spilling": Out(1),
                "waiting_backing": Out(1),
                "added": Out(added_layout(d)),
                "looked_key": Out(key_layout(d)),
                "looked_state": Out(state_layout(d)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Fetch (node table), then probe after probe in one stage that reads, decides and writes."""
        d = self.d
        m = Module()
        token = token_layout(d)
        m.submodules.store = store = Store(d)
        m.submodules.reducer = reducer = Reducer(d)
        m.submodules.presence = presence = Presence(d)
        m.submodules.spill = spill = Spill(d)
        m.submodules.inplace = inplace = InPlace(d)
        m.submodules.completed = completed = SyncFIFOBuffered(width=token.size, depth=COMPLETED_DEPTH)
        m.submodules.nodes = nodes = Memory(shape=node_layout(d), depth=1 << d.node_bits, init=[])
        m.submodules.walks = walks = Memory(shape=walk_layout(d), depth=1 << (d.node_bits + d.input_bits), init=[])
        for memory, enable, address, written in (
            (nodes, self.node_en, self.node_address, self.node_data),
            (walks, self.walk_en, self.walk_address, self.walk_data),
        ):
            port = memory.write_port()
            m.d.comb += [port.en.eq(enable), port.addr.eq(address), port.data.eq(written)]
        node_read, walk_read = nodes.read_port(), walks.read_port()
        stopped = self.failure != Failure.NONE

        # ---- fetch: the token and, a cycle later, its rows of the tables
        waiting = Signal(token)  # the token whose rows are there
        waiting_valid = Signal()
        advance = Signal()  # the waiting token moves on to the probes
        working = Signal()  # the probe stage holds a token or a result
        offered = Signal(token)
        room = Signal()
        m.d.comb += [
            # Both stages behind may need a place each among the completed gathers and in the reducer.
            room.eq((completed.level < RESERVED)
                    & (reducer.active + working + waiting_valid < d.pending)),
            offered.eq(Mux(completed.r_rdy, completed.r_data, self.token.payload.as_value())),
        ]  # fmt: skip
        can_fetch = ~waiting_valid | advance
        fetch = Signal()
        m.d.comb += [
            fetch.eq(can_fetch & ~stopped & (completed.r_rdy | (self.token.valid & room))),
            completed.r_en.eq(can_fetch & ~stopped),
            self.token.ready.eq(can_fetch & ~stopped & ~completed.r_rdy & room),
            node_read.en.eq(can_fetch),
            node_read.addr.eq(offered.node),
            walk_read.en.eq(can_fetch),
            walk_read.addr.eq(Cat(offered.input, offered.node)),
            self.taken.eq(self.token.valid & self.token.ready),
            self.taken_node.eq(self.token.payload.node),
            self.waiting_reducer.eq(self.token.valid & can_fetch & ~room),
        ]
        with m.If(can_fetch):
            m.d.sync += [waiting.eq(offered), waiting_valid.eq(fetch)]

        # ---- the probe stage: registers
        current, row, walk = Signal(token), Signal(node_layout(d)), Signal(walk_layout(d))
        phase = Signal(Phase)
        key = Signal(key_layout(d))  # what the record just read is compared with
        at_set = Signal(d.set_bits)
        at_way = Signal(d.way_bits)  # of a result
        todo = Signal(d.max_inputs)  # counted inputs yet to be probed
        input_now = Signal(d.input_bits)
        values = Signal(data.ArrayLayout(32, d.max_inputs))
        missed = Signal()
        place = Signal(d.tag_bits)  # the full index that is being tried
        result_value, result_overflow = Signal(32), Signal()
        left_after = Signal(d.multiplicity_bits)  # of the current token after a firing in this cycle
        m.d.comb += left_after.eq(current.multiplicity)
        saved_valid = Signal(d.max_inputs)  # counted inputs whose records a firing uses, besides the last one
        detour = Signal(Detour)
        victim = Signal(d.way_bits)
        searched = Signal()  # the chain of the set does not have the key
        kept_phase = Signal(Phase)

        # ---- what the probe stage decides
        again = Signal()  # another probe for the same token
        next_phase = Signal(Phase)
        next_class = Signal(d.class_bits)
        next_tag = Signal(d.tag_bits)
        next_place = Signal(d.tag_bits)
        next_todo = Signal(d.max_inputs)
        next_input = Signal(d.input_bits)
        hold = Signal()  # nothing can be done in this cycle
        finish = Signal()
        fire = Signal()
        fired_values = Signal(data.ArrayLayout(32, d.max_inputs))
        failing = Signal(Failure)
        m.d.comb += [finish.eq(working & ~again & ~hold), next_place.eq(place)]

        own = Signal(d.max_inputs)
        counted_token = Signal()
        m.d.comb += [own.eq(1 << current.input), counted_token.eq((row.counted & own) != 0)]

        def go(probe: dict[str, Signal]) -> list[object]:
            return [
                again.eq(1), next_phase.eq(probe["phase"]), next_class.eq(probe["class"]), next_tag.eq(probe["tag"]),
                next_todo.eq(probe["todo"]), next_input.eq(probe["input"]),
            ]  # fmt: skip

        # ---- what may come next into the stage
        fresh = node_read.data
        fresh_own = Signal(d.max_inputs)
        fresh_mode = Signal(4)
        m.d.comb += [
            fresh_own.eq(1 << waiting.input),
            fresh_mode.eq(fresh.modes[waiting.input]),
        ]
        start = first_probe(m, d, fresh, fresh_own, waiting.tag, "start", waiting.input)
        summand = (fresh_mode >= FIRST_GATHER) & (waiting.kind != Kind.COMPLETE)
        take_result = Signal()
        begin = Signal()
        free_stage = Signal()
        ride = Signal()  # the oldest result is used up by the summand in the stage
        m.d.comb += [
            free_stage.eq((~working | finish) & ~stopped),
            # A result rides along with a summand of its own gather; it takes a turn of its own when nothing else comes,
            # or when many wait.
            take_result.eq(free_stage & reducer.valid & ~ride & (completed.level < COMPLETED_DEPTH - 4)
                           & (~waiting_valid | (reducer.waiting > d.pending // 2))),
            begin.eq(free_stage & waiting_valid & ~take_result),
            advance.eq(begin),
            reducer.take.eq(take_result | ride),
        ]  # fmt: skip

        probe = Signal(key_layout(d))
        begun = Mux(summand, Cat(waiting.input, Const(0, d.class_bits - d.input_bits)), start["class"])
        chosen = (
            Mux(again, next_class, begun)[: d.class_bits],
            Mux(again, current.node, waiting.node),
            Mux(again, next_tag, Mux(summand, waiting.tag, start["tag"])),
        )
        m.d.comb += probe.as_value().eq(Cat(Const(1, 1), *chosen))
        home = Signal(d.set_bits)
        m.d.comb += home.eq(set_of(chosen, d.set_bits))
        at_rest = ~working & ~waiting_valid
        fetch_result = take_result | ((detour == Detour.RESULT) & reducer.valid)
        with m.If(fetch_result):
            m.d.comb += store.address.eq(reducer.result_place.set)
        with m.Elif(hold | (working & stopped)):
            m.d.comb += store.address.eq(at_set)
        with m.Elif(at_rest):
            m.d.comb += store.address.eq(self.look)
        with m.Else():
            m.d.comb += store.address.eq(home)

        with m.If(again & ~hold):
            m.d.sync += [
                phase.eq(next_phase), key.eq(probe), at_set.eq(home), todo.eq(next_todo), input_now.eq(next_input),
                place.eq(next_place), current.multiplicity.eq(left_after), searched.eq(0),
            ]  # fmt: skip
        with m.If(take_result):
            m.d.sync += [
                working.eq(1), phase.eq(Phase.RESULT), at_set.eq(reducer.result_place.set),
                at_way.eq(reducer.result_place.way), result_value.eq(reducer.result),
                result_overflow.eq(reducer.overflow),
            ]  # fmt: skip
        with m.Elif(begin):
            m.d.sync += [
                working.eq(1), current.eq(waiting), row.eq(fresh), walk.eq(walk_read.data), key.eq(probe), at_set.eq(home),
                phase.eq(Mux(summand, Phase.GATHER, start["phase"])), todo.eq(start["todo"]),
                input_now.eq(start["input"]), missed.eq(0), place.eq(waiting.tag), saved_valid.eq(0),
                searched.eq(0),
            ]  # fmt: skip
            for i in range(d.max_inputs):
                m.d.sync += values[i].eq(Mux(fresh_own[i], waiting.value, 0))
        with m.Elif(finish):
            m.d.sync += working.eq(0)

        # ---- one more field value for a token with open fields
        onward, last = next_index(m, d, walk, place)
        further = first_probe(m, d, row, own, onward, "further", current.input)

        hopeless = Signal()  # another input of the node has no token at all
        needed = Cat(row.counted & ~own, row.plain != 0)
        m.d.comb += [
            presence.node.eq(current.node), hopeless.eq((needed & presence.absent) != 0),
            presence.changes.eq(store.write_key_en & ((detour == Detour.NONE) | (detour == Detour.INTERLUDE))),
            presence.key.eq(Mux(store.write_key.valid, key.as_value(), store.found_key.as_value())),
            presence.key.valid.eq(store.write_key.valid),
        ]  # fmt: skip

        def walk_on() -> None:
            """After an index has been tried: the next one, or store what is left, or be done."""
            with m.If(left_after != 0):
                with m.If(last | hopeless):
                    m.d.comb += [
                        again.eq(1), next_phase.eq(Phase.OWN), next_class.eq(current.input), next_tag.eq(current.tag)
                    ]
                with m.Else():
                    m.d.comb += [*go(further), next_place.eq(onward)]

        def commit_next(pending: Value) -> None:
            """Write back the counted records that a firing has used, or go on if there are none."""
            with m.If(pending != 0):
                m.d.comb += [again.eq(1), next_phase.eq(Phase.COMMIT)]
                for i in reversed(range(d.max_inputs)):
                    with m.If(pending[i]):
                        m.d.comb += [next_class.eq(i), next_input.eq(i), next_tag.eq(place & row.keys[i])]
            with m.Elif(counted_token):
                walk_on()

        def attempt_fire() -> Value:
            """Offer the activation; the value says whether it was taken."""
            m.d.comb += [fire.eq(1), hold.eq(~self.activation.ready)]
            with m.If(self.activation.ready & counted_token):
                m.d.comb += left_after.eq(used_once(current.multiplicity, d))
            return self.activation.ready

        found, state = store.hit, store.state
        m.d.comb += [
            store.key.eq(key),
            store.by_way.eq((phase == Phase.RESULT) | ~working | (detour == Detour.SWAP) | (detour == Detour.EVICT)),
            spill.address.eq(store.address), spill.set.eq(at_set), spill.key.eq(key),
            spill.given.key.eq(store.found_key), spill.given.state.eq(store.state), spill.given["values"].eq(store.values),
            spill.look.eq(self.look_spilled),
            store.chosen_way.eq(Mux(working, Mux(phase == Phase.RESULT, at_way, victim), self.look_way)),
            store.write_set.eq(at_set),
            store.write_way.eq(Mux(store.hit, store.way, store.free_way)),
            store.write_key.eq(key),
            store.write_state.eq(state),
            store.write_values.eq(store.values),
            self.looked_key.as_value().eq(
                Mux(self.look_spilled != 0, spill.looked.key.as_value(), store.found_key.as_value())
            ),
            self.looked_state.as_value().eq(
                Mux(self.look_spilled != 0, spill.looked.state.as_value(), store.state.as_value())
            ),
            self.activation.valid.eq(fire),
            self.activation.payload.node.eq(current.node),
            self.activation.payload.tag.eq(place),
            self.activation.payload["values"].eq(fired_values),
            fired_values.eq(values),
        ]

        def write(enable: object = 1) -> None:
            m.d.comb += [store.write_key_en.eq(enable), store.write_state_en.eq(enable)]

        def free_record() -> None:
            m.d.comb += [store.write_key_en.eq(1), store.write_key.valid.eq(0)]

        def make_room() -> None:
            """Send a record of the set to its chain, or first take a result if operations are under way for all of them."""
            m.d.comb += hold.eq(1)
            with m.If(spill.full):
                m.d.comb += failing.eq(Failure.FULL)
            with m.Elif(store.movable):
                m.d.sync += [detour.eq(Detour.EVICT), victim.eq(store.movable_way)]
            with m.Else():
                m.d.sync += detour.eq(Detour.RESULT)

        def allocate() -> None:
            """Take a free way for the key; there must be no hit."""
            with m.If(store.free):
                write()
                m.d.comb += store.write_value.eq(~0)
            with m.Else():
                make_room()

        def complete(node: Value, number: Value, tag: Value, value: Value) -> None:
            """Send a finished gather round as a token."""
            done = data.View(token, completed.w_data)
            m.d.comb += [
                completed.w_en.eq(1), done.kind.eq(Kind.COMPLETE), done.node.eq(node), done.input.eq(number),
                done.tag.eq(tag), done.multiplicity.eq(1), done.value.eq(value),
            ]  # fmt: skip

        absent = Signal()
        m.d.comb += absent.eq(
            ~found & spill.any & ~searched & (phase != Phase.FIRE) & (phase != Phase.RESULT) & (detour == Detour.NONE)
        )
        with m.If(working & ~stopped & absent):
            m.d.comb += [hold.eq(1), spill.find.eq(1)]
            m.d.sync += detour.eq(Detour.FIND)
        detours(m, store, spill, detour, victim, searched, hold)
        with m.If((detour == Detour.RESULT) & ~stopped):
            m.d.comb += hold.eq(1)
            with m.If(reducer.valid):
                m.d.comb += ride.eq(1)
                m.d.sync += [
                    detour.eq(Detour.INTERLUDE), kept_phase.eq(phase), phase.eq(Phase.RESULT),
                    at_set.eq(reducer.result_place.set), at_way.eq(reducer.result_place.way),
                    result_value.eq(reducer.result), result_overflow.eq(reducer.overflow),
                ]  # fmt: skip
        with m.If((detour == Detour.INTERLUDE) & ~stopped):
            # Then the probe is made again.
            m.d.comb += [
                again.eq(1), next_phase.eq(kept_phase), next_class.eq(key["class"]), next_tag.eq(key.tag),
                next_todo.eq(todo), next_input.eq(input_now),
            ]  # fmt: skip
            m.d.sync += detour.eq(Detour.NONE)
        goes = working & ~stopped & ~absent & ((detour == Detour.NONE) | (detour == Detour.INTERLUDE))
        with m.If(goes):  # noqa: SIM117 -- one `with` would not nest them as Amaranth must see them
            with m.Switch(phase):
                with m.Case(Phase.FIRE):
                    with m.If((row.plain | row.counted) & own == 0):
                        m.d.comb += failing.eq(Failure.BAD_TOKEN)
                    with m.Elif(attempt_fire()):
                        commit_next(Const(0, d.max_inputs))
                with m.Case(Phase.COUNTED):
                    m.d.comb += self.probing.eq(1)
                    shared = Signal()
                    m.d.comb += shared.eq((row.plain & ~own) != 0)
                    final = (todo == 0) & ~shared
                    after = Signal(d.multiplicity_bits)
                    m.d.comb += after.eq(used_once(state.left, d))
                    with m.If(found & final):
                        for i in range(d.max_inputs):
                            m.d.comb += fired_values[i].eq(Mux(input_now == i, store.values[0], values[i]))
                        with m.If(attempt_fire()):
                            m.d.comb += [store.write_state_en.eq(1), store.write_state.left.eq(after)]
                            with m.If(after == 0):
                                free_record()
                            commit_next(saved_valid)
                    with m.Elif(found):
                        for i in range(d.max_inputs):
                            with m.If(input_now == i):
                                m.d.sync += [values[i].eq(store.values[0]), saved_valid[i].eq(1)]
                        m.d.comb += [again.eq(1), next_phase.eq(Phase.SHARED), next_class.eq(d.max_inputs),
                                     next_tag.eq(place)]  # fmt: skip
                        for i in reversed(range(d.max_inputs)):
                            with m.If(todo[i]):
                                m.d.comb += [
                                    next_phase.eq(Phase.COUNTED), next_class.eq(i), next_input.eq(i),
                                    next_tag.eq(place & row.keys[i]), next_todo.eq(todo & ~(1 << i)),
                                ]  # fmt: skip
                    with m.Else():
                        m.d.sync += saved_valid.eq(0)
                        with m.If(counted_token):
                            walk_on()
                        with m.Else():
                            m.d.sync += missed.eq(1)
                            m.d.comb += [again.eq(1), next_phase.eq(Phase.SHARED), next_class.eq(d.max_inputs),
                                         next_tag.eq(place)]  # fmt: skip
                with m.Case(Phase.SHARED):
                    m.d.comb += self.probing.eq(1)
                    mine = Signal(d.max_inputs)
                    m.d.comb += mine.eq(Mux(counted_token, 0, own))
                    present = Signal(d.max_inputs)
                    m.d.comb += present.eq(Mux(found, state.present, 0))
                    whole = ((present | mine) == row.plain) & ~missed
                    m.d.comb += self.walking.eq(counted_token)
                    with m.If((present & mine) != 0):
                        m.d.comb += failing.eq(Failure.DUPLICATE)
                    with m.Elif((current.kind != Kind.COMPLETE) & (mine != 0) & (current.multiplicity != 1)):
                        m.d.comb += failing.eq(Failure.BAD_TOKEN)
                    with m.Elif(whole):
                        for i in range(d.max_inputs):
                            m.d.comb += fired_values[i].eq(Mux(present[i], store.values[i], values[i]))
                        with m.If(attempt_fire()):
                            with m.If(found):
                                free_record()
                            commit_next(saved_valid)
                    with m.Elif(counted_token):
                        m.d.sync += saved_valid.eq(0)
                        walk_on()
                    with m.Else():
                        m.d.comb += [store.write_state.present.eq(present | mine), store.write_state.left.eq(1)]
                        for i in range(d.max_inputs):
                            with m.If(mine[i]):
                                m.d.comb += store.write_values[i].eq(current.value)
                        with m.If(found):
                            m.d.comb += [store.write_state_en.eq(1), store.write_value.eq(mine)]
                        with m.Else():
                            allocate()
                with m.Case(Phase.COMMIT):
                    m.d.comb += self.probing.eq(1)
                    after = Signal(d.multiplicity_bits, name="after_commit")
                    m.d.comb += [after.eq(used_once(state.left, d)), store.write_state.left.eq(after),
                                 store.write_state_en.eq(1)]  # fmt: skip
                    with m.If(after == 0):
                        free_record()
                    lowest = saved_valid & (~saved_valid + 1)
                    rest = Signal(d.max_inputs)
                    m.d.comb += rest.eq(saved_valid & ~lowest)
                    m.d.sync += saved_valid.eq(rest)
                    commit_next(rest)
                with m.Case(Phase.OWN):
                    m.d.comb += [
                        self.probing.eq(1), store.write_state.left.eq(current.multiplicity),
                        store.write_values[0].eq(current.value),
                    ]  # fmt: skip
                    with m.If(found):
                        m.d.comb += failing.eq(Failure.DUPLICATE)
                    with m.Else():
                        allocate()
                with m.Case(Phase.GATHER, Phase.RESULT):
                    m.d.comb += self.probing.eq(1)
                    gather(m, d, store, reducer, inplace, current, phase, row, at_set, at_way, result_value,
                           result_overflow, ride, failing, allocate, complete)  # fmt: skip

        with m.If((failing != Failure.NONE) & ~stopped):
            m.d.sync += [self.failure.eq(failing), self.failing.eq(current)]
            with m.If(phase == Phase.RESULT):
                m.d.sync += [self.failing.node.eq(store.found_key.node), self.failing.tag.eq(store.found_key.tag)]
        m.d.comb += [
            self.waiting_activation.eq(fire & ~self.activation.ready),
            self.added.valid.eq(reducer.begin), self.added.node.eq(store.found_key.node),
            self.added.input.eq(store.found_key["class"]), self.added.tag.eq(store.found_key.tag),
            self.added.left.eq(reducer.left), self.added.right.eq(reducer.right), self.spilling.eq(spill.insert),
            self.waiting_backing.eq(detour != Detour.NONE),
            self.used.eq(store.used + spill.used), self.spilled.eq(spill.used),
            self.idle.eq(~working & ~waiting_valid & (completed.level == 0) & (reducer.active == 0)),
        ]
        return m
