# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Truths that follow from indices alone: which side of a selection is taken, and by which border a domain is to be cut.

    D<i,j> = i > k ? A<i,j> : B<i,j>
    ->
    D<i,j> = A<i,j> where i > k;  D<i,j> = B<i,j> where i <= k

Loops over the parts have no test, and those over triangles do half of the work.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from xdsl.dialects import arith
from xdsl.ir import Operation

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.terms import Apply, Convert, IndexValue, Number, Term
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Con, Cons, Linear

_INTEGERS = ("==", "!=", "<", "<=", ">", ">=")
"""The predicates of `arith.cmpi` by number; those behind them compare without sign."""
_REALS = {1: "==", 2: ">", 3: ">=", 4: "<", 5: "<=", 6: "!=", 8: "==", 9: ">", 10: ">=", 11: "<", 12: "<=", 13: "!="}
"""The predicates of `arith.cmpf` by number, ordered and not: no index is NaN."""
_TRUTHS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_LINEAR: dict[type[Operation], Callable[[IndexExpr, IndexExpr], IndexExpr]] = {
    arith.AddiOp: operator.add, arith.SubiOp: operator.sub,
}  # fmt: skip


def folded(t: Apply) -> Term:
    """Sums and differences of indices as one index, comparisons of literals as a truth value, products of literals that
    are 0 as a literal; else the term itself."""
    if len(t.args) != 2:
        return t
    a, b = t.args
    if (how := _LINEAR.get(type(t.op))) and isinstance(a, IndexValue | Number) and isinstance(b, IndexValue | Number):
        return IndexValue(how(_index(a), _index(b))) if IndexValue in (type(a), type(b)) else t
    if isinstance(t.op, arith.MulfOp) and isinstance(a, Number) and isinstance(b, Number) and a.value * b.value == 0:
        return Number(t.kind, a.value * b.value)
    if isinstance(a, Number) and isinstance(b, Number) and (asks := _asked(t)):
        return Number(Kind.BOOL, _TRUTHS[asks](a.value, b.value))
    return t


def truth(lin: Linear, t: Term, at: Cons, ask: Callable[[Con], None]) -> bool | None:
    """Whether a term holds wherever the constraints do.  If that differs from point to point, `ask` gets the border; if
    it depends on data, it gets none."""
    match t:
        case Number(Kind.BOOL, value):
            return bool(value)
        case Apply(_, arith.AndIOp() | arith.OrIOp() as op, (a, b)) if t.kind is Kind.BOOL:
            ends = isinstance(op, arith.OrIOp)  # the value of one that makes it that of both
            found = [truth(lin, x, at, ask) for x in (a, b)]
            return ends if ends in found else None if None in found else not ends
        case Apply(_, arith.XOrIOp(), (a, Number(Kind.BOOL, value))):
            inner = truth(lin, a, at, ask)
            return None if inner is None else inner is not bool(value)
        case Apply(_, _, (a, b)) if (asks := _asked(t)) and (x := _whole(a)) is not None and (y := _whole(b)) is not None:
            holds, con = _border(asks, lin.plain(x - y))
            if not lin.feasible((*at, con)):
                return not holds
            if lin.implies(at, con):
                return holds
            ask(con)
            return None
        case _:
            return None


def _asked(t: Apply) -> str | None:
    """Which comparison a term is; None if it is none."""
    match t.op:
        case arith.CmpiOp():
            number = t.op.predicate.value.data
            return _INTEGERS[number] if number < len(_INTEGERS) else None
        case arith.CmpfOp():
            return _REALS.get(t.op.predicate.value.data)
        case _:
            return None


def _index(t: IndexValue | Number) -> IndexExpr:
    return t.e if isinstance(t, IndexValue) else IndexExpr.of(int(t.value))


def _whole(t: Term) -> IndexExpr | None:
    """An index, also as a real, or a literal without a fraction."""
    match t:
        case IndexValue() | Number(Kind.INT):
            return _index(t)
        case Number(_, value) if float(value).is_integer() and abs(value) < 2**31:
            return IndexExpr.of(int(value))
        case Apply(_, arith.SIToFPOp(), (inner,)) | Convert(_, inner):
            return _whole(inner)
        case _:
            return None


def _border(asks: str, e: IndexExpr) -> tuple[bool, Con]:
    """A comparison of `e` with 0 as a constraint, and whether it holds where the constraint does."""
    match asks:
        case "==" | "!=":
            return asks == "==", Con(e, True)
        case ">=":
            return True, Con(e)
        case "<":
            return False, Con(e)
        case "<=":
            return True, Con(-e)
        case _:
            return False, Con(-e)
