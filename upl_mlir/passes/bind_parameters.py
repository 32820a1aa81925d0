"""Binding parameters: a program with sizes fixed, as engines that need sizes want it."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import IntegerAttr, i64

from upl_mlir.dialects.upl import ConstOp, ParamOp, ProgramOp


def bind_parameters(program: ProgramOp, values: Mapping[str, int]) -> None:
    """Turn the parameters named in `values` into constants, in place.  Conditions are the caller's to check."""
    for op in list(program.body.block.ops):
        if isinstance(op, ParamOp) and op.symbol in values:
            const = ConstOp(op.symbol, IntegerAttr(values[op.symbol], i64))
            const.location = op.location
            program.body.block.insert_op_before(const, op)
            op.detach()
            op.erase()
