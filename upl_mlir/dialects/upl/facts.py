"""What callers ask of a program most: names and fields.  Plain data, for when the program itself is not at hand."""

from __future__ import annotations

from dataclasses import dataclass

from upl_mlir.dialects.upl.ops import AdjointOp, ParamOp, ProgramOp
from upl_mlir.dialects.upl.query import inputs, outputs


@dataclass(frozen=True)
class Facts:
    """Names of a program, its open parameters, and its host ports with their fields, in text order.

    `adjoint`: it has `adjoint of` directives.
    """

    name: str
    params: tuple[str, ...]
    inputs: dict[str, tuple[str, ...]]
    outputs: dict[str, tuple[str, ...]]
    adjoint: bool


def facts_of(program: ProgramOp) -> Facts:
    """The facts of a program."""
    ops = program.body.block.ops
    return Facts(
        program.sym_name.data, tuple(op.symbol for op in ops if isinstance(op, ParamOp)),
        {op.symbol: op.fields for op in inputs(program)}, {op.symbol: op.fields for op in outputs(program)},
        any(isinstance(op, AdjointOp) for op in ops),
    )  # fmt: skip
