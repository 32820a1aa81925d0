# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Sums along columns as running sums, so that they are taken while the numbers are made.

    G<i> = + over j in 0..i-1 of  W<j,i> * X<j>
    ->
    G.run1<j,i> = -0.0                              where j == -1
                = G.run1<j-1,i> + W<j,i> * X<j>     where 0 <= j < i
    G<i>        = G.run1<i-1,i>

They run downwards where the array is made so, as in the loops of a derivative.

The scheduler then puts each step into the loop that makes `W`, whose elements need no array if nothing else reads them; the
running sums themselves take a row (`storage`).  Sums along rows of the same array follow, so that one pass serves all.
Sums are reassociated by that no more than by any order: only `relaxed` code has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from upl_mlir.dialects.upl import Gather
from upl_mlir.passes.analysis.components import components
from upl_mlir.passes.loops.iterators import without
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import (
    Fold,
    Get,
    Number,
    Part,
    Term,
    arrays_in,
    inner_first,
    made_of,
    names_in,
    renamed,
    walk,
)
from upl_mlir.passes.loops.transform.products import factors
from upl_mlir.poly.expr import IndexExpr, Var
from upl_mlir.poly.linear import Con, Cons

FEW = 4
"""Fields of at most so many known values may stand beside those of the array that is summed: its elements are then used
so many times while they are at hand. Chosen, not measured."""
SHORT = 64
"""Columns that are known to have no more elements are summed as they are. Chosen, not measured."""


@dataclass(frozen=True, eq=False)
class _Sum:
    """A part of a fold, the names outside of it in the order of loops, what holds of them, and the array it runs along."""

    part: Part
    names: tuple[str, ...]
    cons: Cons
    reads: tuple[Get, ...]


class Rings:
    """Arrays that depend on each other in a circle, and the ways along which loops make them."""

    def __init__(self, system: System):
        self.system = system
        self._of: dict[str, frozenset[str]] = {}  # the arrays of a circle, by each of them

    def sign(self, array: str, at: int) -> int:
        """1 if elements of an array are made of those with a smaller index at a place, -1 of those with a larger one, as the
        states of an adjoint are; 0 if neither, or both."""
        if array not in self._of:
            ring = next(c for c in components(list(self.system.equations), self._reads_of) if array in c)
            self._of |= dict.fromkeys(ring, frozenset(ring))
        ring, signs = self._of[array], set[int]()
        at_of, todo = {array: at}, [array]
        while todo:
            eq = self.system.equations[todo.pop()]
            field = eq.fields[at_of[eq.name]]
            terms = [t for _, term in eq.pieces for t in inner_first(term, made_of)]
            for g in (t for t in terms if isinstance(t, Get) and t.array in ring):
                found = next(((i, e - IndexExpr.of(field)) for i, e in enumerate(g.index) if field in e.names), None)
                if found is None or (step := self.system.lin.plain(found[1]).constant) is None:
                    continue
                if step:
                    signs.add(-1 if step > 0 else 1)
                if g.array not in at_of:
                    at_of[g.array] = found[0]
                    todo.append(g.array)
        return signs.pop() if len(signs) == 1 else 0

    def _reads_of(self, array: str) -> list[str]:
        """The arrays that an equation reads."""
        read = {a: None for _, term in self.system.equations[array].pieces for a in sorted(arrays_in(term))}
        return [a for a in read if a in self.system.equations]


