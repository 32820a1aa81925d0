"""Binding parameters: a program with sizes fixed, as engines that need sizes want it."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import IntegerAttr, i64

from upl_mlir.diagnostics import did_you_mean, error
from upl_mlir.dialects.upl import ConstOp, ParamOp, ProgramOp
from upl_mlir.dialects.upl.query import poly_context, span_of


def bind_definitions(program: ProgramOp, values: Mapping[str, object]) -> None:
    """Bind parameters of a program that came as IR, as ``-D NAME=VALUE`` asks, in place.

    Raises UplError: UPL1511 for a name that is no parameter (constants are overridden only in `.upl` text, where what
    depends on them is computed anew), UPL1512 for a value that is no integer or breaks the parameter's condition.
    """
    params = {op.symbol: op for op in program.body.block.ops if isinstance(op, ParamOp)}
    bound: dict[str, int] = {}
    for name, value in values.items():
        if name not in params:
            raise error("UPL1511", f"the program has no parameter `{name}`", span_of(program),
                        help=did_you_mean(name, params) or "constants can be overridden only in .upl text")  # fmt: skip
        if isinstance(value, bool) or not isinstance(value, int):
            raise error("UPL1512", f"the parameter `{name}` must be an integer, not {value!r}", span_of(params[name]))
        bound[name] = value
    ctx = poly_context(program, bound)
    for name, value in bound.items():
        condition = params[name].condition
        if condition is not None and ctx.set((), condition.data).is_empty():
            raise error("UPL1512", f"{name} = {value} breaks the condition `{condition.data}`", span_of(params[name]))
    bind_parameters(program, bound)


def bind_parameters(program: ProgramOp, values: Mapping[str, int]) -> None:
    """Turn the parameters named in `values` into constants, in place.  Conditions are the caller's to check."""
    for op in list(program.body.block.ops):
        if isinstance(op, ParamOp) and op.symbol in values:
            const = ConstOp(op.symbol, IntegerAttr(values[op.symbol], i64))
            const.location = op.location
            program.body.block.insert_op_before(const, op)
            op.detach()
            op.erase()
