"""Models for simulation that serve many machines: which one a machine needs, building it ahead, setting it."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# Amaranth's layouts are untyped.

from __future__ import annotations

from dataclasses import replace

from upl_mlir.hw.core.code.encode import Write
from upl_mlir.hw.core.layouts import CONFIG_BITS, Dimensions, Memory
from upl_mlir.hw.core.settings import adjustable, settings, settings_layout
from upl_mlir.hw.machine import Machine
from upl_mlir.hw.sim.compiled import CompiledSimulation, available
from upl_mlir.hw.system.layouts import System


def adjustable_system(system: System) -> System:
    """The machine that is built to simulate this one."""
    return replace(system, core=adjustable(system.core))


def build_of(machine: Machine) -> System | None:
    """What is compiled for a machine: the same for all that one library serves; None if nothing is."""
    if not available():
        return None
    return adjustable_system(System.of(machine))


def prepare_machine(machine: Machine) -> None:
    """Compile the machine if that is how it will be simulated, and the cache lacks it.  Raises UplError (UPL1737)."""
    built = build_of(machine)
    if built is not None:
        CompiledSimulation(built)


def setting_writes(built: Dimensions, wanted: Dimensions) -> list[Write]:
    """The words that set an adjustable core to the dimensions wanted; none for one that is not."""
    if not built.adjustable:
        return []
    layout = settings_layout(built)
    row: int = layout.const(settings(wanted)).as_bits()
    words = [row >> first & ((1 << CONFIG_BITS) - 1) for first in range(0, layout.size, CONFIG_BITS)]
    return [*(Write(Memory.STAGE, 0, word) for word in reversed(words[1:])), Write(Memory.SETTING, 0, words[0])]