class RunningSums:
    """Replaces sums in a system, those along columns that are not known to have at most `short` elements."""

    def __init__(self, system: System, short: int = SHORT):
        self.system, self.lin, self.short = system, system.lin, short
        self.wanted: set[str] = set()
        self._rings = Rings(system)

    def replace(self) -> None:
        """Change the system."""
        for eq in self.system.equations.values():
            for cons, term in eq.pieces:
                for s in self._sums(term, eq.fields, cons):
                    self.wanted |= {g.array for g in s.reads if self._column(g, s)}
        if not self.wanted:
            return
        todo = list(self.wanted)  # and what these are made of, element by element
        while todo:
            eq = self.system.equations[todo.pop()]
            for t in (t for _, term in eq.pieces for t, _ in walk(term)):
                if not isinstance(t, Get) or t.array in self.wanted or [_plain(e) for e in t.index] != list(eq.fields):
                    continue
                if t.array in self.system.equations and not self.system.equations[t.array].output:
                    self.wanted.add(t.array)
                    todo.append(t.array)
        for eq in list(self.system.equations.values()):
            self._eq, self._count = eq, 0
            eq.pieces = [(cons, self._new(term, eq.fields, cons)) for cons, term in eq.pieces]
        self._turn_inputs()

    def _turn_inputs(self) -> None:
        """Host inputs whose last field takes few values are copied into planar arrays, along which vectors can run."""
        turned: dict[str, str] = {}
        for name, (kind, fields, domain) in self.system.hosts.items():
            if len(fields) < 2 or len(domain) != 1 or not kind.is_float or not self._few(domain[0], fields[-1]):
                continue
            copy = turned[name] = f"{name}.turned"
            value = Get(kind, name, tuple(IndexExpr.of(f) for f in fields))
            self.system.equations[copy] = Equation(copy, kind, fields, domain, [(domain[0], value)], planar=True)
        memo: dict[Term, Term] = {}
        for eq in self.system.equations.values():
            if eq.name not in turned.values():
                eq.pieces = [(cons, renamed(term, turned, memo)) for cons, term in eq.pieces]

    def _sums(self, t: Term, names: tuple[str, ...], cons: Cons) -> Iterator[_Sum]:
        """The sums that could run: those at the top of a term, and those directly inside of them."""
        if not isinstance(t, Fold) or not _adds(t, names):
            return
        for p in t.parts:
            where = (*cons, *p.cons)
            yield from self._sums(p.body, (*names, *p.dims), where)
            found = None if p.guards or len(p.dims) != 1 else self._reads(p, names, cons)
            if found:
                yield _Sum(p, names, cons, found)

    def _reads(self, p: Part, names: tuple[str, ...], cons: Cons) -> tuple[Get, ...]:
        """The elements of stored arrays in a summand that go along with all indices but those of few values."""
        every = {*names, *p.dims}
        where = (*cons, *p.cons)
        out: list[Get] = []
        for t, _ in walk(p.body):
            if not isinstance(t, Get) or t.array not in self.system.equations or self.system.equations[t.array].output:
                continue
            plain = [_plain(e) for e in t.index]
            used = {n for n in plain if n is not None}
            if len(used) != len(plain) or not used <= every or p.dims[0] not in used:
                continue
            if all(self._few(where, n) for n in every - used):
                out.append(t)
        return tuple(out)

    def _column(self, g: Get, s: _Sum) -> bool:
        """Whether the sum goes down a column of the array, and the column may be long."""
        (d,) = s.part.dims
        return d not in g.index[-1].names and not self._few((*s.cons, *s.part.cons), d, self.short)

    def _few(self, cons: Cons, name: str, most: int = FEW) -> bool:
        lo, hi = self.lin.bounds(cons, IndexExpr.of(name))
        return lo is not None and hi is not None and hi - lo < most

    def _new(self, t: Term, names: tuple[str, ...], cons: Cons) -> Term:
        """A term with the wanted sums replaced, inner ones first."""
        if not isinstance(t, Fold) or not _adds(t, names):
            return t
        parts: list[Part] = []
        for p in t.parts:
            if p.guards or len(p.dims) != 1:
                parts.append(p)
                continue
            body = self._new(p.body, (*names, *p.dims), (*cons, *p.cons))
            mine = body is not p.body or any(g.array in self.wanted for g in self._reads(p, names, cons))
            run = self._run(t, replace(p, body=body), names, cons) if mine else None
            parts.append(run or p)
        return t if all(x is y for x, y in zip(parts, t.parts, strict=True)) else replace(t, parts=tuple(parts))

    def _run(self, fold: Fold, p: Part, names: Sequence[str], cons: Cons) -> Part | None:
        """What a running sum ends with, in the place of a part of a fold; None where the bounds of a sum are not plain."""
        read = next(iter(self._reads(p, tuple(names), cons)), None)
        first = p.dims if read is None else tuple(_plain(e) or "" for e in read.index)
        self._count += 1
        down = read is not None and self._rings.sign(read.array, first.index(p.dims[0])) < 0
        run = Run(f"{self._eq.name}.run{self._count}", first, planar=True, sign=-1 if down else 1)
        return run_along(self.system, run, fold, p, names, cons)


