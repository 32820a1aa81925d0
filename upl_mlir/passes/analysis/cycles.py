# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""Proof that no instance of a node waits for itself: cycles of the dependence relation among instances.

Dependences go from the instance that sends to the one that receives.  Round a cycle of nodes their transitive closure must
not meet the identity.  isl's closure may be too large, never too small: disjointness proves, and an exact closure refutes.
This also finds what differs between the least and the greatest fixpoint of LANGUAGE 3.9: a ring with no entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from upl_mlir.dialects.upl import NodeOp
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.passes.analysis.components import components as strong
from upl_mlir.passes.analysis.obligations import Kind, Obligation, Status, instance
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.poly.closure import Dependence, find_cycle


def of_cycles(sets: ProgramSets) -> Iterator[Obligation]:
    """One obligation for each strongly connected component of nodes."""
    for component in components(sets):
        names = [op.symbol for op in component]
        arrows = _inside(sets, component)
        where = " -> ".join([*names, names[0]])
        found = _find(sets, component, arrows)
        span = span_of(component[0])
        if found is None:
            declared = [op.symbol for op in component if op.declared is not None]
            how = f"declared for {', '.join(declared)}, and reproduce themselves" if declared else "the least fixpoint"
            message = f"every instance depends on earlier ones only; the domains are {how}"
            yield Obligation(Kind.ACYCLIC, Status.PROVED, where, message, span)
        elif isinstance(found, str):
            yield Obligation(Kind.ACYCLIC, Status.UNPROVED, where, found, span)
        else:
            node, at, params = found
            op = component[node]
            point = dict(zip(op.fields, at, strict=False)) | params
            by_data = any(map(sets.dynamic, arrows))  # then data decide whether it does
            status = Status.UNPROVED if by_data else Status.REFUTED
            message = f"{instance(op, point)} {'may wait' if by_data else 'waits'} for itself round {where}"
            yield Obligation(Kind.ACYCLIC, status, where, message, span_of(op), None, point)


def _inside(sets: ProgramSets, component: Sequence[NodeOp]) -> list[Arrow]:
    """The arrows from one node of a component to another or the same."""
    names = {op.symbol for op in component}
    return [a for a in sets.arrows if a.source.symbol in names and a.target.symbol in names]


def _find(
    sets: ProgramSets, component: Sequence[NodeOp], arrows: Sequence[Arrow]
) -> tuple[int, tuple[int, ...], dict[str, int]] | str | None:
    """What `find_cycle` says of the arrows of a component."""
    place = {op.symbol: n for n, op in enumerate(component)}
    return find_cycle(sets.ctx, max(len(op.fields) for op in component), [_dependence(sets, a, place) for a in arrows])


def circular(sets: ProgramSets, may: Callable[[Arrow], bool]) -> list[frozenset[str]]:
    """The components (their nodes) with an arrow for which `may` holds in which, if all arrows sent, an instance might wait
    for itself."""
    out: list[frozenset[str]] = []
    for component in components(sets):
        arrows = _inside(sets, component)
        if any(may(a) for a in arrows) and _find(sets, component, arrows) is not None:
            out.append(frozenset(op.symbol for op in component))
    return out


def _dependence(sets: ProgramSets, a: Arrow, place: dict[str, int]) -> Dependence:
    return Dependence(
        place[a.source.symbol], place[a.target.symbol], sets.relation(a).project((*a.src, *a.dst)), len(a.src)
    )


def components(sets: ProgramSets) -> list[list[NodeOp]]:
    """Nodes that lie on cycles, by strongly connected component, in text order."""
    edges: dict[str, list[str]] = {op.symbol: [] for op in sets.ends.values() if isinstance(op, NodeOp)}
    for a in sets.arrows:
        if a.source.symbol in edges and a.target.symbol in edges:
            edges[a.source.symbol].append(a.target.symbol)
    cyclic = [g for g in strong(list(edges), edges.__getitem__) if len(g) > 1 or g[0] in edges[g[0]]]
    ops = {n: op for n, op in sets.ends.items() if isinstance(op, NodeOp)}
    return sorted(([ops[n] for n in edges if n in g] for g in cyclic), key=lambda ns: list(edges).index(ns[0].symbol))
