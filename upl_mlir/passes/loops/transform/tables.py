# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Costly functions of one sum of indices are computed once for each value of the sum.

    V<k,i> = max(s * exp(h * (2*i + k)), V<k-1,i>)    where 0 <= k < m && 0 <= i < n
    ->
    V:table1<u> = s * exp(h * u)                      where 0 <= u <= 2*(n-1) + m-1
    V<k,i> = max(V:table1<2*i + k>, V<k-1,i>)

Only where sizes are numbers and there are `FEWER` times as many instances as values of the sum.  Results are the same bits:
reals that are whole numbers add up exactly as far as they stay below the type's limit.

Source: memo functions (Michie 1968), of index expressions; loop-invariant code motion along a skewed direction.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import gcd, prod

from xdsl.dialects import arith
from xdsl.ir import Operation

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.build import unused
from upl_mlir.passes.loops.graph import FUNCTION, op_cost
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import (
    Apply,
    Choice,
    Convert,
    Get,
    IndexValue,
    Number,
    Term,
    alike,
    arguments,
    inner_first,
    rewritten,
    under,
)
from upl_mlir.poly.expr import IndexExpr, Var
from upl_mlir.poly.linear import Con, Cons

FEWER = 4
"""How many times as many instances as values there have to be. Chosen, not measured: an element that is read costs about a
tenth of a function."""
STRIDE = 4
"""The largest factor of an index in a sum: elements farther apart are slow to read. Chosen, not measured."""
WHOLE = {Kind.F64: 2**53, Kind.F32: 2**24}
"""Up to here whole numbers are numbers of the type."""

Direction = tuple[tuple[str, int], ...]
"""A sum of names with factors, without a common one, of which the first is positive."""


@dataclass(frozen=True, eq=False)
class _Found:
    """What is known of a term: the whole number that it is, if it is one and `real` makes a real of it; the sums that it
    asks for, None for a term that asks for more than indices; whether it has a costly function."""

    whole: IndexExpr | None
    sums: frozenset[IndexExpr] | None
    costly: bool
    real: Operation | None = None


@dataclass(eq=False)
class _Wanted:
    """A table: its term over the variable, the ends of the sums, what is given of parameters, and the terms that are its
    elements, with their sums."""

    term: Term
    low: int
    high: int
    given: Cons
    equation: Equation
    uses: list[tuple[Term, IndexExpr]] = field(default_factory=list[tuple[Term, IndexExpr]])


