"""By which channels a process gets what it reads of others, and of itself: delays, buffers of the same lane, streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from upl_mlir.passes.circuit.channels.buffers import numbers, waits
from upl_mlir.passes.circuit.channels.inner import sent_by, stream
from upl_mlir.passes.circuit.channels.links import NoLink, early, links
from upl_mlir.passes.circuit.channels.orders import Order
from upl_mlir.passes.circuit.placed import Placed, of_array
from upl_mlir.passes.circuit.stages import Site


@dataclass(eq=False)
class Ways:
    """The sites of a process by the kind of their channels; those of a stream by array, with the order of the stream."""

    linked: list[Site] = field(default_factory=list[Site])
    buffered: list[Site] = field(default_factory=list[Site])
    streamed: dict[str, tuple[Order, list[Site]]] = field(default_factory=dict[str, tuple[Order, list[Site]]])


def ways(
    parts: Sequence[Placed], number: int, orders: Mapping[str, Order] | None = None
) -> tuple[Ways, dict[str, int]]:
    """The channels of process `number`, the first kind that will do in this order: delay, buffer, stream; and by array how
    many slots the earliest read comes too early (0 or less: none does).  Of processes that are not among the parts it is not
    asked.  `orders` are those of streams, if they are given.

    Raises NoLink if there is no channel.
    """
    part = parts[number]
    made = Ways()
    short: dict[str, int] = {}
    places = {p.array: n for n, p in enumerate(parts)}
    for array in dict.fromkeys(s.array for s in part.sites if s.array in places):
        at = places[array]
        left: list[Site] = []
        for s in of_array(part.sites, array):
            late = _alone(made, part, parts[at], s)
            if late is None:
                left.append(s)
            else:
                short[array] = max(short.get(array, late), late)
        if left:
            order = (orders or {}).get(f"{array}.to.{part.array}")
            made.streamed[array], late = _stream(parts[at], at, part, number, left, order)
            short[array] = max(short.get(array, late), late)
    return made, short


def _alone(made: Ways, part: Placed, writer: Placed, s: Site) -> int | None:
    """A delay or a buffer for a site, and by how many slots it reads too early; None if only a stream can serve it."""
    try:
        late = early(links(part, writer, s))
        made.linked.append(s)
        return late
    except NoLink:
        if s.running:
            raise
    try:
        numbers(part, writer, s)
    except NoLink:
        return None
    made.buffered.append(s)
    return waits(part, writer, s)


def _stream(
    writer: Placed, at: int, part: Placed, number: int, read: list[Site], order: Order | None
) -> tuple[tuple[Order, list[Site]], int]:
    best: tuple[int, Order] | None = None
    for sent in sent_by(at, writer, order):
        found = stream(sent, writer, number, part, read)
        if found is not None and (best is None or found[1] < best[0]):
            best = found[1], sent.order
    if best is None:
        raise NoLink(f"no order of the elements of `{writer.array}` suits both schedules")
    return (best[1], read), best[0]
