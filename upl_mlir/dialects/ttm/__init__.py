"""The `ttm` dialect: programs of the tagged-token machine (node table, tag layouts, microcode, routes)."""

from upl_mlir.dialects.ttm.attributes import Field, FieldsAttr, Input, InputsAttr
from upl_mlir.dialects.ttm.ops import (
    TTM,
    BootOp,
    ForOp,
    LoadOp,
    ModOp,
    NodeOp,
    OutputOp,
    ProgramOp,
    SendOp,
    SigmoidOp,
    TableOp,
    WhenOp,
)
from upl_mlir.dialects.ttm.verify import verify_program

ProgramOp.RULES.append(verify_program)

__all__ = [
    "TTM", "BootOp", "Field", "FieldsAttr", "ForOp", "Input", "InputsAttr", "LoadOp", "ModOp", "NodeOp", "OutputOp",
    "ProgramOp", "SendOp", "SigmoidOp", "TableOp", "WhenOp",
]  # fmt: skip
