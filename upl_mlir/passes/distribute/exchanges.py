"""Where a rank needs what others own: the reads of a distributed schedule, what each lacks, and the exchanges that bring it.

For each read of a cut array the set ``needed - owned`` follows from the dependence.  Where it is not empty, an exchange goes
into the schedule: after everything that is to be sent was written, on every rank, and before the read, inside the
loops only that carry the dependence.  All ranks come by every exchange in the same order, so the loops round it must not
depend on the rank.  The box of an exchange is the hull of what the reads at one place need.

What is inserted here is proved by `legal.py`, which knows nothing of this file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from upl_mlir.dialects.loops.attributes import Range
from upl_mlir.passes.loops.program import Cut, LoopProgram
from upl_mlir.passes.loops.statements import Read, Statement
from upl_mlir.passes.loops.tree import Box, Exchange, Guard, Leaf, Loop, Tree, leaves
from upl_mlir.passes.storage import inverse, span
from upl_mlir.poly.expr import IndexExpr, Var, extremum
from upl_mlir.poly.linear import Con, Cons
from upl_mlir.poly.operators import Extremum

Path = tuple[tuple[list[Tree], int], ...]
"""The way to a statement: the bodies, and the place in each."""


@dataclass(frozen=True, eq=False)
class Deep:
    """A loop over blocks of steps of the loop with variable `time`; a block's steps begin at `first`.

    Its statements run for the indices of a rank and at most `reach` more on both sides, and read `halo` more (`deep.py`)."""

    loop: Loop
    time: str
    first: IndexExpr
    reach: int
    halo: int

    def arrays(self) -> set[str]:
        """What is written inside."""
        return {leaf.stmt.array for leaf, _ in leaves([self.loop])}


@dataclass
class NotPlaced(Exception):
    """No exchange can bring what a read needs; `why` in words."""

    reader: Statement
    read: Read
    why: str


@dataclass(frozen=True, eq=False)
class Site:
    """A statement in the tree."""

    leaf: Leaf
    path: Path

    @property
    def context(self) -> Cons:
        """What the loops and guards round it say."""
        out: list[Con] = []
        for (body, at), (inner, _) in zip(self.path, (*self.path[1:], ([], 0)), strict=True):
            t = body[at]
            if isinstance(t, Loop):
                out += t.context
            elif isinstance(t, Guard) and t.body is inner:
                out += t.cons
        return tuple(out)


@dataclass(frozen=True, eq=False)
class Need:
    """What a read needs at a place in the tree: a box, where `when` holds; `hull` holds the boxes of all iterations.

    `outer` are the variables of the loops round that place, and `around` is what their bounds say.

    The place is before number `place` of the body to which the first `depth` steps of the reader's path lead."""

    site: Site
    read: Read
    kind: str
    depth: int
    place: int
    ranges: tuple[Range, ...]
    when: Cons
    hull: tuple[Range, ...]
    outer: tuple[str, ...]
    around: Cons

    @property
    def body(self) -> list[Tree]:
        """The body into which the exchange goes, before number `place`."""
        return self.site.path[self.depth][0]


@dataclass(eq=False)
class Placed:
    """An exchange with the reads that it serves: none for one that combines what all ranks have computed.

    `outer` are the variables of the loops round it, `around` what their bounds say, `when` the condition of a guard.
    """

    exchange: Exchange
    needs: list[Need] = field(default_factory=list["Need"])
    outer: tuple[str, ...] = ()
    around: Cons = ()
    when: Cons = ()


def sites(tree: list[Tree], path: Path = ()) -> Iterator[Site]:
    """All statements with their places."""
    for at, t in enumerate(tree):
        here = (*path, (tree, at))
        match t:
            case Leaf():
                yield Site(t, here)
            case Box():
                yield Site(t.leaf, here)
            case Loop():
                yield from sites(t.body, here)
            case Guard():
                yield from sites(t.body, here)
                yield from sites(t.other, here)
            case Exchange():
                pass


