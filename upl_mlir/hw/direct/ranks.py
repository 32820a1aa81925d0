"""Ranks: where a token waits, computed from its index, so that no two instances share a place.

For each input of a node, rank = offset + sum of stride * digit over the digits that its tokens have; offset and strides
may be given per value of one field (ragged and triangular domains: then the node has a *row* for each of its values). Each
input has a space of its own in the bank of its number; the summands of gathers are in the gather store. In a machine of
several cores the places of each are counted by themselves (`home.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from upl_mlir.diagnostics import error
from upl_mlir.hw.core.layouts import FIRST_GATHER, WALK_LEVELS, Dimensions, Mode
from upl_mlir.hw.direct.domains import Bools, Bounds, Domain
from upl_mlir.hw.direct.home import ONE_CORE, WHOLE, Home, Local, Range, Spread, homes
from upl_mlir.hw.direct.lanes import LANE, Digit, NotRanked, digits
from upl_mlir.hw.image import Node, ProgramImage

WORTH = 0.8
"""Windows are used if they leave at most this part of the places: tokens that are put off cost time. Chosen, not
measured."""


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
    at most waits at an index, and both wait in bank 0; `waits`: whether any token has to. `local`: what of the digits
    counts; what is a window further along the one that streams comes to the same place, later."""

    digits: tuple[Digit, ...]
    table: int | None
    rows: tuple[Row, ...]
    merged: bool
    waits: bool
    local: Local = WHOLE

    @property
    def window(self) -> Range | None:
        """The digit that counts modulo a power of two, and the power."""
        return self.local.window

    def bank_of(self, port: int) -> int:
        """The bank in which the tokens of an input wait."""
        return 0 if self.merged else port


def open_digits(of: Sequence[Digit], role: Role) -> list[Digit]:
    """The digits that a token of an input counts through."""
    return [digit for digit in of if role.wild & set(digit.fields)]


@dataclass
class Ranks:
    """The ranks of a program: by node, None for those that have none, with the reasons by name; how many places of each
    bank, and last of the gather store, are given away on each core."""

    nodes: list[NodeRanks | None] = field(default_factory=list[NodeRanks | None])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    cores: list[list[int]] = field(default_factory=list[list[int]])
    stream: Mapping[str, int] = field(default_factory=dict[str, int])
    """The field along which the program streams, by node, if any node has a window."""

    def report(self, image: ProgramImage) -> dict[str, Any]:
        """For `stats.json`: places (of the core that has most) and rows; of each node the field that chooses its row, and
        the one that is split among the cores (if any), or why it is left to a store beside."""
        nodes: dict[str, Any] = {}
        for node, of in zip(image.nodes, self.nodes, strict=True):
            if of is None:
                nodes[node.name] = {"store": "hashed", "because": self.reasons[node.name]}
            else:
                table = None if of.table is None else node.fields[of.digits[of.table].fields[0]].name
                nodes[node.name] = {"rows": len(of.rows), "by": table}
                if of.window is not None:
                    along = node.fields[of.digits[of.window[0]].fields[0]].name
                    nodes[node.name] |= {"window": 1 << of.window[1], "along": along}
                if of.local.split is not None:
                    nodes[node.name]["split"] = node.fields[of.digits[of.local.split].fields[0]].name
        return {"places": self.places, "rows": self.rows, "nodes": nodes}

    @property
    def places(self) -> list[int]:
        """Places of each bank, and last of the gather store, of the core that has most of them."""
        return [max(bank) for bank in zip(*self.cores, strict=True)]

    @property
    def rows(self) -> int:
        """The number of rows of all nodes."""
        return sum(len(n.rows) for n in self.nodes if n is not None)


def rank_program(
    image: ProgramImage, roles: Sequence[Sequence[Role]], d: Dimensions, spread: Spread = ONE_CORE
) -> Ranks:
    """Ranks for all nodes of an aligned image that can have them, with windows along the stream that saves most places, if
    any saves enough.  Raises `UplError` UPL1710 if there is no room for the rows or the places.
    """
    best = ranks_along({}, image, roles, d, spread)
    # A token that is put off waits for one before it to go. An open gather ends when nothing waits: it could be that one.
    for stream in () if image.closes else image.streams:
        found = ranks_along(stream, image, roles, d, spread)
        if sum(found.places) < WORTH * sum(best.places):
            best = found
    for number, need in enumerate(best.places):
        what = "gathers" if number == d.max_inputs else f"tokens in bank {number}"
        _require(need, d.sets, f"places for {what}", d.sets)
    return best


