# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""How many points of a set belong to a point of some of its dimensions: uses of a value, summands of a gather.

AUTODIFF rule 3 asks for counts as the primal program wrote them, else as products of interval lengths, else as polynomials.
"""

from __future__ import annotations

from collections.abc import Sequence

from upl_mlir.poly.counts.summing import Terms, point_counts, without_stride
from upl_mlir.poly.describe import disjoint_pieces, interval
from upl_mlir.poly.equality import same_value
from upl_mlir.poly.expr import Formula, IndexExpr, MinMax, extremum
from upl_mlir.poly.operators import CmpOp, Extremum
from upl_mlir.poly.sets import PSet
from upl_mlir.poly.tools import DIM


def fibre_count(s: PSet, over: Sequence[str], prefer: Sequence[IndexExpr] = ()) -> IndexExpr | None:
    """How many values of the dimensions `over` there are, as an expression over the other dimensions of the set.

    Right wherever the fibre is not empty.  One of `prefer` is returned if it is equal everywhere.  None if the set is
    not a box in those dimensions.
    """
    if not over:
        return IndexExpr.of(1)
    n = _fibre_count(s, over, prefer)
    if n is None and len((plain := s.numeric()).params) < len(s.params):
        n = _fibre_count(plain, over, prefer)
    return n


def fibre_counts(s: PSet, over: Sequence[str], prefer: Sequence[IndexExpr] = ()) -> Terms | None:
    """As `fibre_count` where that needs cases: terms (where, how many) over the other dimensions, to be added up.

    A fibre may fall into several pieces: their counts add.  None if a piece cannot be counted.
    """
    outer = [d for d in s.dims if d not in over]
    n = fibre_count(s, over, prefer)
    where = s.project(outer)
    if where.lost:
        return None
    if n is not None:
        return [(where, n)]
    out: Terms = []
    for piece in disjoint_pieces(s):
        n = fibre_count(piece, over)
        terms = [(piece.project(outer), n)] if n is not None else point_counts(piece, over, 1)
        if terms is None or len(terms) > 1:  # several are found faster, and are shorter, by values
            terms = _by_values(piece, over) or point_counts(piece, over)
        if terms is None:
            return None
        out += terms
    return out


def is_fibre_count(s: PSet, over: Sequence[str], n: IndexExpr) -> bool:
    """Whether a fibre that is not empty has `n` points (proved; False may also mean unknown)."""
    terms, base = fibre_counts(s, over, [n]), s.project([d for d in s.dims if d not in over])
    return terms is not None and not base.lost and all(same_value(p, k, n) for p, k in sum_by_parts(base, terms))


def _by_values(p: PSet, over: Sequence[str]) -> Terms | None:
    """The counts of the parts of a set, by the values of a dimension that has few."""
    out: Terms = []
    parts = _one_by_one(p, over)
    for part in parts or ():
        terms = fibre_counts(part, over)
        if terms is None:
            return None
        out += terms
    return out


FEW_VALUES = 9
"""Values of a dimension that are looked at one by one, at most. Chosen, not measured."""


def _one_by_one(p: PSet, over: Sequence[str]) -> list[PSet] | None:
    """The set cut by the values of one dimension that has few, whatever the parameters, or by its distance from one that
    is not of `over` (a diamond, column by column); None if there is none."""
    outer = [IndexExpr.of(e) for e in p.dims if e not in over]
    for away in (IndexExpr(), *outer):
        for d in over:
            value = IndexExpr.of(d) - away
            lo, hi = p.extend(("value",)).constrain(Formula.compare("value", CmpOp.EQ, value)).extent("value")
            if lo is not None and hi is not None and 0 < hi - lo < FEW_VALUES:
                parts = [p.constrain(Formula.compare(value, CmpOp.EQ, v)) for v in range(lo, hi + 1)]
                return [q for q in parts if not q.is_empty()]
    return None


def _fibre_count(s: PSet, over: Sequence[str], prefer: Sequence[IndexExpr]) -> IndexExpr | None:
    outer = [d for d in s.dims if d not in over]
    free: list[str] = []  # the others follow from them: projecting those out keeps the count
    for d in over:
        if s.express(IndexExpr.of(d), (*outer, *free)) is None:
            free.append(d)
    s = s.in_terms_of((*outer, *free)).project((*outer, *free)).in_terms_of(outer)
    if s.lost:
        return None
    product = _box_count(s, outer, free)
    if product is None:
        product = _nested_count(s, free)
    if product is None:
        return None
    base = s.project(outer)
    if base.lost:
        return None
    for p in prefer:
        if same_value(base, p, product):
            return p
    return product


def _box_count(s: PSet, outer: Sequence[str], over: Sequence[str]) -> IndexExpr | None:
    """The product of the extents, if the fibre is a box."""
    pieces = disjoint_pieces(s)
    if len(pieces) != 1:
        return None
    lengths: list[IndexExpr] = []
    exact = pieces[0].project(outer).extend(tuple(over))
    for d in over:
        got = interval(pieces[0], d, outer)
        if got is None or not got[1].is_true:
            return None
        exact = exact.constrain(Formula.compare(got[0].lo, "<=", d) & Formula.compare(d, "<=", got[0].hi))
        lengths.append(got[0].length)
    if not exact.reorder(s.dims) <= s:
        return None  # not a box
    product = IndexExpr.of(1)
    cases = [len(n.terms) > 1 and any(isinstance(a, MinMax) for a in n.atoms()) for n in lengths]
    for n, split in zip(lengths, cases, strict=True):
        # Where there is a point each length is at least 1: so written, the product stays one.
        product = product * (extremum(Extremum.MAX, (IndexExpr.of(1), n)) if split and sum(cases) > 1 else n)
    return product


def _nested_count(s: PSet, over: Sequence[str]) -> IndexExpr | None:
    """The count where it is a product, but the fibre is no box: dimension by dimension.

    A dimension is counted when the number of its values, for all others fixed, depends on `outer` alone: parallelograms,
    strides.  Where none is, several of them are replaced by one sum of multiples of them that tells their points apart:
    quotient and remainder by the number divided.
    """
    if not over:
        return IndexExpr.of(1)
    pieces = disjoint_pieces(s)
    if len(pieces) != 1:
        return None
    (p,) = pieces
    for d in over:
        rest = [e for e in over if e != d]
        n = _length(p, d)
        if n is not None and not n.names & set(over):
            m = _nested_count(p.project([e for e in p.dims if e != d]), rest)
            if m is not None:
                return n * m
    for together in _sums(p, over):
        names = together.names
        others = [e for e in p.dims if e not in names]
        new = f"sum {len(p.dims)}"  # their number falls from one such step to the next
        joint = p.extend((new,)).constrain(Formula.compare(new, CmpOp.EQ, together))
        if all(joint.express(IndexExpr.of(e), (*others, new)) is not None for e in names):
            return _nested_count(joint.project((*others, new)), [*(e for e in over if e not in names), new])
    return _count_of_numbers(p, over)


def _count_of_numbers(p: PSet, over: Sequence[str]) -> IndexExpr | None:
    """The count where neither the other dimensions nor any symbol matters: isl's own enumeration."""
    fibre = p.project(over).numeric()
    if any(fibre.involves(a) for a in fibre.params.values()) or not fibre.isl.is_bounded():
        return None
    outer = [d for d in p.dims if d not in over]
    if not (fibre.extend(p.dims).reorder(p.dims) & p.project(outer).extend(p.dims).reorder(p.dims)) <= p:
        return None
    return IndexExpr.of(fibre.isl.project_out_all_params().count_val().to_python())


