"""The matching unit of organisation `cam` as the part of a core, with an adder of its own: the ports of `Matching`.

An input of this organisation may get tokens with different `*` fields, so a token has to say which of its fields are open.
It says so in its tag: above the index there is a bit for each field, 1 = `*` (`wild_bits`).
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In

from upl_mlir.hw.core.layouts import VALUE_BITS, Dimensions, Failure, TokenKind
from upl_mlir.hw.core.matching import matching_ports
from upl_mlir.hw.core.stages import Stages, stage_ports
from upl_mlir.hw.fp.model import BINARY32
from upl_mlir.hw.fp.pipelined import Adder
from upl_mlir.hw.matching_unit.interface import Dimensions as CamDimensions
from upl_mlir.hw.matching_unit.interface import MatchingError, node_row_layout
from upl_mlir.hw.matching_unit.unit import MatchingUnit

FAILURES = {
    MatchingError.NONE: Failure.NONE,
    MatchingError.FULL: Failure.FULL,
    MatchingError.UNDETERMINED: Failure.OPEN,
    MatchingError.COUNT: Failure.COUNT,
    MatchingError.BAD_TOKEN: Failure.BAD_TOKEN,
    MatchingError.OVERFLOW: Failure.OVERFLOW,
}


def cam_dimensions(d: Dimensions) -> CamDimensions:
    """The dimensions of the unit in a core of these dimensions."""
    return CamDimensions(
        capacity=d.sets,
        tag_bits=d.index_bits,
        max_fields=d.max_fields,
        max_inputs=d.max_inputs,
        node_bits=d.node_bits,
        multiplicity_bits=d.multiplicity_bits,
        adder_depth=max(16, d.add_cycles),
    )


class CamMatching(wiring.Component):
    """The unit, with the ports of the hashed one; what is not said here is said there.

    node_data is a row of `node_row_layout`. There is no backing memory and no table of walks: `walk_*` is not there,
    `spilled` and `spilling` are 0.
    stage_*, live (out), if stages are told apart: see `Stages`.
    last_entry (in): entries behind it are not used. look (in): an entry. probing (out): all entries are compared with a key.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        self.dim = cam_dimensions(d)
        others = {"last_entry": In(self.dim.entry_bits, init=d.sets - 1)}
        super().__init__({**matching_ports(d, node_row_layout(self.dim)), **stage_ports(d), **others})

    def elaborate(self, platform: object) -> Module:
        """Unit and adder; the adder's results wait in a queue with a place for each addition under way."""
        d, dim = self.d, self.dim
        m = Module()
        m.submodules.unit = unit = MatchingUnit(dim)
        m.submodules.adder = adder = Adder(BINARY32, d.add_cycles, 1 + dim.entry_bits)
        m.submodules.sums = sums = SyncFIFOBuffered(width=VALUE_BITS + dim.entry_bits, depth=dim.adder_depth)
        token, working = self.token.payload, unit.failing
        begins = Signal()
        m.d.comb += [
            unit.config.valid.eq(self.node_en), unit.config.payload.node.eq(self.node_address),
            unit.config.payload.row.eq(self.node_data),
            unit.token.valid.eq(self.token.valid), self.token.ready.eq(unit.token.ready),
            unit.token.payload.complete.eq(token.kind == TokenKind.COMPLETE),
            unit.token.payload.node.eq(token.node), unit.token.payload.input.eq(token.input),
            Cat(unit.token.payload.tag, unit.token.payload.wild).eq(token.tag),
            unit.token.payload.multiplicity.eq(token.multiplicity), unit.token.payload.value.eq(token.value),
            self.taken.eq(self.token.valid & self.token.ready), self.taken_node.eq(token.node),
            self.waiting_reducer.eq(self.token.valid & ~self.token.ready & unit.idle),
        ]  # fmt: skip
        m.d.comb += [
            self.activation.valid.eq(unit.activation.valid), unit.activation.ready.eq(self.activation.ready),
            self.activation.payload.node.eq(unit.activation.payload.node),
            self.activation.payload.tag.eq(unit.activation.payload.tag),
            self.activation.payload["values"].eq(unit.activation.payload["values"]),
            self.waiting_activation.eq(unit.activation.valid & ~self.activation.ready),
        ]  # fmt: skip

        # ---- additions; as many as the unit begins at a time find room in the queue
        request = unit.addition.payload
        record = unit.dump.entry  # what the unit reads, while it asks for the addition
        m.d.comb += [
            unit.addition.ready.eq(1), begins.eq(unit.addition.valid),
            adder.a.eq(request.left), adder.b.eq(request.right), adder.pass_in.eq(Cat(begins, request.entry)),
            sums.w_en.eq(adder.pass_out[0]), sums.w_data.eq(Cat(adder.pass_out[1:], adder.result)),
            unit.sum.valid.eq(sums.r_rdy), sums.r_en.eq(unit.sum.ready),
            Cat(unit.sum.payload.entry, unit.sum.payload.value).eq(sums.r_data),
            self.added.valid.eq(begins), self.added.node.eq(record.node), self.added.input.eq(record.input),
            self.added.tag.eq(record.tag), self.added.left.eq(request.left), self.added.right.eq(request.right),
        ]  # fmt: skip

        # ---- status
        with m.Switch(unit.error):
            for why, failure in FAILURES.items():
                with m.Case(why):
                    m.d.comb += self.failure.eq(failure)
        m.d.comb += [
            self.failing.node.eq(working.node), self.failing.input.eq(working.input),
            self.failing.tag.eq(Cat(working.tag, working.wild)), self.failing.multiplicity.eq(working.multiplicity),
            unit.last_entry.eq(self.last_entry),
            self.used.eq(unit.occupied), self.probing.eq(unit.searching),
        ]  # fmt: skip

        idle = unit.idle
        if d.stages:
            m.submodules.stages = stages = Stages(d)
            change, (of_unit, _) = unit.change, stages.changes
            m.d.comb += [
                of_unit.any.eq(change.any), of_unit.comes.eq(change.comes), of_unit.key["class"].eq(change.input),
                of_unit.key.node.eq(change.node), of_unit.key.tag.eq(change.tag),
                stages.row_en.eq(self.stage_en), stages.row_address.eq(self.stage_address),
                stages.row_data.eq(self.stage_data), self.live.eq(stages.live),
            ]  # fmt: skip
            idle = idle & stages.idle
        m.d.comb += self.idle.eq(idle)

        # ---- looks: the unit answers a cycle later, and the core expects two
        found = unit.dump
        m.d.comb += unit.dump_entry.eq(self.look)
        m.d.sync += [
            self.looked_key.valid.eq(found.occupied), self.looked_key["class"].eq(found.entry.input),
            self.looked_key.node.eq(found.entry.node),
            self.looked_key.tag.eq(Cat(found.entry.tag, Mux(found.entry.gather, Const(0, 1), found.entry.wild))),
            self.looked_state.left.eq(found.content.left),
            self.looked_state.total.eq(Mux(found.entry.gather, found.entry.count, 0)),
        ]  # fmt: skip
        return m
