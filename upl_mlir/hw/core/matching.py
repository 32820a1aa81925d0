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

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.gathers import Gathers
from upl_mlir.hw.core.hash import set_of
from upl_mlir.hw.core.joins import Joins
from upl_mlir.hw.core.layouts import (
    FIRST_GATHER,
    MODE_BITS,
    Dimensions,
    Failure,
    Kind,
    Mode,
    activation_layout,
    added_layout,
    key_layout,
    limits_layout,
    node_layout,
    state_layout,
    token_layout,
    walk_layout,
)
from upl_mlir.hw.core.records import Records
from upl_mlir.hw.core.store import gather_shape

COMPLETED_DEPTH = 16
"""Completed gathers that can wait to be joined."""


ENOUGH_WALKERS = 16
ENOUGH_JOINING = 256
"""With so many tokens that may fire many times, or that wait for others mostly, none of the host is wanted."""
SOLO_DEPTH = 64
"""Firings of a single token that can wait for the execution unit."""


def matching_ports(d: Dimensions, node: data.StructLayout) -> dict[str, Any]:
    """The ports that every matching unit with two pipes has; `node` is the layout of its node table. See `Matching`."""
    return {
        "token": In(stream.Signature(token_layout(d))),
        "activation": Out(stream.Signature(activation_layout(d))),
        "node_en": In(1),
        "node_address": In(d.node_bits),
        "node_data": In(node),
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


class Matching(wiring.Component):
    """The unit. token (in stream), activation (out stream); roomy (in): more activations are wanted; crowded (out): enough
    tokens wait here.

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
        others = {
            "roomy": In(1, init=1),
            "crowded": Out(1),
            "walk_en": In(1),
            "walk_address": In(d.node_bits + d.input_bits),
            "walk_data": In(walk_layout(d)),
            "limits": In(limits_layout(d), init=d.limits),
        }
        super().__init__({**matching_ports(d, node_layout(d)), **others})

    def elaborate(self, platform: object) -> Module:
        """A stage that looks up what a token's input is, then one of the two pipes."""
        d = self.d
        m = Module()
        token = token_layout(d)
        m.submodules.joins = joins = Joins(d)
        m.submodules.gathers = gathers = Gathers(d, Records(d, gather_shape(d)))
        m.submodules.joining = joining = SyncFIFOBuffered(width=token.size, depth=d.joining)
        m.submodules.walkers = walkers = SyncFIFOBuffered(width=token.size, depth=d.walkers)
        m.submodules.completed = completed = SyncFIFOBuffered(width=token.size, depth=COMPLETED_DEPTH)
        modes = data.ArrayLayout(MODE_BITS, d.max_inputs)
        m.submodules.modes = memory = Memory(shape=modes, depth=1 << d.node_bits, init=[])
        mode_write, mode_read = memory.write_port(), memory.read_port()
        # A plain token, or a completed gather, of a node that has no other input is a firing by itself.
        m.submodules.alone = lonely = Memory(shape=1, depth=1 << d.node_bits, init=[])
        lonely_write, lonely_token, lonely_gather = lonely.write_port(), *(lonely.read_port(domain="comb") for _ in range(2))
        m.submodules.alone_tokens = solo = SyncFIFOBuffered(width=token.size, depth=SOLO_DEPTH)
        inputs = self.node_data.plain | self.node_data.counted
        stopped = Signal()
        m.d.comb += [
            stopped.eq(self.failure != Failure.NONE),
            lonely_write.en.eq(self.node_en), lonely_write.addr.eq(self.node_address),
            lonely_write.data.eq((inputs & (inputs - 1)[: d.max_inputs]) == 0),
            mode_write.en.eq(self.node_en), mode_write.addr.eq(self.node_address), mode_write.data.eq(self.node_data.modes),
            joins.node_en.eq(self.node_en), joins.node_address.eq(self.node_address), joins.node_data.eq(self.node_data),
            joins.walk_en.eq(self.walk_en), joins.walk_address.eq(self.walk_address), joins.walk_data.eq(self.walk_data),
            joins.stopped.eq(stopped), gathers.stopped.eq(stopped),
            joins.mask.eq(self.limits.set_mask),
        ]  # fmt: skip
        for unit in (joins, gathers):
            m.d.comb += [
                unit.words.eq(self.limits.spill_words), unit.cycles.eq(self.limits.backing_cycles),
                unit.last_way.eq(self.limits.last_way),
            ]  # fmt: skip

        # ---- the token, and a cycle later the mode of its input
        waiting, waiting_valid = Signal(token), Signal()
        moves, solo_takes_token = Signal(), Signal()
        mode = Signal(MODE_BITS)
        given = gathers.summand.payload
        home = set_of((given.key["class"], given.key.node, given.key.tag), gathers.shape.set_bits)
        m.d.comb += mode.eq(mode_read.data[waiting.input])
        summand = (mode >= FIRST_GATHER) & (waiting.kind != Kind.COMPLETE)
        walker = mode == Mode.COUNTED
        alone = Signal()  # with another multiplicity it is a fault, which the join pipe finds
        m.d.comb += [lonely_token.addr.eq(waiting.node), alone.eq(lonely_token.data & ~walker & (waiting.multiplicity == 1))]
        room = Mux(alone, solo_takes_token, Mux(walker, walkers.w_rdy, joining.w_rdy))
        m.d.comb += [
            self.token.ready.eq((~waiting_valid | moves) & ~stopped),
            mode_read.en.eq(self.token.ready), mode_read.addr.eq(self.token.payload.node),
            self.taken.eq(self.token.valid & self.token.ready), self.taken_node.eq(self.token.payload.node),
            moves.eq(waiting_valid & Mux(summand, gathers.summand.ready, room)),
            gathers.summand.valid.eq(waiting_valid & summand), given.token.eq(waiting),
            given.mode.eq(mode), given.key.valid.eq(1), given.key["class"].eq(waiting.input),
            given.key.node.eq(waiting.node), given.key.tag.eq(waiting.tag), given.set.eq(home & self.limits.gather_mask),
            joining.w_en.eq(waiting_valid & ~summand & ~walker & ~alone), joining.w_data.eq(waiting),
            walkers.w_en.eq(waiting_valid & walker), walkers.w_data.eq(waiting),
        ]  # fmt: skip
        with m.If(self.token.ready):
            m.d.sync += [waiting.eq(self.token.payload), waiting_valid.eq(self.token.valid)]

        # ---- finished gathers are joined first; then tokens that may fire many times, as long as firings are wanted, and
        # while the execution unit has enough to do those that mostly wait for others
        walks, gathered = Signal(), Signal()
        m.d.comb += [
            self.crowded.eq((walkers.level >= ENOUGH_WALKERS) | (joining.level >= ENOUGH_JOINING)),
            walks.eq(walkers.r_rdy & (self.roomy | ~joining.r_rdy)), gathered.eq(completed.r_rdy & ~lonely_gather.data),
            completed.w_en.eq(gathers.complete.valid), completed.w_data.eq(gathers.complete.payload.as_value()),
            gathers.complete.ready.eq(completed.w_rdy),
            lonely_gather.addr.eq(data.View(token, completed.r_data).node),
            joins.token.valid.eq(gathered | walkers.r_rdy | joining.r_rdy),
            joins.token.payload.eq(Mux(gathered, completed.r_data, Mux(walks, walkers.r_data, joining.r_data))),
            completed.r_en.eq(Mux(lonely_gather.data, solo.w_rdy, joins.token.ready)),
            walkers.r_en.eq(joins.token.ready & ~gathered & walks), joining.r_en.eq(joins.token.ready & ~gathered & ~walks),
        ]  # fmt: skip

        # ---- firings, those of the join pipe first
        single = data.View(token, solo.r_data)
        m.d.comb += [
            solo_takes_token.eq(solo.w_rdy & ~(completed.r_rdy & lonely_gather.data)),
            solo.w_en.eq((completed.r_rdy & lonely_gather.data) | (waiting_valid & ~summand & alone)),
            solo.w_data.eq(Mux(completed.r_rdy & lonely_gather.data, completed.r_data, waiting)),
            self.activation.valid.eq(joins.activation.valid | (solo.r_rdy & ~stopped)),
            joins.activation.ready.eq(self.activation.ready), solo.r_en.eq(self.activation.ready & ~joins.activation.valid),
            self.activation.payload.eq(joins.activation.payload),
        ]  # fmt: skip
        with m.If(~joins.activation.valid):
            m.d.comb += [self.activation.payload.node.eq(single.node), self.activation.payload.tag.eq(single.tag)]
            for i in range(d.max_inputs):
                m.d.comb += self.activation.payload["values"][i].eq(Mux(single.input == i, single.value, 0))

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
            self.idle.eq(joins.idle & gathers.idle & ~waiting_valid & (joining.level == 0) & (walkers.level == 0)
                         & (completed.level == 0) & (solo.level == 0)),
        ]  # fmt: skip
        return m
