"""Time tiling: a loop over time round sweeps over rows, as a wavefront of rows through several steps at once.

    for t in lo..hi                          for b in 0..(hi-lo) floordiv STEPS       (a block of steps)
      for i in 1..m-2: row(t, i)     ->        for w in 1..m-2 + slope*(STEPS-1)      (the wave)
                                                 for t in ...: row(t, i) with i = w - slope*(t - first of the block)

So a grid passes through the cache once in STEPS steps instead of once in each.  What stands in the loop over time is cut
into pieces that have a row; each gets a shift along the rows, such that no dependence (nor the reuse of a window's places)
goes back along the wave.  Source: skewing and tiling (Wolfe 1986); Wonnacott 2000 on time tiling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from upl_mlir.passes.loops.statements import Edge, Statement
from upl_mlir.passes.loops.tree import Box, Guard, Leaf, Loop, Tree, leaves, replaced, subtrees
from upl_mlir.passes.storage import Array, inverse
from upl_mlir.poly.expr import DivKind, Extremum, IndexExpr, Var, divide, extremum
from upl_mlir.poly.linear import Con, Cons, Linear

STEPS = 16
"""Steps in a block: with rows of some thousands of bytes they stay in the second-level cache."""
SLOPES = (1, 2)


@dataclass(eq=False)
class _Piece:
    """Part of the body of a loop over time that runs for whole rows, ``lows <= row <= highs``, as `body` with `var` the row
    (None where there is one row only, `lows[0]`).  Pieces of one `group` keep together."""

    group: int
    var: str | None
    lows: tuple[IndexExpr, ...]
    highs: tuple[IndexExpr, ...]
    body: list[Tree]
    cons: Cons = ()


@dataclass(frozen=True)
class _Place:
    """When a statement runs: time and row by its fields."""

    group: int
    time: IndexExpr
    row: IndexExpr


def wavefront(lin: Linear, tree: list[Tree], arrays: Mapping[str, Array], deps: Sequence[Edge]) -> list[Tree]:
    """The tree with its outermost loops over time tiled, where that is possible.  Changes arrays private to a row's loop."""
    out: list[Tree] = []
    for t in tree:
        new = _Tiler(lin, t, arrays, deps).tiled() if isinstance(t, Loop) and not t.parallel else None
        out.append(t if new is None else new)
    return out


