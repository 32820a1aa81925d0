"""Nodes that are drawn once more, beside the node that they send to, as the arrow there would be long.

It is the paper's glued node: its second place has the name and the index fields, with dashed outlines, and the arrow begins
there.  An arrow that runs against its band closes a loop, and is left as it is: a reader looks for the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from upl_mlir.picture.layout import LayoutPlan, PlacedArrow
from upl_mlir.picture.model import Band, Box, BoxKind, Picture

LONG = 1200.0
"""Pixels: about what a reader sees at once."""
SHORTER, WIDER, ROW = 0.9, 1.05, 160.0
"""A picture is taken if its lines are that much shorter, and it is not that much wider nor higher by a row of boxes."""


def with_short_arrows(picture: Picture, lay_out: Callable[[Picture], LayoutPlan]) -> LayoutPlan:
    """The places for a picture, in which nodes may stand again where that makes it clearer."""
    plan = lay_out(picture)
    split = _split(picture, plan)
    if split is None:
        return plan
    again = lay_out(split)
    fits = again.width < WIDER * plan.width and again.height < plan.height + ROW
    return again if fits and _lines(again) < SHORTER * _lines(plan) else plan


def _split(picture: Picture, plan: LayoutPlan) -> Picture | None:
    """The picture with a second place for the source of each arrow that is long; None if there is none."""
    boxes = {b.id: b for b in picture.boxes}
    left = {b.id: sum(a.source == b.id for a in picture.arrows) for b in picture.boxes}
    copies: dict[tuple[str, str], Box] = {}
    moved: dict[str, str] = {}
    for placed in sorted(plan.arrows, key=_length, reverse=True):
        a = placed.arrow
        source = boxes[a.source]
        if _length(placed) < LONG or source.glued or left[a.source] < 2 or _runs_back(placed, picture, source):
            continue
        left[a.source] -= 1  # one of its arrows stays with the node
        copy = copies.setdefault((a.source, a.target), second_place(source, f"p{len(copies)}"))
        moved[a.id] = copy.id
    if not moved:
        return None
    arrows = tuple(replace(a, source=moved.get(a.id, a.source)) for a in picture.arrows)
    return replace(picture, boxes=(*picture.boxes, *copies.values()), arrows=arrows)


def second_place(box: Box, suffix: str) -> Box:
    """The box once more, with nothing in it; `suffix` makes its id another one."""
    kind = BoxKind.NODE if box.kind is BoxKind.LONE else box.kind
    return replace(box, id=f"{box.id}{suffix}", kind=kind, glued=True, ports=(), lines=(), domain="")


def _runs_back(placed: PlacedArrow, picture: Picture, source: Box) -> bool:
    onwards = placed.line[-1][0] > placed.line[0][0]
    return onwards == (picture.mirrored and source.band is Band.DERIVATIVE)


def _length(placed: PlacedArrow) -> float:
    return sum(map(math.dist, placed.line, placed.line[1:]))


def _lines(plan: LayoutPlan) -> float:
    return sum(map(_length, plan.arrows))
