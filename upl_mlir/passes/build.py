"""Writing node bodies from Python: index expressions and conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import i1, i64
from xdsl.ir import SSAValue

from upl_mlir.dialects.upl import LookupOp, ModOp, RefOp
from upl_mlir.ops import Body
from upl_mlir.poly.expr import Atom, Div, Formula, IndexExpr, Lookup, MinMax, Monomial, Select, Var
from upl_mlir.poly.operators import CmpOp, Connective, DivKind, Extremum


def unused(name: str, used: set[str]) -> str:
    """The name, with a number behind it if it is taken; takes it."""
    out, n = name, 2
    while out in used:
        out, n = f"{name}_{n}", n + 1
    used.add(out)
    return out


MOST_PLAIN = 1 << 15
"""A factor from which on the product with one index counts as one that may overflow. Chosen, not measured."""


@dataclass(frozen=True)
class Lazy:
    """Where branches that are not taken are computed all the same: unless `given` holds, entries of arrays that only a
    branch reads are read at `first(array)`, which exists, its divisors are 1 and its products 0, so that nothing fails."""

    first: Callable[[str], IndexExpr | int]
    given: SSAValue | None = None

    def when(self, body: Body, c: SSAValue) -> Lazy:
        """In a branch that is taken if `c` holds as well."""
        return replace(self, given=c if self.given is None else body.add(arith.AndIOp(self.given, c)))


def index_value(body: Body, e: IndexExpr, env: Mapping[str, SSAValue], lazy: Lazy | None = None) -> SSAValue:
    """The i64 value of an index expression; names outside `env` are constants and parameters of the program."""
    total: SSAValue | None = None
    for m, c in sorted(e.terms, key=lambda t: t[1] < 0):  # what is subtracted comes last
        size = c if total is None else abs(c)
        term: SSAValue | None = None if m and size == 1 else body.constant(size, i64)
        for n, atom in enumerate(m):
            v = _atom(body, atom, env, lazy)
            if n == 0 and lazy is not None and lazy.given is not None and _large(m, c):
                v = body.add(arith.SelectOp(lazy.given, v, body.constant(0, i64)))
            term = v if term is None else body.add(arith.MuliOp(term, v))
        assert term is not None
        make = arith.AddiOp if size == c else arith.SubiOp
        total = term if total is None else body.add(make(total, term))
    return total if total is not None else body.constant(0, i64)


def _atom(body: Body, atom: Atom, env: Mapping[str, SSAValue], lazy: Lazy | None) -> SSAValue:
    match atom:
        case Var(name):
            return env[name] if name in env else body.add(RefOp(name, i64))
        case Lookup(array, index):
            at = index_value(body, index, env, lazy)
            if lazy is not None and lazy.given is not None:
                at = body.add(arith.SelectOp(lazy.given, at, index_value(body, IndexExpr.of(lazy.first(array)), env)))
            return body.add(LookupOp(array, at, i64))
        case Div(kind, num, den):
            make = {
                DivKind.FLOORDIV: arith.FloorDivSIOp, DivKind.CEILDIV: arith.CeilDivSIOp, DivKind.MOD: ModOp,
            }[kind]  # fmt: skip
            left, right = index_value(body, num, env, lazy), index_value(body, den, env, lazy)
            if lazy is not None and lazy.given is not None and not _divides(den):
                right = body.add(arith.SelectOp(lazy.given, right, body.constant(1, i64)))
            return body.add(make(left, right))
        case MinMax(kind, args):
            first, *rest = [index_value(body, a, env, lazy) for a in args]
            for v in rest:
                first = body.add((arith.MinSIOp if kind is Extremum.MIN else arith.MaxSIOp)(first, v))
            return first
        case Select(cond, then, other):
            c = condition(body, cond, env, lazy)
            yes = no = lazy
            if lazy is not None and (_may_fail(then.atoms(), then) or _may_fail(other.atoms(), other)):
                yes, no = lazy.when(body, c), lazy.when(body, _negated(body, c))
            return body.add(arith.SelectOp(c, index_value(body, then, env, yes), index_value(body, other, env, no)))


def _large(m: Monomial, c: int) -> bool:
    """Whether a term may overflow: a product of indices, or of one and a large number."""
    return len(m) > 1 or (len(m) == 1 and abs(c) >= MOST_PLAIN)


def _divides(den: IndexExpr) -> bool:
    """Whether a division by this cannot fail: by a number other than 0 and -1."""
    return den.constant not in (None, 0, -1)


def _may_fail(atoms: Iterable[Atom], *sums: IndexExpr) -> bool:
    """Whether expressions have no value everywhere: their atoms, nested ones included, and themselves."""
    parts = [*sums]
    for atom in atoms:
        match atom:
            case Lookup():
                return True
            case Div(_, num, den):
                if not _divides(den):
                    return True
                parts += (num, den)
            case MinMax(_, args):
                parts += args
            case Select(cond, then, other):
                parts += (*_sides(cond), then, other)
            case Var():
                pass
    return any(_large(m, c) for e in parts for m, c in e.terms)


def _sides(f: Formula) -> list[IndexExpr]:
    """The sides of all comparisons of a formula."""
    return [f.lhs, f.rhs] if f.kind is Connective.CMP else [e for a in f.args for e in _sides(a)]


_PREDICATE = {CmpOp.LE: "sle", CmpOp.LT: "slt", CmpOp.EQ: "eq", CmpOp.NE: "ne", CmpOp.GE: "sge", CmpOp.GT: "sgt"}


def _negated(body: Body, c: SSAValue) -> SSAValue:
    return body.add(arith.XOrIOp(c, body.constant(1, i1)))


def condition(body: Body, f: Formula, env: Mapping[str, SSAValue], lazy: Lazy | None = None) -> SSAValue:
    """The i1 value of a formula over the fields in `env`."""
    match f.kind:
        case Connective.CMP:
            left, right = index_value(body, f.lhs, env, lazy), index_value(body, f.rhs, env, lazy)
            return body.add(arith.CmpiOp(left, right, _PREDICATE[f.op]))
        case Connective.NOT:
            return _negated(body, condition(body, f.args[0], env, lazy))
        case Connective.AND | Connective.OR:
            is_and = f.kind is Connective.AND
            if not f.args:
                return body.constant(1 if f.is_true else 0, i1)
            first, *rest = f.args
            total = condition(body, first, env, lazy)
            for a in rest:
                inner = lazy
                if lazy is not None and _may_fail(a.atoms(), *_sides(a)):
                    inner = lazy.when(body, total if is_and else _negated(body, total))
                total = body.add((arith.AndIOp if is_and else arith.OrIOp)(total, condition(body, a, env, inner)))
            return total
