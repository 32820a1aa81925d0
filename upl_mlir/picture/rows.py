"""Pictures that are not to be wider than so much: each band is cut into rows, one under the other.

A row is what lies side by side in the wide picture.  An arrow from another row begins at a second place of its node, dashed
as the paper's glued node, beside the node that it goes to.  So no line runs between rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from upl_mlir.picture.layout import LayoutPlan, lay_out, lay_out_band, stacked
from upl_mlir.picture.model import Band, Box, BoxKind, Picture
from upl_mlir.picture.notes import Notes
from upl_mlir.picture.places import second_place, with_short_arrows
from upl_mlir.picture.shapes import number_notes
from upl_mlir.picture.text import LONGEST

SHORTER = (LONGEST, 32, 20)
"""How many characters a text in a row may have: the longest texts with which rows are narrow enough."""
BETWEEN = 14.0
"""Pixels between rows."""


def placed(picture: Picture, room: float | None) -> tuple[LayoutPlan, Notes]:
    """The places for a picture, with its footnotes: as wide as it likes, else at most `room` pixels if possible."""
    notes = _notes(picture, LONGEST)
    plan = with_short_arrows(picture, lambda p: lay_out(p, notes))
    for longest in SHORTER:
        if room is None or plan.width <= room:
            break
        shorter = _notes(picture, longest)
        rows = stacked(picture.bands, [_band(picture, band, shorter, room) for band in picture.bands])
        if rows.width < plan.width:
            plan, notes = rows, shorter
    return plan, notes


def _notes(picture: Picture, longest: int) -> Notes:
    notes = Notes(longest)
    number_notes(picture.boxes, picture.arrows, notes)
    return notes


@dataclass(frozen=True)
class _Column:
    """Boxes that stand one above the other, from where to where."""

    left: float
    right: float
    boxes: tuple[str, ...]


def _band(picture: Picture, band: Band, notes: Notes, room: float) -> LayoutPlan:
    """A band in as few rows as are narrow enough, or the narrowest that there is."""
    best = lay_out_band(picture, band, notes)
    mirrored = picture.mirrored and band is Band.DERIVATIVE
    columns = _columns(best, mirrored)
    for many in range(2, len(columns) + 1):
        if best.width <= room:
            break
        rows = [lay_out_band(row, band, notes) for row in _cut(picture, band, _divided(columns, many))]
        plan = LayoutPlan(width=max(r.width for r in rows))
        for row in rows:
            plan.add(row.moved(plan.width - row.width if mirrored else 0.0, plan.height))
            plan.height += row.height + BETWEEN
        plan.height -= BETWEEN
        if plan.width < best.width:
            best = plan
    return best


def _columns(plan: LayoutPlan, mirrored: bool) -> list[_Column]:
    """The boxes in columns, in the direction in which the band runs."""
    out: list[_Column] = []
    for b in sorted(plan.boxes, key=lambda b: b.at.x):
        left, right = b.at.x, b.at.x + b.at.shape.width
        if out and left < out[-1].right:
            out[-1] = _Column(out[-1].left, max(right, out[-1].right), (*out[-1].boxes, b.box.id))
        else:
            out.append(_Column(left, right, (b.box.id,)))
    return [_Column(-c.right, -c.left, c.boxes) for c in reversed(out)] if mirrored else out


def _divided(columns: Sequence[_Column], many: int) -> dict[str, int]:
    """The number of the row of each box: at most so many rows, the widest of them as narrow as can be."""
    def rows(width: float) -> list[int]:
        out, left = [0], columns[0].left
        for c in columns[1:]:
            fits = c.right - left <= width
            out.append(out[-1] if fits else out[-1] + 1)
            left = left if fits else c.left
        return out

    widths = sorted({b.right - a.left for i, a in enumerate(columns) for b in columns[i:]})
    found = next(r for r in map(rows, widths) if r[-1] < many)
    return {box: row for c, row in zip(columns, found, strict=True) for box in c.boxes}


def _cut(picture: Picture, band: Band, row_of: dict[str, int]) -> list[Picture]:
    """A picture of each row, with second places for what comes from other rows."""
    own = [b for b in picture.boxes if b.band is band]
    arrows = [a for a in picture.arrows if a.source in row_of]
    for b in own:  # where only arrows leave, or only arrows of one row come in, the box stands in that row
        before = {row_of[a.source] for a in arrows if a.target == b.id}
        after = {row_of[a.target] for a in arrows if a.source == b.id}
        if not before and after:
            row_of[b.id] = min(after)
        elif b.kind is BoxKind.OUTPUT and before:
            row_of[b.id] = max(before)
    boxes = {b.id: b for b in own}
    copies: dict[tuple[str, int], Box] = {}
    out: list[Picture] = []
    for row in sorted(set(row_of.values())):
        there = tuple(a for a in arrows if row_of[a.target] == row)
        for a in there:
            if row_of[a.source] != row:
                copies.setdefault((a.source, row), second_place(boxes[a.source], f"r{row}"))
        begin = {source: copy.id for (source, r), copy in copies.items() if r == row}
        out.append(replace(
            picture, boxes=(*(b for b in own if row_of[b.id] == row), *(c for (_, r), c in copies.items() if r == row)),
            arrows=tuple(replace(a, source=begin.get(a.source, a.source)) for a in there),
        ))  # fmt: skip
    return out
