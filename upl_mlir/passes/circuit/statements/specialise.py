# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false
# (xDSL leaves the types of attributes and results open)
"""Terms at given values of some fields: conditions that are known then, index arithmetic and its comparisons go.

What is left of a term is the same value, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from xdsl.dialects import arith

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.circuit.body import INTEGER_TESTS, formula
from upl_mlir.passes.loops.terms import (
    Apply,
    Choice,
    Convert,
    Entry,
    Fold,
    Get,
    IndexValue,
    Number,
    Part,
    Term,
    arguments,
    inner_first,
)
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.linear import Con, Cons, Linear

Env = Mapping[str, int]
EXACT = 1 << 53
"""Integers up to here are reals of f64, which a literal is."""


@dataclass(eq=False)
class Specialiser:
    """Rewrites terms.  `fixed` are iterators of which each value gives summands of their own, with the `values` that they
    have; `array` says what is read in place of an element, by array and index."""

    lin: Linear
    array: Callable[[str, tuple[IndexExpr, ...]], tuple[str, tuple[IndexExpr, ...]]] = lambda array, index: (array, index)
    fixed: frozenset[str] = frozenset()
    values: Callable[[Part, Env], Iterator[Env]] = lambda part, env: iter(())
    also: Mapping[str, IndexExpr] = field(default_factory=dict[str, IndexExpr])
    """What else is put in place of names."""
    context: Cons = ()
    """What holds wherever a term has a value."""

    def expr(self, e: IndexExpr, env: Env) -> IndexExpr:
        """An index expression with the values put in."""
        return self.lin.plain(e.substitute({**self.also, **env}))

    def cons(self, cons: Cons, env: Env) -> Cons | None:
        """Constraints with the values put in, without those that hold; None if one does not."""
        found = self.lin.tidy(Con(self.expr(c.e, env), c.eq) for c in cons)
        return None if any(c.e.constant is not None for c in found) else found

    def term(self, whole: Term, env: Env) -> Term:
        """The term with the values put in."""
        memo: dict[Term, Term] = {}
        for t in inner_first(whole, self._inside):
            memo[t] = self._one(t, memo, env)
        return memo[whole]

    def _inside(self, t: Term) -> tuple[Term, ...]:
        match t:
            case Fold(_, _, parts):
                return tuple(p.body for p in parts if not self.fixed & set(p.dims))
            case Choice(_, cases):
                return tuple(v for _, v in cases)
            case _:
                return arguments(t)

    def _one(self, t: Term, memo: Mapping[Term, Term], env: Env) -> Term:
        match t:
            case Get(kind, array, index):
                return Get(kind, *self.array(array, tuple(self.expr(e, env) for e in index)))
            case Entry(_, _, arg):
                return replace(t, at=memo[arg])
            case Convert(_, arg):
                return replace(t, arg=memo[arg])
            case IndexValue(e):
                return replace(t, e=self.expr(e, env))
            case Apply():
                return known(replace(t, args=tuple(memo[a] for a in t.args)))
            case Choice(kind, cases):
                left: list[tuple[Cons, Term]] = []
                for when, value in cases:
                    here = self.cons(when, env)
                    if here is not None:
                        left.append((here, memo[value]))
                    if here == ():
                        break
                return left[0][1] if len(left) == 1 else Choice(kind, tuple(left))
            case Fold():
                return self._fold(t, memo, env)
            case Number():
                return t

    def _fold(self, t: Fold, memo: Mapping[Term, Term], env: Env) -> Term:
        parts: list[Part] = []
        for p in t.parts:
            if self.fixed & set(p.dims):
                for more in self.values(replace(p, cons=(*p.cons, *self.context)), env):  # what bounds the fields, too
                    here = {**env, **more}
                    parts += self._part(p, self.term(p.body, here), here)
            else:
                parts += self._part(p, memo[p.body], env)
        count = None if t.count is None else self.expr(t.count, env)
        if count is not None and (count.constant or 0) > 0:
            count = None
        if parts:
            return replace(t, parts=tuple(parts), count=count)
        return Number(t.kind, t.gather.empty)

    def _part(self, p: Part, body: Term, env: Env) -> Iterator[Part]:
        cons = self.cons(p.cons, env)
        guards = [g for g in (self.cons(g, env) for g in p.guards) if g is not None]
        if cons is None or (p.guards and not guards) or not exists(self.lin, (*self.context, *cons)):
            return
        dims = tuple(d for d in p.dims if d not in env)
        yield Part(dims, cons, body, () if () in guards else tuple(guards))


def exists(lin: Linear, cons: Cons) -> bool:
    """Whether constraints have a point."""
    if not lin.feasible(cons):
        return False
    names = {n for c in cons for n in c.e.names} - {*lin.ctx.params, *lin.ctx.constants}
    return not lin.ctx.set(sorted(names), formula(cons)).is_empty()


_ARITHMETIC: Mapping[type, Callable[[IndexExpr, IndexExpr], IndexExpr]] = {
    arith.AddiOp: lambda a, b: a + b,
    arith.SubiOp: lambda a, b: a - b,
    arith.MuliOp: lambda a, b: a * b,
}


def known(t: Apply) -> Term:
    """An operation on indices and literals as what it gives; any other one as it is."""
    match t.op:
        case arith.AddiOp() | arith.SubiOp() | arith.MuliOp():
            a, b = map(_index, t.args)
            return t if a is None or b is None else IndexValue(_ARITHMETIC[type(t.op)](a, b))
        case arith.CmpiOp():
            a, b = (None if e is None else e.constant for e in map(_index, t.args))
            predicate = t.op.predicate.value.data
            if a is None or b is None or predicate >= len(INTEGER_TESTS):
                return t
            return Number(Kind.BOOL, float(Formula.compare(a, INTEGER_TESTS[predicate], b).evaluate({}, lambda array, i: 0)))
        case arith.SelectOp() if isinstance(t.args[0], Number):
            return t.args[1] if t.args[0].value else t.args[2]
        case arith.SIToFPOp():
            a = _index(t.args[0])
            if a is None or a.constant is None or abs(a.constant) > EXACT:
                return t
            return Number(t.kind, float(a.constant))
        case _:
            return t


def _index(t: Term) -> IndexExpr | None:
    """An integer that is known for each instance."""
    match t:
        case IndexValue(e):
            return e
        case Number(Kind.INT, value):
            return IndexExpr.of(int(value))
        case _:
            return None
