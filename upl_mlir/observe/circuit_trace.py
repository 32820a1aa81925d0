"""`upl run --engine circuit --trace`, `--vcd`: a run of a circuit for `upl view`, for Perfetto, and as waveforms.

Words and their clocks are those of the simulation; when instances begin follows from the plan, exactly, as the ports never
wait there.
"""

# pyright: reportUnknownVariableType=false
# The library's variables are generic in what they hold.

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from vcd import VCDWriter

from upl_mlir.api.programs import Program
from upl_mlir.diagnostics import error
from upl_mlir.engines.circuit.engine import CircuitEngine, CircuitResult, run, to_stream, values
from upl_mlir.host.arrays import bind_arrays, bind_parameters, host_ports
from upl_mlir.observe.replay import FORMAT, VERSION, Firing, Sending, Trace
from upl_mlir.passes.circuit.channels.inner import number_of
from upl_mlir.passes.circuit.channels.inputs import Input
from upl_mlir.passes.circuit.channels.orders import number
from upl_mlir.passes.circuit.channels.outputs import Output
from upl_mlir.passes.circuit.choose import Wish
from upl_mlir.passes.circuit.ir import process_name
from upl_mlir.passes.circuit.plan import ENABLES, Part, Plan, lanes_of
from upl_mlir.passes.circuit.times import clock

PORTS = -1
"""The place of words at ports; the lanes of all processes are numbers from 0 on, process after process."""


@dataclass(frozen=True)
class _Event:
    """What happened in a clock, to the instance or the element with this index."""

    clock: int
    index: tuple[int, ...]


@dataclass(frozen=True)
class Word(_Event):
    """A word with this value passed a port, whose number is `port` (inputs first)."""

    port: int
    value: str


@dataclass(frozen=True)
class Began(_Event):
    """An instance of process number `part` began in a lane."""

    part: int
    lane: int


@dataclass(frozen=True)
class CircuitRun:
    """A run: its words and instances."""

    plan: Plan
    words: list[Word]
    instances: list[Began]
    spent: Mapping[tuple[int, int, int], tuple[int, ...]]
    """By port, number of a feed, and number of a word the instance that reads it last."""

    @property
    def ports(self) -> list[str]:
        """The names of all ports, inputs first."""
        return [p.name for p in (*self.plan.inputs, *self.plan.outputs)]


def record_circuit(
    p: Program, arrays: Mapping[str, Any], wish: Wish, **params: int
) -> tuple[CircuitRun, CircuitResult]:
    """Run a program as a circuit, and what happened.  Raises UplError."""
    program = p.expanded().infer_domains()
    with program.errors():
        bound = bind_parameters(program.op, arrays, params)
        engine = CircuitEngine(program.module, bound, wish)
        real_type = np.dtype(np.float32 if wish.real == "f32" else np.float64)
        dense = bind_arrays(program.op, host_ports(program.op, bound, real_type), dict(arrays))
        plan = engine.plan
        given = engine.given(dense)
        start = time.perf_counter()
        (made,), streamed = run(engine.simulation, [given])
        figures = engine.figures(streamed, time.perf_counter() - start)
        outputs = engine.results(made)
    words: list[Word] = []
    for k, i in enumerate(plan.inputs):
        words += _words(plan, k, i, to_stream(plan, i, given[i.name]), streamed.taken[i.name])
    for k, o in enumerate(plan.outputs, len(plan.inputs)):
        words += _words(plan, k, o, streamed.words[o.name], streamed.clocks[o.name])
    return CircuitRun(plan, words, instances(plan), _spent(plan)), CircuitResult(outputs, figures)


def _words(plan: Plan, k: int, port: Input | Output, bits: Any, clocks: Any) -> Iterator[Word]:
    found = values(plan, port, np.asarray(bits, np.uint32))
    for at, value, passed in zip(_elements(plan, port), found, clocks, strict=True):
        yield Word(int(passed), at, k, f"{float(value):.6g}")


def _elements(plan: Plan, port: Input | Output) -> Iterator[tuple[int, ...]]:
    """The elements of a port in its order."""
    dims = port.dims
    grid = np.indices([d.extent for d in dims]).reshape(len(dims), port.words)
    grid = grid + np.array([d.low for d in dims], np.int64).reshape(-1, 1)
    ranks = number(dims, port.order, lanes_of(port), {d.name: g for d, g in zip(dims, grid, strict=True)})
    return map(tuple, grid[:, np.argsort(np.broadcast_to(ranks, grid.shape[1:]))].T.tolist())


