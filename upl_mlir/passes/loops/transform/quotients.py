"""Iterators and fields of sums of products that are read by quotient and remainder become two: indices are linear then.

A reshape reads ``A<r floordiv 16, r mod 16>``.  With ``r = 16*h + d`` the sum is one over h and d, in the same order, and a
contraction.  An array whose field is read so gets one with two fields beside it, of which it is a copy:

    out<i,c> = + over r of A<r floordiv 16, i, r mod 16> * W<r,c>
    ->
    out<i,c> = + over h, d of A<h,i,d> * W<16*h+d,c>

The other way round, an iterator that both factors only read beside a field gets a copy of one of them, where it has an index
of its own, as contractions want:

    S<h,i,j> = + over d of Q<i,16*h+d> * K<j,16*h+d>
    ->
    S:split<h,i,d> = Q<i,16*h+d>;  S<h,i,j> = + over d of S:split<h,i,d> * K<j,16*h+d>

Source: delinearisation (Maslov 1992), of loops instead of accesses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import prod

from upl_mlir.passes.build import unused
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Fold, Get, Part, Term, inner_first, made_of, names_in, rewritten
from upl_mlir.passes.loops.transform.products import factors, is_sum_of_products
from upl_mlir.poly.expr import Atom, Div, IndexExpr, Var, divide
from upl_mlir.poly.linear import Con, Cons, Linear
from upl_mlir.poly.operators import DivKind

DIVIDED = ":divided"
"""What the names of such arrays have behind that of the array."""
SPLIT = ":split"
"""The same of copies."""
WORTH = 4
"""A copy is read so many times at least, in the mean. Chosen, not measured."""


def split_quotients(system: System) -> bool:
    """Change the system; whether there was such an iterator or field."""
    some = False
    for eq in list(system.equations.values()):
        for n, (cons, term) in enumerate(eq.pieces):
            memo: dict[Term, Term] = {}
            taken = _names(system, eq)
            for t in inner_first(term, made_of):
                if isinstance(t, Get) and (plain := _plain(system.lin, t, cons)) is not t:
                    memo[t] = plain
                elif isinstance(t, Fold) and is_sum_of_products(t):
                    inner = (_known(system.lin, p, cons) for p in t.parts)
                    parts = tuple(_divided(system.lin, p, taken) for p in inner)
                    if any(p is not q for p, q in zip(parts, t.parts, strict=True)):
                        memo[t] = replace(t, parts=parts)
            if memo:
                eq.pieces[n] = cons, rewritten(term, memo, lambda g: g)
                some = True
        some |= _beside(system, eq)
    for eq in list(system.equations.values()):
        some |= _with_own_axes(system, eq)
    return some


def _names(system: System, eq: Equation) -> set[str]:
    """The names that mean something in an equation."""
    ctx = system.lin.ctx
    folds = [t for _, term in eq.pieces for t in inner_first(term, made_of) if isinstance(t, Fold)]
    return {*eq.fields, *ctx.params, *ctx.constants, *(d for t in folds for p in t.parts for d in p.dims)}


def _known(lin: Linear, p: Part, cons: Cons) -> Part:
    """A part of a sum without the quotients that are known."""
    where = (*cons, *p.cons)
    memo: dict[Term, Term] = {g: _plain(lin, g, where) for g in inner_first(p.body, made_of) if isinstance(g, Get)}
    return p if all(g is new for g, new in memo.items()) else replace(p, body=rewritten(p.body, memo, lambda g: g))


def _plain(lin: Linear, g: Get, cons: Cons) -> Get:
    """An element whose index has no quotients that are known: ``(16*h + d) floordiv 16`` is h where 0 <= d < 16."""

    def leaf(a: Atom) -> IndexExpr | None:
        size = a.den.constant if isinstance(a, Div) else None
        if not isinstance(a, Div) or not size or size < 2:
            return None
        whole = IndexExpr(tuple((m, k // size) for m, k in a.num.terms if m and k % size == 0))
        rest = a.num - whole * size
        lo, hi = lin.bounds(cons, rest)
        if not whole.terms or lo is None or hi is None or lo < 0 or hi >= size:
            return None
        return {DivKind.FLOORDIV: whole, DivKind.MOD: rest}.get(a.kind)

    if not any(isinstance(a, Div) for e in g.index for a in e.atoms()):
        return g
    index = tuple(e.rewrite(leaf) for e in g.index)
    return g if index == g.index else replace(g, index=index)


def _divided(lin: Linear, p: Part, taken: set[str]) -> Part:
    """A part with its iterators divided where they are read so; the names that are `taken` are not theirs."""
    for d in p.dims:
        found = _run(lin, d, p.body, p.cons) if not p.guards else None
        if found is not None:
            names = _two(d, taken)
            at = p.dims.index(d)
            others = tuple(c for c in p.cons if d not in c.e.names)
            inside = found.bounds(names)
            p = Part((*p.dims[:at], *names, *p.dims[at + 1 :]), (*others, *inside), found.read(p.body, d, names))
    return p


def _beside(system: System, eq: Equation) -> bool:
    """Arrays beside one of which the elements of a piece are sums of products, with fields in two; whether one was made."""
    some = False
    for n, (cons, term) in enumerate(eq.pieces):
        if not isinstance(term, Fold) or not is_sum_of_products(term) or term.count is not None:
            continue
        if any(p.guards for p in term.parts):  # they say more of the field
            continue
        fields, parts, index = eq.fields, term.parts, tuple(map(IndexExpr.of, eq.fields))
        domain: Cons = cons
        for f in eq.fields:
            found = [_run(system.lin, f, p.body, cons) for p in parts]
            run = found[0]
            if run is None or any(x != run for x in found) or any(f in c.e.names for p in parts for c in p.cons):
                continue
            names = _two(f, {*_names(system, eq), *fields})
            at = fields.index(f)
            domain = (*(c for c in domain if f not in c.e.names), *run.bounds(names))
            parts = tuple(replace(p, body=run.read(p.body, f, names)) for p in parts)
            fields = (*fields[:at], *names, *fields[at + 1 :])
            x, q = index[at] - run.first, IndexExpr.of(run.remainders)
            index = (*index[:at], divide(DivKind.FLOORDIV, x, q), divide(DivKind.MOD, x, q), *index[at + 1 :])
        name = f"{eq.name}{DIVIDED}{n or ''}"
        if fields != eq.fields and name not in system.equations:
            made = Equation(name, eq.kind, fields, (domain,), [(domain, replace(term, parts=parts))])
            eq.pieces[n] = (cons, Get(eq.kind, name, index))
            system.equations[name] = made
            some = True
    return some


def _with_own_axes(system: System, eq: Equation) -> bool:
    """Copies of factors whose iterators have no index of their own; whether one was made."""
    some = False
    for n, (cons, term) in enumerate(eq.pieces):
        if not isinstance(term, Fold) or not is_sum_of_products(term):
            continue
        parts = list(term.parts)
        for i, p in enumerate(parts):
            found = None if p.guards else _copied(system, eq, (*cons, *p.cons), p)
            if found is not None:
                made, old, new = found
                system.equations[made.name] = made
                parts[i] = replace(p, body=rewritten(p.body, {old: new}, lambda g: g))
                eq.pieces[n] = cons, replace(term, parts=tuple(parts))
                some = True
    return some


def _copied(system: System, eq: Equation, cons: Cons, p: Part) -> tuple[Equation, Get, Get] | None:
    """The copy of a factor in which each name has an index of its own; the factor, and how it is read from the copy."""
    lin = system.lin
    gets = [x for x in factors(p.body) or () if isinstance(x, Get)]
    names = (*eq.fields, *p.dims)
    sizes: dict[str, int] = {}
    for d in names:
        lo, hi = lin.bounds(cons, IndexExpr.of(d))
        if lo is None or hi is None or hi < lo:
            return None
        sizes[d] = hi + 1 - lo
    at = [e for g in gets for e in g.index]
    lost = [d for d in p.dims if all((e - IndexExpr.of(d)).constant is None for e in at)]
    if len(gets) != 2 or not lost:
        return None
    for g in sorted(gets, key=lambda g: prod(sizes[d] for d in names if d in names_in(g))):
        mine = [d for d in names if d in names_in(g)]
        box = tuple(c for c in cons if c.e.names & set(mine))
        if prod(sizes[d] for d in mine) * WORTH > prod(sizes.values()) or not set(lost) <= set(mine):
            continue
        if any(len(c.e.names & set(names)) > 1 for c in box) or not all(_apart(e, mine, sizes) for e in g.index):
            continue
        name = next(x for n in count() if (x := f"{eq.name}{SPLIT}{n or ''}") not in system.equations)
        return Equation(name, g.kind, tuple(mine), (box,), [(box, g)]), g, Get(g.kind, name, tuple(map(IndexExpr.of, mine)))
    return None


def _apart(e: IndexExpr, names: Sequence[str], sizes: Mapping[str, int]) -> bool:
    """Whether different values of the names in an index give different places: no element is copied twice."""
    steps: list[tuple[int, int]] = []
    for m, k in e.terms:
        if len(m) > 1 or not all(isinstance(a, Var) for a in m):
            return False
        steps += [(abs(k), sizes[a.name]) for a in m if isinstance(a, Var) and a.name in names]
    reach = 1
    for k, size in sorted(steps):
        if k < reach:
            return False
        reach += k * (size - 1)
    return True


def _two(name: str, taken: set[str]) -> tuple[str, str]:
    """Names for the quotient and the remainder of a name."""
    return unused(f"{name}_q", taken), unused(f"{name}_r", taken)


@dataclass(frozen=True)
class _Run:
    """Values of a name from `first` on: so many quotients times so many remainders."""

    first: int
    quotients: int
    remainders: int

    def bounds(self, names: tuple[str, str]) -> Cons:
        """That the names of a quotient and a remainder are such."""
        pairs = zip(map(IndexExpr.of, names), (self.quotients, self.remainders), strict=True)
        return tuple(c for x, n in pairs for c in (Con(x), Con(-x + (n - 1))))

    def read(self, body: Term, d: str, names: tuple[str, str]) -> Term:
        """A product that reads a name by its two parts."""
        high, low = map(IndexExpr.of, names)
        whole = high * self.remainders + low + self.first

        def leaf(a: Atom) -> IndexExpr | None:
            if isinstance(a, Var):
                return whole if a.name == d else None
            if isinstance(a, Div) and a.den.constant == self.remainders:
                more = (a.num - high * self.remainders - low).constant
                if more is not None and more % self.remainders == 0:
                    return {DivKind.FLOORDIV: high + more // self.remainders, DivKind.MOD: low}.get(a.kind)
            return None

        return rewritten(body, {}, lambda g: replace(g, index=tuple(e.rewrite(leaf) for e in g.index)))


def _run(lin: Linear, d: str, body: Term, cons: Cons) -> _Run | None:
    """The values of a name, if products read it by quotient and remainder and these make a box."""
    found = factors(body)
    if found is None or not all(isinstance(x, Get) for x in found) or d not in names_in(body):
        return None
    x = IndexExpr.of(d)
    apart = {
        (a.den.constant, (a.num - x).constant) for g in found if isinstance(g, Get) for e in g.index for a in e.atoms()
        if isinstance(a, Div) and d in a.num.names
    }  # fmt: skip
    sizes = {size for size, _ in apart}
    (size,) = sizes if len(sizes) == 1 else (None,)
    mine = tuple(c for c in cons if d in c.e.names)
    if not size or size < 2 or any(c.e.names != frozenset((d,)) for c in mine):
        return None
    lo, hi = lin.bounds(mine, x)
    if lo is None or hi is None or not all(lin.implies((Con(x - lo), Con(-x + hi)), c) for c in mine):
        return None  # more is asked of it than to lie between two numbers
    if any(more is None or (lo + more) % size for _, more in apart) or (hi + 1 - lo) % size or hi + 1 - lo == size:
        return None
    return _Run(lo, (hi + 1 - lo) // size, size)
