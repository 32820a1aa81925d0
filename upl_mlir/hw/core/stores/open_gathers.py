"""The open gathers of a core: which there are and by which rank they end (docs/machine_core.md, "Open gathers").

Beside the store a list keeps, for each open gather that has a record there, its rank and its name.  When nothing is under
way in the machine, all gathers of the least rank end: the list is gone through once, and each of them gets a token that ends
it.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from upl_mlir.hw.core.layouts import Dimensions, TokenKind, token_layout


def opened_layout(d: Dimensions) -> data.StructLayout:
    """An open gather that has begun: its rank, plus 1, and what names it."""
    return data.StructLayout(
        {"valid": 1, "rank": d.multiplicity_bits, "node": d.node_bits, "input": d.input_bits, "tag": d.tag_bits}
    )


def least_of(ranks: list[Value]) -> Value:
    """The least of some ranks; all ones stands for none."""
    first, *rest = ranks
    for rank in rest:
        first = Mux(rank < first, rank, first)
    return first


class OpenGathers(wiring.Component):
    """opened (in): a gather that begins in this cycle. token (out stream): tokens that end gathers.

    least (out): the least rank in the list, all ones if it is empty; of use while not busy (out). close (in, 1): those of
    `rank` (in) end; it must be the least one of all cores, and comes only when nothing is under way. over (in, 1): a run is
    over, ranks begin anew. late (out, 1): a gather has begun whose rank has ended: `which` (out) was the first.
    """

    def __init__(self, d: Dimensions):
        self.d = d
        bits = d.multiplicity_bits
        super().__init__(
            {
                "opened": In(opened_layout(d)),
                "token": Out(stream.Signature(token_layout(d))),
                "close": In(1),
                "rank": In(bits),
                "over": In(1),
                "least": Out(bits, init=-1),
                "busy": Out(1),
                "late": Out(1),
                "which": Out(opened_layout(d)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A ring of entries.  To close, each that is there now is taken from the front: it leaves as a token if its rank is
        the one, else it goes to the back.

        A gather that begins is written first; there is one place at the back a cycle.
        """
        d = self.d
        m = Module()
        name = opened_layout(d)
        depth = 1 << bits_for(d.gathers)
        m.submodules.ring = ring = Memory(shape=name, depth=depth, init=[])
        write = ring.write_port()
        read = ring.read_port(transparent_for=(write,))
        front, back = Signal(range(depth)), Signal(range(depth))
        left = Signal(range(depth + 1))  # entries of this round that have not been looked at
        rank, there = Signal(d.multiplicity_bits), Signal()  # the entry at the front has been read
        closed = Signal(d.multiplicity_bits)  # the last rank that has ended
        first = data.View(name, read.data)
        ends, leaves, returns, moves = Signal(), Signal(), Signal(), Signal()
        new = Signal(name)
        m.d.sync += new.eq(self.opened)
        m.d.comb += [
            ends.eq(there & (first.rank == rank)), leaves.eq(ends & self.token.ready),
            returns.eq(there & ~ends & ~new.valid), moves.eq(leaves | returns),
            read.addr.eq(front + moves),
            write.addr.eq(back), write.en.eq(new.valid | returns), write.data.eq(Mux(new.valid, new, first)),
            self.token.valid.eq(ends), self.token.payload.kind.eq(TokenKind.CLOSE),
            self.token.payload.node.eq(first.node), self.token.payload.input.eq(first.input),
            self.token.payload.tag.eq(first.tag),
            self.busy.eq((left != 0) | self.opened.valid | new.valid),
        ]  # fmt: skip
        with m.If(new.valid & (new.rank <= closed) & ~self.late):
            m.d.sync += [self.late.eq(1), self.which.eq(new)]
        m.d.sync += [front.eq(front + moves), back.eq(back + write.en)]
        with m.If(self.close):
            m.d.sync += [left.eq((back - front)[: len(front)]), rank.eq(self.rank), closed.eq(self.rank), there.eq(0),
                         self.least.eq(-1)]  # fmt: skip
        with m.Else():
            m.d.sync += [left.eq(left - moves), there.eq((left - moves) != 0)]
            with m.If(write.en):
                m.d.sync += self.least.eq(least_of([self.least, data.View(name, write.data).rank]))
            with m.If(self.over):
                m.d.sync += closed.eq(0)
        return m
