# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Folds that nobody reads are not computed: the domains of their arrays become triangles where only those are read.

    S<k,i> = + over r of A<i,r> * A<k,r>        where 0 <= k, i < n
    L<k,i> = (B<k,i> - S<k,i>) / D<k>           where i > k
    ->
    S<k,i> = + over r of A<i,r> * A<k,r>        where 0 <= k < i < n

A program computes the other elements because its conditions on indices (`i > k ? (b - s)/d : 0`) stand behind the fold.
What is taken away are halves of domains, along constraints between fields that hold wherever an element is read.  Borders
along one field stay, as loops with equal borders are fused.

Source: dead code elimination, of elements of arrays.
"""

from __future__ import annotations

from dataclasses import replace

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Apply, Entry, Fold, Get, Term, inner_first, made_of, walk
from upl_mlir.poly.expr import IndexExpr, Var
from upl_mlir.poly.linear import Con, Cons

MOST = 8
"""Arrays that are read in more places stay as they are. Chosen, not measured."""
TIMES = 4
"""So often an array loses elements: those of a recurrence could lose some more each time, without an end."""


def drop_unread(system: System) -> bool:
    """Change the system; whether there were such elements."""
    some, changed = False, True
    times = dict.fromkeys(system.equations, 0)
    while changed:
        changed = False
        reads: dict[str, list[tuple[Get, Cons]]] = {}
        for eq in system.equations.values():
            for cons, term in eq.pieces:
                for t, at in walk(term, cons):
                    if isinstance(t, Get):
                        reads.setdefault(t.array, []).append((t, at))
        for name, eq in system.equations.items():
            mine = reads.get(name, [])
            if eq.output or not 0 < len(mine) <= MOST or not all(_may_go(term) for _, term in eq.pieces):
                continue
            if times[name] < TIMES and (found := _narrowed(system, eq, mine)) is not None:
                system.equations[name] = found
                times[name] += 1
                changed = True
        some |= changed
    return some


def _may_go(term: Term) -> bool:
    """Whether a term is worth being left out, and no error of the program is lost with it: whole numbers overflow."""
    parts = inner_first(term, made_of)
    fails = any(isinstance(t, Entry) or (isinstance(t, Apply | Fold) and t.kind is Kind.INT) for t in parts)
    return not fails and any(isinstance(t, Fold) for t in parts)


def _narrowed(system: System, eq: Equation, reads: list[tuple[Get, Cons]]) -> Equation | None:
    """The equation where it is read; None if it is read wherever it is."""
    lin = system.lin
    read = [c for c in _candidates(system, eq, reads) if all(lin.implies(at, _at(system, eq, g, c)) for g, at in reads)]
    cuts = [c for c in read if any(not lin.implies(cons, c) for cons, _ in eq.pieces)]
    if not cuts:
        return None
    left = [(lin.minimal((*cons, *cuts)), term) for cons, term in eq.pieces if lin.feasible((*cons, *cuts))]
    pieces = [(cons, _within(system, term, cons)) for cons, term in left]
    return replace(eq, pieces=pieces, domain=tuple(cons for cons, _ in pieces))


def _within(system: System, whole: Term, cons: Cons) -> Term:
    """A term that stands under narrower constraints: the outermost fold without the parts that have no summand there."""
    if not isinstance(whole, Fold):
        return whole
    parts = [p for p in whole.parts if system.lin.feasible((*cons, *p.cons))]
    if not parts:
        return whole
    return replace(whole, parts=tuple(replace(p, cons=system.lin.minimal(p.cons, cons)) for p in parts))


def _candidates(system: System, eq: Equation, reads: list[tuple[Get, Cons]]) -> list[Con]:
    """What readers say of the fields of the elements that they read: inequalities between fields.

    None with entries of arrays: where one reader knows that there is such an entry, there may be none for another.
    """
    out: dict[Con, None] = {}
    fields, params = set(eq.fields), set(system.lin.ctx.params)
    for g, at in reads:
        values: dict[str, IndexExpr] = {}
        for field, e in zip(eq.fields, g.index, strict=True):
            match [(m, k) for m, k in e.terms if m]:
                case [((Var(name),), 1)]:
                    values[name] = IndexExpr.of(field) - (e - IndexExpr.of(name))
                case _:
                    pass
        known = {*values, *params}
        gone = {n for c in at for n in c.e.names} - known
        for c in system.lin.project(at, gone) if gone else at:
            if c.e.names <= known:
                new = system.lin.plain(c.e.substitute(values))
                halves = (Con(new), Con(-new)) if c.eq else (Con(new),)
                out.update((h, None) for h in halves if len(h.e.names & fields) > 1 and not h.e.lookups())
    return list(out)


def _at(system: System, eq: Equation, g: Get, c: Con) -> Con:
    """A constraint on the fields for the element that is read."""
    return Con(system.lin.plain(c.e.substitute(dict(zip(eq.fields, g.index, strict=True)))), c.eq)
