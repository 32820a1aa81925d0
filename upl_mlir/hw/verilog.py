"""`-t verilog`: the matching unit of the machine that a lowered module is meant for."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from upl_mlir.hw.assemble import assemble, ttm_program
from upl_mlir.hw.machine import Machine, load_machine
from upl_mlir.hw.matching_unit.verilog import to_verilog


def verilog_of(module: ModuleOp) -> str:
    """Verilog text; the program is checked to fit.  Raises UplError (UPL17xx)."""
    program = ttm_program(module)
    machine = load_machine(program.machine.data) if program.machine else Machine()
    assemble(program)[0].validate(machine)
    return to_verilog(machine)
