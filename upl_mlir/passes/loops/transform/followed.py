# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""An element that is written in one round of a loop, and handed from round to round, is read where it was written.

    x<0,i> = 0;  x<k,i> = x<k-1,i> where i != k-1;  x<k,k-1> = b<k-1> - + over r of A<k-1,r> * x<k-1,r>
    ->
    x<k> = b<k> - + over r < k of A<k,r> * x<r>

So functional updates of an array (`x.at[k].set(v)`, `x[k] = v` in a traced loop) become one array without rounds.  This is
done where it serves: each element is written in one round only, all copies go, and the rounds with them.  Copies of a border
(`u<t,0> = u<t-1,0>`, an equality beside the rounds) stay, as time loops of grids are tiled with them.

Source: copy propagation on arrays; conversion of a recurrence to single assignment, backwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from upl_mlir.dialects.upl import Gather
from upl_mlir.passes.loops.known import folded
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import (
    Apply,
    Choice,
    Convert,
    Entry,
    Fold,
    Get,
    Number,
    Part,
    Term,
    rewritten,
    under,
    walk,
)
from upl_mlir.poly.expr import IndexExpr, Var
from upl_mlir.poly.linear import Con, Cons

MOST = 12
"""Into so many more pieces, or parts, one equation is cut, at most. Chosen, not measured."""
STEPS = 8
"""Through so many copies a read is followed, each for any number of rounds. Chosen, not measured."""


class _TooMany(Exception):
    """Too many pieces."""


@dataclass(frozen=True, eq=False)
class _Copies:
    """Where elements are handed on, and the round from which they come.  `near` has that round, too, where an element is
    what it is."""

    where: Cons
    entry: IndexExpr
    near: Cons


def follow_copies(system: System, *, ordered: bool) -> bool:
    """Change the system; whether anything was found."""
    some = False
    for name in list(system.equations):
        eq = system.equations[name]
        for at in range(len(eq.fields)) if not eq.output else ():
            found = _Follower(system, eq, at, ordered).changed()
            if found is None and (straight := _straightened(system, eq, at)) is not None:
                found = _Follower(straight, straight.equations[name], at, ordered).changed()
            if found is not None:
                system.equations = found
                some = True
                break
    return some


def _straightened(system: System, eq: Equation, at: int) -> System | None:
    """The system with an array that is handed on from round to round, field number `at`, to the neighbour's place in other
    coordinates, in which it stays at its place; None if there is none.

        B<k,i> = B<k-1,i+1>  where i < n-1    ->    B<k,j> = B<k-1,j>  where j - k < n-1    (j = i + k)
    """
    lin, ways = system.lin, set[tuple[int, int]]()
    for _, term in eq.pieces:
        if isinstance(term, Get) and term.array == eq.name:
            apart = [(e - IndexExpr.of(f)).constant for e, f in zip(term.index, eq.fields, strict=True)]
            others = [(n, s) for n, s in enumerate(apart) if n != at and s != 0]
            if apart[at] in (1, -1) and len(others) == 1 and (s := others[0][1]) in (1, -1):
                ways.add((others[0][0], s * (apart[at] or 0)))
    if len(ways) != 1:
        return None
    place, slope = ways.pop()
    here = {eq.fields[place]: IndexExpr.of(eq.fields[place]) + IndexExpr.of(eq.fields[at]) * slope}

    def read(g: Get) -> Get:
        if g.array != eq.name:
            return g
        index = list(g.index)
        index[place] = lin.plain(index[place] - index[at] * slope)
        return replace(g, index=tuple(index))

    def moved(cons: Cons) -> Cons:
        return lin.tidy(Con(lin.plain(c.e.substitute(here)), c.eq) for c in cons)

    memo: dict[Term, Term] = {}
    new: dict[str, Equation] = {}
    for name, other in system.equations.items():
        pieces = [(cons, rewritten(term, memo, read)) for cons, term in other.pieces]
        if other is eq:
            pieces = [p for cons, term in other.pieces
                      for p in _by_ends(system, moved(cons), rewritten(under(term, here), {}, read), eq, at)]  # fmt: skip
            other = replace(other, domain=tuple(map(moved, other.domain)))
        new[name] = replace(other, pieces=pieces)
    return System(lin, new, system.hosts)


def _by_ends(system: System, cons: Cons, term: Term, eq: Equation, at: int) -> list[tuple[Cons, Term]]:
    """A piece that copies, divided so that one bound says where the copies begin."""
    if not isinstance(term, Get) or term.array != eq.name:
        return [(cons, term)]
    x = IndexExpr.of(eq.fields[at])
    step = (term.index[at] - x).constant or 0
    cons = system.lin.minimal(cons)
    ends = [c.e - x * -step for c in cons if dict(c.e.terms).get((Var(eq.fields[at]),), 0) == -step]
    if len(ends) != 2:
        return [(cons, term)]
    border = Con(ends[1] - ends[0])
    halves = [(*cons, c) for c in (border, *border.negated())]
    return [(system.lin.minimal(h), term) for h in halves if system.lin.feasible(h)]