def ranks_along(
    stream: Mapping[str, int],
    image: ProgramImage,
    roles: Sequence[Sequence[Role]],
    d: Dimensions,
    spread: Spread = ONE_CORE,
) -> Ranks:
    """Ranks with windows along a stream (a field by node; none for no windows); tables by field where they save most.

    Raises `UplError` UPL1710 if there is no room for the rows.
    """
    out = Ranks(cores=[[0] * (d.max_inputs + 1) for _ in range(spread.cores)])
    # A gather without summands would leave its place out: the next generation would wait for ever.
    booted = {image.nodes[b.node].name for b in image.boot}
    shapes: list[list[_Shape]] = []
    for number, (node, of) in enumerate(zip(image.nodes, roles, strict=True)):
        along = None if node.name in booted or node.name in spread.chosen else stream.get(node.name)
        try:
            if any(port.open for port in node.inputs):
                raise NotRanked("its open gathers end by their ranks, which the hashed store knows")
            domain = _domain_of(node, image.domains)
            shapes.append(list(_shapes(node, of, domain, along, d, spread, number)))
        except NotRanked as why:
            out.reasons[node.name] = str(why)
            shapes.append([])
    chosen = [min((s for s in options if s.table is None), default=None, key=lambda s: s.places) for options in shapes]
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
    _place(out, chosen, d)
    if any(of is not None and of.window is not None for of in out.nodes):
        out.stream = stream
    return out


def _place(out: Ranks, chosen: list[_Shape | None], d: Dimensions) -> None:
    """Give the nodes their places.  Where there are not enough, the node that needs most is left to the store beside, if
    there is one, until there are."""
    while True:
        cores = [[0] * (d.max_inputs + 1) for _ in out.cores]
        placed: dict[int, NodeRanks] = {}
        # First those that need as many places on every core.
        for n, shape in sorted(enumerate(chosen), key=lambda item: item[1] is not None and item[1].one_sided):
            if shape is not None:
                placed[n] = shape.placed(cores)
        most = max((n for n in placed), key=lambda n: _places(chosen[n]), default=None)
        if most is None or d.beside is None or max(max(core) for core in cores) <= d.sets:
            break
        shape, chosen[most] = chosen[most], None
        assert shape is not None
        out.reasons[shape.node.name] = f"it needs {shape.places} places, more than there are"
    out.cores = cores
    out.nodes = [placed.get(n) for n in range(len(chosen))]


def _places(shape: _Shape | None) -> int:
    return 0 if shape is None else shape.places


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
    cores: int = 1
    local: Local = WHOLE

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
        """The ranges as ranks see them."""
        return tuple(self.local.range(n, r) for n, r in enumerate(ranges))

    @property
    def one_sided(self) -> bool:
        """Whether each row is on one core only."""
        return self.cores > 1 and self.local.home is not None and self.local.home.split is None

    def _on(self, row: int) -> Sequence[int]:
        """The cores that have places for a row."""
        if not self.one_sided:
            return range(self.cores)
        assert self.local.home is not None
        return [self.local.home.core([row] * len(self.digits))]

    @property
    def places(self) -> int:
        """Places in all, in banks and gather store, of the core that has most of them."""
        total = [0] * self.cores
        for number, ranges in enumerate(self.ranges):
            for n, role in enumerate(self.roles):
                if ranges is not None:
                    banks = self.waits and not (self.merged and n)
                    for core in self._on(number):
                        total[core] += self._size(role, ranges) * (banks + role.gathers)
        return max(total)

    def placed(self, cores: Sequence[list[int]]) -> NodeRanks:
        """The ranks, behind the places of each core that are given away already."""
        rows: list[Row] = []
        gather_store = len(cores[0]) - 1
        for number, ranges in enumerate(self.ranges):
            places = [cores[n] for n in self._on(number)]
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
        return NodeRanks(self.digits, self.table, tuple(rows), self.merged, self.waits, self.local)

    def _space(self, role: Role, ranges: tuple[Range, ...], places: Sequence[list[int]], where: int) -> Space:
        strides = [0] * len(self.digits)
        size = 1
        seen = self._seen(ranges)
        for n in reversed(self._free(role)):
            strides[n] = size
            size *= seen[n][1] - seen[n][0] + 1
        start = max(given[where] for given in places)
        for given in places:
            given[where] = start + size
        return Space(start, size, tuple(strides))


