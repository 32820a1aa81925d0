"""What `upl-opt -t` writes besides MLIR text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from upl_mlir.diagnostics import error
from upl_mlir.dialects.loops.ops import BlockOp, LoopProgramOp
from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.query import directives, program_of
from upl_mlir.passes.expand import expand


@dataclass(frozen=True)
class UplTarget(Target):
    """`.upl` text that parses to the same program."""

    name = "upl"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        from upl_mlir.frontend.upl_text.printing.printer import print_program

        output.write(print_program(program_of(module)))


@dataclass(frozen=True)
class VerilogTarget(Target):
    """A circuit (`lower-circuit`), or the machine that a module was lowered for (`lower-hw`), as Verilog; a module that was
    not lowered is lowered for the machine first.

    `device` is what a circuit is made of: "generic" for any device and for simulation, "ecp5" for that family.
    """

    name = "verilog"
    device: str = "generic"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        from upl_mlir.hw.circuit.verilog import circuit_of, circuit_verilog
        from upl_mlir.hw.verilog import verilog_of
        from upl_mlir.passes.hardware.lower_hw import LowerHwPass

        circuit = circuit_of(module)
        if circuit is not None:
            output.write(circuit_verilog(circuit, self.device))
            return

        if any(isinstance(op, ProgramOp) for op in module.body.block.ops):
            module = module.clone()
            LowerHwPass().apply(ctx, module)
        output.write(verilog_of(module))


@dataclass(frozen=True)
class HwTarget(Target):
    """A circuit (`lower-circuit`) in the dialects `hw`, `comb` and `seq` of CIRCT.  Raises UplError UPL2011 for another
    module."""

    name = "hw"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        from upl_mlir.hw.circuit.verilog import circuit_hw, circuit_of

        circuit = circuit_of(module)
        if circuit is None:
            message = "`-t hw` writes circuits, and this module has none"
            raise error("UPL2011", message, help="put `--lower-circuit` before it")
        output.write(circuit_hw(circuit))


@dataclass(frozen=True)
class CTarget(Target):
    """One C99 file that needs nothing but libm, and MPI for a program that `distribute` has divided; with `header`, the
    header to include where it is called.

    A program is lowered to loops first, as `lower-loops` does with the same `gather` and `real`; what was scheduled or
    divided is proved and lowered as it is, a module that was lowered is taken as it is.
    Raises UplError (UPL1820 for what C code lacks, UPL18xx as `lower-loops`).
    """

    name = "c"
    gather: str = "ordered"
    real: str = "f64"
    header: bool = False

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        from upl_mlir.engines.native.c.c_source import emit, emit_one_file
        from upl_mlir.passes.lower_to_loops import LowerLoopsPass, legal

        for op in module.body.block.ops:
            if isinstance(op, LoopProgramOp) and any(isinstance(o, BlockOp) for o in op.body.block.ops):
                from upl_mlir.engines.mpi.c_source import emit_ranks

                output.write(emit_ranks(legal(op), only_header=self.header))
                return
        if any(isinstance(op, ProgramOp | LoopProgramOp) for op in module.body.block.ops):
            module = module.clone()
            LowerLoopsPass(real=self.real, gather=self.gather).apply(ctx, module)
        output.write(emit(module)[1] if self.header else emit_one_file(module))


@dataclass(frozen=True)
class SvgTarget(Target):
    """The picture in UPL's notation, with the domains that are known."""

    name = "svg"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        from upl_mlir.picture.model import picture_of
        from upl_mlir.picture.svg import svg_of

        output.write(svg_of(picture_of(_drawn(module))))


@dataclass(frozen=True)
class DotTarget(Target):
    """The picture as a graph for Graphviz."""

    name = "dot"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        from upl_mlir.picture.dot import dot_of
        from upl_mlir.picture.model import picture_of

        output.write(dot_of(picture_of(_drawn(module))))


def _drawn(module: ModuleOp) -> ProgramOp:
    """The program as a picture shows it: with the derivatives that `adjoint of` stands for."""
    program = program_of(module)
    if directives(program):
        program = program.clone()
        expand(program)
    return program
