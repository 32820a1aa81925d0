"""Proofs about a plan, made of nothing but its schedule and its numbers: every value is there when it is read, no
memory is too small, nothing within a circuit waits for itself.

All instances of a run, and of as many runs as are under way at once, are looked at; whoever made the plan is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from upl_mlir.passes.circuit.links import least, sources
from upl_mlir.passes.circuit.nest import Ints
from upl_mlir.passes.circuit.plan import Plan
from upl_mlir.passes.circuit.ports import (
    LEAD,
    Input,
    Output,
    Read,
    elements,
    freed,
    group_slots,
    late,
    number,
    steps,
    turns,
)
from upl_mlir.passes.circuit.stages import Site


@dataclass(frozen=True)
class Proof:
    """A statement about a channel or a port, whether it holds, and how often it was asked."""

    subject: str
    claim: str
    cases: int
    holds: bool
    counterexample: str = ""

    def __str__(self) -> str:
        end = f"holds in all {self.cases}" if self.holds else f"fails: {self.counterexample}"
        return f"{self.subject}: {self.claim}: {end}"


def proofs(plan: Plan) -> list[Proof]:
    """All proofs of a plan."""
    out: list[Proof] = []
    for n, s in enumerate(s for s in plan.sites if s.written is not None):
        out += _link(plan, s, f"link {n} of {s.array}")
    for i in plan.inputs:
        for k, r in enumerate(i.reads):
            out += _window(plan, i, r, f"read {k} of {i.host.name}")
        out.append(_goes_on(plan, i))
    for o in plan.outputs:
        out += _port(plan, o)
    return out


def _first(plan: Plan, wrong: np.ndarray) -> str:
    """The first instance at which something is wrong."""
    if not wrong.any():
        return ""
    return _named(plan, tuple(np.argwhere(wrong)[0].tolist()))


def _named(plan: Plan, at: tuple[int, ...]) -> str:
    """An instance, given by its loops and its lane."""
    fields = [f"{n}={int(np.broadcast_to(g, plan.nest.shape)[at])}" for n, g in plan.nest.grid.items()]
    return f"{plan.process.name}<{', '.join(fields)}>"


def _iteration(plan: Plan, number: int, lane: int = 0) -> str:
    """The instance of a lane in an iteration of the nest, given by its number, counted over several runs."""
    nest = plan.nest
    at = np.unravel_index(number % prod(nest.extents), nest.extents)
    return _named(plan, (*map(int, at), lane))


def _times(plan: Plan) -> Ints:
    """The slot of each instance, counted from the first lane's first one."""
    nest = plan.nest
    return np.broadcast_to(nest.slot[..., None] + nest.skew * np.arange(nest.lanes), nest.shape)


def _link(plan: Plan, s: Site, name: str) -> Iterator[Proof]:
    """A value is read exactly as many slots after it was written as the link is long, and it is there by then."""
    assert s.written is not None
    nest = plan.nest
    mask = nest.mask(s.when, plan.process.sizes)
    lane, then = nest.place(sources(plan.process, s, dict(nest.grid)))
    apart = np.broadcast_to(_times(plan) + s.stage - (then + s.written), nest.shape)
    lane = np.broadcast_to(lane, nest.shape)
    length = np.full(nest.shape, -1, dtype=np.int64)
    origin = np.full(nest.shape, -1, dtype=np.int64)
    for link in plan.links[s]:
        for block, n in enumerate(link.lengths):
            at = (*[slice(None)] * nest.block, block, *[slice(None)] * (len(nest.order) - nest.block - 1), link.lane)
            length[at] = -1 if n is None else n
            origin[at] = link.source
    wrong = mask & ((length != apart) | (origin != lane))
    yield Proof(name, "is as long as the time between write and read", int(mask.sum()), not wrong.any(), _first(plan, wrong))
    here = np.arange(nest.lanes)
    early = mask & (apart < np.vectorize(least)(np.broadcast_to(here, nest.shape), lane))
    yield Proof(name, "a value is there when it is read", int(mask.sum()), not early.any(), _first(plan, early))