def instances(plan: Plan) -> list[Began]:
    """All instances of the processes' domains; those of a process in the order in which they begin."""
    out: list[Began] = []
    for k, part in enumerate(plan.parts):
        nest = part.nest
        own = np.broadcast_to(nest.slot[..., None], nest.shape)
        at = clock(plan, nest.begins) + (np.arange(nest.lanes) + ENABLES)
        where = np.argwhere(part.mask(part.process.domain))
        order = np.lexsort((own[tuple(where.T)], where[:, -1], at[tuple(where.T)]))
        out += [Began(int(at[tuple(row)]), _index(part, tuple(row)), k, row[-1]) for row in where[order].tolist()]
    return out


def _index(part: Part, at: tuple[int, ...]) -> tuple[int, ...]:
    nest = part.nest
    return tuple(int(np.broadcast_to(nest.grid[d.name], nest.shape)[at]) for d in part.process.dims)


def _spent(plan: Plan) -> dict[tuple[int, int, int], tuple[int, ...]]:
    out: dict[tuple[int, int, int], tuple[int, ...]] = {}
    for k, i in enumerate(plan.inputs):
        for j, f in enumerate(i.feeds):
            part = plan.parts[f.part]
            nest = part.nest
            last: dict[int, int] = {}
            for r in f.reads:
                word = np.broadcast_to(number_of(r.at.along(nest), f, nest.lanes), nest.shape)
                for row in np.argwhere(part.mask(r.site.when)).tolist():
                    at = tuple(row)
                    n = int(word[at])
                    if nest.begins[at] >= last.get(n, -1):
                        last[n] = int(nest.begins[at])
                        out[k, j, n] = _index(part, at)
    return out


def _ends(plan: Plan) -> tuple[list[str], list[str], list[str]]:
    """The nodes, targets and outputs of a trace: a target is an input of a process, or an output."""
    processes = [process_name(p) for p in plan.parts]
    outputs = [o.name for o in plan.outputs]
    targets = [f"{processes[f.part]}.{i.name}" for i in plan.inputs for f in i.feeds]
    return [*processes, *(i.name for i in plan.inputs), *outputs], [*targets, *outputs], outputs


def circuit_trace(p: Program, run_: CircuitRun) -> Trace:
    """The run in the form that all engines have: a firing for each instance, a sending for each word at a port; a word of an
    input is sent once to each process that reads it."""
    plan = run_.plan
    nodes, targets, outputs = _ends(plan)
    numbered: list[tuple[int, int, Word | Began]] = []
    counts = dict.fromkeys(range(len(run_.ports)), 0)
    for w in run_.words:
        numbered.append((w.clock, counts[w.port], w))
        counts[w.port] += 1
    numbered += [(b.clock, 0, b) for b in run_.instances]
    numbered.sort(key=lambda e: (e[0], isinstance(e[2], Began)))
    firsts = _first_targets(plan)
    first_lanes = np.cumsum([0, *(q.nest.lanes for q in plan.parts)]).tolist()
    token: dict[tuple[int, tuple[int, ...]], list[tuple[int, int]]] = {}
    events: list[Firing | Sending] = []
    places: list[list[int]] = []
    for at, n, e in numbered:
        if isinstance(e, Began):
            events.append(Firing(e.part, list(e.index), token.pop((e.part, e.index), [])))
            places.append([first_lanes[e.part] + e.lane, at])
            continue
        feeds = plan.inputs[e.port].feeds if e.port < len(plan.inputs) else (None,)
        for j, f in enumerate(feeds):
            target = firsts[e.port] + j
            if f is not None and (reader := run_.spent.get((e.port, j, n))) is not None:
                token.setdefault((f.part, reader), []).append((len(events), target))
            events.append(Sending(target, list(e.index), e.value, False))
            places.append([PORTS, at])
    levels = np.bincount([b.clock for b in run_.instances]).tolist()
    return Trace(FORMAT, VERSION, p.name, nodes, targets, outputs, events, levels, None, places)


def _first_targets(plan: Plan) -> list[int]:
    """Of each port the number of its first target."""
    counts = [*(len(i.feeds) for i in plan.inputs), *(1 for _ in plan.outputs)]
    return np.cumsum([0, *counts])[:-1].tolist()


