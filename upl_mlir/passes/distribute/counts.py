"""What an exchange brings a rank, counted exactly: what it does not own of the exchange's box, over all iterations."""

from __future__ import annotations

from upl_mlir.passes.distribute.exchanges import Placed
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.poly.counts.counting import count
from upl_mlir.poly.counts.quota import TooComplex, limited
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.linear import Cons
from upl_mlir.poly.sets import PSet


def received(p: LoopProgram, placed: Placed) -> PSet:
    """The elements that a rank receives by an exchange, once for each iteration of the loops round it; of a partial array,
    those that it gives to be combined.

    Its dimensions are the loops' variables and the array's fields."""
    x, ctx = placed.exchange, p.system.lin.ctx
    fields = tuple(r.var for r in x.ranges)
    inside = _all((*placed.around, *placed.when, *x.cons))
    if x.array in p.partial:
        return ctx.set((*placed.outer, *fields), inside & ctx.param_condition)
    cut = p.cuts[x.array]
    own = _all(cut.block.holds(IndexExpr.of(cut.field)))
    whole = Formula.compare(cut.block.low, "<=", IndexExpr.of(cut.field))
    whole &= Formula.compare(IndexExpr.of(cut.field), "<=", cut.block.high)
    return ctx.set((*placed.outer, *fields), inside & own.negate() & whole & ctx.param_condition)


def elements(p: LoopProgram, placed: Placed) -> IndexExpr | None:
    """Their number by the sizes and the rank's blocks; None if no such formula is found."""
    try:
        with limited():
            return count(received(p, placed))
    except TooComplex:
        return None


def _all(cons: Cons) -> Formula:
    return Formula.all(Formula.compare(c.e, "==" if c.eq else ">=", 0) for c in cons)
