# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""Statements and dependences: one statement for each piece of an equation, one dependence for each read of what another
(or the same) statement writes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Fold, Get, Term, walk
from upl_mlir.poly.expr import IndexExpr, Var
from upl_mlir.poly.linear import Con, Cons, Linear


@dataclass(eq=False)
class Statement:
    """``array[fields] = term`` for every point of `cons`.

    `fixed` are the fields that follow from the `free` ones and from parameters.
    """

    at: int
    array: str
    fields: tuple[str, ...]
    cons: Cons
    term: Term
    free: tuple[str, ...]
    fixed: dict[str, IndexExpr]
    reads: list[Read] = field(default_factory=list["Read"])

    def __str__(self) -> str:
        return f"S{self.at}"


@dataclass(frozen=True, eq=False)
class Read:
    """A read of an array under the constraints `cons` (over fields and iterators of folds)."""

    array: str
    index: tuple[IndexExpr, ...]
    cons: Cons


@dataclass(frozen=True, eq=False)
class Edge:
    """`reader` reads at `index` (by field of the writer) what `writer` writes, under `cons` (over the reader's names)."""

    writer: Statement
    reader: Statement
    index: dict[str, IndexExpr]
    cons: Cons

    def under(self, more: Iterable[Con]) -> Edge:
        """The dependence as far as further constraints hold."""
        return Edge(self.writer, self.reader, self.index, (*self.cons, *more))


def statements(system: System) -> list[Statement]:
    """The statements of a system, in the order of its equations."""
    out: list[Statement] = []
    for eq in system.equations.values():
        for cons, term in eq.pieces:
            out.append(statement(system, len(out), eq, cons, term))
    return out


def statement(system: System, at: int, eq: Equation, cons: Cons, term: Term) -> Statement:
    """The statement of a piece of an equation."""
    fixed, cons = fix(system.lin, cons, eq.fields)
    cons = system.lin.minimal(cons)
    s = Statement(at, eq.name, eq.fields, cons, term, tuple(f for f in eq.fields if f not in fixed), fixed)
    found: dict[tuple[str, tuple[IndexExpr, ...], Cons], None] = {}
    for t, where in walk(term):
        if isinstance(t, Get) and t.array in system.equations:
            found[(t.array, t.index, tuple(dict.fromkeys(where)))] = None
    s.reads = [Read(array, index, (*s.cons, *where)) for array, index, where in found]
    return s


def fix(lin: Linear, cons: Cons, fields: tuple[str, ...]) -> tuple[dict[str, IndexExpr], Cons]:
    """The fields that equalities determine by other ones, and the constraints with them replaced (the equalities stay)."""
    fixed: dict[str, IndexExpr] = {}
    equal: list[Con] = []
    rest = list(cons)
    for c in cons:
        if not c.eq:
            continue
        e = lin.plain(c.e.substitute(fixed))
        found = [(m[0].name, k) for m, k in e.terms if len(m) == 1 and isinstance(m[0], Var) and m[0].name in fields]
        found = [(f, k) for f, k in found if abs(k) == 1]
        if not found:
            continue
        name, k = max(found, key=lambda f: fields.index(f[0]))
        value = (e - IndexExpr.of(name) * k) * -k
        if name in value.names:
            continue
        fixed = {f: v.substitute({name: value}) for f, v in fixed.items()} | {name: value}
        rest.remove(c)
        equal.append(Con(e, True))
    rest = [Con(lin.plain(c.e.substitute(fixed)), c.eq) for c in rest]
    return fixed, lin.tidy((*equal, *rest))


def adds_to(s: Statement) -> int | None:
    """The number of the part of a gather that is an element of the same array, shifted by numbers, if all else comes from
    other arrays."""
    if not isinstance(s.term, Fold) or sum(r.array == s.array for r in s.reads) != 1:
        return None
    for n, p in enumerate(s.term.parts):
        if p.dims or p.cons or p.guards or not isinstance(p.body, Get) or p.body.array != s.array:
            continue
        shifts = [(e - IndexExpr.of(f)).constant for e, f in zip(p.body.index, s.fields, strict=True)]
        return None if None in shifts else n
    return None


def edges(lin: Linear, stmts: list[Statement]) -> list[Edge]:
    """All dependences that may exist."""
    writers: dict[str, list[Statement]] = {}
    for s in stmts:
        writers.setdefault(s.array, []).append(s)
    out: list[Edge] = []
    for r in stmts:
        for read in r.reads:
            for w in writers[read.array]:
                index = dict(zip(w.fields, read.index, strict=True))
                cons = (*read.cons, *(Con(lin.plain(c.e.substitute(index)), c.eq) for c in w.cons))
                cons = lin.tidy(cons)
                if lin.feasible(cons):
                    out.append(Edge(w, r, index, cons))
    return out
