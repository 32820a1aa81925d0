"""Operations of bodies read back as operations of tensor expressions: the inverse of `frontend.tensor.values`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Operation, SSAValue

from upl_mlir.dialects.upl import LetOp, ModOp, StopGradientOp
from upl_mlir.frontend.tensor import Number
from upl_mlir.frontend.upl_text.bodies import FLOAT_OPS, FLOAT_PREDICATES, INT_OPS, INT_PREDICATES
from upl_mlir.ops import SPOKEN

SAME = "same"
"""The operation that passes its operand on: a name, or a conversion between number types."""


@dataclass(frozen=True)
class Scalar:
    """An operation by its name in `form.Apply` (or `SAME`), with the operands that it reads."""

    op: str
    operands: Sequence[SSAValue]


_NAMES: dict[type[Operation], str] = {
    **{kind: op.value for op, kind in INT_OPS.items()},
    **{kind: op.value for op, kind in FLOAT_OPS.items()},
    **{f.op: name for name, f in SPOKEN.items()},
    arith.NegfOp: "neg", math.AbsFOp: "abs", math.AbsIOp: "abs", math.FloorOp: "floor", ModOp: "mod",
    arith.MinSIOp: "min", arith.MaxSIOp: "max", arith.MinimumfOp: "min", arith.MaximumfOp: "max",
    arith.SelectOp: "?:", StopGradientOp: "stop_gradient", arith.AndIOp: "&&", arith.OrIOp: "||",
    **dict.fromkeys((LetOp, arith.ExtFOp, arith.TruncFOp, arith.SIToFPOp, arith.ExtUIOp), SAME),
}  # fmt: skip
_PREDICATES = {name: op for table in (INT_PREDICATES, FLOAT_PREDICATES) for op, name in table.items()}


def operation(op: Operation) -> Scalar | Number | None:
    """What an operation is in a tensor expression; None for one that has no place there."""
    match op:
        case arith.ConstantOp():
            value = op.value
            return Number(value.value.data) if isinstance(value, FloatAttr | IntegerAttr) else None
        case arith.CmpfOp() | arith.CmpiOp():
            name = _PREDICATES.get(_predicate(op))
            return Scalar(name, op.operands) if name is not None else None
        case arith.SubiOp() if _is_zero(op.lhs):
            return Scalar("neg", [op.rhs])
        case arith.FPToSIOp() if isinstance(op.input.owner, math.FloorOp):
            return Scalar(SAME, op.operands)
        case _:
            name = _NAMES.get(type(op))
            return Scalar(name, op.operands) if name is not None else None


def _predicate(op: arith.CmpfOp | arith.CmpiOp) -> str:
    names = arith.CMPF_COMPARISON_OPERATIONS if isinstance(op, arith.CmpfOp) else arith.CMPI_COMPARISON_OPERATIONS
    return names[op.predicate.value.data]


def _is_zero(v: SSAValue) -> bool:
    owner = v.owner
    return isinstance(owner, arith.ConstantOp) and isinstance(owner.value, IntegerAttr) and not owner.value.value.data
