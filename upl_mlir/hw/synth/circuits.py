"""Figures of a circuit: the whole of it is synthesised, and routed with several seeds, of which the worst counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from upl_mlir.hw.circuit.circuit import Circuit, lanes_by_module
from upl_mlir.hw.synth.ecp5 import DEVICE, NO_RESETS, Area, Clock, Timing, area, known_timing, timing
from upl_mlir.hw.synth.figures import COUNTS, as_rtlil
from upl_mlir.hw.synth.tools import NEXTPNR, YOSYS, Say
from upl_mlir.passes.circuit.nest import Ints
from upl_mlir.passes.circuit.plan import Plan
from upl_mlir.passes.circuit.share import units_of
from upl_mlir.passes.circuit.stages import matters

ASKED_MHZ = 170.0
"""The clock that nextpnr is asked for: about what the slowest unit reaches alone. It works no further once it is met."""
UNITS = (
    "add", "sub", "mul", "div", "sqrt", "by", "up", "down", "min", "max", "compare", "mask", "exp", "log", "tanh", "sigmoid",
    "sin", "cos", "product", "sum",
)  # fmt: skip
"""Operations of a body that are units of arithmetic; the others are wires and selections."""


class CircuitFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a circuit costs, and its clocks by seed of the placement, as far as it was routed."""

    name: str
    lanes: int
    units: int
    """Floating-point units, of all lanes."""
    area: Area
    timings: dict[int, Timing]
    tools: list[str]
    device: str = DEVICE

    @property
    def fmax_mhz(self) -> float | None:
        """The clock of the worst seed."""
        return min((t.fmax_mhz for t in self.timings.values()), default=None)

    def to_dict(self) -> dict[str, Any]:
        """The object for JSON."""
        return {
            "circuit": self.name, "device": self.device, "tools": self.tools, "lanes": self.lanes,
            "floating_point_units": self.units, **{k: getattr(self.area, k) for k in COUNTS}, "units": self.area.units,
            "fmax_mhz": self.fmax_mhz, "by_seed": {str(seed): t.fmax_mhz for seed, t in self.timings.items()},
        }  # fmt: skip


def circuit_figures(name: str, plan: Plan, *, seeds: Sequence[int] = (), say: Say = lambda _: None) -> CircuitFigures:
    """Synthesise the circuit of a program called `name`; place and route it once with each of the seeds.  `say` is told
    what is being done.

    Raises `UplError`: UPL1738 a tool is not installed, UPL1739 a tool failed.
    """
    tools = [YOSYS.version(), *([NEXTPNR.version()] if seeds else [])]
    say(f"{name}: elaborating")
    rtlil = as_rtlil(Circuit(plan, target="ecp5"))
    cost = area(rtlil, "top", lambda what: say(f"{name}: {what}"), NO_RESETS)
    timings: dict[int, Timing] = {}
    lanes = lanes_by_module(plan)

    def lane_of(cell: str) -> int | None:
        return lanes.get(cell.partition(".")[0])

    for seed in seeds:

        def told(what: str, seed: int = seed) -> None:
            say(f"{name}, seed {seed}: {what}")

        timings[seed] = timing(rtlil, "top", ASKED_MHZ, Clock.ROUTED, told, seed, NO_RESETS, lane_of)
    units = sum(int(np.count_nonzero(lanes)) for lanes in _busy(plan))
    return CircuitFigures(name=name, lanes=plan.lanes, units=units, area=cost, timings=timings, tools=tools)


def routed_before(plan: Plan, seeds: Sequence[int]) -> list[int]:
    """Those of the seeds with which a circuit has been routed, so that its clock is in the cache."""
    rtlil = as_rtlil(Circuit(plan, target="ecp5"))
    return [s for s in seeds if known_timing(rtlil, "top", ASKED_MHZ, Clock.ROUTED, s, NO_RESETS, True) is not None]


def firings(plan: Plan) -> int:
    """How often the busiest floating-point unit begins an operation in a run, in all lanes together; 0 if there is none."""
    return max((int(lanes.sum()) for lanes in _busy(plan)), default=0)


def computing(plan: Plan) -> int:
    """The lanes that have the busiest unit; 1 if there is none."""
    busiest = max(_busy(plan), key=lambda lanes: int(lanes.sum()), default=None)
    return 1 if busiest is None else max(1, int(np.count_nonzero(busiest)))


def _busy(plan: Plan) -> list[Ints]:
    """Of each floating-point unit, by lane, how many operations in a run have results that matter.  A lane has no unit for
    an operation of which it has no such instance."""
    out: list[Ints] = []
    where = [matters(part.process) for part in plan.parts]
    for u in units_of(plan.parts, plan.shared):
        if u.kind.partition(" ")[0] not in UNITS:
            continue
        lanes = np.zeros(plan.lanes, np.int64)
        for x in u.uses:
            part = plan.parts[x.part]
            mask = part.mask(where[x.part][x.node])
            lanes[: part.nest.lanes] += mask.reshape(-1, part.nest.lanes).sum(axis=0)
        out.append(lanes)
    return out