def _length(p: PSet, d: str) -> IndexExpr | None:
    """The number of values of `d` for each value of the other dimensions of a convex set, strides taken out."""
    if p.isl.get_stride_info(p.dims.index(d)).get_stride().to_python() > 1:
        p, d = without_stride(p, d, "step"), "step"
    got = interval(p, d, [e for e in p.dims if e != d])
    return got[0].length if got is not None and got[1].is_true else None


def _sums(p: PSet, over: Sequence[str]) -> list[IndexExpr]:
    """Sums of multiples of at least two dimensions of `over` that the constraints of a convex set bound."""
    found: dict[IndexExpr, None] = {}
    (piece,) = p.isl.compute_divs().get_basic_sets()
    for c in piece.get_constraints():
        e = IndexExpr()
        for d in over:
            at = p.dims.index(d)
            e = e + IndexExpr.of(d) * c.get_coefficient_val(DIM, at).to_python()
        if len(e.names) > 1 and e * -1 not in found:
            found[e] = None
    return list(found)


def sum_by_parts(domain: PSet, terms: Sequence[tuple[PSet, IndexExpr]]) -> list[tuple[PSet, IndexExpr]]:
    """The domain cut into parts on each of which the sum of the terms is one expression."""
    parts: list[tuple[PSet, IndexExpr]] = [(domain, IndexExpr())]
    for s, n in terms:
        s.exactly("a number of tokens")
        new: list[tuple[PSet, IndexExpr]] = []
        for part, total in parts:
            inside = part & s
            if inside.is_empty():
                new.append((part, total))
            elif part <= s:
                new.append((part, total + n))
            else:
                new += [(inside.coalesce(), total + n), ((part - s).coalesce(), total)]
        parts = new
    return [(p, t) for p, t in parts if not p.is_empty()]
