"""Verilog of the machine (`-t verilog`: of that which a lowered module is meant for), and netlists of its parts."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# Amaranth's back ends are untyped.

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from amaranth.hdl import ClockDomain
from xdsl.dialects.builtin import ModuleOp

from upl_mlir.hw.assemble import assemble, ttm_program
from upl_mlir.hw.core.code.encode import encode
from upl_mlir.hw.core.core import Core
from upl_mlir.hw.core.layouts import Dimensions
from upl_mlir.hw.image import with_open_gathers
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
    machine = with_open_gathers(machine, image)
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
    "INITIALDLY": "what starts the `always @*` must change after they wait for it",
    "VARHIDDEN": "a unit and a register inside may have the same name",
}


def waivers() -> str:
    """The warnings of Verilator that do not apply, each with its reason, for the top of a file."""
    return "".join(f"/* verilator lint_off {name} */  // {reason}\n" for name, reason in _WAIVERS.items())


def machine_verilog(s: System) -> str:
    """Verilog of a whole machine: modules `core`, `fabric`, `machine`, and, if the host has one port, `board`, the machine
    behind AXI-stream ports. It passes Verilator's -Wall; waived warnings are listed at its top.
    """
    parts = [waivers(), core_verilog(s.core), fabric_verilog(s), convert(SystemMachine(s, apart=True), "machine")]
    if s.ports == 1:
        parts.append(convert(Board(s, apart=True), "board"))
    return "\n".join(parts)


def core_verilog(d: Dimensions) -> str:
    """Verilog of one core, module `core`."""
    text = convert(Core(d), "core")
    return text + cam_verilog() if d.organisation is Organisation.CAM else text


def fabric_verilog(s: System) -> str:
    """Verilog of what joins the cores of a machine, module `fabric`."""
    return convert(Fabric(s), "fabric")


def core_netlist(d: Dimensions) -> str:
    """The netlist of one core, module `core`; see `netlist`."""
    return netlist(Core(d), "core")


def fabric_netlist(s: System) -> str:
    """The netlist of what joins the cores of a machine, module `fabric`; see `netlist`."""
    return netlist(Fabric(s), "fabric")


def convert(component: object, name: str) -> str:
    """The Verilog of a component, whose own module has this name."""
    # A yosys found on the PATH may be of another version than the one that Amaranth was tested with.
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    from amaranth.back import verilog

    return _short(cast(str, verilog.convert(component, name=name, platform=VERILOG, emit_src=False)))


_NETLIST = """read_rtlil <<rtlil
{}
rtlil
proc -norom
memory_collect
flatten
opt_expr
opt_clean
opt_merge
opt_clean
write_json
"""


def netlist(component: object, name: str) -> str:
    """A component to be simulated, as a flat netlist in JSON. It has a port `clk` and none for a reset: a model begins anew
    by being made anew, and if there were one, the next state of every register would depend on it.
    """
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    from amaranth.back import rtlil
    from amaranth.back.verilog import find_yosys

    with _without_zeros():
        text = rtlil.convert(component, name=name, platform=VERILOG, emit_src=False, missing_domain=_without_reset)
    yosys = find_yosys(_new_enough)
    made = yosys.run(["-q", "-"], _NETLIST.format(text), ignore_warnings=True)
    return cast(str, made)[made.index("{") :]


@contextmanager
def _without_zeros() -> Generator[None]:
    """Amaranth writes initial values of memories, and yosys reads them, bit by bit, which takes most of the time of both if
    there are millions. Rows without one are undefined to yosys, and to readers of netlists 0.
    """
    from amaranth.back.rtlil import ModuleEmitter

    whole = ModuleEmitter.emit_memory

    def emit(self: Any, cell_idx: int, cell: Any) -> None:
        if any(cell.init):
            whole(self, cell_idx, cell)

    ModuleEmitter.emit_memory = emit
    try:
        yield
    finally:
        ModuleEmitter.emit_memory = whole


def _without_reset(name: str) -> ClockDomain:
    return ClockDomain(name, reset_less=True)


def _new_enough(version: tuple[int, ...]) -> bool:
    return version >= (0, 40)


_CONSTANT = re.compile(r"(?m)^( *)always @\*(\n +\S+(?: ?\[[\d:]+\])? = \d+'[hbd][0-9a-fxz]+;\n)")
_CHANGE = re.compile(r"(?m)^( *)reg (\\\$auto\$verilog_backend\S+ ) = 0;\n")
_ZEROS = re.compile(r"(?m)^ *(?P<name>\\?\S+?) ?\[0\] = \d+'h0+;\n(?:^ *(?P=name) ?\[\d+\] = \d+'h0+;\n)+")
_NO_BITS = re.compile(r"(?m)^ *(?:wire|reg) \[-1:0\] .*;\n")


def _short(text: str) -> str:
    """Memories that begin with 0 in every row, row by row, become loops: Verilator takes a third of the time then. What is
    always assigned a constant is assigned it at once, not when something changes: nothing would. All other assignments wait
    for a signal of yosys' that changes at the beginning; in SystemVerilog it does only if it is assigned after that, not
    with its declaration. Signals without bits go: nothing has them, and `[-1:0]` would be two bits.
    """

    def loop(found: re.Match[str]) -> str:
        rows = found[0].count("\n")
        return f"    for (integer i = 0; i < {rows}; i = i + 1) {found['name']} [i] = 0;\n"

    text = _CHANGE.sub(r"\1reg \2;\n\1initial \2 <= 0;\n", _NO_BITS.sub("", text))
    return _CONSTANT.sub(r"\1always_comb\2", _ZEROS.sub(loop, text))
