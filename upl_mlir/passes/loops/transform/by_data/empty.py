"""A gather whose summands data choose has the value of none where there is none, without being asked.

    came<i> = +[Row<e> == i ? 1 : 0 for e in 0..z-1]
    v<i>    = max[Row<e> == i ? V<e> : -inf for e in 0..z-1]
    Y<i>    = came<i> == 0 ? -inf : v<i>                        ->      Y<i> = v<i>

So `came` goes where nothing else asks for it.  This holds of sums if the sign of 0 does not count: sums that keep their
order start from -0, and only a sum without summands is +0.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)

from __future__ import annotations

from xdsl.dialects import arith

from upl_mlir.dialects.upl import Gather
from upl_mlir.passes.loops.matches import EQUAL, is_neutral
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import (
    Apply,
    Fold,
    Get,
    Number,
    Part,
    Term,
    alike,
    inner_first,
    made_of,
    rewritten,
    under,
)
from upl_mlir.poly.expr import IndexExpr


def ask_no_empty_gathers(system: System, *, signed: bool) -> bool:
    """Change the system; whether there was such a question.  Equations that nothing reads any more go.  With `signed` the
    sign of 0 counts."""
    some = False
    for eq in system.equations.values():
        for n, (cons, term) in enumerate(eq.pieces):
            memo: dict[Term, Term] = {}
            for t in inner_first(term, made_of):
                found = _asked(system, t, signed)
                if found is not None:
                    memo[t] = found
            if memo:
                some = True
                eq.pieces[n] = cons, rewritten(term, memo, lambda g: g)
    if some:
        read = {
            g.array for eq in system.equations.values() for _, term in eq.pieces
            for g in inner_first(term, made_of) if isinstance(g, Get)
        }  # fmt: skip
        for name in [n for n, eq in system.equations.items() if not eq.output and n not in read]:
            del system.equations[name]
    return some


def _asked(system: System, t: Term, signed: bool) -> Get | Fold | None:
    """The gather, if a term is what it begins with where it has no summands, and else the gather."""
    match t:
        case Apply(
            _, arith.SelectOp(), (
                Apply(_, arith.CmpiOp() as asks, (Get() | Fold() as count, Number(_, 0))),
                Number() as none, Get() | Fold() as value,
            ),
        ):  # fmt: skip
            pass
        case _:
            return None
    if asks.predicate.value.data != EQUAL or not value.kind.is_float:
        return None
    folds = [value] if isinstance(value, Fold) else _folds(system, value.array)
    if not folds or not all(_begins(s, none, signed) for s in folds):
        return None
    if isinstance(count, Fold):
        return value if isinstance(value, Fold) and _counts_all(count, value, {}) else None
    of = system.equations.get(count.array)
    if isinstance(value, Fold):  # a sum that only this element has
        return value if of is not None and _counts_here(of, count, value) else None
    if count.index != value.index:
        return None
    s = system.equations.get(value.array)
    return value if of is not None and s is not None and _counts(of, s) else None


def _folds(system: System, array: str) -> list[Fold]:
    """The gathers that the elements of an array are; none if one is something else that may have no summands."""
    eq = system.equations.get(array)
    return [] if eq is None else [t for _, t in eq.pieces if isinstance(t, Fold)]


def _begins(s: Fold, none: Number, signed: bool) -> bool:
    """Whether a gather without summands is this number."""
    if s.gather is Gather.SUM and not signed:
        return none.value == 0
    return is_neutral(none, s)


def _counts(of: Equation, s: Equation) -> bool:
    """Whether the elements of one array are the numbers of summands of the other's."""
    if len(of.fields) != len(s.fields) or len(of.pieces) != len(s.pieces):
        return False
    at = {f: IndexExpr.of(g) for f, g in zip(of.fields, s.fields, strict=True)}
    return all(
        tuple(c.substitute(at) for c in mine) == cons and _counted(counted, summed, at)
        for (mine, counted), (cons, summed) in zip(of.pieces, s.pieces, strict=True)
    )  # fmt: skip


def _counted(counted: Term, summed: Term, at: dict[str, IndexExpr]) -> bool:
    """Whether an element is the number of summands of another one; it is 1 where the other one is no gather."""
    if not isinstance(summed, Fold):
        return isinstance(counted, Number) and counted.value == 1
    return isinstance(counted, Fold) and _counts_all(counted, summed, at)


def _counts_here(of: Equation, count: Get, s: Fold) -> bool:
    """Whether an element of an array is the number of summands of a sum that stands beside it."""
    if len(of.pieces) != 1 or not isinstance(counted := of.pieces[0][1], Fold):
        return False
    return _counts_all(counted, s, dict(zip(of.fields, count.index, strict=True)))


def _counts_all(counted: Fold, s: Fold, at: dict[str, IndexExpr]) -> bool:
    """Whether a sum counts the summands of another one, where the names in it are `at`."""
    sums = counted.gather is Gather.SUM and len(counted.parts) == len(s.parts)
    return sums and all(_same(s, p, q, at) for p, q in zip(counted.parts, s.parts, strict=True))


def _same(s: Fold, counted: Part, summed: Part, at: dict[str, IndexExpr]) -> bool:
    """Whether a part counts 1 for each summand of another one, of the gather `s`."""
    if len(counted.dims) != len(summed.dims) or len(counted.guards) != len(summed.guards):
        return False
    at = at | {d: IndexExpr.of(e) for d, e in zip(counted.dims, summed.dims, strict=True)}
    for cons, others in ((counted.cons, summed.cons), *zip(counted.guards, summed.guards, strict=True)):
        if tuple(c.substitute(at) for c in cons) != others:
            return False
    return _same_cases(s, counted.body, summed.body, at)


def _same_cases(s: Fold, one: Term, body: Term, at: dict[str, IndexExpr]) -> bool:
    """Whether a term is 1 under the conditions of another one, which else leaves the gather `s` as it is, and else 0."""
    match one, body:
        case Number(_, 1), _:
            return True
        case (
            Apply(_, arith.SelectOp(), (when, yes, Number(_, 0))), Apply(_, arith.SelectOp(), (cond, some, Number() as none))
        ):  # fmt: skip
            return is_neutral(none, s) and alike(under(when, at), cond) and _same_cases(s, yes, some, at)
        case _:
            return False
