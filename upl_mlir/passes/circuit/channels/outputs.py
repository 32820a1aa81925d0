"""What leaves the lanes of a process as a stream: for an output port, or for another process.

One lane sends its words when they are there.  Of several lanes each keeps its words until it has its turn, a slot after
the lane before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from upl_mlir.diagnostics import error
from upl_mlir.passes.circuit.channels.orders import Order, elements, number, orders
from upl_mlir.passes.circuit.nest import Bools, Dim, Ints, Nest
from upl_mlir.passes.circuit.placed import LEAD, Placed
from upl_mlir.passes.circuit.process import OTHER_ENGINES, Drain, Shown

QUEUED = 2
"""Slots from a lane's turn to its word."""


@dataclass(frozen=True, eq=False)
class Output:
    """A stream of words of process `part`: they come from the `lanes` at the instances `when`, an array over its nest.

    With several lanes each keeps up to `depth` words, and after `wait` slots they take turns, a word a slot; a turn of all
    lanes begins `pace` slots after the turn before.  A lane that
    keeps one word has it in a register, where the next one may come in the slot in which it is read.  The axes of its
    `order` divide fields by the number `by`.
    """

    name: str
    part: int
    dims: tuple[Dim, ...]
    order: Order
    lanes: tuple[int, ...]
    when: Bools
    wait: int
    depth: int
    pace: int
    by: int

    @property
    def words(self) -> int:
        """The number of words of a run."""
        return prod(d.extent for d in self.dims)


def output(drain: Drain, number_: int, part: Placed, fixed: Order | None, most: int) -> Output:
    """The stream of an output port of a circuit with so many lanes at most: a process of one lane may send what it has of
    them as it got it.  Raises UplError UPL2003."""
    dims = elements(part.process.sizes, drain.host)
    by = part.nest.lanes if part.nest.lanes > 1 else most
    return sending(drain.host.name, dims, drain.shown, number_, part, fixed, by)


def sending(
    name: str, dims: tuple[Dim, ...], shown: Sequence[Shown], number_: int, part: Placed, fixed: Order | None, by: int
) -> Output:
    """The stream of elements of a process's array, in an order that divides fields by the number `by`.

    Raises UplError UPL2003 if no order suits the schedule.

    Where nothing is shown, what passes is as if the first case went on."""
    p, nest = part.process, part.nest
    grid = np.indices([d.extent for d in dims], dtype=np.int64)
    values = {d.name: g + d.low for d, g in zip(dims, grid, strict=True)}
    exprs = p.sizes.given(values)
    read: dict[str, Ints] = {}
    for each in shown:
        here = exprs.formula(each.when)
        for f, e in zip(p.fields, each.index, strict=True):
            at = exprs.expr(e)
            read[f] = np.asarray(np.where(here, at, read.get(f, at)), np.int64)
    shape = grid.shape[1:]
    if any(((read[d.name] < d.low) | (read[d.name] >= d.low + d.extent)).any() for d in p.array):
        raise error("UPL2003", f"the elements of `{name}` are no box of `{p.name}`", help=OTHER_ENGINES)
    read |= {d.name: np.full(shape, d.low + d.extent - 1, np.int64) for d in p.dims if d.name in p.sums}
    lane, slot = (np.broadcast_to(x, shape) for x in nest.place(read))
    when = _marked(nest, {n: np.broadcast_to(x, shape) for n, x in read.items()})
    lanes = tuple(np.unique(lane).tolist())
    for order in [fixed] if fixed is not None else orders(dims, by):
        rank = np.broadcast_to(number(dims, order, by, values), shape).ravel()
        by_rank = np.argsort(rank)
        time, who = slot.ravel()[by_rank], lane.ravel()[by_rank]
        if len(lanes) == 1:
            if (np.diff(time) > 0).all():
                return Output(name, number_, dims, order, lanes, when, 0, 0, 1, by)
            continue
        turn = _turn(time, who, nest.lanes) if nest.skew == 0 else None
        if turn is not None:
            wait, depth, pace = _taking_turns(nest, time, who, turn)
            return Output(name, number_, dims, order, lanes, when, wait, depth, pace, by)
    raise error("UPL2003", f"no order of the elements of `{name}` suits the schedule", help=OTHER_ENGINES)


def _marked(nest: Nest, read: dict[str, Ints]) -> Bools:
    """The instances with these values of fields, as an array over the nest."""
    out = np.zeros(nest.shape, dtype=bool)
    index: list[Ints] = []
    lane: Ints | None = None
    dims = {d.name: d for d in nest.dims}
    for f in nest.order:
        x = nest.count(dims[f], read[f] - dims[f].low)
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


def _taking_turns(nest: Nest, time: Ints, who: Ints, turn: Ints) -> tuple[int, int, int]:
    """From which slot on the lanes take turns, how many words wait in a lane, run upon run, and the slots from one turn to
    the next: those from word to word of a lane, if they are the same throughout; else turns follow each other at once.

    A lane that has no word for a turn keeps a gap for it.
    """
    time = time - nest.start
    comes = time[np.flatnonzero(np.diff(turn, prepend=-1))]
    apart = np.unique(np.diff(comes))
    even = len(apart) == 1 and apart[0] > nest.lanes and len(comes) * apart[0] <= nest.slots
    pace = int(apart[0]) if even else nest.lanes
    wait = int((time - (turn * pace + who)).max()) + 1
    slots = max(nest.slots, len(comes) * pace)  # as `padded` has it
    runs = 3 + wait // slots
    goes = np.arange(len(comes)) * pace + wait + nest.lanes - 1  # of the last lane, whose words wait longest
    all_comes = np.concatenate([comes + k * slots for k in range(runs)])
    all_goes = np.concatenate([goes + k * slots for k in range(runs)])
    came = np.arange(len(all_comes)) + 1
    one = (came - np.searchsorted(all_goes, all_comes, side="right")).max() == 1
    return wait, 1 if one else int((came - np.searchsorted(all_goes, all_comes)).max()), pace


def turns(o: Output) -> int:
    """How often the lanes take turns in a run."""
    return int(o.when.any(axis=-1).sum())


def slots_of(o: Output) -> int:
    """The slots of a run that its words take."""
    return o.words if len(o.lanes) == 1 else turns(o) * o.pace


def leave(o: Output, part: Placed) -> Ints:
    """The slot in which each word leaves its lane, in the order of the stream."""
    nest, first = part.nest, LEAD + part.at.result
    if len(o.lanes) == 1:
        return np.sort(first + nest.begins[o.when])
    at_once = o.when.reshape(-1, nest.lanes)
    turn, lane = np.nonzero(at_once[at_once.any(axis=-1)])
    return first + nest.start + o.wait + turn * o.pace + lane + QUEUED
