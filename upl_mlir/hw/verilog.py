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
from upl_mlir.hw.matching_unit.cam import VERILOG, cam_verilog
from upl_mlir.hw.system.board import Board
from upl_mlir.hw.system.fabric import Fabric
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.system.machine import Machine as SystemMachine


def verilog_of(module: ModuleOp) -> str:
    """Verilog text of the whole machine; the program is checked to fit.  Raises UplError (UPL17xx)."""
    program = ttm_program(module)
    machine = load_machine(program.machine.data) if program.machine else Machine()
    image, hosts = assemble(program)
    image.validate(machine)
    require_built(machine)
    if machine.matching.organisation is not Organisation.DIRECT:
        encode(image, Dimensions.of(machine), [], hosts.values())
    return machine_verilog(System.of(machine))


_WAIVERS = {
    "DECLFILENAME": "all modules are in one file",
    "UNUSEDSIGNAL": "every part of a record has a name, used or not; buses are wider than small memories need",
    "CASEOVERLAP": "of the cases of a `case` the first that fits counts",
    "CASEINCOMPLETE": "what a `case` does not name keeps the value assigned before it",
    "PROCASSINIT": "registers begin with the value that a reset gives them",
    "WIDTHEXPAND": "constants are written without leading zeros; the language extends them",
    "WIDTHTRUNC": "`!x` stands for `x == 0`; right shifts of extended operands are cut",
    "VARHIDDEN": "a unit and a register inside may have the same name",
}


def machine_verilog(s: System) -> str:
    """Verilog of a whole machine: modules `core`, `fabric`, `machine`, and, if the host has one port, `board`, the machine
    behind AXI-stream ports. Verilator's -Wall has nothing to say about it beyond what is waived at its top, with reasons.
    """
    waivers = "".join(f"/* verilator lint_off {name} */  // {reason}\n" for name, reason in _WAIVERS.items())
    parts = [waivers, core_verilog(s.core), fabric_verilog(s), _convert(SystemMachine(s, apart=True), "machine")]
    if s.ports == 1:
        parts.append(_convert(Board(s, apart=True), "board"))
    return "\n".join(parts)


def core_verilog(d: Dimensions, *, model: bool = False) -> str:
    """Verilog of one core, module `core`; `model`: to be simulated, see `_model`."""
    text = (_model if model else _convert)(Core(d), "core")
    return text + cam_verilog() if d.organisation is Organisation.CAM else text


def fabric_verilog(s: System, *, model: bool = False) -> str:
    """Verilog of what joins the cores of a machine, module `fabric`; `model`: to be simulated, see `_model`."""
    return (_model if model else _convert)(Fabric(s), "fabric")


def _convert(component: object, name: str) -> str:
    # A yosys found on the PATH may be of another version than the one that Amaranth was tested with.
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    from amaranth.back import verilog

    return _short(cast(str, verilog.convert(component, name=name, platform=VERILOG, emit_src=False)))


_MODEL = "read_rtlil <<rtlil\n{}\nrtlil\nproc -nomux -norom -noopt\nmemory_collect\nwrite_verilog -norename -noattr"


def _model(component: object, name: str) -> str:
    """Verilog that is made a model: as Amaranth makes it, but for the simplification of expressions.  That splits an `and`
    with a constant (the hashes have hundreds) into an assignment for each run of ones, where a word is to be masked.
    """
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    from amaranth.back import rtlil
    from amaranth.back.verilog import find_yosys

    text = rtlil.convert(component, name=name, platform=VERILOG, emit_src=False)
    yosys = find_yosys(_new_enough)
    return _short(yosys.run(["-q", "-"], _MODEL.format(text), ignore_warnings=True))


def _new_enough(version: tuple[int, ...]) -> bool:
    return version >= (0, 40)


_CONSTANT = re.compile(r"(?m)^( *)always @\*(\n +\S+(?: ?\[[\d:]+\])? = \d+'[hbd][0-9a-fxz]+;\n)")
_ZEROS = re.compile(r"(?m)^ *(?P<name>\\?\S+?) ?\[0\] = \d+'h0+;\n(?:^ *(?P=name) ?\[\d+\] = \d+'h0+;\n)+")


def _short(text: str) -> str:
    """Memories that begin with 0 in every row, row by row, become loops: Verilator takes a third of the time then. What is
    always assigned a constant is assigned it at once, not when something changes: nothing would.
    """

    def loop(found: re.Match[str]) -> str:
        rows = found[0].count("\n")
        return f"    for (integer i = 0; i < {rows}; i = i + 1) {found['name']} [i] = 0;\n"

    return _CONSTANT.sub(r"\1always_comb\2", _ZEROS.sub(loop, text))
