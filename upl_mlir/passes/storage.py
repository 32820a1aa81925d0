"""Where the elements of each equation live: dense arrays of as few dimensions as the schedule allows.

A field that goes along with a loop needs no room for values that no later iteration reads: it is left out where an element
is read in the iteration that writes it, and kept modulo a small number where it is read a few iterations later.  Fields of
several loops (epochs and batches) are left out together where each element is read for the last time before the next one, by
whichever loop, is written to its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from upl_mlir.diagnostics import error
from upl_mlir.dialects.loops.attributes import Axis
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.statements import Edge, Statement, adds_to
from upl_mlir.passes.loops.system import System
from upl_mlir.passes.loops.tree import Box, Exchange, Guard, Leaf, Loop, Tree
from upl_mlir.poly.expr import IndexExpr, Lookup, Var, extremum
from upl_mlir.poly.linear import Con, Cons, Linear
from upl_mlir.poly.operators import Extremum

MAX_WINDOW = 8
"""Values that an array keeps along a field, at most: of a field that needs more, all are kept. Chosen, not measured; a
stencil needs as many as it reaches back, and one."""
FEW = 4
"""Axes of at most so many values come first in planar arrays. Chosen, not measured."""


@dataclass(eq=False)
class Array:
    """The array of an equation.  `private` is the variable of the parallel loop inside which each iteration has one of its
    own, None for an array of the whole run.

    `in_turn`: elements share places as they follow each other in several loops, whose order must stay as it is.
    """

    name: str
    kind: Kind
    axes: tuple[Axis, ...]
    private: str | None = None
    in_turn: bool = False


@dataclass(eq=False)
class _Access:
    leaf: Leaf
    path: tuple[int, ...]  # places in the bodies from the root to the leaf
    loops: dict[int, Loop]  # by depth in the path
    whole: bool = False  # a contraction, for all values of the fields that no loop gives
    added: bool = False  # of that kind, and each element is added to its own old one


_Timed = tuple[_Access, dict[str, IndexExpr]]
"""A statement and an instance of it: its fields by other names, where they have others."""


def span(lin: Linear, cases: Sequence[Cons], field: str, fields: Sequence[str]) -> tuple[IndexExpr, IndexExpr] | None:
    """Least and greatest value of a field over a domain, by parameters; None where no bound is found."""
    lows: list[IndexExpr] = []
    highs: list[IndexExpr] = []
    for case in cases:
        projected = lin.project(lin.normal(case)[0], [f for f in fields if f != field])
        low, high = lin.limits(projected, field, ())
        if not low or not high:
            return None
        lows.append(extremum(Extremum.MAX, lin.strongest(low, 1, ())))
        highs.append(extremum(Extremum.MIN, lin.strongest(high, -1, ())))
    if not cases:
        return IndexExpr(), IndexExpr.of(-1)
    lows = lin.strongest(list(dict.fromkeys(lows)), -1, ())
    highs = lin.strongest(list(dict.fromkeys(highs)), 1, ())
    return extremum(Extremum.MIN, lows), extremum(Extremum.MAX, highs)


def _hard(cases: Sequence[Cons], field: str) -> str:
    """What is not affine in the constraints of a field, as the end of a sentence."""
    terms = [m for case in cases for c in case if field in c.e.names for m, _ in c.e.terms]
    parts = dict.fromkeys(f"`{IndexExpr(((m, 1),))}`" for m in terms if len(m) > 1 or any(not isinstance(a, Var) for a in m))
    return f": its bounds have {', '.join(parts)}" if parts else ""


def box(lin: Linear, cases: Sequence[Cons], fields: Sequence[str], what: str) -> list[tuple[IndexExpr, IndexExpr]]:
    """The bounds of every field.  Raises UplError (UPL1825)."""
    out: list[tuple[IndexExpr, IndexExpr]] = []
    for f in fields:
        got = span(lin, cases, f, fields)
        if got is None:
            message = f"no bounds found for the field `{f}` of `{what}`{_hard(cases, f)}"
            raise error("UPL1825", message, help="declare its domain")
        out.append(got)
    return out


class Storage:
    """Maps every equation that is no output to an array."""

    def __init__(self, system: System, tree: Sequence[Tree], deps: Sequence[Edge]):
        self.system, self.lin = system, system.lin
        self.deps = deps
        self.accesses: dict[Statement, _Access] = {}
        self._walk(tree, (), {})

    def _walk(self, body: Sequence[Tree], path: tuple[int, ...], loops: dict[int, Loop]) -> None:
        for i, t in enumerate(body):
            here = (*path, i)
            match t:
                case Leaf():
                    self.accesses[t.stmt] = _Access(t, here, loops)
                case Loop():
                    self._walk(t.body, here, {**loops, len(path): t})
                case Guard():
                    self._walk(t.body, here, loops)
                case Box():
                    added = not t.contraction.terms and adds_to(t.leaf.stmt) is not None
                    self.accesses[t.leaf.stmt] = _Access(t.leaf, here, loops, whole=True, added=added)
                case Exchange():
                    pass  # what is received gets its room from `distribute`

    def arrays(self) -> dict[str, Array]:
        """The arrays by name."""
        out: dict[str, Array] = {}
        for name, eq in self.system.equations.items():
            if eq.output:
                continue
            writers = [s for s in self.accesses if s.array == name]
            deps = [e for e in self.deps if e.writer.array == name]
            bounds = box(self.lin, [c for s in writers for c in self._by_entries(s)], eq.fields, name)
            windows, loop = self._windows(writers, deps)
            few = {f for f, (lo, hi) in zip(eq.fields, bounds, strict=True) if self._few(hi - lo)}
            in_turn = self._in_turn(writers, deps, {*windows, *few}) if loop is None else set[str]()
            windows |= dict.fromkeys(in_turn, 1)
            axes = [
                Axis(i, lo, IndexExpr.of(m) if (m := windows.get(f)) else hi - lo + 1, windows.get(f))
                for i, (f, (lo, hi)) in enumerate(zip(eq.fields, bounds, strict=True))
                if windows.get(f) != 1
            ]
            if eq.planar:
                axes.sort(key=lambda a: (n := self.lin.plain(a.extent).constant) is None or n > FEW)
            private = None if loop is None else loop.var
            out[name] = Array(name, eq.kind, tuple(axes), private, in_turn=bool(in_turn))
        return out

    def without(self, arrays: dict[str, Array], gone: Collection[Statement]) -> None:
        """Take out of the arrays what only statements would write that are gone; changes the arrays."""
        for name in {s.array for s in gone}:
            a, eq = arrays[name], self.system.equations[name]
            writers = [s for s in self.accesses if s.array == name and s not in gone]
            if not writers:
                del arrays[name]
            elif not any(x.line for x in a.axes):
                bounds = box(self.lin, [c for s in writers for c in self._by_entries(s)], eq.fields, name)
                ends = {i: (lo, hi - lo + 1) for i, (lo, hi) in enumerate(bounds)}
                a.axes = tuple(
                    x if x.modulus else replace(x, lower=ends[x.at][0], extent=ends[x.at][1]) for x in a.axes
                )

    def _by_entries(self, s: Statement) -> list[Cons]:
        """The constraints of a statement for each value of the fields that pick entries of arrays, if these are few: of a
        bound that is an entry is known else only that it is one of all.  Where there is no such entry, nothing is there."""
        atoms = {a for c in s.cons for m, _ in c.e.terms for a in m}
        exist: list[Con] = []
        for a in atoms:
            if isinstance(a, Lookup):
                low, high = self.lin.ctx.entries(a.array)
                exist += [Con(a.index - low, False), Con(high - a.index, False)]
        if not exist:
            return [s.cons]
        cases = [(*s.cons, *exist)]
        for f in s.fields:
            if any(isinstance(a, Lookup) and f in a.index.names for a in atoms):
                lo, hi = self.lin.bounds(s.cons, IndexExpr.of(f))
                if lo is None or hi is None or hi - lo >= MAX_WINDOW:
                    return [s.cons]
                values = [IndexExpr.of(n) for n in range(lo, hi + 1)]
                cases = [(*self._at(c, {f: v}), Con(IndexExpr.of(f) - v, True)) for c in cases for v in values]
        return [c for c in cases if self.lin.feasible(c)]

    def _at(self, cons: Cons, values: dict[str, IndexExpr]) -> Cons:
        return self.lin.tidy(Con(self.lin.plain(c.e.substitute(values)), c.eq) for c in cons)

    # -- windows ----------------------------------------------------------------------------------------------------------
    def _windows(self, writers: list[Statement], deps: list[Edge]) -> tuple[dict[str, int], Loop | None]:
        """How many values of a field are kept, for fields of which not all are; and the loop inside which that is so."""
        windows: dict[str, int] = {}
        private: Loop | None = None
        users = list(dict.fromkeys([*writers, *(e.reader for e in deps)]))
        if any(r.array == writers[0].array for s in self.accesses if s not in users for r in s.reads):
            return windows, None  # by a statement that no element reaches: it never runs, but its code is there
        depth = 0
        while True:
            heads = {self.accesses[s].path[: depth + 1] for s in users}
            if len(heads) > 1:
                self._with_outsiders(depth, users, writers, deps, windows)
                return windows, private
            if any(len(self.accesses[s].path) <= depth + 1 for s in users):
                return windows, private
            loop = self.accesses[users[0]].loops.get(depth)
            if loop is not None:
                found = self._along(loop, writers)
                if found is None:
                    return windows, private
                field, sign, shifts = found
                late = self._latest(loop, field, sign, shifts, deps)
                if late is None:
                    return windows, private
                # writers with other shifts write other elements in the same iteration: these are all there at a time
                reach = late + max(shifts.values()) - min(shifts.values())
                if reach + 1 > MAX_WINDOW or (reach and loop.parallel):
                    return windows, private
                size = reach
                if not reach or not self._in_place(depth, loop, field, sign, reach, writers, deps):
                    size = reach + 1
                windows[field] = size
                if reach:
                    return windows, private
                if loop.parallel:
                    private = loop
            depth += 1

    def _along(self, loop: Loop, writers: Sequence[Statement]) -> tuple[str, int, dict[Statement, int]] | None:
        """The field that goes along with a loop in all writers: its name, sign and shifts (``var = sign*field + shift``)."""
        for field in writers[0].fields:
            shifts: dict[Statement, int] = {}
            signs: set[int] = set()
            for w in writers:
                e = self.accesses[w].leaf.env.get(field)
                k = 0 if e is None else next((k for m, k in e.terms if m == (Var(loop.var),)), 0)
                shift = None if e is None or abs(k) != 1 else (e * -k + IndexExpr.of(loop.var)).constant
                if shift is None:
                    break
                signs.add(k)
                shifts[w] = shift
            else:
                if len(signs) == 1:
                    return field, signs.pop(), shifts
        return None

    def _latest(
        self, loop: Loop, field: str, sign: int, shifts: dict[Statement, int], deps: Sequence[Edge]
    ) -> int | None:
        """By how many iterations of the loop the last read of an element comes after its writing."""
        out = 0
        for e in deps:
            env = self.accesses[e.reader].leaf.env
            time = IndexExpr.of(loop.var) - (e.index[field].substitute(env) * sign + shifts[e.writer])
            cons = tuple(Con(self.lin.plain(c.e.substitute(env)), c.eq) for c in e.cons)
            lo, hi = self.lin.bounds(cons, self.lin.plain(time))
            if lo is None or hi is None or (lo < 0 and hi >= lo):
                return None
            out = max(out, hi)
        return out

    def _with_outsiders(
        self, depth: int, users: list[Statement], writers: list[Statement], deps: list[Edge], windows: dict[str, int]
    ) -> None:
        """A window along a loop before which some elements are written, and after which some are read."""
        at = {s: self.accesses[s].path[depth] for s in users}
        inside = [s for s in users if depth in self.accesses[s].loops]
        homes = {at[s]: self.accesses[s].loops[depth] for s in inside if s in writers}
        for home, loop in homes.items():
            mine = [w for w in writers if at[w] == home]
            early = [w for w in writers if at[w] < home]
            found = self._along(loop, mine)
            if loop.parallel or found is None or any(at[w] > home for w in writers):
                continue
            field, sign, shifts = found
            within = [e for e in deps if at[e.reader] == home and at[e.writer] == home]
            late = self._latest(loop, field, sign, shifts, within)
            if late is None or late + 1 > MAX_WINDOW:
                continue
            if len(set(shifts.values())) > 1:
                continue
            shift = next(iter(shifts.values()))
            # an element written before the loop counts as written when the loop would have written it
            from_before = [e for e in deps if at[e.reader] == home and at[e.writer] != home]
            first = self._latest(loop, field, sign, {**shifts, **dict.fromkeys(early, shift)}, from_before)
            if first is None or first + 1 > MAX_WINDOW:
                continue
            size = max(late, first)
            if not size or not self._in_place(depth, loop, field, sign, size, mine, [*within, *from_before]):
                size += 1
            if self._keeps(field, sign, size, mine, early, [e for e in deps if at[e.reader] > home]):
                if not any(at[e.reader] < home for e in deps):
                    windows[field] = size
                return

    def _in_place(
        self, depth: int, loop: Loop, field: str, sign: int, size: int, writers: Sequence[Statement], deps: Sequence[Edge]
    ) -> bool:
        """Whether each element can take the place of the one `size` iterations before it: all reads of that come first."""
        for e in deps:
            for w in writers:
                later = e.index | {field: e.index[field] + sign * size}
                if not self._before(depth, e, w, later):
                    return False
        return True

    def _before(self, depth: int, e: Edge, w: Statement, index: dict[str, IndexExpr]) -> bool:
        """Whether the read of a dependence comes before statement `w` writes the element `index` (by names of the reader).

        Both stand in the loop at `depth`.  The same instance reads before it writes, but for a contraction: of that, which
        is all instances at once, some have been written when others are still to read.  Where data choose the elements that
        are added to, each instance reads its own old one only.
        """
        r, o = self.accesses[e.reader], self.accesses[w]
        names = {f: IndexExpr.of(f"other {f}") for f in w.fields}
        same = tuple(Con(names[f] - index[f], True) for f in w.fields)
        cons = (*e.cons, *(Con(c.e.substitute(names), c.eq) for c in w.cons), *same)
        for at in range(depth, min(len(r.path), len(o.path))):
            if r.path[at] != o.path[at]:
                return r.path[at] < o.path[at] or not self.lin.feasible(cons)
            shared = r.loops.get(at)
            if shared is None:
                continue
            mine, theirs = inverse(r.leaf, shared.var), inverse(o.leaf, shared.var)
            if mine is None or theirs is None:
                return False
            apart = self.lin.plain(theirs.substitute(names) - mine)
            lo, hi = self.lin.bounds(cons, apart)
            if lo is None or lo < 0 or (shared.parallel and hi != 0):
                return False
            cons = (*cons, Con(apart, True))
            if not self.lin.feasible(cons):
                return True
        if r.leaf is not o.leaf or not r.whole:
            return r.leaf is o.leaf
        return r.added and all(self.lin.plain(index[f] - IndexExpr.of(f)).constant == 0 for f in w.fields)

    # -- elements that follow each other in several loops -----------------------------------------------------------------
    def _few(self, extent: IndexExpr) -> bool:
        return (n := self.lin.plain(extent).constant) is not None and n < MAX_WINDOW

    def _in_turn(self, writers: list[Statement], deps: list[Edge], small: Collection[str]) -> set[str]:
        """The fields of several loops that run one iteration after the other, outer ones first, if one value of them at a
        time is enough; of one loop `_windows` knows as much.  Fields that are `small` anyway are not worth it alone."""
        found = set[str]()
        fields = set[str]()
        for more in self._sequential(writers):
            several = bool(fields)
            fields |= more
            if several and not all(f in small for f in more):
                if not self._one_at_a_time(writers, deps, fields):
                    break
                found |= fields
        return found

    def _one_at_a_time(self, writers: list[Statement], deps: list[Edge], fields: set[str]) -> bool:
        """Whether no element is written between the writing and a read of another one that differs in these fields only."""
        rest = [f for f in writers[0].fields if f not in fields]
        for e in deps:
            written, read = (self.accesses[e.writer], e.index), (self.accesses[e.reader], dict[str, IndexExpr]())
            for o in writers:
                names = {f: IndexExpr.of(f"other {f}") for f in o.fields}
                same = (Con(names[f] - e.index[f], True) for f in rest)
                cons = (*e.cons, *(Con(self.lin.plain(c.e.substitute(names)), c.eq) for c in o.cons), *same)
                between = (self.accesses[o], names)
                # all that one run of a contraction writes has the same values of the fields that loops give
                for first in self._orders(written, between, apart=fields <= self.accesses[o].leaf.env.keys()):
                    if self.lin.feasible((*cons, *first)) and any(
                        self.lin.feasible((*cons, *first, *second)) for second in self._orders(between, read)
                    ):
                        return False
        return True

    def _sequential(self, writers: list[Statement]) -> list[set[str]]:
        """The fields that go along with loops that are not parallel, by the loops, outer ones first."""
        found: dict[int, set[str]] = {}
        for a in (self.accesses[w] for w in writers):
            for depth, loop in a.loops.items():
                if not loop.parallel:
                    x = Var(loop.var)
                    along = {f for f, e in a.leaf.env.items() if any(m == (x,) for m, _ in e.terms)}
                    found.setdefault(depth, set()).update(along)
        return [found[depth] for depth in sorted(found) if found[depth]]

    def _orders(self, a: _Timed, b: _Timed, *, apart: bool = False) -> Iterator[Cons]:
        """Under which constraints an instance may run before another one; `apart`: the two are not of one contraction."""
        equal: Cons = ()
        for at, (mine, theirs) in enumerate(zip(a[0].path, b[0].path, strict=False)):
            if mine != theirs:
                if mine < theirs:
                    yield equal
                return
            loop = a[0].loops.get(at)
            if loop is None:
                continue
            times = [inverse(x.leaf, loop.var) for x, _ in (a, b)]
            if times[0] is None or times[1] is None:
                yield equal
                return
            later = self.lin.plain(times[1].substitute(b[1]) - times[0].substitute(a[1]))
            yield (*equal, Con(later - 1))
            if loop.parallel:
                yield (*equal, Con(-later - 1))
            equal = (*equal, Con(later, True))
        if a[0].whole and not apart:  # a contraction reads and writes as it likes
            yield equal

    def _keeps(
        self, field: str, sign: int, size: int, mine: list[Statement], early: list[Statement], after: list[Edge]
    ) -> bool:
        """Whether a window of `size` holds what is written before the loop until it is read, and what is read after it.

        Two elements can be in each other's way only if their other fields are the same: these have axes of their own, or do
        not change while the loop runs.
        """
        other, value = IndexExpr.of("other value"), IndexExpr.of(field)
        index = {f: IndexExpr.of(f) for f in mine[0].fields}
        for w in early:
            for v in early:
                lo, hi = self.lin.bounds((*w.cons, *self._elsewhere(v, field, index)), value - other)
                if lo is None or hi is None or max(-lo, hi) >= size:
                    return False
            for m in mine:  # the loop writes later values only
                if self.lin.feasible((*w.cons, *self._elsewhere(m, field, index), Con((value - other) * sign))):
                    return False
        for e in after:
            for m in mine:
                late = Con((other - e.index[field]) * sign - size)
                if self.lin.feasible((*e.cons, *self._elsewhere(m, field, e.index), late)):
                    return False
        return True

    def _elsewhere(self, s: Statement, field: str, index: dict[str, IndexExpr]) -> Cons:
        """The constraints of a statement at `index`, but that its field is ``other value``."""
        at = index | {field: IndexExpr.of("other value")}
        return tuple(Con(self.lin.plain(c.e.substitute(at)), c.eq) for c in s.cons)


def inverse(leaf: Leaf, var: str) -> IndexExpr | None:
    """A loop's variable by the fields of a statement in it; None if no field is the variable plus or minus a number."""
    x = IndexExpr.of(var)
    for f, e in leaf.env.items():
        k = next((k for m, k in e.terms if m == (Var(var),)), 0)
        if abs(k) == 1 and (e - x * k).constant is not None:
            return (IndexExpr.of(f) - (e - x * k)) * k
    return None
