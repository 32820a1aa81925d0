"""Truth values that are made to be gathered only are gathered as they are made, without an array for them.

    bad<e> = Row<e> >= m || Col<e> >= n    where 0 <= e < z
    fault  = ||[bad<e> for e in 0..z-1]
    ->
    fault  = ||[Row<e> >= m || Col<e> >= n for e in 0..z-1]

Only where each element is read by one summand, so that nothing is computed again, and is made without a loop, which might
be shared with others where it stands.  Source: loop fusion and the
contraction of arrays (Gao, Olsen, Sarkar and Thekkath 1992).
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)

from __future__ import annotations

from dataclasses import replace

from upl_mlir.dialects.upl import Gather
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Fold, Get, Part, Term, inner_first, made_of, rewritten, under
from upl_mlir.poly.expr import IndexExpr, Var


def gather_as_made(system: System) -> bool:
    """Change the system; whether there was such an array."""
    readers: dict[str, list[tuple[Equation, int, Fold | None, Part | None]]] = {}
    for eq in system.equations.values():
        for n, (_, term) in enumerate(eq.pieces):
            for t in inner_first(term, made_of):
                if isinstance(t, Get):
                    readers.setdefault(t.array, []).append((eq, n, None, None))
                elif isinstance(t, Fold):
                    for p in t.parts:
                        if isinstance(p.body, Get):
                            readers.setdefault(p.body.array, []).append((eq, n, t, p))
    some = False
    for name, eq in list(system.equations.items()):
        found = readers.get(name, [])
        if eq.output or eq.kind is not Kind.BOOL or len(eq.pieces) != 1 or len(found) != 2:
            continue  # the read itself, and the part of which it is the body
        reader, at, fold, part = max(found, key=lambda f: f[3] is not None)
        made = None if fold is None or part is None else _instead(eq, part)
        if made is None or part is None:
            continue
        cons, term = reader.pieces[at]
        reader.pieces[at] = cons, _flat(rewritten(term, {part.body: made}, lambda g: g))
        del system.equations[name]
        some = True
    return some


def _instead(eq: Equation, part: Part) -> Term | None:
    """The term of an array's elements at the places that a part reads, if these are all of them, each once."""
    read = part.body
    assert isinstance(read, Get)
    variables = [e.terms[0][0][0] if e.names and e == IndexExpr.of(next(iter(e.names))) else None for e in read.index]
    names = [v.name for v in variables if isinstance(v, Var)]
    ((cons, term),) = eq.pieces
    if any(isinstance(t, Fold) and any(p.dims for p in t.parts) for t in inner_first(term, made_of)):
        return None
    if len(names) != len(eq.fields) or set(names) != set(part.dims) or part.guards:
        return None
    at = {f: IndexExpr.of(n) for f, n in zip(eq.fields, names, strict=True)}
    if {c.substitute(at) for c in cons} != set(part.cons):
        return None
    return under(_summand(term), at)


def _summand(t: Term) -> Term:
    """The one value that a gather has, if it has just one."""
    if isinstance(t, Fold) and t.gather is Gather.OR and len(t.parts) == 1:
        (p,) = t.parts
        if not (p.dims or p.cons or p.guards):
            return _summand(p.body)
    return t


def _flat(t: Term) -> Term:
    """A gather of gathers as one, where each of them gives one summand."""
    if not isinstance(t, Fold) or t.gather is not Gather.OR:
        return t
    parts: list[Part] = []
    for p in t.parts:
        inner = p.body
        if p.dims or p.cons or p.guards or not isinstance(inner, Fold) or inner.gather is not Gather.OR:
            parts.append(p)
        else:
            flat = _flat(inner)
            assert isinstance(flat, Fold)
            parts += flat.parts
    return replace(t, parts=tuple(parts))
