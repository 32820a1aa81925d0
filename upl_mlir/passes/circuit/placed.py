"""A process with its stages and its schedule: what the parts of a plan are found from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upl_mlir.passes.circuit.nest import Bools, Nest
from upl_mlir.passes.circuit.process import Process
from upl_mlir.passes.circuit.stages import Site, Stages
from upl_mlir.poly.expr import Formula

LEAD = 3
"""Slots from an instance's own slot, in which the counters have its index, to its stage 0: two registers for conditions."""


@dataclass(frozen=True, eq=False)
class Placed:
    """A process, what it reads, and when and where its instances are."""

    process: Process
    at: Stages
    sites: tuple[Site, ...]
    nest: Nest

    @property
    def array(self) -> str:
        """What the process computes."""
        return self.process.name

    def mask(self, f: Formula) -> Bools:
        """Where a formula over the fields holds, among the instances."""
        return self.nest.mask(f, self.process.sizes)


def of_array(sites: Sequence[Site], array: str) -> list[Site]:
    """The reads of one array."""
    return [s for s in sites if s.array == array]
