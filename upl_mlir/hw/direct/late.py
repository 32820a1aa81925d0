"""Tokens that are put off: a place is still for an earlier generation, so they come again later."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# Amaranth's values are untyped.

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.fifo import SyncFIFOBuffered

from upl_mlir.hw.core.layouts import Dimensions, token_layout

LATE_DEPTH = 256
"""Tokens that can be put off at a time."""
GAP = 3
"""Cycles from one of them to the next, at least: results of the reducer get turns in the gaps."""
PATIENCE = 15
"""Cycles after which one of them goes before new tokens."""


def put_off(m: Module, d: Dimensions, token: stream.Interface, onward: stream.Interface) -> SyncFIFOBuffered:
    """The queue of the tokens that are put off; they go on when no new token comes, or have waited long."""
    layout = token_layout(d)
    m.submodules.late = late = SyncFIFOBuffered(width=layout.size, depth=LATE_DEPTH)
    waited, turn = Signal(range(PATIENCE + 1)), Signal()
    m.d.comb += [
        turn.eq(late.r_rdy & (waited >= GAP) & (~token.valid | (waited == PATIENCE))),
        onward.payload.eq(Mux(turn, data.View(layout, late.r_data), token.payload)),
        onward.valid.eq(token.valid | turn),
        late.r_en.eq(turn & onward.ready),
        token.ready.eq(onward.ready & ~turn),
    ]
    with m.If(late.r_en | ~late.r_rdy):
        m.d.sync += waited.eq(0)
    with m.Elif(waited != PATIENCE):
        m.d.sync += waited.eq(waited + 1)
    return late
