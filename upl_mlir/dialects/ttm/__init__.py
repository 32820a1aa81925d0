"""The `ttm` dialect: programs of the tagged-token machine (node table, tag layouts, microcode, routes)."""

from upl_mlir.dialects.ttm.ops import (
    TTM,
    BootOp,
    Field,
    ForOp,
    Input,
    LoadOp,
    ModOp,
    NodeOp,
    OutputOp,
    ProgramOp,
    SendOp,
    SigmoidOp,
    TableOp,
    WhenOp,
    fields_of,
    inputs_of,
)

__all__ = [
    "TTM", "BootOp", "Field", "ForOp", "Input", "LoadOp", "ModOp", "NodeOp", "OutputOp", "ProgramOp", "SendOp",
    "SigmoidOp", "TableOp", "WhenOp", "fields_of", "inputs_of",
]  # fmt: skip
