"""In which order the elements of an array pass along a stream: loops over its fields, some of them by blocks of lanes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from upl_mlir.passes.circuit.body import formula
from upl_mlir.passes.circuit.nest import Dim
from upl_mlir.passes.loops.program import Host
from upl_mlir.poly.counts.dense import Evaluator, bounding_box
from upl_mlir.poly.expr import Formula


@dataclass(frozen=True)
class Axis:
    """A loop of a stream: a field, or where `part` is "block" or "lane" its quotient or remainder by the number of lanes."""

    field: str
    part: str = ""

    def __str__(self) -> str:
        return f"{self.field}{'' if not self.part else f' {self.part}'}"


Order = tuple[Axis, ...]


def elements(sizes: Evaluator, h: Host) -> tuple[Dim, ...]:
    """The box of a port: what has no element in it travels as well, and nobody reads it."""
    ctx = sizes.ctx
    whole = Formula.any(formula(c) for c in h.cases)
    box = bounding_box(ctx, h.fields, whole)
    return tuple(map(Dim, h.fields, box.lower, box.shape))


def part_of(sizes: Evaluator, h: Host) -> tuple[int | slice, ...]:
    """Where the box of a port is in that of the port of which it is a piece: for each field of the latter a number, counted
    from its least value, or a range of them.  A port that is no piece is all of itself."""
    own = {d.name: d for d in elements(sizes, h)}
    out: list[int | slice] = []
    for d in elements(sizes, h.whole or h):
        if d.name in h.at:
            out.append(h.at[d.name] - d.low)
        else:
            first = own[d.name].low - d.low
            out.append(slice(first, first + own[d.name].extent))
    return tuple(out)


def orders(dims: Sequence[Dim], lanes: int) -> Iterator[Order]:
    """Orders of a stream: of the fields, and with a field dealt to the lanes in turn."""
    names = [d.name for d in dims]
    for order in permutations(names):
        yield tuple(map(Axis, order))
    for d in dims:
        if lanes > 1 and d.extent % lanes == 0 and d.extent > lanes:
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
