"""Figures of a machine: one core and the network alone are synthesised, the whole machine's are composed of them."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# Amaranth's back ends are untyped.

from __future__ import annotations

import os
from typing import Any, cast

import msgspec

from upl_mlir.diagnostics import UplError
from upl_mlir.hw.machine import Machine, Organisation, require_built
from upl_mlir.hw.matching_unit.cam import VERILOG
from upl_mlir.hw.synth.ecp5 import BEST_OF_THREE, DEVICE, PLAIN, RESTRUCTURED, Area, Clock, Timing, area, timing
from upl_mlir.hw.synth.tools import NEXTPNR, YOSYS, Say


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of hardware: how many of it the machine has, its area, and its clock if that was asked for."""

    name: str
    count: int
    area: Area
    timing: Timing | None = None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine costs: its parts, and the tools that say so."""

    machine: str
    parts: list[Part]
    tools: list[str]
    device: str = DEVICE

    def composed(self) -> dict[str, int | float | None]:
        """The whole machine: the sum of its parts, and the slowest of their clocks.  What is lost or won between the
        parts is not in it."""
        total: dict[str, int | float | None] = {
            key: sum(p.count * cast(int, getattr(p.area, key)) for p in self.parts) for key in COUNTS
        }
        clocks = [p.timing.fmax_mhz if p.timing is not None else None for p in self.parts]
        known = [c for c in clocks if c is not None]
        total["fmax_mhz"] = min(known) if len(known) == len(clocks) else None
        return total

    def to_dict(self) -> dict[str, Any]:
        """The object for JSON."""
        parts = [
            {"name": p.name, "count": p.count, **{k: getattr(p.area, k) for k in COUNTS}, "units": p.area.units,
             "fmax_mhz": p.timing.fmax_mhz if p.timing is not None else None,
             "clock": p.timing.clock.value if p.timing is not None else None,
             "used": p.timing.used if p.timing is not None else None}
            for p in self.parts
        ]  # fmt: skip
        return {"machine": self.machine, "device": self.device, "tools": self.tools, "parts": parts,
                "composed": self.composed()}  # fmt: skip


SCRIPTS = {Organisation.HASHED: BEST_OF_THREE, Organisation.CAM: RESTRUCTURED}
"""Of cores whose script is not `PLAIN`. By `PLAIN` a core of `hashed` has 41,716 LUT sites, so 40,110; one of `cam` with 64
entries 28,899, so 27,969 (in `BEST_OF_THREE` ABC of yosys 0.70 fails on it); `direct` has 32,858 and would have 32,919."""
COUNTS = ("luts", "lut4", "carry", "lut_ram", "ff", "block_ram", "dsp")


def figures(machine: Machine, *, clock: Clock | None = None, say: Say = lambda _: None) -> Figures:
    """Synthesise what the machine is made of; with `clock` also place it, and route it.  `say` is told what is being done.

    Raises `UplError`: UPL1723 not built yet, UPL1738 a tool is not installed, UPL1739 a tool failed.
    """
    require_built(machine)
    tools = [YOSYS.version(), *([NEXTPNR.version()] if clock else [])]
    parts: list[Part] = []
    for name, count, design, script in _designs(machine):
        say(f"{name}: elaborating")
        rtlil = as_rtlil(design)

        def told(what: str, name: str = name) -> None:
            say(f"{name}: {what}")

        try:
            cost = area(rtlil, "top", told, script)
        except UplError as e:
            if e.diagnostics[0].code != "UPL1739" or script == PLAIN:
                raise
            script = PLAIN  # ABC fails on some designs in its longer scripts
            cost = area(rtlil, "top", told, script)
        clocked = timing(rtlil, "top", machine.clock_mhz, clock, told, script=script) if clock else None
        parts.append(Part(name=name, count=count, area=cost, timing=clocked))
    return Figures(machine=machine.name, parts=parts, tools=tools)


def _designs(machine: Machine) -> list[tuple[str, int, object, str]]:
    """Name, number and hardware of the machine's parts, and the script of yosys that is best for each."""
    from upl_mlir.hw.core.core import Core
    from upl_mlir.hw.system.fabric import Fabric
    from upl_mlir.hw.system.layouts import System

    system = System.of(machine)
    joins = "network and host" if machine.cores > 1 else "host"
    script = SCRIPTS.get(machine.matching.organisation, PLAIN)
    return [("core", machine.cores, Core(system.core), script), (joins, 1, Fabric(system), PLAIN)]


def as_rtlil(design: object) -> str:
    """A design in yosys' own language; its module is `top`."""
    # A yosys found on the PATH may be of another version than the one that Amaranth was tested with.
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    from amaranth.back import rtlil

    return rtlil.convert(cast(Any, design), name="top", platform=VERILOG, emit_src=False)
