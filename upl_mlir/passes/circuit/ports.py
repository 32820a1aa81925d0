"""Ports: in which order the elements of an array pass, how many are kept at once, and when a word must be there.

A word of an input is needed from some slot on and dead after another one.  The words of a port are needed group by group: a
*group* is an iteration of one of the loops.  Before a group starts, so many more words must have come (`need`), and after it
so many of the oldest are not read any more (`free`); both are runs of equal numbers, which a counter can follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from math import prod
from typing import Any

import numpy as np

from upl_mlir.diagnostics import error
from upl_mlir.passes.circuit.nest import Bools, Dim, Ints, Nest
from upl_mlir.passes.circuit.process import OTHER_ENGINES, Process, Shown, formula
from upl_mlir.passes.circuit.stages import Site, Stages
from upl_mlir.passes.loops.program import Host
from upl_mlir.poly.counts.dense import bounding_box, mask
from upl_mlir.poly.expr import Formula

LEAD = 3
"""Slots from an instance's own slot, in which the counters have its index, to its stage 0: two registers for conditions."""
HELD = 3
"""Words that wait in registers of a lane beside the one that is read."""
SPARE = 9
"""Places that are not free at once again: the clocks from a slot that frees one to the word that takes it."""
MOST_RUNS = 4
"""Runs of equal numbers of words that the counters of a port follow."""


@dataclass(frozen=True)
class Axis:
    """A loop of a stream: a field, or where `part` is "block" or "lane" its quotient or remainder by the number of lanes."""

    field: str
    part: str = ""

    def __str__(self) -> str:
        return f"{self.field}{'' if not self.part else f' {self.part}'}"


Order = tuple[Axis, ...]


@dataclass(frozen=True)
class Runs:
    """Numbers of words by group of loop number `level` (0: a run is one group): so many groups, so many words each."""

    level: int
    runs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Read:
    """A site of an input: the word is ``first + sum(steps * loops) + lane_step * lane``, by loop of the nest, where it
    matters."""

    site: Site
    lanes: tuple[int, ...]
    first: int
    steps: tuple[int, ...]
    lane_step: int


@dataclass(frozen=True, eq=False)
class Input:
    """An input port.

    `shared`: at each iteration all lanes read the same word, which goes from lane to lane; else each lane has a window of
    its own, with all words or, if they are `dealt`, each lane with its turn of them.  `window` words are kept.
    `held`: each lane reads its words one after the other, so that `window` registers before the one that is read suffice.
    """

    host: Host
    order: Order
    extents: tuple[int, ...]
    shared: bool
    dealt: bool
    held: bool
    window: int
    need: Runs
    free: Runs
    reads: tuple[Read, ...]

    @property
    def words(self) -> int:
        """The number of words of a run."""
        return prod(self.extents)


@dataclass(frozen=True, eq=False)
class Output:
    """An output port: its words come from the `lanes` at the instances `when` (an array over the nest).

    With several lanes each keeps up to `depth` words, and after `wait` slots they take turns, a word a slot.
    """

    host: Host
    order: Order
    words: int
    lanes: tuple[int, ...]
    when: Bools
    wait: int
    depth: int


def elements(p: Process, h: Host) -> tuple[Dim, ...]:
    """The box of the elements of a port.  Raises UplError UPL2003 if they are no box."""
    ctx = p.sizes.ctx
    whole = Formula.any(formula(c) for c in h.cases)
    box = bounding_box(ctx, h.fields, whole)
    if not mask(ctx, h.fields, whole, box).all():
        raise error("UPL2003", f"the elements of `{h.name}` are no box: its stream has no order yet", help=OTHER_ENGINES)
    return tuple(map(Dim, h.fields, box.lower, box.shape))


def orders(dims: Sequence[Dim], nest: Nest) -> Iterator[Order]:
    """Orders of a stream: of the fields, and with a field dealt to the lanes in turn."""
    names = [d.name for d in dims]
    for order in permutations(names):
        yield tuple(map(Axis, order))
    for d in dims:
        if nest.lanes > 1 and d.extent % nest.lanes == 0 and d.extent > nest.lanes:
            for order in permutations(names):
                yield (*(Axis(n, "block" if n == d.name else "") for n in order), Axis(d.name, "lane"))


