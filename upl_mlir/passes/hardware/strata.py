"""Ranks of open gathers as numbers: what the tokens of the machine carry in place of a number of summands
(docs/machine_core.md, "Open gathers").

A rank is a tuple of expressions over the fields of a node, compared from the first on (`passes/analysis/strata.py`).  All
fields are bounded here, so the tuples become numbers in the same order, from 0: the last component counts ones, the one
before it counts in steps of as many as there are values of the last, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import NodeOp, ProgramOp, Special
from upl_mlir.dialects.upl.query import nodes, span_of
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.analysis.strata import has_open, stratify
from upl_mlir.poly.expr import IndexExpr


def rank_numbers(program: ProgramOp, sets: ProgramSets) -> dict[str, IndexExpr]:
    """For each node with open gathers its rank as a number, over its fields.  Raises UplError (UPL1732) where a node has
    none: `check` refutes such a program, so only one that was not checked comes here."""
    opens = [op for op in nodes(program) if has_open(op)]
    if not opens:
        return {}
    stratify(sets)
    tuples: dict[str, Sequence[IndexExpr]] = {}
    for op in opens:
        if op.rank is None:
            message = f"no rank tells when the open gathers of `{op.symbol}` end"
            raise error("UPL1732", message, span_of(op), help="`upl check` names the cycle")
        tuples[op.symbol] = op.rank.data
    out = {op.symbol: IndexExpr() for op in opens}
    for column in range(len(next(iter(tuples.values())))):
        ranges = [_range(sets, op, tuples[op.symbol][column]) for op in opens]
        low, high = min(lo for lo, _ in ranges), max(hi for _, hi in ranges)
        for name, rank in tuples.items():
            out[name] = out[name] * IndexExpr.of(high - low + 1) + rank[column] - IndexExpr.of(low)
    return out


def ends_on_domain(op: NodeOp) -> bool:
    """Whether the open gathers of a node end at every instance of its domain, also where no token comes (LANGUAGE 3.3)."""
    names = {p.name for p in op.ports}
    alone = all(p.open or (isinstance(p.count, IndexExpr) and not p.count.names & names) for p in op.ports)
    return has_open(op) and (alone or op.declared is not None)


def announcer(op: NodeOp, sets: ProgramSets) -> str | None:
    """The input of a node with open gathers whose tokens tell which instances there are: all its tokens have the whole
    index.  None if the domain tells it.  Raises UplError (UPL1732) where no input does."""
    if not has_open(op) or ends_on_domain(op):
        return None
    for name in (p.name for p in op.ports if p.gather is None or p.count is Special.CARRIED):
        if all(None not in a.send.index.data for a in sets.into(op.symbol, name)):
            return name
    message = (
        f"every input of `{op.symbol}` gets tokens with `*`: none tells where its open gathers end without a summand"
    )
    raise error("UPL1732", message, span_of(op), help="declare its domain: `node NAME<fields> in domain`")


def _range(sets: ProgramSets, op: NodeOp, e: IndexExpr) -> tuple[int, int]:
    """Bounds of a component of a rank, which is a constant, or a field with its sign, plus a constant."""
    extents = {f: sets.domain(op.symbol).extent(f) for f in e.names}
    ends = [e.evaluate({f: extent[k] or 0 for f, extent in extents.items()}, sets.ctx.read) for k in (0, 1)]
    return min(ends), max(ends)
