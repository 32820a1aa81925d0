"""Groups of statements that share a loop, in their order: what may stand before what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from upl_mlir.passes.loops.graph import FUNCTION, op_cost
from upl_mlir.passes.loops.statements import Edge, Statement
from upl_mlir.passes.loops.terms import Apply, Fold, Term, arguments, arrays_in, inner_first
from upl_mlir.passes.loops.tree import Along
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Linear

SHORT = 64
"""Loops of at most so many iterations beside a function are short: they take about as long as one function alone, and a
function in a vector takes an eighth of that."""


@dataclass(eq=False)
class Group:
    """Statements that stand in one loop, or one statement whose loops are still open (`along` is empty)."""

    members: list[Statement]
    along: dict[Statement, Along]
    inner: list[Edge]


def readers_first(groups: list[Group], before: Mapping[Statement, Sequence[Edge]]) -> list[Group]:
    """Neighbours that need nothing of each other so that old elements are read before new ones are written.

    Then the new ones can take their places.
    """
    out = list(groups)
    for _ in groups:
        earlier = list(out)
        for i in range(len(out) - 1):
            first, second = out[i : i + 2]
            mine = set(first.members)
            reads = [{r.array for s in g.members for r in s.reads} for g in (first, second)]
            writes = [{s.array for s in g.members} for g in (first, second)]
            free = not any(e.writer in mine for s in second.members for e in before[s])
            if free and reads[1] & writes[0] and not reads[0] & writes[1]:
                out[i : i + 2] = [second, first]
        if out == earlier:
            break
    return out


def parted(
    written: set[Statement], groups: Sequence[Group], before: Mapping[Statement, Sequence[Edge]]
) -> tuple[list[Group], list[Group]]:
    """The groups that need what some statements write, directly or not, and the others."""
    written = set(written)
    dependent: list[Group] = []
    free: list[Group] = []
    for h in groups:
        if any(e.writer in written for s in h.members for e in before[s]):
            dependent.append(h)
            written |= set(h.members)
        else:
            free.append(h)
    return dependent, free


def by_ones(lin: Linear, left: Mapping[Statement, Sequence[str]]) -> bool:
    """Of statements with these loops inside of a common one, whether some are functions without any, others short loops."""
    deeper = [s for s, fields in left.items() if fields]
    if not deeper or not any(_function(s) for s, fields in left.items() if not fields):
        return False
    return all(_points(lin, s, left[s]) <= SHORT for s in deeper)


def _function(s: Statement) -> bool:
    """Whether a statement without sums computes a function."""
    sums = any(isinstance(t, Fold) for t in inner_first(s.term, arguments))
    return not sums and any(True for _ in _functions(s.term))


def _functions(t: Term) -> Iterator[Apply]:
    return (x for x in inner_first(t, arguments) if isinstance(x, Apply) and x.kind.is_float and op_cost(x.op) >= FUNCTION)


def functions_of(s: Statement) -> frozenset[tuple[str, frozenset[str]]]:
    """The functions that a statement computes, outside of sums, with the arrays that each depends on."""
    return frozenset((x.op.name, frozenset(arrays_in(x))) for x in _functions(s.term))


def _points(lin: Linear, s: Statement, fields: Sequence[str]) -> int:
    """How many values some fields have at most; more than `SHORT` if that is not known."""
    ends = [lin.bounds(s.cons, IndexExpr.of(f)) for f in fields]
    return prod(hi - lo + 1 if lo is not None and hi is not None else SHORT + 1 for lo, hi in ends)
