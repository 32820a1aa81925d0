"""Tokens that are put off: a place is still for an earlier generation, so they come again later."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# Amaranth's values are untyped.

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream

from upl_mlir.hw.core.layouts import Dimensions, token_layout
from upl_mlir.hw.core.queue import TokenQueue

LATE_FRONT = 64
"""Tokens that can be put off at a time without backing memory."""
MANY = 64
"""Tokens that are put off from which on the host should give no more."""
GAP = 1
"""Cycles from one of them to the next, at least."""
PATIENCE = 15
"""Cycles after which one of them goes before new tokens."""


def put_off(m: Module, d: Dimensions, token: stream.Interface, onward: stream.Interface) -> TokenQueue:
    """The queue of the tokens that are put off; they go on when no new token comes, or have waited long."""
    layout = token_layout(d)
    m.submodules.late = late = TokenQueue(layout.size, LATE_FRONT, d.late_words, d.backing_cycles)
    waited, turn = Signal(range(PATIENCE + 1)), Signal()
    m.d.comb += [
        turn.eq(late.r_valid & (waited >= GAP) & (~token.valid | (waited == PATIENCE))),
        onward.payload.eq(Mux(turn, data.View(layout, late.r_data), token.payload)),
        onward.valid.eq(token.valid | turn),
        late.r_ready.eq(turn & onward.ready),
        token.ready.eq(onward.ready & ~turn),
    ]
    with m.If(late.r_ready | ~late.r_valid):
        m.d.sync += waited.eq(0)
    with m.Elif(waited != PATIENCE):
        m.d.sync += waited.eq(waited + 1)
    return late
