"""What goes between the lanes of processes, the head and the ports."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false
# Amaranth's values and components are untyped.

from __future__ import annotations

import re
from dataclasses import dataclass, field

from amaranth.hdl import Module, Signal, Value

from upl_mlir.hw.circuit.ram import UNMERGED, copied
from upl_mlir.passes.circuit.channels.buffers import Buffer
from upl_mlir.passes.circuit.channels.feeds import Feed, Read
from upl_mlir.passes.circuit.channels.outputs import Output
from upl_mlir.passes.circuit.plan import Part, Plan
from upl_mlir.passes.circuit.stages import Site

MANY = 8
"""Lanes of a process that lie so far apart that each unit has an enable of its own: 16 lanes of a product of matrices went
from 114 to 130 MHz by it, 7 lanes of a stencil gained nothing."""


@dataclass(frozen=True, eq=False)
class Fed:
    """A stream as a process reads it: so many words are kept, of so many in a run."""

    feed: Feed
    window: int
    words: int
    held: bool


@dataclass(eq=False)
class Wires:
    """Of a process, by lane: enables, starts, results; by feed what comes; by stream what is sent."""

    went: Signal
    """The enable of the first lane, a clock before."""
    enable: list[Signal]
    start: list[Signal]
    written: dict[str, list[Signal]]
    """"result" and "total"."""
    feeds: list[Fed] = field(default_factory=list)
    shared: dict[Read, list[Signal]] = field(default_factory=dict)
    own: dict[Feed, list[tuple[Signal, Signal, Signal, Signal]]] = field(default_factory=dict)
    """Strobe, word, lane (for words that are dealt), place in the window of the lane."""
    sent: dict[Output, list[tuple[Signal, Signal]]] = field(default_factory=dict)
    """Strobe and word, a clock behind the lane."""
    stored: dict[Buffer, list[tuple[Signal, Signal]]] = field(default_factory=dict)
    """For the buffers of readers: strobe and place, in the slot of the result."""

    def enable_of(self, m: Module, lane: int, name: str) -> Signal:
        """The enable of a unit of a lane: that of the lane, or a register beside it if lanes are `MANY`."""
        if len(self.enable) < MANY:
            return self.enable[lane]
        return copied(m, self.enable[lane - 1] if lane else self.went, name)


@dataclass(frozen=True, eq=False)
class Probe:
    """What a site of a lane reads: `word` where `strobe` is 1."""

    part: int
    site: Site
    lane: int
    strobe: Value
    word: Value


def wires_of(plan: Plan) -> list[Wires]:
    """The wires of all processes."""
    out: list[Wires] = []
    bits = plan.numbers.width
    for k, part in enumerate(plan.parts):
        lanes, of = range(part.nest.lanes), f"{k}_" if len(plan.parts) > 1 else ""
        out.append(Wires(
            Signal(name=f"went_{k}", attrs=UNMERGED),
            [Signal(name=f"enable_{of}{n}") for n in lanes], [Signal(name=f"start_{of}{n}") for n in lanes],
            {what: [Signal(width, name=f"{what}_{of}{n}") for n in lanes] for what, width in _widths(part, bits).items()},
        ))  # fmt: skip
    for i in plan.inputs:
        for f in i.feeds:
            fed = Fed(f, i.places(f), i.words, i.held)
            _feed(out[f.part], _word(i.name), fed, plan.parts[f.part].nest.lanes, bits)
    for s in plan.streams:
        f = s.feed
        _feed(out[f.part], _word(s.name), Fed(f, s.window, s.sent.words, False), plan.parts[f.part].nest.lanes, bits)
    for o in (*plan.outputs, *(s.sent for s in plan.streams)):
        out[o.part].sent[o] = [
            (Signal(name=f"{_word(o.name)}_sent_{n}"), Signal(bits, name=f"{_word(o.name)}_sends_{n}", reset_less=True))
            for n in range(plan.parts[o.part].nest.lanes)
        ]
    by_name = {p.process.name: n for n, p in enumerate(plan.parts)}
    for part in plan.parts:
        for site, b in part.buffers.items():
            writer = by_name[site.array]
            out[writer].stored[b] = [
                (Signal(name=f"stores_{name}_{n}"), Signal(range(b.places), name=f"place_{name}_{n}"))
                for name in [_word(site.array)] for n in range(plan.parts[writer].nest.lanes)
            ]  # fmt: skip
    return out


def _widths(part: Part, bits: int) -> dict[str, int]:
    """The bits of what a process writes."""
    body = part.process.body
    total = body.result if body.total is None else body.total
    return {"result": body.result.bits or bits, "total": total.bits or bits}


def _feed(wires: Wires, name: str, fed: Fed, lanes: int, bits: int) -> None:
    f = fed.feed
    wires.feeds.append(fed)
    last = max((n for r in f.reads for n in r.lanes), default=0)
    if f.shared:
        for k, r in enumerate(f.reads):
            wires.shared[r] = [Signal(bits, name=f"{name}_{k}_{n}", reset_less=True) for n in range(last + 1)]
    else:
        wires.own[f] = [
            (Signal(name=f"{name}_strobe_{n}"), Signal(bits, name=f"{name}_word_{n}", reset_less=True),
             Signal(range(max(2, lanes)), name=f"{name}_lane_{n}"), Signal(range(fed.window), name=f"{name}_place_{n}"))
            for n in range(last + 1)
        ]  # fmt: skip


def _word(name: str) -> str:
    """A name without what names of signals cannot have."""
    return re.sub(r"\W", "_", name)