def combined(tree: Sequence[Tree], loops: tuple[Loop, ...] = (), when: Cons = ()) -> Iterator[Placed]:
    """The exchanges that a tree has before others are put into it: those of partial arrays."""
    for t in tree:
        match t:
            case Exchange():
                around = tuple(c for loop in loops for c in loop.context)
                yield Placed(t, [], tuple(loop.var for loop in loops), around, when)
            case Loop():
                yield from combined(t.body, (*loops, t), when)
            case Guard():
                yield from combined(t.body, loops, (*when, *t.cons))
                yield from combined(t.other, loops, when)
            case _:
                pass


class Exchanges:
    """Puts the exchanges into a program of one rank (`narrow`) that has a schedule and places for its arrays."""

    def __init__(self, p: LoopProgram, deep: Sequence[Deep] = ()):
        self.p, self.lin, self.deep = p, p.system.lin, deep
        self.blocks = {n for c in p.cuts.values() for n in (c.block.first, c.block.last)}
        self.sites = list(sites(p.scheduled))
        self.placed: list[Placed] = []

    def insert(self) -> list[Placed]:
        """Change the tree and the arrays.  Raises NotPlaced."""
        needs, partial = self.needs(), list(combined(self.p.scheduled))
        at: dict[tuple[int, int], tuple[list[Tree], dict[tuple[str, Cons], Placed]]] = {}
        for n in needs:
            _, here = at.setdefault((id(n.body), n.place), (n.body, {}))
            found = here.get((n.read.array, n.when))
            if found is None:
                found = Placed(Exchange(n.read.array, n.ranges, 0), outer=n.outer, around=n.around, when=n.when)
                here[n.read.array, n.when] = found
            else:
                found.exchange.ranges = self._joined(found.exchange.ranges, n.ranges)
            found.needs.append(n)
        for n in needs:
            for body, index in n.site.path[: n.depth]:
                t = body[index]
                if isinstance(t, Loop):
                    t.parallel = False  # exchanges have an order
        for (_, index), (body, here) in sorted(at.items(), key=lambda x: -x[0][1]):
            for name, when in [k for k in here if k[1]]:  # the same box under a condition comes with that of all cases
                always = here.get((name, ()))
                if always is not None and always.exchange.ranges == here[name, when].exchange.ranges:
                    always.needs += here.pop((name, when)).needs
            new: list[Tree] = [Guard(when, [f.exchange]) if when else f.exchange for (_, when), f in here.items()]
            body[index:index] = new
            self.placed += here.values()
        for f in partial:
            self._inside_memory(f)
        self.placed += partial
        for number, f in enumerate(self.placed):
            f.exchange.number = number
        for name in self.p.cuts:
            self._make_room(name)
        return self.placed

    def needs(self) -> list[Need]:
        """What the reads need of other ranks.  Raises NotPlaced."""
        return [n for s in self.sites for r in s.leaf.stmt.reads if (n := self._need(s, r)) is not None]

    # -- needs ------------------------------------------------------------------------------------------------------------
    def _need(self, site: Site, read: Read) -> Need | None:
        cut = self.p.cuts.get(read.array)
        if cut is None:
            return None
        fields = self.p.system.equations[read.array].fields
        at = fields.index(cut.field)
        env = site.leaf.env
        cons = (*site.context, *(Con(self.lin.plain(c.e.substitute(env)), c.eq) for c in read.cons))
        index = tuple(self.lin.plain(e.substitute(env)) for e in read.index)
        for _, d in self._deep_round(site):
            times = {self._time(w, d.time, read) for w in self.sites if w.leaf.stmt.array == read.array and d in self._of(w)}
            if len(times) > 1 or None in times:
                raise NotPlaced(site.leaf.stmt, read, "several steps write it")
            for e in times:  # what the block itself has made is there
                assert e is not None
                cons = (*cons, Con(d.first - 1 - self.lin.plain(e.substitute(env))))
        if not self.lin.feasible(cons) or all(self.lin.implies(cons, c) for c in cut.block.holds(index[at])):
            return None
        depth, place = self._inside(site, index, *self._position(site, read))
        outer = [t.var for body, i in site.path[:depth] if isinstance(t := body[i], Loop)]
        ranges: list[Range] = []
        when: dict[Con, None] = {}
        around = tuple(c for body, i in site.path[:depth] if isinstance(t := body[i], Loop) for c in t.context)
        known = {*outer, *self.lin.ctx.params, *self.lin.ctx.constants}
        mine: dict[Con, None] = {}
        for f, e in zip(fields, index, strict=True):
            x = f"{f} needed"
            whole = (*cons, Con(IndexExpr.of(x) - e, True))
            names = {n for c in whole for n in c.e.names} - known - {x}
            left = self.lin.project(self.lin.normal(whole)[0], names)
            lows, highs = self.lin.limits(left, x, outer)
            if not lows or not highs:
                raise NotPlaced(site.leaf.stmt, read, f"no bounds are known of the `{f}` that it needs")
            lows, highs = self.lin.strongest(lows, 1, around), self.lin.strongest(highs, -1, around)
            if f != cut.field:  # the same for all ranks, if it can be
                lows, highs = ([e for e in bounds if not e.names & self.blocks] or bounds for bounds in (lows, highs))
            ranges.append(Range(f, tuple(lows), tuple(highs)))
            for c in left:
                if c.e.names <= known and not self.lin.implies(around, c):
                    (mine if c.e.names & self.blocks else when)[c] = None
        ranges[at] = self._of_some(ranges[at], mine)
        for _, d in self._deep_round(site):
            ranges[at] = self._whole_halo(ranges[at], cut, fields, d)
        hull = [self._hull(site, read, around, outer, r) for r in ranges]
        kind = self._kind(ranges[at])
        conditions = self.lin.minimal(when, around)
        return Need(
            site, read, kind, depth, place, tuple(ranges), conditions, tuple(hull), tuple(outer), around
        )  # fmt: skip

    def _whole_halo(self, r: Range, cut: Cut, fields: tuple[str, ...], d: Deep) -> Range:
        """A part of a deep halo as the whole of it: one exchange for all parts."""
        whole = span(self.lin, cut.whole, cut.field, fields)
        if whole is None or not any(e.names & self.blocks for e in (*r.lows, *r.highs)):
            return r
        first, last = IndexExpr.of(cut.block.first) - d.halo, IndexExpr.of(cut.block.last) + d.halo
        return Range(r.var, (whole[0], first), (whole[1], last))

    def _deep_round(self, site: Site) -> list[tuple[int, Deep]]:
        """The loops with deep halos round a statement, with their depths."""
        return [(n, d) for n, (body, at) in enumerate(site.path) for d in self.deep if body[at] is d.loop]

    def _of(self, site: Site) -> list[Deep]:
        return [d for _, d in self._deep_round(site)]

    def _time(self, w: Site, var: str, read: Read) -> IndexExpr | None:
        """The step at which a statement writes what is read, by the reader's names."""
        found = inverse(w.leaf, var)
        return None if found is None else found.substitute(dict(zip(w.leaf.stmt.fields, read.index, strict=True)))

    def _of_some(self, r: Range, conditions: Iterable[Con]) -> Range:
        """A range that is one index wide and that only ranks need for which conditions hold: it is empty for the others.

        Where ``e >= 0`` holds, ``low - e`` and ``high + e`` are bounds, too; where it does not, they leave nothing.
        """
        lows, highs = list(r.lows), list(r.highs)
        if lows != highs or len(lows) > 1 or lows[0].names & self.blocks:
            return r
        ends = {c.block for c in self.p.cuts.values()}
        some = tuple(Con(IndexExpr.of(b.last) - IndexExpr.of(b.first)) for b in ends)  # of ranks with an index at all
        for c in conditions:
            if c.eq or len(c.e.names & self.blocks) > 1 or self.lin.implies(some, c):
                continue
            for m, k in c.e.terms:
                name = m[0].name if len(m) == 1 and isinstance(m[0], Var) else None
                if name in self.blocks:
                    if k < 0:
                        lows += [e - c.e for e in r.lows]
                    else:
                        highs += [e + c.e for e in r.highs]
        lows, highs = list(dict.fromkeys(lows)), list(dict.fromkeys(highs))
        return Range(r.var, tuple(self.lin.strongest(lows, 1, ())), tuple(self.lin.strongest(highs, -1, ())))

    def _kind(self, r: Range) -> str:
        """What the box is along the cut field, in the words of those who write such programs by hand."""
        if not any(e.names & self.blocks for e in (*r.lows, *r.highs)):
            one = len(r.lows) == len(r.highs) == 1 and r.lows == r.highs
            return "broadcast" if one else "all-gather"
        return "shift"

    def _position(self, site: Site, read: Read) -> tuple[int, int]:
        """The first place at which an exchange can stand: as `Need` has it."""
        depth = place = 0
        for w in self.sites:
            if w.leaf.stmt.array == read.array:
                depth, place = max((depth, place), self._after(w, site, read))
        for body, at in site.path[:depth]:
            t = body[at]
            bounds = (
                (*t.lows, *t.highs) if isinstance(t, Loop) else [c.e for c in t.cons] if isinstance(t, Guard) else ()
            )
            if any(e.names & self.blocks for e in bounds):
                why = "it is needed inside a loop that every rank runs a part of"
                raise NotPlaced(site.leaf.stmt, read, why)
        return depth, place

    def _inside(self, site: Site, index: Sequence[IndexExpr], depth: int, place: int) -> tuple[int, int]:
        """A later place, inside of loops that several fields of what is read go along: all of it at once would be a box of
        which little is needed."""
        while depth < len(site.path) - 1:
            body, at = site.path[depth]
            t = body[at]
            if not isinstance(t, Loop) or t.parallel or any(t is d.loop for d in self.deep):
                break
            if sum(t.var in e.names for e in index) < 2 or any(e.names & self.blocks for e in (*t.lows, *t.highs)):
                break
            depth, place = depth + 1, 0
        return depth, place

    def _after(self, w: Site, r: Site, read: Read) -> tuple[int, int]:
        """The first place at which all is written that one statement writes of what a read needs."""
        s = w.leaf.stmt
        index = dict(zip(s.fields, read.index, strict=True))
        other = {n: IndexExpr.of(f"{n} of another rank") for n in self.blocks}
        cons = (*read.cons, *(Con(self.lin.plain(c.e.substitute(other).substitute(index)), c.eq) for c in s.cons))
        if not self.lin.feasible(cons):
            return 0, 0
        for level, ((mine, i), (theirs, j)) in enumerate(zip(w.path, r.path, strict=False)):
            if mine is not theirs:  # the two branches of a guard
                return level, 0
            if i != j:
                if i < j:
                    return level, i + 1
                raise NotPlaced(r.leaf.stmt, read, "it is written after it is read")
            t = mine[i]
            if any(t is d.loop for d in self.deep):
                return level + 1, 0
            if isinstance(t, Loop):
                theirs_, mine_ = inverse(w.leaf, t.var), inverse(r.leaf, t.var)
                if theirs_ is None or mine_ is None:
                    raise NotPlaced(r.leaf.stmt, read, "how far apart its writing and its reading are is not known")
                apart = self.lin.plain(mine_ - theirs_.substitute(index))
                lo, _ = self.lin.bounds(cons, apart)
                if lo is None or lo < 0:
                    if t.parallel or lo is None:
                        raise NotPlaced(r.leaf.stmt, read, "another iteration of the same parallel loop writes it")
                    raise NotPlaced(r.leaf.stmt, read, "a later step writes it")
                cons = (*cons, Con(apart, True))
                if lo > 0 or not self.lin.feasible(cons):
                    return level + 1, 0
        raise NotPlaced(r.leaf.stmt, read, "a part of it is written by the same statement")

    # -- boxes ------------------------------------------------------------------------------------------------------------
    def _joined(self, a: Sequence[Range], b: Sequence[Range]) -> tuple[Range, ...]:
        """The hull of two boxes."""
        out: list[Range] = []
        for x, y in zip(a, b, strict=True):
            if set(x.lows) == set(y.lows) and set(x.highs) == set(y.highs):
                out.append(x)
                continue
            out.append(Range(x.var, self._outer(x.lows, y.lows, 1), self._outer(x.highs, y.highs, -1)))
        return tuple(out)

    def _outer(self, a: Sequence[IndexExpr], b: Sequence[IndexExpr], sign: int) -> tuple[IndexExpr, ...]:
        """Of two lists of bounds (lower ones for `sign` = 1) those that hold wherever one of the lists does."""
        for mine, theirs in ((a, b), (b, a)):  # each of mine is weaker than one of theirs
            if all(any(self.lin.implies((), Con((o - m) * sign)) for o in theirs) for m in mine):
                return tuple(mine)
        inner, outer = (Extremum.MAX, Extremum.MIN) if sign > 0 else (Extremum.MIN, Extremum.MAX)
        return (extremum(outer, (extremum(inner, a), extremum(inner, b))),)

    def _inside_memory(self, f: Placed) -> None:
        """Of a partial array, no more than there is room for: its bounds may be less than those of a hull."""
        ranges = list(f.exchange.ranges)
        for a in self.p.kept[f.exchange.array].axes:
            r = ranges[a.at]
            if a.modulus is None and r.lows != r.highs:
                lows, highs = [*r.lows, a.lower], [*r.highs, a.lower + a.extent - 1]
                bounds = ((lows, 1), (highs, -1))
                ranges[a.at] = Range(r.var, *(tuple(self.lin.strongest(e, sign, f.around)) for e, sign in bounds))
        f.exchange.ranges = tuple(ranges)

    def _make_room(self, name: str) -> None:
        """Give a cut array room for the rank's block and for what is received, along each field that is kept whole."""
        array, cut = self.p.kept.get(name), self.p.cuts[name]
        if array is None:
            return  # the host's, who has the whole
        needs = [n for f in self.placed if f.exchange.array == name for n in f.needs]
        if needs and array.private is not None:
            why = f"it has a place inside the loop `{array.private}` only"
            raise NotPlaced(needs[0].site.leaf.stmt, needs[0].read, why)
        fields = self.p.system.equations[name].fields
        axes = list(array.axes)
        for i, a in enumerate(axes):
            if a.modulus is not None:
                continue
            lows, highs = (a.lower,), (a.lower + a.extent - 1,)
            if fields[a.at] == cut.field:
                lows, highs = (IndexExpr.of(cut.block.first),), (IndexExpr.of(cut.block.last),)
                for d in self.deep:
                    whole = span(self.lin, cut.whole, cut.field, fields)
                    if whole is not None and name in d.arrays():
                        lows, highs = (whole[0], lows[0] - d.reach), (whole[1], highs[0] + d.reach)
            for each in dict.fromkeys(n.hull[a.at].lows for n in needs):
                lows = self._outer(lows, each, 1)
            for each in dict.fromkeys(n.hull[a.at].highs for n in needs):
                highs = self._outer(highs, each, -1)
            low = extremum(Extremum.MAX, lows)
            axes[i] = replace(a, lower=low, extent=extremum(Extremum.MIN, highs) - low + 1)
        array.axes = tuple(axes)

    def _hull(
        self, site: Site, read: Read, around: Cons, loops: Sequence[str], r: Range
    ) -> Range:
        """The range for all iterations of the loops around."""
        lows, highs = list(r.lows), list(r.highs)
        if any(e.names & {*loops} for e in (*lows, *highs)):
            left = self.lin.project(self.lin.normal((*around, *r.cons))[0], loops)
            lows, highs = self.lin.limits(left, r.var, ())
            if not lows or not highs:
                raise NotPlaced(site.leaf.stmt, read, f"no bounds are known of the `{r.var}` that it needs")
            lows, highs = self.lin.strongest(lows, 1, ()), self.lin.strongest(highs, -1, ())
        return Range(r.var, tuple(lows), tuple(highs))
