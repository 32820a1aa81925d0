"""One point of a sweep over circuits: its cycles from the plan, its area and clock from the model, its error from the
interpreter.

A circuit's results are the interpreter's under the same type of reals and the same order of sums, so none is simulated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from upl_mlir.api.programs import Program
from upl_mlir.diagnostics import UplError
from upl_mlir.engines.interp.engine import Engine
from upl_mlir.explore.design import Design
from upl_mlir.explore.estimate import estimate
from upl_mlir.explore.job import Array, Job, Kept, Outcome, Task, bind, distance
from upl_mlir.hw.synth.circuits import circuit_figures, computing, firings
from upl_mlir.passes.circuit.plan import Plan, cycles
from upl_mlir.passes.lower_to_circuit import planned_circuit

EXACT = "f64"
"""The type in which a program is taken to be exact."""
SEED = 1
"""Of the placement, where a point is routed: one, as many points are."""


@dataclass
class Prepared:
    """A program with its sizes and inputs, and by type of reals what it computes."""

    program: Program
    bound: dict[str, int]
    dense: dict[str, Array]
    outputs: dict[str, Mapping[str, Array]] = field(default_factory=dict[str, Mapping[str, Array]])

    def difference(self, real: str) -> float:
        """The greatest difference of any output from that in f64, relative to its greatest element."""
        for kind in (EXACT, real):
            if kind not in self.outputs:
                engine = Engine(self.program.op, self.bound, real=kind, gather="ordered")
                self.outputs[kind] = engine.run(self.dense).outputs
        return distance(self.outputs[real], self.outputs[EXACT])

    def plan(self, design: Design) -> Plan:
        """The plan of a circuit."""
        return planned_circuit(self.program.module.clone(), self.bound, design.wish)[1]


_prepared: Kept[Prepared] = Kept()


def _of(job: Job, define: Mapping[str, Any]) -> Prepared:
    return _prepared.get([job.key, define], lambda: Prepared(*bind(job, define)))


def run_circuit(job: Job, task: Task) -> Outcome:
    """The figures of a point; errors that are the program's or the circuit's are an outcome."""
    assert isinstance(task.on, Design)
    try:
        found = _of(job, task.define)
        with found.program.errors():
            plan = found.plan(task.on)
            cost = estimate(plan)
            cost.require_room()
            difference = found.difference(task.on.real)
    except UplError as e:
        return Outcome(error=str(e))
    return Outcome(stats={
        "engine": "circuit", "cycles": cycles(plan), "interval": plan.slots, "lanes": plan.lanes,
        "busy": firings(plan) / computing(plan) / plan.slots, "luts": cost.luts, "ff": cost.ff, "dsp": cost.dsp,
        "block_ram": cost.block_ram, "fmax_mhz": cost.fmax_mhz, "difference": difference,
    })  # fmt: skip


def synthesise_circuit(job: Job, task: Task, clock: bool) -> dict[str, Any]:
    """Area and, with `clock`, clock of a point by the tools, or the `error` that they ended with."""
    assert isinstance(task.on, Design)
    try:
        plan = _of(job, task.define).plan(task.on)
        found = circuit_figures(plan.name, plan, seeds=[SEED] if clock else []).to_dict()
    except UplError as e:
        return {"error": str(e)}
    return {"composed": {k: v for k, v in found.items() if k != "fmax_mhz" or v is not None}}
