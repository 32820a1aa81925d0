# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
"""Fields on which no element of an array depends are taken from it: what is the same in each step is computed once.

    came<t,v> = +[Dst<e> == v ? 1 : 0 for e in 0..m-1]     where 0 <= t < T
    ->
    came<v>   = +[Dst<e> == v ? 1 : 0 for e in 0..m-1]

Source: loop-invariant code motion, of whole arrays.
"""

from __future__ import annotations

from dataclasses import replace

from upl_mlir.dialects.upl import Gather
from upl_mlir.passes.loops.iterators import without
from upl_mlir.passes.loops.matches import settled, taken
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Fold, Get, Part, Term, inner_first, made_of, names_in, rewritten
from upl_mlir.poly.linear import Con, Cons, Linear


def chosen_by_data(system: System) -> bool:
    """Whether data choose an element of some array: one that is read, or one that is added to."""
    for eq in system.equations.values():
        for _, term in eq.pieces:
            for t in inner_first(term, made_of):
                if isinstance(t, Fold) and any(taken(t, p, (*p.dims, *eq.fields))[1] for p in t.parts):
                    return True
    return False


def take_invariant_fields(system: System) -> bool:
    """Change the system; whether there was such a field."""
    some = False
    while True:
        gone = {n: f for n, eq in system.equations.items() if not eq.output and (f := _invariant(system.lin, eq))}
        if not gone:
            return some
        some = True
        kept = {n: [i for i, f in enumerate(system.equations[n].fields) if f not in gone[n]] for n in gone}
        memo: dict[Term, Term] = {}

        def read(g: Get, kept: dict[str, list[int]] = kept) -> Get:
            return replace(g, index=tuple(g.index[i] for i in kept[g.array])) if g.array in kept else g

        for name, eq in system.equations.items():
            eq.pieces = [(cons, rewritten(term, memo, read)) for cons, term in eq.pieces]
            if name in gone:
                eq.fields = tuple(f for f in eq.fields if f not in gone[name])
                eq.domain = tuple(without(system.lin, cons, gone[name]) for cons in eq.domain)
                eq.pieces = [(without(system.lin, cons, gone[name]), term) for cons, term in eq.pieces]


def drop_idle_iterators(system: System) -> bool:
    """Leave out iterators of folds in which a summand counts once however often it comes, where it is the same for all their
    values and there is one; whether there was such an iterator."""
    some = False
    for eq in system.equations.values():
        for n, (cons, term) in enumerate(eq.pieces):
            memo: dict[Term, Term] = {}
            for t in inner_first(term, made_of):
                if isinstance(t, Fold) and t.gather in _IDEMPOTENT:
                    parts = tuple(_busy(system.lin, p, cons) for p in t.parts)
                    if any(p is not q for p, q in zip(parts, t.parts, strict=True)):
                        memo[t] = replace(t, parts=tuple(replace(p, body=memo.get(p.body, p.body)) for p in parts))
                        some = True
            if memo:
                eq.pieces[n] = cons, rewritten(term, memo, lambda g: g)
    return some


def settle_comparisons(system: System) -> bool:
    """Take comparisons of indices in the summands of folds for what they say of iterators; whether there were any."""
    some = False
    for eq in system.equations.values():
        for n, (cons, term) in enumerate(eq.pieces):
            memo: dict[Term, Term] = {}
            for t in inner_first(term, made_of):
                if isinstance(t, Fold):
                    mine = [replace(p, body=rewritten(p.body, memo, lambda g: g)) if memo else p for p in t.parts]
                    parts = tuple(settled(t, p) for p in mine)
                    if any(p is not q for p, q in zip(parts, mine, strict=True)):
                        known = (replace(p, cons=tuple(c for c in p.cons if not system.lin.implies(cons, c))) for p in parts)
                        memo[t] = replace(t, parts=tuple(known))
            if memo:
                some = True
                eq.pieces[n] = cons, rewritten(term, memo, lambda g: g)
    return some


_IDEMPOTENT = (Gather.OR, Gather.AND, Gather.MIN, Gather.MAX)


def _busy(lin: Linear, p: Part, at: Cons) -> Part:
    """A part without the iterators that nothing in its body asks for."""
    used = names_in(p.body) | {n for g in p.guards for c in g for n in c.e.names}
    for d in p.dims:
        mine = tuple(c for c in p.cons if d in c.e.names)
        others = {n for c in mine for n in c.e.names} & set(p.dims) - {d}
        if d in used or others:
            continue
        ends = lin.exact_limits(mine, d, {n for c in mine for n in c.e.names} - {d})
        if ends is not None and all(lin.implies(at, Con(h - low)) for low in ends[0] for h in ends[1]):
            rest = tuple(c for c in p.cons if d not in c.e.names)
            p = Part(tuple(x for x in p.dims if x != d), rest, p.body, p.guards)
    return p


def _invariant(lin: Linear, eq: Equation) -> frozenset[str]:
    """The fields of an array that only their own bounds ask for, the same in all pieces."""
    used = {n for _, term in eq.pieces for n in names_in(term)}
    cases = [*eq.domain, *(cons for cons, _ in eq.pieces)]
    for c in (c for cons in cases for c in cons):
        mine = c.e.names & set(eq.fields)
        if len(mine) > 1 or c.eq:
            used |= mine
    bounds = {f: [{c for c in cons if f in c.e.names} for cons in cases] for f in eq.fields}
    same = (f for f in eq.fields if f not in used and all(b == bounds[f][0] for b in bounds[f]))
    return frozenset(f for f in same if all(lin.exact_limits(cons, f, ()) is not None for cons in cases))