def extents(dims: Sequence[Dim], order: Order, lanes: int) -> tuple[int, ...]:
    """How many values each loop of a stream has."""
    by_name = {d.name: d.extent for d in dims}
    return tuple(lanes if a.part == "lane" else by_name[a.field] // (lanes if a.part else 1) for a in order)


def number(dims: Sequence[Dim], order: Order, lanes: int, values: dict[str, Any]) -> Any:
    """The number of an element in its stream."""
    low = {d.name: d.low for d in dims}
    total: Any = 0
    for a, n in zip(order, extents(dims, order, lanes), strict=True):
        x = values[a.field] - low[a.field]
        total = total * n + (x if not a.part else x // lanes if a.part == "block" else x % lanes)
    return total


# -- inputs -----------------------------------------------------------------------------------------------------------
def inputs(p: Process, nest: Nest, sites: Sequence[Site], at: Stages, fixed: dict[str, Order]) -> list[Input]:
    """The input ports of a schedule, each in the best order, or in the one that is `fixed`.  Raises UplError UPL2003."""
    out: list[Input] = []
    for h in p.inputs.values():
        reads = [s for s in sites if s.array == h.name]
        dims = elements(p, h)
        found: list[tuple[int, Input]] = []
        for order in [fixed[h.name]] if h.name in fixed else orders(dims, nest):
            found += _inputs(p, nest, h, dims, order, reads, at)
        if not found:
            raise error("UPL2003", f"no order of the elements of `{h.name}` suits the schedule", help=OTHER_ENGINES)
        out.append(min(found, key=lambda f: f[0])[1])
    return out


@dataclass(eq=False)
class _Wanted:
    """Of one stream, by iteration of the nest: the last word read, -1 if none, and the first one, a large number if none."""

    last: Ints
    first: Ints


def _inputs(
    p: Process, nest: Nest, h: Host, dims: tuple[Dim, ...], order: Order, sites: Sequence[Site], at: Stages
) -> Iterator[tuple[int, Input]]:
    total = prod(d.extent for d in dims)
    words: list[tuple[Site, Ints, Bools]] = []
    for s in sites:
        exprs = p.sizes.given(nest.grid)
        values = {f: exprs.expr(e) for f, e in zip(h.fields, s.index, strict=True)}
        words.append((s, nest.everywhere(number(dims, order, nest.lanes, values)), nest.mask(s.when, p.sizes)))
    shared = all(_same(w, m) for _, w, m in words)
    dealt = not shared and nest.lanes > 1 and total % nest.lanes == 0 and all(_turns(w, m, nest.lanes) for _, w, m in words)
    reads: list[Read] = []
    for s, w, m in words:
        by = w // nest.lanes if dealt else w
        affine = _affine(by, m)
        if affine is None:
            return
        lanes = tuple(n for n in range(nest.lanes) if m[..., n].any())
        reads.append(Read(s, lanes, affine[0], affine[1][:-1], affine[1][-1]))
    wanted = _wanted([(w, m) for _, w, m in words], nest, total)
    after = late(nest, shared, sites)
    for need in _needs(wanted, nest, total):
        for free in _frees(wanted, nest, total):
            gone = group_slots(nest, free.level)[1] + after, steps(nest, free)
            fill, window = _window(nest, total, need, *gone)
            each = -(-window // nest.lanes) if dealt else window
            ext = extents(dims, order, nest.lanes)
            made = Input(h, order, ext, shared, dealt, False, 1 << max(1, each - 1).bit_length(), need, free, tuple(reads))
            held = replace(made, held=True, window=HELD)
            if dealt and len(reads) == 1 and _one_by_one(held, nest):
                _, waiting = _window(nest, total, need, *freed(held, nest))
                made = held if waiting <= HELD * nest.lanes else made
            yield fill + window, made


def places(r: Read, nest: Nest) -> Ints:
    """The number of the word that the first lane reads at each iteration, in their order."""
    at = np.full(nest.extents, r.first, dtype=np.int64)
    for axis, (k, n) in enumerate(zip(r.steps, nest.extents, strict=True)):
        at = at + k * np.arange(n, dtype=np.int64).reshape([-1 if a == axis else 1 for a in range(at.ndim)])
    return at.ravel()


def _one_by_one(i: Input, nest: Nest) -> bool:
    """Whether each group needs a word more in each lane, which its iterations read, and no other one."""
    (r,) = i.reads
    groups = i.words // nest.lanes
    at = places(r, nest)
    same = groups <= len(at) and len(at) % groups == 0 and i.need.runs == ((groups, nest.lanes),)
    return same and r.lane_step == 0 and bool((at == np.repeat(np.arange(groups), len(at) // groups)).all())


def freed(i: Input, nest: Nest) -> tuple[Ints, Ints]:
    """By group, the slot in which places become free, and how many: after it, or when it begins if its words are held."""
    after = late(nest, i.shared, [r.site for r in i.reads])
    if i.held:
        return group_slots(nest, i.need.level)[0] + after, steps(nest, i.need)
    return group_slots(nest, i.free.level)[1] + after, steps(nest, i.free)


def late(nest: Nest, shared: bool, sites: Sequence[Site]) -> int:
    """Slots after which what a group has read is free: until its last lane has read it at its last stage."""
    return LEAD + max((s.stage for s in sites), default=0) + (0 if shared else nest.skew * (nest.lanes - 1)) + 2


def _same(w: Ints, m: Bools) -> bool:
    """Whether all lanes that read at an iteration read the same word."""
    low = np.where(m, w, np.iinfo(np.int64).max).min(axis=-1)
    high = np.where(m, w, -1).max(axis=-1)
    return bool((~m.any(axis=-1) | (low == high)).all())


def _turns(w: Ints, m: Bools, lanes: int) -> bool:
    return bool((~m | (w % lanes == np.arange(lanes))).all())


def _affine(w: Ints, m: Bools) -> tuple[int, tuple[int, ...]] | None:
    """Coefficients by axis of an affine array; None if it is none where it matters."""
    if not m.any():
        return 0, (0,) * w.ndim
    steps: list[int] = []
    for axis, n in enumerate(w.shape):
        d = np.diff(w, axis=axis)
        both = np.logical_and(m.take(range(n - 1), axis), m.take(range(1, n), axis)) if n > 1 else np.zeros(0, dtype=bool)
        found = np.unique(d[both]) if both.any() else np.zeros(1, dtype=np.int64)
        if len(found) > 1:
            return None
        steps.append(int(found[0]))
    rest: Ints = w
    for axis, (k, n) in enumerate(zip(steps, w.shape, strict=True)):
        shape = [-1 if a == axis else 1 for a in range(w.ndim)]
        rest = np.subtract(rest, k * np.arange(n, dtype=np.int64).reshape(shape))
    rest = np.unique(rest[m])
    return (int(rest[0]), tuple(steps)) if len(rest) == 1 else None


def _wanted(words: Sequence[tuple[Ints, Bools]], nest: Nest, total: int) -> _Wanted:
    last = np.full(prod(nest.extents), -1, dtype=np.int64)
    first = np.full(prod(nest.extents), total, dtype=np.int64)
    for w, m in words:
        last = np.maximum(last, np.where(m, w, -1).max(axis=-1).ravel())
        first = np.minimum(first, np.where(m, w, total).min(axis=-1).ravel())
    needed = np.maximum.accumulate(last) + 1
    before = np.append(0, needed[:-1])  # a word that nobody reads is not free before it was waited for
    return _Wanted(needed, np.minimum(np.minimum.accumulate(first[::-1])[::-1], before))


def _runs(level: int, numbers: Ints) -> Runs | None:
    changes = np.flatnonzero(np.diff(numbers)) + 1
    if len(changes) >= MOST_RUNS:
        return None
    edges = [0, *changes.tolist(), len(numbers)]
    return Runs(level, tuple((b - a, int(numbers[a])) for a, b in pairwise(edges)))


def _needs(wanted: _Wanted, nest: Nest, total: int) -> Iterator[Runs]:
    """By group, how many more words are needed at its start: exactly for some loop, or a word an iteration."""
    for level in range(len(nest.extents) + 1):
        groups = prod(nest.extents[:level])
        upto = wanted.last.reshape(groups, -1)[:, -1].copy()
        upto[-1] = total  # what nobody reads goes through as well
        made = _runs(level, np.diff(upto, prepend=0))
        if made is not None:
            yield made
    n = np.arange(len(wanted.last))
    offset = int((wanted.last - n).max())
    upto = np.minimum(total, np.maximum(offset + n, 0))
    if upto[-1] == total and (made := _runs(len(nest.extents), np.diff(upto, prepend=0))) is not None:
        yield made


def _frees(wanted: _Wanted, nest: Nest, total: int) -> Iterator[Runs]:
    """By group, how many of the oldest words are dead after it."""
    for level in range(len(nest.extents) + 1):
        groups = prod(nest.extents[:level])
        oldest = np.append(wanted.first.reshape(groups, -1)[1:, 0], total)
        made = _runs(level, np.diff(oldest, prepend=0))
        if made is not None:
            yield made
    after = np.append(wanted.first[1:], total)
    n = np.arange(1, len(after) + 1)
    lag = int((n - after).max())
    oldest = np.clip(n - lag, 0, total)
    oldest[-1] = total
    if (made := _runs(len(nest.extents), np.diff(oldest, prepend=0))) is not None:
        yield made


def group_slots(nest: Nest, level: int) -> tuple[Ints, Ints]:
    """The slot before each group of a loop starts, and that in which it ends, those that are waited included."""
    slot = np.broadcast_to(nest.slot, nest.extents).reshape(prod(nest.extents[:level]), -1)
    before = slot[:, 0] - 1
    return before, np.append(before[1:], nest.slots - 1)


def steps(nest: Nest, runs: Runs) -> Ints:
    """The number of words of each group."""
    return np.repeat([w for _, w in runs.runs], [n for n, _ in runs.runs])


def deadlines(nest: Nest, need: Runs) -> Ints:
    """The slot in which each word must have come: the one before its group, as the next iteration is prepared there."""
    return np.repeat(group_slots(nest, need.level)[0], steps(nest, need))


def _window(nest: Nest, total: int, need: Runs, when: Ints, many: Ints) -> tuple[int, int]:
    """How many slots the words of the first group are waited for, and how many words are kept at once, run upon run.

    Words come as late as they may; one that comes earlier waits until there is room.  In the slots `when` so `many` places
    become free.
    """
    due = deadlines(nest, need)
    slots = nest.slots
    runs = 3 + int(when.max() - nest.slots) // slots + 1  # so many are under way at once, and one before and behind them
    all_due = np.concatenate([due + n * slots for n in range(runs)])
    n = np.arange(len(all_due))
    comes = np.minimum.accumulate((all_due - n)[::-1])[::-1] + n
    gone = np.repeat(when, many)
    all_gone = np.sort(np.concatenate([gone + k * slots for k in range(runs)]))
    kept = n + 1 - np.searchsorted(all_gone, comes)
    return max(0, int((np.arange(total) + 1 - due).max())), int(kept.max()) + SPARE


# -- outputs ----------------------------------------------------------------------------------------------------------
def outputs(p: Process, nest: Nest, at: Stages, fixed: dict[str, Order]) -> list[Output]:
    """The output ports of a schedule.  Raises UplError UPL2003."""
    return [_output(p, nest, h, shown, fixed.get(h.name)) for h, shown in p.outputs.values()]


def _output(p: Process, nest: Nest, h: Host, shown: Sequence[Shown], fixed: Order | None) -> Output:
    dims = elements(p, h)
    grid = np.indices([d.extent for d in dims], dtype=np.int64)
    values = {d.name: g + d.low for d, g in zip(dims, grid, strict=True)}
    exprs = p.sizes.given(values)
    read: dict[str, Ints] = {}
    for each in shown:
        here = exprs.formula(each.when)
        for f, e in zip(p.fields, each.index, strict=True):
            read[f] = np.where(here, exprs.expr(e), read.get(f, 0))
    shape = grid.shape[1:]
    read |= {d.name: np.full(shape, d.low + d.extent - 1, np.int64) for d in p.dims if d.name in p.sums}
    lane, slot = (np.broadcast_to(x, shape) for x in nest.place(read))
    when = _marked(nest, {n: np.broadcast_to(x, shape) for n, x in read.items()})
    lanes = tuple(np.unique(lane).tolist())
    total = prod(shape)
    for order in [fixed] if fixed is not None else orders(dims, nest):
        rank = np.broadcast_to(number(dims, order, nest.lanes, values), shape).ravel()
        by_rank = np.argsort(rank)
        time, who = slot.ravel()[by_rank], lane.ravel()[by_rank]
        if len(lanes) == 1:
            if (np.diff(time) > 0).all():
                return Output(h, order, total, lanes, when, 0, 0)
            continue
        turn = _turn(time, who, nest.lanes) if nest.skew == 0 else None
        if turn is not None:
            wait, depth = _taking_turns(nest, time, who, turn)
            return Output(h, order, total, lanes, when, wait, depth)
    raise error("UPL2003", f"no order of the elements of `{h.name}` suits the schedule", help=OTHER_ENGINES)


def _marked(nest: Nest, read: dict[str, Ints]) -> Bools:
    """The instances with these values of fields, as an array over the nest."""
    out = np.zeros(nest.shape, dtype=bool)
    index: list[Ints] = []
    lane: Ints | None = None
    low = {d.name: d.low for d in nest.dims}
    for f in nest.order:
        x = read[f] - low[f]
        if f == nest.along:
            lane, x = x % nest.lanes, x // nest.lanes
        index.append(x)
    assert lane is not None
    out[(*index, lane)] = True
    return out


def _turn(time: Ints, who: Ints, lanes: int) -> Ints | None:
    """The turn of each word, if every lane sends at most one word a turn, lane after lane, and none goes back in time."""
    starts = np.concatenate([[True], np.diff(who) <= 0])
    turn = np.cumsum(starts) - 1
    first = np.minimum.reduceat(time, np.flatnonzero(starts))
    same = (time == first[turn]).all()
    return turn if same and (np.diff(first) > 0).all() else None


def _taking_turns(nest: Nest, time: Ints, who: Ints, turn: Ints) -> tuple[int, int]:
    """From which slot on the lanes take turns, and how many words wait in a lane, run upon run.

    A lane that has no word for a turn keeps a gap for it.
    """
    sent = turn * nest.lanes + who
    wait = int((time - sent).max()) + 1
    comes = time[np.flatnonzero(np.diff(turn, prepend=-1))]
    slots = max(nest.slots, len(comes) * nest.lanes)  # as `padded` has it
    runs = 3 + wait // slots
    goes = np.arange(len(comes)) * nest.lanes + wait + nest.lanes - 1  # of the last lane, whose words wait longest
    all_comes = np.concatenate([comes + k * slots for k in range(runs)])
    all_goes = np.concatenate([goes + k * slots for k in range(runs)])
    kept = np.arange(len(all_comes)) + 1 - np.searchsorted(all_goes, all_comes)
    return wait, int(kept.max())


def padded(p: Process, nest: Nest, outs: Sequence[Output]) -> Nest:
    """The schedule with as many slots a run as its ports have words."""
    words = [prod(d.extent for d in elements(p, h)) for h in p.inputs.values()]
    words += [o.words if len(o.lanes) == 1 else turns(o) * nest.lanes for o in outs]
    return replace(nest, slots=max(nest.slots, *words))


def turns(o: Output) -> int:
    """How often the lanes take turns in a run."""
    return int(o.when.any(axis=-1).sum())
