"""The way of a token to its rows: first to that of its node, then to that of its ranks; a token a cycle."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.layouts import Dimensions, Failure, token_layout
from upl_mlir.hw.direct.layouts import row_bits
from upl_mlir.hw.direct.rank import find_row
from upl_mlir.hw.ports import writes, written


def table_writes(d: Dimensions, node: data.StructLayout, ranks: data.StructLayout) -> dict[str, Any]:
    """node_*, rank_*: writes to the rows of nodes and to those of ranks."""
    return {**writes("node", d.node_bits, node), **writes("rank", row_bits(d), ranks)}


def pipe_ports(d: Dimensions, node: data.StructLayout, ranks: data.StructLayout) -> dict[str, Any]:
    """What both pipes have: `table_writes`; failure, failing (out): why it has stopped, and with which token; stop (in): it
    must not go on; idle (out)."""
    ends = {"failure": Out(Failure), "failing": Out(token_layout(d)), "stop": In(1), "idle": Out(1)}
    return {**table_writes(d, node, ranks), **ends}


class Fetch(wiring.Component):
    """token (in stream); found (out stream): the token, the row `row` of its node and the row `ranks`, if it is `there`.

    node_*, rank_*: `table_writes`. idle (out): no token is under way.
    """

    def __init__(self, d: Dimensions, node: data.StructLayout, ranks: data.StructLayout):
        self.d = d
        self.shapes = node, ranks
        found = data.StructLayout({"token": token_layout(d), "row": node, "ranks": ranks, "there": 1})
        super().__init__(
            {
                "token": In(stream.Signature(token_layout(d))),
                "found": Out(stream.Signature(found)),
                **table_writes(d, node, ranks),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Two stages."""
        d = self.d
        m = Module()
        node_shape, rank_shape = self.shapes
        m.submodules.nodes = nodes = Memory(shape=node_shape, depth=1 << d.node_bits, init=[])
        m.submodules.ranks = ranks = Memory(shape=rank_shape, depth=d.rank_rows, init=[])
        written(m, nodes, self, "node")
        written(m, ranks, self, "rank")
        node_read, rank_read = nodes.read_port(), ranks.read_port()
        told, known = Signal(token_layout(d)), Signal(token_layout(d))
        told_valid, known_valid, there = Signal(), Signal(), Signal()
        row = Signal(node_shape)
        move, accept = Signal(), Signal()
        number, has_row = find_row(m, d, node_read.data.find, told.tag, "told")
        m.d.comb += [
            move.eq(~known_valid | self.found.ready),
            accept.eq(~told_valid | move),
            self.token.ready.eq(accept),
            node_read.addr.eq(self.token.payload.node),
            node_read.en.eq(accept),
            rank_read.addr.eq(number),
            rank_read.en.eq(move),
            self.found.valid.eq(known_valid),
            self.found.payload.token.eq(known),
            self.found.payload.row.eq(row),
            self.found.payload.ranks.eq(rank_read.data),
            self.found.payload.there.eq(there),
            self.idle.eq(~told_valid & ~known_valid),
        ]
        with m.If(accept):
            m.d.sync += [told.eq(self.token.payload), told_valid.eq(self.token.valid)]
        with m.If(move):
            m.d.sync += [known.eq(told), known_valid.eq(told_valid), row.eq(node_read.data), there.eq(has_row)]
        return m
