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
    TokenKind,
    added_layout,
    token_layout,
)
from upl_mlir.hw.core.reducer import Reducer
from upl_mlir.hw.core.stages import change_layout
from upl_mlir.hw.core.stores.open_gathers import opened_layout
from upl_mlir.hw.core.stores.records import RecordStore, handed_on

EMPTY, FILLED = 1, 2
"""What the record of an open gather has in place of the summands to come: none has come, some have."""
QUEUED = 4
"""Pairs of a result and a held value that can wait for the reducer while summands use it."""


def summand_layout(d: Dimensions, records: RecordStore) -> data.StructLayout:
    """A summand, the mode of its input, and the home (set and chain) and the key of its record."""
    return data.StructLayout(
        {"token": token_layout(d), "mode": MODE_BITS, "home": records.shape.home_bits, "key": records.key_shape}
    )


def name_of(token: Value) -> Value:
    """What makes the gather of a summand another one than all others."""
    return Value.cast(Cat(token.node, token.input, token.tag))


class _Stages:
    """What the steps of the gather pipe share. Vectors of `size` bits have a bit for each accumulator."""

    def __init__(self, d: Dimensions, records: RecordStore):
        size = d.accumulators
        self.stopped = Signal()
        # the accumulators: a value or none (`holds`), operations under way, have all summands come (`final`)
        self.live, self.holds, self.final = Signal(size), Signal(size), Signal(size, name="final")
        self.under_way = Array(Signal(d.pending_bits, name=f"under_way{n}") for n in range(size))
        self.values = Array(Signal(VALUE_BITS, name=f"accumulator{n}") for n in range(size))
        # the summand, the home and the key of its record; it stays (`hold`), is taken in (`acts`)
        self.working = Signal()
        self.current, self.mode = Signal(token_layout(d)), Signal(MODE_BITS)
        self.key = Signal(records.key_shape)
        self.home = Signal(records.shape.home_bits)
        self.hold, self.acts, self.finish = Signal(), Signal(), Signal(name="finish")
        self.pipelined = self.mode <= LAST_PIPELINED
        # its accumulator, if there is one (`opened`): a bit of `mine`, and its number `here`; what it holds
        self.opened, self.holding = Signal(), Signal(name="holding")
        self.held = Signal(VALUE_BITS)
        self.whose = [Signal(len(name_of(self.current)), name=f"whose{n}") for n in range(size)]
        self.mine, self.here = Signal(size), Signal(d.accumulator_bits)
        # how many are still to come: it is the last one (`done`); what the record says then
        self.unknown, self.done = self.current.multiplicity == d.unbounded, Signal(name="done")
        self.stated = records.state.total  # 0 without a record
        self.left, self.total = Signal(d.multiplicity_bits), Signal(d.multiplicity_bits, name="total")
        # of an open gather: the token is a summand, says that the gather exists, or ends it; no summand has come yet
        self.summand, self.present, self.closing, self.empty = Signal(), Signal(), Signal(), Signal(name="empty")
        self.fills = Signal()  # the summand is the first one
        # the oldest result of the reducer
        self.rides, self.meets = Signal(), Signal(name="meets")  # it meets the summand; the value that is held
        self.at_end = Signal()  # it is its gather's, for which no summand comes any more
        self.blocked, self.settles = Signal(), Signal(name="settles")  # it must wait; it leaves, not with the summand
        # what is done in this cycle
        self.begins, self.completes = Signal(), Signal(name="completes")  # the summand enters the reducer; ends its gather
        self.failing = Signal(Failure)
        self.writes = Signal()  # the summand's value is written to its record
        self.finished = Signal(VALUE_BITS)


