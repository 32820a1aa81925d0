"""Gathers that look for the summands with their index get arrays of their own where they stand inside of a term.

    Y<i> = +[Row<e> == i ? 1 : 0 for e] == 0 ? 0 : +[Row<e> == i ? V<e> : -0 for e]
    ->
    Y.sum1<i> = +[Row<e> == i ? 1 : 0 for e];  Y.sum2<i> = +[Row<e> == i ? V<e> : -0 for e]
    Y<i>      = Y.sum1<i> == 0 ? 0 : Y.sum2<i>

An array can be added to as the summands come (`emit/scatter.py`); inside of a term each element would look through all.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)

from __future__ import annotations

from itertools import count

from upl_mlir.passes.loops.matches import added_to
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Fold, Get, Term, inner_first, made_of, remade
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Cons


def part_searches(system: System) -> bool:
    """Change the system; whether there was such a gather."""
    before = len(system.equations)
    for eq in list(system.equations.values()):
        for n, (cons, term) in enumerate(eq.pieces):
            if not isinstance(term, Fold):
                eq.pieces[n] = cons, _parted(system, eq, cons, term)
    return len(system.equations) > before


def _parted(system: System, eq: Equation, cons: Cons, whole: Term) -> Term:
    """A term that reads arrays in place of such gathers outside of others."""
    memo: dict[Term, Term] = {}
    for t in inner_first(whole, lambda t: () if isinstance(t, Fold) else made_of(t)):
        if not isinstance(t, Fold):
            memo[t] = remade(t, memo, lambda g: g)
        elif not any(p.dims and added_to(t, p, eq.fields) for p in t.parts):
            memo[t] = t
        else:
            name = next(x for k in count(1) if (x := f"{eq.name}.sum{k}") not in system.equations)
            system.equations[name] = Equation(name, t.kind, eq.fields, (cons,), [(cons, t)])
            memo[t] = Get(t.kind, name, tuple(IndexExpr.of(f) for f in eq.fields))
    return memo[whole]
