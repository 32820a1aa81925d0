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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from upl_mlir.dialects.loops.attributes import Axis
from upl_mlir.passes.loops.statements import Edge, Statement
from upl_mlir.passes.loops.tree import Box, Exchange, Guard, Leaf, Loop, Tree, leaves, replaced, subtrees
from upl_mlir.passes.storage import Array, inverse
from upl_mlir.poly.expr import IndexExpr, Var, divide, extremum
from upl_mlir.poly.linear import Con, Cons, Linear
from upl_mlir.poly.operators import DivKind, Extremum

STEPS = 16
"""Steps in a block: with rows of some thousands of bytes they stay in the second-level cache."""
SLOPES = (1, 2)
"""Rows by which a tile is shifted for each step, as tried in turn: stencils that reach farther are not tiled."""
CACHE_LINE = 64
"""Bytes."""
AT_HAND = 16 << 10
"""Bytes of arrays between the steps that stay in any first-level cache, beside what else is read: half of a small one."""
_MORE = IndexExpr.of("how many more")
"""How many elements have had a place between two of them, or more."""


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


@dataclass(eq=False)
class Phase:
    """A loop over time in a block: `steps` values of its variable from `first` on, as far as they are the loop's own.

    Phases of one `clock` begin a block at the same time.
    """

    loop: Loop
    first: IndexExpr
    steps: int
    clock: int = 0
    skipped: int = 0
    """The loop runs from so many steps after `first` on."""
    clamped: bool = False
    """Whether it may begin before its own first value there."""


@dataclass(eq=False)
class Blocks:
    """Blocks of steps, ``var`` from 0 to `last`, each with its phases one behind the other in one wave.

    Where a statement of clock 1 reads what one of clock 0 writes, its step in the block minus the writer's lies in `apart`.
    Arrays `again` are made in each block anew; of their elements only as many rows are kept as are waited for.
    """

    var: str
    last: IndexExpr
    phases: tuple[Phase, ...]
    apart: tuple[int, int] = (0, 0)
    again: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Place:
    """When a statement runs: time and row by its fields."""

    group: int
    clock: int
    time: IndexExpr
    row: IndexExpr


def wavefront(
    lin: Linear,
    tree: list[Tree],
    arrays: dict[str, Array],
    deps: Sequence[Edge],
    remade: Mapping[Loop, Blocks] | None = None,
    steps: int = STEPS,
) -> list[Tree] | None:
    """The tree with its outermost loops over time tiled, where that is possible.  Changes arrays private to a row's loop.

    A block has `steps` steps.  Loops of `remade` become the blocks given there, whose arrays get their windows; None if that
    is not possible.
    """
    given = remade or {}
    boxes = [t.leaf.stmt for t in subtrees(tree) if isinstance(t, Box)]
    dense = {s.array for s in boxes} | {r.array for s in boxes for r in s.reads}
    out: list[Tree] = []
    for t in tree:
        new = None
        if isinstance(t, Loop) and not t.parallel and not t.tiled:
            new = _Tiler(lin, given.get(t) or _blocks(t, steps), arrays, deps, dense).tiled(always=t in given)
            if new is None and t in given:
                return None
        out.append(t if new is None else new)
    return out


def _blocks(loop: Loop, steps: int) -> Blocks:
    """A loop over time in blocks of `steps`."""
    var = f"{loop.var}b"
    low = loop.lows[0]
    last = extremum(Extremum.MIN, [divide(DivKind.FLOORDIV, h - low, IndexExpr.of(steps)) for h in loop.highs])
    return Blocks(var, last, (Phase(loop, low + IndexExpr.of(var) * steps, steps),))


