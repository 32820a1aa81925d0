# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (xDSL leaves the types of attributes and results open)
"""Which nodes can do without the fields that data choose, and what their inputs are then: see `by_source`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from upl_mlir.dialects.upl import NodeOp, SendOp, Special
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.predicate.certain import activates_all
from upl_mlir.passes.predicate.gates import Gates
from upl_mlir.passes.predicate.indices import data_names
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr
from upl_mlir.poly.sets import PSet, union


@dataclass(eq=False)
class Plan:
    """A node that is to lose the fields `gone`: inputs that come from the sources of its instances, and the others."""

    node: NodeOp
    gone: list[str]
    kept: list[str]
    domain: PSet
    """The instances that there may be, over the kept fields."""
    inside: Formula
    """Of those that carried tokens say, the ones that the node may have: others go wrong."""
    carried: dict[str, list[Arrow]]
    looked_up: dict[str, list[Arrow]]
    tell: list[str]
    """Carried inputs whose tokens say the lost fields: one of those that come by the same arrows.  They all must say the
    same, as tokens with different indices would not meet."""

    @property
    def asks(self) -> dict[str, list[str]]:
        """By input that is looked up, the lost fields that say which token: at the others all have `*`."""
        return {n: [f for f in self.gone if any(index_at(self.node, a.send, f) is not None for a in into)]
                for n, into in self.looked_up.items()}  # fmt: skip


def index_at(node: NodeOp, s: SendOp, name: str) -> IndexExpr | None:
    """The index of an arrow to a node at one of its fields; None for `*`."""
    return s.index.data[node.fields.index(name)]


def plan_of(sets: ProgramSets, name: str, sure: Collection[str], *, ordered: bool) -> Plan | None:
    """How a node can do without the fields that data choose; None if it cannot."""
    node = sets.ends[name]
    assert isinstance(node, NodeOp)
    gone = [
        f for n, f in enumerate(node.fields)
        if any((e := a.send.index.data[n]) is not None and e.names & set(data_names(sets, a)) for a in sets.into(name))
    ]  # fmt: skip
    kept = [f for f in node.fields if f not in gone]
    if not gone or any(p.gather is not None for p in node.ports) or _in_the_way(node, gone):
        return None
    if ordered and any(a.port.gather is not None and a.port.gather.rounds for a in sets.out_of(name)):
        return None
    into = {p.name: sets.into(name, p.name) for p in node.ports}
    carried = {p: arrows for p, arrows in into.items() if arrows and all(_carries(sets, a, gone, kept) for a in arrows)}
    looked_up = {p: arrows for p, arrows in into.items() if p not in carried}
    if not carried or not all(looked_up.values()):
        return None
    domain, inside = _domain(sets, node, kept, carried)
    if not all(_are_looked_up(sets, arrows, gone, sure, domain) for arrows in looked_up.values()):
        return None
    gates = Gates(sets)
    alike: dict[tuple[str, ...], str] = {}
    for p, into in carried.items():
        alike.setdefault(tuple(sorted(str(_way(gates, a)) for a in into)), p)
    return Plan(node, gone, kept, domain, inside, carried, looked_up, list(alike.values()))


def _in_the_way(node: NodeOp, gone: Sequence[str]) -> bool:
    """Whether something that has to follow from indices needs a field that is to go."""
    for s in node.sends:
        needed = {n for it in s.loops for e in (it.lo, it.hi) for n in e.names} | s.when_point.names
        if isinstance(s.multiplicity, IndexExpr):
            needed |= s.multiplicity.names
        if needed & set(gone):
            return True
    return False


def _carries(sets: ProgramSets, a: Arrow, gone: Sequence[str], kept: Sequence[str]) -> bool:
    """Whether the kept fields of an instance say who sent the token, and whether the token says the others."""
    if a.stars or a.send.multiplicity != IndexExpr.of(1):
        return False
    if a.source is not a.target:
        return said_by(sets, a, kept)
    same = Formula.all(Formula.compare(f, "==", f"{f}'") for f in kept)
    if not sets.relation(a, inside_target=False).constrain(same).is_empty():
        return False  # a chain along fields that data choose: several instances have the other ones
    return said_by(sets, a, kept, gone)  # of these fields it has one for each of the others


def said_by(sets: ProgramSets, a: Arrow, fields: Sequence[str], own: Sequence[str] = ()) -> bool:
    """Whether some fields of an arrow's target say which instance of the source sent the token, its fields `own` aside."""
    dst = [f"{f}'" for f in fields]
    r = sets.relation(a, inside_target=False)
    return all(r.express(IndexExpr.of(d), dst) is not None for d in (*a.src, *a.loops) if d not in own)


def _are_looked_up(
    sets: ProgramSets, arrows: Sequence[Arrow], gone: Sequence[str], sure: Collection[str], domain: PSet
) -> bool:
    """Whether the instances alone say who sent the tokens of an input, one for each, which their sources always send.

    A token is for any number of instances, or for all of a `domain` without the fields that are to go, at which it has `*`:
    one that does not fire leaves it over."""
    for a in arrows:
        if not a.exact or a.source.symbol not in sure:
            return False
        if a.send.multiplicity is not Special.UNBOUNDED and not (_at_all(a, gone) and activates_all(sets, a, domain)):
            return False
        r = sets.relation(a, inside_target=False)
        if any(r.express(IndexExpr.of(d), a.dst) is None for d in (*a.src, *a.loops)):
            return False
    images = [sets.image(a) for a in arrows]
    if not all((p & q).is_empty() for n, p in enumerate(images) for q in images[:n]):
        return False
    whole = all(_at_all(a, gone) for a in arrows)  # else the node that compares says where there is none
    return not whole or domain.as_meant() <= union([i.project(domain.dims) for i in images])


def _at_all(a: Arrow, fields: Sequence[str]) -> bool:
    """Whether an arrow's index has `*` at all of some fields."""
    return {f"{f}'" for f in fields} <= set(a.stars)


def _domain(
    sets: ProgramSets, node: NodeOp, kept: Sequence[str], carried: Mapping[str, Sequence[Arrow]]
) -> tuple[PSet, Formula]:
    """The instances that there may be, over the kept fields, and what says of those that tokens come to which these are.

    What the node's own domain says of them is used where it follows from the sources' fields."""
    came: PSet | None = None
    for into in carried.values():
        image = union([sets.image(a).project(kept) for a in into]).coalesce()
        came = image if came is None else came & image
    assert came is not None
    may = (came & sets.domain(node.symbol).as_meant().project(kept)).coalesce()
    inside = describe(may, came.as_meant())
    arrows = [a for into in carried.values() for a in into]
    if came <= may or any(a.source is node or said_to(a.send, node, inside).names & set(a.loops) for a in arrows):
        return came, TRUE
    return may, inside


def said_to(s: SendOp, node: NodeOp, f: Formula) -> Formula:
    """What a condition on the fields of a node says of the source of an arrow to it."""
    return f.substitute({g: e for g, e in zip(node.fields, s.index.data, strict=True) if e is not None})


def _way(gates: Gates, a: Arrow) -> object:
    """What arrows that send under the same conditions to the same index have in common."""
    s = a.send
    predicate = None if s.predicate is None else gates.key(s.predicate)
    return a.source.symbol, predicate, s.index, s.condition, s.iterators, s.point_condition
