"""`upl run --engine circuit --trace`, `--vcd`: a run of a circuit for `upl view`, for Perfetto, and as waveforms.

Words and their clocks are those of the simulation; when instances begin follows from the plan, exactly, as the ports never
wait there.
"""

# pyright: reportUnknownVariableType=false
# The library's variables are generic in what they hold.

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from vcd import VCDWriter

from upl_mlir.api.programs import Program
from upl_mlir.diagnostics import error
from upl_mlir.engines.circuit.engine import CircuitEngine, CircuitResult, figures, run, to_stream
from upl_mlir.host.arrays import bind_arrays, bind_parameters, host_ports
from upl_mlir.observe.replay import FORMAT, VERSION, Firing, Sending, Trace
from upl_mlir.passes.circuit.ir import process_name
from upl_mlir.passes.circuit.plan import Plan
from upl_mlir.passes.circuit.ports import Input, Output, elements, number
from upl_mlir.passes.circuit.times import begins, clock
from upl_mlir.passes.lower_to_circuit import wish

PORTS = -1
"""The place of words at ports; lanes are numbers from 0 on."""


@dataclass(frozen=True)
class Word:
    """A word that passed a port: the port's number (inputs first), its element, value and clock."""

    port: int
    index: tuple[int, ...]
    value: str
    clock: int


@dataclass(frozen=True)
class Began:
    """An instance that began in a lane in a clock."""

    lane: int
    index: tuple[int, ...]
    clock: int


@dataclass(frozen=True)
class CircuitRun:
    """A run: its words and instances."""

    plan: Plan
    words: list[Word]
    instances: list[Began]
    spent: Mapping[tuple[int, int], tuple[int, ...]]
    """By port and number of a word the instance that reads it last."""

    @property
    def ports(self) -> list[str]:
        """The names of all ports, inputs first."""
        return [*(i.host.name for i in self.plan.inputs), *(o.host.name for o in self.plan.outputs)]


def record_circuit(
    p: Program, arrays: Mapping[str, Any], lanes: int, along: str | None, **params: int
) -> tuple[CircuitRun, CircuitResult]:
    """Run a program as a circuit, and what happened.  Raises UplError."""
    program = p.expanded().infer_domains()
    with program.errors():
        bound = bind_parameters(program.op, arrays, params)
        engine = CircuitEngine(program.module, bound, wish(lanes, along))
        dense = bind_arrays(program.op, host_ports(program.op, bound, np.dtype(np.float32)), dict(arrays))
        (outputs,), streamed = run(engine.simulation, [dense])
    plan = engine.plan
    words: list[Word] = []
    for k, i in enumerate(plan.inputs):
        words += _words(plan, k, i, to_stream(plan, i, dense[i.host.name]), streamed.taken[i.host.name])
    for k, o in enumerate(plan.outputs, len(plan.inputs)):
        words += _words(plan, k, o, streamed.words[o.host.name], streamed.clocks[o.host.name])
    return CircuitRun(plan, words, list(_instances(plan)), _spent(plan)), CircuitResult(outputs, figures(plan, streamed))


def _words(plan: Plan, k: int, port: Input | Output, bits: Any, clocks: Any) -> Iterator[Word]:
    dims = elements(plan.process, port.host)
    grid = np.indices([d.extent for d in dims]).reshape(len(dims), -1) + np.array([d.low for d in dims]).reshape(-1, 1)
    ranks = number(dims, port.order, plan.nest.lanes, {d.name: g for d, g in zip(dims, grid, strict=True)})
    by_rank = grid[:, np.argsort(np.broadcast_to(ranks, grid.shape[1:]))]
    values = np.asarray(bits, np.uint32).view(np.float32)
    for n in range(len(values)):
        yield Word(k, tuple(by_rank[:, n].tolist()), f"{float(values[n]):.6g}", int(clocks[n]))


def _instances(plan: Plan) -> Iterator[Began]:
    """Those of the domain, in the order in which they begin."""
    nest, p = plan.nest, plan.process
    own = np.broadcast_to(nest.slot[..., None], nest.shape)
    at = clock(plan, begins(plan)) + (np.arange(nest.lanes) + 1)
    where = np.argwhere(nest.mask(p.domain, p.sizes))
    order = np.lexsort((own[tuple(where.T)], where[:, -1], at[tuple(where.T)]))
    for row in where[order].tolist():
        yield Began(row[-1], _index(plan, tuple(row)), int(at[tuple(row)]))


def _index(plan: Plan, at: tuple[int, ...]) -> tuple[int, ...]:
    nest = plan.nest
    return tuple(int(np.broadcast_to(nest.grid[d.name], nest.shape)[at]) for d in plan.process.dims)


def _spent(plan: Plan) -> dict[tuple[int, int], tuple[int, ...]]:
    nest = plan.nest
    out: dict[tuple[int, int], tuple[int, ...]] = {}
    when = begins(plan)
    for k, i in enumerate(plan.inputs):
        last: dict[int, int] = {}
        for r in i.reads:
            made = r.first + r.lane_step * np.arange(nest.lanes)
            for axis, step in enumerate(r.steps):
                shape = [-1 if a == axis else 1 for a in range(len(nest.shape))]
                made = made + step * np.arange(nest.extents[axis]).reshape(shape)
            word = np.broadcast_to(made * nest.lanes + np.arange(nest.lanes) if i.dealt else made, nest.shape)
            for row in np.argwhere(nest.mask(r.site.when, plan.process.sizes)).tolist():
                at = tuple(row)
                n = int(word[at])
                if when[at] >= last.get(n, -1):
                    last[n] = int(when[at])
                    out[k, n] = _index(plan, at)
    return out


