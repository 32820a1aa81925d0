"""Whether a scheduled program computes what its statements say: the verifier of the level, independent of its passes.

For every statement that runs, by exact sets and for all sizes:

* it runs only where it holds;
* each element that it reads is one of an input's, or was written before: in the same iteration of every loop that has the
  array for itself;
* between that and the read nothing else was written to the element's place;
* its element has a place in the array.

In a program for several ranks (`distribute`) this is asked of one rank, with any blocks.  What it does not own it must have
received: an exchange writes the elements of its box that the rank does not own.  And an exchange must have something to
send: each element in the box of any other rank that this rank owns was written before, and is still there.  All ranks come
by the same exchanges in the same order: no loop or guard round one depends on the rank.

Of a partial array each rank computes a part of an element, and an exchange combines the parts of all ranks, once: what
reads it, reads what the exchange has written.

And every element of an output is written.  Iterations of a parallel loop have no order.  What the statements say is not
asked: that is what the program means.

Source: the legality of schedules and of storage, Feautrier 1992, Lefebvre and Feautrier 1998, as questions of emptiness.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.program import Cut, Host, LoopProgram
from upl_mlir.passes.loops.pull import subtract
from upl_mlir.passes.loops.statements import Statement, adds_to
from upl_mlir.passes.loops.terms import Choice, Fold, Get, Number, Term, arguments
from upl_mlir.passes.loops.tree import Box, Exchange, Guard, Leaf, Loop, Tree
from upl_mlir.passes.storage import Array
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr, divide
from upl_mlir.poly.linear import Con, Cons
from upl_mlir.poly.operators import DivKind
from upl_mlir.poly.sets import PSet

Step = int | Loop
"""On the way to a statement: a place in a body, or a loop."""


@dataclass(frozen=True, eq=False)
class Fault:
    """Something that is wrong, or that nobody has proved; `at` is a point where it is wrong, if one is known."""

    statement: Statement | None
    message: str
    at: Mapping[str, int] | None

    def __str__(self) -> str:
        if self.at is None:
            return f"not proved: {self.message}"
        where = ", ".join(f"{n}={v}" for n, v in sorted(self.at.items()) if " " not in n)
        return f"{self.message}{f' (at {where})' if where else ''}"


@dataclass(frozen=True, eq=False)
class _Site:
    """A place in the tree where a statement runs; `contexts` are disjoint cases of what holds of the loops' variables.

    `open` are the fields that no loop gives (of a contraction, which is all its instances at once).
    """

    stmt: Statement
    env: Mapping[str, IndexExpr]
    path: tuple[Step, ...]
    contexts: tuple[Cons, ...]
    open: tuple[str, ...]
    added: bool = False
    """Whether it is a gather whose elements data choose, each of which is added to its own old one."""
    received: Cut | None = None
    """Of an exchange, how the array is cut whose elements it writes; `stmt` stands for the box."""
    combined: tuple[Cons, ...] = ()
    """Of an exchange of a partial array, the elements of that."""

    @cached_property
    def loops(self) -> dict[str, Loop]:
        """The loops around, by their variables."""
        return {s.var: s for s in self.path if isinstance(s, Loop)}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names that tell instances apart."""
        return (*self.loops, *self.open)


class _Run:
    """An instance of a site, its names marked by a role."""

    def __init__(self, site: _Site, role: str):
        self.site, self.role = site, role
        self.own = {n: IndexExpr.of(f"{n} {role}") for n in site.names}
        self.dims = tuple(f"{n} {role}" for n in site.names)

    def of(self, e: IndexExpr) -> IndexExpr:
        """An expression over loops' variables."""
        return e.substitute(self.own)

    @cached_property
    def element(self) -> tuple[IndexExpr, ...]:
        """The index of what it writes."""
        return tuple(self.of(self.site.env.get(f, IndexExpr.of(f))) for f in self.site.stmt.fields)

    @cached_property
    def where(self) -> Formula:
        """When it runs."""
        out = Formula.any([self.all(c) for c in self.site.contexts])
        return out & self.holds if self.site.open else out

    @cached_property
    def holds(self) -> Formula:
        """Where its statement holds."""
        at = {**self.own, **dict(zip(self.site.stmt.fields, self.element, strict=True))}
        out = Formula.all(_formula(c.substitute(at)) for c in self.site.stmt.cons)
        if self.site.combined:
            return out & self.inside(self.site.combined)
        if self.site.received is None:
            return out
        return out & self.element_of(self.site.received) & self.owned(self.site.received).negate()

    def element_of(self, cut: Cut) -> Formula:
        """Where the element is one of the whole array."""
        return self.inside(cut.whole)

    def inside(self, cases: Sequence[Cons]) -> Formula:
        """Where the element is in a domain."""
        at = dict(zip(self.site.stmt.fields, self.element, strict=True))
        return Formula.any(Formula.all(_formula(c.substitute(at)) for c in case) for case in cases)

    def owned(self, cut: Cut) -> Formula:
        """Where this rank owns the element."""
        return _all(cut.block.holds(self.element[self.site.stmt.fields.index(cut.field)]))

    def all(self, cons: Cons) -> Formula:
        """Constraints over loops' variables."""
        return Formula.all(_formula(Con(self.of(c.e), c.eq)) for c in cons)