@dataclass(frozen=True)
class Run:
    """The array of a running fold: its name, and the first of its fields; those that follow are in the order of loops.
    With `sign` -1 it runs downwards."""

    name: str
    first: tuple[str, ...]
    planar: bool = False
    sign: int = 1


def run_along(system: System, run: Run, fold: Fold, p: Part, names: Sequence[str], cons: Cons) -> Part | None:
    """What a fold ends with that runs along the one iterator of a part, in the place of the part; `names` are given where it
    stands, and `cons` hold there.  Adds equations; None, and none, where the iterator's bounds are not plain."""
    lin = system.lin
    (d,) = p.dims
    ends = lin.exact_limits(p.cons, d, names)
    if ends is None or any(len(e) != 1 for e in ends):
        return None
    low, high = ends
    some, sign = Con(high[0] - low[0]), run.sign
    start, end = (low[0], high[0]) if sign > 0 else (high[0], low[0])
    rest = tuple(c for c in p.cons if d not in c.e.names)
    guard = tuple(c for c in (some, *rest) if not lin.implies(cons, c))
    used = names_in(p.body) | low[0].names | high[0].names
    fields = (*run.first, *(n for n in names if n in used and n not in run.first))
    gone = set(names) - set(fields)
    if any(c.e.names & gone and c.e.names & set(fields) for c in (*cons, *guard)):
        return None
    where = (*without(lin, cons, gone), *guard)
    at = {f: IndexExpr.of(f) for f in fields}

    def get(index: IndexExpr) -> Get:
        return Get(fold.kind, run.name, tuple((at | {d: index}).values()))

    def define(name: str, fields: tuple[str, ...], pieces: list[tuple[Cons, Term]]) -> None:
        cases = tuple(cons for cons, _ in pieces)
        system.equations[name] = Equation(name, fold.kind, fields, cases, pieces, planar=run.planar)

    begin = lin.tidy((*where, Con(at[d] - start + sign, True)))
    step = lin.tidy((*where, *p.cons))
    more = Fold(fold.kind, fold.gather, (Part((), (), get(at[d] - sign)), Part((), (), p.body)), None)
    none = fold.gather.neutral if fold.kind.is_float else fold.gather.empty_integer()
    define(run.name, fields, [(begin, Number(fold.kind, none)), (step, more)])
    # Of its own, so that in a loop round the fold only the last element is kept.
    outer = tuple(f for f in fields if f != d)
    define(f"{run.name}.all", outer, [(lin.tidy(where), get(end))])
    total = Get(fold.kind, f"{run.name}.all", tuple(at[f] for f in outer))
    return Part((), (), total, (guard,) if guard else ())


def _adds(t: Fold, names: Sequence[str]) -> bool:
    """Whether a fold at which the names are given is a sum of reals, and no contraction."""
    if t.gather is not Gather.SUM or not t.kind.is_float:
        return False
    for p in t.parts:
        found = factors(p.body)
        if found is not None and p.dims and not any({*names, *p.dims} <= names_in(x) for x in found):
            return False
    return True


def _plain(e: IndexExpr) -> str | None:
    """The name that an index is."""
    match e.terms:
        case (((Var(name),), 1),):
            return name
        case _:
            return None

