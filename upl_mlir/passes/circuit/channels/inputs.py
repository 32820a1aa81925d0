"""Input ports: in which order the elements of an array come, how many are kept at once, and when a word must be there.

A word is needed from some slot on and dead after another one.  The words of a port are needed group by group: a *group* is
an iteration of one of the loops.  Before a group starts, so many more words must have come (`need`), and after it so many of
the oldest are not read any more (`free`); both are runs of equal numbers, which a counter can follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import numpy as np

from upl_mlir.diagnostics import error
from upl_mlir.passes.circuit.channels.feeds import Feed, Read, Words, feed, late_of, words_of
from upl_mlir.passes.circuit.channels.orders import Order, elements, orders
from upl_mlir.passes.circuit.nest import Dim, Ints, Nest
from upl_mlir.passes.circuit.placed import Placed, of_array
from upl_mlir.passes.circuit.process import OTHER_ENGINES, Network
from upl_mlir.passes.loops.program import Host

HELD = 3
"""Words that wait in registers of a lane beside the one that is read."""
SPARE = 11
"""Places that are not free at once again: the clocks from a slot that frees one to the word that takes it."""
MOST_RUNS = 4
"""Runs of equal numbers of words that the counters of a port follow."""


@dataclass(frozen=True)
class Runs:
    """Numbers of words by group of loop number `level` (0: a run is one group): so many groups, so many words each."""

    level: int
    runs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Input:
    """An input port; the axes of its `order` divide fields by `lanes`.

    `need` goes by the loops of process number `by`, which reads first, and `free` by those of process number `until`; places
    become free `after` slots behind the end of a group.
    `window` words are kept, by each lane if there are lanes to which they are dealt; whoever reads all words keeps as many
    as all lanes together.
    `held`: each lane reads its words one after the other, so that `window` registers before the one that is read suffice.
    """

    name: str
    dims: tuple[Dim, ...]
    order: Order
    lanes: int
    held: bool
    window: int
    by: int
    until: int
    need: Runs
    free: Runs
    after: int
    feeds: tuple[Feed, ...]

    @property
    def words(self) -> int:
        """The number of words of a run."""
        return prod(d.extent for d in self.dims)

    @property
    def size(self) -> int:
        """How many words are kept at once, by all lanes if each has its turn of them."""
        return self.window * (self.lanes if any(f.dealt for f in self.feeds) else 1)

    def places(self, f: Feed) -> int:
        """The places of a window of a feed: a power of two; each lane has so many if they are dealt."""
        return self.window if f.dealt or self.size == self.window else 1 << (self.size - 1).bit_length()


def inputs(net: Network, parts: Sequence[Placed], fixed: Mapping[str, Order]) -> list[Input]:
    """The input ports of placed processes, each in the best order, or in that which is `fixed`.  Raises UplError UPL2003."""
    out: list[Input] = []
    for h in net.inputs.values():
        best = _best(net, h, parts, fixed, False)
        if best is None:
            raise error("UPL2003", f"no order of the elements of `{h.name}` suits the schedule", help=OTHER_ENGINES)
        out.append(best)
    first = awaited(out, parts)
    if first and not any(i.need.runs[0][1] for i in first):
        # A run that needed no word to begin would begin without one, and stand still while the run before is under way.
        early = [(i, _best(net, net.inputs[i.name], parts, fixed, True)) for i in first]
        if all(made is None for _, made in early):
            raise error("UPL2003", "no input has words that a run can wait for before it begins", help=OTHER_ENGINES)
        old, new = next((i, made) for i, made in early if made is not None)
        out[out.index(old)] = new
    return out


def awaited(found: Sequence[Input], parts: Sequence[Placed]) -> list[Input]:
    """The inputs whose first words a run waits for before it begins: those of processes that start with the circuit; if
    there are none, that of the process that starts first."""
    starts = [parts[i.by].nest.start for i in found]
    first = min(starts, default=0)
    return [i for i, start in zip(found, starts, strict=True) if start == first][: None if not first else 1]


def _best(net: Network, h: Host, parts: Sequence[Placed], fixed: Mapping[str, Order], early: bool) -> Input | None:
    """A port in its best order, or in that which is `fixed`; None if there is none.  `early`: the first words that are
    needed at all are needed when the run begins."""
    dims = elements(net.sizes, h)
    readers = [n for n, p in enumerate(parts) if of_array(p.sites, h.name)] or [0]
    lanes = max(parts[n].nest.lanes for n in readers)
    found: list[tuple[tuple[int, int], Input]] = []
    for order in [fixed[h.name]] if h.name in fixed else orders(dims, lanes):
        found += _inputs(h.name, dims, order, lanes, parts, readers, early)
    return min(found, key=lambda f: f[0])[1] if found else None


def _inputs(
    name: str, dims: tuple[Dim, ...], order: Order, lanes: int, parts: Sequence[Placed], readers: Sequence[int], early: bool
) -> Iterator[tuple[tuple[int, int], Input]]:
    """The port in this order, each with what it costs: slots of waiting and words that are kept at once; of equal ones, the
    places of all windows."""
    total = prod(d.extent for d in dims)
    words = {n: words_of(parts[n], dims, order, lanes, of_array(parts[n].sites, name)) for n in readers}
    feeds: list[Feed] = []
    for n in readers:
        made = feed(n, parts[n], words[n], total, parts[n].nest.lanes == lanes)
        if made is None:
            return
        feeds.append(made)
    first = min(feeds, key=lambda f: parts[f.part].nest.start)
    nest = parts[first.part].nest
    wanted = _wanted([(parts[f.part].nest, words[f.part], 0) for f in feeds], total)
    frees = [w for f in _last(feeds, parts, first) for w in _freed(f, feeds, words, parts, total)]
    for need in map(_early, _needs(wanted, nest)) if early else _needs(wanted, nest):
        if need is None:
            continue
        for until, free, after in frees:
            ends = group_slots(parts[until].nest, free.level)[1]
            fill, window = _window(nest, total, need, ends + after, steps(parts[until].nest, free))
            each = -(-window // lanes) if any(f.dealt for f in feeds) else window
            room = 1 << max(1, each - 1).bit_length()
            port = Input(name, dims, order, lanes, False, room, first.part, until, need, free, after, tuple(feeds))
            held = replace(port, held=True, window=HELD, until=first.part)
            if first.dealt and len(feeds) == len(first.reads) == 1 and _one_by_one(held, first.reads[0], nest):
                _, waiting = _window(nest, total, need, *freed(held, nest))
                port = held if waiting <= HELD * nest.lanes else port
            # In a circuit of several processes block RAM is scarce: a place in it counts as much as a few slots of waiting.
            kept = sum(port.places(f) * (1 if f.shared else parts[f.part].nest.lanes) for f in feeds)
            yield (fill + window + (kept // 4 if len(parts) > 1 else 0), kept), port


def _last(feeds: Sequence[Feed], parts: Sequence[Placed], first: Feed) -> Iterator[Feed]:
    """The feeds whose loops may say when words are dead: the first one, and that of the process that starts last."""
    yield first
    last = max(feeds, key=lambda f: parts[f.part].nest.start)
    if parts[last.part].nest.start > parts[first.part].nest.start:
        yield last


def _freed(
    f: Feed, feeds: Sequence[Feed], words: Mapping[int, Sequence[Words]], parts: Sequence[Placed], total: int
) -> Iterator[tuple[int, Runs, int]]:
    """When words are dead, by the loops of a feed's process: its number, words by group, and the slots that they stay
    behind the end of a group."""
    nest, late = parts[f.part].nest, late_of(parts[f.part], f)
    wanted = _wanted([(parts[g.part].nest, words[g.part], late_of(parts[g.part], g) - late) for g in feeds], total)
    longer = max(0, int(wanted.last.max(initial=0)) - (nest.start + nest.slots - 1))
    for free in _frees(wanted, nest, longer):
        yield f.part, free, late + longer


def places(r: Read, nest: Nest) -> Ints:
    """The number of the word that the first lane reads at each iteration, in their order."""
    return r.at.along(nest)[..., 0].ravel()


def _one_by_one(i: Input, r: Read, nest: Nest) -> bool:
    """Whether each group needs a word more in each lane, which its iterations read, and no other one."""
    groups = i.words // nest.lanes
    at = places(r, nest)
    same = groups <= len(at) and len(at) % groups == 0 and i.need.runs == ((groups, nest.lanes),)
    return same and r.at.lane_step == 0 and bool((at == np.repeat(np.arange(groups), len(at) // groups)).all())


def freed(i: Input, nest: Nest) -> tuple[Ints, Ints]:
    """By group, the slot in which places become free, and how many: after it, or when it begins if its words are held.
    `nest` is that of process number `until`."""
    if i.held:
        return group_slots(nest, i.need.level)[0] + i.after, steps(nest, i.need)
    return group_slots(nest, i.free.level)[1] + i.after, steps(nest, i.free)


@dataclass(eq=False)
class _Wanted:
    """Of each word of a stream the slots of the first and the last iteration that reads it: NEVER and -1 if none does."""

    first: Ints
    last: Ints


NEVER = 1 << 60
"""A slot that no run reaches."""


def _wanted(readers: Sequence[tuple[Nest, Sequence[Words], int]], total: int) -> _Wanted:
    """For readers that keep words so many slots longer than the one whose loops count."""
    first, last = np.full(total, NEVER, dtype=np.int64), np.full(total, -1, dtype=np.int64)
    for nest, words, longer in readers:
        slot = np.broadcast_to(nest.slot[..., None], nest.shape)
        for w in words:
            np.minimum.at(first, w.word[w.read], slot[w.read])
            np.maximum.at(last, w.word[w.read], slot[w.read] + longer)
    return _Wanted(first, last)


def _runs(level: int, numbers: Ints) -> Runs | None:
    changes = np.flatnonzero(np.diff(numbers)) + 1
    if len(changes) >= MOST_RUNS:
        return None
    edges = [0, *changes.tolist(), len(numbers)]
    return Runs(level, tuple((b - a, int(numbers[a])) for a, b in pairwise(edges)))


def _early(need: Runs) -> Runs | None:
    """The same with the first words that are needed before the first group."""
    numbers = np.repeat([w for _, w in need.runs], [n for n, _ in need.runs])
    at = int(np.flatnonzero(numbers)[0])
    numbers[0], numbers[at] = numbers[at], numbers[0]
    return _runs(need.level, numbers)


def _needs(wanted: _Wanted, nest: Nest) -> Iterator[Runs]:
    """By group, how many more words are needed at its start: exactly for some loop, or a word an iteration."""
    total, levels = len(wanted.first), len(nest.extents)
    by_first = np.argsort(wanted.first, kind="stable")
    upto = np.concatenate([[0], np.maximum.accumulate(by_first) + 1])
    used = wanted.first[by_first]
    for level in range(levels + 1):
        before, ends = group_slots(nest, level)
        if level and used.size and used[0] <= before[0]:
            break  # a process reads words before the first group of these loops
        made = upto[np.searchsorted(used, ends, side="right")]
        made[-1] = total  # what nobody reads goes through as well
        if (found := _runs(level, np.diff(made, prepend=0))) is not None:
            yield found
    else:
        last = upto[np.searchsorted(used, group_slots(nest, levels)[1], side="right")]
        n = np.arange(len(last))
        made = np.minimum(total, np.maximum(int((last - n).max()) + n, 0))
        if made[-1] == total and (found := _runs(levels, np.diff(made, prepend=0))) is not None:
            yield found


def _frees(wanted: _Wanted, nest: Nest, longer: int) -> Iterator[Runs]:
    """By group, how many of the oldest words are dead `longer` slots after it."""
    total, levels = len(wanted.last), len(nest.extents)
    by_last = np.argsort(wanted.last, kind="stable")
    oldest = np.append(np.minimum.accumulate(by_last[::-1])[::-1], total)
    used = wanted.last[by_last]
    by_first = np.argsort(wanted.first, kind="stable")
    needed = np.concatenate([[0], np.maximum.accumulate(by_first) + 1])

    def dead(level: int) -> Ints:
        """Words that nobody reads any more; one that nobody reads at all is not free before it was waited for."""
        ends = group_slots(nest, level)[1]
        waited = needed[np.searchsorted(wanted.first[by_first], ends, side="right")]
        return np.minimum(oldest[np.searchsorted(used, ends + longer, side="right")], waited)

    for level in range(levels + 1):
        made = dead(level)
        made[-1] = total
        if (found := _runs(level, np.diff(made, prepend=0))) is not None:
            yield found
    after = dead(levels)
    n = np.arange(1, len(after) + 1)
    made = np.clip(n - int((n - after).max()), 0, total)
    made[-1] = total
    if (found := _runs(levels, np.diff(made, prepend=0))) is not None:
        yield found


def group_slots(nest: Nest, level: int) -> tuple[Ints, Ints]:
    """The slot before each group of a loop starts, and that in which it ends, those that are waited included."""
    slot = np.broadcast_to(nest.slot, nest.extents).reshape(prod(nest.extents[:level]), -1)
    before = slot[:, 0] - 1
    return before, np.append(before[1:], nest.start + nest.slots - 1)


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
    runs = 3 + int(when.max() - due.min() - slots) // slots + 1  # so many are under way at once, and one before and behind
    all_due = np.concatenate([due + n * slots for n in range(runs)])
    n = np.arange(len(all_due))
    comes = np.minimum.accumulate((all_due - n)[::-1])[::-1] + n
    gone = np.repeat(when, many)
    all_gone = np.sort(np.concatenate([gone + k * slots for k in range(runs)]))
    kept = n + 1 - np.searchsorted(all_gone, comes)
    return max(0, int((np.arange(total) + 1 - due).max())), int(kept.max()) + SPARE
