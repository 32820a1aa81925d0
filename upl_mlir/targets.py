"""What `upl-opt -t` writes besides MLIR text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from upl_mlir.dialects.upl.query import program_of


@dataclass(frozen=True)
class UplTarget(Target):
    """`.upl` text that parses to the same program."""

    name = "upl"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        from upl_mlir.frontend.upl_text.printer import print_program

        output.write(print_program(program_of(module)))


@dataclass(frozen=True)
class VerilogTarget(Target):
    """The matching unit of the machine that the module was lowered for, as Verilog; lowers it first if it was not."""

    name = "verilog"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        from upl_mlir.dialects.upl import ProgramOp
        from upl_mlir.hw.verilog import verilog_of
        from upl_mlir.passes.lower_hw import LowerHwPass

        if any(isinstance(op, ProgramOp) for op in module.body.block.ops):
            module = module.clone()
            LowerHwPass().apply(ctx, module)
        output.write(verilog_of(module))
