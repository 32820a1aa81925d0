"""Recording a run of the interpreter, event by event, so that it can be replayed: `upl run --trace`, `upl view --trace`.

A trace is a list of firings and sends in the order in which they happened.  When the run has ended, every token knows
the firing that used it up; a token that none did, and that is not a ``##``, is stuck.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from upl_mlir.api.programs import Program
from upl_mlir.diagnostics import UplError, error, read_bytes
from upl_mlir.dialects.upl import NodeOp, SendOp, Special
from upl_mlir.dialects.upl.query import arrows, endpoints, poly_context, source_of
from upl_mlir.engines.interp.engine import Engine, Event, RunResult
from upl_mlir.host.arrays import bind_arrays, bind_parameters, host_ports
from upl_mlir.poly.expr import IndexExpr

if TYPE_CHECKING:
    from upl_mlir.observe.perfetto import Count, Slice

Index = tuple[int | None, ...]
FORMAT, VERSION = "upl-trace", 1
WINDOW = 5_000  # events that the page reads at once: a few milliseconds, within a frame
LISTED = 400  # tokens waiting at the beginning of a window that are named; all are counted


class Firing(msgspec.Struct, tag="f", array_like=True):
    """A firing: number of the node or host input, index, and what it used up: event and target of each token."""

    node: int
    index: list[int]
    ends: list[tuple[int, int]]


class Sending(msgspec.Struct, tag="s", array_like=True):
    """A token sent by the firing before: number of the target, tag (null is ``*``), value as text, whether it is stuck."""

    target: int
    tag: list[int | None]
    value: str
    stuck: bool


class Trace(msgspec.Struct, forbid_unknown_fields=True):
    """A recorded run.  `levels[i]` firings need a chain of i firings before them; `failed` is the error that ended it."""

    format: str
    version: int
    program: str
    nodes: list[str]
    targets: list[str]
    outputs: list[str]
    events: list[Firing | Sending]
    levels: list[int]
    failed: str | None = None
    places: list[list[int]] = []
    """Of a machine: core and cycle of each event; core -1 is the host."""
    records: list[list[int]] = []
    """Of a machine: core, cycle, and from then on the number of records in the core's matching store."""

    def _repr_html_(self) -> str:
        """For notebooks: how often each node fired, and how the run ended; `upl.view(p, trace=…)` replays it."""
        from upl_mlir.passes.analysis.tables import table

        fired = Counter(self.nodes[e.node] for e in self.events if isinstance(e, Firing))
        sent = Counter(self.targets[e.target] for e in self.events if isinstance(e, Sending))
        rows = [("fires", name, n) for name, n in fired.items()] + [("gets tokens", name, n) for name, n in sent.items()]
        return table(("", f"run of {self.program}", ""), [*rows, *([("ended by", self.failed, "")] if self.failed else [])])

    def save(self, path: str | Path) -> None:
        """Write it as JSON, compressed if the name ends in .gz; for Perfetto, one way only, if it ends in .pftrace."""
        if str(path).endswith(".pftrace"):
            from upl_mlir.observe.perfetto import write

            write(path, slices(self))
            return
        data = msgspec.json.encode(self)
        Path(path).write_bytes(gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)


def load_trace(path: str | Path) -> Trace:
    """Read a trace that `save` has written.  Raises UplError (UPL1806, UPL1001)."""
    data = read_bytes(path)
    try:
        trace = msgspec.json.decode(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, type=Trace)
    except (msgspec.DecodeError, ValueError, EOFError, gzip.BadGzipFile, zlib.error) as e:
        help_ = "`upl run FILE --trace T.json` writes one"
        if str(path).endswith(".pftrace"):
            help_ += "; .pftrace is for Perfetto"
        raise error("UPL1806", f"{path} is not a trace: {e}", help=help_) from None
    if (trace.format, trace.version) != (FORMAT, VERSION):
        raise error("UPL1806", f"{path} is a trace of version {trace.version}; this program reads version {VERSION}")
    return trace


def record(
    p: Program, arrays: Mapping[str, Any], *, real: str = "f64", gather: str = "relaxed", order: str = "fifo",
    seed: int = 0, **params: int,
) -> tuple[Trace, RunResult | UplError]:
    """Run a program on the interpreter and record it: the trace, and the result or the error that ended the run.

    Raises UplError only for what is wrong before the run begins: arrays and parameters.
    """  # fmt: skip
    program = p.expanded().infer_domains()
    with program.errors():
        bound = bind_parameters(program.op, arrays, params)
        ports = host_ports(program.op, bound, np.dtype(np.float32 if real == "f32" else np.float64))
        dense = bind_arrays(program.op, ports, dict(arrays))
        recorder = Recorder(program, bound)
        engine = Engine(program.op, bound, real=real, gather=gather, order=order, seed=seed, trace=recorder.note)
        try:
            with program.errors():
                result: RunResult | UplError = engine.run(dense)
        except UplError as e:
            result = e
    return recorder.trace(str(result) if isinstance(result, UplError) else None), result