def save_circuit_trace(p: Program, run_: CircuitRun, path: str) -> None:
    """Write the trace of a run: .pftrace for Perfetto, else JSON (.json, .json.gz)."""
    if Path(path).suffix == ".pftrace":
        from upl_mlir.observe.perfetto import write

        write(path, _slices(run_))
    else:
        circuit_trace(p, run_).save(path)


def _slices(run_: CircuitRun) -> Iterator[Any]:
    """A track for each lane of each process and for each port; a clock takes a nanosecond."""
    from upl_mlir.observe.perfetto import Slice

    parts = run_.plan.parts
    for b in run_.instances:
        name = parts[b.part].process.name
        group = "lanes" if len(parts) == 1 else f"lanes of {name}"
        yield Slice((group, f"lane {b.lane}"), _named(name, b.index), b.clock, b.clock + 1)
    for w in run_.words:
        name = run_.ports[w.port]
        yield Slice(("ports", name), _named(name, w.index), w.clock, w.clock + 1, {"value": w.value})


def _named(name: str, index: tuple[int, ...]) -> str:
    return f"{name}<{','.join(map(str, index))}>"


def values_of(trace: Trace, plan: Plan) -> dict[str, list[str]]:
    """The values of the words of a recorded run, by port in its order.  Raises UplError UPL1806 for a trace of something
    else."""
    ports: list[Input | Output] = [*plan.inputs, *plan.outputs]
    by_target = dict(zip(_first_targets(plan), ports, strict=True))
    said: dict[str, list[Sending]] = {p.name: [] for p in ports}
    for e in trace.events:
        if isinstance(e, Sending) and e.target in by_target:
            said[by_target[e.target].name].append(e)
    fired = Counter(e.node for e in trace.events if isinstance(e, Firing))
    begun = Counter({k: int(np.count_nonzero(p.mask(p.process.domain))) for k, p in enumerate(plan.parts)})
    found = {p.name: _in_order(plan, p, said[p.name]) for p in ports}
    out = {name: values for name, values in found.items() if values is not None}
    if (trace.nodes, trace.targets, trace.outputs) != _ends(plan) or fired != begun or len(out) < len(ports):
        help_ = "record it from the same program and sizes: `upl run FILE --engine circuit --trace T.json`"
        raise error("UPL1806", "the trace is of another program, or of no circuit", help=help_)
    return out


def _in_order(plan: Plan, port: Input | Output, said: list[Sending]) -> list[str] | None:
    """The values of a port's words in its order; None if they are not each of its elements once."""
    values = {tuple(e.tag): e.value for e in said}
    ranked = list(_elements(plan, port))
    return [values[at] for at in ranked] if len(said) == len(ranked) and values.keys() == set(ranked) else None


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name)


def save_circuit_waves(run_: CircuitRun, path: str, window: str | None) -> None:
    """Write waveforms of a window of clocks `A:B`, or of all: words at ports, and what each lane begins, as text.

    Raises UplError (UPL1503) for a window that is none.
    """
    from upl_mlir.observe.machine_trace import window_of

    first, last = window_of(window)
    parts = run_.plan.parts
    scopes = ["lanes"] if len(parts) == 1 else [f"process_{k}_{_plain(p.process.name)}" for k, p in enumerate(parts)]
    said: dict[tuple[str, str], dict[int, str]] = {}
    for name in run_.ports:
        said["ports", name] = {}
    for scope, p in zip(scopes, parts, strict=True):
        for n in range(p.nest.lanes):
            said[scope, f"lane_{n}"] = {}
    for w in run_.words:
        name = run_.ports[w.port]
        said["ports", name][w.clock] = f"{_named(name, w.index)}={w.value}"
    for b in run_.instances:
        said[scopes[b.part], f"lane_{b.lane}"][b.clock] = _named(parts[b.part].process.name, b.index)
    with Path(path).open("w", encoding="utf-8") as file, VCDWriter(file, timescale="1 ns", init_timestamp=first) as writer:
        signals = {key: writer.register_var(key[0], _plain(key[1]), "string", init="-") for key in said}
        shown = {
            (at, key): text for key, by_clock in said.items() for at, text in by_clock.items()
            if at >= first and (last is None or at <= last)
        }  # fmt: skip
        after = {(at + 1, key): "-" for at, key in shown}  # back to nothing
        for (at, key), text in sorted((after | shown).items()):
            writer.change(signals[key], at, text)
