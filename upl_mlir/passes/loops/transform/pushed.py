"""Gathers that look through summands for those with their index, inside of a loop that makes the summands, as arrays that
each step of that loop adds to.

    G<j> = +[(C<i> == j ? V<i> : -0.0) for i in j+1..n-1]      // V<i> depends on G<i>: one loop, downwards
    ->
    G:pushed<n,j> = -0.0
    G:pushed<i,j> = +[G:pushed<i+1,j>; (C<i> == j ? V<i> : -0.0)]      // for all j < i: an element is added to
    G<j>          = +[G:pushed<j+1,j>]

The array takes one row (`storage`), so that a step touches the elements that data choose, and no others.

Source: a recurrence turned from pull to push, as running sums are (`running.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.matches import added_to
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Fold, Get, Number, Part, Term
from upl_mlir.passes.loops.tree import Box, Tree, leaves, subtrees
from upl_mlir.poly.expr import IndexExpr, Var
from upl_mlir.poly.linear import Con, Cons, Linear

PUSHED = ":pushed"
"""What the names of arrays that are added to have behind that of the gather."""
Wanted = Mapping[str, tuple[str, int]]
"""By array, the field along which a loop makes its elements, and whether upwards (1) or downwards (-1)."""


def wanted(tree: Sequence[Tree], arrays: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Of arrays whose elements search in a schedule, those along which a loop that is not parallel goes."""
    out: dict[str, tuple[str, int]] = {}
    for leaf, loops in leaves(tree):
        s = leaf.stmt
        if s.array not in arrays or s.array in out or not isinstance(s.term, Fold):
            continue
        for name in (m.name for p in s.term.parts for m in added_to(s.term, p, s.fields)):
            at = dict(leaf.env.get(name, IndexExpr()).terms)
            signs = [at[(Var(x.var),)] for x in loops if not x.parallel and (Var(x.var),) in at]
            if len(signs) == 1 and abs(signs[0]) == 1:
                out[s.array] = (name, int(signs[0]))
    return out


def push(system: System, which: Wanted) -> None:
    """Change the equations of some arrays."""
    made: list[str] = []
    for array, (name, sign) in which.items():
        eq = system.equations[array]
        for at, (cons, term) in enumerate(eq.pieces):
            if isinstance(term, Fold):
                eq.pieces[at] = (cons, _Pusher(system, eq, name, sign, made).pushed(cons, term))


@dataclass(frozen=True, eq=False)
class _Pusher:
    """Of the equation `eq`, whose elements a loop makes along the field `name`."""

    system: System
    eq: Equation
    name: str
    sign: int
    made: list[str]

    def pushed(self, cons: Cons, fold: Fold) -> Term:
        """The gather, with arrays that are added to in place of the parts that search."""
        if not fold.kind.is_float and fold.kind is not Kind.INT:
            return fold
        parts = tuple(self._part(cons, fold, p) if added_to(fold, p, (self.name,)) else p for p in fold.parts)
        return Fold(fold.kind, fold.gather, parts, fold.count)

    def _part(self, cons: Cons, fold: Fold, p: Part) -> Part:
        """What stands for a part; itself where no iterator goes along with the loop."""
        for d in p.dims:
            ends = self._ends(self.system.lin, cons, p, d)
            if ends is not None:
                return self._add(cons, fold, p, d, ends)
        return p

    def _ends(self, lin: Linear, cons: Cons, p: Part, d: str) -> tuple[IndexExpr, IndexExpr] | None:
        """The first value of an iterator in the loop's order, and the last: the one before the field's, or behind it."""
        where = (*cons, *p.cons)
        at = lin.project(where, [x for x in p.dims if x != d])
        lows, highs = lin.limits(at, d, self.eq.fields)
        lows, highs = lin.strongest(lows, 1, cons), lin.strongest(highs, -1, cons)
        if len(lows) != 1 or len(highs) != 1:
            return None
        first, last = (lows[0], highs[0]) if self.sign > 0 else (highs[0], lows[0])
        beside = IndexExpr.of(self.name) - self.sign
        return None if last != beside or self.name in first.names else (first, last)

    def _add(self, cons: Cons, fold: Fold, p: Part, d: str, ends: tuple[IndexExpr, IndexExpr]) -> Part:
        """The array that is added to, and its element that has all summands of a part."""
        lin, (first, last), fields = self.system.lin, ends, (d, *self.eq.fields)
        name = f"{self.eq.name}{PUSHED}{len(self.made) + 1}"
        self.made.append(name)
        step = IndexExpr.of(d)

        def get(at: IndexExpr) -> Get:
            return Get(fold.kind, name, (at, *map(IndexExpr.of, self.eq.fields)))

        begin = lin.tidy((*cons, Con(step - first + self.sign, True)))
        going = lin.tidy((*cons, Con((step - first) * self.sign), Con((last - step) * self.sign)))
        none = fold.gather.neutral if fold.kind.is_float else fold.gather.empty_integer()
        rest = Part(tuple(x for x in p.dims if x != d), p.cons, p.body, p.guards)
        more = Fold(fold.kind, fold.gather, (Part((), (), get(step - self.sign)), rest), None)
        pieces: list[tuple[Cons, Term]] = [(begin, Number(fold.kind, none)), (going, more)]
        self.system.equations[name] = Equation(name, fold.kind, fields, tuple(c for c, _ in pieces), pieces)
        return Part((), (), get(last))


def apart(p: LoopProgram) -> list[str]:
    """The arrays that `push` made which are added to otherwise than in place: each step is to be a box, in one row."""
    boxes = {t.leaf.stmt for t in subtrees(p.scheduled) if isinstance(t, Box)}
    steps = [leaf.stmt for leaf, _ in leaves(p.scheduled) if PUSHED in leaf.stmt.array and isinstance(leaf.stmt.term, Fold)]
    return [s.array for s in steps if s not in boxes or any(x.at == 0 and x.modulus != 1 for x in p.kept[s.array].axes)]
