# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Indices that are computed in the same way are one array.

    at1<e> = int(Src<e>);  at2<e> = int(Src<e>)    ->    at1<e> = int(Src<e>), which is read in place of at2<e>

A loop that was written out, five steps along the same links, has its indices five times.  Real numbers stay as they are: to
compute one where it is needed often costs less than to keep it.

Source: value numbering (Cocke 1970), of whole arrays.
"""

from __future__ import annotations

from dataclasses import replace

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Term, alike, renamed, under
from upl_mlir.poly.expr import IndexExpr


def share_indices(system: System) -> bool:
    """Change the system; whether there were equal arrays of indices."""
    some = False
    while True:
        first: list[str] = []
        same: dict[str, str] = {}
        for name, eq in system.equations.items():
            if eq.output or eq.kind is not Kind.INT:
                continue
            other = next((n for n in first if _same(system.equations[n], eq)), None)
            if other is None:
                first.append(name)
            else:
                same[name] = other
        if not same:
            return some
        some = True
        memo: dict[Term, Term] = {}
        system.equations = {
            n: replace(eq, pieces=[(cons, renamed(term, same, memo)) for cons, term in eq.pieces])
            for n, eq in system.equations.items()
            if n not in same
        }


def _same(a: Equation, b: Equation) -> bool:
    """Whether two arrays are one, the names of their fields apart."""
    sizes = [(len(x.fields), len(x.domain), len(x.pieces), x.planar) for x in (a, b)]
    if sizes[0] != sizes[1]:
        return False
    here = dict(zip(b.fields, map(IndexExpr.of, a.fields), strict=True))
    cases = zip((*a.domain, *(c for c, _ in a.pieces)), (*b.domain, *(c for c, _ in b.pieces)), strict=True)
    if any(set(x) != {c.substitute(here) for c in y} for x, y in cases):
        return False
    return all(alike(x, under(y, here)) for (_, x), (_, y) in zip(a.pieces, b.pieces, strict=True))
