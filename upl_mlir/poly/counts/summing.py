# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""How many points a fibre of a convex set has where it is no box: triangles, tetrahedra, bounds with `floordiv` or `min`.

One dimension after the other is summed over (Faulhaber's formula), in some order in which the bounds of each are affine in
those outside it.  A set is cut where one bound takes over from another, and by remainders where a bound is a quotient.  All
that the summed dimensions do not occur in is a symbol: other dimensions, parameters, quotients and array entries of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import permutations
from math import comb, gcd, lcm

import islpy as isl

from upl_mlir.poly.convert import FromIsl, Opaque
from upl_mlir.poly.describe import Interval, disjoint_pieces, interval
from upl_mlir.poly.expr import Atom, Div, Formula, IndexExpr, Lookup, MinMax, Monomial, Var, divide
from upl_mlir.poly.operators import CmpOp, DivKind
from upl_mlir.poly.sets import PSet
from upl_mlir.poly.tools import DIM

MAX_DIMS = 5  # that are summed over: every order of them may have to be tried
MAX_PARTS = 32  # that a set is cut into
MAX_REMAINDERS = 8  # by which it is cut at a time: as many terms has the number

Terms = list[tuple[PSet, IndexExpr]]
"""(where, how many), to be added up; each number is right where its set has a point."""


def point_counts(s: PSet, over: Sequence[str], budget: int = MAX_PARTS) -> Terms | None:
    """How many values of the dimensions `over` there are, as terms over the other dimensions, to be added up.

    None where no order of the dimensions has affine bounds, not even after the set is cut into `budget` parts.
    """
    if any(isinstance(a, Opaque) and s.involves(a) and a.index.names & set(over) for a in s.params.values()):
        return None  # how often something that is not affine holds is no polynomial
    if any(isinstance(a, Lookup) and a.index.names & set(over) for a in s.params.values()):
        parts = [p for part in s.slices() for p in disjoint_pieces(part)]
    else:
        parts = disjoint_pieces(s)
    return _all(parts, over, budget // max(1, len(parts)))


def _all(parts: Sequence[PSet], over: Sequence[str], budget: int) -> Terms | None:
    """The counts of several convex sets, one behind the other."""
    out: Terms = []
    for p in parts:
        terms = _points(p, over, budget)
        if terms is None:
            return None
        out += terms
    return out


def _points(p: PSet, over: Sequence[str], budget: int) -> Terms | None:
    """The counts of one convex set, which may still be cut into `budget` parts."""
    outer = [d for d in p.dims if d not in over]
    free: list[str] = []
    for d in over:  # what follows from the others adds no point
        if p.express(IndexExpr.of(d), (*outer, *free)) is None:
            free.append(d)
    p, over = p.project((*outer, *free)).in_terms_of(outer), free
    if p.lost or any(isinstance(a, Opaque) and p.involves(a) and a.index.names & set(over) for a in p.params.values()):
        return None
    if not over:
        return [(p, IndexExpr.of(1))]
    if p.isl.compute_divs().n_basic_set() > 1:
        parts = disjoint_pieces(p)
        if len(parts) > max(1, budget):
            return None
        if len(parts) > 1:
            return _all(parts, over, budget // len(parts))
        (p,) = parts
    groups = _independent(p, over)
    if len(groups) > 1:
        return _product(p, outer, groups, budget)
    if len(over) > MAX_DIMS:
        return None
    for d in over:
        stride = p.isl.get_stride_info(p.dims.index(d)).get_stride().to_python()
        if stride > 1:
            return _all(disjoint_pieces(_without_stride(p, d)), over, budget)
    order, obstacles = _order(p, outer, over)
    if order is None:
        return None
    if not obstacles:
        return [(p.project(outer), _sum(order))]
    for a in obstacles:
        parts = _by_choice(p, a) if isinstance(a, MinMax) else _by_remainder(p, over, a) if isinstance(a, Div) else []
        if 1 < len(parts) <= budget:
            return _all([q for part in parts for q in disjoint_pieces(part)], over, budget // len(parts))
    return None


def _product(p: PSet, outer: Sequence[str], groups: Sequence[Sequence[str]], budget: int) -> Terms | None:
    """The counts where groups of dimensions have nothing to do with one another."""
    out: Terms = [(p.project(outer), IndexExpr.of(1))]
    for dims in groups:
        terms = _points(p.project((*outer, *dims)), dims, budget)
        if terms is None:
            return None
        both = [(w & v, n * m) for w, n in out for v, m in terms]
        out = [(w, n) for w, n in both if not w.is_empty()]
    return out


def _independent(p: PSet, over: Sequence[str]) -> list[list[str]]:
    """The dimensions `over` of a convex set in groups that no constraint connects: the number of points is a product."""
    (piece,) = p.isl.compute_divs().get_basic_sets()
    if piece.dim(isl.dim_type.div):
        return [list(over)]
    group = {d: {d} for d in over}
    for c in piece.get_constraints():
        together = [d for d in over if not c.get_coefficient_val(DIM, p.dims.index(d)).is_zero()]
        for d in together[1:]:
            joined = group[together[0]] | group[d]
            for e in joined:
                group[e] = joined
    return [[d for d in over if d in g] for g in {frozenset(g): None for g in group.values()}]


# -- cuts ----------------------------------------------------------------------------------------------------------


def without_stride(p: PSet, d: str, step: str) -> PSet:
    """A set with ``step`` in place of a dimension that is a multiple of its stride behind an offset: as many points."""
    info = p.isl.get_stride_info(p.dims.index(d))
    offset = FromIsl(p.dims, p.params).aff(info.get_offset())
    value = IndexExpr.of(step) * info.get_stride().to_python() + offset
    others = [e for e in p.dims if e != d]
    return p.extend((step,)).constrain(Formula.compare(d, CmpOp.EQ, value)).project((*others, step))


def _without_stride(p: PSet, d: str) -> PSet:
    step = f"{d} step"
    return without_stride(p, d, step).rename({step: d})


def _by_choice(p: PSet, a: MinMax) -> list[PSet]:
    """The set cut where one bound takes over from another."""
    x, y = a.args[:2]
    cut = [p.constrain(Formula.compare(x, op, y)) for op in (CmpOp.LE, CmpOp.GT)]
    return [q for q in cut if not q.is_empty()]


def _by_remainder(p: PSet, over: Sequence[str], a: Div) -> list[PSet]:
    """The set cut by what a dimension leaves when it is divided: then a quotient of it is affine."""
    den = a.den.constant
    found = [(m[0].name, c) for m, c in a.num.terms if len(m) == 1 and isinstance(m[0], Var) and m[0].name in over]
    if not den or not found:
        return []
    d, c = found[0]
    n, quotient = abs(den) // gcd(c, den), f"{d} quotient"
    others = [e for e in p.dims if e != d]
    parts: list[PSet] = []
    for r in range(n if n <= MAX_REMAINDERS else 0):
        at = Formula.compare(d, CmpOp.EQ, IndexExpr.of(quotient) * n + r)
        part = p.extend((quotient,)).constrain(at).project((*others, quotient)).rename({quotient: d})
        if not part.is_empty():
            parts.append(part)
    return parts


# -- summation -----------------------------------------------------------------------------------------------------

Rational = dict[Monomial, Fraction]
"""A polynomial with rational coefficients."""


Bounds = list[tuple[str, Interval]]
"""Dimensions from the outermost to the innermost, with their bounds."""


def _order(p: PSet, outer: Sequence[str], over: Sequence[str]) -> tuple[Bounds | None, Sequence[Atom]]:
    """An order of the dimensions in which the fewest parts of bounds are not affine in dimensions further out, and these.

    None where no order has bounds by single expressions."""
    known: dict[tuple[frozenset[str], str], Interval | None] = {}
    best: tuple[Bounds | None, Sequence[Atom]] = (None, [])
    for order in permutations(over):
        bounds: Bounds = []
        for k in range(len(order) - 1, -1, -1):
            key = frozenset(order[:k]), order[k]
            if key not in known:
                got = interval(p.project((*outer, *order[: k + 1])), order[k], (*outer, *order[:k]))
                exact = got is not None and got[1].is_true
                known[key] = Interval(_drawn_out(got[0].lo), _drawn_out(got[0].hi)) if got is not None and exact else None
            i = known[key]
            if i is None:
                break
            bounds.insert(0, (order[k], i))
        if len(bounds) < len(order):
            continue
        atoms = dict.fromkeys(a for _, i in bounds for e in (i.lo, i.hi) for m, _ in e.terms for a in m)
        obstacles = [a for a in atoms if not isinstance(a, Var) and IndexExpr.of(a).names & set(over)]
        obstacles.sort(key=lambda a: not isinstance(a, MinMax))
        if best[0] is None or len(obstacles) < len(best[1]):
            best = bounds, obstacles
        if not obstacles:
            break
    return best


def _sum(bounds: Bounds) -> IndexExpr:
    """The number of points between affine bounds."""
    total: Rational = {(): Fraction(1)}
    for d, i in reversed(bounds):
        total = _summed(total, d, i.lo, i.hi)
    scale = lcm(*(c.denominator for c in total.values())) if total else 1
    num = IndexExpr()
    for m, c in total.items():
        num = num + IndexExpr(((m, 1),)) * int(c * scale)
    return divide(DivKind.FLOORDIV, num, IndexExpr.of(scale)) if scale > 1 else num


def _drawn_out(e: IndexExpr) -> IndexExpr:
    """An expression with whole multiples drawn out of its quotients: ``(n-6*q) floordiv 2`` is ``n floordiv 2 - 3*q``."""

    def out(a: Atom) -> IndexExpr | None:
        if not isinstance(a, Div) or a.kind is DivKind.MOD or not (c := a.den.constant):
            return None
        whole = IndexExpr(tuple((m, k // c) for m, k in a.num.terms if m and k % c == 0))
        return whole + divide(a.kind, a.num - whole * c, a.den) if whole.terms else None

    return e.rewrite(out)


def _times(a: Rational, b: Rational) -> Rational:
    out: Rational = {}
    for m, c in a.items():
        for n, d in b.items():
            key = (IndexExpr(((m, 1),)) * IndexExpr(((n, 1),))).terms[0][0]
            out[key] = out.get(key, Fraction(0)) + c * d
    return out


def _plus(a: Rational, b: Rational, sign: int = 1) -> Rational:
    out = dict(a)
    for m, c in b.items():
        out[m] = out.get(m, Fraction(0)) + sign * c
    return out


def _rational(e: IndexExpr) -> Rational:
    return {m: Fraction(c) for m, c in e.terms}


@cache
def _faulhaber(k: int) -> tuple[Fraction, ...]:
    """Coefficients, from the constant one on, of the polynomial in x that is the sum of j**k over 1 <= j <= x."""
    bernoulli = [Fraction(1)]
    for m in range(1, k + 1):
        bernoulli.append(-sum((comb(m + 1, i) * b for i, b in enumerate(bernoulli)), Fraction(0)) / (m + 1))
    if k >= 1:
        bernoulli[1] = Fraction(1, 2)
    out = [Fraction(0)] * (k + 2)
    for i, b in enumerate(bernoulli):
        out[k + 1 - i] = comb(k + 1, i) * b / (k + 1)
    return tuple(out)


def _summed(total: Rational, dim: str, lo: IndexExpr, hi: IndexExpr) -> Rational:
    """The sum of a polynomial over lo <= dim <= hi."""
    by_power: dict[int, Rational] = {}
    for m, c in total.items():
        power = sum(a == Var(dim) for a in m)
        rest = tuple(a for a in m if a != Var(dim))
        by_power.setdefault(power, {})[rest] = c
    out: Rational = {}
    for power, factor in by_power.items():
        upper, lower = (_polynomial(_faulhaber(power), _rational(e)) for e in (hi, lo - 1))
        out = _plus(out, _times(factor, _plus(upper, lower, -1)))
    return {m: c for m, c in out.items() if c}


def _polynomial(coefficients: Sequence[Fraction], x: Rational) -> Rational:
    """The value of a polynomial, by Horner's rule."""
    out: Rational = {}
    for c in reversed(coefficients):
        out = _plus(_times(out, x), {(): c})
    return out
