"""The engine "circuit": arrays become streams in the order that the plan gives them, and streams arrays."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.dialects.upl.query import program_of
from upl_mlir.engines.circuit.bench import write_bench
from upl_mlir.engines.circuit.ports import Ports
from upl_mlir.engines.circuit.simulation import Simulation, Streamed
from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.numbers.words import from_integer_words, from_words, to_integer_words, to_words
from upl_mlir.passes.analysis.sizes import Figures, Sizes, total
from upl_mlir.passes.circuit.body import INTEGER, WORDS
from upl_mlir.passes.circuit.channels.inputs import Input
from upl_mlir.passes.circuit.channels.orders import number
from upl_mlir.passes.circuit.channels.outputs import Output
from upl_mlir.passes.circuit.choose import Wish
from upl_mlir.passes.circuit.plan import Plan, cycles, lanes_of
from upl_mlir.passes.circuit.process import OTHER_ENGINES
from upl_mlir.passes.lower_to_circuit import planned_circuit
from upl_mlir.passes.predicate.checks import checks, judge

Array = NDArray[Any]


@dataclass(frozen=True)
class Stats:
    """`cycles` from the first word of an input to the last word of an output, and those that were predicted;
    `interval`: cycles from run to run; `busy`: how many of the slots of a run, of all lanes of the busiest process, have an
    iteration.  `seconds` is the time of the simulation.  `firings` by node and `tokens` by node and host output are those of
    the program, counted without running it; None where data decide them."""

    cycles: int
    predicted: int
    interval: int
    lanes: int
    busy: float
    seconds: float
    firings: Figures
    tokens: Figures

    def to_dict(self) -> dict[str, Any]:
        """The object for ``stats.json``."""
        return {
            "engine": "circuit", "firings": self.firings, "tokens": self.tokens, "tokens_sent": total(self.tokens),
            "peak_waiting": None, "seconds": self.seconds, "cycles": self.cycles,
            "predicted_cycles": self.predicted, "interval": self.interval,
            "lanes": self.lanes, "busy": round(self.busy, 4),
        }  # fmt: skip


@dataclass(frozen=True)
class CircuitResult:
    """Outputs as dense arrays, and the figures of the run."""

    outputs: dict[str, Array]
    stats: Stats


class CircuitEngine:
    """A program with its sizes as a circuit.  Raises UplError: UPL13xx if it is wrong, UPL20xx if it has no circuit.

    There is one reset, before the first run; each further run begins where the last one ended.  `checks`: outputs besides
    the program's, by which a run is judged if data decide what is sent.  `bench`: a folder to which Verilog, a bench and the
    words of the last run go.
    """

    def __init__(self, module: ModuleOp, params: Mapping[str, int], wish: Wish, bench: str | Path | None = None):
        self._program, self._params = program_of(module), dict(params)
        module = module.clone()
        _, self.plan = planned_circuit(module, params, wish)
        self.checks = checks(program_of(module))
        self.simulation = Simulation(Circuit(self.plan))
        self._inputs, self._outputs = Ports.inputs(self.plan.network), Ports.outputs(self.plan.network)
        self.bench = bench

    def run(self, arrays: Mapping[str, Array]) -> CircuitResult:
        """Run once; `arrays` are dense, as the host ports have them."""
        given = self.given(arrays)
        start = time.perf_counter()
        (made,), streamed = run(self.simulation, [given])
        seconds = time.perf_counter() - start
        if self.bench is not None:
            words = {i.name: to_stream(self.plan, i, given[i.name]) for i in self.plan.inputs}
            write_bench(Path(self.bench), self.simulation.circuit, words, streamed.words)
        return CircuitResult(self.results(made), self.figures(streamed, seconds))

    @cached_property
    def _counts(self) -> tuple[Figures, Figures]:
        return Sizes.of(self._program).at(self._params)

    def figures(self, streamed: Streamed, seconds: float) -> Stats:
        """The figures of a run whose simulation took so long."""
        p = self.plan
        busy = max(int(np.count_nonzero(q.mask(q.process.domain))) / (p.slots * q.nest.lanes) for q in p.parts)
        return Stats(streamed.cycles, cycles(p, 1), p.slots, p.lanes, busy, seconds, *self._counts)

    def given(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The arrays of the circuit's input ports.  Raises UplError UPL1504 for an integer that a word has no room for."""
        found = self._inputs.pieces(arrays)
        for name, h in self._inputs.hosts.items():
            if h.kind is Kind.INT and len(bad := np.argwhere((found[name] < WORDS[0]) | (found[name] > WORDS[1]))):
                at = ",".join(str(int(k) + lo) for k, lo in zip(bad[0], self._inputs.box(h).lower, strict=True))
                what = f"`{name}<{at}>` is {int(found[name][tuple(bad[0])])}: integers of circuits have {INTEGER} bits"
                raise error("UPL1504", what, help=OTHER_ENGINES)
        return found

    def results(self, made: Mapping[str, Array]) -> dict[str, Array]:
        """The arrays of the program's outputs, of those of the circuit's.  Raises UplError UPL1601 to UPL1603 if what data
        decided left tokens over, or outputs without one."""
        found = self._outputs.whole(made, {n: c.right for n, c in self.checks.items()})
        if self.checks:
            lower = {(h.whole or h).name: self._outputs.box(h.whole or h).lower for h in self._outputs.hosts.values()}
            judge(self.checks, {n: found.pop(n) for n in self.checks}, lower)
        return found