class _Follower:
    """Takes the rounds, field number `at`, from one array."""

    def __init__(self, system: System, eq: Equation, at: int, ordered: bool):
        self.system, self.lin, self.eq, self.at, self.ordered = system, system.lin, eq, at, ordered
        self.field = eq.fields[at]
        self.copies: list[_Copies] = []
        self.kept: list[tuple[Cons, Term]] = []
        self.simple: list[tuple[Cons, Term]] = []
        """What is read in place of elements: numbers, and in the first round elements of another array."""
        for cons, term in eq.pieces:
            step = self._step(term, cons)
            copies = None if step is None else self._copies(cons, step)
            if copies is not None:
                self.copies.append(copies)
            elif isinstance(term, Number) or self._first(cons, term):
                self.simple.append((cons, term))
            else:
                self.kept.append((cons, term))
        self.borders: dict[Con, None] = {}
        self.spare = MOST

    def changed(self) -> dict[str, Equation] | None:
        """The equations without the rounds; None if they have to stay."""
        if not self.copies or not self.kept:
            return None
        values = set[IndexExpr].intersection(*(self._values(cons) for cons, _ in self.kept))
        if not values:
            return None
        try:
            new = {n: self._equation(e) for n, e in self.system.equations.items()}
        except _TooMany:
            return None
        gone = [*(c.where for c in self.copies), *(cons for cons, _ in self.simple)]
        for eq in new.values():
            for cons, term in eq.pieces:
                for t, at in walk(term, cons):
                    if isinstance(t, Get) and t.array == self.eq.name and any(self._meets(t, w, at) for w in gone):
                        return None
        value = min(values, key=str)
        return {n: self._without_rounds(e, value) for n, e in new.items()}

    # -- what there is ---------------------------------------------------------------------------------------------------
    def _step(self, term: Term, cons: Cons) -> int | None:
        """By how many rounds (1 or -1) an element is handed on, if it is."""
        if not isinstance(term, Get) or term.array != self.eq.name:
            return None
        apart = [e - IndexExpr.of(f) for e, f in zip(term.index, self.eq.fields, strict=True)]
        step = apart.pop(self.at).constant
        return step if step in (1, -1) and all(self.lin.implies(cons, Con(a, True)) for a in apart) else None

    def _first(self, cons: Cons, term: Term) -> bool:
        """Whether a piece copies another array in one round."""
        other = isinstance(term, Get) and term.array != self.eq.name
        return other and any(v.constant is not None for v in self._values(cons))

    def _copies(self, cons: Cons, step: int) -> _Copies | None:
        """The copies, if one bound says where they begin and no other field is fixed."""
        ends: list[IndexExpr] = []
        others: list[Con] = []
        for c in cons:
            k = dict(c.e.terms).get((Var(self.field),), 0)
            rest = c.e - IndexExpr.of(self.field) * k
            if c.eq or self.field in rest.names or abs(k) > 1:
                return None
            if k == -step:
                ends.append(rest * -k)
            else:
                others.append(c)
        ends = self.lin.strongest(ends, -step, cons)
        if len(ends) != 1:
            return None
        entry = ends[0] + step
        return _Copies(cons, entry, (*others, Con((entry - IndexExpr.of(self.field)) * step)))

    def _values(self, cons: Cons) -> set[IndexExpr]:
        """The round in which the elements of a piece are written, by their other fields, in all ways that are written."""
        others = {*self.eq.fields, *self.lin.ctx.params} - {self.field}
        ends: dict[int, set[IndexExpr]] = {1: set(), -1: set()}
        for c in cons:
            k = dict(c.e.terms).get((Var(self.field),), 0)
            rest = c.e - IndexExpr.of(self.field) * k
            if abs(k) == 1 and rest.names <= others:
                for side in (1, -1) if c.eq else (k,):
                    ends[side].add(rest * -k)
        return ends[1] & ends[-1]

    def _at(self, g: Get, cons: Cons) -> list[Con]:
        values = dict(zip(self.eq.fields, g.index, strict=True))
        return [Con(self.lin.plain(c.e.substitute(values)), c.eq) for c in cons]

    def _meets(self, g: Get, cons: Cons, at: Cons) -> bool:
        return self.lin.feasible((*at, *self._at(g, cons)))

    # -- reads -----------------------------------------------------------------------------------------------------------
    def _get(self, g: Get, at: Cons) -> Term:
        """What an element is read as; where that differs from point to point, `borders` gets a border."""
        if g.array != self.eq.name:
            return g
        for _ in range(STEPS):
            found = next((c for c in self.copies if self._meets(g, c.where, at)), None)
            if found is None:
                break
            if self._open(g, found.near, at):
                return g
            values = dict(zip(self.eq.fields, g.index, strict=True))
            index = list(g.index)
            index[self.at] = self.lin.plain(found.entry.substitute(values))
            g = replace(g, index=tuple(index))
        for cons, term in self.simple:
            if self._meets(g, cons, at):
                return g if self._open(g, cons, at) else under(term, dict(zip(self.eq.fields, g.index, strict=True)))
        return g

    def _open(self, g: Get, cons: Cons, at: Cons) -> bool:
        """Whether it is open whether an element is in a region; the border is noted then."""
        for c in self._at(g, cons):
            for half in (Con(c.e), Con(-c.e)) if c.eq else (c,):
                if not self.lin.implies(at, half):
                    self.borders[half] = None
                    return True
        return False

    def _term(self, t: Term, at: Cons) -> Term:
        match t:
            case Get():
                return self._get(t, at)
            case Convert(_, arg):
                return replace(t, arg=self._term(arg, at))
            case Entry(_, _, arg):
                return replace(t, at=self._term(arg, at))
            case Apply(_, _, args):
                new = tuple(self._term(a, at) for a in args)
                return t if all(a is b for a, b in zip(args, new, strict=True)) else folded(replace(t, args=new))
            case Choice(_, cases):
                return replace(t, cases=tuple((when, self._term(v, (*at, *when))) for when, v in cases))
            case Fold(_, gather, parts, _):
                new = [q for p in parts for q in self._parts(p, at)]
                if gather is Gather.SUM and not self.ordered:
                    new = [p for p in new if not isinstance(p.body, Number) or p.body.value] or new[:1]
                return replace(t, parts=tuple(new))
            case _:
                return t

    def _parts(self, p: Part, at: Cons) -> list[Part]:
        """The parts that a part of a sum is cut into."""
        out: list[Part] = []
        todo = [p]
        while todo:
            q = todo.pop()
            inside = (*at, *q.cons, *(q.guards[0] if len(q.guards) == 1 else ()))
            outer, self.borders = self.borders, {}
            body = self._term(q.body, inside)
            mine = [b for b in self.borders if b.e.names & set(q.dims)]
            self.borders = outer | {b: None for b in self.borders if not b.e.names & set(q.dims)}
            if not mine or self.ordered or q.guards:
                out.append(replace(q, body=body))
                continue
            self._spend()
            halves = [(*q.cons, c) for c in (mine[0], *mine[0].negated())]
            todo += [replace(q, cons=self.lin.minimal(h, at)) for h in reversed(halves) if self.lin.feasible((*at, *h))]
        return out

    def _spend(self) -> None:
        self.spare -= 1
        if self.spare < 0:
            raise _TooMany

    # -- equations -------------------------------------------------------------------------------------------------------
    def _equation(self, eq: Equation) -> Equation:
        """An equation that follows the copies."""
        self.spare = MOST
        mine = self.kept if eq is self.eq else eq.pieces
        if not any(isinstance(t, Get) and t.array == self.eq.name for cons, term in mine for t, _ in walk(term, cons)):
            return eq if eq is not self.eq else replace(eq, pieces=mine)
        fields = {*eq.fields, *self.lin.ctx.params}
        out: list[tuple[Cons, Term]] = []
        todo = [*reversed(mine)]
        while todo:
            cons, term = todo.pop()
            self.borders = {}
            new = self._term(term, cons)
            border = next((b for b in self.borders if b.e.names <= fields), None)
            if border is None:
                out.append((cons, new))
                continue
            self._spend()
            halves = [(*cons, c) for c in (border, *border.negated())]
            todo += [(self.lin.minimal(h), term) for h in reversed(halves) if self.lin.feasible(h)]
        return replace(eq, pieces=out)

    def _without_rounds(self, eq: Equation, value: IndexExpr) -> Equation:
        """An equation that reads, or says, elements without rounds."""

        def read(g: Get) -> Get:
            return replace(g, index=g.index[: self.at] + g.index[self.at + 1 :]) if g.array == self.eq.name else g

        memo: dict[Term, Term] = {}
        pieces = eq.pieces
        if eq.name == self.eq.name:
            here = {self.field: value}
            pieces = [(self.lin.tidy(Con(self.lin.plain(c.e.substitute(here)), c.eq) for c in cons), under(term, here))
                      for cons, term in pieces]  # fmt: skip
            fields = tuple(f for f in eq.fields if f != self.field)
            eq = replace(eq, fields=fields, domain=tuple(cons for cons, _ in pieces))
        return replace(eq, pieces=[(cons, rewritten(term, memo, read)) for cons, term in pieces])