def _window(plan: Plan, i: Input, r: Read, name: str) -> Iterator[Proof]:
    """Each read finds its word, which came in time and has not made room for another one."""
    nest = plan.nest
    mask = nest.mask(r.site.when, plan.process.sizes)
    exprs = plan.process.sizes.given(nest.grid)
    values = {f: exprs.expr(e) for f, e in zip(i.host.fields, r.site.index, strict=True)}
    word = np.broadcast_to(number(elements(plan.process, i.host), i.order, nest.lanes, values), nest.shape)
    made = r.first + r.lane_step * np.arange(nest.lanes)
    for axis, step in enumerate(r.steps):
        made = made + step * np.arange(nest.extents[axis]).reshape([-1 if a == axis else 1 for a in range(len(nest.shape))])
    wrong = mask & (np.broadcast_to(made, nest.shape) != (word // nest.lanes if i.dealt else word))
    if i.dealt:
        wrong |= mask & (word % nest.lanes != np.arange(nest.lanes))
    yield Proof(name, "the address is that of the element", int(mask.sum()), not wrong.any(), _first(plan, wrong))
    before, _ = group_slots(nest, i.need.level)
    came = np.cumsum(steps(nest, i.need))
    now = np.broadcast_to(nest.slot[..., None], nest.shape)  # the lane's own slot: what is needed later is there by then
    there = came[np.searchsorted(before, now - 1, side="right") - 1]
    missing = mask & (there <= word)
    yield Proof(name, "a word has come when it is read", int(mask.sum()), not missing.any(), _first(plan, missing))
    if i.held:
        return  # a word is replaced by the one that the next group reads, and that is shown above
    _, ends = group_slots(nest, i.free.level)
    gone = np.cumsum(steps(nest, i.free))
    start = _times(plan) if not i.shared else now
    read_at = start + LEAD + r.site.stage
    after = late(nest, i.shared, [x.site for x in i.reads])
    passed = np.concatenate([[0], gone])[np.searchsorted(ends + after, read_at, side="left")]
    lost = mask & (passed > word)
    yield Proof(name, "a word is kept until it is read", int(mask.sum()), not lost.any(), _first(plan, lost))


def _goes_on(plan: Plan, i: Input) -> Proof:
    """The words that a group needs fit beside those that are still read: waiting for them ends."""
    nest = plan.nest
    size = i.window * (nest.lanes if i.dealt else 1)
    before, _ = group_slots(nest, i.need.level)
    ends, many = freed(i, nest)
    runs = 3 + int(ends.max()) // nest.slots
    needed = np.cumsum(np.concatenate([steps(nest, i.need)] * runs))
    at = np.concatenate([before + n * nest.slots for n in range(runs)])
    gone = np.cumsum(np.concatenate([many] * runs))
    freed_at = np.concatenate([ends + n * nest.slots for n in range(runs)])
    left = needed - np.concatenate([[0], gone])[np.searchsorted(freed_at, at, side="left")]
    group = int(left.argmax())
    worst = int(left[group])
    whole = int(needed[-1]) == runs * i.words and int(gone[-1]) == runs * i.words
    first = _iteration(plan, group * (prod(nest.extents) // len(before)))
    text = f"{worst} words are needed at once for {first}, there is room for {size}"
    text = text if whole else "not every word is needed and freed once"
    return Proof(f"port {i.host.name}", "what is waited for has room", len(needed), whole and worst <= size, text)


def _port(plan: Plan, o: Output) -> Iterator[Proof]:
    """Every element leaves once, in the order of the port, and the queues of lanes are long enough."""
    nest = plan.nest
    name = f"port {o.host.name}"
    sent = int(o.when.sum())
    yield Proof(name, "every element leaves once", o.words, sent == o.words, f"{sent} instances send {o.words} elements")
    if len(o.lanes) == 1:
        return
    sending = np.flatnonzero(o.when.any(axis=-1).ravel())
    at = np.broadcast_to(nest.slot, nest.extents).ravel()[sending]
    turn = np.arange(len(at)) * nest.lanes + o.wait
    early = at[:, None] + 1 - (turn[:, None] + np.arange(nest.lanes))
    first = np.unravel_index(early.argmax(), early.shape)
    text = f"the turn of {_iteration(plan, sending[first[0]], int(first[1]))} comes {early.max()} slots early"
    yield Proof(name, "a word is there when its lane has its turn", early.size, bool(early.max() <= 0), text)
    runs = 3 + o.wait // nest.slots
    comes = np.concatenate([at + n * nest.slots for n in range(runs)])
    goes = np.concatenate([turn + n * nest.slots for n in range(runs)])
    waiting = {lane: np.arange(len(comes)) + 1 - np.searchsorted(goes + lane, comes) for lane in o.lanes}
    lane = max(waiting, key=lambda n: int(waiting[n].max()))
    kept = int(waiting[lane].max())
    who = _iteration(plan, sending[int(waiting[lane].argmax()) % len(sending)], lane)
    text = f"{kept} words wait when that of {who} comes, {o.depth} fit"
    yield Proof(name, "the queue of a lane holds what waits", len(comes), kept <= o.depth, text)
    yield Proof(name, "a run's turns end before the next run's begin", turns(o), turns(o) * nest.lanes <= nest.slots,
                f"{turns(o) * nest.lanes} slots of {nest.slots}")  # fmt: skip
