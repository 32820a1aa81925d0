"""Innermost loops whose conditions ask for the remainder of their variable are written out by remainders.

    for i in 0..2*m-1: if i mod 2 == 0: A<i> = f(B<i>); if i mod 2 == 1: A<i> = g(B<i-1>)
    ->
    for i in 0..m-1: A<2*i> = f(B<2*i>); A<2*i+1> = g(B<2*i>)

So no round asks for it, and LLVM makes vectors of pairs.  What is left of the last round is a loop as before.

Source: loop unrolling; index-set splitting modulo a number.
"""

from __future__ import annotations

from collections.abc import Iterable

from upl_mlir.passes.loops.tree import Guard, Leaf, Loop, Tree, replaced
from upl_mlir.poly.expr import Div, DivKind, IndexExpr, Var, divide
from upl_mlir.poly.linear import Linear

LARGEST = 4
"""Remainders by larger numbers are asked for in each round. Chosen: a vector of so many parts is put together quickly."""


def by_residues(lin: Linear, trees: Iterable[Tree]) -> list[Tree]:
    """The tree with such loops written out."""
    out: list[Tree] = []
    for t in trees:
        match t:
            case Loop():
                d = _divisor(t)
                if d is None:
                    t.body = by_residues(lin, t.body)
                    out.append(t)
                else:
                    out += _written_out(lin, t, d)
            case Guard():
                t.body, t.other = by_residues(lin, t.body), by_residues(lin, t.other)
                out.append(t)
            case _:
                out.append(t)
    return out


def _divisor(t: Loop) -> int | None:
    """The number by which the conditions of a loop divide its variable, if that is the same for all."""
    if not all(isinstance(b, Leaf | Guard) for b in t.body) or len(t.lows) != 1 or len(t.highs) != 1:
        return None
    if t.lows[0].constant is None:
        return None
    found = {d for b in t.body if isinstance(b, Guard) for d in _divisors(b, t.var)}
    return found.pop() if len(found) == 1 and None not in found else None


def _divisors(t: Guard, var: str) -> Iterable[int | None]:
    """What the conditions of a guard divide a variable by; None for a condition or a body that cannot be written out."""
    for c in t.cons:
        for a in c.e.atoms():
            if isinstance(a, Div) and var in a.num.names | a.den.names:
                d, k = a.den.constant, dict(a.num.terms).get((Var(var),), 0)
                yield d if d is not None and 2 <= d <= LARGEST and k % d and _plain(a.num, d, var) else None
    for b in (*t.body, *t.other):
        if isinstance(b, Guard):
            yield from _divisors(b, var)
        elif not isinstance(b, Leaf):
            yield None


def _plain(e: IndexExpr, d: int, var: str) -> bool:
    """Whether a remainder follows from that of the variable alone."""
    return all(not m or m == (Var(var),) or k % d == 0 for m, k in e.terms)


def _written_out(lin: Linear, t: Loop, d: int) -> list[Tree]:
    """The loop over groups of `d` rounds, and the rounds that are left."""
    x, low, high = IndexExpr.of(t.var), t.lows[0], t.highs[0]
    count = high - low + 1
    groups = divide(DivKind.FLOORDIV, count, IndexExpr.of(d))
    body = [c for r in range(d) for b in t.body if (c := replaced(lin, b, {t.var: x * d + low + r})) is not None]
    out: list[Tree] = [Loop(t.var, (IndexExpr.of(0),), (lin.plain(groups - 1),), t.parallel, body, t.tiled, t.lag)]
    if lin.plain(count - groups * d).constant != 0:
        lows = (low, lin.plain(low + groups * d))  # of a loop that never runs the second one may be less
        out.append(Loop(t.var, lows, (high,), t.parallel, t.body, t.tiled, t.lag))
    return out
