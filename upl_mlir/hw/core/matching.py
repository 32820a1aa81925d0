"""The matching unit with hashed stores: summands go to the gather pipe, other tokens to the join pipe, one token a cycle.

The records of gathers and of waiting tokens have nothing in common, so each pipe has a store of its own and takes a
token a cycle. What a token reads, decides and writes is atomic in its pipe; a finished gather goes to the join pipe as a
token of its own. So there is an order of the tokens in which the firings are those of the rule (the gold model's).
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

from upl_mlir.hw.core.gathers import Gathers
from upl_mlir.hw.core.joins import Joins
from upl_mlir.hw.core.layouts import (
    FIRST_GATHER,
    MODE_BITS,
    Dimensions,
    Failure,
    Kind,
    activation_layout,
    added_layout,
    key_layout,
    limits_layout,
    node_layout,
    state_layout,
    token_layout,
    walk_layout,
)

COMPLETED_DEPTH = 16
"""Completed gathers that can wait to be joined."""


class Matching(wiring.Component):
    """The unit. token (in stream), activation (out stream).

    node_*, walk_*: writes to the two tables; they must not come while tokens are under way.
    limits (in): how much of the unit is used, at most what there is; it must not change while there are records.
    failure (out): why the unit has stopped, for the token `failing` (out).
    idle (out): nothing is under way. used (out): records, spilled (out): those of them in backing memory.
    taken, taken_node (out): a token was taken for a node (a completed gather is not taken again). walking, probing, summing
    waiting_activation, waiting_reducer (out): what happens in this cycle, for the counters.
    look (in), look_way (in): at rest, the set and way to look at (the sets of the gathers come after those of the joins),
    or look_spilled (in) the record of a backing memory, if it is not 0; looked_key, looked_state (out): the record, two
    cycles later. spilling, waiting_backing (out): a record goes to the backing memory; a token waits for it.
    added (out): the operation on summands that begins in this cycle.
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
                "limits": In(limits_layout(d), init=d.limits),
                "failure": Out(Failure),
                "failing": Out(token_layout(d)),
                "idle": Out(1),
                "used": Out(range(d.most_records + 1)),
                "spilled": Out(range(d.look_spilled + 1)),
                "taken": Out(1),
                "taken_node": Out(d.node_bits),
                "walking": Out(1),
                "probing": Out(1),
                "summing": Out(1),
                "waiting_activation": Out(1),
                "waiting_reducer": Out(1),
                "look": In(d.look_bits),
                "look_way": In(d.way_bits),
                "look_spilled": In(range(d.look_spilled + 1)),
                "spilling": Out(1),
                "waiting_backing": Out(1),
                "looked_key": Out(key_layout(d)),
                "looked_state": Out(state_layout(d)),
                "added": Out(added_layout(d)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A stage that looks up what a token's input is, then one of the two pipes."""
        d = self.d
        m = Module()
        token = token_layout(d)
        m.submodules.joins = joins = Joins(d)
        m.submodules.gathers = gathers = Gathers(d)
        m.submodules.joining = joining = SyncFIFOBuffered(width=token.size, depth=d.joining)
        m.submodules.completed = completed = SyncFIFOBuffered(width=token.size, depth=COMPLETED_DEPTH)
        modes = data.ArrayLayout(MODE_BITS, d.max_inputs)
        m.submodules.modes = memory = Memory(shape=modes, depth=1 << d.node_bits, init=[])
        mode_write, mode_read = memory.write_port(), memory.read_port()
        stopped = Signal()
        m.d.comb += [
            stopped.eq(self.failure != Failure.NONE),
            mode_write.en.eq(self.node_en), mode_write.addr.eq(self.node_address), mode_write.data.eq(self.node_data.modes),
            joins.node_en.eq(self.node_en), joins.node_address.eq(self.node_address), joins.node_data.eq(self.node_data),
            joins.walk_en.eq(self.walk_en), joins.walk_address.eq(self.walk_address), joins.walk_data.eq(self.walk_data),
            joins.stopped.eq(stopped), gathers.stopped.eq(stopped),
            joins.mask.eq(self.limits.set_mask), gathers.mask.eq(self.limits.gather_mask),
        ]  # fmt: skip
        for unit in (joins, gathers):
            m.d.comb += [
                unit.words.eq(self.limits.spill_words), unit.cycles.eq(self.limits.backing_cycles),
                unit.last_way.eq(self.limits.last_way),
            ]  # fmt: skip

        # ---- the token, and a cycle later the mode of its input
        waiting, waiting_valid = Signal(token), Signal()
        moves = Signal()
        mode = Signal(MODE_BITS)
        m.d.comb += mode.eq(mode_read.data[waiting.input])
        summand = (mode >= FIRST_GATHER) & (waiting.kind != Kind.COMPLETE)
        m.d.comb += [
            self.token.ready.eq((~waiting_valid | moves) & ~stopped),
            mode_read.en.eq(self.token.ready), mode_read.addr.eq(self.token.payload.node),
            self.taken.eq(self.token.valid & self.token.ready), self.taken_node.eq(self.token.payload.node),
            moves.eq(waiting_valid & Mux(summand, gathers.summand.ready, joining.w_rdy)),
            gathers.summand.valid.eq(waiting_valid & summand), gathers.summand.payload.token.eq(waiting),
            gathers.summand.payload.mode.eq(mode),
            joining.w_en.eq(waiting_valid & ~summand), joining.w_data.eq(waiting),
        ]  # fmt: skip
        with m.If(self.token.ready):
            m.d.sync += [waiting.eq(self.token.payload), waiting_valid.eq(self.token.valid)]

        # ---- finished gathers are joined first
        m.d.comb += [
            completed.w_en.eq(gathers.complete.valid), completed.w_data.eq(gathers.complete.payload.as_value()),
            gathers.complete.ready.eq(completed.w_rdy),
            joins.token.valid.eq(completed.r_rdy | joining.r_rdy),
            joins.token.payload.eq(Mux(completed.r_rdy, completed.r_data, joining.r_data)),
            completed.r_en.eq(joins.token.ready), joining.r_en.eq(joins.token.ready & ~completed.r_rdy),
        ]  # fmt: skip
        wiring.connect(m, joins.activation, wiring.flipped(self.activation))

        with m.If(joins.failure != Failure.NONE):
            m.d.comb += [self.failure.eq(joins.failure), self.failing.eq(joins.failing)]
        with m.Else():
            m.d.comb += [self.failure.eq(gathers.failure), self.failing.eq(gathers.failing)]
        of_gathers = Signal()
        m.d.comb += [
            of_gathers.eq((self.look >= d.sets) | (self.look_spilled > d.spill_words)),
            joins.look.eq(self.look), gathers.look.eq(self.look - d.sets),
            joins.look_way.eq(self.look_way), gathers.look_way.eq(self.look_way),
            joins.look_spilled.eq(Mux(of_gathers, 0, self.look_spilled)),
            gathers.look_spilled.eq(Mux(self.look_spilled > d.spill_words, self.look_spilled - d.spill_words, 0)),
            self.looked_key.eq(Mux(of_gathers, gathers.looked_key.as_value(), joins.looked_key.as_value())),
            self.looked_state.left.eq(Mux(of_gathers, gathers.looked_state.left, joins.looked_state.left)),
            self.looked_state.present.eq(Mux(of_gathers, 0, joins.looked_state.present)),
            self.looked_state.total.eq(Mux(of_gathers, gathers.looked_state.total, 0)),
            self.walking.eq(joins.walking), self.probing.eq(joins.probing), self.summing.eq(gathers.summing),
            self.waiting_activation.eq(self.activation.valid & ~self.activation.ready),
            self.waiting_reducer.eq(gathers.waiting), self.added.eq(gathers.added),
            self.spilling.eq(joins.spilling | gathers.spilling),
            self.waiting_backing.eq(joins.detouring | gathers.detouring),
            self.used.eq(joins.used + gathers.used), self.spilled.eq(joins.spilled + gathers.spilled),
            self.idle.eq(joins.idle & gathers.idle & ~waiting_valid & (joining.level == 0) & (completed.level == 0)),
        ]  # fmt: skip
        return m
