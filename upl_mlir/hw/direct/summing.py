"""Gathers: a summand meets what its gather has so far; a summand a cycle, of one gather or of many.

As in the hashed unit a gather holds one value or none, and has operations pending in the reducer; a value that meets a
value leaves with it. But the record is at a place that the index tells, and so it has no key; the index that a completed
gather goes on with comes back with the result, from a queue in the order of the operations.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
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
from upl_mlir.hw.core.reducer import Reducer
from upl_mlir.hw.direct.fetch import Fetch
from upl_mlir.hw.direct.late import LATE_DEPTH, put_off
from upl_mlir.hw.direct.layouts import GENERATION_BITS, row_bits, sum_rank_layout, sum_row_layout, sum_state_layout
from upl_mlir.hw.direct.rank import outside, rank, windowed

COMPLETED_DEPTH = 16
"""Completed gathers that can wait for the joins."""
RESERVED = 8
"""Places among them for what is under way when a summand is taken."""
STAGES = 4
"""Summands that can be under way to the reducer."""


def origin_layout(d: Dimensions) -> data.StructLayout:
    """Whose operation it is."""
    return data.StructLayout({"node": d.node_bits, "input": d.input_bits, "tag": d.tag_bits, "mode": MODE_BITS})


class Gathers(wiring.Component):
    """token (in stream): summands; done (out stream): completed gathers, as tokens.

    node_*, rank_*, failure, failing, stop, idle: as of the joins. used (out): gathers under way. trying (out): a summand or
    a result meets its gather; added (out): an operation begins; waiting (out): a summand waits for room in the reducer or
    behind. look (in), looked (out): as of the joins.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        super().__init__(
            {
                "token": In(stream.Signature(token_layout(d))),
                "done": Out(stream.Signature(token_layout(d))),
                "node_en": In(1),
                "node_address": In(d.node_bits),
                "node_data": In(sum_row_layout(d)),
                "rank_en": In(1),
                "rank_address": In(row_bits(d)),
                "rank_data": In(sum_rank_layout(d)),
                "failure": Out(Failure),
                "failing": Out(token_layout(d)),
                "stop": In(1),
                "idle": Out(1),
                "used": Out(range(d.sets + 1)),
                "trying": Out(1),
                "waiting": Out(1),
                "late": Out(1),
                "crowded": Out(1),
                "look": In(d.set_bits),
                "looked": Out(sum_state_layout(d)),
                "added": Out(added_layout(d)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The rows of the summand, then a stage of addresses and one of decisions."""
        d = self.d
        m = Module()
        token = token_layout(d)
        m.submodules.fetch = fetch = Fetch(d, sum_row_layout(d), sum_rank_layout(d))
        m.submodules.reducer = reducer = Reducer(d)
        m.submodules.inplace = inplace = InPlace(d)
        m.submodules.completed = completed = SyncFIFOBuffered(width=token.size, depth=COMPLETED_DEPTH)
        m.submodules.origins = origins = SyncFIFOBuffered(width=origin_layout(d).size, depth=d.pending)
        m.submodules.states = states = Memory(shape=sum_state_layout(d), depth=d.sets, init=[])
        m.submodules.values = values = Memory(shape=VALUE_BITS, depth=d.sets, init=[])
        state_write, value_write = states.write_port(), values.write_port()
        state_read = states.read_port(transparent_for=(state_write,))
        value_read = values.read_port(transparent_for=(value_write,))
        room = Signal()
        again = stream.Signature(token).create()
        late = put_off(m, d, self.token, again)
        m.d.comb += [
            fetch.node_en.eq(self.node_en), fetch.node_address.eq(self.node_address), fetch.node_data.eq(self.node_data),
            fetch.rank_en.eq(self.rank_en), fetch.rank_address.eq(self.rank_address), fetch.rank_data.eq(self.rank_data),
            room.eq((completed.level < COMPLETED_DEPTH - RESERVED) & (reducer.active < d.pending - STAGES) & ~self.stop),
            self.late.eq(late.w_en), self.crowded.eq(late.level > LATE_DEPTH // 4),
            fetch.token.payload.eq(again.payload), fetch.token.valid.eq(again.valid & room),
            again.ready.eq(fetch.token.ready & room), self.waiting.eq(self.token.valid & ~room & ~self.stop),
            self.done.payload.eq(completed.r_data), self.done.valid.eq(completed.r_rdy), completed.r_en.eq(self.done.ready),
        ]  # fmt: skip

        # ---- addresses: of a summand, or of a result that takes a turn of its own
        here, here_valid = Signal(fetch.found.payload.shape()), Signal()
        load, takes_result, ride = Signal(), Signal(), Signal()
        m.d.comb += [
            takes_result.eq(reducer.valid & ~ride & ~self.stop & (completed.level < COMPLETED_DEPTH - STAGES)
                            & (~here_valid | (reducer.waiting > d.pending // 2))),
            load.eq((~here_valid | ~takes_result) & ~self.stop),
            fetch.found.ready.eq(load),
            reducer.take.eq(takes_result | ride),
            origins.r_en.eq(reducer.take),
        ]  # fmt: skip
        with m.If(load):
            m.d.sync += [here.eq(fetch.found.payload), here_valid.eq(fetch.found.valid)]
        kept, generation = windowed(m, d, here.row.window, here.token.tag, "here")
        at_here = rank(m, d, kept, here.ranks.bases[here.token.input], here.ranks.weights, "here_rank")
        wrong = outside(m, d, here.token.tag, here.ranks.least, here.ranks.greatest, here.row.find.joined, "outside")
        address = Signal(d.set_bits)
        now, now_valid, now_wrong, returning = Signal(token), Signal(), Signal(), Signal()
        at, mode = Signal(d.set_bits), Signal(MODE_BITS)
        overflow, moves_on, age = Signal(), Signal(), Signal(GENERATION_BITS)
        result = data.View(origin_layout(d), origins.r_data)
        at_rest = ~here_valid & ~now_valid & ~takes_result
        m.d.comb += [
            address.eq(Mux(takes_result, reducer.result_place.set, Mux(at_rest, self.look, at_here))),
            state_read.addr.eq(address), value_read.addr.eq(address), self.looked.eq(state_read.data),
        ]  # fmt: skip
        m.d.sync += [at.eq(address), now_valid.eq((takes_result | here_valid) & ~self.stop), returning.eq(takes_result)]
        m.d.sync += [moves_on.eq(here.row.window.any & ~takes_result), age.eq(generation)]
        with m.If(takes_result):
            m.d.sync += [
                now.node.eq(result.node), now.input.eq(result.input), now.tag.eq(result.tag), mode.eq(result.mode),
                now.value.eq(reducer.result), overflow.eq(reducer.overflow), now_wrong.eq(0),
            ]  # fmt: skip
        with m.Else():
            m.d.sync += [now.eq(here.token), mode.eq(here.row.modes[here.token.input]), overflow.eq(0),
                         now_wrong.eq(wrong | ~here.there)]  # fmt: skip

        # ---- decisions: one value is kept; of two both go to the reducer; of three one is kept
        state, held = state_read.data, value_read.data
        pipelined, rides, begin, keeps = Signal(), Signal(), Signal(), Signal()
        value = Signal(VALUE_BITS)
        m.d.comb += [
            pipelined.eq(mode <= LAST_PIPELINED),
            rides.eq(~returning & state.valid & pipelined & reducer.valid & (reducer.result_place.set == at)),
            reducer.mode.eq(mode), reducer.place.set.eq(at), reducer.left.eq(held), reducer.right.eq(now.value),
            inplace.mode.eq(mode), inplace.left.eq(held), inplace.right.eq(now.value),
            value.eq(now.value), keeps.eq(1),
        ]  # fmt: skip
        with m.If(~pipelined):
            m.d.comb += value.eq(inplace.result)
        with m.Elif(rides):
            m.d.comb += [begin.eq(1), reducer.left.eq(reducer.result), value.eq(held), keeps.eq(state.holds)]
        with m.Elif(state.holds):
            m.d.comb += [begin.eq(1), keeps.eq(0)]
        # A summand whose multiplicity is unbounded does not know how many there are; another one tells.
        knows, tells = Signal(), Signal()
        left, total, pending = Signal(d.multiplicity_bits), Signal(d.multiplicity_bits), Signal(d.pending_bits)
        m.d.comb += [
            knows.eq(now.multiplicity != d.unbounded), tells.eq(~returning & knows & (state.total == 0)),
            total.eq(Mux(tells, now.multiplicity, state.total)),
            left.eq(state.left + Mux(tells, now.multiplicity, 0) - ~returning),
            pending.eq(state.pending + begin - (rides | returning)),
        ]  # fmt: skip
        goes = now_valid & ~self.stop
        failing, new, ends = Signal(Failure), Signal(), Signal()
        done, origin = data.View(token, completed.w_data), data.View(origin_layout(d), origins.w_data)
        m.d.comb += [
            new.eq(~returning & ~state.valid),
            late.w_data.eq(now.as_value()),
            state_write.data.generation.eq(state.generation),
            done.kind.eq(Kind.COMPLETE), done.node.eq(now.node), done.input.eq(now.input), done.tag.eq(now.tag),
            done.multiplicity.eq(1), done.value.eq(Mux(new, now.value, value)),
            completed.w_en.eq(ends),
            state_write.addr.eq(at), value_write.addr.eq(at),
            origin.node.eq(now.node), origin.input.eq(now.input), origin.tag.eq(now.tag), origin.mode.eq(mode),
            origins.w_en.eq(reducer.begin),
            self.trying.eq(goes),
            self.added.valid.eq(reducer.begin), self.added.node.eq(now.node), self.added.input.eq(now.input),
            self.added.tag.eq(now.tag), self.added.left.eq(reducer.left), self.added.right.eq(reducer.right),
        ]  # fmt: skip
        with m.If(goes):
            with m.If(now_wrong):
                m.d.comb += failing.eq(Failure.INDEX)
            with m.Elif(~returning & ((mode < FIRST_GATHER) | (now.multiplicity == 0))):
                m.d.comb += failing.eq(Failure.BAD_TOKEN)
            with m.Elif(moves_on & (state.generation != age)):
                m.d.comb += [late.w_en.eq(1), self.trying.eq(0)]
                with m.If(~late.w_rdy):
                    m.d.comb += failing.eq(Failure.FULL)
            with m.Elif(new & (now.multiplicity == 1)):
                m.d.comb += [ends.eq(1), state_write.en.eq(1), state_write.data.generation.eq(state.generation + 1)]
            with m.Elif(new):
                m.d.comb += [
                    state_write.en.eq(1), value_write.en.eq(1), value_write.data.eq(now.value),
                    state_write.data.valid.eq(1), state_write.data.holds.eq(1), state_write.data.pending.eq(0),
                    state_write.data.left.eq(Mux(knows, now.multiplicity, 0) - 1),
                    state_write.data.total.eq(Mux(knows, now.multiplicity, 0)),
                ]  # fmt: skip
                m.d.sync += self.used.eq(self.used + 1)
            with m.Elif(~returning & (state.total != 0) & ((knows & (state.total != now.multiplicity)) | (state.left == 0))):
                m.d.comb += failing.eq(Failure.COUNT)
            with m.Elif((~pipelined & inplace.overflow) | (rides & reducer.overflow) | (returning & overflow)):
                m.d.comb += failing.eq(Failure.OVERFLOW)
            with m.Else():
                m.d.comb += [reducer.begin.eq(begin), ride.eq(rides), state_write.en.eq(1)]
                with m.If((left == 0) & (pending == 0) & (total != 0)):
                    # And all 0 is written: the place is free, for the next generation.
                    m.d.comb += [ends.eq(1), state_write.data.generation.eq(state.generation + 1)]
                    m.d.sync += self.used.eq(self.used - 1)
                with m.Else():
                    m.d.comb += [
                        state_write.data.valid.eq(1), state_write.data.holds.eq(keeps), state_write.data.left.eq(left),
                        state_write.data.total.eq(total), state_write.data.pending.eq(pending),
                        value_write.en.eq(1), value_write.data.eq(value),
                    ]  # fmt: skip
        with m.If((failing != Failure.NONE) & ~self.stop):
            m.d.sync += [self.failure.eq(failing), self.failing.eq(now)]
        m.d.comb += self.idle.eq(fetch.idle & ~here_valid & ~now_valid & (reducer.active == 0)
                                & (completed.level == 0) & (late.level == 0))
        return m