def faults(p: LoopProgram) -> Iterator[Fault]:
    """What is wrong with a scheduled program, or not proved."""
    yield from _Verifier(p).faults()


class _Verifier:
    def __init__(self, p: LoopProgram):
        self.p, self.lin = p, p.system.lin
        self.ctx = self.lin.ctx
        self.hosts = {h.name: h for h in p.hosts}
        self.sites: list[_Site] = []
        self._collect(p.scheduled, (), ((),))
        self.writers: dict[str, list[_Site]] = {}
        for s in self.sites:
            self.writers.setdefault(s.stmt.array, []).append(s)

    def _collect(self, body: Sequence[Tree], path: tuple[Step, ...], contexts: tuple[Cons, ...]) -> None:
        for at, t in enumerate(body):
            here = (*path, at)
            match t:
                case Leaf(stmt, env):
                    self.sites.append(_Site(stmt, env, here, contexts, ()))
                case Loop():
                    self._collect(t.body, (*here, t), tuple((*c, *t.context) for c in contexts))
                case Guard(cons, inside, other):
                    self._collect(inside, (*here, 0), tuple((*c, *cons) for c in contexts))
                    rest = tuple(r for c in contexts for r in subtract(self.lin, c, cons))
                    self._collect(other, (*here, 1), rest)
                case Box(leaf, contraction):
                    s, added = leaf.stmt, not contraction.terms and adds_to(leaf.stmt) is not None
                    open_ = tuple(f for f in s.fields if f not in leaf.env)
                    self.sites.append(_Site(s, leaf.env, here, contexts, open_, added))
                case Exchange():
                    eq = self.p.system.equations[t.array]
                    s = Statement(-1, t.array, eq.fields, t.cons, Number(Kind.INT, 0), eq.fields, {})
                    combined = tuple(eq.domain) if t.array in self.p.partial else ()
                    received = None if combined else self.p.cuts[t.array]
                    self.sites.append(_Site(s, {}, here, contexts, eq.fields, received=received, combined=combined))

    # -- questions ------------------------------------------------------------------------------------------------------
    def faults(self) -> Iterator[Fault]:
        for site in self.sites:
            run = _Run(site, "r")
            yield from self._domain(run)
            yield from self._place(run)
            if site.received is not None:
                yield from self._same_for_all(run)
                yield from self._sent(run, site.received)
            if site.combined:
                yield from self._same_for_all(run)
                yield from self._combined(run)
            for get, where in _reads(site.stmt.term):
                yield from self._read(run, get, where)
        for name, eq in self.p.system.equations.items():
            if eq.output:
                yield from self._written(name, eq.fields, eq.domain)

    def _empty(self, s: PSet, stmt: Statement, message: str) -> Iterator[Fault]:
        if not s.is_empty():
            at = s.sample()
            yield Fault(stmt, message, None if at is None else {n.removesuffix(" r"): v for n, v in at.items()})

    def _domain(self, run: _Run) -> Iterator[Fault]:
        """It runs where it holds only."""
        if run.site.open:
            return
        outside = self._set(run.dims, run.where & run.holds.negate())
        yield from self._empty(outside, run.site.stmt, f"`{run.site.stmt}` runs where it does not hold")

    def _place(self, run: _Run) -> Iterator[Fault]:
        """Its element has a place."""
        name, stmt = run.site.stmt.array, run.site.stmt
        if name in self.hosts:
            outside = self._set(run.dims, run.where & self._laid_out(self.hosts[name], run.element).negate())
            yield from self._empty(outside, stmt, f"`{stmt}` writes an element that `{name}` has not")
        array = (self.p.arrays or {}).get(name)
        if array is None:
            return
        if array.private is not None and array.private not in run.site.loops:
            told = f"`{stmt}` writes `{name}` outside of the loop `{array.private}`, which has it for itself"
            yield Fault(stmt, told, None)
        for a in array.axes:
            if a.modulus is None:
                e = run.element[a.at]
                outside = Formula.compare(e, "<", a.lower) | Formula.compare(e, ">=", a.lower + a.extent)
                if a.every is not None:
                    apart = divide(DivKind.MOD, e - a.lower, IndexExpr.of(abs(a.every)))
                    place = a.place(e)
                    outside = Formula.compare(place, "<", 0) | Formula.compare(place, ">=", a.extent)
                    outside |= Formula.compare(apart, "!=", 0)
                message = f"`{run.site.stmt}` writes an element of `{array.name}` for which there is no place"
                yield from self._empty(self._set(run.dims, run.where & outside), run.site.stmt, message)

    def _read(self, run: _Run, read: Get, cond: Formula) -> Iterator[Fault]:
        """What it reads was written before, and is still there."""
        fields = dict(zip(run.site.stmt.fields, run.element, strict=True))
        names = {n for e in read.index for n in e.names} | cond.names
        known = {*run.site.stmt.fields, *self.ctx.params, *self.ctx.constants}
        inner = {n: IndexExpr.of(f"{n} r") for n in sorted(names - known)}
        values = {**fields, **inner}
        index = tuple(self.lin.plain(e.substitute(values)) for e in read.index)
        where = run.where & cond.substitute(values)
        dims = (*run.dims, *(f"{n} r" for n in inner))
        if read.array in self.p.system.hosts:
            inside = self._laid_out(self.hosts[read.array], index)
            told = f"`{run.site.stmt}` reads an element that `{read.array}` has not"
            yield from self._empty(self._set(dims, where) - self._set(dims, where & inside), run.site.stmt, told)
            return
        yield from self._there(run, dims, where, read.array, index, f"`{run.site.stmt}` reads")

    def _same_for_all(self, run: _Run) -> Iterator[Fault]:
        """All ranks come by an exchange in the same order."""
        blocks = {n for c in self.p.cuts.values() for n in (c.block.first, c.block.last)}
        told = f"the exchange of `{run.site.stmt.array}`"
        for loop in run.site.loops.values():
            if loop.parallel:
                yield Fault(None, f"{told} is inside the loop `{loop.var}`, whose iterations have no order", None)
        box = run.site.stmt.cons if run.site.combined else ()
        if any(c.e.names & blocks for case in (*run.site.contexts, box) for c in case):
            yield Fault(None, f"{told} is not run by all ranks alike", None)

    def _sent(self, run: _Run, cut: Cut) -> Iterator[Fault]:
        """What another rank receives this rank has, if it owns it."""
        cuts = {c.block: c.block for c in self.p.cuts.values()}
        other = {n: IndexExpr.of(f"{n} other") for b in cuts for n in (b.first, b.last)}
        at = {**run.own, **other}
        box = Formula.all(_formula(c.substitute(at)) for c in run.site.stmt.cons)
        where = Formula.any([run.all(c) for c in run.site.contexts]) & box & run.element_of(cut) & run.owned(cut)
        for b in cuts:
            first, last = other[b.first], other[b.last]
            where &= Formula.compare(b.low, "<=", first) & Formula.compare(last, "<=", b.high)
            apart = Formula.compare(last, "<", IndexExpr.of(b.first)) | Formula.compare(first, ">", IndexExpr.of(b.last))
            where &= Formula.compare(first, "<=", last + 1) & apart
        dims = (*run.dims, *(e.name or "" for e in other.values()))
        yield from self._there(run, dims, where, run.site.stmt.array, run.element, "a rank sends")

    def _combined(self, run: _Run) -> Iterator[Fault]:
        """All parts of an element are there when they are combined, which is done once."""
        name = run.site.stmt.array
        yield from self._there(run, run.dims, run.where, name, run.element, "a rank adds")
        for s in self.writers[name]:
            over = _Run(s, "o")
            same = Formula.all(Formula.compare(x, "==", y) for x, y in zip(over.element, run.element, strict=True))
            told = f"an element of `{name}` is {'combined twice' if s.combined else 'written after it was combined'}"
            other = Formula.any(Formula.compare(over.own[v], "!=", run.own[v]) for v in run.site.loops)
            for after in self._before(run, over, must=False):
                when = run.where & over.where & over.holds & same & after & (other if s is run.site else TRUE)
                again = self._set((*run.dims, *over.dims), when)
                yield from self._empty(again, run.site.stmt, told)

    def _there(
        self, run: _Run, dims: tuple[str, ...], where: Formula, name: str, index: tuple[IndexExpr, ...], told: str
    ) -> Iterator[Fault]:
        """An element was written before, and is still there, when an instance needs it; `told` begins what is wrong."""
        array = (self.p.arrays or {}).get(name)
        combined = name in self.p.partial and not run.site.combined
        writers = [_Run(s, "w") for s in self.writers.get(name, ()) if bool(s.combined) == combined]
        missing = f"{told} an element of `{name}` that was not written before"
        if name in self.p.cuts:
            missing = f"{told} an element of `{name}` that the rank neither owns nor has received"
        if combined:
            missing = f"{told} an element of `{name}` before the parts of all ranks are combined"
        reads = self._set(dims, where)
        yield from self._empty(
            self._without(reads, dims, self._sources(run, writers, index, array)), run.site.stmt, missing
        )
        if array is None or (len(array.axes) == len(index) and all(a.modulus is None for a in array.axes)):
            return
        told = f"{told} an element of `{name}` whose place has another one by then"
        for s in self.writers.get(name, ()):
            over = _Run(s, "o")
            clash = self._clash(array, index, over, run)
            if clash is None:
                continue
            if s is run.site and s.added:  # the instance itself reads before it writes
                clash &= Formula.any(Formula.compare(x, "!=", y) for x, y in zip(over.element, run.element, strict=True))
            for before in self._before(over, run, must=False):
                both = (*dims, *over.dims)
                bad = self._set(both, where & over.where & clash & before)
                if bad.is_empty():
                    continue
                between = [
                    (w, Formula.all((f, after)))
                    for w, f in self._sources(run, writers, index, array) for after in self._before(over, w, must=True)
                ]  # fmt: skip
                yield from self._empty(self._without(bad, both, between), run.site.stmt, told)

    def _laid_out(self, h: Host, index: Sequence[IndexExpr]) -> Formula:
        """Whether the host's array has an element."""
        declared = Formula.any(map(_all, h.cases)) if h.declared is None else h.declared
        return declared.substitute(dict(zip(h.fields, index, strict=True)))

    def _sources(
        self, run: _Run, writers: Sequence[_Run], index: Sequence[IndexExpr], array: Array | None
    ) -> list[tuple[_Run, Formula]]:
        """Who writes an element before an instance reads it, and when."""
        out: list[tuple[_Run, Formula]] = []
        for w in writers:
            same = Formula.all(Formula.compare(x, "==", y) for x, y in zip(w.element, index, strict=True))
            if array is not None and array.private is not None:
                iteration = self._iteration(w, run, array.private)
                if iteration is None:
                    continue
                same &= iteration
            out += [(w, w.where & w.holds & same & before) for before in self._before(w, run, must=True)]
        return out

    def _without(self, s: PSet, dims: tuple[str, ...], found: Sequence[tuple[_Run, Formula]]) -> PSet:
        """A set without the points for which one of some instances exists."""
        for w, f in found:
            if s.is_empty():
                break
            s = s - self._set((*dims, *w.dims), f).project(dims)
        return s

    def _clash(self, array: Array, index: Sequence[IndexExpr], over: _Run, run: _Run) -> Formula | None:
        """When an instance writes another element to the place of one; None if it has other places."""
        same: list[Formula] = []
        if array.private is not None:
            iteration = self._iteration(over, run, array.private)
            if iteration is None:
                return None
            same.append(iteration)
        for a in array.axes:
            x, y = index[a.at], over.element[a.at]
            if a.modulus is None:
                same.append(Formula.compare(x, "==", y))
            else:
                apart = divide(DivKind.MOD, x - y, IndexExpr.of(a.modulus))
                same.append(Formula.compare(apart, "==", 0))
        other = Formula.any(Formula.compare(x, "!=", y) for x, y in zip(index, over.element, strict=True))
        return Formula.all(same) & other

    def _iteration(self, a: _Run, b: _Run, var: str) -> Formula | None:
        """When two instances are of one iteration of the loop with a variable, and of all loops outside; None if never."""
        equal: list[Formula] = []
        for x, y in zip(a.site.path, b.site.path, strict=False):
            if x is not y and x != y:
                return None
            if isinstance(x, Loop):
                equal.append(Formula.compare(a.own[x.var], "==", b.own[x.var]))
                if x.var == var:
                    return Formula.all(equal)
        return None

    def _before(self, a: _Run, b: _Run, *, must: bool) -> Iterator[Formula]:
        """When an instance runs before another one, surely or perhaps, as disjoint cases."""
        equal: list[Formula] = []
        for x, y in zip(a.site.path, b.site.path, strict=False):
            if isinstance(x, Loop) and isinstance(y, Loop):
                mine, theirs = a.own[x.var], b.own[y.var]
                if not (x.parallel and must):
                    yield Formula.all((*equal, Formula.compare(mine, "<", theirs)))
                if x.parallel and not must:
                    yield Formula.all((*equal, Formula.compare(mine, ">", theirs)))
                equal.append(Formula.compare(mine, "==", theirs))
            elif x != y:
                assert isinstance(x, int) and isinstance(y, int)
                if x < y:
                    yield Formula.all(equal)
                return
        if a.site.open and not must:  # a contraction reads and writes as it likes
            yield Formula.all(equal)

    def _written(self, name: str, fields: Sequence[str], domain: Sequence[Cons]) -> Iterator[Fault]:
        """Every element of an output is written."""
        own = {f: IndexExpr.of(f"{f} r") for f in fields}
        dims = tuple(f"{f} r" for f in fields)
        for case in domain:
            whole = self._set(dims, Formula.all(_formula(c.substitute(own)) for c in case))
            found: list[tuple[_Run, Formula]] = []
            for s in self.writers.get(name, ()):
                w = _Run(s, "w")
                same = (Formula.compare(x, "==", own[f]) for x, f in zip(w.element, fields, strict=True))
                found.append((w, w.where & w.holds & Formula.all(same)))
            missing = self._without(whole, dims, found)
            if self.writers.get(name):
                yield from self._empty(missing, self.writers[name][0].stmt, f"an element of `{name}` is not written")
            elif not missing.is_empty():
                yield Fault(None, f"no statement writes `{name}`", None)

    def _set(self, dims: tuple[str, ...], f: Formula) -> PSet:
        return self.ctx.set(dims, f & self.ctx.param_condition)