def _shapes(
    node: Node, roles: Sequence[Role], domain: Domain, stream: int | None, d: Dimensions, spread: Spread, number: int
) -> Iterator[_Shape]:
    """All ways of ranking a node: by its bounding box, or by the sections along one field that all its tokens have; and all
    ways of placing it."""
    found = tuple(digits(node.fields, d.tag_bits))
    for role in roles:
        for digit in found:
            if 0 < len(role.wild & set(digit.fields)) < len(digit.fields):
                raise NotRanked("fields that share a lane are `*` in some of its tokens only")
        if len(open_digits(found, role)) > WALK_LEVELS:
            many = f"{len(open_digits(found, role))} `*` fields"
            raise NotRanked(f"some have {many}, and the direct store counts through {WALK_LEVELS}")
    bounds = domain.bounds
    if bounds is None:
        yield _Shape(node, roles, found, None, (None,), spread.cores, Local(None, Home((), spread.bits)))
        return
    full = [n for n, digit in enumerate(found) if not any(r.wild & set(digit.fields) for r in roles)]
    along = next((n for n, digit in enumerate(found) if digit.fields == (stream,) and digit.lanes == 1), None)
    tables: list[tuple[int | None, tuple[tuple[Range, ...] | None, ...]]] = [(None, (_ranges(node, found, bounds),))]
    for n in full:
        digit = found[n]
        if len(digit.fields) == 1 and digit.lanes == 1:
            f = digit.fields[0]
            rows = [None if s is None else _ranges(node, found, s) for s in domain.sections(f)]
            # A row for every value from the bias on, so that the field itself is the number of the row.
            rows = [None] * (bounds[f][0] - node.fields[f].bias) + rows
            if len(rows) <= 1 << LANE:
                tables.append((n, tuple(rows)))
    for table, ranges in tables:
        for home in homes(spread, node.name, number, full, table):
            # Each core works on a value or more at a time.
            bits = d.window_bits + spread.bits
            window: Range | None = None
            if along is not None and stream is not None and _window(node, roles, domain, stream, 1 << bits):
                window = along, d.window_bits if home is not None and home.split == along else bits
            if window is None or table != along:
                yield _Shape(node, roles, found, table, ranges, spread.cores, Local(window, home))


def _window(node: Node, roles: Sequence[Role], domain: Domain, stream: int, by: int) -> bool:
    """Whether instances that are `by` apart along a field may share a place: not if a token covers several of its values, or
    a place would be left out in some window and wait for ever."""
    assert domain.bounds is not None
    low, high = domain.bounds[stream]
    if low != node.fields[stream].bias or high - low < by or any(stream in r.wild for r in roles):
        return False
    if domain.inside is not None:
        for role in roles:
            covered: Bools = np.asarray(np.any(domain.inside, axis=tuple(role.wild), keepdims=True))
            there = np.moveaxis(covered, stream, 0)
            if (there[by:] & ~there[:-by]).any():
                return False
    return True


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

    The model of the rank unit (on the core that the index is for): what the RTL computes is compared with it.
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
        place += stride * (of.local.value(n, value) - of.local.range(n, (low, high))[0])
    return place


def index_at(
    node: Node,
    of: NodeRanks,
    port: int,
    place: int,
    wild: frozenset[int],
    *,
    summand: bool = False,
    generation: int = 0,
    core: int = 0,
) -> tuple[int | None, ...] | None:
    """The index of the token of an input that waits at a place of a core, in a generation; None if the place is not the
    input's."""
    for number, row in enumerate(of.rows):
        space = row.gathers[port] if summand else row.banks[port]
        if space is None or row.ranges is None or not space.start <= place < space.start + space.size:
            continue
        rest = place - space.start
        seen = [of.local.range(n, r)[0] for n, r in enumerate(row.ranges)]
        for n, stride in enumerate(space.strides):
            if n == of.table:
                seen[n] = number
            elif stride:
                seen[n] += rest // stride
                rest %= stride
        values = of.local.whole(seen, core, generation)
        if values is None:
            continue
        index: list[int | None] = [f.bias for f in node.fields]
        for value, digit in zip(values, of.digits, strict=True):
            for f in digit.fields:
                part = value >> node.fields[f].offset - digit.lane * LANE & ((1 << node.fields[f].bits) - 1)
                index[f] = part + node.fields[f].bias
        return tuple(None if n in wild else v for n, v in enumerate(index))
    return None


def _domain_of(node: Node, known: Mapping[str, Domain]) -> Domain:
    """The domain of a node of an image: the known one, or all that its fields can hold."""
    found = known.get(node.name)
    if found is not None and (found.bounds is None or len(found.bounds) == len(node.fields)):
        return found
    return Domain(tuple((f.bias, f.bias + (1 << f.bits) - 1) for f in node.fields))
