# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Contractions in the polyhedral form: sums of products of two arrays over boxes of indices, however a program wrote them.

    d_X<b,f,i,j> = + over g,i',j' of  d_R<b,g,i',j'> * W<g,f,i-i',j-j'>   where 0 <= i-i' <= 2, 0 <= i' < o, ...

Iterators that stay near a field (``i' = i-2+p``) are replaced by their small distance from it; what then still couples two
indices is taken out as a loop round the product.  The rest is a box, which a microkernel can run through as it likes.

Where what couples them are only the bounds of one factor's array, there is another form: one product for the whole sum, of
that factor with zeros round it.  It takes the other factor for finite, as 0 times infinity would be a summand that is none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from upl_mlir.dialects.loops.attributes import Range
from upl_mlir.dialects.upl import Gather
from upl_mlir.passes.loops.matches import added_to
from upl_mlir.passes.loops.statements import Statement
from upl_mlir.passes.loops.terms import Fold, Get, Part, names_in
from upl_mlir.passes.loops.transform.products import factors, is_sum_of_products
from upl_mlir.poly.expr import IndexExpr, Var
from upl_mlir.poly.linear import Con, Cons, Linear

FEW = 256
"""A contraction of known extents with no more multiplications is left to plain loops; `FEW_PRODUCTS` in
`native/products/contraction.py` has the same reason. No measurement is on record."""
MANY = 512
"""A loop round them does not cut contractions with so many products for each iteration. Chosen, not measured."""
NEAR = 16
"""An iterator that takes at most so many values beside a field is replaced by its distance. Chosen, not measured."""

New = Callable[[IndexExpr], IndexExpr]


@dataclass(frozen=True, eq=False)
class Term:
    """One sum of products: loops over `around` (in order), and in them the box of `fields` and `summed`.

    `indices` are those of the two arrays and of the result, over all these names.  It holds where `cons` do.
    """

    cons: Cons
    around: tuple[Range, ...]
    fields: tuple[Range, ...]
    summed: tuple[Range, ...]
    arrays: tuple[Get, Get]
    indices: tuple[tuple[IndexExpr, ...], tuple[IndexExpr, ...], tuple[IndexExpr, ...]]

    def rewritten(self, new: New) -> Term:
        """With other index expressions."""
        around, fields, summed = (tuple(r.rewritten(new) for r in x) for x in (self.around, self.fields, self.summed))
        a, b, c = (tuple(map(new, x)) for x in self.indices)
        cons = tuple(Con(new(c.e), c.eq) for c in self.cons)
        return Term(cons, around, fields, summed, self.arrays, (a, b, c))


@dataclass(frozen=True, eq=False)
class Contraction:
    """What a statement computes for all values of its fields that no loop fixes: zeros, and sums added to them.

    The loops `around` fix those fields that the others' bounds ask for; `fields` are the rest.
    """

    fold: Fold
    around: tuple[Range, ...]
    fields: tuple[Range, ...]
    index: tuple[IndexExpr, ...]
    terms: tuple[Term, ...]
    padded: Padded | None = None

    def rewritten(self, new: New) -> Contraction:
        """With other index expressions, for a loop outside that is written out."""
        around, fields = (tuple(r.rewritten(new) for r in x) for x in (self.around, self.fields))
        terms = tuple(t.rewritten(new) for t in self.terms)
        padded = self.padded and self.padded.rewritten(new)
        return Contraction(self.fold, around, fields, tuple(map(new, self.index)), terms, padded)


@dataclass(frozen=True, eq=False)
class Padded:
    """The same as one product without loops, for where factor number `other` is finite.

    Factor number `factor` is to be read as 0 where an index is outside of its `limits`: bounds, least and greatest, by the
    index's number.
    """

    term: Term
    factor: int
    limits: Mapping[int, tuple[tuple[IndexExpr, ...], tuple[IndexExpr, ...]]]

    @property
    def other(self) -> int:
        """The number of the other factor."""
        return 1 - self.factor

    def rewritten(self, new: New) -> Padded:
        """With other index expressions."""
        limits = {i: (tuple(map(new, lows)), tuple(map(new, highs))) for i, (lows, highs) in self.limits.items()}
        return Padded(self.term.rewritten(new), self.factor, limits)


class Finder:
    """Finds contractions among statements."""

    def __init__(self, lin: Linear, *, ordered: bool):
        self.lin = lin
        self.ordered = ordered
        self._whole: dict[Statement, bool] = {}

    def whole(self, s: Statement) -> bool:
        """Whether a statement by itself is a contraction that is worth loops of its own."""
        if s not in self._whole:
            self._whole[s] = self.find(s, {}, s.free, ()) is not None
        return self._whole[s]

    def cut(self, s: Statement, field: str) -> bool:
        """Whether a statement is a sum of products of which a loop along a field takes one factor by parts only."""
        return self._factors_with(s, field) == {1}

    def apart(self, s: Statement, field: str) -> bool:
        """Whether it is one that such a loop leaves as it is: both factors are others for each value."""
        return self._factors_with(s, field) == {2}

    def _factors_with(self, s: Statement, field: str) -> set[int]:
        """In how many of the two factors a field stands, of all parts of a sum of products; nothing for other statements."""
        fold = s.term
        if not isinstance(fold, Fold) or not is_sum_of_products(fold):
            return set()
        return {sum(field in names_in(x) for x in factors(p.body) or ()) for p in fold.parts}

    def find(
        self, s: Statement, env: Mapping[str, IndexExpr], left: Sequence[str], context: Cons
    ) -> Contraction | None:
        """A statement whose fields `left` are still open as a contraction over them; None if it is none.

        `env` gives the others by variables of loops outside, of which `context` holds.
        """
        fold = s.term
        if isinstance(fold, Fold) and left and any(added_to(fold, p, left) for p in fold.parts):
            return self._added_to(s, fold, env, left, context)
        if not isinstance(fold, Fold) or fold.gather is not Gather.SUM or not fold.kind.is_float or not left:
            return None
        if fold.kind.format is not None:
            return None
        values = dict(env)
        for f, v in s.fixed.items():
            if f not in values:
                values[f] = self.lin.plain(v.substitute(values))
        cons = self._at(s.cons, values)
        index = tuple(self.lin.plain(values.get(f, IndexExpr.of(f)).substitute(values)) for f in s.fields)
        around = self._uncouple(cons, left)
        if around is None or len(around) > 1:
            return None
        if fold.count is not None and fold.count.substitute(values).names & set(left):
            return None
        found = self._over(fold, cons, values, index, left, around, context)
        if found is None or around or not any(t.around for t in found.terms):
            return found
        padded = None if self.ordered else self._padded(fold, cons, values, index, left, context)
        if len(left) > 2:
            # the loops of a term pass over the whole result: better over a part of it at a time
            found = self._over(fold, cons, values, index, left, [left[0]], context) or found
        return replace(found, padded=padded)

    def _added_to(
        self, s: Statement, fold: Fold, env: Mapping[str, IndexExpr], left: Sequence[str], context: Cons
    ) -> Contraction | None:
        """A gather whose elements data choose as one without products: its array is filled, and added to (`matches`)."""
        values = dict(env)
        for f, v in s.fixed.items():
            if f not in values:
                values[f] = self.lin.plain(v.substitute(values))
        cons = self._at(s.cons, values)
        count = fold.counted
        if self._uncouple(cons, left) != [] or (count is not None and count.substitute(values).names & set(left)):
            return None
        ranges = self._ranges(cons, left, set(left), context)
        index = tuple(self.lin.plain(values.get(f, IndexExpr.of(f)).substitute(values)) for f in s.fields)
        return None if ranges is None else Contraction(fold, (), ranges, index, ())

    def _over(
        self, fold: Fold, cons: Cons, values: Mapping[str, IndexExpr], index: tuple[IndexExpr, ...], left: Sequence[str],
        around: list[str], context: Cons,
    ) -> Contraction | None:  # fmt: skip
        """The contraction with loops over the fields `around`."""
        inner = [f for f in left if f not in around]
        ranges = self._ranges(cons, [*around, *inner], set(left), context, outer=around)
        if ranges is None or all(self._few_points(ranges, p) for p in fold.parts):
            return None
        terms: list[Term] = []
        for p in fold.parts:
            got = self._term(p, cons, values, index, inner, around, context)
            if got is None:
                return None
            terms.append(got)
        if not terms or not any(self._large(t, (*context, *cons)) for t in terms):
            return None
        n = len(around)
        return Contraction(fold, ranges[:n], ranges[n:], index, tuple(terms))

    def _few_points(self, ranges: Sequence[Range], p: Part) -> bool:
        """Whether bounds that are numbers tell that a product has few points: most small ones are left here."""
        n = 1
        for r in ranges:
            lows, highs = ([c for e in bounds if (c := e.constant) is not None] for bounds in (r.lows, r.highs))
            if not lows or not highs:
                return False
            n *= max(0, min(highs) - max(lows) + 1)
        for d in p.dims:
            lo, hi = self.lin.bounds(p.cons, IndexExpr.of(d))
            if lo is None or hi is None:
                return False
            n *= max(0, hi - lo + 1)
        return n <= FEW

    def _at(self, cons: Cons, values: Mapping[str, IndexExpr]) -> Cons:
        given = dict(values)
        return self.lin.tidy(Con(self.lin.plain(c.e.substitute(given)), c.eq) for c in cons)

    def _uncouple(self, cons: Cons, names: Sequence[str]) -> list[str] | None:
        """The names to fix (the earlier of two) so that no constraint couples two others; None if one is not linear."""
        taken: list[str] = []
        for c in cons:
            if not linear(c.e, names):
                return None
            both = [n for n in names if n in c.e.names and n not in taken]
            taken += both[:-1]
        return taken

    def _ranges(
        self, cons: Cons, dims: Sequence[str], names: Collection[str], context: Cons, *, outer: Sequence[str] = ()
    ) -> tuple[Range, ...] | None:
        """Bounds of dimensions; those in `outer` may occur in the bounds of the others."""
        out: list[Range] = []
        for d in dims:
            hidden = set(names) - set(outer) - {d}
            mine = tuple(c for c in cons if d in c.e.names and not c.e.names & hidden)
            if d in outer:  # an outer one is bounded by what does not ask for the inner ones
                mine = tuple(c for c in mine if not c.e.names & (set(outer[outer.index(d) + 1 :])))
            known = {n for c in mine for n in c.e.names} - {d}
            lows, highs = self.lin.limits(mine, d, known)
            rest = (*context, *(c for c in cons if not c.e.names & {*hidden, d}))
            lows, highs = self.lin.strongest(lows, 1, rest), self.lin.strongest(highs, -1, rest)
            if not lows or not highs:
                return None
            out.append(Range(d, tuple(sorted(lows)), tuple(sorted(highs))))
        return tuple(out)

    def _term(
        self, p: Part, cons: Cons, values: Mapping[str, IndexExpr], index: tuple[IndexExpr, ...], inner: Sequence[str],
        around: Sequence[str], context: Cons,
    ) -> Term | None:  # fmt: skip
        found = factors(p.body)
        if p.guards or not p.dims or found is None:
            return None
        a, b = found
        if not isinstance(a, Get) or not isinstance(b, Get) or a.kind is not b.kind:
            return None
        all_ = (*cons, *self._at(p.cons, values))
        near = self._near(all_, p.dims, inner)
        all_ = self.lin.minimal(self._at(all_, near), context)
        indices = tuple(
            tuple(self.lin.plain(e.substitute(dict(values)).substitute(near)) for e in g.index) for g in (a, b)
        )
        names = (*inner, *p.dims)
        if not all(linear(e, names) for x in indices for e in x):
            return None
        taken = self._coupled(all_, inner, p.dims, (*context, *cons))
        if taken is None or (self.ordered and tuple(taken) != p.dims[: len(taken)]):
            return None
        summed = [d for d in p.dims if d not in taken]
        every = [*around, *names]
        ranges = self._ranges(all_, [*taken, *inner, *summed], every, context, outer=[*around, *taken])
        if ranges is None:
            return None
        open_ = tuple(c for c in all_ if not c.e.names & {*inner, *p.dims})
        n, m = len(taken), len(inner)
        return Term(open_, ranges[:n], ranges[n : n + m], ranges[n + m :], (a, b), (indices[0], indices[1], index))

    def _padded(
        self, fold: Fold, cons: Cons, values: Mapping[str, IndexExpr], index: tuple[IndexExpr, ...], left: Sequence[str],
        context: Cons,
    ) -> Padded | None:  # fmt: skip
        """The padded form of a sum of one part; None if it has none."""
        p, *more = fold.parts
        found = factors(p.body)
        if more or found is None:
            return None
        a, b = found
        if not isinstance(a, Get) or not isinstance(b, Get):
            return None
        plain = (*cons, *self._at(p.cons, values))
        near = self._near(plain, p.dims, left)
        plain = self._at(plain, near)
        indices = tuple(
            tuple(self.lin.plain(e.substitute(dict(values)).substitute(near)) for e in g.index) for g in (a, b)
        )
        names = {*left, *p.dims}
        coupled = tuple(c for c in plain if len(c.e.names & names) > 1)
        free = tuple(c for c in plain if c not in coupled)
        for factor in range(2):
            limits = self._limits(coupled, free, indices[factor], names)
            if limits is not None:
                ranges = self._ranges(free, [*left, *p.dims], names, context)
                if ranges is None:
                    return None
                open_ = tuple(c for c in free if not c.e.names & names)
                n = len(left)
                turned = _turned(ranges[n:], indices[1 - factor])
                indices = tuple(tuple(self.lin.plain(e.substitute(turned)) for e in x) for x in indices)
                term = Term(open_, (), ranges[:n], ranges[n:], (a, b), (indices[0], indices[1], index))
                return Padded(term, factor, limits)
        return None

    def _limits(
        self, coupled: Cons, free: Cons, index: tuple[IndexExpr, ...], names: Collection[str]
    ) -> dict[int, tuple[tuple[IndexExpr, ...], tuple[IndexExpr, ...]]] | None:
        """Constraints as bounds of an array's indices, by their numbers; None if one is none, and not implied by these."""
        bounds: dict[int, tuple[list[IndexExpr], list[IndexExpr]]] = {}
        rest: list[Con] = []
        for c in coupled:
            at, low = next(
                ((i, low) for i, e in enumerate(index) for low in (True, False)
                 if not c.eq and not self.lin.plain(c.e - e if low else c.e + e).names & set(names)),
                (-1, True),
            )  # fmt: skip
            if at < 0:
                rest.append(c)
                continue
            lows, highs = bounds.setdefault(at, ([], []))
            if low:
                lows.append(self.lin.plain(index[at] - c.e))
            else:
                highs.append(self.lin.plain(index[at] + c.e))
        used = (*free, *(c for c in coupled if c not in rest))
        if not bounds or not all(self.lin.implies(used, c) for c in rest):
            return None
        if not all(lows and highs for lows, highs in bounds.values()):
            return None
        return {i: (tuple(lows), tuple(highs)) for i, (lows, highs) in bounds.items()}

    def _near(self, cons: Cons, dims: Sequence[str], fields: Sequence[str]) -> dict[str, IndexExpr]:
        """Iterators as a field's neighbour plus a small number: ``u -> lo + u`` where ``lo <= u <= lo + few``."""
        out: dict[str, IndexExpr] = {}
        for u in dims:
            mine = [c for c in cons if u in c.e.names and not c.e.names & (set(dims) - {u})]
            if not any(c.e.names & set(fields) for c in mine):
                continue
            lows, highs = self.lin.limits(tuple(mine), u, {n for c in mine for n in c.e.names})
            for lo in lows:
                gaps = [g for hi in highs if (g := (hi - lo).constant) is not None]
                if gaps and min(gaps) < NEAR and lo.names & set(fields):
                    out[u] = lo + IndexExpr.of(u)
                    break
        return out

    def _coupled(self, cons: Cons, fields: Sequence[str], dims: Sequence[str], context: Cons) -> list[str] | None:
        """The iterators to fix, each of few values, so that no constraint couples two indices; None if that fails."""
        taken: list[str] = []
        for c in cons:
            if not linear(c.e, (*fields, *dims)):
                return None
            both = [n for n in (*fields, *dims) if n in c.e.names and n not in taken]
            while len(both) > 1:
                few = [d for d in both if d in dims and self._extent((*context, *cons), d, 0) in range(1, NEAR + 1)]
                if not few:
                    return None
                taken.append(few[0])
                both.remove(few[0])
        return [d for d in dims if d in taken]

    def _extent(self, cons: Cons, name: str, unknown: int) -> int:
        lo, hi = self.lin.bounds(cons, IndexExpr.of(name))
        return unknown if lo is None or hi is None else max(0, hi - lo + 1)

    def worth(
        self, s: Statement, env: Mapping[str, IndexExpr], left: Sequence[str], field: str, context: Cons
    ) -> bool:
        """Whether a statement is a contraction (see `find`) that is worth keeping whole, as it has many products for one
        value of a field; an extent that is not known counts as many."""
        found, known = self.find(s, env, left, context), (*context, *s.cons)
        return found is not None and any(
            self._points(t, [r for r in (*t.fields, *t.summed) if r.var != field], known) >= MANY for t in found.terms
        )

    def _points(self, t: Term, ranges: Sequence[Range], context: Cons) -> int:
        """How many values some ranges may have together; more than a few for each that is not known."""
        size = 1
        for r in ranges:
            x = IndexExpr.of(r.var)
            inside = (*(Con(x - b) for b in r.lows), *(Con(b - x) for b in r.highs))
            size *= self._extent((*context, *inside, *t.cons), r.var, FEW + 1)
        return size

    def _large(self, t: Term, context: Cons) -> bool:
        """Whether a product may have more than a few points, of which some are used more than once."""
        used = [{n for e in index for n in e.names} for index in t.indices[:2]]
        box = [r.var for r in (*t.fields, *t.summed)]
        if not t.summed or all(set(box) <= u for u in used) or not any(r.var in u for r in t.fields for u in used):
            return False
        return self._points(t, (*t.around, *t.fields, *t.summed), context) > FEW


def _turned(ranges: Sequence[Range], index: Sequence[IndexExpr]) -> dict[str, IndexExpr]:
    """Iterators that run backwards in an array's indices, as such that run forwards."""
    out: dict[str, IndexExpr] = {}
    for r in ranges:
        falls = any(m == (Var(r.var),) and k < 0 for e in index for m, k in e.terms)
        if falls and len(r.lows) == len(r.highs) == 1:
            out[r.var] = r.lows[0] + r.highs[0] - IndexExpr.of(r.var)
    return out


def down_columns(t: Term) -> bool:
    """Whether a sum runs down the columns of an array whose rows lie along a field of the result: loops of their own take
    row after row, where a loop round the sum would stride."""
    fields, summed = ({r.var for r in x} for x in (t.fields, t.summed))
    rows = (x for x in t.indices[:2] if x and x[-1].names & fields and not x[-1].names & summed)
    return any(e.names & summed for x in rows for e in x[:-1])


def of_matrices(t: Term) -> bool:
    """Whether each factor is used more than once: by a field that the other one has, and it has not."""
    mine, theirs = ({n for e in index for n in e.names} for index in t.indices[:2])
    fields = {r.var for r in t.fields}
    return bool(fields & mine - theirs) and bool(fields & theirs - mine)


def linear(e: IndexExpr, names: Collection[str]) -> bool:
    """Whether the names occur as plain summands only."""
    inside = set(names)
    for m, _ in e.terms:
        if len(m) == 1 and isinstance(m[0], Var):
            continue
        if any(IndexExpr.of(a).names & inside for a in m):
            return False
    return True
