"""Proofs about what ends open gathers: the list of a core, and what joins the lists of several; each proof is also seen to
fail on a block with a defect."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import reduce
from operator import or_
from pathlib import Path
from types import ModuleType

from amaranth.hdl import Assert, Cat, Module, Mux, Signal

sys.path.insert(0, str(Path(__file__).resolve().parent))
from prove import assume, drive, fails, fixed, holds, with_defect

from upl_mlir.hw.core.layouts import Dimensions, TokenKind
from upl_mlir.hw.core.stores import open_gathers
from upl_mlir.hw.system import fabric
from upl_mlir.hw.system.layouts import System

SMALL = Dimensions(
    tag_bits=2, max_fields=1, max_inputs=2, node_bits=1, multiplicity_bits=2, sets=1, ways=2, spill_words=1, closes=True,
)  # fmt: skip
"""There is room for three gathers."""
NONE = SMALL.unbounded
DEPTH = 14
"""Cycles from reset: three gathers begin, and two rounds through the list are over."""
Build = Callable[[Module], None]


def ends_in_order(module: ModuleType) -> Build:
    """Any one gather, followed: it ends once, when its rank is the one that ends, and not before; none is forgotten.

    Around the list there is what a core assures: a gather begins when it is not there, there are no more than there is room
    for, and gathers are ended when nothing is under way, those of least rank.
    """

    def build(m: Module) -> None:
        m.submodules.unit = unit = module.OpenGathers(SMALL)
        drive(m, unit.opened, unit.close, unit.rank, unit.token.ready)
        name, rank = fixed(m, SMALL.tag_bits, "a_gather"), fixed(m, SMALL.multiplicity_bits, "its_rank")
        opened, token = unit.opened, unit.token.payload
        leaves = unit.token.valid & unit.token.ready
        # Gathers are told apart by their tags here: node and input are more bits of the same.
        comes, goes = opened.valid & (opened.tag == name), leaves & (token.tag == name)
        there, count, ending, ended = Signal(), Signal(4), Signal.like(rank), Signal(4)
        at = Signal(4)  # gathers of that rank
        m.d.sync += [count.eq(count + opened.valid - leaves), there.eq((there | comes) & ~goes)]
        with m.If(unit.close):
            m.d.sync += ending.eq(unit.rank)
        m.d.sync += at.eq(at + (opened.valid & (opened.rank == rank)) - (leaves & (ending == rank)))
        assume(m, (opened.rank != 0) & (opened.rank != NONE) & (rank != 0) & (rank != NONE))
        assume(m, (opened.node == 0) & (opened.input == 0))
        assume(m, ~comes | (~there & (opened.rank == rank)))
        assume(m, ~opened.valid | (count < SMALL.gathers))
        assume(m, ~unit.close | (~unit.busy & (unit.rank != NONE) & (unit.rank <= unit.least)))
        late = Signal(8)  # cycles in which the list could go on and did not come to its end
        m.d.sync += late.eq(Mux(unit.busy & ~opened.valid, late + (unit.token.ready | ~unit.token.valid), 0))
        m.d.comb += [
            Assert(~goes | (there & (ending == rank))),  # not twice, and not early
            Assert(~unit.token.valid | ((token.kind == TokenKind.CLOSE) & (token.node == 0) & (token.input == 0))),
            Assert(unit.busy | ~there | (ending != rank) | (ended == 0)),
            Assert(unit.busy | ~there | (unit.least <= rank)),  # none is forgotten
            Assert(unit.busy | (unit.least != rank) | (at != 0)),  # and it is not waited for what is not there
            Assert(late <= 2 * SMALL.gathers),
        ]
        # A gather that was there when its rank was ended is gone when the round is over.
        with m.If(unit.close):
            m.d.sync += ended.eq(there & (unit.rank == rank))
        with m.Elif(goes):
            m.d.sync += ended.eq(0)

    return build


def test_the_list_of_open_gathers(tmp_path: Path) -> None:
    holds(tmp_path / "good", ends_in_order(open_gathers), DEPTH)
    for n, (old, new) in enumerate((
        ("ends.eq(there & (first.rank == rank))", "ends.eq(there)"),  # later ones end, too
        ("write.en.eq(new.valid | returns)", "write.en.eq(new.valid)"),  # those that stay are lost
        ("returns.eq(there & ~ends & ~new.valid)", "returns.eq(there & ~ends)"),  # lost when another one begins
        ("left.eq((back - front)[: len(front)])", "left.eq((back - front - 1)[: len(front)])"),  # the last one is left out
        ("self.least.eq(-1)]", "self.least.eq(self.rank)]"),  # what has ended is waited for
        ("there.eq((left - moves) != 0)", "there.eq(left != 0)"),  # one more than there were is looked at
    )):  # fmt: skip
        fails(tmp_path / f"defect{n}", ends_in_order(with_defect(open_gathers, old, new)), DEPTH)


CORES = 5
"""So many that the least rank comes through two levels of registers."""


def least_of_all(module: ModuleType) -> Build:
    """What ends is the least rank of all cores, once in a rest, when the host has no more; `none` is right."""
    system = System(SMALL, cores=CORES)
    levels = 2

    def build(m: Module) -> None:
        m.submodules.unit = unit = module.Closing(system)
        drive(m, unit.rest, unit.host_over, *(unit.least[n] for n in range(CORES)))
        ranks = Cat(*(unit.least[n] for n in range(CORES)))
        # Nothing changes at rest, which is told as much later as the least rank takes.
        before, steady, said = Signal.like(ranks), Signal(4), Signal()
        m.d.sync += [before.eq(ranks), steady.eq(Mux(ranks == before, Mux(steady == 15, 15, steady + 1), 0))]
        assume(m, ~unit.rest | ((ranks == before) & (steady >= levels)))
        m.d.sync += said.eq(unit.rest & (said | unit.close))
        one = [unit.least[n] == unit.rank for n in range(CORES)]
        m.d.comb += [
            Assert(~unit.close | (unit.rest & unit.host_over & ~said & (unit.rank != NONE) & reduce(or_, one))),
            *(Assert(~unit.close | (unit.rank <= unit.least[n])) for n in range(CORES)),
            Assert(~unit.rest | (unit.none == (ranks == (1 << len(ranks)) - 1))),
            Assert(~(unit.rest & unit.host_over & ~said) | unit.none | unit.close),
        ]

    return build


def test_the_least_rank_of_all_cores(tmp_path: Path) -> None:
    holds(tmp_path / "good", least_of_all(fabric), 10)
    for n, (old, new) in enumerate((
        ("self.rest & self.host_over & ~self.none & ~told", "self.rest & ~self.none & ~told"),
        ("self.rest & self.host_over & ~self.none & ~told", "self.rest & self.host_over & ~self.none"),
        ("node.eq(least_of(level[k : k + TREE]))", "node.eq(level[k])"),
        ("self.none.eq(level[0].all())", "self.none.eq(level[0].any())"),
    )):  # fmt: skip
        fails(tmp_path / f"defect{n}", least_of_all(with_defect(fabric, old, new)), 10)
