"""Places for the multipliers and block RAMs of lanes: each lane's lie together, lane beside lane.

Out of context nothing is fixed on the device, and a placer begins with all cells in one place.  As it spreads them, blocks
of which most are taken end where one is left: with 128 of 156 multipliers, as far as 100 columns from their lanes.  Lanes
pass words to the next lane only, so they lie along a snake: rows of lanes over the device, every second one backwards.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

VERSION = 1
"""Goes on when other places are given: clocks that were found before are those of other places."""
TIGHT = 0.75
"""The share of the device's multipliers or block RAMs from which on they are given places.  Chosen."""
BANDS = ((0, 28, 52, 96), (0, 48, 96), (0, 96))
"""Where rows of lanes begin and end on an LFE5U-85F, so that each has multipliers and block RAMs: three, two, or one."""
GROUPS = (4, 13, 22, 31, 40, 49, 58, 69, 78, 87, 96, 105, 114)
"""The first column of each group of four blocks in a row of them."""

LaneOf = Callable[[str], int | None]
"""The lane that a cell belongs to, by its name; None if it belongs to none."""


@dataclass(frozen=True)
class Kind:
    """A kind of block of an LFE5U-85F: its rows, and the columns and names of the four of a group."""

    rows: tuple[int, ...]
    group: tuple[tuple[int, str], ...]

    @property
    def count(self) -> int:
        """How many the device has."""
        return len(self.rows) * len(GROUPS) * len(self.group)

    def sites(self, top: int, bottom: int) -> list[str]:
        """The sites in a band of the device, from left to right."""
        found = [(x + c, y, n) for x in GROUPS for c, n in self.group for y in self.rows if top <= y < bottom]
        return [f"X{x}/Y{y}/{name}" for x, y, name in sorted(found)]


KINDS = {
    "MULT18X18D": Kind((10, 34, 58), ((0, "MULT18_0"), (1, "MULT18_1"), (4, "MULT18_4"), (5, "MULT18_5"))),
    "DP16KD": Kind((22, 46, 70, 82), ((0, "EBR0"), (2, "EBR1"), (4, "EBR2"), (6, "EBR3"))),
}


def floorplan(kinds: Mapping[str, str], lane_of: LaneOf) -> dict[str, str]:
    """The sites of the blocks of lanes, by cell; `kinds` are those of all cells of a netlist.  None are given where most
    blocks of the device are free, or where no rows of lanes have enough of them."""
    blocks = {c: k for c, k in kinds.items() if k in KINDS}
    taken = Counter(blocks.values())
    if all(taken[k] < TIGHT * KINDS[k].count for k in KINDS):
        return {}
    mine: dict[int, dict[str, list[str]]] = defaultdict(lambda: {k: [] for k in KINDS})
    for cell, kind in blocks.items():
        lane = lane_of(cell)
        if lane is not None:
            mine[lane][kind].append(cell)
    lanes = [{k: sorted(cells) for k, cells in mine[n].items()} for n in sorted(mine)]
    for borders in BANDS:
        out = _in_rows(lanes, borders)
        if out is not None:
            return out
    return {}


def _in_rows(lanes: Sequence[Mapping[str, list[str]]], borders: Sequence[int]) -> dict[str, str] | None:
    """The sites with lanes in the rows between borders; None if a row has too few."""
    out: dict[str, str] = {}
    rows = len(borders) - 1
    for row, (top, bottom) in enumerate(pairwise(borders)):
        here = lanes[len(lanes) * row // rows : len(lanes) * (row + 1) // rows]
        here = here[::-1] if row % 2 else here
        for name, kind in KINDS.items():
            sites = kind.sites(top, bottom)
            need = sum(len(lane[name]) for lane in here)
            if need > len(sites):
                return None
            before = 0
            for lane in here:  # of the sites in turn each gets a share, and takes what is in its middle
                first, end = (len(sites) * n // max(1, need) for n in (before, before + len(lane[name])))
                spare = (end - first - len(lane[name])) // 2
                out |= dict(zip(lane[name], sites[first + spare :], strict=False))
                before += len(lane[name])
    return out
