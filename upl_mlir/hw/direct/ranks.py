"""Ranks: where a token waits, computed from its index, so that no two instances share a place.

For each input of a node, rank = offset + sum of stride * digit over the digits that its tokens have; offset and strides
may be given per value of one field (ragged and triangular domains: then the node has a *row* for each of its values). Each
input has a space of its own in the bank of its number; the summands of gathers are in the gather store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from upl_mlir.diagnostics import error
from upl_mlir.hw.core.layouts import FIRST_GATHER, Dimensions, Mode
from upl_mlir.hw.direct.domains import Bools, Bounds, Domain, domain_of
from upl_mlir.hw.direct.lanes import LANE, Digit, NotRanked, digits
from upl_mlir.hw.image import Node, ProgramImage

Range = tuple[int, int]
WORTH = 0.8
"""Windows are used if they leave at most this part of the places: tokens that are put off cost time."""


@dataclass(frozen=True)
class Role:
    """What comes to an input: how it takes its tokens, and which fields are `*` in all of them."""

    mode: Mode
    wild: frozenset[int] = frozenset()

    @property
    def gathers(self) -> bool:
        """Whether summands come."""
        return self.mode >= FIRST_GATHER


@dataclass(frozen=True)
class Space:
    """Where the tokens of an input wait in one row: from `start` on, `size` places; `strides` by digit, 0 for `*`."""

    start: int
    size: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """One row of a node: the least and the greatest value of each digit there (None: no instance), and the spaces in the
    banks and in the gather store by input (None: its tokens never wait there)."""

    ranges: tuple[Range, ...] | None
    banks: tuple[Space | None, ...]
    gathers: tuple[Space | None, ...]


@dataclass(frozen=True)
class NodeRanks:
    """A ranked node. `table`: the digit that chooses the row, if any; `merged`: the node has two inputs, of whose tokens one
    at most waits at an index, and both wait in bank 0; `waits`: whether any token has to. `window`: the digit that counts
    modulo a power of two, and the power; what is 2**bits further along it comes to the same place, later."""

    digits: tuple[Digit, ...]
    table: int | None
    rows: tuple[Row, ...]
    merged: bool
    waits: bool
    window: Range | None = None

    def bank_of(self, port: int) -> int:
        """The bank in which the tokens of an input wait."""
        return 0 if self.merged else port


@dataclass
class Ranks:
    """The ranks of a program: by node, None for those that have none, with the reasons by name; how many places of each
    bank, and last of the gather store, are given away."""

    nodes: list[NodeRanks | None] = field(default_factory=list[NodeRanks | None])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    places: list[int] = field(default_factory=list[int])
    stream: Mapping[str, int] = field(default_factory=dict[str, int])
    """The field along which the program streams, by node, if any node has a window."""

    def report(self, image: ProgramImage) -> dict[str, Any]:
        """For `stats.json`: places and rows, and of each node the field that chooses its row (if any)."""
        nodes: dict[str, Any] = {}
        for node, of in zip(image.nodes, self.nodes, strict=True):
            if of is not None:
                table = None if of.table is None else node.fields[of.digits[of.table].fields[0]].name
                nodes[node.name] = {"rows": len(of.rows), "by": table}
                if of.window is not None:
                    along = node.fields[of.digits[of.window[0]].fields[0]].name
                    nodes[node.name] |= {"window": 1 << of.window[1], "along": along}
        return {"places": list(self.places), "rows": self.rows, "nodes": nodes}

    @property
    def rows(self) -> int:
        """The number of rows of all nodes."""
        return sum(len(n.rows) for n in self.nodes if n is not None)


def rank_program(image: ProgramImage, roles: Sequence[Sequence[Role]], d: Dimensions) -> Ranks:
    """Ranks for all nodes of an aligned image that can have them, with windows along the stream that saves most places, if
    any saves enough.  Raises `UplError` UPL1710 if there is no room for the rows or the places.
    """
    best = ranks_along({}, image, roles, d)
    for stream in image.streams:
        found = ranks_along(stream, image, roles, d)
        if sum(found.places) < WORTH * sum(best.places):
            best = found
    for number, need in enumerate(best.places):
        what = "gathers" if number == d.max_inputs else f"tokens in bank {number}"
        _require(need, d.sets, f"places for {what}", d.sets)
    return best


def ranks_along(
    stream: Mapping[str, int], image: ProgramImage, roles: Sequence[Sequence[Role]], d: Dimensions
) -> Ranks:
    """Ranks with windows along a stream (a field by node; none for no windows); tables by field where they save most.

    Raises `UplError` UPL1710 if there is no room for the rows.
    """
    out = Ranks(places=[0] * (d.max_inputs + 1))
    # A gather without summands would leave its place out: the next generation would wait for ever.
    booted = {image.nodes[b.node].name for b in image.boot}
    shapes: list[list[_Shape]] = []
    for node, of in zip(image.nodes, roles, strict=True):
        along = None if node.name in booted else stream.get(node.name)
        try:
            shapes.append(_shapes(node, of, domain_of(node, image.domains), along, d))
        except NotRanked as why:
            out.reasons[node.name] = str(why)
            shapes.append([])
    chosen = [min((s for s in options if s.table is None), default=None, key=_Shape.rows) for options in shapes]
    room = d.rank_rows - sum(s is not None for s in chosen)
    _require(-room, 0, "rows of ranks", d.rank_rows)
    # The tables that save most places a row first.
    for n in range(len(chosen)):
        box = chosen[n]
        better = [s for s in shapes[n] if box is not None and s.places < box.places and s.rows() - 1 <= room]
        best = min(better, key=lambda s: (s.places, s.rows()), default=None)
        if best is not None:
            chosen[n] = best
            room -= best.rows() - 1
    for shape in chosen:
        out.nodes.append(None if shape is None else shape.placed(out.places))
    if any(of is not None and of.window is not None for of in out.nodes):
        out.stream = stream
    return out


def _require(need: int, limit: int, what: str, has: int) -> None:
    if need > limit:
        raise error(
            "UPL1710", f"the program needs {need if limit else has + need} {what}, the core has {has}",
            help="set matching.capacity higher in the machine description",
        )  # fmt: skip


@dataclass(frozen=True)
class _Shape:
    """One way of ranking a node: the ranges of the digits in each row."""

    node: Node
    roles: Sequence[Role]
    digits: tuple[Digit, ...]
    table: int | None
    ranges: tuple[tuple[Range, ...] | None, ...]
    window: Range | None = None

    def rows(self) -> int:
        """The number of rows."""
        return len(self.ranges)

    @property
    def waits(self) -> bool:
        """Whether a token of one input may wait for another one, or for its next use."""
        return len(self.roles) > 1 or any(r.mode is Mode.COUNTED for r in self.roles)

    @property
    def merged(self) -> bool:
        """Whether the node has two inputs, and both give full indices."""
        return len(self.roles) == 2 and all(r.mode is not Mode.COUNTED for r in self.roles)

    def _free(self, role: Role) -> list[int]:
        """The digits that a token of an input has, the one that chooses the row apart."""
        return [n for n, digit in enumerate(self.digits) if n != self.table and not role.wild & set(digit.fields)]

    def _size(self, role: Role, ranges: tuple[Range, ...]) -> int:
        return prod(high - low + 1 for low, high in map(self._seen(ranges).__getitem__, self._free(role)))

    def _seen(self, ranges: tuple[Range, ...]) -> tuple[Range, ...]:
        """The ranges as ranks see them: all of a window."""
        return tuple(windowed_range(self.window, n, r) for n, r in enumerate(ranges))

    @property
    def places(self) -> int:
        """Places in all, in banks and gather store."""
        total = 0
        for ranges in self.ranges:
            for n, role in enumerate(self.roles):
                if ranges is not None:
                    banks = self.waits and not (self.merged and n)
                    total += self._size(role, ranges) * (banks + role.gathers)
        return total

    def placed(self, places: list[int]) -> NodeRanks:
        """The ranks, behind the places that are given away already."""
        rows: list[Row] = []
        gather_store = len(places) - 1
        for ranges in self.ranges:
            banks: list[Space | None] = []
            gathers: list[Space | None] = []
            for n, role in enumerate(self.roles):
                bank: Space | None = None
                if ranges is not None and self.waits:
                    bank = banks[0] if self.merged and n else self._space(role, ranges, places, n)
                banks.append(bank)
                store: Space | None = None
                if ranges is not None and role.gathers:
                    store = self._space(role, ranges, places, gather_store)
                gathers.append(store)
            rows.append(Row(ranges, tuple(banks), tuple(gathers)))
        return NodeRanks(self.digits, self.table, tuple(rows), self.merged, self.waits, self.window)

    def _space(self, role: Role, ranges: tuple[Range, ...], places: list[int], where: int) -> Space:
        strides = [0] * len(self.digits)
        size = 1
        seen = self._seen(ranges)
        for n in reversed(self._free(role)):
            strides[n] = size
            size *= seen[n][1] - seen[n][0] + 1
        start = places[where]
        places[where] += size
        return Space(start, size, tuple(strides))


def windowed_range(window: Range | None, digit: int, found: Range) -> Range:
    """The range of a digit as ranks see it."""
    return found if window is None or window[0] != digit else (0, (1 << window[1]) - 1)


def _shapes(
    node: Node, roles: Sequence[Role], domain: Domain, stream: int | None, d: Dimensions
) -> list[_Shape]:
    """All ways of ranking a node: by its bounding box, or by the sections along one field that all its tokens have."""
    found = tuple(digits(node.fields, d.tag_bits))
    for role in roles:
        for digit in found:
            if 0 < len(role.wild & set(digit.fields)) < len(digit.fields):
                raise NotRanked("fields that share a lane are `*` in some of its tokens only")
    counted = [r for r in roles if r.mode is Mode.COUNTED]
    bounds = domain.bounds
    if bounds is None:
        return [_Shape(node, roles, found, None, (None,))]
    window = None if stream is None else _window(node, found, roles, domain, stream, d)
    out = [_Shape(node, roles, found, None, (_ranges(node, found, bounds),), window)]
    for n, digit in enumerate(found):
        f = digit.fields[0] if digit.fields else 0
        if len(digit.fields) > 1 or digit.lanes > 1 or any(r.wild & set(digit.fields) for r in counted):
            continue
        if window is not None and n == window[0]:
            continue
        rows = [None if s is None else _ranges(node, found, s) for s in domain.sections(f)]
        # A row for every value from the bias on, so that the field itself is the number of the row.
        rows = [None] * (bounds[f][0] - node.fields[f].bias) + rows
        if len(rows) <= 1 << LANE:
            out.append(_Shape(node, roles, found, n, tuple(rows), window))
    return out


def _window(
    node: Node, found: Sequence[Digit], roles: Sequence[Role], domain: Domain, stream: int, d: Dimensions
) -> Range | None:
    """The digit of a field that may count modulo 2**window_bits, and these bits; None if it must not: a token covers several
    of its values, or a place would be left out in some window and wait for ever."""
    assert domain.bounds is not None
    n = next((n for n, digit in enumerate(found) if digit.fields == (stream,) and digit.lanes == 1), None)
    low, high = domain.bounds[stream]
    by = 1 << d.window_bits
    if n is None or low != node.fields[stream].bias or high - low < by or any(stream in r.wild for r in roles):
        return None
    if domain.inside is not None:
        for role in roles:
            covered: Bools = np.asarray(np.any(domain.inside, axis=tuple(role.wild), keepdims=True))
            there = np.moveaxis(covered, stream, 0)
            if (there[by:] & ~there[:-by]).any():
                return None
    return n, d.window_bits


def _ranges(node: Node, found: Sequence[Digit], bounds: Bounds) -> tuple[Range, ...]:
    """The least and the greatest value of each digit, biases taken off."""
    out: list[Range] = []
    for digit in found:
        low = high = 0
        for n in digit.fields:
            f = node.fields[n]
            shift = f.offset - digit.lane * LANE
            low += bounds[n][0] - f.bias << shift
            high += bounds[n][1] - f.bias << shift
        out.append((low, high))
    return tuple(out)


def index_digits(node: Node, of: NodeRanks, index: Sequence[int | None]) -> list[int]:
    """The digits of an index (None = `*`, which counts as 0), biases taken off."""
    out: list[int] = []
    for digit in of.digits:
        value = 0
        for n in digit.fields:
            f, given = node.fields[n], index[n]
            value |= (0 if given is None else given - f.bias) << f.offset - digit.lane * LANE
        out.append(value)
    return out


def place_of(node: Node, of: NodeRanks, port: int, index: Sequence[int | None], *, summand: bool = False) -> int | None:
    """The place of a token: in the bank of its input, or of a summand in the gather store; None if it has none.

    The model of the rank unit: what the RTL computes is compared with it.
    """
    values = index_digits(node, of, index)
    at = 0 if of.table is None else values[of.table]
    if not 0 <= at < len(of.rows):
        return None
    row = of.rows[at]
    space = row.gathers[port] if summand else row.banks[port]
    if space is None or row.ranges is None:
        return None
    place = space.start
    for n, (value, stride, (low, high)) in enumerate(zip(values, space.strides, row.ranges, strict=True)):
        if stride and not low <= value <= high:
            return None
        first, last = windowed_range(of.window, n, (low, high))
        place += stride * ((value & last if of.window is not None and n == of.window[0] else value) - first)
    return place


def index_at(
    node: Node, of: NodeRanks, port: int, place: int, wild: frozenset[int], *, summand: bool = False, generation: int = 0
) -> tuple[int | None, ...] | None:
    """The index of the token of an input that waits at a place, in a generation; None if the place is not the input's."""
    for number, row in enumerate(of.rows):
        space = row.gathers[port] if summand else row.banks[port]
        if space is None or row.ranges is None or not space.start <= place < space.start + space.size:
            continue
        rest = place - space.start
        index: list[int | None] = [f.bias for f in node.fields]
        for n, digit in enumerate(of.digits):
            low = windowed_range(of.window, n, row.ranges[n])[0]
            value = number if n == of.table else low
            if space.strides[n]:
                value, rest = low + rest // space.strides[n], rest % space.strides[n]
            if of.window is not None and n == of.window[0]:
                value |= generation << of.window[1]
            for f in digit.fields:
                part = value >> node.fields[f].offset - digit.lane * LANE & ((1 << node.fields[f].bits) - 1)
                index[f] = part + node.fields[f].bias
        return tuple(None if n in wild else v for n, v in enumerate(index))
    return None
