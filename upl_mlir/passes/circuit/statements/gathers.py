"""One gather of many summands for each statement: a gather inside of another one, beside another one, or behind other
summands of many becomes a statement of its own.

The order of summands stays: what comes behind a gather of its own begins with that one's result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from upl_mlir.diagnostics import error
from upl_mlir.passes.build import unused
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import (
    Choice,
    Fold,
    Get,
    IndexValue,
    Part,
    Term,
    arguments,
    inner_first,
    made_of,
    rewritten,
    walk,
)
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Cons


@dataclass(eq=False)
class _Taken:
    """What gathers of an equation become: `memo` has an element in place of each that was taken out."""

    p: LoopProgram
    eq: Equation
    made: list[Equation] = field(default_factory=list[Equation])

    def out(self, term: Term, at: Cons, fields: tuple[str, ...], keep: Fold | None) -> Term:
        """The term with all its gathers of many summands taken out, but `keep`."""
        memo: dict[Term, Term] = {}
        where: dict[Term, tuple[Cons, tuple[str, ...]]] = {}
        for t, cons, dims in _places(term, at, fields):
            if _many(t) and t is not keep and (cons is None or where.setdefault(t, (cons, dims))[0] != cons):
                what = f"`{self.eq.name}` has a gather of many summands under several conditions"
                raise error("UPL2001", what, self.p.places.get(self.eq.name))
        for t in inner_first(term, made_of):
            if t in where:
                cons, dims = where[t]
                inner = rewritten(t, memo, lambda g: g)
                assert isinstance(inner, Fold)
                memo[t] = self.fold(inner, cons, dims)
        return rewritten(term, memo, lambda g: g)

    def fold(self, t: Fold, cons: Cons, fields: tuple[str, ...]) -> Get:
        """The element that a gather gives, as a statement; of several that send many summands, one after the other."""
        groups: list[list[Part]] = [[]]
        for p in t.parts:
            if p.dims and any(q.dims for q in groups[-1]):
                groups.append([])
            groups[-1].append(p)
        before: Get | None = None
        for n, parts in enumerate(groups):
            more = () if before is None else (Part((), (), before),)
            count = t.count if n == len(groups) - 1 else None
            before = self.statement(replace(t, parts=(*more, *parts), count=count), cons, fields)
        assert before is not None
        return before

    def statement(self, t: Fold, cons: Cons, fields: tuple[str, ...]) -> Get:
        """A new equation."""
        name = unused(f"{self.eq.name}.sum{len(self.made)}", {*self.p.system.equations, *(e.name for e in self.made)})
        names, before = _names(t), -1
        while before != (before := len(names)):
            names = names.union(*(c.e.names for c in cons if c.e.names & names))
        used = tuple(f for f in fields if f in names)
        where = self.p.system.lin.minimal(c for c in cons if c.e.names & names)
        self.made.append(Equation(name, t.kind, used, (where,), [(where, t)]))
        return Get(t.kind, name, tuple(map(IndexExpr.of, used)))


def gathers(p: LoopProgram, apart: bool = False) -> LoopProgram:
    """The program with one gather of many summands for each statement; `apart`: with nothing else in that statement.

    Raises UplError UPL2001 where it has no such form."""
    made: dict[str, Equation] = {}
    places = dict(p.places)
    for eq in p.system.equations.values():
        found = [t for _, term in eq.pieces for t, _ in walk(term) if isinstance(t, Fold) and _many(t)]
        distinct = list(dict.fromkeys(found))
        only = distinct[0] if len(distinct) == 1 and sum(bool(q.dims) for q in distinct[0].parts) == 1 else None
        if apart and any(term is not only for _, term in eq.pieces):
            only = None
        taken = _Taken(p, eq)
        pieces = [(cons, taken.out(term, cons, eq.fields, only)) for cons, term in eq.pieces]
        for new in (*taken.made, replace(eq, pieces=pieces)):
            made[new.name] = new
            places[new.name] = p.places.get(eq.name)
    return replace(p, system=System(p.system.lin, made, p.system.hosts), places=places)


def _many(t: Term) -> bool:
    """Whether a term is a gather of which an arrow sends many summands."""
    return isinstance(t, Fold) and any(p.dims for p in t.parts)


def _places(term: Term, at: Cons, fields: tuple[str, ...]) -> Iterator[tuple[Term, Cons | None, tuple[str, ...]]]:
    """Every term inside, with the constraints under which it has a value and the names over which it is one; once for each
    of its constraints.  None for constraints of which one of several holds."""
    seen: set[tuple[Term, Cons | None]] = set()
    stack: list[tuple[Term, Cons | None, tuple[str, ...]]] = [(term, at, fields)]
    while stack:
        t, cons, names = stack.pop()
        if (t, cons) in seen:
            continue
        seen.add((t, cons))
        yield t, cons, names
        match t:
            case Fold(_, _, parts):
                for p in parts:
                    guard = p.guards[0] if len(p.guards) == 1 else ()
                    inside = None if cons is None or len(p.guards) > 1 else (*cons, *p.cons, *guard)
                    stack.append((p.body, inside, (*names, *p.dims)))
            case Choice(_, cases):
                stack += [(value, None if cons is None else (*cons, *when), names) for when, value in cases]
            case _:
                stack += [(a, cons, names) for a in arguments(t)]


def _names(whole: Term) -> set[str]:
    """The names that a term's value depends on, its own iterators among them."""
    out: set[str] = set()
    for t, where in walk(whole):
        out |= {n for c in where for n in c.e.names}
        match t:
            case Get(_, _, index):
                out |= {n for e in index for n in e.names}
            case IndexValue(e):
                out |= e.names
            case Fold(_, _, parts, count):
                out |= {n for p in parts for g in (p.cons, *p.guards) for c in g for n in c.e.names}
                out |= set() if count is None else count.names
            case _:
                pass
    return out
