# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""How many points a set has, as a polynomial in the parameters.

Boxes by products of interval lengths; other convex sets by summing polynomials over one dimension after the other
(Faulhaber's formula), as long as the bounds are affine; sets without parameters by isl's own enumeration; what is left by
barvinok where islpy has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import permutations
from math import comb, lcm
from typing import Any

import islpy as isl

from upl_mlir.poly.describe import describe, disjoint_pieces, fibre_count, interval
from upl_mlir.poly.equality import same_value
from upl_mlir.poly.expr import CmpOp, DivKind, Formula, IndexExpr, Lookup, MinMax, Monomial, Select, Var, divide
from upl_mlir.poly.sets import DIM, PSet

MAX_SPLITS = 4  # of a set where one bound takes over from another
MAX_DIMS = 5  # of a set that is summed: every order of its dimensions may have to be tried


def count(s: PSet) -> IndexExpr | None:
    """The number of points as a polynomial in the parameters; None where none is found.

    Exact for every admissible value of the parameters.
    """
    s = s.in_terms_of(())  # N[k-1] where k is K: one entry
    entries = [a for a in s.params.values() if isinstance(a, Lookup) and a.array in s.ctx.unknown]
    if any(s.involves(a) and a.index.names & set(s.dims) for a in entries):
        return None  # a sum over entries of a symbolic array is no polynomial
    if (n := _count_by_entries(s)) is not None:
        return n
    total = IndexExpr()
    for part in s.slices():
        for piece in disjoint_pieces(part):
            n = _count_piece(piece)
            if n is None:
                return None
            total = total + n
    return total


def _count_by_entries(s: PSet) -> IndexExpr | None:
    """The count of a set with array entries ``N[k]``: the fibres over `k` as one expression, added up over all `k`.

    None where the fibres are no boxes, or the points `k` depend on parameters.
    """
    entries = [a for a in s.params.values() if isinstance(a, Lookup) and s.ctx.constant(a) is None and s.involves(a)]
    outer = [d for d in s.dims if any(d in a.index.names for a in entries)]
    if not outer or any(a.index.names - set(s.dims) for a in entries):
        return None
    n = fibre_count(s, [d for d in s.dims if d not in outer])
    if n is None:
        return None
    base = s.project(outer)
    base = base.with_isl(base.isl.gist(base.facts()))
    if any(isinstance(a, Var) and a.name in s.ctx.params and base.involves(a) for a in base.params.values()):
        return None
    total = IndexExpr()
    for at in base.with_isl(base.isl.drop_unused_params()).points():
        here = n.substitute({d: IndexExpr.of(v) for d, v in zip(outer, at, strict=True)})
        total = total + here.rewrite(lambda a: None if (c := s.ctx.constant(a)) is None else IndexExpr.of(c))
    return total


def _count_piece(p: PSet) -> IndexExpr | None:
    ctx = p.ctx
    symbolic = [a for a in p.params.values() if isinstance(a, Var) and a.name in ctx.params]
    if not p.dims:
        return _where(p, IndexExpr.of(1))
    n = fibre_count(p, p.dims)
    if n is not None:
        n = n.rewrite(lambda a: None if (c := ctx.constant(a)) is None else IndexExpr.of(c))
        return _where(p.project(()), n)
    used = [a for a in symbolic if p.involves(a)]
    if not used:
        flat = p.numeric().isl.project_out_all_params()
        return IndexExpr.of(flat.count_val().to_python())
    n = _sum(p)
    if n is None:
        return _card(p) if HAS_BARVINOK else None
    return _where(p.project(()), n)


def _where(sizes: PSet, n: IndexExpr) -> IndexExpr:
    """A polynomial that counts the points for the sizes for which there are any: as it is if it is 0 for all others."""
    ever = sizes.ctx.set((), sizes.ctx.param_condition)
    if _is_zero(ever - sizes, n):
        return n
    return IndexExpr.of(Select(describe(sizes, ever), n, IndexExpr()))


def _is_zero(s: PSet, n: IndexExpr) -> bool:
    """Whether a polynomial in parameters is 0 on a set of them."""
    if s.is_empty():
        return True
    return same_value(s, n.substitute(s.fixed_symbols()), IndexExpr())


# -- summation -----------------------------------------------------------------------------------------------------

Rational = dict[Monomial, Fraction]
"""A polynomial with rational coefficients."""


def _sum(p: PSet, splits: int = MAX_SPLITS) -> IndexExpr | None:
    """The number of points of a convex set by nested summation; None where no order of the dimensions has affine bounds,
    not even after the set is cut where one bound takes over from another."""
    groups = _independent(p)
    if len(groups) > 1:
        product = IndexExpr.of(1)
        for dims in groups:
            n = _sum(p.project(dims), splits)
            if n is None:
                return None
            product = product * n
        return product
    if len(p.dims) > MAX_DIMS:
        return None
    n = _sum_in_some_order(p)
    if n is not None or not splits:
        return n
    for k in range(len(p.dims) - 1, -1, -1):
        got = interval(p.project(p.dims[: k + 1]), p.dims[k], p.dims[:k])
        if got is None:
            return None
        choice = next((a for e in (got[0].hi, got[0].lo) for a in e.atoms() if isinstance(a, MinMax)), None)
        if choice is None:
            continue
        x, y = choice.args[:2]
        total = IndexExpr()
        for cut in (Formula.compare(x, CmpOp.LE, y), Formula.compare(x, CmpOp.GT, y)):
            for part in disjoint_pieces(p.constrain(cut)):
                n = _sum(part, splits - 1)
                if n is None:
                    return None
                total = total + _where(part.project(()), n)
        return total
    return None


def _independent(p: PSet) -> list[list[str]]:
    """The dimensions of a convex set in groups that no constraint connects: the number of points is a product."""
    (piece,) = p.isl.compute_divs().get_basic_sets()
    if piece.dim(isl.dim_type.div):
        return [list(p.dims)]
    group = {d: {d} for d in p.dims}
    for c in piece.get_constraints():
        together = [d for i, d in enumerate(p.dims) if not c.get_coefficient_val(DIM, i).is_zero()]
        for d in together[1:]:
            joined = group[together[0]] | group[d]
            for e in joined:
                group[e] = joined
    return [[d for d in p.dims if d in g] for g in {frozenset(g): None for g in group.values()}]


def _sum_in_some_order(p: PSet) -> IndexExpr | None:
    ctx = p.ctx
    for order in permutations(p.dims):
        total: Rational | None = {(): Fraction(1)}
        for k in range(len(order) - 1, -1, -1):
            got = interval(p.project(order[: k + 1]), order[k], order[:k])
            if got is None or not got[1].is_true or not all(_affine(e) for e in (got[0].lo, got[0].hi)):
                total = None
                break
            total = _summed(total, order[k], got[0].lo, got[0].hi)
        if total is not None:
            scale = lcm(*(c.denominator for c in total.values())) if total else 1
            num = IndexExpr()
            for m, c in total.items():
                num = num + IndexExpr(((m, 1),)) * int(c * scale)
            num = num.rewrite(lambda a: None if (c := ctx.constant(a)) is None else IndexExpr.of(c))
            return divide(DivKind.FLOORDIV, num, IndexExpr.of(scale)) if scale > 1 else num
    return None


def _affine(e: IndexExpr) -> bool:
    return all(len(m) <= 1 and all(isinstance(a, Var) for a in m) for m, _ in e.terms)


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


HAS_BARVINOK = hasattr(isl.Set, "card")
"""Whether islpy is the build with barvinok (the package `islpy-barvinok`, GPL-2), which counts more than boxes."""


def _card(p: PSet) -> IndexExpr | None:
    """barvinok's count, where it is one polynomial for all admissible parameters."""
    plain = p.numeric()
    pieces: list[isl.QPolynomial] = []
    counted: Any = plain.isl  # the stubs are of the build without barvinok

    def keep(_domain: isl.Set, q: isl.QPolynomial) -> None:
        pieces.append(q)

    counted.card().foreach_piece(keep)
    if len(pieces) != 1 or pieces[0].dim(isl.dim_type.div):
        return None
    terms: list[isl.Term] = []
    pieces[0].foreach_term(terms.append)
    scale = 1
    for t in terms:
        scale = lcm(scale, t.get_coefficient_val().get_den_val().to_python())
    num = IndexExpr()
    for t in terms:
        part = IndexExpr.of(t.get_coefficient_val().mul(isl.Val.int_from_si(isl.DEFAULT_CONTEXT, scale)).to_python())
        for i in range(t.dim(isl.dim_type.param)):
            for _ in range(t.get_exp(isl.dim_type.param, i)):
                part = part * IndexExpr.of(plain.params[plain.isl.get_dim_name(isl.dim_type.param, i) or ""])
        num = num + part
    n = divide(DivKind.FLOORDIV, num, IndexExpr.of(scale)) if scale > 1 else num
    ever = p.ctx.set((), p.ctx.param_condition)
    return n if ever <= p.project(()) else None