class _Tiler:
    """Tiles one loop."""

    def __init__(self, lin: Linear, loop: Loop, arrays: Mapping[str, Array], deps: Sequence[Edge]):
        self.lin, self.loop, self.arrays = lin, loop, arrays
        self.found = {leaf.stmt: (leaf, loops) for leaf, loops in leaves([loop])}
        self.deps = [e for e in deps if e.reader in self.found and e.writer in self.found]
        self.places: dict[Statement, _Place] = {}
        self._after: dict[Statement, list[tuple[Statement, str, int]]] = {}
        self._rows = [t for t in subtrees(loop.body) if isinstance(t, Loop)]

    def tiled(self) -> Tree | None:
        """The tiled loop; None if it cannot be tiled, or there is nothing to gain."""
        loop = self.loop
        if len(loop.lows) != 1 or not any(len(loops) > 2 for _, loops in self.found.values()):
            return None  # rows of one element each: nothing to run through the cache
        rows = self._row_fields()
        pieces = None if rows is None else self._pieces(rows)
        if pieces is None or not self._place(pieces):
            return None
        for slope in SLOPES:
            shifts = self._shifts(slope)
            if shifts is not None:
                return self._emit(pieces, slope, shifts)
        return None

    # -- rows -----------------------------------------------------------------------------------------------------------
    def _row_fields(self) -> dict[str, str] | None:
        """The field of each array that is its row: the one that the outermost loops of most of its statements run over."""
        votes: dict[str, Counter[str]] = {}
        for s, (leaf, loops) in self.found.items():
            field = None
            if len(loops) > 1:
                field = next((f for f in s.fields if _step(leaf.env.get(f), loops[1].var) is not None), None)
            if field is not None:
                votes.setdefault(s.array, Counter())[field] += 1
        if any(s.array not in votes for s in self.found):
            return None
        return {array: found.most_common(1)[0][0] for array, found in votes.items()}

    def _pieces(self, rows: Mapping[str, str]) -> list[_Piece] | None:
        out: list[_Piece] = []
        for group, child in enumerate(self.loop.body):
            made = self._of_child(group, child, rows, ())
            if made is None:
                return None
            out += made
        return out

    def _of_child(self, group: int, child: Tree, rows: Mapping[str, str], cons: Cons) -> list[_Piece] | None:
        match child:
            case Guard():
                parts = [self._of_child(group, t, rows, (*cons, *child.cons)) for t in child.body]
                return None if any(p is None for p in parts) else [x for p in parts if p is not None for x in p]
            case Box() | Leaf():
                return None
            case Loop():
                pass
        if not child.parallel:
            return None
        out: list[_Piece] = []
        for item in child.body:
            inside = list(leaves([item]))
            if any(isinstance(t, Box) for t in subtrees([item])):
                return None
            env = [leaf.env[rows[leaf.stmt.array]] for leaf, _ in inside]
            if all(_step(e, child.var) is not None for e in env):
                out.append(_Piece(group, child.var, child.lows, child.highs, [item], cons))
                continue
            inner = {l.var for _, loops in inside for l in loops} | {child.var, self.loop.var}
            if len(set(env)) == 1 and not env[0].names & inner:  # one row
                out.append(_Piece(group, None, (env[0],), (env[0],), [_with(child, [item])], cons))
                continue
            swapped = self._swapped(child, item, env) if len(inside) == 1 else None
            if swapped is None or self._private():
                return None
            out.append(_Piece(group, swapped.var, swapped.lows, swapped.highs, swapped.body, cons))
        return out

    def _swapped(self, outer: Loop, item: Tree, env: Sequence[IndexExpr]) -> Loop | None:
        """Two loops round one statement with the inner one outside, if it runs over the rows."""
        if not isinstance(item, Loop) or not item.parallel or _step(env[0], item.var) is None:
            return None
        if any(outer.var in e.names for e in (*item.lows, *item.highs)):
            return None
        return _with(item, [_with(outer, item.body)])

    def _place(self, pieces: Sequence[_Piece]) -> bool:
        """When each statement runs, by its fields; False if that is no simple function of them."""
        for p in pieces:
            if any(self.loop.var in e.names for e in (*p.lows, *p.highs)):
                return False
            for leaf, _ in leaves(p.body):
                time = inverse(leaf, self.loop.var)
                row = p.lows[0] if p.var is None else inverse(leaf, p.var)
                if time is None or row is None:
                    return False
                self.places[leaf.stmt] = _Place(p.group, time, row)
        return set(self.places) == set(self.found)

    # -- shifts ---------------------------------------------------------------------------------------------------------
    def _shifts(self, slope: int) -> dict[int, int] | None:
        """By how much each group's rows run ahead, for a wave of this slope; None if none is found."""
        needed: list[tuple[int, int, int]] = []  # later, earlier, how far apart at least
        for e in self.deps:
            w, r = self.places[e.writer], self.places[e.reader]
            apart = r.row + r.time * slope - (w.row + w.time * slope).substitute(e.index)
            lo, _ = self.lin.bounds(e.cons, self.lin.plain(apart))
            if lo is None:
                return None
            needed.append((r.group, w.group, -lo))
        for o, r, cons, later in self._reuses:
            apart = (o.row + o.time * slope).substitute(later) - (r.row + r.time * slope)
            lo, _ = self.lin.bounds(cons, self.lin.plain(apart))
            if lo is None:
                return None
            needed.append((o.group, r.group, -lo))
        shifts = dict.fromkeys({p.group for p in self.places.values()}, 0)
        for _ in range(len(shifts) + 1):  # Bellman and Ford
            changed = False
            for later, earlier, apart in needed:
                if shifts[later] - shifts[earlier] < apart:
                    shifts[later], changed = shifts[earlier] + apart, True
            if not changed:
                return shifts
        return None

    @cached_property
    def _reuses(self) -> list[tuple[_Place, _Place, Cons, dict[str, IndexExpr]]]:
        """Where an element's place is given to another one after a read: places of writer and reader, constraints over the
        reader's names, and the new element's index."""
        return [found for e in self.deps for found in self._overwritten(e)]

    def _overwritten(self, e: Edge) -> Iterator[tuple[_Place, _Place, Cons, dict[str, IndexExpr]]]:
        for other, field, step in self._successors(e.writer):
            later = e.index | {field: e.index[field] + step}
            cons = self.lin.tidy((*e.cons, *(Con(self.lin.plain(c.e.substitute(later)), c.eq) for c in other.cons)))
            if self.lin.feasible(cons):
                yield self.places[other], self.places[e.reader], cons, later

    def _successors(self, w: Statement) -> list[tuple[Statement, str, int]]:
        """Which statements put new elements in the places of a statement's: by how much of which field they are ahead."""
        if w in self._after:
            return self._after[w]
        out = self._after[w] = list[tuple[Statement, str, int]]()
        array = self.arrays.get(w.array)
        for other, (leaf, _) in self.found.items() if array is not None else ():
            if other.array != w.array or array is None:
                continue
            field = next(f for f in other.fields if _step(leaf.env.get(f), self.loop.var) is not None)
            axis = next((a for a in array.axes if a.at == other.fields.index(field)), None)
            window = 1 if axis is None else axis.modulus
            if window is None:
                continue
            step = (_step(leaf.env[field], self.loop.var) or 0) * window
            later = {field: IndexExpr.of(field) + step}
            cons = (*w.cons, *(Con(self.lin.plain(c.e.substitute(later)), c.eq) for c in other.cons))
            if self.lin.feasible(self.lin.tidy(cons)):
                out.append((other, field, step))
        return out

    # -- the loops --------------------------------------------------------------------------------------------------------
    def _emit(self, pieces: Sequence[_Piece], slope: int, shifts: Mapping[int, int]) -> Tree:
        loop = self.loop
        for a in self._private():
            a.loop = None  # rows run one after the other now: one copy will do
        block, wave = f"{loop.var}b", f"{loop.var}w"
        first = loop.lows[0] + IndexExpr.of(block) * STEPS
        steps = extremum(Extremum.MIN, [divide(DivKind.FLOORDIV, h - loop.lows[0], IndexExpr.of(STEPS)) for h in loop.highs])
        least = self._extreme([b + shifts[p.group] for p in pieces for b in p.lows[:1]], Extremum.MIN)
        most = self._extreme([b + shifts[p.group] for p in pieces for b in p.highs[:1]], Extremum.MAX)
        at = IndexExpr.of(wave) - (IndexExpr.of(loop.var) - first) * slope
        n = IndexExpr.of(slope)
        lows = (first, first + divide(DivKind.CEILDIV, IndexExpr.of(wave) - most, n))
        highs = (*loop.highs, first + (STEPS - 1), first + divide(DivKind.FLOORDIV, IndexExpr.of(wave) - least, n))
        body: list[Tree] = []
        for p in pieces:
            row = at - shifts[p.group]
            cons = (*p.cons, *(Con(row - b) for b in p.lows), *(Con(b - row) for b in p.highs))
            if p.var is None:
                cons = (*p.cons, Con(row - p.lows[0], True))
            row_of = {} if p.var is None else {p.var: row}
            copies = [replaced(self.lin, t, row_of) for t in p.body]
            made: Tree = Guard(cons, [t for t in copies if t is not None])
            last = body[-1] if body else None
            if isinstance(last, Guard) and isinstance(made, Guard) and last.cons == made.cons:
                last.body += made.body
            else:
                body.append(made)
        time = Loop(loop.var, lows, highs, False, body)
        waves = Loop(wave, (least,), (most + slope * (STEPS - 1),), False, [time])
        return Loop(block, (IndexExpr(),), (steps,), False, [waves])

    def _private(self) -> list[Array]:
        """The arrays that one of the loops over rows had for itself."""
        return [a for a in self.arrays.values() if a.loop is not None and a.loop in self._rows]

    def _extreme(self, bounds: Sequence[IndexExpr], kind: Extremum) -> IndexExpr:
        sign = -1 if kind is Extremum.MIN else 1
        kept = self.lin.strongest(list(dict.fromkeys(bounds)), sign, self.lin.params)
        return extremum(kind, kept)


def _step(e: IndexExpr | None, var: str) -> int | None:
    """The sign of a variable in ``±var + number``; None for other expressions."""
    if e is None:
        return None
    k = next((k for m, k in e.terms if m == (Var(var),)), 0)
    return k if abs(k) == 1 and (e - IndexExpr.of(var) * k).constant is not None else None


def _with(loop: Loop, body: list[Tree]) -> Loop:
    return Loop(loop.var, loop.lows, loop.highs, loop.parallel, body)
