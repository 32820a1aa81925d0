"""Building what simulations of a machine need, ahead of them."""

from __future__ import annotations

from upl_mlir.hw.machine import Machine, Organisation
from upl_mlir.hw.sim.compiled import CompiledSimulation, available
from upl_mlir.hw.system.layouts import System


def prepare_machine(machine: Machine) -> None:
    """Compile the machine if that is how it will be simulated, and the cache does not have it.  Raises UplError (UPL1737)."""
    if machine.matching.organisation is not Organisation.CAM and available():
        CompiledSimulation(System.of(machine))
