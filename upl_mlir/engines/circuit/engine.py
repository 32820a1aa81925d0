"""The engine "circuit": arrays become streams in the order that the plan gives them, and streams arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from upl_mlir.engines.circuit.simulation import Simulation, Streamed
from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.passes.circuit.choose import Wish
from upl_mlir.passes.circuit.plan import Plan, cycles
from upl_mlir.passes.circuit.ports import Input, Output, elements, number
from upl_mlir.passes.lower_to_circuit import planned_circuit

Array = NDArray[Any]


@dataclass(frozen=True)
class Stats:
    """`cycles` from the first word of an input to the last word of an output, and those that were predicted;
    `interval`: cycles from run to run; `busy`: how many of the slots of a run have an iteration, of all lanes."""

    cycles: int
    predicted: int
    interval: int
    lanes: int
    busy: float

    def to_dict(self) -> dict[str, Any]:
        """The object for ``stats.json``."""
        return {
            "engine": "circuit", "cycles": self.cycles, "predicted_cycles": self.predicted, "interval": self.interval,
            "lanes": self.lanes, "busy": round(self.busy, 4),
        }  # fmt: skip


@dataclass(frozen=True)
class CircuitResult:
    """Outputs as dense arrays, and the figures of the run."""

    outputs: dict[str, Array]
    stats: Stats


class CircuitEngine:
    """A program with its sizes as a circuit.  Raises UplError: UPL13xx if it is wrong, UPL20xx if it has no circuit."""

    def __init__(self, module: ModuleOp, params: Mapping[str, int], wish: Wish):
        _, self.plan = planned_circuit(module.clone(), params, wish)
        self.simulation = Simulation(Circuit(self.plan))

    def run(self, arrays: Mapping[str, Array]) -> CircuitResult:
        """Run once; `arrays` are dense, as the host ports have them."""
        (outputs,), streamed = run(self.simulation, [arrays])
        return CircuitResult(outputs, figures(self.plan, streamed))


def figures(p: Plan, streamed: Streamed, runs: int = 1) -> Stats:
    """The figures of runs."""
    nest = p.nest
    used = int(np.count_nonzero(nest.mask(p.process.domain, p.process.sizes)))
    return Stats(streamed.cycles, cycles(p, runs), nest.slots, nest.lanes, used / (nest.slots * nest.lanes))


def run(
    simulation: Simulation, runs: Sequence[Mapping[str, Array]], **options: Any
) -> tuple[list[dict[str, Array]], Streamed]:
    """Runs without a reset in between; what each gives, and what passed."""
    p = simulation.circuit.plan
    given: dict[str, tuple[NDArray[np.uint32], NDArray[np.uint8]]] = {}
    for i in p.inputs:
        words = np.concatenate([to_stream(p, i, arrays[i.host.name]) for arrays in runs])
        last = np.zeros(len(words), np.uint8)
        last[i.words - 1 :: i.words] = 1
        given[i.host.name] = words, last
    streamed = simulation.run(given, {o.host.name: o.words * len(runs) for o in p.outputs}, **options)
    out: list[dict[str, Array]] = []
    for n in range(len(runs)):
        out.append({
            o.host.name: from_stream(p, o, streamed.words[o.host.name][n * o.words : (n + 1) * o.words]) for o in p.outputs
        })  # fmt: skip
    return out, streamed


def _ranks(p: Plan, port: Input | Output) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """The place of each element in its stream, and the shape of the array."""
    dims = elements(p.process, port.host)
    shape = tuple(d.extent for d in dims)
    grid = np.indices(shape, dtype=np.int64)
    values = {d.name: g + d.low for d, g in zip(dims, grid, strict=True)}
    return np.broadcast_to(number(dims, port.order, p.nest.lanes, values), shape).ravel(), shape


def to_stream(p: Plan, port: Input, array: Array) -> NDArray[np.uint32]:
    """The words of an array in the order of its port."""
    ranks, _ = _ranks(p, port)
    words = np.empty(len(ranks), np.uint32)
    words[ranks] = np.ascontiguousarray(array, np.float32).view(np.uint32).ravel()
    return words


def from_stream(p: Plan, port: Output, words: NDArray[np.uint32]) -> Array:
    """The array whose words came in the order of its port."""
    ranks, shape = _ranks(p, port)
    return words[ranks].view(np.float32).reshape(shape)
