# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Sums of products as equations of their own, so that they can become contractions.

A sum inside another term, and a factor that is no array but is the same for many summands, get an array:

    D<d,a> = select(Z<d,a> > 0, + over b of E<d,b> * W<a,b>, 0)
    ->
    D.part1<d,a> = + over b of E<d,b> * W<a,b>
    D<d,a> = select(Z<d,a> > 0, D.part1<d,a>, 0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from xdsl.dialects import arith

from upl_mlir.dialects.upl import Gather
from upl_mlir.passes.loops import terms
from upl_mlir.passes.loops.graph import FUNCTION, op_cost
from upl_mlir.passes.loops.iterators import without
from upl_mlir.passes.loops.matches import added_to
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Term, arguments, inner_first, names_in, rewritten
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Cons

SHORT = 16
"""Folds of at most so many summands are short. Chosen, not measured: two vectors."""


def factors(body: Term) -> tuple[Term, Term] | None:
    """The two factors of a product; None if it is none."""
    return (body.args[0], body.args[1]) if isinstance(body, terms.Apply) and isinstance(body.op, arith.MulfOp) else None


class Splitter:
    """Gives sums of products and their factors equations of their own."""

    def __init__(self, system: System, *, ordered: bool = False):
        self.system, self.ordered = system, ordered
        self.new: dict[str, Equation] = {}
        self._made: dict[object, Term] = {}

    def split(self) -> None:
        """Change the system."""
        for eq in list(self.system.equations.values()):
            self._memo: dict[tuple[int, Cons], Term] = {}
            self._eq = eq
            self._count = 0
            eq.pieces = [(cons, self._top(term, eq.fields, cons)) for cons, term in eq.pieces]
        self.system.equations.update(self.new)

    def _top(self, t: Term, names: tuple[str, ...], cons: Cons) -> Term:
        if isinstance(t, terms.Fold) and is_sum_of_products(t):
            return replace(t, parts=tuple(self._factored(t, p, names, cons) for p in t.parts))
        return self._inside(self._apart(t, names, cons), names, cons)

    def _apart(self, t: Term, names: tuple[str, ...], cons: Cons) -> Term:
        """A sum of products of matrices and of other summands, with an element of a new array for the products; where the
        order of summands is kept, for those before the others."""
        if not isinstance(t, terms.Fold):
            return t
        mine = [is_sum_of_products(replace(t, parts=(p,))) and _of_matrices(p) for p in t.parts]
        if self.ordered and False in mine:
            mine = [n < mine.index(False) for n in range(len(mine))]
        if all(mine) or not any(mine):
            return t
        products = tuple(p for p, one in zip(t.parts, mine, strict=True) if one)
        others = tuple(p for p, one in zip(t.parts, mine, strict=True) if not one)
        own = self._own(terms.Fold(t.kind, t.gather, products, None), names, cons)
        return t if own is None else replace(t, parts=(terms.Part((), (), own), *others))

    def _inside(self, t: Term, names: tuple[str, ...], cons: Cons) -> Term:
        """A term with its sums of products replaced by elements of new arrays."""
        memo = (id(t), cons)
        if memo not in self._memo:
            for part in inner_first(t, arguments):
                if (id(part), cons) not in self._memo:
                    self._memo[id(part), cons] = self._replaced(part, names, cons)
        return self._memo[memo]

    def _replaced(self, t: Term, names: tuple[str, ...], cons: Cons) -> Term:
        match t:
            case terms.Number() | terms.IndexValue() | terms.Get():
                return t
            case terms.Entry(kind, table, at):
                new = self._inside(at, names, cons)
                return t if new is at else terms.Entry(kind, table, new)
            case terms.Convert(kind, arg):
                new = self._inside(arg, names, cons)
                return t if new is arg else terms.Convert(kind, new)
            case terms.Apply(kind, op, args):
                new = tuple(self._inside(a, names, cons) for a in args)
                return t if all(x is y for x, y in zip(new, args, strict=True)) else terms.Apply(kind, op, new)
            case terms.Choice(kind, cases):
                new = tuple((when, self._inside(v, names, (*cons, *when))) for when, v in cases)
                return t if all(x[1] is y[1] for x, y in zip(new, cases, strict=True)) else terms.Choice(kind, new)
            case terms.Fold():
                if is_sum_of_products(t):
                    got = self._own(t, names, cons)
                    if got is not None:
                        return got
                apart = self._apart(t, names, cons)
                assert isinstance(apart, terms.Fold)
                parts = tuple(
                    p if p.guards else self._stored(
                        replace(p, body=self._inside(p.body, _around(t, p, names), (*cons, *p.cons))), names, cons
                    )
                    for p in apart.parts
                )  # fmt: skip
                same = apart is t and all(x.body is y.body for x, y in zip(parts, t.parts, strict=True))
                return t if same else replace(apart, parts=parts)

    def _stored(self, p: terms.Part, names: tuple[str, ...], cons: Cons) -> terms.Part:
        """A part of a fold of few summands, with elements of a new array for costly functions: their loop is one of vectors,
        along the fields of the fold's own array, and the fold is too short for any."""
        where = (*cons, *p.cons)
        ends = [self.system.lin.bounds(where, IndexExpr.of(d)) for d in p.dims]
        count = prod(h - low + 1 if low is not None and h is not None else SHORT + 1 for low, h in ends)
        if not p.dims or count > SHORT:
            return p
        memo: dict[Term, Term] = {}
        for t in inner_first(p.body, arguments):
            if isinstance(t, terms.Apply) and t.kind.is_float and op_cost(t.op) >= FUNCTION:
                used = names_in(t)
                if names and names[-1] in used and set(p.dims) <= used:
                    own = self._own(t, (*p.dims, *names), where)
                    memo |= {} if own is None else {t: own}
                    break
        return replace(p, body=rewritten(p.body, memo, lambda g: g)) if memo else p

    def _factored(self, t: terms.Fold, p: terms.Part, names: tuple[str, ...], cons: Cons) -> terms.Part:
        """A part of a sum whose factors are arrays, if they could be made so; else with arrays for the sums inside."""
        found = factors(p.body)
        assert found is not None and isinstance(p.body, terms.Apply)
        every = (*names, *p.dims)
        where = (*cons, *p.cons)
        reached = [set(names_in(x)) & set(every) for x in found]
        if any(r == set(every) for r in reached):
            return replace(p, body=self._inside(p.body, _around(t, p, names), where))
        new = tuple(
            x if isinstance(x, terms.Get) else self._own(x, every, where) for x in found
        )
        if any(x is None for x in new):
            return p
        return replace(p, body=terms.Apply(p.body.kind, p.body.op, tuple(x for x in new if x is not None)))

    def _own(self, t: Term, names: Sequence[str], cons: Cons) -> terms.Get | None:
        """The element of a new array that holds a term; None if the points at which it is needed are not known exactly."""
        used = names_in(t) & set(names)
        fields = tuple(n for n in names if n in used)
        gone = set(names) - used
        if any(c.e.names & gone and c.e.names & used for c in cons):
            return None
        domain = without(self.system.lin, tuple(cons), gone)
        self._count += 1
        name = f"{self._eq.name}.part{self._count}"
        new = Equation(name, t.kind, fields, (domain,))
        self.new[name] = new
        new.pieces = [(domain, self._top(t, fields, domain))]
        return terms.Get(t.kind, name, tuple(IndexExpr.of(f) for f in fields))


def _around(t: terms.Fold, p: terms.Part, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that are given inside of a part, in the order of the loops round it: of a gather whose element data choose,
    those of the summands are outside."""
    return (*p.dims, *names) if added_to(t, p, names) else (*names, *p.dims)


def _of_matrices(p: terms.Part) -> bool:
    """Whether each factor of a product depends on something that the other one does not."""
    first, second = map(names_in, factors(p.body) or ())
    return bool(first - second and second - first)


def is_sum_of_products(t: terms.Fold) -> bool:
    """Whether a fold adds products of two factors, neither of which depends on everything that the other one does."""
    if t.gather is not Gather.SUM or not t.kind.is_float or not t.parts:
        return False
    for p in t.parts:
        found = factors(p.body)
        if p.guards or not p.dims or found is None or any(x.kind is not t.kind for x in found):
            return False
        first, second = map(names_in, found)
        if not (first - second or second - first) or not (first | second) & set(p.dims):
            return False
        if any(isinstance(x, terms.Number) for x in found):
            return False
    return t.kind.format is None  # else each product is rounded, which no contraction does
