"""In which order statements run: a tree of loops.

Allen and Kennedy's way, with shifts: the statements that depend on each other in a circle need a common loop along which no
dependence goes back; those that it carries are done with, and what is left is ordered inside.  Statements that do not
are ordered by their dependences, and loops over the same values are fused where that keeps every dependence, so that
what one statement writes is read while it is at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from upl_mlir.passes.analysis.components import components
from upl_mlir.passes.loops.groups import Group, by_ones, functions_of, parted, readers_first
from upl_mlir.passes.loops.statements import Edge, Statement
from upl_mlir.passes.loops.terms import arrays_in
from upl_mlir.passes.loops.transform.contractions import Finder, down_columns, of_matrices
from upl_mlir.passes.loops.tree import Along, Box, Leaf, Loop, Tree, guarded
from upl_mlir.poly.expr import IndexExpr, extremum
from upl_mlir.poly.linear import Con, Cons, Linear
from upl_mlir.poly.operators import Extremum


@dataclass(eq=False)
class _Place:
    """Where a statement stands: its loops so far."""

    env: dict[str, IndexExpr] = field(default_factory=dict[str, IndexExpr])
    left: tuple[str, ...] = ()


@dataclass
class NoOrder(Exception):
    """No loop was found for elements that depend on each other in a circle, by these dependences."""

    deps: list[Edge]

    @property
    def arrays(self) -> list[str]:
        """The arrays, in the order of the program."""
        return list(dict.fromkeys(s.array for s in sorted({e.reader for e in self.deps}, key=lambda s: s.at)))


class Scheduler:
    """Builds the tree of loops."""

    def __init__(self, lin: Linear, stmts: Sequence[Statement], deps: Sequence[Edge], *, ordered: bool, compared: bool):
        """With `compared`, what reads the same host arrays shares loops, too: it compares the same data."""
        self.lin, self.compared = lin, compared
        self.finder = Finder(lin, ordered=ordered)
        self.stmts = list(stmts)
        self.deps = list(deps)
        self._functions = cache(functions_of)
        self._vars = 0
        ctx = lin.ctx
        self._taken = {*ctx.params, *ctx.constants, *ctx.arrays, *ctx.unknown, *(f for x in stmts for f in x.fields)}
        self._inside: dict[tuple[Statement, tuple[str, ...]], bool] = {}
        self._ranges: dict[tuple[Statement, Along, _Place], tuple[tuple[IndexExpr, ...], tuple[IndexExpr, ...]]] = {}
        self._least: dict[tuple[Edge, str, str, int, int], tuple[int | None, int | None]] = {}

    def tree(self) -> list[Tree]:
        """The whole tree.  Raises NoOrder."""
        places = {s: _Place({}, s.free) for s in self.stmts}
        tree = self._level(self.stmts, self.deps, places, ())
        return guarded(self.lin, tree, ())

    # -- one level ------------------------------------------------------------------------------------------------------
    def _level(
        self, stmts: list[Statement], deps: list[Edge], places: dict[Statement, _Place], context: Cons
    ) -> list[Tree]:
        groups: list[Group] = []
        before: dict[Statement, list[Edge]] = {s: [] for s in stmts}
        for e in deps:
            before[e.reader].append(e)
        for comp in components(stmts, lambda s: [e.writer for e in before[s]]):
            comp = sorted(comp, key=lambda s: s.at)
            members = set(comp)
            inner = [e for s in comp for e in before[s] if e.writer in members]
            group = Group(comp, {}, inner)
            if inner:
                group.along = self._cycle(comp, inner, places, context)
            self._place(groups, group, before, places, context)
        apart = len(groups) + 1
        while len(groups) < apart:  # what was begun apart may have grown together
            apart, begun, groups = len(groups), groups, []
            for group in begun:
                self._place(groups, group, before, places, context)
        groups = readers_first(groups, before)
        return [t for g in groups for t in self._emit(g, places, context)]

    def _place(
        self,
        groups: list[Group],
        new: Group,
        before: dict[Statement, list[Edge]],
        places: dict[Statement, _Place],
        context: Cons,
    ) -> None:
        """Fuse a group with the last one that it can join, else append it.

        What stands between the two goes before them if the new one needs it, and may not need the earlier one then: a group
        that another one needs, which the new one needs, is none to join.
        """
        reads = [e for s in new.members for e in before[s]]
        needed = {e.writer for e in reads}
        through: set[Statement] = set()  # what those read that the new one needs, directly or not
        for at in reversed(range(len(groups))):
            g = groups[at]
            members = set(g.members)
            apart = members.isdisjoint(through)
            between = [e for e in reads if e.writer in members] if apart else []
            if apart and self._fuse(g, new, between, places, context):
                dependent, free = parted(members, groups[at + 1 :], before)
                if not dependent or any(s in needed for h in free for s in h.members):
                    groups[at:] = [*free, g, *dependent]
                return
            if not apart or not members.isdisjoint(needed):
                through.update(e.writer for s in g.members for e in before[s])
        groups.append(new)

    # -- loops ----------------------------------------------------------------------------------------------------------
    def _cycle(
        self, comp: list[Statement], inner: list[Edge], places: dict[Statement, _Place], context: Cons
    ) -> dict[Statement, Along]:
        """A loop for statements that depend on each other in a circle; best one that cuts no product."""
        best: dict[Statement, Along] | None = None
        cutting: dict[Statement, Along] | None = None
        first = max(comp, key=lambda s: (len(places[s].left), -s.at))
        for f in (*places[first].left, *(f for f in first.fixed if f not in places[first].env)):
            for sign in (1, -1):
                plain = self._follow(first, Along(f, sign, 0), inner, places)
                if plain is None:
                    continue
                along = self._shifts(comp, plain, inner, places, context)
                if along is None:
                    continue
                spans = [self._span(e, along) for e in inner]
                if all(s == (0, 0) for s in spans):
                    if cutting is None and not any(self.finder.cut(s, along[s].field) for s in comp):
                        return along
                    cutting = cutting or along
                elif any(lo is not None and lo > 0 for lo, _ in spans) and (
                    not cutting or self._leaves_whole(comp, along, cutting, places, context)
                ):
                    return along
                best = best or along
        best = cutting or best
        if best is None or not any(places[s].left for s in comp):
            raise NoOrder(inner)
        return best

    def _leaves_whole(
        self, comp: list[Statement], along: dict[Statement, Along], cutting: dict[Statement, Along],
        places: dict[Statement, _Place], context: Cons) -> bool:  # fmt: skip
        """Whether all products that one loop would cut are contractions inside of another, and worth keeping whole."""
        for s in comp:
            f, place = along[s].field, places[s]
            env, left = {**place.env, f: IndexExpr.of(f)}, tuple(x for x in place.left if x != f)
            if self.finder.cut(s, cutting[s].field) and not self.finder.worth(s, env, left, cutting[s].field, context):
                return False
        return True

    def _follow(
        self, first: Statement, start: Along, inner: list[Edge], places: dict[Statement, _Place]
    ) -> dict[Statement, Along] | None:
        """The field of each statement that goes along with the first one's, up or down, by the indices of the reads."""
        found = {first: start}
        changed = True
        while changed:
            changed = False
            for e in inner:
                if e.reader in found and e.writer not in found:
                    got = self._matching(e, found[e.reader], None, places)
                    if got is not None:
                        found[e.writer], changed = got, True
                elif e.writer in found and e.reader not in found:
                    got = self._matching(e, None, found[e.writer], places)
                    if got is not None:
                        found[e.reader], changed = got, True
        for e in inner:
            for s in (e.reader, e.writer):
                if s not in found:
                    if start.field not in s.fields or start.field in places[s].env:
                        return None
                    found[s] = start
        return found

    def _matching(
        self, e: Edge, reader: Along | None, writer: Along | None, places: dict[Statement, _Place]
    ) -> Along | None:
        """The writer's field that moves with the reader's, or the other way round; against it, the sign changes."""
        known = reader or writer
        assert known is not None
        other = e.writer if reader is not None else e.reader
        open_ = [f for f in other.fields if f not in places[other].env]
        for sign in (1, -1):
            found: list[str] = []
            for f in open_:
                read, written = (known.field, f) if reader is not None else (f, known.field)
                if self.lin.plain(e.index[written] - IndexExpr.of(read) * sign).constant is not None:
                    found.append(f)
            if found:
                return Along(known.field if known.field in found else found[0], known.sign * sign, 0)
        return None

    def _distance(self, e: Edge, reader: Along, writer: Along) -> tuple[int | None, int | None]:
        """Least and greatest of how much later (along the loop, without shifts) the read is than the write."""
        key = (e, reader.field, writer.field, reader.sign, writer.sign)
        if key not in self._least:
            d = self.lin.plain(IndexExpr.of(reader.field) * reader.sign - e.index[writer.field] * writer.sign)
            self._least[key] = self.lin.bounds(e.cons, d)
        return self._least[key]

    def _span(self, e: Edge, along: dict[Statement, Along]) -> tuple[int | None, int | None]:
        r, w = along[e.reader], along[e.writer]
        lo, hi = self._distance(e, r, w)
        shift = r.shift - w.shift
        return (None if lo is None else lo + shift), (None if hi is None else hi + shift)

    def _shifts(
        self,
        comp: list[Statement],
        plain: dict[Statement, Along],
        inner: list[Edge],
        places: dict[Statement, _Place],
        context: Cons,
    ) -> dict[Statement, Along] | None:
        """Shifts under which no dependence goes back: such that the loops start together, none, or the least."""
        least: list[tuple[Edge, int]] = []
        for e in inner:
            lo, _ = self._distance(e, plain[e.reader], plain[e.writer])
            if lo is None:
                return None
            least.append((e, lo))
        aligned = self._aligned(comp, plain, places, context)
        for shifts in (aligned, dict.fromkeys(comp, 0)):
            if shifts is not None and all(shifts[e.reader] - shifts[e.writer] + lo >= 0 for e, lo in least):
                return {s: Along(plain[s].field, plain[s].sign, shifts[s]) for s in comp}
        shifts = dict.fromkeys(comp, 0)
        for _ in range(len(comp) + 1):  # Bellman and Ford
            changed = False
            for e, lo in least:
                if shifts[e.reader] - shifts[e.writer] + lo < 0:
                    shifts[e.reader] = shifts[e.writer] - lo
                    changed = True
            if not changed:
                return {s: Along(plain[s].field, plain[s].sign, shifts[s]) for s in comp}
        return None

    def _aligned(
        self,
        comp: list[Statement],
        along: dict[Statement, Along],
        places: dict[Statement, _Place],
        context: Cons,
    ) -> dict[Statement, int] | None:
        """Shifts that make all loops start at the same value; None if their starts do not differ by numbers."""
        out: dict[Statement, int] = {}
        start: IndexExpr | None = None
        for s in comp:
            lows, _ = self._range(s, along[s], places, context)
            if len(lows) != 1:
                return None
            start = lows[0] if start is None else start
            shift = (start - lows[0]).constant
            if shift is None:
                return None
            out[s] = shift
        return out

    def _range(
        self, s: Statement, along: Along, places: dict[Statement, _Place], context: Cons
    ) -> tuple[tuple[IndexExpr, ...], tuple[IndexExpr, ...]]:
        """The bounds of a statement in a loop, by the variables of the loops outside."""
        place = places[s]  # which stands for the context, too
        key = (s, along, place)
        if key not in self._ranges:
            self._ranges[key] = self._find_range(s, along, place, context)
        return self._ranges[key]

    def _find_range(
        self, s: Statement, along: Along, place: _Place, context: Cons
    ) -> tuple[tuple[IndexExpr, ...], tuple[IndexExpr, ...]]:
        cons = tuple(Con(self.lin.plain(c.e.substitute(place.env)), c.eq) for c in s.cons)
        gone = [f for f in s.fields if f != along.field]
        projected = self.lin.project(cons, gone)
        outer = {n for c in cons for n in c.e.names} - set(s.fields)
        lows, highs = self.lin.limits(projected, along.field, outer)
        if along.sign < 0:
            lows, highs = [-b for b in highs], [-b for b in lows]
        known = (*context, *(c for c in projected if along.field not in c.e.names))
        lows = self.lin.strongest([b + along.shift for b in lows], 1, known)
        highs = self.lin.strongest([b + along.shift for b in highs], -1, known)
        return tuple(sorted(lows)), tuple(sorted(highs))

    # -- fusion -----------------------------------------------------------------------------------------------------------
    def _fuse(
        self, g: Group, new: Group, between: list[Edge], places: dict[Statement, _Place], context: Cons
    ) -> bool:
        """Put a group into the loop of an earlier one if every dependence allows it and both run over the same values."""
        shared = bool(between) or self._share(g, new)
        if not shared and {s.array for s in g.members}.isdisjoint(s.array for s in new.members):
            return False
        whole = [s for s in (*g.members, *new.members) if self._whole(s, places[s], context)]
        recurs = bool(whole and between) and any(self._span(e, g.along) != (0, 0) for e in g.inner)
        if whole and not (recurs and set(new.members).issuperset(whole)):
            return False  # a loop round a contraction would cut it into smaller ones
        for along in self._common(g, new, between, places):
            if not all(self.finder.apart(s, along[s].field) for s in whole):
                continue  # products of each step of a recurrence with what that step made, which need not be kept for them
            both = self._fitting(g, new, along, between, places, context)
            if both is not None and (shared or self._as_they_lie(both, places)) and not self._by_ones(both, places):
                g.members += new.members
                g.members.sort(key=lambda s: s.at)
                g.along = both
                g.inner += [*between, *new.inner]
                return True
        return False

    def _whole(self, s: Statement, place: _Place, context: Cons) -> bool:
        """Whether a statement is a contraction by itself, or a product of matrices inside of the loops that it stands in."""
        if self.finder.whole(s):
            return True
        key = (s, place.left)
        if key not in self._inside:
            found = self.finder.find(s, place.env, place.left, context) if place.env else None
            terms = () if found is None else found.terms
            self._inside[key] = found is not None and (all(map(of_matrices, terms)) or any(map(down_columns, terms)))
        return self._inside[key]

    def _by_ones(self, along: dict[Statement, Along], places: dict[Statement, _Place]) -> bool:
        """Whether a loop inside of others would compute functions one by one, which are vectors in a loop of their own."""
        left = {s: [f for f in places[s].left if f != a.field] for s, a in along.items()}
        return all(places[s].env for s in along) and by_ones(self.lin, left)

    def _as_they_lie(self, along: dict[Statement, Along], places: dict[Statement, _Place]) -> bool:
        """Whether a loop goes along the outermost field of an array, of all of whose parts it writes the same elements."""
        first = {next((f for f in s.fields if f not in places[s].env), None) for s in along}
        return len(set(along.values())) == 1 and first == {a.field for a in along.values()}

    def _share(self, g: Group, new: Group) -> bool:
        """Whether two groups read the same arrays, or compute the same functions of them."""
        mine, theirs = ({a for s in x.members for a in (*self._read(s), *self._functions(s))} for x in (g, new))
        return bool(mine & theirs)

    def _read(self, s: Statement) -> set[str]:
        """The arrays that a statement reads; with `compared` those of the host, too."""
        return arrays_in(s.term) if self.compared else {r.array for r in s.reads}

    def _common(
        self, g: Group, new: Group, between: list[Edge], places: dict[Statement, _Place]
    ) -> Iterator[dict[Statement, Along]]:
        """Ways for two groups to share a loop, shifts aside."""
        choices: list[dict[Statement, Along]]
        if g.along:
            choices = [g.along]
        else:
            (s,) = g.members
            left = places[s].left
            open_ = left if len(left) == 1 else left[:-1]  # see below
            choices = [{s: Along(f, sign, 0)} for f in open_ for sign in ((1, -1) if new.along else (1,))]
        for mine in choices:
            if new.along:
                if next(iter(mine.values())).sign == next(iter(new.along.values())).sign:
                    yield {**mine, **new.along}
                continue
            (s,) = new.members
            fields: dict[str, None] = {}
            for e in between:
                got = self._matching(e, None, mine[e.writer], places)
                if got is not None and got.sign == mine[e.writer].sign:
                    fields[got.field] = None
            if not between:
                fields = {a.field: None for a in mine.values() if a.field in places[s].left}
            for f in fields:
                left = places[s].left
                # the last field is contiguous in memory: a loop over it outside of others would stride
                if f in left and (f != left[-1] or len(left) == 1):
                    yield {**mine, s: Along(f, next(iter(mine.values())).sign, 0)}

    def _fitting(
        self,
        g: Group,
        new: Group,
        along: dict[Statement, Along],
        between: list[Edge],
        places: dict[Statement, _Place],
        context: Cons,
    ) -> dict[Statement, Along] | None:
        """The common loop with the new group shifted so that both run over the same values, if that is legal."""
        mine = [self._range(s, along[s], places, context) for s in g.members]
        theirs = [self._range(s, along[s], places, context) for s in new.members]
        first = next((r for r in theirs if len(r[0]) == 1), None)
        start = next((r for r in mine if len(r[0]) == 1), None)
        shift = 0
        if first is not None and start is not None:
            found = (start[0][0] - first[0][0]).constant
            if found is None:
                return None
            shift = found
        moved = dict(along)
        for s in new.members:
            moved[s] = replace(along[s], shift=along[s].shift + shift)
        shifted = {self._range(s, moved[s], places, context) for s in new.members}
        if not shifted & set(mine):
            return None
        for e in between:
            lo, _ = self._span(e, moved)
            if lo is None or lo < 0:
                return None
        return moved

    def _variable(self) -> str:
        """A loop's variable; no name of the program begins with it, so that tilings may put letters behind it."""
        while True:
            self._vars += 1
            var = f"L{self._vars}"
            if not any(name.startswith(var) for name in self._taken):
                return var

    # -- the tree -----------------------------------------------------------------------------------------------------------
    def _emit(self, g: Group, places: dict[Statement, _Place], context: Cons) -> list[Tree]:
        if not g.along:
            (s,) = g.members
            return [self._alone(s, places[s], context)]
        var = self._variable()
        lows, highs = self._union([self._range(s, g.along[s], places, context) for s in g.members], context)
        spans = [(e, *self._span(e, g.along)) for e in g.inner]
        parallel = all(lo == 0 and hi == 0 for _, lo, hi in spans)
        loop = Loop(var, lows, highs, parallel, [])
        rest: list[Edge] = []
        for e, lo, hi in spans:
            if lo is None or lo <= 0:
                same = () if lo == hi else (self._same_time(e, g.along),)
                if not same or self.lin.feasible((*e.cons, *same)):
                    rest.append(e.under(same) if same else e)
        inside: dict[Statement, _Place] = {}
        for s in g.members:
            a = g.along[s]
            inside[s] = _Place({**places[s].env, a.field: a.value(var)}, tuple(f for f in places[s].left if f != a.field))
        loop.body = self._level(g.members, rest, inside, (*context, *loop.context))
        return [loop]

    def _same_time(self, e: Edge, along: dict[Statement, Along]) -> Con:
        r, w = along[e.reader], along[e.writer]
        return Con(r.time(IndexExpr.of(r.field)) - w.time(e.index[w.field]), True)

    def _union(
        self, ranges: Sequence[tuple[tuple[IndexExpr, ...], tuple[IndexExpr, ...]]], context: Cons
    ) -> tuple[tuple[IndexExpr, ...], tuple[IndexExpr, ...]]:
        """Bounds that take in all ranges."""
        out: list[tuple[IndexExpr, ...]] = []
        for at, (inner, outer, sign) in enumerate(((Extremum.MAX, Extremum.MIN, 1), (Extremum.MIN, Extremum.MAX, -1))):
            every = list(dict.fromkeys(r[at] for r in ranges))
            if len(every) == 1:
                out.append(every[0])
                continue
            ends = [extremum(inner, bounds) for bounds in every]
            # of lower ends the least counts: those that are never less than another one go
            ends = self.lin.strongest(ends, -sign, context)
            out.append((extremum(outer, ends),))
        return out[0], out[1]

    def _alone(self, s: Statement, place: _Place, context: Cons) -> Tree:
        """The loops of a statement that depends on nothing inside: every order is right, so the fields' own."""
        plain = self._nest(s, place, context)
        found = self.finder.find(s, place.env, place.left, context)
        if found is None:
            return plain
        env = dict(place.env)
        for f, v in s.fixed.items():
            if f not in env:
                env[f] = self.lin.plain(v.substitute(env))
        return Box(Leaf(s, env), found, [plain])

    def _nest(self, s: Statement, place: _Place, context: Cons) -> Tree:
        env = dict(place.env)
        loops: list[Loop] = []
        left = list(place.left)
        while left:
            f = left.pop(0)
            var = self._variable()
            lows, highs = self._range(s, Along(f, 1, 0), {s: _Place(env, ())}, context)
            loop = Loop(var, lows, highs, True, [])
            env[f] = IndexExpr.of(var)
            context = (*context, *loop.context)
            if loops:
                loops[-1].body = [loop]
            loops.append(loop)
        for f, v in s.fixed.items():
            if f not in env:
                env[f] = self.lin.plain(v.substitute(env))
        leaf = Leaf(s, env)
        if not loops:
            return leaf
        loops[-1].body = [leaf]
        return loops[0]
