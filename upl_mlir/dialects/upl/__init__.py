"""The `upl` dialect: UPL programs as IR.  See `rationale.md` beside this file for why it looks as it does."""

from upl_mlir.dialects.upl.attributes import FormulaAttr, Index, Iterator, Port, RankAttr, Special, UplType, upl_type
from upl_mlir.dialects.upl.gathers import Gather
from upl_mlir.dialects.upl.ops import (
    UPL,
    AdjointOp,
    ArrayOp,
    ConstOp,
    InputOp,
    NodeOp,
    OutputOp,
    ParamOp,
    ProgramOp,
    SendOp,
    port_ref,
)
from upl_mlir.dialects.upl.values import AlongOp, LetOp, LookupOp, ModOp, RefOp, SigmoidOp, StopGradientOp
from upl_mlir.dialects.upl.verify import verify_program

ProgramOp.RULES.append(verify_program)

__all__ = [
    "UPL", "AdjointOp", "AlongOp", "ArrayOp", "ConstOp", "FormulaAttr", "Gather", "Index", "InputOp", "Iterator",
    "LetOp", "LookupOp", "ModOp", "NodeOp", "OutputOp", "ParamOp", "Port", "ProgramOp", "RankAttr", "RefOp", "SendOp",
    "SigmoidOp", "Special", "StopGradientOp", "UplType", "port_ref", "upl_type",
]  # fmt: skip
