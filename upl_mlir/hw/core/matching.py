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

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from upl_mlir.hw.core.front import Front, summand_layout
from upl_mlir.hw.core.gathers import Gathers
from upl_mlir.hw.core.joins import Joins
from upl_mlir.hw.core.layouts import (
    Dimensions,
    Failure,
    activation_layout,
    added_layout,
    key_layout,
    limits_layout,
    node_layout,
    state_layout,
    token_layout,
    walk_layout,
)
from upl_mlir.hw.core.slices import Skid
from upl_mlir.hw.core.stages import Stages, stage_ports
from upl_mlir.hw.core.stores.hash import home_of
from upl_mlir.hw.core.stores.open_gathers import opened_layout
from upl_mlir.hw.core.stores.records import Records
from upl_mlir.hw.core.stores.store import Shape, gather_shape
from upl_mlir.hw.ports import writes


def matching_ports(d: Dimensions, node: data.StructLayout) -> dict[str, Any]:
    """The ports that every matching unit with two pipes has; `node` is the layout of its node table. See `Matching`."""
    return {
        "token": In(stream.Signature(token_layout(d))),
        "activation": Out(stream.Signature(activation_layout(d))),
        **writes("node", d.node_bits, node),
        "failure": Out(Failure),
        "failing": Out(token_layout(d)),
        "idle": Out(1),
        "used": Out(range(d.most_records + 1)),
        "spilled": Out(bits_for(d.look_spilled)),
        "taken": Out(1),
        "taken_node": Out(d.node_bits),
        "walking": Out(1),
        "probing": Out(1),
        "summing": Out(1),
        "waiting_activation": Out(1),
        "waiting_reducer": Out(1),
        "look": In(d.look_bits),
        "look_way": In(d.way_bits),
        "look_spilled": In(bits_for(d.look_spilled)),
        "spilling": Out(1),
        "waiting_backing": Out(1),
        "looked_key": Out(key_layout(d)),
        "looked_state": Out(state_layout(d)),
        "added": Out(added_layout(d)),
        "roomy": In(1, init=1),
        "crowded": Out(1),
    }


def connected(unit: Any, front: Front) -> list[Any]:
    """The statements that connect the ports that a unit and its front both have, except for the streams."""
    return [
        front.node_en.eq(unit.node_en), front.node_address.eq(unit.node_address), front.roomy.eq(unit.roomy),
        unit.taken.eq(front.taken), unit.taken_node.eq(front.taken_node),
    ]  # fmt: skip


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
    stage_*, live (out), if stages are told apart: see `Stages`. opened (out), if there are open gathers: one that begins.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        others = {
            **writes("walk", d.node_bits + d.input_bits, walk_layout(d)),
            "limits": In(limits_layout(d), init=d.limits),
            **({"opened": Out(opened_layout(d))} if d.closes else {}),
        }
        super().__init__({**matching_ports(d, node_layout(d)), **stage_ports(d), **others})

    def elaborate(self, platform: object) -> Module:
        """The front, and the two pipes."""
        d = self.d
        m = Module()
        m.submodules.front = front = Front(d)
        m.submodules.joins = joins = Joins(d)
        m.submodules.gathers = gathers = Gathers(d, Records(d, gather_shape(d)))
        # The pipes know late in a cycle whether they take a token: the front is told a cycle later.
        m.submodules.joined = joined = Skid(token_layout(d))
        m.submodules.summands = summands = Skid(summand_layout(d))
        stopped = Signal()
        summand, given = summands.target, gathers.summand
        found, shape = given.payload, gathers.shape
        home = home_of((found.key["class"], found.key.node, found.key.tag), shape.set_bits, shape.chain_bits)
        m.d.comb += [
            stopped.eq(self.failure != Failure.NONE),
            *connected(self, front), front.modes.eq(self.node_data.modes),
            front.inputs.eq(self.node_data.plain | self.node_data.counted),
            joins.node_en.eq(self.node_en), joins.node_address.eq(self.node_address), joins.node_data.eq(self.node_data),
            joins.walk_en.eq(self.walk_en), joins.walk_address.eq(self.walk_address), joins.walk_data.eq(self.walk_data),
            joins.stopped.eq(stopped), gathers.stopped.eq(stopped), front.stopped.eq(stopped),
            joins.mask.eq(self._mask(self.limits.set_mask, joins.shape)),
            given.valid.eq(summand.valid), summand.ready.eq(given.ready),
            found.token.eq(summand.payload.token), found.mode.eq(summand.payload.mode), found.key.valid.eq(1),
            found.key["class"].eq(found.token.input), found.key.node.eq(found.token.node),
            found.key.tag.eq(found.token.tag), found.home.eq(home & self._mask(self.limits.gather_mask, shape)),
        ]  # fmt: skip
        wiring.connect(m, gathers.complete, front.complete)
        wiring.connect(m, front.summand, summands.source)
        wiring.connect(m, front.joined, joined.source)
        wiring.connect(m, joined.target, joins.token)
        wiring.connect(m, joins.activation, front.fired)
        wiring.connect(m, wiring.flipped(self.token), front.token)
        wiring.connect(m, front.activation, wiring.flipped(self.activation))
        for unit in (joins, gathers):
            m.d.comb += [
                unit.words.eq(self.limits.spill_words), unit.cycles.eq(self.limits.backing_cycles),
                unit.last_way.eq(self.limits.last_way), unit.chain_mask.eq(self.limits.chain_mask),
            ]  # fmt: skip

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
            self.crowded.eq(front.crowded),
            self.walking.eq(joins.walking), self.probing.eq(joins.probing), self.summing.eq(gathers.summing),
            self.waiting_activation.eq(self.activation.valid & ~self.activation.ready),
            self.waiting_reducer.eq(gathers.waiting), self.added.eq(gathers.added),
            self.spilling.eq(joins.spilling | gathers.spilling),
            self.waiting_backing.eq(joins.detouring | gathers.detouring),
            self.used.eq(joins.used + gathers.used), self.spilled.eq(joins.spilled + gathers.spilled),
        ]  # fmt: skip
        if d.closes:
            m.d.comb += self.opened.eq(gathers.opened)
        idle = joins.idle & gathers.idle & front.idle & ~joined.target.valid & ~summands.target.valid
        if d.stages:
            m.submodules.stages = stages = Stages(d)
            m.d.comb += [
                stages.changes[0].eq(joins.change), stages.changes[1].eq(gathers.change),
                stages.row_en.eq(self.stage_en), stages.row_address.eq(self.stage_address),
                stages.row_data.eq(self.stage_data),
                # While backing memory is waited for, a token may be long under way without a record.
                self.live.eq(Mux(self.waiting_backing, ~0, stages.live)),
            ]  # fmt: skip
            idle = idle & stages.idle
        m.d.comb += self.idle.eq(idle)
        return m

    def _mask(self, of_sets: Value, shape: Shape) -> Any:
        """The bits of a home that are used."""
        return Cat(of_sets[: shape.set_bits], self.limits.chain_mask[: shape.chain_bits])
