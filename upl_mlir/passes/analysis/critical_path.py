"""The longest dependence chain of a program: how many firings must follow one another on any machine.

The *level* of an instance is 1 for one that needs host inputs only, else one more than the greatest level among the
instances that send to it.  The critical path is the greatest level.

* A program without open sizes that is small enough is walked through, instance by instance.
* Else levels are sets of (index, level), exact for all sizes.  Outside of cycles they follow from those of the sources.
  Round a cycle they are guessed and *verified*: the program is walked through at a few small sizes (of parameters, and of
  large constants), affine functions are laid through the levels seen (one for each way in which an instance is served),
  and isl shows that no arrow arrives later than just before the level of the instance that it enters, and that one
  arrives just then.  Dependences are acyclic, so by induction along them such a function is the level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter

from upl_mlir.dialects.upl import NodeOp, ProgramOp
from upl_mlir.passes.analysis.cycles import components
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.analysis.small_sizes import small_entries
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.levels import affine_through, greatest, latest
from upl_mlir.poly.operators import CmpOp
from upl_mlir.poly.sets import PSet

LEVEL = "level of"  # no name of a program has a space
_FROM = "level of source"
MAX_TOKENS = 40_000  # of a program that is walked through
MAX_WAYS = 24  # of being served that are told apart at one node
SMALL = 6  # constants above this are made smaller where the program is only looked at for a guess

Point = tuple[int, ...]
Way = frozenset[int]
"""The arrows that serve an instance, by their number among those into its node; those that serve all are left out."""


def critical_path(sets: ProgramSets, tokens: IndexExpr | int | None = None) -> IndexExpr | None:
    """The greatest level, in firings; None where data decide what fires, or where levels are not affine functions of the
    index (or no small program was found to guess them from).

    `tokens` is the number of tokens sent, if it is known.
    """
    if sets.dynamic_nodes:
        return None
    known = not sets.ctx.params and not sets.ctx.unknown
    if known and (walk := _Walk.of(sets, tokens)) is not None:
        return IndexExpr.of(max((n for seen in walk.level.values() for n in seen.values()), default=0))
    found = _Levels(sets, tokens).run()
    return None if found is None else greatest(found)


class _Walk:
    """A program at fixed sizes, instance by instance."""

    def __init__(self, sets: ProgramSets):
        self.level: dict[str, dict[Point, int]] = {}
        self.way: dict[str, dict[Point, Way]] = {}
        self.whole = self._run(sets)

    @staticmethod
    def of(sets: ProgramSets, tokens: IndexExpr | int | None) -> _Walk | None:
        """The walk; None if the program is too large for one, does not run through, or has sets that are known by a hull."""
        if any(sets.domain(n).lost for n, op in sets.ends.items() if isinstance(op, NodeOp)):
            return None
        if any(sets.relation(a).lost for a in sets.arrows):
            return None
        total = IndexExpr.of(tokens).evaluate(sets.ctx.constants, sets.ctx.read) if tokens is not None else 0
        for a in sets.arrows if tokens is None else ():
            total += _box(sets.tokens(a))
            if total > MAX_TOKENS:
                break
        if total > MAX_TOKENS:
            return None
        walk = _Walk(sets)
        return walk if walk.whole else None

    def _run(self, sets: ProgramSets) -> bool:
        edges: dict[tuple[str, Point], list[tuple[str, Point]]] = {}
        missing: dict[tuple[str, Point], int] = {}
        for name, op in sets.ends.items():
            if isinstance(op, NodeOp):
                self.level[name] = {}
                self.way[name] = {}
                missing.update(((name, x), 0) for x in sets.domain(name).points())
        for name in self.level:
            telling = _telling(sets, name)
            for k, a in enumerate(sets.into(name)):
                for p in sets.relation(a).points():
                    y = (name, p[len(p) - len(a.dst) :])
                    if y not in missing:
                        return False
                    if isinstance(a.source, NodeOp):
                        edges.setdefault((a.source.symbol, p[: len(a.src)]), []).append(y)
                        missing[y] += 1
                    if k in telling:
                        self.way[name][y[1]] = self.way[name].get(y[1], frozenset()) | {k}
        ready = [x for x, n in missing.items() if n == 0]
        level = dict.fromkeys(ready, 1)
        done = 0
        while ready:
            x = ready.pop()
            done += 1
            self.level[x[0]][x[1]] = level[x]
            for y in edges.get(x, ()):
                level[y] = max(level.get(y, 1), level[x] + 1)
                missing[y] -= 1
                if not missing[y]:
                    ready.append(y)
        return done == len(missing)


def _box(s: PSet) -> int:
    """The number of points of a box around a set: quickly found, not less than those of the set."""
    n = 1
    for d in s.dims:
        lo, hi = s.extent(d)
        n *= MAX_TOKENS + 1 if lo is None or hi is None else max(0, hi - lo + 1)
    return n


def _telling(sets: ProgramSets, name: str) -> frozenset[int]:
    """The arrows into inputs that several arrows serve: which of them come tells instances apart."""
    into = sets.into(name)
    ports = [a.port.name for a in into]
    return frozenset(k for k, p in enumerate(ports) if ports.count(p) > 1)


def _walks(sets: ProgramSets, tokens: IndexExpr | int | None) -> Iterator[tuple[dict[str, int], _Walk]]:
    """Walks at a few small sizes: all parameters 3 above the least, then one of them moved.  Where that is too much, large
    constants and entries of arrays are made smaller as well: only a guess comes from it."""
    params = sets.ctx.params
    least = sets.ctx.set((), sets.ctx.param_condition).sample() or {}
    base = {p: least.get(p, 0) + 3 for p in params}
    tries = [base, *({**base, p: base[p] + d} for p in params for d in (1, -3))]  # the smallest have ways of their own
    tries += [{**base, p: base[p] + 2} for p in params[:1]]
    tries += [{**base, p: base[p] - 3, q: base[q] + 1} for p in params for q in params if p != q]  # and those grow as well
    found = [(t, w) for t in tries if (w := _Walk.of(_with_entries(sets.program, t), tokens)) is not None]
    if not found:
        small = {n: SMALL - 1 for n, v in sets.ctx.constants.items() if v > SMALL}
        tries = [{**small, **t} for t in tries] + [{**small, **base, n: SMALL} for n in small]
        found = [(t, w) for t in tries if (w := _Walk.of(_shrunk(sets.program, t), None)) is not None]
    yield from found


def _with_entries(program: ProgramOp, bindings: Mapping[str, int]) -> ProgramSets:
    """The sets of a program with parameters bound, entries of symbolic arrays made up."""
    sets = ProgramSets(program, bindings)
    found = {n: small_entries(sets.ctx, n, dict(bindings), (1, 0, 2)) for n in sets.ctx.unknown}
    if found:
        made = {n: Table(e[0], tuple(e[1])) for n, e in found.items() if e is not None}
        sets.ctx = replace(sets.ctx, arrays={**sets.ctx.arrays, **made}, unknown={}, facts_cache={})
    return sets


def _shrunk(program: ProgramOp, bindings: Mapping[str, int]) -> ProgramSets:
    """The sets of a program with other constants and with no large entry in its arrays."""
    sets = ProgramSets(program, bindings)
    arrays = {n: Table(t.lower, tuple(min(v, SMALL - 1) for v in t.values)) for n, t in sets.ctx.arrays.items()}
    sets.ctx = replace(sets.ctx, arrays=arrays, facts_cache={})
    return sets


class _Levels:
    """Levels of all instances of a program."""

    def __init__(self, sets: ProgramSets, tokens: IndexExpr | int | None):
        self.sets = sets
        self.tokens = tokens
        self.level: dict[str, PSet] = {}
        self.walks: list[tuple[dict[str, int], _Walk]] | None = None

    def run(self) -> list[PSet] | None:
        """The levels of each node as a set of (index, level)."""
        sets = self.sets
        nodes = {n: op for n, op in sets.ends.items() if isinstance(op, NodeOp)}
        group = {n: n for n in nodes}
        members: dict[str, list[NodeOp]] = {n: [op] for n, op in nodes.items()}
        cyclic: set[str] = set()
        for component in components(sets):
            first = component[0].symbol
            cyclic.add(first)
            members[first] = component
            group.update((op.symbol, first) for op in component)
        order: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(group.values(), ()))
        for a in sets.arrows:
            if a.source.symbol in group and a.target.symbol in group and group[a.source.symbol] != group[a.target.symbol]:
                order.add(group[a.target.symbol], group[a.source.symbol])
        for g in order.static_order():
            if g in cyclic:
                if not self._cycle(members[g]):
                    return None
            else:
                arrived = self._all_arrivals(members[g][0], self.level).coalesce()
                if arrived.lost:
                    return None
                self.level[g] = latest(arrived)
        return [self.level[n] for n in nodes]

    def _arrivals(self, a: Arrow, levels: Mapping[str, PSet]) -> PSet:
        """(target index, level that the token allows)."""
        r = self.sets.relation(a)
        if isinstance(a.source, NodeOp):
            dims = (*a.dims, _FROM, LEVEL)
            both = r.extend(dims).constrain(Formula.compare(LEVEL, CmpOp.EQ, IndexExpr.of(_FROM) + 1))
            source = levels[a.source.symbol].rename({LEVEL: _FROM})
            out = (both & source.extend(dims).reorder(dims)).project((*a.dst, LEVEL))
        else:
            dims = (*a.dst, LEVEL)
            out = r.project(a.dst).extend(dims).constrain(Formula.compare(LEVEL, CmpOp.EQ, 1))
        return out.rename(dict(zip(a.dst, a.target.fields, strict=True)))

    def _all_arrivals(self, op: NodeOp, levels: Mapping[str, PSet]) -> PSet:
        """Arrivals of all tokens at a node; an instance that none enters (empty gathers) starts at level 1."""
        out = self.sets.ctx.empty((*op.fields, LEVEL))
        idle = self.sets.domain(op.symbol)
        for a in self.sets.into(op.symbol):
            out = out | self._arrivals(a, levels)
            if not idle.is_empty():
                idle = idle - self.sets.image(a)
        first = idle.extend((*op.fields, LEVEL)).constrain(Formula.compare(LEVEL, CmpOp.EQ, 1))
        return out if idle.is_empty() else out | first

    def _cycle(self, ops: Sequence[NodeOp]) -> bool:
        """Guess the levels of the nodes of a cycle, and verify the guess."""
        if self.walks is None:
            self.walks = list(_walks(self.sets, self.tokens))
        guess = dict(self.level)
        for op in ops:
            whole = self._guess(op)
            if whole is None:
                return False
            guess[op.symbol] = whole
        if not all(self._is_level(op, guess) for op in ops):
            return False
        self.level = guess
        return True

    def _guess(self, op: NodeOp) -> PSet | None:
        """An affine function through the levels seen, for each way of being served."""
        assert self.walks is not None
        symbols = sorted({n for bound, _ in self.walks for n in bound})
        samples: dict[Way, list[tuple[tuple[int, ...], int]]] = {}
        for bound, walk in self.walks:
            sizes = tuple(bound.get(s, self.sets.ctx.constants.get(s, 0)) for s in symbols)
            for x, level in walk.level[op.symbol].items():
                samples.setdefault(walk.way[op.symbol].get(x, frozenset()), []).append(((*x, *sizes), level))
        if len(samples) > MAX_WAYS or not samples:
            return None
        into, telling = self.sets.into(op.symbol), _telling(self.sets, op.symbol)
        out = self.sets.ctx.empty((*op.fields, LEVEL))
        for way, seen in samples.items():
            f = affine_through(seen, (*op.fields, *symbols))
            if f is None:
                return None
            piece = self.sets.domain(op.symbol)
            for k in telling:
                image = self.sets.image(into[k])
                piece = piece & image if k in way else piece - image
            out = out | piece.extend((*op.fields, LEVEL)).constrain(Formula.compare(LEVEL, CmpOp.EQ, f))
        return out.coalesce()

    def _is_level(self, op: NodeOp, guess: Mapping[str, PSet]) -> bool:
        """Whether a node's guess is the greatest arrival, at every instance."""
        arrived = self._all_arrivals(op, guess).rename({LEVEL: _FROM})
        dims = (*op.fields, _FROM, LEVEL)
        both = arrived.extend(dims) & guess[op.symbol].extend(dims).reorder(dims)
        if not both.constrain(Formula.compare(_FROM, CmpOp.GT, LEVEL)).is_empty():
            return False
        just = both.constrain(Formula.compare(_FROM, CmpOp.EQ, LEVEL)).project(op.fields)
        return self.sets.domain(op.symbol) <= just
