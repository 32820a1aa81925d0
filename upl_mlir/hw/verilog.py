"""Verilog of the machine; `-t verilog`: the hardware of the machine that a lowered module is meant for."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# Amaranth's back ends are untyped.

from __future__ import annotations

import os
import re
from typing import cast

from xdsl.dialects.builtin import ModuleOp

from upl_mlir.hw.assemble import assemble, ttm_program
from upl_mlir.hw.core.core import Core
from upl_mlir.hw.core.encode import encode
from upl_mlir.hw.core.layouts import Dimensions
from upl_mlir.hw.machine import Machine, Organisation, load_machine, require_built
from upl_mlir.hw.matching_unit.verilog import to_verilog
from upl_mlir.hw.system.fabric import Fabric
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.system.machine import Machine as SystemMachine


def verilog_of(module: ModuleOp) -> str:
    """Verilog text: of the matching unit (`cam`), or of the whole machine (`hashed`); the program is checked to fit.
    Raises UplError (UPL17xx)."""
    program = ttm_program(module)
    machine = load_machine(program.machine.data) if program.machine else Machine()
    image, hosts = assemble(program)
    image.validate(machine)
    require_built(machine)
    if machine.matching.organisation is Organisation.HASHED:
        encode(image, Dimensions.of(machine), [], hosts.values())
        return machine_verilog(System.of(machine))
    return to_verilog(machine)


def machine_verilog(s: System) -> str:
    """Verilog of a whole machine, module `machine`."""
    return _convert(SystemMachine(s), "machine")


def core_verilog(d: Dimensions) -> str:
    """Verilog of one core, module `core`."""
    return _convert(Core(d), "core")


def fabric_verilog(s: System) -> str:
    """Verilog of what joins the cores of a machine, module `fabric`."""
    return _convert(Fabric(s), "fabric")


def _convert(component: object, name: str) -> str:
    # A yosys found on the PATH may be of another version than the one that Amaranth was tested with.
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    from amaranth.back import verilog

    return _short(cast(str, verilog.convert(component, name=name, emit_src=False)))


_ZEROS = re.compile(r"(?m)^ *(?P<name>\\?\S+?) ?\[0\] = \d+'h0+;\n(?:^ *(?P=name) ?\[\d+\] = \d+'h0+;\n)+")


def _short(text: str) -> str:
    """Memories that begin with 0 in every row, row by row, become loops: Verilator takes a third of the time then."""

    def loop(found: re.Match[str]) -> str:
        rows = found[0].count("\n")
        return f"    for (integer i = 0; i < {rows}; i = i + 1) {found['name']} [i] = 0;\n"

    return _ZEROS.sub(loop, text)