def run(
    simulation: Simulation, runs: Sequence[Mapping[str, Array]], **options: Any
) -> tuple[list[dict[str, Array]], Streamed]:
    """Runs without a reset in between; what each gives, and what passed."""
    p = simulation.circuit.plan
    given: dict[str, tuple[NDArray[np.uint32], NDArray[np.uint8]]] = {}
    for i in p.inputs:
        words = np.concatenate([to_stream(p, i, arrays[i.name]) for arrays in runs])
        last = np.zeros(len(words), np.uint8)
        last[i.words - 1 :: i.words] = 1
        given[i.name] = words, last
    streamed = simulation.run(given, {o.name: o.words * len(runs) for o in p.outputs}, **options)
    out: list[dict[str, Array]] = []
    for n in range(len(runs)):
        out.append({
            o.name: from_stream(p, o, streamed.words[o.name][n * o.words : (n + 1) * o.words]) for o in p.outputs
        })  # fmt: skip
    return out, streamed


def _ranks(p: Plan, port: Input | Output) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """The place of each element in its stream, and the shape of the array."""
    dims = port.dims
    shape = tuple(d.extent for d in dims)
    grid = np.indices(shape, dtype=np.int64)
    values = {d.name: g + d.low for d, g in zip(dims, grid, strict=True)}
    return np.broadcast_to(number(dims, port.order, lanes_of(port), values), shape).ravel(), shape


def to_stream(p: Plan, port: Input, array: Array) -> NDArray[np.uint32]:
    """The words of an array in the order of its port."""
    ranks, _ = _ranks(p, port)
    words = np.empty(len(ranks), np.uint32)
    kind = _kind(p, port)
    words[ranks] = (to_words(array, kind.format) if kind.is_float else to_integer_words(array)).ravel()
    return words


def from_stream(p: Plan, port: Output, words: NDArray[np.uint32]) -> Array:
    """The array whose words came in the order of its port."""
    ranks, shape = _ranks(p, port)
    return values(p, port, words[ranks]).reshape(shape)


def values(p: Plan, port: Input | Output, words: NDArray[np.uint32]) -> Array:
    """What words of a port say."""
    kind = _kind(p, port)
    if kind.is_float:
        return from_words(words, kind.format)
    found = from_integer_words(words)
    return found != 0 if kind is Kind.BOOL else found


def _kind(p: Plan, port: Input | Output) -> Kind:
    """The type of a port's elements."""
    return (p.network.inputs[port.name] if isinstance(port, Input) else p.network.outputs[port.name].host).kind
