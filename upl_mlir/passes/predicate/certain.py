# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (xDSL leaves the types of attributes and results open)
"""What is sure whatever data decide: which instances fire, which inputs get a token, how many activations a token has."""

from __future__ import annotations

from collections.abc import Collection

from upl_mlir.dialects.upl import NodeOp, Port, Special
from upl_mlir.dialects.upl.query import Endpoint
from upl_mlir.passes.analysis.entries import is_data
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.fibres import is_fibre_count
from upl_mlir.poly.sets import PSet


def surely_fires(sets: ProgramSets, always: Collection[str] = ()) -> set[str]:
    """What fires on its whole domain in each run without an error: some input of it always gets its token, which would be
    left over if the instance did not fire.  Nodes of `always` fire whatever comes.

    The greatest such set: in a recurrence each node has its token from the round before.  Instances that wait for each
    other in a ring are in it, too; they have no values, which is an error wherever these are needed (UPL1823).
    """
    sure, before = set(sets.ends), -1
    while before != (before := len(sure)):
        for name, op in sets.ends.items():
            if not isinstance(op, NodeOp) or name in always or name not in sure:
                continue
            declared = op.declared is not None and all(p.open for p in op.ports)
            if not declared and not any(_always(sets, op, p, sure, always) for p in op.ports):
                sure.remove(name)
    return sure


def _always(sets: ProgramSets, op: NodeOp, port: Port, sure: Collection[str], always: Collection[str]) -> bool:
    """Whether an input gets its token in every instance, and the token is left over if nothing fires."""
    into = sets.into(op.symbol, port.name)
    if not into or comes_always(sets, op, port, always) or counted_by(op, port) or port.open:
        return False
    counted = (a.send.multiplicity is not Special.UNBOUNDED if port.gather else activates_all(sets, a) for a in into)
    return all(a.exact and a.source.symbol in sure for a in into) and all(counted)


def counted_by(op: Endpoint, port: Port) -> bool:
    """Whether another input says how many summands a gather waits for."""
    return isinstance(op, NodeOp) and isinstance(port.count, IndexExpr) and op.port(port.count.name or "") is not None


def comes_always(sets: ProgramSets, op: NodeOp, port: Port, always: Collection[str]) -> bool:
    """Whether an input has a value for every instance, there or not: it comes from nodes that fire always."""
    into = sets.into(op.symbol, port.name)
    return bool(into) and all(a.source.symbol in always for a in into)


def determined(sets: ProgramSets, op: NodeOp, mine: Collection[str], always: Collection[str]) -> bool:
    """Whether tokens on other inputs than `mine` say all fields of an instance: then a gather there may have no summand."""
    known: set[str] = set()
    for p in op.ports:
        some = p.gather is None or (isinstance(p.count, IndexExpr) and (p.count.constant or 0) > 0)
        into = sets.into(op.symbol, p.name)
        if p.name not in mine and some and into and not comes_always(sets, op, p, always):
            said = ({f for f, d in zip(op.fields, a.dst, strict=True) if d not in a.stars} for a in into)
            known |= set.intersection(*said)
    return known == set(op.fields)


def activates_all(sets: ProgramSets, a: Arrow, inside: PSet | None = None) -> bool:
    """Whether an arrow's multiplicity is proved to be the number of instances that its token covers: of the target, or
    of those `inside`, over some fields of the target, none of which the arrow's index takes from data.  There each token
    covers some."""
    n, points = a.send.multiplicity, (*a.src, *a.loops)
    if not isinstance(n, IndexExpr) or is_data(sets, n, points):
        return False
    if inside is None:
        return (not a.stars and n.constant == 1) or is_fibre_count(sets.relation(a), a.dst, n)
    r = covered(sets, a, inside)
    return sets.tokens(a) <= r.project(points) and is_fibre_count(r, tuple(d for d in r.dims if d not in points), n)


def covered(sets: ProgramSets, a: Arrow, inside: PSet) -> PSet:
    """The points that an arrow's tokens come from, with the instances that they cover, over some of the target's fields."""
    over = tuple(f"{f}'" for f in inside.dims)
    sent = sets.relation(a, inside_target=False).project((*a.src, *a.loops, *over))
    return sent & inside.rename(dict(zip(inside.dims, over, strict=True))).extend(sent.dims).reorder(sent.dims)