@dataclass
class _Token:
    """A token on its way to an input, or waiting there."""

    at: int  # its event
    target: int
    level: int
    left: int | None  # activations that it may still take part in; None: not known, or without end
    endless: bool
    used: bool = False
    last: int = -1  # the firing that used it last


@dataclass
class _Input:
    """What has come to an input: tokens by the fields that are given in their tags, and their values."""

    gathers: bool
    number: int
    tokens: dict[tuple[int, ...], dict[tuple[int, ...], list[_Token]]] = field(default_factory=dict[Any, Any])


class Recorder:
    """Notes the events of one run."""

    def __init__(self, p: Program, bound: Mapping[str, int]):
        self.program, self.context = p, poly_context(p.op, bound)
        ends = endpoints(p.op)
        self.numbers = {name: i for i, name in enumerate(ends)}
        self.fields = {name: op.fields for name, op in ends.items()}
        self.inputs: dict[str, list[_Input]] = {name: [] for name in ends}
        self.by_target: dict[str, _Input | None] = {}
        self.targets: list[str] = []
        for name, op in ends.items():
            if isinstance(op, NodeOp):
                for port in op.ports:
                    entry = _Input(port.gather is not None, len(self.targets))
                    self.inputs[name].append(entry)
                    self.by_target[f"{name}.{port.name}"] = entry
                    self.targets.append(f"{name}.{port.name}")
        self.outputs = [name for name, op in ends.items() if not isinstance(op, NodeOp) and not hasattr(op, "body")]
        self.output_numbers = {name: len(self.targets) + i for i, name in enumerate(self.outputs)}
        self.sends: dict[tuple[str, str], list[SendOp]] = defaultdict(list)
        for s in arrows(p.op):
            target = ".".join(filter(None, (s.target_name, s.target_port)))
            self.sends[source_of(s).symbol, target].append(s)
        self.events: list[Firing | Sending] = []
        self.levels: list[int] = []
        self.tokens: list[_Token] = []
        self.source: tuple[str, tuple[int, ...], int] = ("", (), 0)

    def note(self, event: Event, name: str, index: Index, value: Any) -> None:
        """The callback of the engine."""
        if event is Event.FIRE:
            self._fire(name, tuple(i for i in index if i is not None))
        else:
            self._send(name, index, value)

    def _fire(self, name: str, index: tuple[int, ...]) -> None:
        at, level = len(self.events), 0
        for entry in self.inputs[name]:
            for t in self._used(entry, index):
                level = max(level, t.level + 1)
                t.used, t.last = True, at
                t.left = t.left if t.left is None else t.left - 1
        self.levels += [0] * (level + 1 - len(self.levels))
        self.levels[level] += 1
        self.events.append(Firing(self.numbers[name], list(index), []))
        self.source = (name, index, level)

    def _used(self, entry: _Input, index: tuple[int, ...]) -> list[_Token]:
        for pattern, table in entry.tokens.items():
            key = tuple(index[i] for i in pattern)
            found = table.get(key)
            if found:
                if entry.gathers:
                    return table.pop(key)
                first = found[0]
                if first.left == 1:
                    found.pop(0)
                return [first]
        return []

    def _send(self, name: str, index: Index, value: Any) -> None:
        text = str(value) if isinstance(value, bool | int) else f"{value:.6g}"
        entry = self.by_target.get(name)
        if entry is None:
            self.events.append(Sending(self.output_numbers[name], list(index), text, False))
            return
        left, endless = (1, False) if entry.gathers else self._multiplicity(name)
        token = _Token(len(self.events), entry.number, self.source[2], left, endless)
        pattern = tuple(i for i, x in enumerate(index) if x is not None)
        key = tuple(x for x in index if x is not None)
        entry.tokens.setdefault(pattern, {}).setdefault(key, []).append(token)
        self.tokens.append(token)
        self.events.append(Sending(entry.number, list(index), text, False))

    def _multiplicity(self, target: str) -> tuple[int | None, bool]:
        """The number of activations of a token just sent, where its arrow says so by constants and fields of the source."""
        name, index, _ = self.source
        found = self.sends[name, target]
        counts = {s.multiplicity for s in found}
        if Special.UNBOUNDED in counts:
            return None, True
        if len(counts) != 1:
            return None, False
        (count,) = counts
        assert isinstance(count, IndexExpr)
        env = {**self.context.constants, **dict(zip(self.fields[name], index, strict=True))}
        try:
            return count.evaluate(env, self.context.read), False
        except (KeyError, UplError):  # it depends on data or on an iterator
            return None, False

    def trace(self, failed: str | None) -> Trace:
        """The trace, once the run has ended."""
        for t in self.tokens:
            spent = t.used if t.left is None else t.left <= 0
            if spent and not t.endless:
                ending = self.events[t.last]
                assert isinstance(ending, Firing)
                ending.ends.append((t.at, t.target))
            elif not t.endless:
                sending = self.events[t.at]
                assert isinstance(sending, Sending)
                sending.stuck = True
        return Trace(
            FORMAT, VERSION, self.program.name, list(self.numbers), [*self.targets, *self.outputs], self.outputs,
            self.events, self.levels, failed,
        )  # fmt: skip


