# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Indices that are computed in the same way are one array.

    at1<e> = int(Src<e>);  at2<e> = int(Src<e>)    ->    at1<e> = int(Src<e>), which is read in place of at2<e>

A loop that was written out, five steps along the same links, has its indices five times.  Real numbers stay as they are: to
compute one where it is needed often costs less than to keep it.

Source: value numbering (Cocke 1970), of whole arrays.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import (
    Apply,
    Choice,
    Convert,
    Entry,
    Fold,
    Get,
    IndexValue,
    Number,
    Term,
    arguments,
    inner_first,
    renamed,
)
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Cons


def share_indices(system: System) -> bool:
    """Change the system; whether there were equal arrays of indices."""
    some = False
    while True:
        first: dict[Hashable, str] = {}
        same: dict[str, str] = {}
        for name, eq in system.equations.items():
            if eq.output or eq.kind is not Kind.INT or (key := _key(eq)) is None:
                continue
            if (other := first.setdefault(key, name)) != name:
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


def _key(eq: Equation) -> Hashable:
    """What an array is, its name and those of its fields apart; None if it is made of folds or choices."""
    fields = {f: IndexExpr.of(f"#{n}") for n, f in enumerate(eq.fields)}
    pieces: list[Hashable] = []
    for cons, term in eq.pieces:
        keys: dict[Term, Hashable] = {}
        numbers: dict[Hashable, int] = {}
        for t in inner_first(term, arguments):
            if (own := _own(t, fields)) is None:
                return None
            keys[t] = numbers.setdefault((own, t.kind, *(keys[a] for a in arguments(t))), len(numbers))
        pieces.append((_cases((cons,), fields), tuple(numbers)))
    return eq.kind, len(eq.fields), eq.planar, _cases(eq.domain, fields), tuple(pieces)


def _cases(cases: tuple[Cons, ...], fields: Mapping[str, IndexExpr]) -> Hashable:
    return tuple(frozenset(c.substitute(dict(fields)) for c in cons) for cons in cases)


def _own(t: Term, fields: Mapping[str, IndexExpr]) -> Hashable:
    """What a term is besides its kind and its arguments."""
    match t:
        case Number():
            return "number", repr(t.value)
        case IndexValue(e):
            return "index", e.substitute(dict(fields))
        case Get(_, array, index):
            return "get", array, tuple(e.substitute(dict(fields)) for e in index)
        case Entry(_, table):
            return "entry", table
        case Convert():
            return "convert"
        case Apply(_, op):
            return "apply", op.name, tuple(sorted((n, str(a)) for n, a in op.properties.items()))
        case Fold() | Choice():
            return None
