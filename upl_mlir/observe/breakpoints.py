"""Breakpoints for the interpreter: stop where an instance fires, or where a token comes, and show the tokens.

    run_with_breaks(p, ["Link<1,2,*,4>", "Sum.s"], {"X": x, "W": w}, stop=lambda s: print("\\n".join(s.lines())) or True)

A place is a node (`Link`), some of its instances (`Link<1,2,*,4>`), one of its inputs (`Sum.s`, `Sum.s<1,*>`), or an output.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from upl_mlir.api.programs import Program
from upl_mlir.diagnostics import error, nearest_or_all
from upl_mlir.dialects.upl import NodeOp, OutputOp
from upl_mlir.dialects.upl.query import endpoints, span_of
from upl_mlir.engines.interp.engine import Engine, Event, RunResult
from upl_mlir.engines.interp.errors import tag, unify
from upl_mlir.host.arrays import bind_arrays, bind_parameters, host_ports

Index = tuple[int | None, ...]
_PLACE = re.compile(r"\s*(?P<name>[^\W\d]\w*)(\.(?P<input>[^\W\d]\w*))?\s*([<⟨](?P<index>[^<>⟨⟩]*)[>⟩])?\s*")
MOST_SUMMANDS = 8  # that are shown of a gather


class Stopped(Exception):
    """The run was ended at a breakpoint."""


@dataclass(frozen=True)
class Breakpoint:
    """Where to stop: firings of `target` (a node), or tokens to it ("Node.input", an output), where the index fits."""

    target: str
    on_fire: bool
    index: Index | None

    def fits(self, index: Index) -> bool:
        """Whether an instance or a token belongs to the place."""
        return self.index is None or unify(self.index, index) is not None


@dataclass
class Stop:
    """A stop: the `number`-th firing or token at the place, after `firings` firings in all; what came on each input."""

    what: str
    number: int
    firings: int
    inputs: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])

    def lines(self) -> list[str]:
        """What is shown."""
        out = [f"{self.what}  ({self.firings} firings before)"]
        for name, values in self.inputs.items():
            shown = ", ".join(repr(v) for v in values[:MOST_SUMMANDS])
            more = f", … ({len(values)} in all)" if len(values) > MOST_SUMMANDS else ""
            out.append(f"  {name} = {shown}{more}")
        return out


def parse_breakpoint(p: Program, place: str) -> Breakpoint:
    """The breakpoint that a text means.  Raises UplError (UPL1810) for a place that is not in the program."""
    found = _PLACE.fullmatch(place)
    if found is None:
        raise error("UPL1810", f"`{place}` is not a place in a program", help="write NODE, NODE<1,*> or NODE.input<1,*>")
    ends = {name: op for name, op in endpoints(p.op).items() if isinstance(op, NodeOp | OutputOp)}
    op = ends.get(found["name"])
    if op is None:
        message = f"`{found['name']}` is neither a node nor an output"
        raise error("UPL1810", message, help=nearest_or_all(found["name"], ends))
    target = op.symbol
    if found["input"] is not None:
        names = [q.name for q in op.ports] if isinstance(op, NodeOp) else []
        if found["input"] not in names:
            message = f"`{op.symbol}` has no input `{found['input']}`"
            raise error("UPL1810", message, span_of(op), help=nearest_or_all(found["input"], names))
        target = f"{op.symbol}.{found['input']}"
    index: Index | None = None
    if found["index"] is not None and (found["index"].strip() or op.fields):
        texts = [t.strip() for t in found["index"].split(",")]
        if len(texts) != len(op.fields) or not all(re.fullmatch(r"[+-]?\d{1,18}|\*", t) for t in texts):
            wanted = f"{op.symbol}<{','.join(op.fields)}>"
            raise error("UPL1810", f"`{place}` has not one whole number or `*` for each field of {wanted}", span_of(op))
        index = tuple(None if t == "*" else int(t) for t in texts)
    return Breakpoint(target, isinstance(op, NodeOp) and found["input"] is None, index)


class _Watcher:
    """Listens to a run and stops it; keeps the tokens to the nodes at which it stops."""

    def __init__(self, p: Program, breaks: Sequence[Breakpoint], stop: Callable[[Stop], bool]):
        self.breaks, self.stop = breaks, stop
        self.counts = Counter[str]()
        self.firings = 0
        self.watched: dict[str, tuple[str, ...]] = {}  # of a node: its inputs
        ends = endpoints(p.op)
        self.nodes = {name for name, op in ends.items() if isinstance(op, NodeOp)}  # host inputs fire too, but do not count
        for name, op in ends.items():
            if isinstance(op, NodeOp) and any(b.on_fire and b.target == name for b in breaks):
                self.watched[name] = tuple(q.name for q in op.ports)
        self.kept = {f"{n}.{i}" for n, inputs in self.watched.items() for i in inputs}
        self.tokens: dict[str, list[tuple[Index, Any]]] = defaultdict(list)

    def note(self, event: Event, name: str, index: Index, value: Any) -> None:
        """What the engine tells.  Raises Stopped."""
        if event is Event.FIRE:
            if name in self.watched and self._fits(name, index, on_fire=True):
                inputs = {i: self._arrived(f"{name}.{i}", index) for i in self.watched[name]}
                self._stop(f"{name}{tag(index)} fires", name, inputs)
            self.firings += name in self.nodes
            return
        if name in self.kept:
            self.tokens[name].append((index, value))
        if self._fits(name, index, on_fire=False):
            self._stop(f"{name}{tag(index)} is sent {value!r}", name, {})

    def _fits(self, name: str, index: Index, *, on_fire: bool) -> bool:
        return any(b.target == name and b.on_fire == on_fire and b.fits(index) for b in self.breaks)

    def _arrived(self, target: str, index: Index) -> list[Any]:
        return [v for pattern, v in self.tokens[target] if unify(pattern, index) is not None]

    def _stop(self, what: str, name: str, inputs: dict[str, list[Any]]) -> None:
        self.counts[name] += 1
        if not self.stop(Stop(what, self.counts[name], self.firings, inputs)):
            raise Stopped


def run_with_breaks(
    p: Program, places: Sequence[str], arrays: Mapping[str, Any], *, stop: Callable[[Stop], bool], real: str = "f64",
    gather: str = "relaxed", order: str = "fifo", seed: int = 0, **params: int,
) -> RunResult | None:
    """Run a program on the interpreter; `stop` is called at each place that is reached, and says whether to go on.

    Returns None if it said no.  Raises UplError (UPL1810), and as any run.
    """  # fmt: skip
    program = p.expanded().infer_domains()
    breaks = [parse_breakpoint(program, place) for place in places]
    with program.errors():
        bound = bind_parameters(program.op, arrays, params)
        ports = host_ports(program.op, bound, np.dtype(np.float32 if real == "f32" else np.float64))
        dense = bind_arrays(program.op, ports, dict(arrays))
        watcher = _Watcher(program, breaks, stop)
        engine = Engine(program.op, bound, real=real, gather=gather, order=order, seed=seed, trace=watcher.note)
        try:
            return engine.run(dense)
        except Stopped:
            return None
