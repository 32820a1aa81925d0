"""Programs on tensors, statement by statement, and their translation to UPL: what the other front ends share.

A front end (einsum, static graphs, Python functions) builds a `TensorProgram`; `lower` makes the `upl` module of it.
"""

from __future__ import annotations

from upl_mlir.frontend.tensor.form import (
    ENDLESS,
    STATE,
    Apply,
    Branch,
    Carry,
    Cases,
    Chain,
    Derivative,
    Expr,
    Gate,
    Number,
    Pick,
    Position,
    Read,
    Scatter,
    Statement,
    Sum,
    Tensor,
    TensorProgram,
    TensorStatement,
    While,
    chained,
    renamed,
)
from upl_mlir.frontend.tensor.lower import lower

__all__ = [
    "ENDLESS", "STATE", "Apply", "Branch", "Carry", "Cases", "Chain", "Derivative", "Expr", "Gate", "Number",
    "Pick", "Position", "Read", "Scatter", "Statement", "Sum", "Tensor", "TensorProgram", "TensorStatement", "While",
    "chained", "lower", "renamed",
]  # fmt: skip
