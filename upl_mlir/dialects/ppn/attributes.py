"""Attributes of the `ppn` dialect: ranges of numbers, numbers, orders of streams, words by group; all as text."""

from __future__ import annotations

import re

from xdsl.irdl import irdl_attr_definition

from upl_mlir.dialects.upl.attributes import ListAttr, TextAttr, matched, split_commas
from upl_mlir.poly.parse import PolySyntaxError

Runs = tuple[int, tuple[tuple[int, int], ...]]
"""The loop whose iterations are groups, by number; so many groups with so many words each."""

PARTS = ("block", "lane")
"""Of a field, which a loop of a stream goes over: its quotient and its remainder by the number of lanes."""

_RANGE = re.compile(r"(\w+) in (-?\d+)\.\.(-?\d+)")
_RUNS = re.compile(r"loop (\d+): *(.+)")
_RUN = re.compile(r"(\d+) x (\d+)")


@irdl_attr_definition
class RangesAttr(ListAttr[tuple[str, int, int]]):
    """Fields with their values: ``#ppn.ranges<"i in 0..15, j in 1..7">``."""

    name = "ppn.ranges"

    @classmethod
    def _item(cls, text: str) -> tuple[str, int, int]:
        name, first, last = matched(_RANGE, text, "`FIELD in FIRST..LAST`").groups()
        if int(last) < int(first):
            raise PolySyntaxError(f"`{name}` has no value in {first}..{last}", 0)
        return name, int(first), int(last)

    def _write(self) -> str:
        return ", ".join(f"{name} in {first}..{last}" for name, first, last in self.data)


@irdl_attr_definition
class NumbersAttr(ListAttr[int]):
    """Numbers: ``#ppn.numbers<"16, 16, 1">``."""

    name = "ppn.numbers"

    @classmethod
    def _item(cls, text: str) -> int:
        if not (text.isascii() and text.isdigit()):
            raise PolySyntaxError(f"expected a number, found `{text}`", 0)
        return int(text)


@irdl_attr_definition
class OrderAttr(ListAttr[tuple[str, str]]):
    """Nested loops over fields, outermost first: ``#ppn.order<"i block, j, i lane">``.

    ``i block`` and ``i lane`` are quotient and remainder of field i by the number of lanes.
    """

    name = "ppn.order"

    @classmethod
    def _item(cls, text: str) -> tuple[str, str]:
        name, _, part = text.partition(" ")
        if part and part not in PARTS:
            raise PolySyntaxError(f"expected `{name}`, `{name} block` or `{name} lane`, found `{text}`", 0)
        return name, part

    def _write(self) -> str:
        return ", ".join(f"{name} {part}".rstrip() for name, part in self.data)


@irdl_attr_definition
class RunsAttr(TextAttr[Runs]):
    """Words by group: ``#ppn.runs<"loop 2: 240 x 0, 16 x 16">`` says 240 groups with none and 16 with 16 each.

    A group is an iteration of the loops outside of loop 2; with ``loop 0`` a whole run is one group.
    """

    name = "ppn.runs"

    @classmethod
    def _read(cls, text: str) -> Runs:
        level, runs = matched(_RUNS, text, "`loop NUMBER: GROUPS x WORDS, …`").groups()
        found = [matched(_RUN, part, "`GROUPS x WORDS`") for part in split_commas(runs)]
        return int(level), tuple((int(one[1]), int(one[2])) for one in found)

    def _write(self) -> str:
        level, runs = self.data
        return f"loop {level}: " + ", ".join(f"{n} x {words}" for n, words in runs)
