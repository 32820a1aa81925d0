"""Keeps indices of constant arrays inside them in what differentiation writes: counts, conditions, bodies of adjoint nodes.

Sets are compared for any value that an entry behind an array's end might have within the array's least and greatest one
(`PSet.facts`), so that a count may say ``N[k]`` also where N ends before k: any entry gives the same.  To read it all the
same, its index is kept inside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from upl_mlir.dialects.upl import FormulaAttr, NodeOp, ProgramOp
from upl_mlir.dialects.upl.attributes import CountAttr, PortsAttr
from upl_mlir.dialects.upl.query import nodes
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.poly.expr import Atom, Formula, IndexExpr, Lookup, extremum
from upl_mlir.poly.operators import CmpOp, Extremum
from upl_mlir.poly.sets import PSet


def inside_arrays(domain: PSet) -> Callable[[Atom], IndexExpr | None]:
    """For `rewrite`: entries of constant arrays with indices that stay inside wherever the domain goes."""
    kept: dict[Lookup, IndexExpr | None] = {}

    def inside(a: Atom) -> IndexExpr | None:
        if not isinstance(a, Lookup) or a.array not in domain.ctx.arrays or not a.index.names <= _names(domain):
            return None
        if a not in kept:
            table, at = domain.ctx.arrays[a.array], a.index
            first, last = table.lower, table.lower + len(table.values) - 1
            if not domain.constrain(Formula.compare(a.index, CmpOp.LT, first)).is_empty():
                at = extremum(Extremum.MAX, (at, IndexExpr.of(first)))
            if not domain.constrain(Formula.compare(last, CmpOp.LT, a.index)).is_empty():
                at = extremum(Extremum.MIN, (at, IndexExpr.of(last)))
            kept[a] = None if at == a.index else IndexExpr.of(Lookup(a.array, at))
        return kept[a]

    return inside


def _names(domain: PSet) -> frozenset[str]:
    return frozenset((*domain.dims, *domain.ctx.constants, *domain.ctx.params))


def keep_inside_arrays(program: ProgramOp, mark: str) -> None:
    """Do so in the nodes that have the attribute `mark`: counts of inputs, conditions and multiplicities of arrows."""
    made = [op for op in nodes(program) if mark in op.attributes and op.domain is not None and _reads(op)]
    if not made:
        return
    sets = ProgramSets(program)
    if not sets.ctx.arrays:
        return
    for op in made:
        leaf = inside_arrays(sets.domain(op.symbol))
        counted = (replace(p, count=p.count.rewrite(leaf)) if isinstance(p.count, IndexExpr) else p for p in op.ports)
        op.inputs = PortsAttr(tuple(counted))
        for send in op.sends:
            if send.condition is not None:
                send.condition = FormulaAttr(send.when.rewrite(leaf))
            if send.count is not None and isinstance(send.count.data, IndexExpr):
                send.count = CountAttr(send.count.data.rewrite(leaf))


def _reads(op: NodeOp) -> bool:
    """Whether a count or a condition reads an array."""
    counts = [p.count for p in op.ports] + [s.count.data for s in op.sends if s.count is not None]
    conditions = [s.when for s in op.sends if s.condition is not None]
    return any(isinstance(e, IndexExpr) and e.lookups() for e in counts) or any(f.lookups() for f in conditions)