def _reads(term: Term) -> list[tuple[Get, Formula]]:
    """The elements that a term reads, each with the condition under which it does (over fields and iterators)."""
    out: dict[tuple[str, tuple[IndexExpr, ...], Formula], Get] = {}
    seen: set[tuple[Term, Formula]] = set()
    todo: list[tuple[Term, Formula]] = [(term, TRUE)]
    while todo:
        t, where = todo.pop()
        if (t, where) in seen:
            continue
        seen.add((t, where))
        match t:
            case Get():
                out[t.array, t.index, where] = t
            case Fold(_, _, parts):
                for p in parts:
                    inside = where & _all(p.cons)
                    todo.append((p.body, inside & Formula.any(map(_all, p.guards)) if p.guards else inside))
            case Choice(_, cases):
                for n, (when, value) in enumerate(cases):
                    here = where if n == len(cases) - 1 else where & _all(when)
                    todo.append((value, here))
                    where = where & _all(when).negate()
            case _:
                todo += [(a, where) for a in arguments(t)]
    return [(t, where) for (_, _, where), t in out.items()]


def _all(cons: Cons) -> Formula:
    return Formula.all(map(_formula, cons))


def _formula(c: Con) -> Formula:
    return Formula.compare(c.e, "==" if c.eq else ">=", 0)
