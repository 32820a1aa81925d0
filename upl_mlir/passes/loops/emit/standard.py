"""What is written as text has operations of MLIR's own dialects only, so that MLIR's tools read it."""

from __future__ import annotations

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, FloatAttr, ModuleOp
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern, op_type_rewrite_pattern

from upl_mlir.dialects.upl import SigmoidOp


class _Logistic(RewritePattern):
    """(x >= 0 ? 1 : e) / (1 + e) with e = exp(-|x|), as the interpreter computes it."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: SigmoidOp, rewriter: PatternRewriter, /) -> None:
        """Replace the operation."""
        x = op.operands[0]
        assert isinstance(x.type, AnyFloat)
        zero, one = (arith.ConstantOp(FloatAttr(value, x.type)) for value in (0.0, 1.0))
        size = math.AbsFOp(x)
        negative = arith.NegfOp(size)
        e = math.ExpOp(negative)
        above = arith.CmpfOp(x, zero, "oge")
        over, under = arith.SelectOp(above, one, e), arith.AddfOp(one, e)
        rewriter.replace(op, [zero, one, size, negative, e, above, over, under, arith.DivfOp(over, under)])


def to_standard(module: ModuleOp) -> None:
    """Write the logistic function by others; native code keeps the operation, for which it has vectors."""
    PatternRewriteWalker(_Logistic()).rewrite_module(module)
