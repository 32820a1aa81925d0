"""The gather pipe of a matching unit: a summand a cycle, whatever gather it belongs to and however its record is found.

A gather is a record of a store, which is given: one that searches sets (`Records`) or one in which every key has a place of
its own (`direct/places.py`). Operators that need a pipeline (sums and products of reals, products of integers) work on
values in accumulators, a few registers: a gather has one while operations are under way for it, holds a value there or none,
and a value that meets another one leaves with it through the reducer. So results of the reducer need no turn of the store:
they meet the next summand of their gather, the value that is held, or wait there. An accumulator for which nothing is under
way gives its value back to the store. Other operators are done in place, in the cycle of the probe.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.inplace import InPlace
from upl_mlir.hw.core.layouts import (
    FIRST_GATHER,
    LAST_PIPELINED,
    MODE_BITS,
    VALUE_BITS,
    Dimensions,
    Failure,
    Kind,
    added_layout,
    token_layout,
)
from upl_mlir.hw.core.records import RecordStore, handed_on
from upl_mlir.hw.core.reducer import Reducer
from upl_mlir.hw.core.stages import change_layout

QUEUED = 4
"""Pairs of a result and a held value that can wait for the reducer while summands use it."""


def summand_layout(d: Dimensions, records: RecordStore) -> data.StructLayout:
    """A summand, the mode of its input, and the set and the key of its record."""
    return data.StructLayout(
        {"token": token_layout(d), "mode": MODE_BITS, "set": records.shape.set_bits, "key": records.key_shape}
    )


def name_of(token: Value) -> Value:
    """What makes the gather of a summand another one than all others."""
    return Value.cast(Cat(token.node, token.input, token.tag))


class Gathers(wiring.Component):
    """summand (in stream); complete (out stream): finished gathers, as tokens.

    added (out): the operation that enters the reducer in this cycle. summing (out): a summand was taken in. waiting (out):
    one waits for the reducer. current (out): the summand that is worked on; early (out): it is given up, as its
    place is for an earlier record still. The other ports are those of `Joins`.
    """

    def __init__(self, d: Dimensions, records: RecordStore):
        self.d = d
        self.records = records
        self.shape = shape = records.shape
        super().__init__(
            {
                "summand": In(stream.Signature(summand_layout(d, records))),
                "complete": Out(stream.Signature(token_layout(d))),
                "added": Out(added_layout(d)),
                "failure": Out(Failure),
                "failing": Out(token_layout(d)),
                "stopped": In(1),
                "idle": Out(1),
                "summing": Out(1),
                "waiting": Out(1),
                "look": In(shape.set_bits),
                "current": Out(token_layout(d)),
                "early": Out(1),
                **records.service,
                **({"change": Out(change_layout(d))} if d.stages else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One stage for summands, and beside it one for results, which share the reducer and the accumulators."""
        d = self.d
        m = Module()
        size = d.accumulators
        names = data.StructLayout({"node": d.node_bits, "input": d.input_bits, "tag": d.tag_bits, "mode": MODE_BITS})
        homes = data.StructLayout({"set": self.shape.set_bits, "way": d.way_bits})
        m.submodules.records = records = self.records
        m.submodules.inplace = inplace = InPlace(d)
        m.submodules.reducer = reducer = Reducer(d, data.StructLayout({"at": d.accumulator_bits}))
        m.submodules.named = named = Memory(shape=names, depth=size, init=[])
        m.submodules.homes = homed = Memory(shape=homes, depth=size, init=[])
        m.submodules.queue = queue = SyncFIFO(width=2 * VALUE_BITS + d.accumulator_bits, depth=QUEUED)
        stopped = Signal()
        m.d.comb += stopped.eq((self.failure != Failure.NONE) | self.stopped)

        # ---- the accumulators: a value or none (`holds`), operations under way, have all summands come (`final`)
        live, holds, final = Signal(size), Signal(size), Signal(size)
        under_way = Array(Signal(d.pending_bits, name=f"under_way{n}") for n in range(size))
        values = Array(Signal(VALUE_BITS, name=f"accumulator{n}") for n in range(size))
        idle_ones = Signal(size)
        for n in range(size):
            m.d.comb += idle_ones[n].eq(live[n] & ~final[n] & (under_way[n] == 0))

        # ---- the summand
        working = Signal()
        current, mode = Signal(token_layout(d)), Signal(MODE_BITS)
        key = Signal(records.key_shape)
        at_set = Signal(self.shape.set_bits)
        hold, acts, finish = Signal(), Signal(), Signal()
        given = self.summand.payload
        takes = Signal()
        m.d.comb += [
            finish.eq(working & ~hold),
            self.summand.ready.eq((~working | finish) & ~stopped),
            takes.eq(self.summand.valid & self.summand.ready),
            records.address.eq(Mux(takes, given.set, Mux(working, at_set, self.look))), records.fresh.eq(takes),
            records.at.eq(at_set), records.key.eq(key), records.wanted.eq(working & ~stopped),
            *handed_on(self, records),
        ]  # fmt: skip
        with m.If(takes):
            m.d.sync += [
                working.eq(1), current.eq(given.token), mode.eq(given.mode), key.eq(given.key), at_set.eq(given.set),
            ]  # fmt: skip
        with m.Elif(finish):
            m.d.sync += working.eq(0)

        # ---- its record, and the accumulator that the record has, if any
        hit, state, value = records.hit, records.state, current.value
        pipelined = mode <= LAST_PIPELINED
        evicted_home = homed.read_port(domain="comb")
        home_write = homed.write_port()
        opened, holding = Signal(), Signal()
        held = Signal(VALUE_BITS)
        # Accumulators know their gathers, so that this one's is found while the store is still being read.
        whose = [Signal(len(name_of(current)), name=f"whose{n}") for n in range(size)]
        mine, here = Signal(size), Signal(d.accumulator_bits)
        for n in range(size):
            m.d.comb += mine[n].eq(live[n] & ~final[n] & (whose[n] == name_of(current)) & pipelined)
        m.d.comb += [
            here.eq(reduce(or_, [Mux(mine[n], n, 0) for n in range(size)])),
            opened.eq(mine.any()),
            holding.eq(~opened | (mine & holds).any()),
            held.eq(Mux(opened, reduce(or_, [Mux(mine[n], values[n], 0) for n in range(size)]), records.values[0])),
        ]  # fmt: skip
        unknown, done = current.multiplicity == d.unbounded, Signal()
        left, total = Signal(d.multiplicity_bits), Signal(d.multiplicity_bits)
        before, stated = state.left, state.total  # 0 without a record
        known, awaited = Signal(), Signal(d.multiplicity_bits)  # this summand is the last one if so many were to come
        m.d.comb += [
            known.eq(unknown | (stated != 0)), awaited.eq(1 - current.multiplicity),
            left.eq(before + Mux(known, 0, current.multiplicity) - 1),
            total.eq(Mux(unknown, stated, current.multiplicity)),
            done.eq(Mux(known, before == 1, before == awaited) & (~unknown | (stated != 0))),
        ]  # fmt: skip

        # ---- the oldest result of the reducer
        result, arrived = reducer.result, reducer.valid
        back = reducer.result_place.at
        rides, meets = Signal(), Signal()  # it meets the summand; the value that is held
        at_end = Signal()  # it is its gather's, for which no summand comes any more
        blocked, settles = Signal(), Signal()
        m.d.comb += [
            rides.eq(arrived & mine.bit_select(back, 1) & acts & hit),
            meets.eq(arrived & ~rides & holds.bit_select(back, 1)),
            at_end.eq(arrived & ~holds.bit_select(back, 1) & final.bit_select(back, 1) & (under_way[back] == 1)),
        ]

        # ---- what enters the reducer: a pair with the summand, one with the result, or one that has waited
        begins, completes = Signal(), Signal()
        pair = data.StructLayout({"at": d.accumulator_bits, "left": VALUE_BITS, "right": VALUE_BITS})
        waiting_pair = data.View(pair, queue.r_data)
        free_place, entered = Signal(d.accumulator_bits), Signal(d.accumulator_bits)
        for n in reversed(range(size)):
            with m.If(~live[n]):
                m.d.comb += free_place.eq(n)
        place = Mux(opened, here, free_place)
        pairs = Signal()  # it leaves with the value that is held
        name_of_result, name_of_pair = named.read_port(domain="comb"), named.read_port(domain="comb")
        name_write = named.write_port()
        name_entered = Mux(pairs, name_of_result.data.as_value(), name_of_pair.data.as_value())
        name_entered = data.View(names, name_entered)
        m.d.comb += [
            blocked.eq((meets & begins & ~queue.w_rdy) | (at_end & ~self.complete.ready)), pairs.eq(settles & meets),
            settles.eq(arrived & ~rides & ~blocked & ~stopped),
            reducer.take.eq(settles | rides),
            queue.w_data.eq(Cat(back, values[back], result)), queue.w_en.eq(pairs & begins),
            queue.r_en.eq(~begins & ~pairs),
            name_of_result.addr.eq(back), name_of_pair.addr.eq(waiting_pair.at),
            reducer.place.at.eq(entered), reducer.begin.eq(begins | pairs | queue.r_rdy),
            reducer.mode.eq(Mux(begins, mode, name_entered.mode)),
            self.added.valid.eq(reducer.begin), self.added.left.eq(reducer.left), self.added.right.eq(reducer.right),
            self.added.node.eq(Mux(begins, current.node, name_entered.node)),
            self.added.input.eq(Mux(begins, current.input, name_entered.input)),
            self.added.tag.eq(Mux(begins, current.tag, name_entered.tag)),
        ]  # fmt: skip
        with m.If(begins):
            m.d.comb += [entered.eq(place), reducer.left.eq(Mux(rides, result, held)), reducer.right.eq(value)]
        with m.Elif(pairs):
            m.d.comb += [entered.eq(back), reducer.left.eq(values[back]), reducer.right.eq(result)]
        with m.Else():
            m.d.comb += [entered.eq(waiting_pair.at), reducer.left.eq(waiting_pair.left),
                         reducer.right.eq(waiting_pair.right)]  # fmt: skip

        # ---- what becomes of the summand
        failing = Signal(Failure)
        writes = Signal()
        finished = Signal(VALUE_BITS)
        m.d.comb += [
            inplace.mode.eq(mode), inplace.left.eq(records.values[0]), inplace.right.eq(value),
            records.write_way.eq(Mux(hit, records.way, records.free_way)), records.write_key.eq(key),
            records.write_state.left.eq(left), records.write_state.total.eq(total),
            finished.eq(Mux(hit, inplace.result, value)), self.summing.eq(acts),
        ]  # fmt: skip
        crowded = (reducer.active + queue.level) >= d.pending - 2
        with m.If(working & ~records.ready):
            m.d.comb += hold.eq(1)
        with m.Elif(working & ~stopped):
            with m.If((mode < FIRST_GATHER) | (current.multiplicity == 0)):
                m.d.comb += failing.eq(Failure.BAD_TOKEN)
            with m.Elif(records.early):
                m.d.comb += self.early.eq(1)
            with m.Elif(~hit & ~done & ~records.free):
                m.d.comb += [hold.eq(1), records.evict.eq(1)]
                with m.If(records.full):
                    m.d.comb += failing.eq(Failure.FULL)
            with m.Elif(hit & pipelined):
                with m.If(crowded | (~opened & live.all())):
                    m.d.comb += [hold.eq(1), self.waiting.eq(1)]
                with m.Else():
                    m.d.comb += [acts.eq(1), begins.eq(rides | holding)]
            with m.Elif(done):
                goes = self.complete.ready & ~at_end  # results of the reducer first
                m.d.comb += [completes.eq(goes), hold.eq(~goes), acts.eq(goes)]
            with m.Else():
                m.d.comb += [acts.eq(1), writes.eq(1)]
            # What is wrong with its number or with the sum stops the unit, but too late to keep it from this step.
            with m.If(acts & hit & ~unknown & (stated != 0) & (stated != current.multiplicity)):
                m.d.comb += failing.eq(Failure.COUNT)
            with m.Elif(acts & hit & ~pipelined & inplace.overflow):
                m.d.comb += failing.eq(Failure.OVERFLOW)
        m.d.comb += [
            records.write_state_en.eq(acts & ~done), records.write_key.valid.eq(~done),
            records.write_key_en.eq(acts & (hit == done)), records.over.eq(acts & done), self.current.eq(current),
        ]  # fmt: skip

        # ---- the accumulators after this cycle
        sums = acts & hit & pipelined
        one, other = Signal(size), Signal(size)  # those of the summand and of the result
        ends = Signal(size)
        m.d.comb += [one.eq(Mux(sums, Mux(opened, mine, ~live & (live + 1)), 0)), other.eq(Mux(settles, 1 << back, 0)),
                     ends.eq(Mux(at_end, other, 0))]  # fmt: skip
        m.d.comb += [home_write.addr.eq(place), home_write.data.set.eq(at_set), home_write.data.way.eq(records.way),
                     home_write.en.eq(sums), name_write.addr.eq(place), name_write.en.eq(sums),
                     name_write.data.node.eq(current.node), name_write.data.input.eq(current.input),
                     name_write.data.tag.eq(current.tag), name_write.data.mode.eq(mode)]  # fmt: skip
        # The value of an accumulator without work goes back to the store when no other one may be written there.
        evicts, evicted, may_write = Signal(), Signal(d.accumulator_bits), Signal()
        m.d.comb += may_write.eq(working & records.ready & Mux(hit, ~pipelined, records.free))
        for n in reversed(range(size)):
            with m.If(idle_ones[n] & ~(working & mine[n])):
                m.d.comb += [evicts.eq(~records.bringing & ~may_write & ~stopped), evicted.eq(n)]
        m.d.comb += [
            evicted_home.addr.eq(evicted), records.write_value.eq(writes | evicts),
            records.value_set.eq(Mux(evicts, evicted_home.data.set, at_set)),
            records.value_way.eq(Mux(evicts, evicted_home.data.way, records.write_way)),
            records.write_values[0].eq(Mux(evicts, values[evicted], finished)),
            records.still.eq((live & ~final) == 0),
        ]  # fmt: skip
        m.d.sync += [
            live.eq((live | one) & ~ends & ~Mux(evicts, 1 << evicted, 0)),
            final.eq((final & ~Mux(opened, 0, one)) | Mux(done, one, 0)),
            holds.eq((holds & ~Mux(begins & ~rides, one, 0) & ~Mux(meets, other, 0))
                     | Mux(begins, 0, one) | Mux(meets, 0, other)),
        ]  # fmt: skip
        for n in range(size):
            with m.If(one[n] & ~rides):
                m.d.sync += under_way[n].eq(Mux(opened, under_way[n], 0) + begins)
            with m.Elif(other[n] & ~meets):
                m.d.sync += under_way[n].eq(under_way[n] - 1)
            with m.If(one[n]):
                m.d.sync += whose[n].eq(name_of(current))
            with m.If(one[n] & ~begins):
                m.d.sync += values[n].eq(value)
            with m.Elif(other[n] & ~meets):
                m.d.sync += values[n].eq(result)

        # ---- finished gathers, failures
        name = name_of_result.data
        done_token = self.complete.payload
        m.d.comb += [
            self.complete.valid.eq(completes | (settles & at_end)), done_token.kind.eq(Kind.COMPLETE),
            done_token.multiplicity.eq(1),
        ]  # fmt: skip
        with m.If(completes):
            m.d.comb += [done_token.node.eq(current.node), done_token.input.eq(current.input),
                         done_token.tag.eq(current.tag), done_token.value.eq(finished)]  # fmt: skip
        with m.Else():
            m.d.comb += [done_token.node.eq(name.node), done_token.input.eq(name.input), done_token.tag.eq(name.tag),
                         done_token.value.eq(result)]  # fmt: skip
        with m.If(records.corrupt):
            m.d.comb += failing.eq(Failure.PARITY)
        with m.If(~stopped):
            with m.If((settles | rides) & reducer.overflow):
                m.d.sync += [self.failure.eq(Failure.OVERFLOW), self.failing.node.eq(name.node),
                             self.failing.input.eq(name.input), self.failing.tag.eq(name.tag)]  # fmt: skip
            with m.Elif(failing != Failure.NONE):
                m.d.sync += [self.failure.eq(failing), self.failing.eq(current)]
        m.d.comb += self.idle.eq(~working & (live == 0))
        if d.stages:
            m.d.comb += [self.change.any.eq(records.write_key_en), self.change.comes.eq(records.write_key.valid),
                         self.change.key.eq(key)]  # fmt: skip
        return m
