"""Streams from process to process: the words of all lanes of one process, one after the other, for the lanes of another one.

They leave their lanes as the words of an output port do, and are read as those of an input port are; when they come is
known, so nobody waits for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from upl_mlir.diagnostics import UplError
from upl_mlir.passes.circuit.channels.feeds import Feed, feed, late_of, words_of
from upl_mlir.passes.circuit.channels.links import NoLink
from upl_mlir.passes.circuit.channels.orders import Order, orders
from upl_mlir.passes.circuit.channels.outputs import Output, leave, sending
from upl_mlir.passes.circuit.nest import Ints
from upl_mlir.passes.circuit.placed import Placed
from upl_mlir.passes.circuit.process import Shown
from upl_mlir.passes.circuit.stages import Site
from upl_mlir.poly.expr import TRUE, IndexExpr

TRAVELS = 1
"""Slots from that in which a word leaves its lane to the first iteration that can read it, less one for each lane of the
writer. With one less a word is read before it is there (seen in `transposed`, 16 by 16, on 4 lanes)."""


@dataclass(frozen=True, eq=False)
class Stream:
    """A stream between processes: how it is sent, and how it is read; `window` words are kept."""

    sent: Output
    feed: Feed
    window: int

    @property
    def name(self) -> str:
        """That of the array, and of the process that reads it."""
        return f"{self.sent.name} to {self.feed.part}"


def sent_by(number: int, part: Placed, order: Order | None) -> Iterator[Output]:
    """The streams of all elements of a process's array, in each order that suits its schedule, or in the given one."""
    p = part.process
    everything = (Shown(TRUE, tuple(map(IndexExpr.of, p.fields))),)
    for fixed in [order] if order is not None else orders(p.array, part.nest.lanes):
        try:
            yield sending(p.name, p.array, everything, number, part, fixed, part.nest.lanes)
        except UplError:
            continue


def stream(
    sent: Output, writer: Placed, number: int, reader: Placed, sites: Sequence[Site]
) -> tuple[Feed, int] | None:
    """How a process reads a stream, and by how many slots the earliest read comes too early; None if it cannot."""
    lanes = writer.nest.lanes
    deal = reader.nest.lanes == lanes or not any(a.part for a in sent.order)
    words = words_of(reader, sent.dims, sent.order, lanes, sites)
    found = feed(number, reader, words, prod(d.extent for d in sent.dims), deal)
    if found is None:
        return None
    there = leave(sent, writer) + lanes + TRAVELS
    slot = np.broadcast_to(reader.nest.slot[..., None], reader.nest.shape)
    short = [int((there[w.word[w.read]] - slot[w.read]).max(initial=0)) for w in words if w.read.any()]
    return found, max(short, default=0)


def kept(sent: Output, writer: Placed, f: Feed, reader: Placed) -> int:
    """How many words are kept at once, run upon run: a power of two; by each lane if they are dealt to the lanes."""
    slots = reader.nest.slots
    there = leave(sent, writer)
    last = there.copy()  # a word that nobody reads is gone at once
    lateness = late_of(reader, f)
    slot = np.broadcast_to(reader.nest.slot[..., None], reader.nest.shape)
    for r in f.reads:
        mask = reader.mask(r.site.when)
        word = number_of(r.at.along(reader.nest), f, reader.nest.lanes)
        np.maximum.at(last, word[mask], slot[mask] + lateness)
    gone = np.maximum.accumulate(last)  # places become free in the order of the stream
    runs = 2 + int((gone - there).max()) // slots
    comes = np.concatenate([there + k * slots for k in range(runs)])
    goes = np.concatenate([gone + k * slots for k in range(runs)])
    most = int((np.arange(len(comes)) + 1 - np.searchsorted(np.maximum.accumulate(goes), comes)).max())
    each = -(-most // reader.nest.lanes) if f.dealt else most
    return 1 << max(1, each - 1).bit_length()


def number_of(at: Ints, f: Feed, lanes: int) -> Ints:
    """The number in the stream of the word that a lane calls by its own number."""
    return at * lanes + np.arange(lanes) if f.dealt else at


def checked(sent: Output, writer: Placed, number: int, reader: Placed, sites: Sequence[Site]) -> Stream:
    """The stream of placed processes.  Raises NoLink if a word is read before it is there."""
    found = stream(sent, writer, number, reader, sites)
    if found is None or found[1] > 0:
        raise NoLink(f"words of `{sent.name}` are read {0 if found is None else found[1]} slots before they are there")
    return Stream(sent, found[0], kept(sent, writer, found[0], reader))
