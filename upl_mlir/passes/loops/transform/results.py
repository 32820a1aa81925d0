"""Where data choose elements, an array of which an output is a copy is that output: its elements are made in place.

    Sum<v> = +[To<e> == v ? M<e> : -0 for e];  Y<v> = Sum<v>     ->     Y<v> = +[To<e> == v ? M<e> : -0 for e]

Such an array is added to here and there, and so complete only when all is done: it would be copied in a loop of its own.
"""

from __future__ import annotations

from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Fold, Get, Term, inner_first, made_of, rewritten, under
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Con, Cons


def make_in_place(system: System) -> bool:
    """Change the system; whether there was such an output."""
    some = False
    for name, eq in list(system.equations.items()):
        of = _copied(system, eq) if eq.output else None
        if of is None:
            continue
        at = {f: IndexExpr.of(g) for f, g in zip(of.fields, eq.fields, strict=True)}
        eq.pieces = [(_renamed(cons, at), under(term, at)) for cons, term in of.pieces]
        del system.equations[of.name]
        memo: dict[Term, Term] = {}

        def read(g: Get, old: str = of.name, new: str = name) -> Get:
            return Get(g.kind, new, g.index) if g.array == old else g

        for other in system.equations.values():
            other.pieces = [(cons, rewritten(term, memo, read)) for cons, term in other.pieces]
        some = True
    return some


def _copied(system: System, eq: Equation) -> Equation | None:
    """The array of which an output is a copy, all of it."""
    if len(eq.pieces) != 1 or len(eq.domain) != 1:
        return None
    cons, term = eq.pieces[0]
    while isinstance(term, Fold) and len(term.parts) == 1 and not (p := term.parts[0]).dims + p.cons + p.guards:
        term = p.body
    of = system.equations.get(term.array) if isinstance(term, Get) else None
    if of is None or of.output or of.kind is not eq.kind or len(of.domain) != 1 or len(of.fields) != len(eq.fields):
        return None
    assert isinstance(term, Get)
    folds = [x for _, t in of.pieces for x in inner_first(t, made_of) if isinstance(x, Fold)]
    taken = {d for x in folds for p in x.parts for d in p.dims}
    if term.index != tuple(map(IndexExpr.of, eq.fields)) or taken & set(eq.fields):
        return None
    at = {f: IndexExpr.of(g) for f, g in zip(of.fields, eq.fields, strict=True)}
    mine, theirs = (*eq.domain[0], *cons), _renamed(of.domain[0], at)
    lin = system.lin
    same = all(lin.implies(mine, c) for c in theirs) and all(lin.implies(theirs, c) for c in mine)
    return of if same else None


def _renamed(cons: Cons, at: dict[str, IndexExpr]) -> Cons:
    return tuple(Con(c.e.substitute(at), c.eq) for c in cons)