class _Parts:
    """The parts of the gather pipe: the reducer, the names of accumulators, the places of their records, pairs that wait."""

    def __init__(self, d: Dimensions, records: RecordStore, m: Module):
        size = d.accumulators
        self.names = data.StructLayout({"node": d.node_bits, "input": d.input_bits, "tag": d.tag_bits, "mode": MODE_BITS})
        homes = data.StructLayout({"set": records.shape.set_bits, "way": d.way_bits})
        m.submodules.records = self.records = records
        m.submodules.inplace = self.inplace = InPlace(d)
        m.submodules.reducer = self.reducer = Reducer(d, data.StructLayout({"at": d.accumulator_bits}))
        m.submodules.named = self.named = Memory(shape=self.names, depth=size, init=[])
        m.submodules.homes = self.homed = Memory(shape=homes, depth=size, init=[])
        m.submodules.queue = self.queue = SyncFIFO(width=2 * VALUE_BITS + d.accumulator_bits, depth=QUEUED)
        self.back = self.reducer.result_place.at  # the accumulator of the reducer's oldest result
        name_of_result, name_of_pair = self.named.read_port(domain="comb"), self.named.read_port(domain="comb")
        self.name_of_result, self.name_of_pair = name_of_result, name_of_pair


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
                **({"opened": Out(opened_layout(d))} if d.closes else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One stage for summands, and beside it one for results, which share the reducer and the accumulators.

        Cycle 0: a summand is taken; the address of its record's set goes to the store.
        Cycle 1: its record and its accumulator are there (`working`). All of this is decided and done in that cycle, which
            is repeated (`hold`) as long as it cannot be: the summand begins a gather, is added in place, waits in an
            accumulator or enters the reducer with what is held there.
        Cycle 1 + the reducer's latency: a result meets the summand of that cycle, or the value that is held (both enter
            the reducer, at once or from the queue), or is kept, or is a finished gather.
        An accumulator without work gives its value back in a cycle in which nothing else is written to the store.
        """
        d = self.d
        m = Module()
        s = _Stages(d, self.records)
        parts = _Parts(d, self.records, m)
        m.d.comb += s.stopped.eq((self.failure != Failure.NONE) | self.stopped)
        idle_ones = Signal(d.accumulators)
        for n in range(d.accumulators):
            m.d.comb += idle_ones[n].eq(s.live[n] & ~s.final[n] & (s.under_way[n] == 0))
        self._take(m, s)
        self._find(m, s)
        self._meet(m, s, parts)
        place = self._reduce(m, s, parts)
        self._decide(m, s, parts)
        self._keep(m, s, parts, place, idle_ones)
        self._finish(m, s, parts)
        return m

    def _take(self, m: Module, s: _Stages) -> None:
        """Cycle 0: the next summand, and the address of its record."""
        records = self.records
        given = self.summand.payload
        takes = Signal()
        m.d.comb += [
            s.finish.eq(s.working & ~s.hold),
            self.summand.ready.eq((~s.working | s.finish) & ~s.stopped),
            takes.eq(self.summand.valid & self.summand.ready),
            records.address.eq(Mux(takes, given.home, Mux(s.working, s.home, self.look))), records.fresh.eq(takes),
            records.at.eq(s.home), records.key.eq(s.key), records.wanted.eq(s.working & ~s.stopped),
            *handed_on(self, records),
        ]  # fmt: skip
        with m.If(takes):
            m.d.sync += [
                s.working.eq(1), s.current.eq(given.token), s.mode.eq(given.mode), s.key.eq(given.key),
                s.home.eq(given.home),
            ]  # fmt: skip
        with m.Elif(s.finish):
            m.d.sync += s.working.eq(0)

    def _find(self, m: Module, s: _Stages) -> None:
        """Cycle 1: the accumulator of the summand's gather, if it has one, what it holds, how many summands are to come."""
        d, size, records = self.d, self.d.accumulators, self.records
        # Accumulators know their gathers, so that this one's is found while the store is still being read.
        for n in range(size):
            m.d.comb += s.mine[n].eq(s.live[n] & ~s.final[n] & (s.whose[n] == name_of(s.current)) & s.pipelined)
        m.d.comb += [
            s.here.eq(reduce(or_, [Mux(s.mine[n], n, 0) for n in range(size)])),
            s.opened.eq(s.mine.any()),
            s.holding.eq(~s.opened | (s.mine & s.holds).any()),
            s.held.eq(Mux(s.opened, reduce(or_, [Mux(s.mine[n], s.values[n], 0) for n in range(size)]), records.values[0])),
        ]  # fmt: skip
        before = records.state.left  # 0 without a record
        known, awaited = Signal(), Signal(d.multiplicity_bits)  # this summand is the last one if so many were to come
        m.d.comb += [
            known.eq(s.unknown | (s.stated != 0)), awaited.eq(1 - s.current.multiplicity),
            s.left.eq(before + Mux(known, 0, s.current.multiplicity) - 1),
            s.total.eq(Mux(s.unknown, s.stated, s.current.multiplicity)),
            s.done.eq(Mux(known, before == 1, before == awaited) & (~s.unknown | (s.stated != 0))),
        ]  # fmt: skip
        if d.closes:
            kind = s.current.kind
            m.d.comb += [
                s.summand.eq(kind == TokenKind.SUMMAND), s.present.eq(kind == TokenKind.PRESENT),
                s.closing.eq(kind == TokenKind.CLOSE), s.empty.eq(before == EMPTY), s.fills.eq(s.summand & s.empty),
            ]  # fmt: skip
            with m.If(s.summand | s.present | s.closing):
                m.d.comb += [s.left.eq(Mux(s.present, EMPTY, FILLED)), s.total.eq(s.current.multiplicity),
                             s.done.eq(s.closing)]  # fmt: skip

    def _meet(self, m: Module, s: _Stages, parts: _Parts) -> None:
        """What the oldest result of the reducer meets in this cycle."""
        arrived, back = parts.reducer.valid, parts.back
        m.d.comb += [
            s.rides.eq(arrived & s.mine.bit_select(back, 1) & s.acts & self.records.hit),
            s.meets.eq(arrived & ~s.rides & s.holds.bit_select(back, 1)),
            s.at_end.eq(arrived & ~s.holds.bit_select(back, 1) & s.final.bit_select(back, 1) & (s.under_way[back] == 1)),
        ]

    def _reduce(self, m: Module, s: _Stages, parts: _Parts) -> Value:
        """What enters the reducer: a pair with the summand, one with the result, or one that has waited. The summand's
        accumulator from now on."""
        d, reducer, queue, back, result = self.d, parts.reducer, parts.queue, parts.back, parts.reducer.result
        name_of_result, name_of_pair = parts.name_of_result, parts.name_of_pair
        pair = data.StructLayout({"at": d.accumulator_bits, "left": VALUE_BITS, "right": VALUE_BITS})
        waiting_pair = data.View(pair, queue.r_data)
        free_place, entered = Signal(d.accumulator_bits), Signal(d.accumulator_bits)
        for n in reversed(range(d.accumulators)):
            with m.If(~s.live[n]):
                m.d.comb += free_place.eq(n)
        place = Mux(s.opened, s.here, free_place)
        pairs = Signal()  # it leaves with the value that is held
        name_entered = Mux(pairs, name_of_result.data.as_value(), name_of_pair.data.as_value())
        name_entered = data.View(parts.names, name_entered)
        m.d.comb += [
            s.blocked.eq((s.meets & s.begins & ~queue.w_rdy) | (s.at_end & ~self.complete.ready)),
            pairs.eq(s.settles & s.meets),
            s.settles.eq(reducer.valid & ~s.rides & ~s.blocked & ~s.stopped),
            reducer.take.eq(s.settles | s.rides),
            queue.w_data.eq(Cat(back, s.values[back], result)), queue.w_en.eq(pairs & s.begins),
            queue.r_en.eq(~s.begins & ~pairs),
            name_of_result.addr.eq(back), name_of_pair.addr.eq(waiting_pair.at),
            reducer.place.at.eq(entered), reducer.begin.eq(s.begins | pairs | queue.r_rdy),
            reducer.mode.eq(Mux(s.begins, s.mode, name_entered.mode)),
            self.added.valid.eq(reducer.begin), self.added.left.eq(reducer.left), self.added.right.eq(reducer.right),
            self.added.node.eq(Mux(s.begins, s.current.node, name_entered.node)),
            self.added.input.eq(Mux(s.begins, s.current.input, name_entered.input)),
            self.added.tag.eq(Mux(s.begins, s.current.tag, name_entered.tag)),
        ]  # fmt: skip
        with m.If(s.begins):
            m.d.comb += [entered.eq(place), reducer.left.eq(Mux(s.rides, result, s.held)), reducer.right.eq(s.current.value)]
        with m.Elif(pairs):
            m.d.comb += [entered.eq(back), reducer.left.eq(s.values[back]), reducer.right.eq(result)]
        with m.Else():
            m.d.comb += [entered.eq(waiting_pair.at), reducer.left.eq(waiting_pair.left),
                         reducer.right.eq(waiting_pair.right)]  # fmt: skip
        return place

    def _decide(self, m: Module, s: _Stages, parts: _Parts) -> None:
        """Cycle 1: what becomes of the summand."""
        records, inplace, hit, value = self.records, parts.inplace, self.records.hit, s.current.value
        m.d.comb += [
            inplace.mode.eq(s.mode), inplace.left.eq(records.values[0]), inplace.right.eq(value),
            records.write_way.eq(Mux(hit, records.way, records.free_way)), records.write_key.eq(s.key),
            records.write_state.left.eq(s.left), records.write_state.total.eq(s.total),
            s.finished.eq(Mux(s.closing, records.values[0], Mux(hit & ~s.fills, inplace.result, value))),
            self.summing.eq(s.acts & ~s.closing),
        ]  # fmt: skip
        crowded = (parts.reducer.active + parts.queue.level) >= self.d.pending - 2
        with m.If(s.working & ~records.ready):
            m.d.comb += s.hold.eq(1)
        with m.Elif(s.working & ~s.stopped):
            with m.If((s.mode < FIRST_GATHER) | ((s.current.multiplicity == 0) & ~s.closing) | (s.closing & ~hit)):
                m.d.comb += s.failing.eq(Failure.BAD_TOKEN)
            with m.Elif(records.early):
                m.d.comb += self.early.eq(1)
            with m.Elif(~hit & ~s.done & ~records.free):
                m.d.comb += [s.hold.eq(1), records.evict.eq(1)]
                with m.If(records.full):
                    m.d.comb += s.failing.eq(Failure.FULL)
            with m.Elif(s.closing & s.opened):  # until its accumulator has given its value back
                m.d.comb += s.hold.eq(1)
            with m.Elif(hit & s.present):
                pass  # that it exists is known
            with m.Elif(hit & s.pipelined & ~s.fills & ~s.closing):
                with m.If(crowded | (~s.opened & s.live.all())):
                    m.d.comb += [s.hold.eq(1), self.waiting.eq(1)]
                with m.Else():
                    m.d.comb += [s.acts.eq(1), s.begins.eq(s.rides | s.holding)]
            with m.Elif(s.done):
                goes = self.complete.ready & ~s.at_end  # results of the reducer first
                m.d.comb += [s.completes.eq(goes), s.hold.eq(~goes), s.acts.eq(goes)]
            with m.Else():
                m.d.comb += [s.acts.eq(1), s.writes.eq(1)]
            # What is wrong with its number or with the sum stops the unit, but too late to keep it from this step.
            with m.If(s.acts & hit & ~s.unknown & ~s.closing & (s.stated != 0) & (s.stated != s.current.multiplicity)):
                m.d.comb += s.failing.eq(Failure.COUNT)
            with m.Elif(s.acts & hit & ~s.pipelined & ~s.fills & ~s.closing & inplace.overflow):
                m.d.comb += s.failing.eq(Failure.OVERFLOW)
        m.d.comb += [
            records.write_state_en.eq(s.acts & ~s.done), records.write_key.valid.eq(~s.done),
            records.write_key_en.eq(s.acts & (hit == s.done)), records.over.eq(s.acts & s.done), self.current.eq(s.current),
        ]  # fmt: skip

    def _keep(self, m: Module, s: _Stages, parts: _Parts, place: Value, idle_ones: Value) -> None:
        """The accumulators after this cycle, of which the summand's is at `place`; an idle one gives its value back."""
        d, size, records, hit = self.d, self.d.accumulators, self.records, self.records.hit
        evicted_home = parts.homed.read_port(domain="comb")
        home_write = parts.homed.write_port()
        name_write = parts.named.write_port()
        sums = s.acts & hit & s.pipelined & ~s.fills & ~s.closing
        one, other = Signal(size), Signal(size)  # those of the summand and of the result
        ends = Signal(size)
        m.d.comb += [one.eq(Mux(sums, Mux(s.opened, s.mine, ~s.live & (s.live + 1)), 0)),
                     other.eq(Mux(s.settles, 1 << parts.back, 0)), ends.eq(Mux(s.at_end, other, 0))]  # fmt: skip
        m.d.comb += [home_write.addr.eq(place), home_write.data.set.eq(s.home), home_write.data.way.eq(records.way),
                     home_write.en.eq(sums), name_write.addr.eq(place), name_write.en.eq(sums),
                     name_write.data.node.eq(s.current.node), name_write.data.input.eq(s.current.input),
                     name_write.data.tag.eq(s.current.tag), name_write.data.mode.eq(s.mode)]  # fmt: skip
        # The value of an accumulator without work goes back to the store when no other one may be written there.
        evicts, evicted, may_write = Signal(), Signal(d.accumulator_bits), Signal()
        m.d.comb += may_write.eq(s.working & records.ready & Mux(hit, ~s.pipelined | s.fills, records.free) & ~s.closing)
        for n in reversed(range(size)):
            with m.If(idle_ones[n] & ~(s.working & s.mine[n] & ~s.closing)):
                m.d.comb += [evicts.eq(~records.bringing & ~may_write & ~s.stopped), evicted.eq(n)]
        m.d.comb += [
            evicted_home.addr.eq(evicted), records.write_value.eq(s.writes | evicts),
            records.value_set.eq(Mux(evicts, evicted_home.data.set, s.home)),
            records.value_way.eq(Mux(evicts, evicted_home.data.way, records.write_way)),
            records.write_values[0].eq(Mux(evicts, s.values[evicted], s.finished)),
            records.still.eq((s.live & ~s.final) == 0),
        ]  # fmt: skip
        m.d.sync += [
            s.live.eq((s.live | one) & ~ends & ~Mux(evicts, 1 << evicted, 0)),
            s.final.eq((s.final & ~Mux(s.opened, 0, one)) | Mux(s.done, one, 0)),
            s.holds.eq((s.holds & ~Mux(s.begins & ~s.rides, one, 0) & ~Mux(s.meets, other, 0))
                     | Mux(s.begins, 0, one) | Mux(s.meets, 0, other)),
        ]  # fmt: skip
        for n in range(size):
            with m.If(one[n] & ~s.rides):
                m.d.sync += s.under_way[n].eq(Mux(s.opened, s.under_way[n], 0) + s.begins)
            with m.Elif(other[n] & ~s.meets):
                m.d.sync += s.under_way[n].eq(s.under_way[n] - 1)
            with m.If(one[n]):
                m.d.sync += s.whose[n].eq(name_of(s.current))
            with m.If(one[n] & ~s.begins):
                m.d.sync += s.values[n].eq(s.current.value)
            with m.Elif(other[n] & ~s.meets):
                m.d.sync += s.values[n].eq(parts.reducer.result)

    def _finish(self, m: Module, s: _Stages, parts: _Parts) -> None:
        """Finished gathers leave, of which the reducer's go first; the first failure is kept."""
        name, result, records = parts.name_of_result.data, parts.reducer.result, self.records
        done_token = self.complete.payload
        m.d.comb += [
            self.complete.valid.eq(s.completes | (s.settles & s.at_end)), done_token.kind.eq(TokenKind.COMPLETE),
            done_token.multiplicity.eq(1),
        ]  # fmt: skip
        with m.If(s.completes):
            m.d.comb += [done_token.node.eq(s.current.node), done_token.input.eq(s.current.input),
                         done_token.tag.eq(s.current.tag), done_token.value.eq(s.finished)]  # fmt: skip
        with m.Else():
            m.d.comb += [done_token.node.eq(name.node), done_token.input.eq(name.input), done_token.tag.eq(name.tag),
                         done_token.value.eq(result)]  # fmt: skip
        with m.If(records.corrupt):
            m.d.comb += s.failing.eq(Failure.PARITY)
        with m.If(~s.stopped):
            with m.If((s.settles | s.rides) & parts.reducer.overflow):
                m.d.sync += [self.failure.eq(Failure.OVERFLOW), self.failing.node.eq(name.node),
                             self.failing.input.eq(name.input), self.failing.tag.eq(name.tag)]  # fmt: skip
            with m.Elif(s.failing != Failure.NONE):
                m.d.sync += [self.failure.eq(s.failing), self.failing.eq(s.current)]
        m.d.comb += self.idle.eq(~s.working & (s.live == 0))
        if self.d.stages:
            m.d.comb += [self.change.any.eq(records.write_key_en), self.change.comes.eq(records.write_key.valid),
                         self.change.key.eq(s.key)]  # fmt: skip
        if self.d.closes:
            begins = s.acts & ~records.hit & (s.summand | s.present)
            m.d.comb += [self.opened.valid.eq(begins), self.opened.rank.eq(s.current.multiplicity),
                         self.opened.node.eq(s.current.node), self.opened.input.eq(s.current.input),
                         self.opened.tag.eq(s.current.tag)]  # fmt: skip
