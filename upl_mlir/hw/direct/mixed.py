"""A direct store with a small hashed one beside it, for the nodes whose tokens have no places of their own.

A bit for each node sends its tokens to the one or to the other. Tokens of two nodes never meet, so neither store knows of
the other one; their firings take turns.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Out

from upl_mlir.hw.core.layouts import Dimensions, Failure, added_layout, node_layout, walk_layout
from upl_mlir.hw.core.matching import Matching, matching_ports
from upl_mlir.hw.core.stores.open_gathers import opened_layout
from upl_mlir.hw.direct.layouts import direct_node_layout, rank_layout, row_bits
from upl_mlir.hw.direct.matching import DirectMatching
from upl_mlir.hw.ports import writes


def mixed_node_layout(d: Dimensions) -> data.StructLayout:
    """A row of the node table: in which store the node's tokens wait, and its row there."""
    assert d.beside is not None
    return data.StructLayout({"beside": 1, "direct": direct_node_layout(d.alone), "hashed": node_layout(d.beside)})


class MixedMatching(wiring.Component):
    """Both units, with the ports of one; what is not said here is said in `Matching`.

    rank_*: writes to the rows of the direct unit, walk_*: to those of the hashed one. look (in): the places of the direct
    store, then the sets of the hashed one; look_spilled (in): its backing memories. added_beside (out): the operation on
    summands that begins in the hashed unit. Of what both do in a cycle the ports for counters say it once.
    """

    def __init__(self, d: Dimensions):
        assert d.beside is not None
        self.d = d
        self.direct, self.beside = d.alone, d.beside
        others = {
            **writes("rank", row_bits(d), rank_layout(self.direct)),
            **writes("walk", d.node_bits + d.input_bits, walk_layout(self.beside)),
            "added_beside": Out(added_layout(d)),
            **({"opened": Out(opened_layout(d))} if d.closes else {}),
        }
        super().__init__({**matching_ports(d, mixed_node_layout(d)), **others})

    def elaborate(self, platform: object) -> Module:
        """A table of nodes, the two units, and turns for their firings."""
        d = self.d
        m = Module()
        m.submodules.direct = direct = DirectMatching(self.direct)
        m.submodules.hashed = hashed = Matching(self.beside)
        m.submodules.which = table = Memory(shape=1, depth=1 << d.node_bits, init=[])
        write, read = table.write_port(), table.read_port(domain="comb")
        row, token = self.node_data, self.token
        stopped, later, there = Signal(), Signal(), read.data
        m.d.comb += [
            write.en.eq(self.node_en), write.addr.eq(self.node_address), write.data.eq(row.beside),
            direct.node_en.eq(self.node_en), direct.node_address.eq(self.node_address), direct.node_data.eq(row.direct),
            hashed.node_en.eq(self.node_en), hashed.node_address.eq(self.node_address), hashed.node_data.eq(row.hashed),
            direct.rank_en.eq(self.rank_en), direct.rank_address.eq(self.rank_address), direct.rank_data.eq(self.rank_data),
            hashed.walk_en.eq(self.walk_en), hashed.walk_address.eq(self.walk_address), hashed.walk_data.eq(self.walk_data),
            direct.roomy.eq(self.roomy), hashed.roomy.eq(self.roomy),
            # ---- each token to the store of its node; if one unit stops, the other one gets and gives nothing any more
            read.addr.eq(token.payload.node), stopped.eq(self.failure != Failure.NONE),
            direct.token.payload.eq(token.payload), direct.token.valid.eq(token.valid & ~there & ~stopped),
            hashed.token.payload.eq(token.payload), hashed.token.valid.eq(token.valid & there & ~stopped),
            token.ready.eq(Mux(there, hashed.token.ready, direct.token.ready) & ~stopped),
            self.taken.eq(token.valid & token.ready), self.taken_node.eq(token.payload.node),
        ]  # fmt: skip
        self._fire(m, direct, hashed, stopped)
        # ---- the failure of the unit that failed first
        with m.If((hashed.failure != Failure.NONE) & (direct.failure == Failure.NONE)):
            m.d.sync += later.eq(1)
        with m.If((direct.failure != Failure.NONE) & ~later):
            m.d.comb += [self.failure.eq(direct.failure), self.failing.eq(direct.failing)]
        with m.Else():
            m.d.comb += [self.failure.eq(hashed.failure), self.failing.eq(hashed.failing)]
        # ---- in all
        m.d.comb += [
            self.idle.eq(direct.idle & hashed.idle), self.crowded.eq(direct.crowded | hashed.crowded),
            self.used.eq(direct.used + hashed.used), self.spilled.eq(hashed.spilled),
            self.waiting_activation.eq(self.activation.valid & ~self.activation.ready),
            self.added.eq(direct.added), self.added_beside.eq(hashed.added),
            *(getattr(self, name).eq(getattr(direct, name) | getattr(hashed, name))
              for name in ("walking", "probing", "summing", "waiting_reducer", "spilling", "waiting_backing")),
        ]  # fmt: skip
        self._look(m, direct, hashed)
        if d.closes:
            m.d.comb += [self.opened.eq(hashed.opened), self.taken.eq(direct.taken | hashed.taken)]
        return m

    def _fire(self, m: Module, direct: DirectMatching, hashed: Matching, stopped: Value) -> None:
        """Firings: where both units have one, the unit whose turn it is."""
        turn, chosen = Signal(), Signal()  # 1: of the hashed one
        activation = self.activation
        m.d.comb += [
            chosen.eq(hashed.activation.valid & (turn | ~direct.activation.valid)),
            activation.valid.eq((direct.activation.valid | hashed.activation.valid) & ~stopped),
            activation.payload.eq(
                Mux(chosen, hashed.activation.payload.as_value(), direct.activation.payload.as_value())
            ),
            direct.activation.ready.eq(activation.ready & ~chosen & ~stopped),
            hashed.activation.ready.eq(activation.ready & chosen & ~stopped),
        ]
        with m.If(activation.valid & activation.ready):
            m.d.sync += turn.eq(~chosen)

    def _look(self, m: Module, direct: DirectMatching, hashed: Matching) -> None:
        """Records: places of the direct store, then sets of the other one, and what has gone from there."""
        d = self.direct
        outside = Signal()
        found: dict[bool, Any] = {False: direct, True: hashed}
        limits = {False: self.look_way < d.ways, True: (self.look_way < self.beside.ways) | (self.look_spilled != 0)}
        m.d.comb += [
            outside.eq((self.look >= d.sets) | (self.look_spilled != 0)),
            direct.look.eq(self.look), direct.look_way.eq(self.look_way),
            hashed.look.eq(Mux(self.look_spilled != 0, 0, self.look - d.sets)), hashed.look_way.eq(self.look_way),
            hashed.look_spilled.eq(self.look_spilled),
        ]  # fmt: skip
        for of_hashed, unit in found.items():
            with m.If(outside == of_hashed):
                m.d.comb += [
                    self.looked_key.eq(unit.looked_key), self.looked_state.eq(unit.looked_state),
                    self.looked_key.valid.eq(unit.looked_key.valid & limits[of_hashed]),
                ]  # fmt: skip
