"""The matching unit of the organisation `direct`: joins and gathers side by side, places computed instead of searched."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring

from upl_mlir.hw.core.front import Front
from upl_mlir.hw.core.layouts import Dimensions, Failure
from upl_mlir.hw.core.matching import connected, matching_ports
from upl_mlir.hw.direct.joining import Joins
from upl_mlir.hw.direct.layouts import direct_node_layout, rank_layout, row_bits
from upl_mlir.hw.direct.summing import PlacedGathers
from upl_mlir.hw.ports import writes

QUIET_BITS = 8
"""After 2**n - 1 cycles without a firing the host is not held any more."""


class DirectMatching(wiring.Component):
    """The unit, with the ports of the hashed one; what is not said here is said there.

    rank_*: writes to the rows of ranks. There is no backing memory and no table of walks: `walk_*` is not there, `spilled`
    and `spilling` are 0; `waiting_backing`: a token is put off; crowded (out): many are, so that the host should give no
    more for a while. look (in): a place; look_way (in): the bank, or max_inputs for the gather store; of looked_key only
    `valid`, the class (the input that waits, of a merged node; else the bank) and, in `tag`, the generation are meant:
    whose token it is follows from the place.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        super().__init__({**matching_ports(d, direct_node_layout(d)), **writes("rank", row_bits(d), rank_layout(d))})

    def elaborate(self, platform: object) -> Module:
        """Summands go to the gathers, all others to the joins; completed gathers go from the one to the other."""
        d = self.d
        m = Module()
        m.submodules.front = front = Front(d)
        m.submodules.joins = joins = Joins(d)
        m.submodules.gathers = gathers = PlacedGathers(d)
        node, stopped, quiet = self.node_data, Signal(), Signal(QUIET_BITS)
        m.d.comb += [
            stopped.eq(self.failure != Failure.NONE),
            *connected(self, front), front.modes.eq(node.sum.modes), front.inputs.eq(node.join.inputs),
            joins.node_en.eq(self.node_en), joins.node_address.eq(self.node_address), joins.node_data.eq(node.join),
            gathers.node_en.eq(self.node_en), gathers.node_address.eq(self.node_address), gathers.node_data.eq(node.sum),
            joins.rank_en.eq(self.rank_en), joins.rank_address.eq(self.rank_address),
            joins.rank_data.eq(self.rank_data.join),
            gathers.rank_en.eq(self.rank_en), gathers.rank_address.eq(self.rank_address),
            gathers.rank_data.eq(self.rank_data.sum),
            joins.stop.eq(stopped), gathers.stop.eq(stopped), front.stopped.eq(stopped),
            gathers.token.valid.eq(front.summand.valid), gathers.token.payload.eq(front.summand.payload.token),
            front.summand.ready.eq(gathers.token.ready),
        ]  # fmt: skip
        wiring.connect(m, gathers.complete, front.complete)
        wiring.connect(m, front.joined, joins.token)
        wiring.connect(m, joins.activation, front.fired)
        wiring.connect(m, wiring.flipped(self.token), front.token)
        wiring.connect(m, front.activation, wiring.flipped(self.activation))
        m.d.comb += [
            self.failure.eq(Mux(joins.failure != Failure.NONE, joins.failure, gathers.failure)),
            self.failing.eq(Mux(joins.failure != Failure.NONE, joins.failing, gathers.failing)),
            self.idle.eq(joins.idle & gathers.idle & front.idle),
            self.used.eq(joins.used + gathers.used),
            self.walking.eq(joins.walking), self.probing.eq(joins.trying), self.summing.eq(gathers.summing),
            self.waiting_activation.eq(self.activation.valid & ~self.activation.ready),
            self.waiting_reducer.eq(gathers.waiting),
            self.added.eq(gathers.added), self.waiting_backing.eq(joins.late | gathers.late),
            # The host is not held for ever: what tokens that ran ahead wait for may be yet to come from it.
            self.crowded.eq(front.crowded | ((joins.crowded | gathers.crowded) & ~quiet.all())),
        ]  # fmt: skip
        with m.If(self.activation.valid & self.activation.ready):
            m.d.sync += quiet.eq(0)
        with m.Elif(~quiet.all()):
            m.d.sync += quiet.eq(quiet + 1)
        waits = Signal()
        m.d.comb += [
            joins.look.eq(self.look), gathers.look.eq(self.look), joins.look_bank.eq(self.look_way),
            waits.eq(joins.looked != 0),
        ]  # fmt: skip
        with m.If(self.look_way == d.max_inputs):
            m.d.comb += [
                self.looked_key.valid.eq(gathers.looked.valid), self.looked_key["class"].eq(d.max_inputs),
                self.looked_key.tag.eq(gathers.looked.generation),
                self.looked_state.left.eq(gathers.looked.left), self.looked_state.total.eq(gathers.looked.total),
            ]  # fmt: skip
        with m.Else():
            m.d.comb += [
                self.looked_key.valid.eq(waits), self.looked_key.tag.eq(joins.looked_generation),
                self.looked_state.left.eq(joins.looked),
                self.looked_key["class"].eq(Mux(joins.looked_second, 1, self.look_way)),
            ]  # fmt: skip
        return m
