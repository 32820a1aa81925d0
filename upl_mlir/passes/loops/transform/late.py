# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Of several values of which one takes the greatest, or the least, that which comes of the array itself is compared last.

    V<i,j> = max(max(0, A<i,j>), max(B<i,j> - 1, V<i,j-1> - 1))
    ->
    V<i,j> = max(max(max(0, A<i,j>), B<i,j> - 1), V<i,j-1> - 1)

A loop that carries the element then waits for one comparison, not for all.  The greatest is the same in any order, but for
the signs of zeros, so this is not for sums that keep their order (`ordered`).

Source: tree height reduction (Kuck 1978), of recurrences.
"""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects import arith

from upl_mlir.passes.loops.system import System
from upl_mlir.passes.loops.terms import Apply, Get, Term, arguments, inner_first, rewritten

_EXTREMES = (arith.MaximumfOp, arith.MinimumfOp)


def compare_last(system: System) -> bool:
    """Change the system; whether there was something to change."""
    some = False
    for eq in system.equations.values():
        pieces = [(cons, _late(eq.name, term)) for cons, term in eq.pieces]
        some |= any(a is not b for (_, a), (_, b) in zip(pieces, eq.pieces, strict=True))
        eq.pieces = pieces
    return some


def _late(name: str, whole: Term) -> Term:
    parts = inner_first(whole, arguments)
    if not any(isinstance(t, Get) and t.array == name for t in parts):
        return whole
    memo: dict[Term, Term] = {}
    for t in reversed(parts):  # a tree is found at its root
        if isinstance(t, Apply) and isinstance(t.op, _EXTREMES) and t.kind.format is None:
            values = _operands(t)
            own = [v for v in values if any(isinstance(x, Get) and x.array == name for x in inner_first(v, arguments))]
            if len(values) > 2 and len(own) == 1:
                first, *rest = [v for v in values if v is not own[0]]
                for v in (*rest, own[0]):
                    first = replace(t, args=(first, v))
                memo[t] = first
                break
    return rewritten(whole, memo, lambda g: g) if memo else whole


def _operands(t: Apply) -> list[Term]:
    """The values of a tree of comparisons of one kind."""
    out: list[Term] = []
    for a in t.args:
        out += _operands(a) if isinstance(a, Apply) and type(a.op) is type(t.op) else [a]
    return out
