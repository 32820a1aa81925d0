"""Which field of each array is cut into blocks: by the work of a rank and by the elements that it receives.

A field may be cut if the schedule of the whole program has a parallel loop for it.  Fields are aligned where one array reads
another at its own index, or near to it (`Aligned`): they are cut at the same places, so such reads stay with the rank or
come from its neighbours.  The choice goes from array to array and takes the cut that makes the sum of work and received
elements least, until no array changes; it starts twice from each set of aligned fields, with other arrays cut or whole, and
takes the best end.  Counts are estimates at one size (`NOMINAL`); what is chosen is then counted exactly (`counts.py`).

Source: owner-computes (Callahan, Kennedy 1988); alignment of arrays as in High Performance Fortran (Koelbel et al. 1994).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from upl_mlir.passes.distribute.partial import Owner, owners
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.statements import Read, Statement
from upl_mlir.passes.loops.terms import Fold, Get, walk
from upl_mlir.passes.loops.tree import leaves
from upl_mlir.passes.storage import span
from upl_mlir.poly.expr import TRUE, IndexExpr, Var, extremum
from upl_mlir.poly.linear import Con, Cons, Linear
from upl_mlir.poly.operators import Extremum

NOMINAL = 64
"""The value of a parameter that is not given, for which the choice compares counts. Chosen: large beside the
reach of a stencil."""
RANKS = 4
"""The number of ranks for which it does."""
RECEIVED = 8
"""What an element that is received costs, in operations. Chosen: some GB/s beside some operations a nanosecond."""
Field = tuple[str, str]
"""An array and a field of it."""


@dataclass(eq=False)
class Aligned:
    """Fields that are cut at the same places, and the indices ``low..high`` that all of them together have."""

    members: list[Field]
    low: IndexExpr
    high: IndexExpr


@dataclass(eq=False)
class Choice:
    """The field by which each array is cut, for arrays that are; `sets` are the sets of aligned fields."""


    fields: dict[str, str]
    sets: dict[Field, Aligned] = field(default_factory=dict[Field, Aligned])
    serial: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Of each array, the fields along which loops go whose iterations have an order."""


def cuttable(p: LoopProgram) -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """The fields of each array for which the schedule has parallel loops, those of the outer loops first; and the others."""
    parallel: dict[Field, int] = {}
    serial: set[Field] = set()
    for leaf, loops in leaves(p.scheduled):
        depth = {loop.var: n for n, loop in enumerate(loops)}
        free = {loop.var for loop in loops if loop.parallel}
        for f in leaf.stmt.free:  # what follows from other fields is of no loop of its own
            e = leaf.env.get(f, IndexExpr.of(f))
            variables = e.names & depth.keys()
            key = (leaf.stmt.array, f)
            if f not in leaf.env:
                parallel.setdefault(key, len(depth))
            elif not variables:
                continue
            elif len(variables) == 1 and (var := next(iter(variables))) in free and _unit(e, var):
                parallel[key] = max(parallel.get(key, 0), depth[var])
            else:
                serial.add(key)
    out: dict[str, list[str]] = {name: [] for name in p.system.equations}
    for name, f in sorted((k for k in parallel if k not in serial), key=lambda k: parallel[k]):
        out[name].append(f)
    others: dict[str, set[str]] = {}
    for name, f in serial:
        others.setdefault(name, set()).add(f)
    return out, others


def _unit(e: IndexExpr, var: str) -> bool:
    return any(m == (Var(var),) and abs(k) == 1 for m, k in e.terms) and (
        sum(var in IndexExpr(((m, 1),)).names for m, _ in e.terms) == 1
    )


