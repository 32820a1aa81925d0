# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""Whether two expressions are equal on a set: affine ones by isl, products by cases and by the equations that hold there."""

from __future__ import annotations

import islpy as isl

from upl_mlir.poly.convert import FromIsl
from upl_mlir.poly.expr import Div, Formula, IndexExpr, MinMax, Select, Var, extremum
from upl_mlir.poly.operators import CmpOp, Extremum
from upl_mlir.poly.sets import PSet


def same_value(s: PSet, a: IndexExpr, b: IndexExpr) -> bool:
    """Whether two expressions are equal on every point of the set (proved; False may also mean unknown)."""
    if a == b:
        return True
    linear = all(len(m) <= 1 for e in (a, b) for m, _ in e.terms)
    if linear and _choices(a - b) > FEW_CHOICES and _zero_by_cases(s, a - b, MAX_CASES):
        return True
    differ = Formula.compare(a, CmpOp.NE, b)
    if s.ctx.not_affine(s.dims, differ) is None:
        return s.constrain(differ).is_empty()
    # a product of array entries: affine once each entry has its value
    if _empty_by_entries(s.with_entries(differ.lookups()), differ):
        return True
    if _same_factors(s, a, b):
        return True
    difference = (a - b).rewrite(lambda x: None if (c := s.ctx.constant(x)) is None else IndexExpr.of(c))
    return _zero_by_cases(s.numeric(), difference, MAX_CASES)


def at_least_0(n: IndexExpr) -> IndexExpr:
    """How many summands a gather of `n` waits for: none if `n` is negative."""
    return extremum(Extremum.MAX, (IndexExpr(), n))


def same_count(s: PSet, wanted: IndexExpr, total: IndexExpr) -> bool:
    """Whether a gather of `wanted` summands waits for `total` (proved; False may also mean unknown)."""
    return same_value(s, wanted, total) or same_value(s, at_least_0(wanted), total)


def _empty_by_entries(s: PSet, f: Formula) -> bool:
    """Whether a formula, affine once array entries have their values, holds nowhere on a set."""
    for part in s.slices():
        here = part.resolve(f)
        if s.ctx.not_affine(s.dims, here) is not None or not part.constrain(here).is_empty():
            return False
    return True


FEW_CHOICES = 3  # beyond them isl meets all combinations at once, where most cases exclude each other
MAX_CASES = 12  # choices of `min`, `max` and `?:` that follow one another


def _zero_by_cases(s: PSet, e: IndexExpr, depth: int) -> bool:
    """Whether a polynomial in expressions with `min`, `max` and `?:` is 0 on a set: in each case of these it is a plain
    polynomial, which its normal form, with dimensions that follow from others written so, shows to be 0."""
    if e == IndexExpr() or s.is_empty():
        return True
    choice = next((a for a in e.atoms() if isinstance(a, MinMax | Select) and _plain(a)), None)
    if choice is None or not depth:
        return _zero_polynomial(s, e) or (
            s.isl.n_basic_set() > 1 and all(
                _zero_polynomial(s.with_isl(isl.Set.from_basic_set(b)), e) for b in s.isl.coalesce().get_basic_sets()
            )  # m<=1 || n<=1: (m-1)*(n-1) is 0 on each part, by another equation
        )  # fmt: skip
    cases: list[tuple[Formula, IndexExpr]] = []
    if isinstance(choice, Select):
        cases = [(choice.cond, choice.then), (choice.cond.negate(), choice.other)]
    else:
        op = CmpOp.LE if choice.kind is Extremum.MIN else CmpOp.GE
        for x in choice.args:
            cases.append((Formula.all(Formula.compare(x, op, y) for y in choice.args if y != x), x))
    if any(s.ctx.not_affine(s.dims, f) is not None for f, _ in cases):
        return False
    return all(
        _zero_by_cases(s.constrain(f), e.rewrite(lambda a, x=x: x if a == choice else None), depth - 1) for f, x in cases
    )


def _zero_polynomial(s: PSet, e: IndexExpr) -> bool:
    """Whether a polynomial without choices is 0 on a set: its normal form is, in terms of what the equations that hold on
    the set leave free.  Quotients and remainders count as dimensions of their own.
    """
    free: list[str] = []
    known: dict[str, IndexExpr] = {}
    for d in [d for d in s.dims if d in e.names]:
        v = s.express(IndexExpr.of(d), free)
        if v is None:
            free.append(d)
        else:
            known[d] = v
    e = e.substitute(known)
    differ = Formula.compare(e, CmpOp.NE, 0)
    if e == IndexExpr() or (s.ctx.not_affine(s.dims, differ) is None and s.constrain(differ).is_empty()):
        return True
    constant = s.ctx.constant
    e = e.rewrite(lambda a: None if (value := constant(a)) is None else IndexExpr.of(value))
    s = s.numeric().known()
    for atom in dict.fromkeys(a for m, _ in e.terms for a in m if isinstance(a, Div)):
        name = f"part {len(s.dims)}"
        same = Formula.compare(name, CmpOp.EQ, IndexExpr.of(atom))
        if s.ctx.not_affine((*s.dims, name), same) is not None:
            continue
        s = s.extend((name,)).constrain(same)
        e = e.rewrite(lambda a, atom=atom, name=name: IndexExpr.of(name) if a == atom else None)
    return e.substitute(_solved(s)) == IndexExpr()


def _solved(s: PSet) -> dict[str, IndexExpr]:
    """Names that follow from others by the linear equations that hold on a set, in terms of these."""
    reader = FromIsl(s.dims, s.params)
    out: dict[str, IndexExpr] = {}
    for f in [reader.constraint(c) for c in s.isl.affine_hull().get_constraints() if c.is_equality()]:
        e = (f.lhs - f.rhs).substitute(out)
        for m, c in e.terms:
            if len(m) == 1 and isinstance(m[0], Var) and abs(c) == 1:
                name = m[0].name
                value = IndexExpr.of(name) - e * c
                out = {n: v.substitute({name: value}) for n, v in out.items()} | {name: value}
                break
    return out


def _choices(e: IndexExpr) -> int:
    """How many different `min`, `max` and `?:` stand in an expression."""
    return len({a for a in e.atoms() if isinstance(a, MinMax | Select)})


def _plain(a: MinMax | Select) -> bool:
    """Whether no choice stands inside."""
    inner = [x for e in (a.args if isinstance(a, MinMax) else (a.then, a.other)) for x in e.atoms()]
    if isinstance(a, Select):
        inner += a.cond.atoms()
    return not any(isinstance(x, MinMax | Select) for x in inner)


def _same_factors(s: PSet, a: IndexExpr, b: IndexExpr) -> bool:
    """Whether two products are equal because their factors are, in some order."""
    if len(a.terms) != 1 or len(b.terms) != 1:
        return False
    (left, m), (right, n) = a.terms[0], b.terms[0]
    if m != n or len(left) != len(right) or len(left) < 2:  # of one factor alone this asks what was asked
        return False
    rest = [IndexExpr.of(f) for f in right]
    for f in map(IndexExpr.of, left):
        match = next((g for g in rest if f == g), None) or next((g for g in rest if same_value(s, f, g)), None)
        if match is None:
            return False
        rest.remove(match)
    return True
