"""States made again: where a loop over time reads all states of an earlier one, the last ones first, only every
`SEGMENT`-th is kept, and the others are made again, segment by segment, in the wavefront that reads them.

    for t in 1..T:  U<t> = f(U<t-1>)              for t in 1..T:  U<t> = f(U<t-1>); at some t: kept<t> = U<t>
    for t in T-1..0 downwards:               ->   for each segment k, the last one first:
      D<t> = g(D<t+1>, U<t>)                        for t in the segment:  again<t> = kept<t>, or f(again<t-1>)
                                                    for t in the segment, downwards:  D<t> = g(D<t+1>, again<t>)

A state of a large grid costs more to write to memory and to read back than to compute. So this is done for grids whose
states are made by few operations; the wavefront (`wavefront.py`) keeps a few rows of each state made again. Source: AUTODIFF
section 4; Griewank and Walther 2000; Wonnacott 2000 for the wave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from upl_mlir.dialects.loops.attributes import Axis
from upl_mlir.passes.loops.graph import op_cost
from upl_mlir.passes.loops.statements import Edge, Read, Statement
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Apply, Fold, Get, Term, renamed, walk
from upl_mlir.passes.loops.transform.wavefront import Blocks, Phase, power_of_two
from upl_mlir.passes.loops.tree import Box, Exchange, Guard, Leaf, Loop, Tree, leaves, replaced, subtrees
from upl_mlir.passes.storage import Array, box, inverse
from upl_mlir.poly.expr import IndexExpr, Var, divide, extremum
from upl_mlir.poly.linear import Con
from upl_mlir.poly.operators import DivKind, Extremum

SEGMENT = 10
"""Every so many states one is kept. Case d′ of `bench/native` was measured with it; other values are not on record."""
COST = 64
"""States whose elements cost more operations are kept. In additions; chosen, not measured."""
LARGE = 64
"""A field of more values than that, or of an unknown number, makes a state large; it must have two. Chosen, not
measured."""


@dataclass(eq=False)
class Remade:
    """A tree in which states are kept and made again, not tiled yet: `blocks` says how for the loop that reads them.

    `states` are the arrays of which now few steps must be enough (by the place of the field that is time), else nothing is
    gained; `equations` and `arrays` are the new ones.
    """

    tree: list[Tree]
    deps: list[Edge]
    blocks: dict[Loop, Blocks]
    states: dict[str, int]
    equations: dict[str, Equation]
    arrays: dict[str, Array]


def remade(
    system: System, tree: Sequence[Tree], deps: Sequence[Edge], segment: int = SEGMENT, cost: int = COST
) -> Remade | None:
    """The tree with states made again; None where nothing is to be made again.

    Every `segment`-th state is kept; states whose elements cost more than `cost` additions are all kept.
    """
    loops = [(at, t) for at, t in enumerate(tree) if isinstance(t, Loop) and not t.parallel]
    for at, back in loops:
        for before, forth in loops:
            if before < at:
                found = _Maker(system, tree, deps, before, forth, at, back, segment, cost).make()
                if found is not None:
                    return found
    return None


@dataclass(frozen=True)
class _Time:
    """The field of an array that is time: the forward loop's variable is ``sign * field + shift``."""

    field: str
    sign: int
    shift: int

    def of(self, value: IndexExpr) -> IndexExpr:
        """The variable by the field."""
        return value * self.sign + self.shift

    def value(self, var: IndexExpr) -> IndexExpr:
        """The field by the variable."""
        return (var - self.shift) * self.sign


