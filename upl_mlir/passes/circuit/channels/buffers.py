"""Buffers: what the instances of a lane read of those of the same lane, in another order or more than once.

Each lane has a memory of its own (a bank).  An element's number counts the elements of its lane in the order of some fields;
its place is that number, more in each run, modulo the places.  `kind` says how the words are read: each once in the order
in which they were written ("fifo"), several times one after the other ("sticky"), or in another order ("buffer").
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from math import prod

import numpy as np

from upl_mlir.passes.circuit.channels.feeds import Steps, affine
from upl_mlir.passes.circuit.channels.links import NoLink, sources
from upl_mlir.passes.circuit.nest import Bools, Dim, Ints, Nest
from upl_mlir.passes.circuit.placed import Placed
from upl_mlir.passes.circuit.stages import Site, last_summand

READABLE = 3
"""Slots from that in which a word is written to the earliest one in which it can be read: it is addressed two before."""
MOST_PLACES = 1 << 14
"""The words of a block RAM that is a bit wide."""


@dataclass(frozen=True, eq=False)
class Buffer:
    """Of a site: where a word is written by the loops of the writer, and read by those of the reader.

    `words` are the numbers of a run; `depth` words are there at most at once; `places` is a power of two.
    """

    kind: str
    write: Steps
    read: Steps
    words: int
    places: int
    depth: int


@dataclass(eq=False)
class _Lane:
    """Of a lane: when each number is written (-1: never) and read last, and the numbers in the order of their reads."""

    written: Ints
    read: Ints
    order: Ints


def waits(reader: Placed, writer: Placed, s: Site) -> int:
    """By how many slots the earliest read comes too early; 0 or less if none does."""
    assert s.written is not None
    mask = reader.mask(s.when)
    _, then = writer.nest.place(sources(reader.process, writer.process, s, dict(reader.nest.grid)))
    apart = np.broadcast_to(reader.nest.begins - then + s.stage - s.written, reader.nest.shape)
    return READABLE - int(apart[mask].min(initial=READABLE))


def buffer(reader: Placed, writer: Placed, s: Site) -> Buffer:
    """The buffer of a site, with the fields in that order for which it is smallest.  Raises NoLink as `numbers` does, and
    for too many words."""
    mask = reader.mask(s.when)
    found = [_sized(reader, writer, s, mask, *n) for n in numbers(reader, writer, s)]
    return min(found, key=lambda b: b.places)


def numbers(reader: Placed, writer: Placed, s: Site) -> list[tuple[Steps, Steps, int]]:
    """For each order of the fields that will do: the numbers of words by the loops of the reader, by those of the writer,
    and how many there are.  Raises NoLink if lanes read of other lanes, or if no order gives numbers that follow the
    loops."""
    fields = writer.process.array
    found: list[tuple[Steps, Steps, int]] = []
    values = sources(reader.process, writer.process, s, dict(reader.nest.grid))
    mask = reader.mask(s.when)
    lane, _ = writer.nest.place(values)
    if (mask & (np.broadcast_to(lane, mask.shape) != np.arange(reader.nest.lanes))).any():
        raise NoLink(f"lanes read of other lanes in another order (`{s.array}`)")
    for order in permutations(fields):
        read = affine(reader.nest.everywhere(_number(writer.nest, order, values)), mask)
        everywhere = np.ones(writer.nest.shape, bool)
        write = affine(writer.nest.everywhere(_number(writer.nest, order, writer.nest.grid)), everywhere)
        if read is not None and write is not None:
            found.append((read, write, prod(_extent(writer.nest, d) for d in order)))
    if not found:
        raise NoLink(f"no order of the elements of `{s.array}` follows the loops that read it")
    return found


def _extent(nest: Nest, d: Dim) -> int:
    """How many values of a field a lane has."""
    return -(-d.extent // nest.lanes) if d.name == nest.along else d.extent


def _number(nest: Nest, order: tuple[Dim, ...], values: dict[str, Ints]) -> Ints:
    """The number of an element among those of its lane."""
    total: Ints = np.zeros((1,), dtype=np.int64)
    for d in order:
        x = np.asarray(values[d.name]) - d.low
        total = total * _extent(nest, d) + (x // nest.lanes if d.name == nest.along else x)
    return total


def _sized(reader: Placed, writer: Placed, s: Site, mask: Bools, read: Steps, write: Steps, words: int) -> Buffer:
    """The places that keep every word until its last read, run upon run."""
    lanes = [_lane(reader, writer, s, mask, read, write, words, n) for n in range(reader.nest.lanes) if mask[..., n].any()]
    slots = reader.nest.slots
    longest = max((int((x.read - x.written)[x.read >= 0].max(initial=0)) for x in lanes), default=0)
    runs = 2 + longest // slots
    depth = max((_most(x, slots, runs) for x in lanes), default=0)
    places = 1 << max(1, depth - 1).bit_length()
    while not all(_apart(x, words, places, slots, runs) for x in lanes):
        places *= 2
        if places > MOST_PLACES:
            raise NoLink(f"more than {MOST_PLACES} words of `{s.array}` wait in a lane")
    kinds = {_kind(x) for x in lanes}
    kind = next(k for k in ("buffer", "sticky", "fifo") if k in kinds or k == "fifo")
    return Buffer(kind, write, read, words, places, depth)


def _lane(reader: Placed, writer: Placed, s: Site, mask: Bools, read: Steps, write: Steps, words: int, n: int) -> _Lane:
    assert s.written is not None
    done = writer.mask(writer.process.domain & last_summand(writer.process))[..., n]
    written, last = np.full(words, -1, dtype=np.int64), np.full(words, -1, dtype=np.int64)
    written[write.along(writer.nest)[..., n][done]] = writer.nest.begins[..., n][done] + s.written
    here = mask[..., n]
    numbers, when = read.along(reader.nest)[..., n][here], reader.nest.begins[..., n][here] + s.stage
    np.maximum.at(last, numbers, when)
    return _Lane(written, last, numbers[np.argsort(when, kind="stable")])


def _apart(x: _Lane, words: int, places: int, slots: int, runs: int) -> bool:
    """Whether each word is written only after the last read of the word that was in its place."""
    number = np.flatnonzero(x.written >= 0)
    begin, end = x.written[number], np.maximum(x.read[number] - 2, x.written[number])  # addressed two slots before
    place = np.concatenate([(number + k * words) % places for k in range(runs)])
    begin = np.concatenate([begin + k * slots for k in range(runs)])
    end = np.concatenate([end + k * slots for k in range(runs)])
    by_place = np.lexsort((begin, place))
    same = place[by_place][1:] == place[by_place][:-1]
    return bool((~same | (begin[by_place][1:] > end[by_place][:-1])).all())


def _most(x: _Lane, slots: int, runs: int) -> int:
    """How many words there are at once that are still read, those just written and just read included."""
    used = x.read >= 0
    begin = np.sort(np.concatenate([x.written[used] + k * slots for k in range(runs)]))
    end = np.sort(np.concatenate([x.read[used] + k * slots for k in range(runs)]))
    return int((np.arange(len(begin)) + 1 - np.searchsorted(end, begin)).max(initial=0))


def _kind(x: _Lane) -> str:
    """How the words of a lane are read."""
    rank = np.full(len(x.written), -1, dtype=np.int64)
    done = np.flatnonzero(x.written >= 0)
    rank[done[np.argsort(x.written[done], kind="stable")]] = np.arange(len(done))
    step = np.diff(rank[x.order], prepend=-1)
    if len(x.order) == len(done) and (step == 1).all():
        return "fifo"
    return "sticky" if ((step == 0) | (step == 1)).all() else "buffer"
