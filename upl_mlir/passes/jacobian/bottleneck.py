"""Where a program is narrow: the fewest values that all derivatives from `wrt` to `of` pass (AUTODIFF 4, "Mixed mode").

A place is an input of a node, at all its instances or, for an input that lies on a cycle along which a field grows by steps
(the layers of a network, the time of a simulation), at one value of that field.  What grows by steps makes a good guess
only; that a place is passed by all is decided on the sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Literal

from upl_mlir.dialects.upl import InputOp, NodeOp, UplType
from upl_mlir.dialects.upl.query import target_port
from upl_mlir.passes.analysis.components import components
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.autodiff.activity import Dependence, PortKey, closure, edges, fixpoint, key_of
from upl_mlir.passes.autodiff.dynamic import Dynamics
from upl_mlir.passes.jacobian.costs import cheapest, elements, fewer, instances
from upl_mlir.passes.jacobian.relay import Slice, refused
from upl_mlir.poly.counts.counting import count
from upl_mlir.poly.expr import Atom, Formula, IndexExpr, Lookup
from upl_mlir.poly.fibres import fibre_count
from upl_mlir.poly.sets import PSet

MOST_STEPS = 200
"""Values of a field that are looked at one by one.  Chosen, not measured."""
MOST_TRIED = 24
"""Places that are tested, the narrowest first; each test takes some tens of milliseconds.  Chosen, not measured."""


Join = Literal["product", "forward", "reverse"]
"""How the two sides of a cut become one Jacobian: by a product of two; forward, with the Jacobian before the cut as seeds
for what is behind; or in reverse, with that behind as seeds for what is before."""


@dataclass(frozen=True)
class Cut:
    """A place that all derivatives pass, the number of its values, and how the sides are joined for fewest instances."""

    place: Slice
    width: IndexExpr
    join: Join


def bottleneck(
    sets: ProgramSets, ofs: Sequence[PortKey], wrts: Sequence[PortKey], cut: frozenset[PortKey]
) -> Cut | None:
    """The narrowest place between all of `wrt` and all of `of`; None if none has fewer values than either.

    No derivative passes arrows into `cut`.  One place is taken: the product of a chain of several takes at least as many
    seeds everywhere as its narrowest place, and more multiplications.  Of places that are as narrow, the first and the last
    along a field are compared.
    """
    n, m = elements(sets, wrts), elements(sets, ofs)
    if n is None or m is None:
        return None
    dependence = {op.symbol: Dependence(op) for op in sets.ends.values() if isinstance(op, InputOp | NodeOp)}
    links = edges(sets, dependence, cut)
    ports = closure(links, wrts, forward=True) & closure(links, ofs, forward=False)
    found: dict[IndexExpr, list[Slice]] = {}
    for place, width in _places(sets, links, ports - {*ofs, *wrts}):
        if width is not None and all(fewer(sets, width, end)[0] for end in (n, m)) and refused(sets, place) is None:
            found.setdefault(width, []).append(place)

    def order(a: IndexExpr, b: IndexExpr) -> int:
        return fewer(sets, b, a)[0] - fewer(sets, a, b)[0]

    whole = Dynamics(sets).whole

    def behind(place: Slice | None) -> list[dict[PortKey, PSet]]:
        closed = {} if place is None else {place.key: place.instances(sets)}
        return [fixpoint(sets, dependence, of, cut, ports, whole, closed) for of in ofs]

    tries = iter(range(MOST_TRIED))
    for width in sorted(found, key=cmp_to_key(order)):
        passed: dict[Slice, list[dict[PortKey, PSet]]] = {}
        for group in _groups(sets, found[width]):
            for along in (group, group[::-1]):  # the first that is passed by all, and the last
                for place in along:
                    if place in passed or next(tries, None) is None:
                        break
                    reached = behind(place)
                    if not any(w in r for w in wrts for r in reached):
                        passed[place] = reached
                        break
        if passed:
            return _joined(sets, n, width, m, instances(sets, behind(None)), passed)
    return None


def _groups(sets: ProgramSets, places: Sequence[Slice]) -> list[list[Slice]]:
    """Places by input and field; those that need one relay first."""
    out: dict[tuple[PortKey, str | None], list[Slice]] = {}
    for place in places:
        out.setdefault((place.key, place.field), []).append(place)
    return sorted(out.values(), key=lambda group: _gathers(sets, group[0]))


def _gathers(sets: ProgramSets, place: Slice) -> bool:
    """Whether the relay needs another one, which takes the gather off the node."""
    return place.field is not None and target_port(sets.ends[place.key[0]], place.key[1]).gather is not None


def _joined(
    sets: ProgramSets, n: IndexExpr, width: IndexExpr, m: IndexExpr, whole: IndexExpr | None,
    passed: Mapping[Slice, Sequence[Mapping[PortKey, PSet]]],
) -> Cut | None:  # fmt: skip
    """The place and the join with fewest instances; of `passed` places, with what is reached behind each.  Of joins that
    need as many the reverse one comes before the forward one, which native code was found to run slower."""
    costs: dict[Cut, IndexExpr | None] = {}
    for place, reached in passed.items():
        g = instances(sets, reached)
        extra = count(sets.domain(place.key[0])) if _gathers(sets, place) else IndexExpr()
        if whole is None or g is None or extra is None:
            continue
        h = whole - g
        costs[Cut(place, width, "product")] = width * (whole + extra) + n * (width + 1) * m
        costs[Cut(place, width, "reverse")] = width * g + m * (h + extra) + m * width
        costs[Cut(place, width, "forward")] = width * h + n * (g + extra) + n * width
    return cheapest(sets, costs)[0] if costs else None


def _places(
    sets: ProgramSets, links: Sequence[tuple[PortKey, PortKey]], ports: set[PortKey]
) -> Iterator[tuple[Slice, IndexExpr | None]]:
    """The inputs among `ports` at all instances, and those on cycles at each value of a field that grows along them; with
    the number of their values, where that is known."""
    after: dict[PortKey, list[PortKey]] = {}
    for u, v in links:
        if u in ports and v in ports:
            after.setdefault(u, []).append(v)
    inside = [a for a in sets.arrows if not a.virtual and key_of(a) in ports]
    for group in components(sorted(ports), lambda k: after.get(k, ())):
        members = set(group)
        nodes = {name for name, _ in group}
        around = [a for a in inside if key_of(a) in members and a.source.symbol in nodes]
        fields = [f for f in sets.ends[group[0][0]].fields if around and _grows(sets, around, f)]
        for key in group:
            op = sets.ends[key[0]]
            port = op.port(key[1]) if isinstance(op, NodeOp) else None
            if port is None or port.type in (UplType.INT, UplType.BOOL):
                continue
            whole = sets.domain(key[0])
            yield Slice(key), count(whole)
            for f in fields:
                low, high = whole.extent(f)
                if low is not None and high is not None and high - low < MOST_STEPS:
                    each = fibre_count(whole, [d for d in whole.dims if d != f])
                    for v in range(low, high + 1):
                        place = Slice(key, f, v)
                        yield place, count(place.instances(sets)) if each is None else _at(sets, each, f, v)


def _at(sets: ProgramSets, each: IndexExpr, field: str, value: int) -> IndexExpr:
    """An expression at one value of a field, with entries of constant arrays as numbers."""

    def number(atom: Atom) -> IndexExpr | None:
        known = sets.ctx.constant(atom) if isinstance(atom, Lookup) else None
        return None if known is None else IndexExpr.of(known)

    return each.substitute({field: IndexExpr.of(value)}).rewrite(number)


def _grows(sets: ProgramSets, around: Sequence[Arrow], field: str) -> bool:
    """Whether the arrows of a cycle go on along a field by at most one step, all in the same direction."""
    steps: set[int] = set()
    for a in around:
        if field not in a.src or field not in a.target.fields:
            return False
        r = sets.relation(a)
        step = "step of a field"
        dims = (*r.dims, step)
        by = IndexExpr.of(f"{field}'") - IndexExpr.of(field)
        low, high = r.extend(dims).constrain(Formula.compare(step, "==", by)).extent(step)
        if low is None or high is None or high - low > 1:
            return False
        steps |= {low, high}
    return steps in ({0, 1}, {0, -1}, {1}, {-1})
