"""Loops of few iterations written out: those whose variable picks entries of constant arrays, as then all bounds inside are
numbers, and innermost ones over planar arrays, as then the loop round them can become one of vectors.

    for k in 1..2: for i in 1..N[k]: ...      ->      for i in 1..5: ...; for i in 1..6: ...
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from upl_mlir.passes.loops.terms import Choice, Fold, IndexValue, walk
from upl_mlir.passes.loops.tree import Box, Exchange, Guard, Leaf, Loop, Tree, leaves, replaced, subtrees
from upl_mlir.passes.storage import Array
from upl_mlir.poly.expr import IndexExpr, Lookup
from upl_mlir.poly.linear import Linear

MOST = 8
"""Loops of more iterations stay. Chosen, not measured: as many as a vector has numbers."""
FEW = 4
"""Innermost loops of more iterations stay. Chosen, not measured."""
STATEMENTS = 96
"""More statements than that are not made of one loop. Chosen, not measured."""


def unrolled(
    lin: Linear, tree: Iterable[Tree], arrays: Mapping[str, Array], planar: Collection[str], most: int = MOST
) -> list[Tree]:
    """The tree with such loops written out; `planar` are the names of planar arrays, `most` the iterations of a loop."""
    private = {a.private for a in arrays.values()}
    return [new for t in tree for new in _unroll(lin, t, private, planar, most)]


def _unroll(lin: Linear, t: Tree, private: Collection[str | None], planar: Collection[str], most: int) -> list[Tree]:
    match t:
        case Loop():
            values = _values(lin, t, private, planar, most)
            if values is None:
                t.body = [new for b in t.body for new in _unroll(lin, b, private, planar, most)]
                return [t]
            out: list[Tree] = []
            for v in values:
                for b in t.body:
                    copy = replaced(lin, b, {t.var: IndexExpr.of(v)})
                    out += [] if copy is None else _unroll(lin, copy, private, planar, most)
            return out
        case Guard():
            t.body = [new for b in t.body for new in _unroll(lin, b, private, planar, most)]
            t.other = [new for b in t.other for new in _unroll(lin, b, private, planar, most)]
            return [t]
        case _:
            return [t]


def _values(
    lin: Linear, t: Loop, private: Collection[str | None], planar: Collection[str], most: int
) -> range | None:
    """The values of a loop that is to be written out, None for others."""
    lows, highs = [lin.plain(e).constant for e in t.lows], [lin.plain(e).constant for e in t.highs]
    if not lows or not highs or None in lows or None in highs:
        return None
    low, high = max(n for n in lows if n is not None), min(n for n in highs if n is not None)
    if high - low >= most or t.var in private:
        return None
    if high - low < FEW and all(isinstance(b, Leaf) and b.stmt.array in planar for b in t.body):
        return range(low, high + 1)
    if not any(_picks(e, t.var) for b in t.body for e in _expressions(b)):
        return None
    inside = [loop for _, loops in leaves(t.body) for loop in loops]
    if any(loop.var in private for loop in inside) and not any(_decides(b, t.var) for b in subtrees(t.body)):
        return None  # rows that stay in registers anyway
    if (high - low + 1) * sum(1 for _ in leaves(t.body)) > STATEMENTS:
        return None
    return range(low, high + 1)


def _decides(t: Tree, var: str) -> bool:
    """Whether what a statement computes depends on a variable itself; so it is taken to be for contractions."""
    if not isinstance(t, Leaf):
        return isinstance(t, Box)
    along = {f for f, e in t.env.items() if var in e.names}
    for term, _ in walk(t.stmt.term):
        match term:
            case IndexValue(e):
                named = e.names
            case Choice(_, cases):
                named = {n for when, _ in cases for c in when for n in c.e.names}
            case _:
                continue
        if along & named:
            return True
    return False


def _picks(e: IndexExpr, var: str) -> bool:
    """Whether an entry of an array is picked by a variable."""
    return any(isinstance(a, Lookup) and var in a.index.names for m, _ in e.terms for a in m)


def _expressions(t: Tree) -> Iterable[IndexExpr]:
    """Bounds and conditions, those of sums included."""
    match t:
        case Loop():
            yield from (*t.lows, *t.highs)
            for b in t.body:
                yield from _expressions(b)
        case Guard():
            yield from (c.e for c in t.cons)
            for b in (*t.body, *t.other):
                yield from _expressions(b)
        case Leaf(stmt, env):
            for term, _ in walk(stmt.term):
                if isinstance(term, Fold):
                    yield from (c.e.substitute(env) for p in term.parts for c in p.cons)
        case Box(_, found, plain):
            yield from (e for r in found.fields for e in (*r.lows, *r.highs))
            for b in plain:
                yield from _expressions(b)
        case Exchange(ranges=ranges):
            yield from (e for r in ranges for e in (*r.lows, *r.highs))
