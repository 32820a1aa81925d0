"""`upl run --engine rtl --trace`: runs of a machine as traces, for the page of `upl view` and for Perfetto."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from upl_mlir.api.programs import Program
from upl_mlir.diagnostics import UplError, error
from upl_mlir.engines.names import Simulator
from upl_mlir.engines.rtl.engine import RtlEngine, RtlResult
from upl_mlir.engines.rtl.observe.names import UNITS, named, shown
from upl_mlir.engines.rtl.observe.watch import Events, Recorded
from upl_mlir.engines.rtl.observe.waves import write_waves
from upl_mlir.engines.rtl.trees import Observer, repeat
from upl_mlir.host.arrays import bind_arrays, bind_parameters, host_ports
from upl_mlir.hw.execute import Scalar
from upl_mlir.hw.image import ProgramImage
from upl_mlir.hw.microcode import ToHost, ToNode
from upl_mlir.observe.replay import FORMAT, VERSION, Firing, Sending, Trace


def record_machine(
    p: Program, arrays: Mapping[str, Any], machine: str | None, simulator: Simulator | None = None, **params: int
) -> tuple[Recorded, RtlResult | UplError]:
    """Run a program on a machine and watch it: what happened, and the result or the error that ended the run.

    Raises UplError for what is wrong before the run begins.
    """
    program = p.expanded().infer_domains()
    with program.errors():
        if program.lowered:
            engine = RtlEngine(program.module, params, machine=machine, simulator=simulator)
            dense = engine.bind(arrays)
        else:
            bound = bind_parameters(program.op, arrays, params)
            engine = RtlEngine(program.module, bound, machine=machine, simulator=simulator)
            dense = bind_arrays(program.op, host_ports(program.op, bound, np.dtype(np.float32)), dict(arrays))
        seen: list[Recorded] = []
        try:
            result: RtlResult | UplError = engine.run_tokens(engine.inject(dense), watch=seen.append)
        except UplError as e:
            if not seen:
                raise
            result = e
    return seen[0], result


def save_machine_trace(p: Program, run: Recorded, result: RtlResult | UplError, path: str) -> None:
    """Write the trace of a run: .pftrace for Perfetto, else JSON for `upl view` (.json, .json.gz)."""
    if Path(path).suffix == ".pftrace":
        from upl_mlir.observe.perfetto import write

        write(path, slices(run))
    else:
        machine_trace(p, run, str(result) if isinstance(result, UplError) else None).save(path)


def save_waves(run: Recorded, path: str, window: str | None) -> None:
    """Write the waveforms of a window of cycles `A:B`, or of all.  Raises UplError (UPL1503) for a window that is none."""
    write_waves(run, path, *window_of(window))


def window_of(text: str | None) -> tuple[int, int | None]:
    """The first and the last cycle of a window `A:B`; None is all.  Raises UplError (UPL1503)."""
    first, _, last = (text or "0:").partition(":")
    if not (first.isdecimal() and (not last or last.isdecimal())):
        raise error("UPL1503", f"`{text}` is no window of cycles", help="write it as A:B, for instance 100:200")
    return int(first), int(last) if last else None


def slices(run: Recorded) -> Iterator[Any]:
    """What the units did, a track for each unit of each core; a cycle takes a nanosecond."""
    from upl_mlir.observe.perfetto import Slice

    for d in sorted(named(run), key=lambda d: (d.core, d.unit, d.cycle)):
        yield Slice((f"core {d.core}", UNITS[d.unit]), d.text, d.cycle, d.cycle + 1, d.facts)


def machine_trace(p: Program, run: Recorded, failed: str | None = None) -> Trace:
    """The run as a trace that the page replays: what each firing used and sent follows from executing the record again."""
    collector = _Collector(run)
    repeat(run.image, run.program, run.tokens, run.seen, collector)
    return collector.trace(p, failed)


class _Collector(Observer):
    """Notes firings and tokens, in the order of the machine's firings. The host's tokens come first, as one firing of each
    host input that sent them would say nothing."""

    def __init__(self, run: Recorded):
        self.image: ProgramImage = run.image
        self.places = run.seen["fired"].rows()
        self.targets = [f"{n.name}.{i.name}" for n in run.image.nodes for i in n.inputs]
        starts = np.cumsum([0, *(len(n.inputs) for n in run.image.nodes)]).tolist()
        self.first: list[int] = starts
        self.events: list[Firing | Sending] = []
        self.where: list[tuple[int, int]] = []
        self.level: dict[int, int] = {}
        self.ends: dict[int, bool] = {}
        self.levels: list[int] = []
        self.now, self.place = 0, (-1, 0)
        self.records = _changes(run.seen["used"])

    def fired(self, node: int, index: Sequence[int], used: Sequence[int], spent: Sequence[int], event: int) -> None:
        """A firing: a level above those of its tokens."""
        cycle, core = self.places[event]
        self.now, self.place = max((self.level[t] for t in used), default=-1) + 1, (core, cycle)
        self.levels += [0] * (self.now + 1 - len(self.levels))
        self.levels[self.now] += 1
        ends: list[tuple[int, int]] = []
        for token in spent:
            sending = self.events[token]
            assert isinstance(sending, Sending)
            ends.append((token, sending.target))
            self.ends[token] = True
        self.events.append(Firing(node, list(index), ends))
        self.where.append(self.place)

    def sent(self, target: ToNode | ToHost, index: tuple[int | None, ...], value: Scalar | float, times: int | None) -> int:
        """A token; it is at the firing's place."""
        number = len(self.events)
        outwards = isinstance(target, ToHost)
        to = len(self.targets) + target.output if outwards else self.first[target.node] + target.input
        self.events.append(Sending(to, list(index), shown(value), not outwards and times is not None))
        self.where.append(self.place)
        self.level[number] = self.now
        return number

    def trace(self, p: Program, failed: str | None) -> Trace:
        """The trace, once the run has ended."""
        for token in self.ends:
            sending = self.events[token]
            assert isinstance(sending, Sending)
            sending.stuck = False
        outputs = [o.name for o in self.image.outputs]
        nodes = [*(n.name for n in self.image.nodes), *p.inputs, *outputs]
        return Trace(
            FORMAT, VERSION, p.name, nodes, [*self.targets, *outputs], outputs, self.events, self.levels, failed,
            [list(place) for place in self.where], self.records,
        )  # fmt: skip


def _changes(used: Events) -> list[list[int]]:
    """Core, cycle, and the number of records from then on, wherever that number changes."""
    now: dict[int, int] = {}
    found: list[list[int]] = []
    for cycle, core, records in used.rows("records"):
        if records != now.get(core, 0):
            found.append([core, cycle, records])
        now[core] = records
    return found
