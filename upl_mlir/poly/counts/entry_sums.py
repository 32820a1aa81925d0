# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""Counts with entries of symbolic arrays: sums over these, which no polynomial in the parameters says.

`D*sum(N[k-1]*N[k] for k in 1..K-1)` is a polynomial plus sums with polynomials before them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import islpy as isl

from upl_mlir.poly.convert import Opaque
from upl_mlir.poly.counts.counting import count, where_any
from upl_mlir.poly.describe import Interval, disjoint_pieces, interval
from upl_mlir.poly.expr import IndexExpr, Lookup
from upl_mlir.poly.fibres import fibre_count
from upl_mlir.poly.sets import PSet

FEW_TERMS = 4
"""Terms that are written out."""


@dataclass(frozen=True)
class Sum:
    """The sum of `each` for all `var` from `lo` to `hi`; 0 if there is none."""

    var: str
    lo: IndexExpr
    hi: IndexExpr
    each: EntrySums

    def __str__(self) -> str:
        return f"sum({self.each} for {self.var} in {self.lo}..{self.hi})"

    @property
    def names(self) -> frozenset[str]:
        """What it depends on, arrays excluded."""
        return self.lo.names | self.hi.names | (self.each.names - {self.var})


@dataclass(frozen=True)
class EntrySums:
    """A polynomial, plus sums by what stands before them."""

    plain: IndexExpr
    sums: tuple[tuple[Sum, IndexExpr], ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """What it depends on, arrays excluded."""
        return self.plain.names.union(*(s.names | factor.names for s, factor in self.sums))

    def __add__(self, other: EntrySums | IndexExpr | int) -> EntrySums:
        if not isinstance(other, EntrySums):
            return EntrySums(self.plain + other, self.sums)
        found = dict(self.sums)
        for s, factor in other.sums:
            found[s] = found.get(s, IndexExpr()) + factor
        return EntrySums(self.plain + other.plain, tuple((s, f) for s, f in found.items() if f.terms))

    def __str__(self) -> str:
        parts = [str(s) if f.constant == 1 else f"{f.text(1)}*{s}" for s, f in self.sums]
        if self.plain.terms:
            parts.append(str(self.plain))
        return "+".join(parts).replace("+-", "-") or "0"

    def evaluate(self, env: Mapping[str, int], lookup: Callable[[str, int], int]) -> int:
        """The value for given names; `lookup(array, i)` reads arrays."""
        total = self.plain.evaluate(env, lookup)
        for s, factor in self.sums:
            points = range(s.lo.evaluate(env, lookup), s.hi.evaluate(env, lookup) + 1)
            total += factor.evaluate(env, lookup) * sum(s.each.evaluate({**env, s.var: i}, lookup) for i in points)
        return total

    def substitute(self, name: str, value: int) -> EntrySums:
        """With a number for a name that is no sum's own."""
        put = {name: value}
        sums = tuple(
            (Sum(s.var, s.lo.substitute(put), s.hi.substitute(put), s.each.substitute(name, value)), f.substitute(put))
            for s, f in self.sums
        )
        return EntrySums(self.plain.substitute(put), sums)


def count_by_sums(s: PSet) -> IndexExpr | EntrySums | None:
    """The number of points, as `count` gives it; with sums over the entries of symbolic arrays that the set's points read.

    None where the fibres over the fields by which entries are read are no boxes, or these fields go through no intervals.
    """
    n = count(s)
    if n is not None:
        return n
    s = s.in_terms_of(())
    entries = [a for a in s.params.values() if isinstance(a, Lookup) and s.involves(a)]
    outer = [d for d in s.dims if any(d in a.index.names for a in entries)]
    if s.lost or not outer:
        return None
    each = fibre_count(s, [d for d in s.dims if d not in outer])
    base = None if each is None else _without_entries(s.project(outer))
    if each is None or base is None:
        return None
    pieces = disjoint_pieces(base)
    if len(pieces) != 1:
        return None
    total = EntrySums(_known(s, each))
    for d in reversed(outer):
        before = outer[: outer.index(d)]
        found = interval(pieces[0], d, before)
        if found is None or not found[1].is_true:
            return None
        over = Interval(_known(s, found[0].lo), _known(s, found[0].hi))
        total = _summed(total, d, over, pieces[0].project(before))
    return total if total.sums else total.plain


def _known(s: PSet, e: IndexExpr) -> IndexExpr:
    """An expression with the values of constants put in."""
    return e.rewrite(lambda a: None if (c := s.ctx.constant(a)) is None else IndexExpr.of(c))


def _without_entries(s: PSet) -> PSet | None:
    """The same set without what is said of entries, where that follows from what is known of the arrays."""
    hidden = [name for name, a in s.params.items() if isinstance(a, Lookup | Opaque)]
    plain = s.isl
    for name in hidden:
        at = plain.find_dim_by_name(isl.dim_type.param, name)
        if at >= 0:
            plain = plain.project_out(isl.dim_type.param, at, 1)
    out = s.with_isl(plain, {name: a for name, a in s.params.items() if name not in hidden})
    return None if s.lost or not out <= s else out


def _summed(each: EntrySums, d: str, over: Interval, where: PSet) -> EntrySums:
    """The sum over an interval of a field, which has points at the points of `where`: what does not depend on the field
    stands before it."""
    lo, hi = over.lo.constant, over.hi.constant
    if lo is not None and hi is not None and hi - lo < FEW_TERMS:
        return sum((each.substitute(d, i) for i in range(lo, hi + 1)), EntrySums(IndexExpr()))
    length = over.length if where.dims else where_any(where, over.length)
    inner: dict[EntrySums, IndexExpr] = {}
    out = EntrySums(IndexExpr())
    for m, c in each.plain.terms:
        inside = IndexExpr(((tuple(a for a in m if d in IndexExpr.of(a).names), 1),))
        outside = IndexExpr(((tuple(a for a in m if d not in IndexExpr.of(a).names), c),))
        if inside.constant is None:
            key = EntrySums(inside)
            inner[key] = inner.get(key, IndexExpr()) + outside
        else:
            out = out + length * outside
    for s, factor in each.sums:
        if d in s.names | factor.names:
            key = EntrySums(IndexExpr(), ((s, factor),))
            inner[key] = inner.get(key, IndexExpr()) + 1
        else:
            out = out + EntrySums(IndexExpr(), ((s, factor * length),))
    return out + EntrySums(IndexExpr(), tuple((Sum(d, over.lo, over.hi, e), f) for e, f in inner.items()))