class Chooser:
    """Chooses the cuts of a scheduled program; `banned` fields are left whole.  With `partial`, sums over a cut field are
    sums of each rank's part.  `sizes` are parameters for which counts are compared."""

    def __init__(
        self, p: LoopProgram, banned: Collection[Field] = (), *, partial: bool = False,
        sizes: Mapping[str, int] | None = None,
    ):  # fmt: skip
        self.p, self.lin, self.partial = p, p.system.lin, partial
        free, self.serial = cuttable(p)
        self.options = {a: [f for f in fs if (a, f) not in banned] for a, fs in free.items()}
        self.stmts = list(dict.fromkeys(leaf.stmt for leaf, _ in leaves(p.scheduled)))
        self.sets = self._aligned()
        self.options = {a: [f for f in fs if (a, f) in self.sets] for a, fs in self.options.items()}
        self.readers: dict[str, list[Statement]] = {}
        for s in self.stmts:
            for a in dict.fromkeys((*(r.array for r in s.reads), s.array)):
                self.readers.setdefault(a, []).append(s)
        ctx = self.lin.ctx
        values = {**dict.fromkeys(ctx.params, NOMINAL), **(sizes or {}), **ctx.constants}
        self._nominal = Linear(replace(ctx, params=(), param_condition=TRUE, constants=values, facts_cache={}))
        self._sizes: dict[tuple[Cons, tuple[IndexExpr, ...]], float] = {}
        self._costs: dict[tuple[Statement, tuple[str | None, ...]], float] = {}

    def choose(self) -> Choice:
        """The choice."""
        best: tuple[tuple[float, int], dict[str, str]] = ((float("inf"), 0), {})
        starts = [(s, rest) for s in dict.fromkeys(self.sets.values()) for rest in (True, False)]
        for first, rest in starts:
            fields: dict[str, str] = {}
            for a, options in self.options.items():
                mine = [f for f in options if self.sets[a, f] is first]
                if mine or (rest and options):
                    fields[a] = (mine or options)[0]
            self._improve(fields)
            inner = sum(self.p.system.equations[a].fields.index(f) for a, f in fields.items())
            cost = (sum(self._cost(s, fields) for s in self.stmts), inner)  # of equal ones, outer fields
            if cost < best[0]:
                best = (cost, fields)
        return Choice(best[1], self.sets, self.serial)

    def _improve(self, fields: dict[str, str]) -> None:
        for _ in range(4):
            changed = False
            for a, options in self.options.items():
                touched = self.readers.get(a, [])

                def cost(f: str | None, a: str = a, touched: list[Statement] = touched) -> float:
                    tried = {k: v for k, v in fields.items() if k != a} | ({a: f} if f is not None else {})
                    return sum(self._cost(s, tried) for s in touched)

                now = fields.get(a)
                best = min((now, *options, None), key=cost)
                if best != now and cost(best) < cost(now):
                    changed = True
                    if best is None:
                        del fields[a]
                    else:
                        fields[a] = best
            if not changed:
                return

    # -- alignment --------------------------------------------------------------------------------------------------------
    def _aligned(self) -> dict[Field, Aligned]:
        parent: dict[Field, Field] = {}
        spans: dict[Field, tuple[IndexExpr, IndexExpr]] = {}
        for a, fs in self.options.items():
            eq = self.p.system.equations[a]
            for f in fs:
                found = span(self.lin, eq.domain, f, eq.fields)
                if found is not None:
                    parent[a, f] = (a, f)
                    spans[a, f] = found

        def root(k: Field) -> Field:
            while parent[k] != k:
                k = parent[k]
            return k

        for s in self.stmts:
            for read in s.reads:
                other = self.p.system.equations[read.array].fields
                for g, e in zip(other, read.index, strict=True):
                    for f in s.free:
                        if (s.array, f) in parent and (read.array, g) in parent and near(self.lin, read, e, f):
                            parent[root((s.array, f))] = root((read.array, g))
        groups: dict[Field, list[Field]] = {}
        for k in parent:
            groups.setdefault(root(k), []).append(k)
        out: dict[Field, Aligned] = {}
        for members in groups.values():
            lows = self.lin.strongest(list(dict.fromkeys(spans[m][0] for m in members)), -1, ())
            highs = self.lin.strongest(list(dict.fromkeys(spans[m][1] for m in members)), 1, ())
            found = Aligned(members, extremum(Extremum.MIN, lows), extremum(Extremum.MAX, highs))
            out |= dict.fromkeys(members, found)
        return out

    # -- estimates --------------------------------------------------------------------------------------------------------
    def _cost(self, s: Statement, fields: Mapping[str, str]) -> float:
        """Work of a rank for a statement, and what it receives for it."""
        arrays = (s.array, *dict.fromkeys(r.array for r in s.reads))
        key = (s, tuple(fields.get(a) for a in arrays))
        if key not in self._costs:
            divided = self._divided(s, fields)
            owned = self._owned(divided)
            received = sum(self._received(s, r, fields, owned) for r in s.reads)
            combined = len(divided) * self._count(s.cons, [IndexExpr.of(f) for f in s.free]) * (RANKS - 1) / RANKS
            self._costs[key] = self._work(s, fields, divided) + RECEIVED * (received + combined)
        return self._costs[key]

    def _divided(self, s: Statement, fields: Mapping[str, str]) -> dict[Fold, dict[int, Owner]]:
        """The folds that are computed in parts."""
        if not self.partial:
            return {}
        cut = {
            a: (self.p.system.equations[a].fields.index(f), self.sets[a, f].low, self.sets[a, f].high)
            for a in dict.fromkeys(r.array for r in s.reads) if (f := fields.get(a)) is not None
        }  # fmt: skip
        return owners(self.lin, s.cons, s.term, cut, fields.get(s.array)) if cut else {}

    def _owned(self, divided: Mapping[Fold, Mapping[int, Owner]]) -> dict[tuple[str, tuple[IndexExpr, ...]], IndexExpr]:
        """The reads in parts of folds, each with the index whose owner adds the summand."""
        return {
            (t.array, t.index): owner.index
            for fold, parts in divided.items() for n, owner in parts.items()
            for t, _ in walk(fold.parts[n].body) if isinstance(t, Get)
        }  # fmt: skip

    def _work(self, s: Statement, fields: Mapping[str, str], divided: Mapping[Fold, Mapping[int, Owner]]) -> float:
        whole = self._count(s.cons, [IndexExpr.of(f) for f in s.free])
        each, shared = 1.0, 0.0
        for t, where in walk(s.term):
            if isinstance(t, Fold):
                mine = divided.get(t, {})
                for n, p in enumerate(t.parts):
                    found = self._count((*s.cons, *where, *p.cons), [IndexExpr.of(d) for d in p.dims])
                    each, shared = (each, shared + found) if n in mine else (each + found, shared)
        f = fields.get(s.array)
        values = (self._count(c, [IndexExpr.of(f or "")]) for c in self.p.system.equations[s.array].domain)
        by = 1 if f is None else max(1, min(RANKS, max(values)))
        return whole * (each / by + shared / RANKS)

    def _received(
        self, s: Statement, read: Read, fields: Mapping[str, str],
        owned: Mapping[tuple[str, tuple[IndexExpr, ...]], IndexExpr],
    ) -> float:
        g = fields.get(read.array)
        if g is None:
            return 0.0
        names = self.p.system.equations[read.array].fields
        index = dict(zip(names, read.index, strict=True))
        f = fields.get(s.array)
        together = f is not None and self.sets[s.array, f] is self.sets[read.array, g]
        reach = self.reach(read, index[g], f) if together and f is not None else None
        owner = owned.get((read.array, read.index))
        if owner is not None and (apart := (index[g] - owner).constant) is not None:
            reach = (min(apart, 0), max(apart, 0))
        if reach == (0, 0):
            return 0.0
        distinct: dict[str, IndexExpr] = {}
        for n, e in index.items():
            if not any((e - o).constant is not None for o in distinct.values()):
                distinct[n] = e
        whole = self._count(read.cons, distinct.values())
        extent = max(1.0, self._count(read.cons, [index[g]]))
        if reach is not None:  # of the neighbours, at both sides
            return whole / extent * sum(map(abs, reach))
        return whole * (RANKS - 1) / RANKS

    def reach(self, read: Read, e: IndexExpr, f: str) -> tuple[int, int] | None:
        """How far below and above the reader's own field a read goes; None where that is not bounded."""
        lo, hi = self.lin.bounds(read.cons, self.lin.plain(e - IndexExpr.of(f)))
        return None if lo is None or hi is None or hi < lo else (min(lo, 0), max(hi, 0))

    def _count(self, cons: Cons, index: Iterable[IndexExpr]) -> float:
        """About how many values expressions have together: the product of their numbers of values at the nominal size."""
        key = (cons, tuple(index))
        if key not in self._sizes:
            plain = self._nominal.plain
            at = tuple(Con(plain(c.e), c.eq) for c in cons)
            found = 1.0
            for e in key[1]:
                lo, hi = self._nominal.bounds(at, plain(e))
                found *= NOMINAL if lo is None or hi is None else max(0, hi - lo + 1)
            self._sizes[key] = found
        return self._sizes[key]


def near(lin: Linear, read: Read, e: IndexExpr, f: str) -> bool:
    """Whether an index stays near to the reader's field: within a distance that is small beside the field's range."""
    lo, hi = lin.bounds(read.cons, lin.plain(e - IndexExpr.of(f)))
    if lo is None or hi is None:
        return False
    low, high = lin.bounds(read.cons, IndexExpr.of(f))
    return low is None or high is None or 2 * (hi - lo) < high - low