def circuit_trace(p: Program, run_: CircuitRun) -> Trace:
    """The run in the form that all engines have: a firing for each instance, a sending for each word at a port."""
    plan, ports = run_.plan, run_.ports
    process = process_name(plan)
    numbered: list[tuple[int, int, Word | Began]] = []
    counts = dict.fromkeys(range(len(ports)), 0)
    for w in run_.words:
        numbered.append((w.clock, counts[w.port], w))
        counts[w.port] += 1
    numbered += [(b.clock, 0, b) for b in run_.instances]
    numbered.sort(key=lambda e: (e[0], isinstance(e[2], Began)))
    token: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    events: list[Firing | Sending] = []
    places: list[list[int]] = []
    for at, n, e in numbered:
        if isinstance(e, Began):
            events.append(Firing(0, list(e.index), token.pop(e.index, [])))
            places.append([e.lane, at])
        else:
            reader = run_.spent.get((e.port, n))
            if e.port < len(plan.inputs) and reader is not None:
                token.setdefault(reader, []).append((len(events), e.port))
            events.append(Sending(e.port, list(e.index), e.value, False))
            places.append([PORTS, at])
    outputs = [o.host.name for o in plan.outputs]
    targets = [*(f"{process}.{i.host.name}" for i in plan.inputs), *outputs]
    levels = np.bincount([b.clock for b in run_.instances]).tolist()
    return Trace(FORMAT, VERSION, p.name, [process, *ports], targets, outputs, events, levels, None, places)


def save_circuit_trace(p: Program, run_: CircuitRun, path: str) -> None:
    """Write the trace of a run: .pftrace for Perfetto, else JSON (.json, .json.gz)."""
    if Path(path).suffix == ".pftrace":
        from upl_mlir.observe.perfetto import write

        write(path, _slices(run_))
    else:
        circuit_trace(p, run_).save(path)


def _slices(run_: CircuitRun) -> Iterator[Any]:
    """A track for each lane and port; a clock takes a nanosecond."""
    from upl_mlir.observe.perfetto import Slice

    for b in run_.instances:
        yield Slice(("lanes", f"lane {b.lane}"), _named(run_.plan.process.name, b.index), b.clock, b.clock + 1)
    for w in run_.words:
        name = run_.ports[w.port]
        yield Slice(("ports", name), _named(name, w.index), w.clock, w.clock + 1, {"value": w.value})


def _named(name: str, index: tuple[int, ...]) -> str:
    return f"{name}<{','.join(map(str, index))}>"


def values_of(trace: Trace, plan: Plan) -> dict[str, list[str]]:
    """The values of the words of a recorded run, by port.  Raises UplError UPL1806 for a trace of something else."""
    ports: list[Input | Output] = [*plan.inputs, *plan.outputs]
    out: dict[str, list[str]] = {p.host.name: [] for p in ports}
    names = list(out)
    for e in trace.events:
        if isinstance(e, Sending) and e.target < len(names):
            out[names[e.target]].append(e.value)
    if trace.nodes != [process_name(plan), *out] or any(len(out[p.host.name]) != p.words for p in ports):
        help_ = "record it from the same program and sizes: `upl run FILE --engine circuit --trace T.json`"
        raise error("UPL1806", "the trace is of another program, or of no circuit", help=help_)
    return out


def save_circuit_waves(run_: CircuitRun, path: str, window: str | None) -> None:
    """Write waveforms of a window of clocks `A:B`, or of all: words at ports, and what each lane begins, as text.

    Raises UplError (UPL1503) for a window that is none.
    """
    from upl_mlir.observe.machine_trace import window_of

    first, last = window_of(window)
    said: dict[tuple[str, str], dict[int, str]] = {}
    for name in run_.ports:
        said["ports", name] = {}
    for n in range(run_.plan.nest.lanes):
        said["lanes", f"lane_{n}"] = {}
    for w in run_.words:
        name = run_.ports[w.port]
        said["ports", name][w.clock] = f"{_named(name, w.index)}={w.value}"
    for b in run_.instances:
        said["lanes", f"lane_{b.lane}"][b.clock] = _named(run_.plan.process.name, b.index)
    with Path(path).open("w", encoding="utf-8") as file, VCDWriter(file, timescale="1 ns", init_timestamp=first) as writer:
        signals = {key: writer.register_var(key[0], key[1].replace(".", "_"), "string", init="-") for key in said}
        shown = {
            (at, key): text for key, by_clock in said.items() for at, text in by_clock.items()
            if at >= first and (last is None or at <= last)
        }  # fmt: skip
        after = {(at + 1, key): "-" for at, key in shown}  # back to nothing
        for (at, key), text in sorted((after | shown).items()):
            writer.change(signals[key], at, text)
