"""Short gathers: where an iterator stays near a field (`i-1 <= j <= i+1`), its few summands become summands of their own.

As a loop, such an iterator would run over all values that it has anywhere: six by six for the five neighbours of a point in
a grid of six by six.  The order of summands stays: that of the iterators is that of their distances from the fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from upl_mlir.passes.circuit.statements.specialise import Specialiser
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Fold, Part, Term, inner_first, made_of, rewritten
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Linear

MOST = 9
"""Summands that become summands of their own: each takes a unit that adds. Chosen: those of a grid's point, corners too."""


def short_gathers(p: LoopProgram) -> LoopProgram:
    """The program with its short gathers as chains of summands."""
    made = {
        eq.name: replace(eq, pieces=[(cons, _chained(p.system.lin, eq, t)) for cons, t in eq.pieces])
        for eq in p.system.equations.values()
    }
    return replace(p, system=System(p.system.lin, made, p.system.hosts))


def _chained(lin: Linear, eq: Equation, term: Term) -> Term:
    memo: dict[Term, Term] = {}
    for t in inner_first(term, made_of):
        if isinstance(t, Fold):
            inner = rewritten(t, memo, lambda g: g)
            assert isinstance(inner, Fold)
            parts = [q for part in inner.parts for q in _parts(lin, eq.fields, part)]
            if 0 < len(parts) <= MOST:
                memo[t] = replace(inner, parts=tuple(parts))
    return rewritten(term, memo, lambda g: g)


def _parts(lin: Linear, fields: Sequence[str], part: Part) -> list[Part]:
    """The summands of a part one by one, if all its iterators stay near fields; else the part."""
    near = [_near(lin, fields, part, d) for d in part.dims]
    found = [n for n in near if n is not None]
    if not part.dims or len(found) < len(near):
        return [part]
    out: list[Part] = []
    for offsets in product(*(range(low, high + 1) for _, low, high in found)):
        values = {d: IndexExpr.of(f) + k for d, (f, _, _), k in zip(part.dims, found, offsets, strict=True)}
        here = Specialiser(lin, also=values)
        cons = here.cons(part.cons, {})
        guards = [g for g in (here.cons(g, {}) for g in part.guards) if g is not None]
        if cons is None or (part.guards and not guards):
            continue
        out.append(Part((), cons, here.term(part.body, {}), () if () in guards else tuple(guards)))
    return out


def _near(lin: Linear, fields: Sequence[str], part: Part, dim: str) -> tuple[str, int, int] | None:
    """The field that an iterator is near, with the least and the greatest distance; None if there is none."""
    for f in fields:
        apart = IndexExpr.of(dim) - f
        least = [-n for c in part.cons for n in _constant(c.e - apart)]  # dim - f + n >= 0
        most = [n for c in part.cons for n in _constant(c.e + apart)]
        least += [-n for c in part.cons if c.eq for n in _constant(-c.e - apart)]
        most += [n for c in part.cons if c.eq for n in _constant(apart - c.e)]
        if least and most and min(most) - max(least) < MOST:
            return f, max(least), min(most)
    return None


def _constant(e: IndexExpr) -> list[int]:
    return [] if e.constant is None else [e.constant]