class _Maker:
    """Looks at one pair of loops."""

    def __init__(
        self, system: System, tree: Sequence[Tree], deps: Sequence[Edge], before: int, forth: Loop, at: int, back: Loop,
        segment: int, cost: int,
    ):  # fmt: skip
        self.segment, self.cost = segment, cost
        self.system, self.lin = system, system.lin
        self.tree, self.deps = tree, deps
        self.before, self.forth, self.at, self.back = before, forth, at, back
        self.place = {leaf.stmt: (i, leaf) for i, t in enumerate(tree) for leaf, _ in leaves([t])}
        self.times: dict[str, _Time] = {}
        self.carried: set[str] = set()  # arrays of which a step needs the one before

    def make(self) -> Remade | None:
        """The tree with states made again, or None."""
        if len(self.forth.lows) != 1 or len(self.back.lows) != 1:
            return None
        names = {e.writer.array for e in self.deps if self._in(e.writer, self.before) and self._in(e.reader, self.at)}
        names = self._closed(names)
        if not names or not all(map(self._large, names)):
            return None
        if any(isinstance(t, Box) for t in subtrees([self.forth, self.back])):
            return None
        writers = [s for s in self.place if s.array in names]
        mine = [s for s in writers if self._in(s, self.before)]
        early = [s for s in writers if self.place[s][0] < self.before]
        if len(mine) + len(early) < len(writers) or not self._simple(mine, early, names):
            return None
        if not all(self._timed(n, mine, early) for n in sorted(names)) or not self._one_step(names):
            return None
        if not self.carried <= {s.array for s in early}:
            return None
        found = self._read_times(names)
        return None if found is None else self._made(names, mine, early, *found)

    def _closed(self, names: set[str]) -> set[str]:
        """Arrays with those of the forward loop that they are made from."""
        found, size = set(names), 0
        while size < len(found):
            size = len(found)
            found |= {
                e.writer.array for e in self.deps
                if e.reader.array in found and self._in(e.reader, self.before) and self._in(e.writer, self.before)
            }  # fmt: skip
        return found

    def _in(self, s: Statement, at: int) -> bool:
        return self.place[s][0] == at

    # -- whether it can be, and is worth it -----------------------------------------------------------------------------
    def _large(self, name: str) -> bool:
        """Whether the states of an array are large grids, and boxes."""
        eq = self.system.equations[name]
        if eq.output or eq.planar or len(eq.domain) != 1 or any(len(c.e.names & set(eq.fields)) > 1 for c in eq.domain[0]):
            return False
        sizes = [self.lin.bounds(eq.domain[0], IndexExpr.of(f)) for f in eq.fields]
        return sum(lo is None or hi is None or hi - lo >= LARGE for lo, hi in sizes) > 2  # time, and two more

    def _simple(self, mine: Sequence[Statement], early: Sequence[Statement], names: set[str]) -> bool:
        """Whether the states are made by few operations from each other and from the host's arrays."""
        for s in (*mine, *early):
            cost = 0
            for t, _ in walk(s.term):
                if isinstance(t, Apply):
                    cost += op_cost(t.op)
                elif isinstance(t, Fold):
                    if any(p.dims for p in t.parts):
                        return False
                    cost += len(t.parts)
            if cost > self.cost or any(r.array not in names for r in s.reads):
                return False
        plain = {leaf.stmt for t in subtrees(self.tree) if isinstance(leaf := t, Leaf)}
        return all(s in plain and not s.reads for s in early)

    def _timed(self, name: str, mine: Sequence[Statement], early: Sequence[Statement]) -> bool:
        """Whether all statements of an array have the loop's variable as the same field; the early ones just before it."""
        found: set[_Time] = set()
        for s in mine:
            if s.array == name:
                leaf = self.place[s][1]
                field = next((f for f in s.fields if _coefficient(leaf.env.get(f), self.forth.var)), None)
                if field is None:
                    return False
                sign = _coefficient(leaf.env[field], self.forth.var)
                shift = (IndexExpr.of(self.forth.var) - leaf.env[field] * sign).constant
                if shift is None:
                    return False
                found.add(_Time(field, sign, shift))
        if len(found) != 1:
            return False
        time = self.times[name] = found.pop()
        start = self.forth.lows[0] - 1
        for s in early:
            value = self.place[s][1].env.get(time.field) if s.array == name else time.value(start)
            if value is None or self.lin.plain(time.of(value) - start) != IndexExpr():
                return False
        return True

    def _one_step(self, names: set[str]) -> bool:
        """Whether a state follows from the one before it, and itself."""
        for e in self.deps:
            if e.writer.array in names and self._in(e.reader, self.before) and e.reader.array in names:
                var = inverse(self.place[e.reader][1], self.forth.var)
                if var is None:
                    return False
                time = self.times[e.writer.array]
                lo, hi = self.lin.bounds(e.cons, self.lin.plain(var - time.of(e.index[time.field])))
                if lo is None or hi is None or lo < 0 or hi > 1:
                    return False
                if hi == 1:
                    self.carried.add(e.writer.array)
        return True

    def _read_times(self, names: set[str]) -> tuple[int, int] | None:
        """The least and the greatest sum of the backward loop's variable and the time of a state read there.

        Arrays that are not carried are not there when a segment begins: they count as needed one step earlier.
        """
        least: list[int] = []
        most: list[int] = []
        for e in self.deps:
            if e.writer.array in names and self._in(e.reader, self.at):
                var = inverse(self.place[e.reader][1], self.back.var)
                if var is None:
                    return None
                time = self.times[e.writer.array]
                lo, hi = self.lin.bounds(e.cons, self.lin.plain(var + time.of(e.index[time.field])))
                if lo is None or hi is None:
                    return None
                least.append(lo if e.writer.array in self.carried else lo - 1)
                most.append(hi)
        return min(least), max(most)

    # -- the new tree ---------------------------------------------------------------------------------------------------
    def _made(
        self, names: set[str], mine: Sequence[Statement], early: Sequence[Statement], least: int, most: int
    ) -> Remade | None:
        block = f"{self.back.var}b"
        count = IndexExpr.of(self.segment)
        base = self.back.lows[0] * -1 + (least - self.segment + 1)  # when the first segment begins
        low = self.back.lows[0]
        last = extremum(Extremum.MIN, [divide(DivKind.FLOORDIV, h - low, count) for h in self.back.highs])
        begin = base - IndexExpr.of(block) * self.segment
        start, again = IndexExpr.of(f"{self.forth.var}s"), IndexExpr.of(f"{self.forth.var}r")
        length = self.segment + most - least
        new = _Statements(self, mine, early, base)

        # forwards: what a segment begins with is kept
        var = IndexExpr.of(self.forth.var)
        which = divide(DivKind.FLOORDIV, base - var, count)
        at_start = (
            Con(divide(DivKind.MOD, base - var, count), True), Con(base - var), Con(last - which),
        )  # fmt: skip
        keeping = [new.nest(n, new.saved[n], var) for n in new.saved]
        forth = [*self.forth.body, Guard(at_start, keeping)]

        # backwards: restored or made anew at its start, the others made again
        first: list[Tree] = []
        later: list[Tree] = []
        for t in self.tree[: self.before]:
            copy = _with(t, lambda leaf: new.init(leaf, start) if leaf.stmt in early else None)
            if copy is not None:
                first.append(Guard((Con(self.forth.lows[0] - 1 - start),), [copy]))
        for child in self.forth.body:
            copy = _with(child, lambda leaf: _other(leaf, new.again))
            moved = None if copy is None else replaced(self.lin, copy, {self.forth.var: again})
            later += [] if moved is None else [moved]
        restoring = [new.nest(n, new.restored[n], start) for n in new.restored]
        first.append(Guard((Con(start - self.forth.lows[0]),), restoring))
        opening = (extremum(Extremum.MAX, [self.forth.lows[0] - 1, begin]),)
        one = Loop(start.name or "", (self.forth.lows[0] - 1,), opening, False, first)
        rest = Loop(again.name or "", self.forth.lows, self.forth.highs, False, later)
        back = _with(self.back, lambda leaf: _other(leaf, new.readers) or leaf)
        assert isinstance(back, Loop)
        blocks = Blocks(
            block,
            last,
            (
                Phase(one, begin, length, clamped=True),
                Phase(rest, begin, length, skipped=1, clamped=True),
                Phase(back, low + IndexExpr.of(block) * self.segment, self.segment, 1),
            ),
            (least - most - self.segment + 1, self.segment - 1),
            tuple(f"{n}.again" for n in self.times),
        )
        tree = list(self.tree)
        tree[self.before] = replace(self.forth, body=forth)
        tree[self.at] = back
        at = {n: self.system.equations[n].fields.index(t.field) for n, t in self.times.items()}
        return Remade(tree, new.edges(), {back: blocks}, at, *new.declared(base, last, length))


