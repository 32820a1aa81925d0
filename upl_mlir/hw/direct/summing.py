"""Gathers of the direct unit: the pipe of the hashed one, with a store in which the index tells the place.

Before it come the rows of the node and of its ranks, and a stage that computes the place. A summand whose place is still for
an earlier generation is put off.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.gathers import Gathers
from upl_mlir.hw.core.layouts import Dimensions, Failure, added_layout, token_layout
from upl_mlir.hw.direct.fetch import Fetch, pipe_ports
from upl_mlir.hw.direct.late import MANY, put_off
from upl_mlir.hw.direct.layouts import sum_rank_layout, sum_row_layout, sum_state_layout
from upl_mlir.hw.direct.places import Places
from upl_mlir.hw.direct.rank import local, outside, rank


class PlacedGathers(wiring.Component):
    """token (in stream): summands; complete (out stream): completed gathers, as tokens.

    node_*, rank_*, failure, failing, stop, idle: `pipe_ports`. late, crowded (out): as of the joins. used (out): gathers
    under way. added, summing, waiting (out): as of `Gathers`. look (in), looked (out): as of `Places`.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        super().__init__(
            {
                "token": In(stream.Signature(token_layout(d))),
                "complete": Out(stream.Signature(token_layout(d))),
                **pipe_ports(d, sum_row_layout(d), sum_rank_layout(d)),
                "used": Out(range(d.sets + 1)),
                "summing": Out(1),
                "waiting": Out(1),
                "late": Out(1),
                "crowded": Out(1),
                "look": In(d.set_bits),
                "looked": Out(sum_state_layout(d)),
                "added": Out(added_layout(d)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Rows, place, and the pipe."""
        d = self.d
        m = Module()
        m.submodules.fetch = fetch = Fetch(d, sum_row_layout(d), sum_rank_layout(d))
        m.submodules.gathers = gathers = Gathers(d, Places(d))
        late = put_off(m, d, self.token, fetch.token)
        here, here_valid = Signal(fetch.found.payload.shape()), Signal()
        token = here.token
        seen, generation = local(m, d, here.row, token.tag, "here")
        wrong = outside(m, d, token.tag, here.ranks.least, here.ranks.greatest, here.row.find.joined, "outside")
        given, stopped, failing = gathers.summand.payload, Signal(), Signal(Failure)
        bad = here_valid & (wrong | ~here.there)
        lost = gathers.early & ~late.w_ready
        own = Signal(Failure)  # the failure is not that of the pipe
        m.d.comb += [
            fetch.node_en.eq(self.node_en), fetch.node_address.eq(self.node_address), fetch.node_data.eq(self.node_data),
            fetch.rank_en.eq(self.rank_en), fetch.rank_address.eq(self.rank_address), fetch.rank_data.eq(self.rank_data),
            stopped.eq(self.stop | (own != Failure.NONE)), gathers.stopped.eq(stopped),
            fetch.found.ready.eq((~here_valid | gathers.summand.ready) & ~stopped),
            given.token.eq(token), given.mode.eq(here.row.modes[token.input]),
            given.home.eq(rank(m, d, seen, here.ranks.bases[token.input], here.ranks.weights, "here_rank")),
            given.key.valid.eq(1), given.key.moves.eq(here.row.window.any), given.key.generation.eq(generation),
            gathers.summand.valid.eq(here_valid & ~bad),
            late.w_valid.eq(gathers.early), late.w_data.eq(gathers.current.as_value()),
            failing.eq(Mux(lost, Failure.FULL, Mux(bad, Failure.INDEX, Failure.NONE))),
            self.failure.eq(Mux(own != Failure.NONE, own, gathers.failure)),
            self.late.eq(late.w_valid), self.crowded.eq(late.level > MANY),
            self.used.eq(gathers.used), self.summing.eq(gathers.summing), self.waiting.eq(gathers.waiting),
            self.added.eq(gathers.added), gathers.look.eq(self.look), self.looked.eq(gathers.looked),
            self.idle.eq(fetch.idle & ~here_valid & gathers.idle & (late.level == 0)),
        ]  # fmt: skip
        wiring.connect(m, gathers.complete, wiring.flipped(self.complete))
        refused = Signal(token_layout(d))
        m.d.comb += self.failing.eq(Mux(own != Failure.NONE, refused, gathers.failing))
        with m.If(fetch.found.ready):
            m.d.sync += [here.eq(fetch.found.payload), here_valid.eq(fetch.found.valid)]
        with m.If((failing != Failure.NONE) & ~stopped):
            m.d.sync += [own.eq(failing), refused.eq(Mux(lost, gathers.current, token))]
        return m