# ------------------------------------------------------------------------------------------------------- for the page


def windows(trace: Trace, size: int = WINDOW) -> Iterator[dict[str, Any]]:
    """The trace in pieces that a reader needs one at a time; each begins with the state before its first event.

    `waiting` are the tokens at each target, `fired` the firings of each node, `alive` the first tokens that wait: event,
    target, tag, value, stuck.
    """
    inputs = len(trace.targets) - len(trace.outputs)
    waiting, fired = [0] * len(trace.targets), [0] * len(trace.nodes)
    alive: dict[int, list[Any]] = {}
    for start in range(0, max(len(trace.events), 1), size):
        piece = trace.events[start : start + size]
        listed = [v for _, v in zip(range(LISTED), alive.values(), strict=False)]
        yield {"start": start, "waiting": list(waiting), "fired": list(fired), "alive": listed,
               "events": json.loads(msgspec.json.encode(piece)), "places": trace.places[start : start + size]}  # fmt: skip
        for i, e in enumerate(piece, start):
            if isinstance(e, Firing):
                fired[e.node] += 1
                for token, target in e.ends:
                    waiting[target] -= 1
                    alive.pop(token, None)
            else:
                waiting[e.target] += 1
                if e.target < inputs:
                    alive[i] = [i, e.target, e.tag, e.value, e.stuck]


def overview(trace: Trace, columns: int = 400) -> list[tuple[int, int]]:
    """Waiting tokens and firings over the run, in so many columns: the most that wait, and how many firings."""
    inputs = len(trace.targets) - len(trace.outputs)
    per = max(8, -(-len(trace.events) // columns))
    out: list[tuple[int, int]] = []
    waiting = 0
    for start in range(0, len(trace.events), per):
        most, firings = waiting, 0
        for e in trace.events[start : start + per]:
            if isinstance(e, Firing):
                waiting -= len(e.ends)
                firings += 1
            else:
                waiting += e.target < inputs
                most = max(most, waiting)
        out.append((most, firings))
    return out


def lanes(trace: Trace, columns: int = 200) -> list[list[int]]:
    """For each core of a machine its firings over the cycles of the run, in so many columns; nothing without a machine."""
    if not trace.places:
        return []
    last = max(cycle for _, cycle in trace.places) + 1
    out = [[0] * columns for _ in range(max(core for core, _ in trace.places) + 1)]
    for e, (core, cycle) in zip(trace.events, trace.places, strict=True):
        if isinstance(e, Firing) and core >= 0:
            out[core][cycle * columns // last] += 1
    return out


def packed(value: object) -> str:
    """A value as compressed JSON in base 64, as the page unpacks it."""
    return base64.b64encode(gzip.compress(json.dumps(value, separators=(",", ":")).encode(), 6, mtime=0)).decode()


def slices(trace: Trace) -> Iterable[Slice | Count]:
    """A run of the interpreter: a track for each node, a slice for each firing, an instant for each token that it sends,
    an arrow from there to every firing that used it.  The n-th event happens at time n; the interpreter has no other clock.
    """  # fmt: skip
    from upl_mlir.observe.perfetto import Count, Slice

    inputs = len(trace.targets) - len(trace.outputs)
    events, waiting = trace.events, 0
    track: tuple[str, ...] = ()
    following = [len(events)] * (len(events) + 1)  # where the firing after each event begins
    for n in reversed(range(len(events))):
        following[n] = n if isinstance(events[n], Firing) else following[n + 1]
    for n, e in enumerate(events):
        if isinstance(e, Firing):
            name = trace.nodes[e.node]
            track = (name,)
            shown = f"{name}<{','.join(map(str, e.index))}>"
            yield Slice(track, shown, n, following[n + 1], {}, (), tuple(event + 1 for event, _ in e.ends))
            waiting -= len(e.ends)
        else:
            tag = ",".join("*" if i is None else str(i) for i in e.tag)
            notes = {"value": e.value} | ({"stuck": "nothing used it"} if e.stuck else {})
            yield Slice(track, f"→ {trace.targets[e.target]}<{tag}>", n, n, notes, (n + 1,))
            waiting += e.target < inputs
        yield Count(("tokens waiting",), n, waiting)
