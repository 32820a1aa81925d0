"""The parameters of a whole machine."""

from __future__ import annotations

from dataclasses import dataclass

from upl_mlir.hw.core.layouts import Dimensions
from upl_mlir.hw.machine import Machine, Topology
from upl_mlir.hw.network.network import link_ends


@dataclass(frozen=True)
class System:
    """Cores of equal dimensions, and what joins them: tokens a link can hold at its end, cycles from one end to the other,
    ports of the host."""

    core: Dimensions
    cores: int = 1
    topology: Topology = Topology.RING
    queue_depth: int = 4
    link_cycles: int = 1
    ports: int = 1

    @property
    def links(self) -> int:
        """Links of the network."""
        return len(link_ends(self.topology, self.cores)) if self.cores > 1 else 0

    @classmethod
    def of(cls, machine: Machine) -> System:
        """The parameters that a machine description stands for."""
        network = machine.network
        depth, cycles = network.queue_depth, network.link_cycles
        return cls(Dimensions.of(machine), machine.cores, network.topology, depth, cycles, machine.host.ports)