class Tables:
    """Finds such functions in a system, and gives them arrays."""

    def __init__(self, system: System):
        self.system, self.lin = system, system.lin
        ctx = system.lin.ctx
        names = {f for eq in system.equations.values() for f in eq.fields} | {*ctx.params, *ctx.constants}
        self.variable = unused("u", names)
        self.tables: list[_Wanted] = []

    def make(self) -> bool:
        """Change the system; whether there was something to change."""
        for eq in self.system.equations.values():
            for cons, term in eq.pieces:
                self._look(eq, cons, term)
        found: dict[Term, Get] = {}
        count: dict[str, int] = {}
        for t in self.tables:
            name = t.equation.name
            count[name] = count.get(name, 0) + 1
            u = IndexExpr.of(self.variable)
            domain = (*t.given, Con(u - t.low), Con(IndexExpr.of(t.high) - u))
            new = Equation(f"{name}:table{count[name]}", t.term.kind, (self.variable,), (domain,))
            new.pieces = [(domain, t.term)]
            self.system.equations[new.name] = new
            found |= {use: Get(use.kind, new.name, (e,)) for use, e in t.uses}
        if found:
            for eq in self.system.equations.values():
                eq.pieces = [(cons, rewritten(term, dict[Term, Term](found), lambda g: g)) for cons, term in eq.pieces]
            self._read_tables({g.array for g in found.values()})
        return bool(found)

    def _read_tables(self, tables: set[str]) -> None:
        """What would only hold copies of a table's elements goes: the table is read."""
        system = self.system
        copies = {
            n: (eq.fields, eq.pieces[0][1]) for n, eq in system.equations.items()
            if not eq.output and len(eq.pieces) == 1 and isinstance(g := eq.pieces[0][1], Get) and g.array in tables
        }  # fmt: skip

        def read(g: Get) -> Term:
            fields, term = copies.get(g.array, ((), g))
            return under(term, dict(zip(fields, g.index, strict=True))) if fields else g

        memo: dict[Term, Term] = {}
        for name, eq in list(system.equations.items()):
            if name in copies:
                del system.equations[name]
            else:
                eq.pieces = [(cons, rewritten(term, memo, read)) for cons, term in eq.pieces]

    def _look(self, eq: Equation, cons: Cons, term: Term) -> None:
        """Note the outermost functions of a piece that can be tables."""
        names = frozenset(eq.fields)
        known = dict[Term, _Found]()
        for t in inner_first(term, arguments):
            known[t] = self._found(t, known, names, cons)
        stack, seen = [term], {term}
        while stack:
            t = stack.pop()
            if isinstance(t, Choice):
                for when, value in t.cases:
                    self._look(eq, (*cons, *when), value)
            elif not (isinstance(t, Apply) and known[t].costly and known[t].sums and self._asked(eq, cons, t, known)):
                more = [a for a in arguments(t) if known[a].costly or isinstance(a, Choice)] if known[t].costly else []
                stack += [a for a in more if a not in seen]
                seen.update(more)

    # -- what a term is ------------------------------------------------------------------------------------------------
    def _found(self, t: Term, known: dict[Term, _Found], names: frozenset[str], cons: Cons) -> _Found:
        match t:
            case Number(kind, value):
                whole = float(value).is_integer() and repr(value) != "-0.0" and kind in (Kind.INT, *WHOLE)
                return _Found(IndexExpr.of(int(value)) if whole else None, frozenset(), False)
            case IndexValue(e):
                return _Found(e, frozenset({e} if e.names & names else ()), False)
            case Get(_, _, index):
                return _Found(None, None if any(e.names & names for e in index) else frozenset(), False)
            case Convert(_, arg):
                return _Found(None, known[arg].sums, known[arg].costly)
            case Apply(kind, op, args):
                parts = [known[a] for a in args]
                whole, real = self._whole(kind, op, parts, cons)
                sums = frozenset[IndexExpr]()
                if whole is not None:
                    sums = frozenset({whole} if whole.names & names else ())
                elif kind is Kind.INT or any(p.sums is None for p in parts):
                    sums = None  # operations on integers may be errors
                else:
                    sums = sums.union(*(p.sums or () for p in parts))
                costly = (kind in WHOLE and op_cost(op) >= FUNCTION) or any(p.costly for p in parts)
                return _Found(whole, sums, costly, real)
            case Choice(_, cases):  # looked at with its conditions
                return _Found(None, None, bool(cases))
            case _:
                return _Found(None, None, False)

    def _whole(
        self, kind: Kind, op: Operation, parts: list[_Found], cons: Cons
    ) -> tuple[IndexExpr | None, Operation | None]:  # fmt: skip
        """The whole number that an operation makes of whole numbers, exactly."""
        given = [p.whole for p in parts]
        real = next((p.real for p in parts if p.real is not None), None)
        match op, given:
            case arith.SIToFPOp(), [IndexExpr() as e]:
                out, real = e, op
            case (arith.AddfOp() | arith.AddiOp()), [IndexExpr() as a, IndexExpr() as b]:
                out = a + b
            case (arith.SubfOp() | arith.SubiOp()), [IndexExpr() as a, IndexExpr() as b]:
                out = a - b
            case (arith.MulfOp() | arith.MuliOp()), [IndexExpr() as a, IndexExpr() as b] if _times(a, b):
                out = a * b
            case _:
                return None, None
        most = 2**62 if kind is Kind.INT else WHOLE.get(kind, 0) if real is not None else 0
        low, high = self.lin.bounds(cons, out)
        return (out, real) if low is not None and high is not None and max(-low, high) <= most else (None, None)

    # -- what is asked for ---------------------------------------------------------------------------------------------
    def _asked(self, eq: Equation, cons: Cons, t: Term, known: dict[Term, _Found]) -> bool:
        """Note a table for a term, if it can have one and that serves."""
        sums = known[t].sums or frozenset()
        names = frozenset(eq.fields)
        ways = {_direction(e, names) for e in sums}
        way = next(iter(ways))
        if len(ways) != 1 or way is None or any(abs(k) > STRIDE for _, k in way):
            return False
        e = _sum(way, sums, names)
        low, high = self.lin.bounds(cons, e)
        widths = [self.lin.bounds(cons, IndexExpr.of(f)) for f in eq.fields]
        if low is None or high is None or low > high or any(a is None or b is None for a, b in widths):
            return False
        if prod(b - a + 1 for a, b in widths if a is not None and b is not None) < FEWER * (high - low + 1):
            return False
        given = tuple(c for c in self.lin.project(cons, eq.fields) if not self.lin.implies((), c))
        if not all(self._exists(g, given) for g in inner_first(t, arguments) if isinstance(g, Get)):
            return False
        own = self._over(t, known, way, e)
        for table in self.tables:
            if alike(table.term, own) and table.given == given:
                table.low, table.high = min(table.low, low), max(table.high, high)
                break
        else:
            table = _Wanted(own, low, high, given, eq)
            self.tables.append(table)
        table.uses.append((t, e))
        return True

    def _exists(self, g: Get, given: Cons) -> bool:
        """Whether an element exists wherever the table does."""
        own = self.system.equations.get(g.array)
        fields, cases = (own.fields, own.domain) if own is not None else self.system.hosts[g.array][1:]
        at = dict(zip(fields, g.index, strict=True))
        return any(all(self.lin.implies(given, c.substitute(at)) for c in case) for case in cases)

    def _over(self, whole: Term, known: dict[Term, _Found], way: Direction, sum_: IndexExpr) -> Term:
        """A term over the variable in place of the sum."""
        first, unit = way[0]

        def over(e: IndexExpr) -> IndexExpr:
            k = dict(e.terms).get((Var(first),), 0) // unit
            return e - sum_ * k + IndexExpr.of(self.variable) * k

        memo: dict[Term, Term] = {}
        for t in inner_first(whole, arguments):
            found = known[t]
            match t:
                case Apply(kind, _, _) if found.whole is not None and found.real is not None:
                    memo[t] = Apply(kind, found.real, (IndexValue(over(found.whole)),))
                case IndexValue(e):
                    memo[t] = replace(t, e=over(e))
                case Apply(_, _, args):
                    memo[t] = replace(t, args=tuple(memo[a] for a in args))
                case Convert(_, arg):
                    memo[t] = replace(t, arg=memo[arg])
                case _:
                    memo[t] = t
        return memo[whole]


