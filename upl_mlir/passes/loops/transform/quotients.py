"""Iterators and fields of sums of products that are read by quotient and remainder become two: indices are linear then.

A reshape reads ``A<r floordiv 16, r mod 16>``.  With ``r = 16*h + d`` the sum is one over h and d, in the same order, and a
contraction.  An array whose field is read so gets one with two fields beside it, of which it is a copy:

    out<i,c> = + over r of A<r floordiv 16, i, r mod 16> * W<r,c>
    ->
    out<i,c> = + over h, d of A<h,i,d> * W<16*h+d,c>

Source: delinearisation (Maslov 1992), of loops instead of accesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from upl_mlir.passes.build import unused
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Fold, Get, Part, Term, inner_first, made_of, names_in, rewritten
from upl_mlir.passes.loops.transform.products import factors, is_sum_of_products
from upl_mlir.poly.expr import Atom, Div, IndexExpr, Var, divide
from upl_mlir.poly.linear import Con, Cons, Linear
from upl_mlir.poly.operators import DivKind

DIVIDED = ":divided"
"""What the names of such arrays have behind that of the array."""


def split_quotients(system: System) -> bool:
    """Change the system; whether there was such an iterator or field."""
    some = False
    for eq in list(system.equations.values()):
        for n, (cons, term) in enumerate(eq.pieces):
            memo: dict[Term, Term] = {}
            taken = _names(system, eq)
            for t in inner_first(term, made_of):
                if isinstance(t, Fold) and is_sum_of_products(t):
                    parts = tuple(_divided(system.lin, p, taken) for p in t.parts)
                    if any(p is not q for p, q in zip(parts, t.parts, strict=True)):
                        memo[t] = replace(t, parts=parts)
            if memo:
                eq.pieces[n] = cons, rewritten(term, memo, lambda g: g)
                some = True
        some |= _beside(system, eq)
    return some


def _names(system: System, eq: Equation) -> set[str]:
    """The names that mean something in an equation."""
    ctx = system.lin.ctx
    folds = [t for _, term in eq.pieces for t in inner_first(term, made_of) if isinstance(t, Fold)]
    return {*eq.fields, *ctx.params, *ctx.constants, *(d for t in folds for p in t.parts for d in p.dims)}


def _divided(lin: Linear, p: Part, taken: set[str]) -> Part:
    """A part with its iterators divided where they are read so; the names that are `taken` are not theirs."""
    for d in p.dims:
        found = _extents(lin, d, p.body, p.cons) if not p.guards else None
        if found is not None:
            names, sizes = _two(d, taken), found
            at = p.dims.index(d)
            others = tuple(c for c in p.cons if d not in c.e.names)
            inside = _bounds(names, sizes)
            p = Part((*p.dims[:at], *names, *p.dims[at + 1 :]), (*others, *inside), _read(p.body, d, names, sizes))
    return p


def _beside(system: System, eq: Equation) -> bool:
    """An array beside one of which each element is a sum of products, with a field in two; whether it was made."""
    if len(eq.pieces) != 1 or len(eq.domain) != 1:
        return False
    ((cons, term),) = eq.pieces
    if not isinstance(term, Fold) or not is_sum_of_products(term) or term.count is not None:
        return False
    if any(p.guards for p in term.parts):  # they say more of the field
        return False
    for f in eq.fields:
        bodies = [p.body for p in term.parts]
        found = [_extents(system.lin, f, body, cons) for body in bodies]
        if found[0] is None or any(x != found[0] for x in found) or any(f in c.e.names for p in term.parts for c in p.cons):
            continue
        names, sizes = _two(f, _names(system, eq)), found[0]
        at = eq.fields.index(f)
        name = f"{eq.name}{DIVIDED}"
        if name in system.equations:
            return False
        domain = (*(c for c in cons if f not in c.e.names), *_bounds(names, sizes))
        parts = tuple(replace(p, body=_read(p.body, f, names, sizes)) for p in term.parts)
        fields = (*eq.fields[:at], *names, *eq.fields[at + 1 :])
        made = Equation(name, eq.kind, fields, (domain,), [(domain, replace(term, parts=parts))])
        x, q = IndexExpr.of(f), IndexExpr.of(sizes[1])
        both = (divide(DivKind.FLOORDIV, x, q), divide(DivKind.MOD, x, q))
        index = [IndexExpr.of(g) for g in eq.fields]
        eq.pieces = [(cons, Get(eq.kind, name, (*index[:at], *both, *index[at + 1 :])))]
        system.equations[name] = made
        return True
    return False


def _two(name: str, taken: set[str]) -> tuple[str, str]:
    """Names for the quotient and the remainder of a name."""
    return unused(f"{name}_q", taken), unused(f"{name}_r", taken)


def _extents(lin: Linear, d: str, body: Term, cons: Cons) -> tuple[int, int] | None:
    """How many quotients and remainders a name has, if products read it by these and it runs from 0 to a known end."""
    found = factors(body)
    if found is None or not all(isinstance(x, Get) for x in found) or d not in names_in(body):
        return None
    mine = tuple(c for c in cons if d in c.e.names)
    if any(c.e.names != frozenset((d,)) or c.eq for c in mine) or lin.exact_limits(mine, d, ()) is None:
        return None  # more is asked of it than to lie between two numbers
    lo, hi = lin.bounds(mine, IndexExpr.of(d))
    if lo != 0 or hi is None:
        return None
    sizes = {
        a.den.constant for x in found if isinstance(x, Get) for e in x.index for a in e.atoms()
        if isinstance(a, Div) and a.num == IndexExpr.of(d)
    }  # fmt: skip
    (size,) = sizes if len(sizes) == 1 else (None,)
    if not size or size < 2 or (hi + 1) % size or hi + 1 == size:
        return None
    return (hi + 1) // size, size


def _bounds(names: Sequence[str], sizes: Sequence[int]) -> Cons:
    pairs = [(IndexExpr.of(x), n) for x, n in zip(names, sizes, strict=True)]
    return tuple(c for x, n in pairs for c in (Con(x), Con(-x + (n - 1))))


def _read(body: Term, d: str, names: Sequence[str], sizes: Sequence[int]) -> Term:
    """A product that reads a name by its two parts."""
    high, low = (IndexExpr.of(x) for x in names)
    whole = high * sizes[1] + low

    def leaf(a: Atom) -> IndexExpr | None:
        if isinstance(a, Var):
            return whole if a.name == d else None
        if isinstance(a, Div) and a.num == whole:
            return high if a.kind is DivKind.FLOORDIV else low if a.kind is DivKind.MOD else None
        return None

    return rewritten(body, {}, lambda g: replace(g, index=tuple(e.rewrite(leaf) for e in g.index)))