class _Tiler:
    """Tiles one loop, or several that run one behind the other."""

    def __init__(
        self, lin: Linear, blocks: Blocks, arrays: dict[str, Array], deps: Sequence[Edge], dense: Collection[str]
    ):
        self.lin, self.blocks, self.arrays = lin, blocks, arrays
        self.dense = dense  # arrays that contractions read or write
        self.loops = [p.loop for p in blocks.phases]
        self.found = {leaf.stmt: (leaf, loops) for leaf, loops in leaves(self.loops)}
        self.reads = [e for e in deps if e.reader in self.found]
        self.deps = [e for e in self.reads if e.writer in self.found]
        self.places: dict[Statement, _Place] = {}
        self._after: dict[Statement, list[tuple[Statement, str, IndexExpr]]] = {}
        self._rows = {loops[1].var for _, loops in self.found.values() if len(loops) > 1}

    def tiled(self, *, always: bool) -> Tree | None:
        """The tiled loop; None if it cannot be tiled or, but for `always`, there is nothing to gain."""
        if any(len(loop.lows) != 1 for loop in self.loops):
            return None
        if any((a := self.arrays.get(s.array)) is not None and a.in_turn for s in self.found):
            return None
        if not any(len(loops) > 2 for _, loops in self.found.values()):
            return None  # rows of one element each: nothing to run through the cache
        rows = self._row_fields()
        pieces = None if rows is None else self._pieces(rows)
        if rows is None or pieces is None or not self._place(pieces) or (not always and self._at_hand()):
            return None
        for slope in SLOPES:
            shifts = self._shifts(slope)
            if shifts is not None and self._windows(rows, slope, shifts):
                self._pad()
                return self._emit(pieces, slope, shifts)
        return None

    def _at_hand(self) -> bool:
        """Whether all that steps read of earlier ones is known to be so small that it stays at hand without tiles."""
        bytes_: dict[str, int] = {}
        for e in self.deps:
            a, times = self.arrays.get(e.writer.array), self.places[e.writer].time
            _, back = self.lin.bounds(e.cons, self.places[e.reader].time - times.substitute(e.index))
            if a is None or back is None:
                return False
            sizes = [x.size.constant for x in a.axes if e.writer.fields[x.at] not in times.names]
            if None in sizes:
                return False
            one = prod(n for n in sizes if n is not None)
            bytes_[a.name] = max(bytes_.get(a.name, 0), a.kind.bytes * one * (back + 1))
        return sum(bytes_.values()) <= AT_HAND

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

    def _pieces(self, rows: Mapping[str, str]) -> list[list[_Piece]] | None:
        """The pieces of each phase."""
        out: list[list[_Piece]] = []
        group = 0
        for loop in self.loops:
            out.append([])
            for child in loop.body:
                made = self._of_child(group, child, rows, ())
                if made is None:
                    return None
                out[-1] += made
                group += 1
        return out

    def _of_child(self, group: int, child: Tree, rows: Mapping[str, str], cons: Cons) -> list[_Piece] | None:
        match child:
            case Guard():
                parts = [self._of_child(group, t, rows, (*cons, *child.cons)) for t in child.body]
                return None if any(p is None for p in parts) else [x for p in parts if p is not None for x in p]
            case Box() | Leaf() | Exchange():
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
            inner = {l.var for _, loops in inside for l in loops} | {child.var, *(l.var for l in self.loops)}
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

    def _place(self, pieces: Sequence[Sequence[_Piece]]) -> bool:
        """When each statement runs, by its fields; False if that is no simple function of them."""
        for phase, own in zip(self.blocks.phases, pieces, strict=True):
            var = phase.loop.var
            for p in own:
                if any(var in e.names for e in (*p.lows, *p.highs)):
                    return False
                for leaf, _ in leaves(p.body):
                    time = inverse(leaf, var)
                    row = p.lows[0] if p.var is None else inverse(leaf, p.var)
                    if time is None or row is None:
                        return False
                    self.places[leaf.stmt] = _Place(p.group, phase.clock, time, row)
        return set(self.places) == set(self.found)

    # -- shifts ---------------------------------------------------------------------------------------------------------
    def _shifts(self, slope: int) -> dict[int, int] | None:
        """By how much each group's rows run ahead, for a wave of this slope; None if none is found."""
        needed: list[tuple[int, int, int]] = []  # later, earlier, how far apart at least
        for e in self.deps:
            lo, _ = self._apart(e, slope)
            if lo is None:
                return None
            needed.append((self.places[e.reader].group, self.places[e.writer].group, -lo))
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

    def _apart(self, e: Edge, slope: int) -> tuple[int | None, int | None]:
        """By how many waves, shifts aside, a read comes after the write: the least and the greatest number."""
        w, r = self.places[e.writer], self.places[e.reader]
        if w.clock == r.clock:
            written = (w.row + w.time * slope).substitute(e.index)
            return self.lin.bounds(e.cons, self.lin.plain(r.row + r.time * slope - written))
        lo, hi = self.lin.bounds(e.cons, self.lin.plain(r.row - w.row.substitute(e.index)))
        least, most = self.blocks.apart
        return (None if lo is None else lo + least * slope), (None if hi is None else hi + most * slope)

    def _windows(self, rows: Mapping[str, str], slope: int, shifts: Mapping[int, int]) -> bool:
        """Give the arrays that are made again a place for as many rows as are waited for; False if that number is not found.

        Row i takes the place of row i - n when the last read of that is over: its write comes at least one wave later.
        """
        for name in self.blocks.again:
            mine = [s for s in self.found if s.array == name]
            ahead = {s: self._ahead(s, rows[name]) for s in mine}  # of the row's number, shifts aside
            first = min((shifts[self.places[s].group] + n for s, n in ahead.items() if n is not None), default=0)
            size = 1
            for e in self.deps:
                if e.writer.array == name:
                    own, (_, most) = ahead[e.writer], self._apart(e, slope)
                    if own is None or most is None:
                        return False
                    size = max(size, most + own + shifts[self.places[e.reader].group] - first + 1)
            a, size = self.arrays[name], power_of_two(size)
            at = mine[0].fields.index(rows[name])
            axes = (replace(x, extent=IndexExpr.of(size), modulus=size) if x.at == at else x for x in a.axes)
            self.arrays[name] = replace(a, axes=tuple(axes))
        return True

    def _ahead(self, s: Statement, field: str) -> int | None:
        """By how much the row at which a statement runs is more than the field of its array; None if it is no number."""
        row = self.places[s].row
        return 0 if not row.names & set(s.fields) else (row - IndexExpr.of(field)).constant

    @cached_property
    def _reuses(self) -> list[tuple[_Place, _Place, Cons, dict[str, IndexExpr]]]:
        """Where an element's place is given to another one after a read, or after the element itself was written: places of
        writer and reader, constraints over the reader's names, and the new element's index.  The old element may have been
        made before the loop."""
        again = set(self.blocks.again)
        written = [Edge(s, s, {f: IndexExpr.of(f) for f in s.fields}, s.cons) for s in self.found]
        edges = [e for e in (*self.reads, *written) if e.writer.array not in again]
        return [found for e in edges for found in self._overwritten(e)]

    def _overwritten(self, e: Edge) -> Iterator[tuple[_Place, _Place, Cons, dict[str, IndexExpr]]]:
        for other, field, step in self._successors(e.writer):
            later = e.index | {field: e.index[field] + step}
            also = (Con(_MORE), *(Con(self.lin.plain(c.e.substitute(later)), c.eq) for c in other.cons))
            cons = self.lin.tidy((*e.cons, *also))
            if self.lin.feasible(cons):
                yield self.places[other], self.places[e.reader], cons, later

    def _successors(self, w: Statement) -> list[tuple[Statement, str, IndexExpr]]:
        """Which statements put new elements in the places of a statement's: by how much of which field they are ahead.

        These are all later ones: one that has elements in every second step has none in the next.
        """
        if w in self._after:
            return self._after[w]
        out = self._after[w] = list[tuple[Statement, str, IndexExpr]]()
        array = self.arrays.get(w.array)
        for other, (leaf, _) in self.found.items() if array is not None else ():
            if other.array != w.array or array is None:
                continue
            var = self.found[other][1][0].var
            field = next(f for f in other.fields if _step(leaf.env.get(f), var) is not None)
            axis = next((a for a in array.axes if a.at == other.fields.index(field)), None)
            window = 1 if axis is None else axis.modulus
            if window is None:
                continue
            step = (_MORE + 1) * ((_step(leaf.env[field], var) or 0) * window)
            later = {field: IndexExpr.of(field) + step}
            cons = (*w.cons, Con(_MORE), *(Con(self.lin.plain(c.e.substitute(later)), c.eq) for c in other.cons))
            if self.lin.feasible(self.lin.tidy(cons)):
                out.append((other, field, step))
        return out

    # -- the loops --------------------------------------------------------------------------------------------------------
    def _pad(self) -> None:
        """Let the rows of grids begin such that the longest loop along them begins at a cache line."""
        for name in dict.fromkeys(s.array for s in self.found if s.array not in self.dense):
            a = self.arrays.get(name)
            if a is None or a.private is not None or len(a.axes) < 2:
                continue
            if (n := self.lin.plain(a.axes[-1].extent).constant) is not None and n < 32:
                continue
            axis = a.axes[-1]
            begins = [n for s in self.found if s.array == name and (n := self._begin(s, axis)) is not None]
            if begins:
                line = CACHE_LINE // a.kind.bytes
                padded = replace(axis, lead=-max(begins) % line, line=line)
                self.arrays[name] = replace(a, axes=(*a.axes[:-1], padded))

    def _begin(self, s: Statement, axis: Axis) -> int | None:
        """Where along an axis the innermost loop round a statement begins, if it is a long one along it."""
        leaf, loops = self.found[s]
        inner, e = loops[-1], leaf.env[s.fields[axis.at]]
        if _step(e, inner.var) != 1 or not self._long(inner.lows, inner.highs):
            return None
        return (e.substitute({inner.var: inner.lows[0]}) - axis.lower).constant

    def _long(self, lows: Sequence[IndexExpr], highs: Sequence[IndexExpr]) -> bool:
        """Whether a loop has many iterations, as far as is known."""
        return all((n := self.lin.bounds((), h - b)[1]) is None or n >= 24 for h in highs for b in lows)

    def _emit(self, pieces: Sequence[Sequence[_Piece]], slope: int, shifts: Mapping[int, int]) -> Tree:
        lag = slope * self.blocks.phases[0].steps if len(self.blocks.phases) == 1 and not self._private() else -1
        for a in self._private():
            a.private = None  # rows run one after the other now: one copy will do
        wave = f"{self.blocks.var.removesuffix('b')}w"
        every = [p for own in pieces for p in own]
        least = self._extreme([b + shifts[p.group] for p in every for b in p.lows[:1]], Extremum.MIN)
        most = self._extreme([b + shifts[p.group] for p in every for b in p.highs[:1]], Extremum.MAX)
        times = [self._times(*both, wave, slope, shifts) for both in zip(self.blocks.phases, pieces, strict=True)]
        steps = max(p.steps for p in self.blocks.phases)
        waves = Loop(wave, (least,), (most + slope * (steps - 1),), False, list(times))
        return Loop(self.blocks.var, (IndexExpr(),), (self.blocks.last,), False, [waves], tiled=True, lag=lag)

    def _times(
        self, phase: Phase, pieces: Sequence[_Piece], wave: str, slope: int, shifts: Mapping[int, int]
    ) -> Loop:
        """The steps of a phase that have a row in a wave."""
        loop, first, n = phase.loop, phase.first, IndexExpr.of(slope)
        least = self._extreme([b + shifts[p.group] for p in pieces for b in p.lows[:1]], Extremum.MIN)
        most = self._extreme([b + shifts[p.group] for p in pieces for b in p.highs[:1]], Extremum.MAX)
        at = IndexExpr.of(wave) - (IndexExpr.of(loop.var) - first) * slope
        lows = (first + phase.skipped, first + divide(DivKind.CEILDIV, IndexExpr.of(wave) - most, n))
        if phase.clamped:
            lows = (*loop.lows, *lows)
        highs = (*loop.highs, first + (phase.steps - 1), first + divide(DivKind.FLOORDIV, IndexExpr.of(wave) - least, n))
        body: list[Guard] = []
        behind: list[Guard] = []
        inner: Cons = ()
        plain = len(pieces)  # pieces behind that run at some steps only
        while plain and pieces[plain - 1].cons:
            plain -= 1
        for number, p in enumerate(pieces):
            row = at - shifts[p.group]
            cons = (*p.cons, *(Con(row - b) for b in p.lows), *(Con(b - row) for b in p.highs))
            if p.var is None:
                cons = (*p.cons, Con(row - p.lows[0], True))
            elif not p.cons and self._long(p.lows, p.highs):
                inner += cons
            row_of = {} if p.var is None else {p.var: row}
            copies = [t for t in (replaced(self.lin, t, row_of) for t in p.body) if t is not None]
            out = body if number < plain else behind
            if out and out[-1].cons == cons:
                out[-1].body += copies
            else:
                out.append(Guard(cons, copies))
        whole = self._inner_first(body, self.lin.minimal(inner, self.lin.params))
        return Loop(loop.var, lows, highs, False, [*whole, *behind])

    def _inner_first(self, body: list[Guard], inner: Cons) -> list[Tree]:
        """Guarded pieces with one test for the inner rows, where most of the tests need not be made."""
        if len(body) < 2 or not inner:
            return list(body)
        known = (*self.lin.params, *inner)
        here: list[Tree] = []
        elsewhere: list[Tree] = []
        for g in body:
            if self.lin.feasible((*known, *g.cons)):
                left = tuple(c for c in g.cons if not self.lin.implies(known, c))
                copies = [t for t in (replaced(self.lin, t, {}) for t in g.body) if t is not None]
                here += [Guard(left, copies)] if left else copies
            if any(self.lin.feasible((*self.lin.params, *g.cons, n)) for c in inner for n in c.negated()):
                elsewhere.append(g)
        return [Guard(inner, here, elsewhere)]

    def _private(self) -> list[Array]:
        """The arrays that one of the loops over rows had for itself; loops inside of rows keep theirs."""
        return [a for a in self.arrays.values() if a.private in self._rows]

    def _extreme(self, bounds: Sequence[IndexExpr], kind: Extremum) -> IndexExpr:
        sign = -1 if kind is Extremum.MIN else 1
        kept = self.lin.strongest(list(dict.fromkeys(bounds)), sign, self.lin.params)
        return extremum(kind, kept)


def power_of_two(n: int) -> int:
    """The least power of two that is not below a positive number: a modulus that costs nothing."""
    return 1 << (n - 1).bit_length()


def _step(e: IndexExpr | None, var: str) -> int | None:
    """The sign of a variable in ``±var + number``; None for other expressions."""
    if e is None:
        return None
    k = next((k for m, k in e.terms if m == (Var(var),)), 0)
    return k if abs(k) == 1 and (e - IndexExpr.of(var) * k).constant is not None else None


def _with(loop: Loop, body: list[Tree]) -> Loop:
    return Loop(loop.var, loop.lows, loop.highs, loop.parallel, body)
