"""The shapes of the notation in their own coordinates: what a box and the texts of an arrow look like, and how large
they are.

A shape is a list of marks (outlines and lines of text) with its outer size and the points where arrows enter and leave.
Lengths are pixels; y goes down.  In a mirrored band arrows run to the left: inputs are on the right edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from upl_mlir.picture.model import Arrow, Box, BoxKind
from upl_mlir.picture.notes import Notes
from upl_mlir.picture.text import SIZE, SMALL, widest, width, wrap

OVERHANG = 13.0  # how far the ovals of inputs stand out of their box
ROW, LINE, SMALL_LINE, CHIP = 30.0, 18.0, 14.0, 18.0  # distances between inputs, between lines of text, between conditions
OUT = 22.0  # between arrows that leave, at least
BADGE = 20.0  # height of a hexagon
HEAD = 32.0  # height of a box's first row
DOMAIN_COLUMNS, DOMAIN_LINES = 26, 4  # characters of a line of a domain, and how many lines stand under a box


class Outline(Enum):
    """The outlines that there are."""

    RECT = "rect"
    OVAL = "oval"
    HEXAGON = "hexagon"
    FLAG = "flag"  # a host input: points to where its arrows go
    NOTCH = "notch"  # a host output: open where they come from


@dataclass(frozen=True)
class Form:
    """An outline with its class of style."""

    outline: Outline
    style: str
    x: float
    y: float
    width: float
    height: float
    mirrored: bool = False
    dashed: bool = False
    port: str = ""  # the input that it is


@dataclass(frozen=True)
class Words:
    """One line of text; (x, y) is its left end at half its height."""

    text: str
    style: str
    x: float
    y: float
    size: float = SIZE
    bold: bool = False
    italic: bool = False

    @property
    def width(self) -> float:
        """Width of the line."""
        return width(self.text, self.size)


Mark = Form | Words
Point = tuple[float, float]


@dataclass
class Shape:
    """Marks, outer size, and for every input and every leaving arrow the point on the outer edge and the one on the
    drawn outline, which lies further in."""

    width: float = 0.0
    height: float = 0.0
    marks: list[Mark] = field(default_factory=list[Mark])
    entries: dict[str, tuple[Point, Point]] = field(default_factory=dict[str, tuple[Point, Point]])
    exits: list[tuple[Point, Point]] = field(default_factory=list[tuple[Point, Point]])


@dataclass(frozen=True)
class PlacedShape:
    """A shape and its upper left corner."""

    shape: Shape
    x: float
    y: float


def hexagon(text: str, x: float, y: float, style: str) -> tuple[Form, Words]:
    """A hexagon round a text; (x, y) is its upper left corner."""
    form = Form(Outline.HEXAGON, f"u-{style}", x, y, badge_width(text), BADGE)
    return form, Words(text, f"u-on-{style}", x + (form.width - width(text)) / 2, y + BADGE / 2)


def badge_width(text: str) -> float:
    """Width of a hexagon round a text."""
    return width(text) + 22.0


def box_shape(box: Box, leaving: Sequence[Arrow], notes: Notes, *, mirrored: bool) -> Shape:
    """The shape of a box that these arrows leave; between them there is room for what stands at their base."""
    bases = [base_shape(a, notes) for a in leaving]
    apart = max((b.height + 8.0 for b in bases if b is not None), default=OUT)
    shape = {BoxKind.NODE: _node, BoxKind.LONE: _lone}.get(box.kind, _host)
    return shape(_shortened(box, notes), len(leaving), max(apart, OUT), mirrored)


def _shortened(box: Box, notes: Notes) -> Box:
    """The box with a footnote for what is long: of an input the number of summands, of an assignment the value."""

    def port(text: str) -> str:
        head, bracket, rest = text.partition("[")
        count, _, behind = rest.rpartition("]")
        return notes.short(count, f"{head}[", f"]{behind}") if bracket else notes.short(text)

    def line(text: str) -> str:
        head, equals, value = text.partition(" = ")
        return notes.short(value, f"{head} = ") if equals else notes.short(text)

    return replace(
        box, fields=box.fields and notes.short(box.fields), lines=tuple(map(line, box.lines)),
        ports=tuple(replace(p, text=port(p.text)) for p in box.ports),
    )  # fmt: skip


def _node(box: Box, exits: int, apart: float, mirrored: bool) -> Shape:
    """A rectangle with name, index fields and assignments, and its inputs as ovals on the edge where arrows come in."""
    gap = 5.0 if box.glued else 0.0  # for the second outline
    ports, lines = [p.text for p in box.ports], box.lines
    oval = widest(ports) * 1.1 + 20.0 if ports else 0.0
    out = OVERHANG if ports else 0.0
    badge = badge_width(box.fields) + 12.0 if box.fields is not None else 0.0
    name = box.name
    inner = (oval - out if ports else 0.0) + (widest(lines) + 22.0 if lines else 12.0)
    w = max(width(name) + badge + 24.0, inner, 64.0)
    rows = max(len(ports) * ROW, len(lines) * LINE + 4.0 if lines else 0.0, exits * apart - 2.0, 0.0)
    h = HEAD + rows + (6.0 if rows else 0.0)
    x = gap if mirrored else max(out, gap)
    total = x + w + (max(out, gap) if mirrored else gap)
    shape = Shape(total, h + 2 * gap)
    add = shape.marks.append
    if box.glued:
        add(Form(Outline.RECT, "u-node", x - 4, gap - 4, w + 8, h + 8, dashed=True))
    add(Form(Outline.RECT, "u-node", x, gap, w, h, dashed=box.glued))
    add(Words(name, "u-text", x + 12, gap + HEAD / 2, bold=True))
    if box.fields is not None:
        shape.marks += hexagon(box.fields, x + w - badge, gap + (HEAD - BADGE) / 2, "fields")
    content = gap + HEAD + (rows - len(ports) * ROW) / 2
    for i, (port, text) in enumerate(zip(box.ports, ports, strict=True)):
        left = x + w + out - oval if mirrored else x - out
        y = content + i * ROW + ROW / 2
        add(Form(Outline.OVAL, "u-port", left, y - 12, oval, 24.0, port=port.name))
        add(Words(text, "u-on-port", left + (oval - width(text)) / 2, y))
        shape.entries[port.name] = ((total if mirrored else 0.0, y), (left + oval if mirrored else left, y))
    start = gap + HEAD + (rows - len(lines) * LINE) / 2
    at = x + 10.0 if mirrored else x + (oval - out + 10.0 if ports else 12.0)
    for i, text in enumerate(lines):
        add(Words(text, "u-text", at, start + i * LINE + LINE / 2))
    base = gap + HEAD + (rows - exits * apart) / 2 if rows else gap + (h - exits * apart) / 2
    for i in range(exits):
        y = base + (i + 0.5) * apart
        shape.exits.append(((0.0, y), (x, y)) if mirrored else ((total, y), (x + w, y)))
    return shape


def _lone(box: Box, exits: int, apart: float, mirrored: bool) -> Shape:
    """The input of a node that is nothing else, with its index fields beneath."""
    port = box.ports[0]
    second = port.text if port.gathers or ":" in port.text else ""
    texts = [box.name, *([second] if second else [])]
    ry = max(26.0 if second else 18.0, exits * apart * 0.54)
    half = LINE * len(texts) / 2
    rx = max(widest(texts) / 2 / math.sqrt(1 - min(half / ry, 0.85) ** 2) + 8.0, 1.2 * ry)
    badge = badge_width(box.fields) if box.fields is not None else 0.0
    w = max(2 * rx, badge)
    left, cx = (w - 2 * rx) / 2, w / 2
    shape = Shape(w, 2 * ry + (BADGE - 7.0 if badge else 0.0))
    shape.marks.append(Form(Outline.OVAL, "u-port", left, 0.0, 2 * rx, 2 * ry, port=port.name))
    lift = 2.0 if badge else 0.0
    for i, text in enumerate(texts):
        y = ry - half + (i + 0.5) * LINE - lift
        shape.marks.append(Words(text, "u-on-port", cx - width(text) / 2, y, bold=i == 0))
    if box.fields is not None:
        shape.marks += hexagon(box.fields, cx - badge / 2, 2 * ry - 7.0, "fields")
    tips = ((w, left + 2 * rx), (0.0, left))
    outer, drawn = tips[0] if mirrored else tips[1]
    shape.entries[port.name] = ((outer, ry), (drawn, ry))
    for i in range(exits):
        y = ry + (i - (exits - 1) / 2) * apart
        reach = rx * math.sqrt(max(0.0, 1 - ((y - ry) / ry) ** 2))
        shape.exits.append(((0.0, y), (cx - reach, y)) if mirrored else ((w, y), (cx + reach, y)))
    return shape


def _host(box: Box, exits: int, apart: float, mirrored: bool) -> Shape:
    """A host port: a flag that points along its arrows, or one that is open to them; index fields beneath."""
    text = f"{box.name}: {box.type}" if box.type else box.name
    gap = 5.0 if box.glued else 0.0
    h = max(32.0, exits * apart + 6.0)
    point = 14.0
    w = max(width(text) + 2 * point + 18.0, 60.0)
    badge = badge_width(box.fields) if box.fields is not None else 0.0
    total = max(w + 2 * gap, badge)
    x = (total - w) / 2
    shape = Shape(total, h + gap + (BADGE - 6.0 if badge else gap))
    outline = Outline.FLAG if box.kind is BoxKind.INPUT else Outline.NOTCH
    if box.glued:
        around = Form(outline, "u-host", x - 4, gap - 4, w + 8, h + 8, mirrored, dashed=True)
        shape.marks.append(around)
    shape.marks.append(Form(outline, "u-host", x, gap, w, h, mirrored, box.glued))
    shape.marks.append(Words(text, "u-text", x + (w - width(text)) / 2, gap + h / 2 - (2 if badge else 0), bold=True))
    if box.fields is not None:
        shape.marks += hexagon(box.fields, (total - badge) / 2, gap + h - 6.0, "fields")
    if box.kind is BoxKind.OUTPUT:
        y = gap + h / 2
        shape.entries[box.name] = ((total, y), (x + w - point, y)) if mirrored else ((0.0, y), (x + point, y))
    for i in range(exits):
        y = gap + h / 2 + (i - (exits - 1) / 2) * apart
        inset = point * abs(y - gap - h / 2) / (h / 2)
        shape.exits.append(((0.0, y), (x + inset, y)) if mirrored else ((total, y), (x + w - inset, y)))
    return shape


def domain_shape(box: Box, notes: Notes) -> Shape | None:
    """The domain as a comment, which stands beneath the box."""
    if not box.domain:
        return None
    lines = wrap(box.domain, DOMAIN_COLUMNS)
    if len(lines) > DOMAIN_LINES or max(map(len, lines)) > max(notes.longest, DOMAIN_COLUMNS):
        lines = [notes.mark(box.domain)]
    first = width("// ", SMALL)
    shape = Shape(first + widest(lines, SMALL), len(lines) * SMALL_LINE + 2)
    shape.marks.append(Words("//", "u-domain", 0.0, 2 + SMALL_LINE / 2, SMALL))
    shape.marks += [Words(t, "u-domain", first, 2 + (i + 0.5) * SMALL_LINE, SMALL) for i, t in enumerate(lines)]
    return shape


def number_notes(boxes: Sequence[Box], arrows: Sequence[Arrow], notes: Notes) -> None:
    """Give the footnotes their numbers, in the order in which a program has its nodes, each with its arrows."""
    for b in boxes:
        own = [a for a in arrows if a.source == b.id]
        box_shape(b, [], notes, mirrored=False)
        domain_shape(b, notes)
        for a in own:
            base_shape(a, notes)
            label_shape(a, notes, mirrored=False)


def moved(mark: Mark, dx: float, dy: float) -> Mark:
    """The mark somewhere else."""
    return replace(mark, x=mark.x + dx, y=mark.y + dy)


def label_shape(arrow: Arrow, notes: Notes, *, mirrored: bool) -> Shape | None:
    """What stands on an arrow, in the order in which it passes: the value in a rectangle, the index in a hexagon."""
    parts: list[tuple[str, bool]] = []
    if arrow.value or arrow.count:
        parts.append((notes.value(arrow.value, arrow.count), True))
    if arrow.index is not None:
        parts.append((notes.short(arrow.index), False))
    if not parts:
        return None
    x, shape = 0.0, Shape(height=BADGE + 2.0)
    for text, is_value in reversed(parts) if mirrored else parts:
        if is_value:
            w = width(text) + 12.0
            shape.marks.append(Form(Outline.RECT, "u-value", x, 1.0, w, BADGE))
            shape.marks.append(Words(text, "u-text", x + 6.0, 1.0 + BADGE / 2))
            x += w
        else:
            shape.marks += hexagon(text, x, 1.0, "index")
            x += badge_width(text)
        x += 4.0
    shape.width = x - 4.0
    return shape


def base_shape(arrow: Arrow, notes: Notes) -> Shape | None:
    """What stands at the base of an arrow: its condition, and the points that it is sent for."""
    texts = _base_texts(arrow, notes)
    if not texts:
        return None
    shape = Shape(widest(texts, SMALL) + 10.0, len(texts) * CHIP)
    for i, text in enumerate(texts):
        shape.marks.append(Form(Outline.RECT, "u-when", 0.0, i * CHIP, width(text, SMALL) + 10.0, CHIP - 2.0))
        shape.marks.append(Words(text, "u-condition", 5.0, (i + 0.5) * CHIP - 1.0, SMALL, italic=True))
    return shape


def _base_texts(arrow: Arrow, notes: Notes) -> Sequence[str]:
    condition = [notes.short(arrow.condition, "if ")] if arrow.condition else []
    return [*condition, *([notes.short(arrow.loops, "for ")] if arrow.loops else [])]
