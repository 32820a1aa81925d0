"""Proofs about a plan, made of nothing but its schedule and its numbers: every value is there when it is read, no
memory is too small, nothing within a circuit waits for itself.

All instances of a run, and of as many runs as are under way at once, are looked at; whoever made the plan is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from upl_mlir.passes.circuit.channels.buffers import Buffer
from upl_mlir.passes.circuit.channels.feeds import Feed, Read, late_of
from upl_mlir.passes.circuit.channels.inner import TRAVELS, Stream
from upl_mlir.passes.circuit.channels.inputs import Input, freed, group_slots, steps
from upl_mlir.passes.circuit.channels.links import least, sources
from upl_mlir.passes.circuit.channels.orders import number
from upl_mlir.passes.circuit.channels.outputs import Output, leave, turns
from upl_mlir.passes.circuit.nest import Dim, Ints
from upl_mlir.passes.circuit.placed import LEAD
from upl_mlir.passes.circuit.plan import Part, Plan, at_sites
from upl_mlir.passes.circuit.share import Unit, units_of
from upl_mlir.passes.circuit.stages import Site, last_summand


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
    counts: dict[str, int] = {}
    for part, s in at_sites(plan):
        if s in part.links or s in part.buffers:
            n = counts[s.array] = counts.get(s.array, -1) + 1
            writer = next(p for p in plan.parts if p.process.name == s.array)
            if s in part.links:
                out += _link(part, writer, s, f"link {n} of {s.array}")
            else:
                out += _buffer(part, writer, s, part.buffers[s], f"buffer {n} of {s.array}")
    for x in plan.streams:
        out += _stream(plan, x)
    for i in plan.inputs:
        k = 0
        for f in i.feeds:
            for r in f.reads:
                out += _window(plan, i, f, r, f"read {k} of {i.name}")
                k += 1
        out.append(_goes_on(plan, i))
    for o in plan.outputs:
        out += _sent(plan.parts[o.part], o, f"port {o.name}")
    out += [_in_turn(plan, u) for u in units_of(plan.parts, plan.shared) if len(u.uses) > 1]
    return out


def _first(part: Part, wrong: np.ndarray) -> str:
    """The first instance at which something is wrong."""
    if not wrong.any():
        return ""
    return _named(part, tuple(np.argwhere(wrong)[0].tolist()))


def _named(part: Part, at: tuple[int, ...]) -> str:
    """An instance, given by its loops and its lane."""
    fields = [f"{n}={int(np.broadcast_to(g, part.nest.shape)[at])}" for n, g in part.nest.grid.items()]
    return f"{part.process.name}<{', '.join(fields)}>"


def _iteration(part: Part, number_: int, lane: int = 0) -> str:
    """The instance of a lane in an iteration of the nest, given by its number, counted over several runs."""
    nest = part.nest
    at = np.unravel_index(number_ % prod(nest.extents), nest.extents)
    return _named(part, (*map(int, at), lane))


def _link(part: Part, writer: Part, s: Site, name: str) -> Iterator[Proof]:
    """A value is read exactly as many slots after it was written as the link is long, and it is there by then."""
    assert s.written is not None
    nest = part.nest
    mask = part.mask(s.when)
    lane, then = writer.nest.place(sources(part.process, writer.process, s, dict(nest.grid)))
    apart = np.broadcast_to(nest.begins + s.stage - (then + s.written), nest.shape)
    lane = np.broadcast_to(lane, nest.shape)
    length = np.full(nest.shape, -1, dtype=np.int64)
    origin = np.full(nest.shape, -1, dtype=np.int64)
    for link in part.links[s]:
        for block, n in enumerate(link.lengths):
            at = (*[slice(None)] * nest.block, block, *[slice(None)] * (len(nest.order) - nest.block - 1), link.lane)
            length[at] = -1 if n is None else n
            origin[at] = link.source
    wrong = mask & ((length != apart) | (origin != lane))
    yield Proof(name, "is as long as the time between write and read", int(mask.sum()), not wrong.any(), _first(part, wrong))
    here = np.arange(nest.lanes)
    early = mask & (apart < np.vectorize(least)(np.broadcast_to(here, nest.shape), lane))
    yield Proof(name, "a value is there when it is read", int(mask.sum()), not early.any(), _first(part, early))


def _buffer(part: Part, writer: Part, s: Site, b: Buffer, name: str) -> Iterator[Proof]:
    """In its place a read finds the element that it wants: the last one that was written there, run upon run."""
    assert s.written is not None
    nest, mask = part.nest, part.mask(s.when)
    read = sources(part.process, writer.process, s, dict(nest.grid))
    lane = np.broadcast_to(writer.nest.place(read)[0], nest.shape)
    wrong = mask & (lane != np.arange(nest.lanes))
    yield Proof(name, "a lane reads what it wrote", int(mask.sum()), not wrong.any(), _first(part, wrong))
    box = writer.process.array
    wanted = np.broadcast_to(_element(box, read), nest.shape)
    made = np.broadcast_to(_element(box, writer.nest.grid), writer.nest.shape)
    done = writer.mask(writer.process.domain & last_summand(writer.process))
    written, asked = writer.nest.begins + s.written, nest.begins + s.stage - 2  # it is addressed two slots before
    spans = int(asked[mask].max(initial=0) - written[done].min(initial=0)) // nest.slots + 2
    size = prod(d.extent for d in box)
    lost, most = np.zeros(nest.shape, dtype=bool), (0, 0)
    for n in range(nest.lanes):
        w, r = done[..., n] if n < writer.nest.lanes else np.zeros(0, bool), mask[..., n]
        if not r.any():
            continue
        puts = [(written[..., n][w] + k * nest.slots, (b.write.along(writer.nest)[..., n][w] + k * b.words) % b.places,
                 made[..., n][w] + k * size) for k in range(spans + 1)]  # fmt: skip
        time, place, what = (np.concatenate([p[m] for p in puts]) for m in range(3))
        order = np.lexsort((time, place))
        scale = int(time.max()) + int(asked.max()) + (spans + 2) * nest.slots
        keys = (place * scale + time)[order]
        gets = asked[..., n][r] + spans * nest.slots
        at = (b.read.along(nest)[..., n][r] + spans * b.words) % b.places
        last = np.searchsorted(keys, at * scale + gets) - 1  # written in a slot before
        same = np.searchsorted(keys, at * scale + gets, side="right") - 1 == last  # and nothing is written in that slot
        found = (last >= 0) & (what[order][last] == wanted[..., n][r] + spans * size) & same
        lost[..., n][r] = ~found
        most = max(most, _waiting(time, what, gets + 2, wanted[..., n][r], spans, size, nest.slots))
    yield Proof(name, "the place has the element that is read", int(mask.sum()), not lost.any(), _first(part, lost))
    last_in = np.unravel_index(most[1], [d.extent for d in box])
    fields = ", ".join(f"{d.name}={d.low + int(n)}" for d, n in zip(box, last_in, strict=True))
    text = f"{most[0]} words wait at once when {writer.process.name}<{fields}> is written"
    holds = most[0] == b.depth <= b.places
    yield Proof(name, f"{b.depth} words wait at once at most, and fit", int(mask.sum()), holds, text)


def _waiting(time: Ints, what: Ints, gets: Ints, wanted: Ints, spans: int, size: int, slots: int) -> tuple[int, int]:
    """How many elements wait at once for their last read, those just written and just read included, when runs follow each
    other; and which one is written then."""
    last = np.full(size, -1, dtype=np.int64)
    np.maximum.at(last, wanted, gets - spans * slots)
    run, element = what // size, what % size
    read = last[element] >= 0
    order = np.argsort(time[read], kind="stable")
    begin = time[read][order]
    end = np.sort((last[element] + run * slots)[read])
    left = np.arange(len(begin)) + 1 - np.searchsorted(end, begin)
    if not len(left):
        return 0, 0
    at = int(left.argmax())
    return int(left[at]), int(element[read][order][at])


def _element(box: tuple[Dim, ...], values: Mapping[str, Any]) -> Ints:
    """The number of an element in its box."""
    total: Ints = np.zeros((1,), dtype=np.int64)
    for d in box:
        total = total * d.extent + (np.asarray(values[d.name]) - d.low)
    return total


def _in_turn(plan: Plan, u: Unit) -> Proof:
    """In each slot of each lane a unit has one operation at most, run upon run."""
    cases, clash = 0, ""
    for lane in range(plan.lanes):
        taken: dict[int, str] = {}
        for use in u.uses:
            part = plan.parts[use.part]
            if lane >= part.nest.lanes:
                continue
            slots = (part.nest.begins[..., lane].ravel() + part.at.start[use.node]) % plan.slots
            cases += len(slots)
            both = [int(s) for s in np.flatnonzero(np.bincount(slots) > 1)] or [int(s) for s in slots if int(s) in taken]
            if both and not clash:
                other = taken.get(both[0], part.process.name)
                clash = f"lane {lane} has one of {other} and one of {part.process.name} in slot {both[0]}"
            taken |= dict.fromkeys(map(int, slots), part.process.name)
    return Proof(f"unit {u.name}", "has one operation at a time", cases, not clash, clash)


def _stream(plan: Plan, x: Stream) -> Iterator[Proof]:
    """Every element is sent; a word has come when it is read, and is there until then."""
    writer, reader = plan.parts[x.sent.part], plan.parts[x.feed.part]
    name = f"stream {x.sent.name} to {reader.process.name}"
    yield from _sent(writer, x.sent, name)
    nest, lanes = reader.nest, reader.nest.lanes
    leaves = leave(x.sent, writer)
    comes = leaves + writer.nest.lanes + TRAVELS
    own = np.broadcast_to(nest.slot[..., None], nest.shape)
    after = late_of(reader, x.feed)
    step = x.window * (lanes if x.feed.dealt else 1)  # so many words later a word takes the place
    runs = 2 + step // len(comes)
    taken = np.concatenate([leaves + n * nest.slots for n in range(runs)])[step : step + len(comes)]
    for k, r in enumerate(x.feed.reads):
        mask = reader.mask(r.site.when)
        exprs = reader.process.sizes.given(nest.grid)
        values = {d.name: exprs.expr(e) for d, e in zip(x.sent.dims, r.site.index, strict=True)}
        word = np.broadcast_to(number(x.sent.dims, x.sent.order, x.sent.by, values), nest.shape)
        made = r.at.along(nest)
        wrong = mask & (made * lanes + np.arange(lanes) != word if x.feed.dealt else made != word)
        cases = int(mask.sum())
        yield Proof(name, f"read {k}: the address is that of the element", cases, not wrong.any(), _first(reader, wrong))
        early = mask & (comes[np.where(mask, word, 0)] > own)
        yield Proof(name, f"read {k}: a word has come when it is read", cases, not early.any(), _first(reader, early))
        lost = mask & (own + after >= taken[np.where(mask, word, 0)])
        yield Proof(name, f"read {k}: a word is kept until it is read", cases, not lost.any(), _first(reader, lost))


def _window(plan: Plan, i: Input, f: Feed, r: Read, name: str) -> Iterator[Proof]:
    """Each read finds its word, which came in time and has not made room for another one."""
    part = plan.parts[f.part]
    nest = part.nest
    mask = part.mask(r.site.when)
    exprs = part.process.sizes.given(nest.grid)
    values = {d.name: exprs.expr(e) for d, e in zip(i.dims, r.site.index, strict=True)}
    word = np.broadcast_to(number(i.dims, i.order, i.lanes, values), nest.shape)
    made = r.at.along(nest)
    wrong = mask & (made != (word // nest.lanes if f.dealt else word))
    if f.dealt:
        wrong |= mask & (word % nest.lanes != np.arange(nest.lanes))
    yield Proof(name, "the address is that of the element", int(mask.sum()), not wrong.any(), _first(part, wrong))
    by = plan.parts[i.by].nest
    before, _ = group_slots(by, i.need.level)
    came = np.cumsum(steps(by, i.need))
    now = np.broadcast_to(nest.slot[..., None], nest.shape)  # the lane's own slot: what is needed later is there by then
    there = np.concatenate([[0], came])[np.searchsorted(before, now - 1, side="right")]
    missing = mask & (there <= word)
    yield Proof(name, "a word has come when it is read", int(mask.sum()), not missing.any(), _first(part, missing))
    if i.held:
        return  # a word is replaced by the one that the next group reads, and that is shown above
    until = plan.parts[i.until].nest
    _, ends = group_slots(until, i.free.level)
    gone = np.cumsum(steps(until, i.free))
    start = nest.begins if not f.shared else now
    read_at = start + LEAD + r.site.stage
    passed = np.concatenate([[0], gone])[np.searchsorted(ends + i.after, read_at, side="left")]
    lost = mask & (passed > word)
    yield Proof(name, "a word is kept until it is read", int(mask.sum()), not lost.any(), _first(part, lost))


def _goes_on(plan: Plan, i: Input) -> Proof:
    """The words that a group needs fit beside those that are still read: waiting for them ends."""
    part = plan.parts[i.by]
    nest = part.nest
    before, _ = group_slots(nest, i.need.level)
    ends, many = freed(i, plan.parts[i.until].nest)
    runs = 3 + int(ends.max() - nest.start) // nest.slots
    needed = np.cumsum(np.concatenate([steps(nest, i.need)] * runs))
    at = np.concatenate([before + n * nest.slots for n in range(runs)])
    gone = np.cumsum(np.concatenate([many] * runs))
    freed_at = np.concatenate([ends + n * nest.slots for n in range(runs)])
    left = needed - np.concatenate([[0], gone])[np.searchsorted(freed_at, at, side="left")]
    group = int(left.argmax())
    worst = int(left[group])
    whole = int(needed[-1]) == runs * i.words and int(gone[-1]) == runs * i.words
    first = _iteration(part, group * (prod(nest.extents) // len(before)))
    text = f"{worst} words are needed at once for {first}, there is room for {i.size}"
    text = text if whole else "not every word is needed and freed once"
    return Proof(f"port {i.name}", "what is waited for has room", len(needed), whole and worst <= i.size, text)


def _sent(part: Part, o: Output, name: str) -> Iterator[Proof]:
    """Every element leaves once, in the order of the stream, and the queues of lanes are long enough."""
    nest = part.nest
    sent = int(o.when.sum())
    yield Proof(name, "every element leaves once", o.words, sent == o.words, f"{sent} instances send {o.words} elements")
    if len(o.lanes) == 1:
        return
    sending = np.flatnonzero(o.when.any(axis=-1).ravel())
    at = np.broadcast_to(nest.slot - nest.start, nest.extents).ravel()[sending]
    turn = np.arange(len(at)) * o.pace + o.wait
    early = at[:, None] + 1 - (turn[:, None] + np.arange(nest.lanes))
    first = np.unravel_index(early.argmax(), early.shape)
    text = f"the turn of {_iteration(part, sending[first[0]], int(first[1]))} comes {early.max()} slots early"
    yield Proof(name, "a word is there when its lane has its turn", early.size, bool(early.max() <= 0), text)
    runs = 3 + o.wait // nest.slots
    comes = np.concatenate([at + n * nest.slots for n in range(runs)])
    goes = np.concatenate([turn + n * nest.slots for n in range(runs)])
    side = "right" if o.depth == 1 else "left"  # the next word may come to a register in the slot in which it is read
    waiting = {lane: np.arange(len(comes)) + 1 - np.searchsorted(goes + lane, comes, side) for lane in o.lanes}
    lane = max(waiting, key=lambda n: int(waiting[n].max()))
    kept = int(waiting[lane].max())
    who = _iteration(part, sending[int(waiting[lane].argmax()) % len(sending)], lane)
    text = f"{kept} words wait when that of {who} comes, {o.depth} fit"
    yield Proof(name, "the queue of a lane holds what waits", len(comes), kept <= o.depth, text)
    yield Proof(name, "a run's turns end before the next run's begin", turns(o), turns(o) * o.pace <= nest.slots,
                f"{turns(o) * o.pace} slots of {nest.slots}")  # fmt: skip