class _Statements:
    """The statements of the new tree by those of the old one."""

    def __init__(self, maker: _Maker, mine: Sequence[Statement], early: Sequence[Statement], base: IndexExpr):
        self.maker, self.early = maker, early
        names = {s.array for s in mine}
        to_again = {n: f"{n}.again" for n in names}
        memo: dict[Term, Term] = {}

        def again(s: Statement, array: str) -> Statement:
            reads = [replace(r, array=to_again.get(r.array, r.array)) for r in s.reads]
            return replace(s, array=array, term=renamed(s.term, to_again, memo), reads=reads)

        self.again = {s: again(s, to_again[s.array]) for s in mine}
        self.anew = {s: again(s, to_again[s.array]) for s in early}
        self.restored: dict[str, Statement] = {}
        self.saved: dict[str, Statement] = {}
        for name in (n for n in maker.times if n in maker.carried):
            time, eq = maker.times[name], maker.system.equations[name]
            own = {f: IndexExpr.of(f) for f in eq.fields}
            kept = Get(eq.kind, f"{name}.kept", tuple(own.values()))
            state = Get(eq.kind, name, tuple(own.values()))
            some = next(s for s in mine if s.array == name)
            at_start = Con(divide(DivKind.MOD, base - time.of(own[time.field]), IndexExpr.of(maker.segment)), True)
            whole = replace(some, cons=(*eq.domain[0], at_start), free=eq.fields, fixed={}, reads=[])
            self.restored[name] = replace(whole, array=to_again[name], term=kept)
            reads = [Read(name, state.index, whole.cons)]
            self.saved[name] = replace(whole, array=kept.array, term=state, reads=reads)
        back = {e.reader for e in maker.deps if e.writer.array in names and maker.place[e.reader][0] == maker.at}
        self.readers = {s: again(s, s.array) for s in back}

    def nest(self, name: str, s: Statement, at: IndexExpr) -> Tree:
        """A statement for all of a state, at a value of the loop's variable."""
        time = self.maker.times[name]
        env = {time.field: time.value(at)}
        out: Tree = Leaf(s, env)
        for f, (lo, hi) in reversed(list(self._bounds(name).items())):
            if f != time.field:
                env[f] = IndexExpr.of(f"{at}_{f}")
                out = Loop(f"{at}_{f}", (lo,), (hi,), True, [out])
        return out

    def _bounds(self, name: str) -> dict[str, tuple[IndexExpr, IndexExpr]]:
        eq = self.maker.system.equations[name]
        return dict(zip(eq.fields, box(self.maker.lin, eq.domain, eq.fields, name), strict=True))

    def init(self, leaf: Leaf, var: IndexExpr) -> Leaf:
        """A leaf from before the loop, which makes the first state again."""
        time = self.maker.times[leaf.stmt.array]
        return Leaf(self.anew[leaf.stmt], {**leaf.env, time.field: time.value(var)})

    def edges(self) -> list[Edge]:
        """All dependences."""
        out: list[Edge] = []
        for e in self.maker.deps:
            read_back, made_again = e.reader in self.readers, e.reader in self.again
            made = (self.again.get(e.writer), self.anew.get(e.writer))
            sources = [w for w in made if w is not None]
            if e.writer in self.again and e.writer.array in self.restored:
                sources.append(self.restored[e.writer.array])
            if not sources or not read_back:
                writer, reader = (self.readers.get(s, s) for s in (e.writer, e.reader))
                out.append(replace(e, writer=writer, reader=reader))
            if sources and (read_back or made_again):
                reader = self.readers[e.reader] if read_back else self.again[e.reader]
                out += [replace(e, writer=w, reader=reader) for w in sources]
        for s in self.again:
            if s.array in self.saved:
                out.append(Edge(s, self.saved[s.array], {f: IndexExpr.of(f) for f in s.fields}, s.cons))
        return out

    def declared(self, base: IndexExpr, last: IndexExpr, length: int) -> tuple[dict[str, Equation], dict[str, Array]]:
        """The equations and arrays of what is kept and what is made again."""
        equations: dict[str, Equation] = {}
        arrays: dict[str, Array] = {}
        window = power_of_two(length)
        for name, time in self.maker.times.items():
            eq = self.maker.system.equations[name]
            every = -time.sign * self.maker.segment  # the later a segment is kept, the earlier it is read
            segments = Axis(eq.fields.index(time.field), time.value(base), last + 1, every=every)
            steps = Axis(segments.at, IndexExpr(), IndexExpr.of(window), window)
            others = [Axis(i, lo, hi - lo + 1) for i, (lo, hi) in enumerate(self._bounds(name).values())]
            for what, axis in (("kept", segments), ("again", steps)):
                if what == "kept" and name not in self.maker.carried:
                    continue
                axes = tuple(axis if x.at == axis.at else x for x in others)
                own = f"{name}.{what}"
                equations[own] = Equation(own, eq.kind, eq.fields, eq.domain)
                arrays[own] = Array(own, eq.kind, axes)
        return equations, arrays


def _with(t: Tree, change: Callable[[Leaf], Leaf | None]) -> Tree | None:
    """A copy of a tree with its leaves changed; those that become None are left out."""
    match t:
        case Leaf():
            return change(t)
        case Loop() | Guard():
            body = [new for b in t.body if (new := _with(b, change)) is not None]
            return replace(t, body=body) if body else None
        case Box() | Exchange():
            return None


def _other(leaf: Leaf, statements: Mapping[Statement, Statement]) -> Leaf | None:
    """A leaf with the statement that stands for its own, None if none does."""
    found = statements.get(leaf.stmt)
    return None if found is None else Leaf(found, leaf.env)


def _coefficient(e: IndexExpr | None, var: str) -> int:
    """1 or -1 if an expression is a variable times that, plus something else; else 0."""
    k = 0 if e is None else next((k for m, k in e.terms if m == (Var(var),)), 0)
    return k if abs(k) == 1 else 0
