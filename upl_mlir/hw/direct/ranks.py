"""Ranks: where a token waits, computed from its index, so that no two instances share a place.

For each input of a node, rank = offset + sum of stride * digit over the digits that its tokens have; offset and strides
may be given per value of one field (ragged and triangular domains: then the node has a *row* for each of its values). Each
input has a space of its own in the bank of its number; the summands of gathers are in the gather store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from upl_mlir.diagnostics import error
from upl_mlir.hw.core.layouts import FIRST_GATHER, Dimensions, Mode
from upl_mlir.hw.direct.domains import Bounds, Domain, domain_of
from upl_mlir.hw.direct.lanes import LANE, Digit, NotRanked, digits
from upl_mlir.hw.image import Node, ProgramImage

Range = tuple[int, int]


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
    at most waits at an index, and both wait in bank 0; `waits`: whether any token has to."""

    digits: tuple[Digit, ...]
    table: int | None
    rows: tuple[Row, ...]
    merged: bool
    waits: bool

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

    @property
    def rows(self) -> int:
        """The number of rows of all nodes."""
        return sum(len(n.rows) for n in self.nodes if n is not None)


def rank_program(
    image: ProgramImage, roles: Sequence[Sequence[Role]], domains: Mapping[str, Domain], d: Dimensions
) -> Ranks:
    """Ranks for all nodes of an aligned image that can have them; tables by field where they save most.

    Raises `UplError` UPL1710 if there is no room for the rows or the places.
    """
    out = Ranks(places=[0] * (d.max_inputs + 1))
    shapes: list[list[_Shape]] = []
    for node, of in zip(image.nodes, roles, strict=True):
        try:
            shapes.append(_shapes(node, of, domain_of(node, domains), d))
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
    for number, need in enumerate(out.places):
        what = "gathers" if number == d.max_inputs else f"tokens in bank {number}"
        _require(need, d.sets, f"places for {what}", d.sets)
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
        return prod(ranges[n][1] - ranges[n][0] + 1 for n in self._free(role))

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
        return NodeRanks(self.digits, self.table, tuple(rows), self.merged, self.waits)

    def _space(self, role: Role, ranges: tuple[Range, ...], places: list[int], where: int) -> Space:
        strides = [0] * len(self.digits)
        size = 1
        for n in reversed(self._free(role)):
            strides[n] = size
            size *= ranges[n][1] - ranges[n][0] + 1
        start = places[where]
        places[where] += size
        return Space(start, size, tuple(strides))


def _shapes(node: Node, roles: Sequence[Role], domain: Domain, d: Dimensions) -> list[_Shape]:
    """All ways of ranking a node: by its bounding box, or by the sections along one field that all its tokens have."""
    found = tuple(digits(node.fields, d.tag_bits))
    for role in roles:
        for digit in found:
            if len(digit.fields) > 1 and role.wild & set(digit.fields) not in (set(), set(digit.fields)):
                raise NotRanked("fields that share a lane are `*` in some of its tokens only")
    counted = [r for r in roles if r.mode is Mode.COUNTED]
    if domain.bounds is None:
        return [_Shape(node, roles, found, None, (None,))]
    out = [_Shape(node, roles, found, None, (_ranges(node, found, domain.bounds),))]
    for n, digit in enumerate(found):
        if len(digit.fields) > 1 or digit.lanes > 1 or any(r.wild & set(digit.fields) for r in counted):
            continue
        rows = [None if s is None else _ranges(node, found, s) for s in domain.sections(digit.fields[0])]
        base = node.fields[digit.fields[0]].bias
        assert domain.bounds[digit.fields[0]][0] >= base
        # A row for every value from the bias on, so that the field itself is the number of the row.
        rows = [None] * (domain.bounds[digit.fields[0]][0] - base) + rows
        if len(rows) <= 1 << LANE:
            out.append(_Shape(node, roles, found, n, tuple(rows)))
    return out


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
    for value, stride, (low, high) in zip(values, space.strides, row.ranges, strict=True):
        if stride and not low <= value <= high:
            return None
        place += stride * (value - low)
    return place


def index_at(
    node: Node, of: NodeRanks, port: int, place: int, wild: frozenset[int], *, summand: bool = False
) -> tuple[int | None, ...] | None:
    """The index of the token of an input that waits at a place; None if the place is not the input's."""
    for number, row in enumerate(of.rows):
        space = row.gathers[port] if summand else row.banks[port]
        if space is None or row.ranges is None or not space.start <= place < space.start + space.size:
            continue
        rest = place - space.start
        index: list[int | None] = [f.bias for f in node.fields]
        for n, digit in enumerate(of.digits):
            low = row.ranges[n][0]
            value = number if n == of.table else low
            if space.strides[n]:
                value, rest = low + rest // space.strides[n], rest % space.strides[n]
            for f in digit.fields:
                part = value >> node.fields[f].offset - digit.lane * LANE & ((1 << node.fields[f].bits) - 1)
                index[f] = part + node.fields[f].bias
        return tuple(None if n in wild else v for n, v in enumerate(index))
    return None