def _times(a: IndexExpr, b: IndexExpr) -> bool:
    """Whether one of two factors is a positive number: no other product of reals is 0.0 where that of whole numbers is 0."""
    return any(c is not None and c > 0 for c in (a.constant, b.constant))


def _sum(way: Direction, sums: frozenset[IndexExpr], names: frozenset[str]) -> IndexExpr:
    """What the variable stands for: one of the sums, if a factor of 1 or -1 makes it so, as that of a copy of the term
    elsewhere is the same then; else that of the names alone."""
    first, unit = way[0]
    plain = sum((IndexExpr.of(n) * k for n, k in way), IndexExpr.of(0))
    signs = {e: dict(e.terms).get((Var(first),), 0) // unit for e in sums}
    return min((e * k for e, k in signs.items() if abs(k) == 1), key=str, default=plain)


def _direction(e: IndexExpr, names: frozenset[str]) -> Direction | None:
    """The part of an index expression that the names make, None if that is no sum of them."""
    out: list[tuple[str, int]] = []
    for m, k in e.terms:
        if len(m) == 1 and isinstance(m[0], Var):
            if m[0].name in names:
                out.append((m[0].name, k))
        elif any(a.names & names for a in (IndexExpr.of(x) for x in m)):
            return None
    if not out:
        return None
    out.sort()
    shared = gcd(*(k for _, k in out)) * (1 if out[0][1] > 0 else -1)
    return tuple((n, k // shared) for n, k in out)
