"""The blocks of a distributed program, the inputs of which a rank needs its own block only, the outputs in blocks."""

from __future__ import annotations

from collections.abc import Mapping

from upl_mlir.passes.loops.program import Block, Cut, LoopProgram
from upl_mlir.passes.loops.terms import Get, walk
from upl_mlir.passes.loops.tree import leaves
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Con, Cons


def inputs_in_blocks(p: LoopProgram) -> dict[str, tuple[int, Block]]:
    """The inputs of which each rank reads its block along a field only: the field's number, and of what it is a block."""
    reads: dict[str, list[tuple[tuple[IndexExpr, ...], Cons]]] = {h.name: [] for h in p.hosts if not h.output}
    for s in dict.fromkeys(leaf.stmt for leaf, _ in leaves(p.scheduled)):
        for t, where in walk(s.term):
            if isinstance(t, Get) and t.array in reads:
                reads[t.array].append((t.index, (*s.cons, *where)))
    out: dict[str, tuple[int, Block]] = {}
    lin = p.system.lin
    for name, found in reads.items():
        for at, b in ((at, b) for at in range(len(found[0][0]) if found else 0) for b in blocks_of(p.cuts)):
            if all(lin.implies(cons, Con(lin.plain(c.e))) for index, cons in found for c in b.holds(index[at])):
                out.setdefault(name, (at, b))
    return out


def blocks_of(cuts: Mapping[str, Cut]) -> tuple[Block, ...]:
    """The blocks of a program, each once."""
    return tuple(dict.fromkeys(c.block for c in cuts.values()))


def outputs_in_blocks(p: LoopProgram) -> dict[str, tuple[int, Block]]:
    """The outputs of which each rank computes its block along a field: the field's number, and of what it is a block."""
    outputs = {h.name for h in p.hosts if h.output}
    return {n: (p.system.equations[n].fields.index(c.field), c.block) for n, c in p.cuts.items() if n in outputs}
