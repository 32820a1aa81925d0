"""A relation as loops: the points that belong to a given point, enumerated.

What an arrow with `for` says, what its inverse says and what a loop nest in C says are all this: some dimensions follow
from those that are known, the others are walked through between bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upl_mlir.poly.describe import Interval, describe, interval
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.sets import PSet


@dataclass(frozen=True)
class Nest:
    """Loops over what belongs to a point of the given dimensions.

    `condition`, over the given dimensions, says where there may be anything; `loops` are the iterators with bounds over the
    given dimensions and the iterators before; `point` is what else must hold; `names` has every enumerated dimension.
    """

    condition: Formula
    loops: tuple[tuple[str, Interval], ...]
    point: Formula
    names: dict[str, IndexExpr]


def nest(r: PSet, over: Sequence[str], given: Sequence[str], context: PSet) -> Nest | None:
    """The loops that enumerate the dimensions `over` of a convex set, in that order, for a point of `given`.

    The dimensions of `r` are those of `over` and `given`; `context` is what is known of `given`.  None if some dimension
    has no bounds, or a condition cannot be said exactly.
    """
    outer: list[str] = list(given)
    loops: list[tuple[str, Interval]] = []
    names: dict[str, IndexExpr] = {}
    bounds: list[Formula] = []
    for dim in over:
        known = r.express(IndexExpr.of(dim), outer)
        if known is not None:
            names[dim] = known
            continue
        got = interval(r, dim, outer, rough=True)
        if got is None:
            return None
        if got[0].lo == got[0].hi and got[1].is_true:  # the entry of an array in it kept `express` from seeing that
            names[dim] = got[0].lo
            continue
        loops.append((dim, got[0]))
        bounds.append(Formula.compare(got[0].lo, "<=", dim) & Formula.compare(dim, "<=", got[0].hi))
        names[dim] = IndexExpr.of(dim)
        outer.append(dim)
    base, whole = r.project(given).as_meant(), r.project(outer)
    if whole.lost:
        return None  # a part that is not affine cannot be said in terms of what is enumerated
    walked = base.extend(outer).constrain(Formula.all(bounds))
    point = describe(whole, walked)
    return Nest(describe(base, context), tuple(loops), point, names)
