"""Whether every index, condition, bound and count has a value: none divides by 0, which ends a run with UPL1604.

Only divisors that are neither numbers nor data are looked at, each where engines evaluate it: `&&` and `||` from left to
right until they are decided, of `?:` the side that is chosen.  Entries of arrays that may not exist are told of here, too,
where nothing is refuted: `obligations` has those that surely do not (`entries`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from upl_mlir.diagnostics import Span, error
from upl_mlir.dialects.upl import NodeOp
from upl_mlir.dialects.upl.query import Endpoint, span_of
from upl_mlir.passes.analysis.entries import Missing, knows, missing_in_arrow, missing_in_count
from upl_mlir.passes.analysis.obligations import Kind, Obligation, Status, instance
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.poly.expr import Atom, Div, Formula, IndexExpr, Lookup, MinMax, Select
from upl_mlir.poly.operators import CmpOp, Connective
from upl_mlir.poly.sets import PSet

HELP = "bound the divisor, as in `param q >= 1`, or test it first: `if q != 0 && …`"


class Place(NamedTuple):
    """The points at which something is evaluated; unless `sure`, perhaps not at all of them."""

    points: PSet
    sure: bool

    def where(self, f: Formula) -> Place:
        """Those at which a condition holds; one on data may hold at any."""
        return Place(self.points.constrain(f), self.sure) if knows(self.points, f.names) else Place(self.points, False)


Site = tuple[Div, Place]


def of_values(sets: ProgramSets, left_out: Callable[[Endpoint], bool] = lambda _: False) -> Iterator[Obligation]:
    """One obligation for each division in a declared domain, the count of a gather or an arrow, and for each entry that may
    not exist; what nodes and ports that are `left_out` have is not looked at."""
    for op in sets.ends.values():
        if op.declared is not None and not left_out(op):
            sites = _of_formula(op.declared.data, Place(sets.ctx.set(op.fields), True))
            yield from settled(sites, op, op.symbol, span_of(op), None)
        for port in op.ports if isinstance(op, NodeOp) and not left_out(op) else ():
            if isinstance(port.count, IndexExpr):
                where, sites = f"{op.symbol}.{port.name}", _of(port.count, instances(sets, op))
                yield from settled(sites, op, where, span_of(op), None)
                yield from _entry(missing_in_count(sets, op, port.count), where, span_of(op), None, sure=True)
    for a in sets.arrows:
        if not (left_out(a.source) or left_out(a.target)):
            yield from settled(_of_arrow(sets, a), a.source, a.text, span_of(a.send), a.text)
            yield from _entry(missing_in_arrow(sets, a), a.text, span_of(a.send), a.text, sure=a.exact)


def require_values(found: Iterable[Obligation], what: str) -> None:
    """Raise UplError (UPL1823) where it is open, in what `of_values` found, whether an index has a value: `what` would go on
    with some number."""
    for o in found:
        if o.status is Status.UNPROVED:
            raise error("UPL1823", f"{what} {o.message}", o.span, help='use engine="interp" or "token"')


def _entry(found: Missing | None, where: str, span: Span | None, arrow: str | None, *, sure: bool) -> Iterator[Obligation]:
    if found is not None and (found[1] is None or not sure):
        message = f"cannot show that `{found[0]}` exists where it is read"
        yield Obligation(Kind.DEFINED, Status.UNPROVED, where, message, span, arrow)


def instances(sets: ProgramSets, op: Endpoint) -> Place:
    """All instances of a node, or elements of a host input."""
    domain = sets.domain(op.symbol)
    return Place(domain, domain.exact and op.symbol not in sets.dynamic_nodes)


def _of_arrow(sets: ProgramSets, a: Arrow) -> Iterator[Site]:
    send, place = a.send, instances(sets, a.source)
    yield from _of_formula(send.when, place)
    place = place.where(send.when)
    place = Place(place.points.extend((*a.src, *a.loops)), place.sure and send.predicate is None)
    for it in send.loops:
        for bound in (it.lo, it.hi):
            yield from _of(bound, place)
        place = place.where(Formula.compare(it.lo, CmpOp.LE, it.name) & Formula.compare(it.name, CmpOp.LE, it.hi))
    yield from _of_formula(send.when_point, place)
    place = place.where(send.when_point)
    for e in (*send.index.data, send.multiplicity):
        if isinstance(e, IndexExpr):
            yield from _of(e, place)


def _of_formula(f: Formula, place: Place) -> Iterator[Site]:
    match f.kind:
        case Connective.CMP:
            yield from _of(f.lhs, place)
            yield from _of(f.rhs, place)
        case Connective.NOT:
            yield from _of_formula(f.args[0], place)
        case Connective.AND | Connective.OR:
            for part in f.args:
                yield from _of_formula(part, place)
                place = place.where(part if f.kind is Connective.AND else part.negate())


def _of(e: IndexExpr, place: Place) -> Iterator[Site]:
    for monomial, _ in e.terms:
        for atom in monomial:
            yield from _of_atom(atom, place)


def _of_atom(atom: Atom, place: Place) -> Iterator[Site]:
    match atom:
        case Lookup(_, index):
            yield from _of(index, place)
        case Div(_, num, den):
            yield from _of(num, place)
            yield from _of(den, place)
            if not place.points.ctx.number(den):
                yield atom, place
        case MinMax(_, args):
            for x in args:
                yield from _of(x, place)
        case Select(cond, then, other):
            yield from _of_formula(cond, place)
            yield from _of(then, place.where(cond))
            yield from _of(other, place.where(cond.negate()))
        case _:
            pass


def settled(sites: Iterable[Site], op: Endpoint, where: str, span: Span | None, arrow: str | None) -> list[Obligation]:
    """One obligation for each division, by the first place where it is not proved."""
    found: dict[str, Obligation] = {}
    for atom, place in sites:
        text = str(atom)
        if text in found and found[text].status is not Status.PROVED:
            continue
        if not knows(place.points, atom.den.names):  # by data: each engine looks when they are there
            continue
        bad = place.points.constrain(Formula.compare(atom.den, CmpOp.EQ, 0))
        if bad.is_empty():
            message = f"`{text}` never divides by 0"
            found[text] = Obligation(Kind.DEFINED, Status.PROVED, where, message, span, arrow)
            continue
        point = bad.sample() if place.sure else None
        status = Status.UNPROVED if point is None else Status.REFUTED
        message = f"cannot show that `{text}` never divides by 0"
        if point is not None:
            message = f"{instance(op, point)} divides by 0: `{text}`"
        found[text] = Obligation(Kind.DEFINED, status, where, message, span, arrow, point, HELP)
    return list(found.values())
