"""A laid-out picture as SVG text: one group per box and arrow, each with its tooltip and what the page needs to find it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from upl_mlir.picture.layout import PlacedArrow, PlacedBox
from upl_mlir.picture.model import Band, Picture
from upl_mlir.picture.notes import Notes
from upl_mlir.picture.rows import placed
from upl_mlir.picture.shapes import Form, Mark, Outline, PlacedShape, Point, Words, moved
from upl_mlir.picture.style import Theme, style_sheet
from upl_mlir.picture.text import SMALL, escape, fold, mark_width, pieces, widest, width

MARGIN, ROUND, TITLE = 18.0, 7.0, 17.0
JOIN = 3  # radius of the dot where arrows to the same input join
NOTE, NOTE_LINE = 38.0, 16.0  # room for the number of a footnote, height of a line of its text
CONSTANT, CONSTANT_LINES = 70, 6  # characters of a line of a constant, and how many lines it may have
CAPTIONS = {Band.PROGRAM: "program", Band.DERIVATIVE: "derivative"}


def svg_of(picture: Picture, *, theme: Theme | None = Theme.AUTO, at_most: float | None = None) -> str:
    """The picture as an SVG document; without a theme it has no styles, for a page that has its own.

    It is at most so many pixels wide, if a single node with its arrows is not wider.
    Raises UplError (UPL1804) without the JavaScript engine that lays it out.
    """
    plan, notes = placed(picture, None if at_most is None else at_most - 2 * MARGIN)
    head, head_width, head_height = _header(picture, plan.width, None if at_most is None else at_most - 2 * MARGIN)
    wide = max(plan.width, head_width) + 2 * MARGIN
    legend, legend_height = _legend(notes, wide - 2 * MARGIN, MARGIN + head_height + plan.height)
    height = plan.height + head_height + legend_height + 2 * MARGIN
    dy = MARGIN + head_height
    title = escape(f"UPL program {picture.name}")
    size = f'width="{_n(wide)}" height="{_n(height)}" viewBox="0 0 {_n(wide)} {_n(height)}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="upl-picture" {size} role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        *([f"<style>{style_sheet(theme)}</style>"] if theme is not None else []),
        f'<rect class="u-page" x="0" y="0" width="{_n(wide)}" height="{_n(height)}"/>',
        *(_mark(m) for m in head),
    ]
    inner = wide - 2 * MARGIN
    for band, y, h in plan.bands:
        lines.append(_mark(Form(Outline.RECT, "u-band", MARGIN, y + dy, inner, h)))
        caption = f"{CAPTIONS[band]} ←" if band is Band.DERIVATIVE and picture.mirrored else f"{CAPTIONS[band]} →"
        lines.append(_mark(Words(caption, "u-text", MARGIN + 12, y + dy + 15, italic=True)))
    lines += _arrows(plan.arrows, MARGIN, dy)
    lines += (_box(b, MARGIN, dy) for b in plan.boxes)
    return "\n".join([*lines, *legend, "</svg>", ""])


def _legend(notes: Notes, room: float, y: float) -> tuple[list[str], float]:
    """The footnotes under the picture, which ends at y, and their height."""
    if not notes.numbers:
        return [], 0.0
    columns = max(int((room - NOTE) / width("x", SMALL)), 10)
    out, at = ['<g class="u-notes">'], y + NOTE / 2
    for text, number in notes.numbers.items():
        out.append(f'<g class="u-note" data-note="{number}">{_mark(Words(notes.mark(text), "u-text", MARGIN, at, SMALL))}')
        for line in fold(text, columns):
            out.append(_mark(Words(line, "u-text", MARGIN + NOTE, at, SMALL)))
            at += NOTE_LINE
        out.append("</g>")
        at += NOTE_LINE / 4
    return [*out, "</g>"], at - y


def _header(picture: Picture, plan_width: float, room: float | None) -> tuple[list[Mark], float, float]:
    """The program's name on the left and the box of constants at the top on the right; width and height.

    The box stands under the name if there is too little room beside it.
    """
    title = Words(picture.name, "u-text", MARGIN, MARGIN + TITLE, TITLE, bold=True)
    columns = CONSTANT if room is None else min(CONSTANT, max(int((room - 20) / width("x")), 10))
    lines = [line for c in picture.constants for line in _constant(c, columns)]
    if not lines:
        return [title], title.width, 2 * TITLE + 4
    wide, high = widest(lines) + 20.0, len(lines) * 18.0 + 10.0
    beside = title.width + 40.0 + wide
    under = room is not None and beside > max(room, plan_width)
    total = max(plan_width, title.width, wide) if under else max(plan_width, beside)
    x, y = MARGIN + total - wide, MARGIN + (2 * TITLE + 4 if under else 0.0)
    marks: list[Mark] = [title, Form(Outline.RECT, "u-constants", x, y, wide, high)]
    marks += [Words(t, "u-text", x + 10, y + 5 + (i + 0.5) * 18.0) for i, t in enumerate(lines)]
    return marks, total, y - MARGIN + max(high, 2 * TITLE) + 14.0


def _constant(text: str, columns: int) -> list[str]:
    """A constant in lines, of which only the first ones are shown where there are many."""
    first, *rest = fold(text, columns)
    rest = [f"  {line}" for line in fold(text[len(first) :].strip(), columns - 2)] if rest else []
    return [first, *rest] if len(rest) < CONSTANT_LINES else [first, *rest[: CONSTANT_LINES - 2], "  …"]


def _box(placed: PlacedBox, dx: float, dy: float) -> str:
    box = placed.box
    facts = {"id": box.id, "name": box.name, "kind": box.kind.value, "primal": box.primal, "where": box.where}
    what = "".join(f' data-{k}="{escape(v)}"' for k, v in facts.items() if v)
    glued = " u-second" if box.glued else ""
    return (
        f'<g class="u-box{glued}" tabindex="0"{what}><title>{escape(box.title)}</title>'
        f"{''.join(_marks(placed.at, dx, dy))}{''.join(_marks(placed.domain, dx, dy)) if placed.domain else ''}</g>"
    )


def _arrows(arrows: Sequence[PlacedArrow], dx: float, dy: float) -> Iterator[str]:
    """Lines first, so that no line runs over a text."""
    for a in arrows:
        yield _arrow(a, dx, dy)


def _arrow(placed: PlacedArrow, dx: float, dy: float) -> str:
    a = placed.arrow
    facts = {"id": a.id, "source": a.source, "target": a.target, "port": a.port, "rule": a.rule, "where": a.where}
    what = "".join(f' data-{k}="{escape(v)}"' for k, v in facts.items() if v)
    line = [(x + dx, y + dy) for x, y in placed.line]
    texts = [m for s in (placed.label, placed.base) if s is not None for m in _marks(s, dx, dy)]
    joins = "".join(f'<circle class="u-head" cx="{_n(x + dx)}" cy="{_n(y + dy)}" r="{JOIN}"/>' for x, y in placed.joins)
    derived = f" u-derived{' u-kept' if a.keeps else ''}" if a.rule else ""
    return (
        f'<g class="u-arrow{derived}" tabindex="0"{what}><title>{escape(a.title)}</title>'
        f'<path class="u-line" d="{_path(line)}"/>{_head(line)}{joins}{"".join(texts)}</g>'
    )


def _marks(at: PlacedShape, dx: float, dy: float) -> Iterator[str]:
    for m in at.shape.marks:
        yield _mark(moved(m, at.x + dx, at.y + dy))


def _mark(m: Mark) -> str:
    if isinstance(m, Words):
        return _words(m)
    style = f"{m.style} u-glued" if m.dashed else m.style
    match m.outline:
        case Outline.RECT:
            return (
                f'<rect class="{style}" x="{_n(m.x)}" y="{_n(m.y)}" width="{_n(m.width)}" height="{_n(m.height)}" rx="3"/>'
            )
        case Outline.OVAL:
            rx, ry = m.width / 2, m.height / 2
            port = f' data-port="{escape(m.port)}"'
            return f'<ellipse class="{style}" cx="{_n(m.x + rx)}" cy="{_n(m.y + ry)}" rx="{_n(rx)}" ry="{_n(ry)}"{port}/>'
        case _:
            points = " ".join(f"{_n(x)},{_n(y)}" for x, y in _corners(m))
            return f'<polygon class="{style}" points="{points}"/>'


def _words(m: Words) -> str:
    """A line of text; the numbers of footnotes in it stand in circles."""
    weight = ' font-weight="bold"' if m.bold else ""
    slope = ' font-style="italic"' if m.italic else ""
    out, x = "", m.x
    for piece, is_mark in pieces(m.text):
        if is_mark:
            out += _number(piece, x, m.y, m.size)
            x += mark_width(piece, m.size)
            continue
        text, at = piece.strip(), x + width(piece[: len(piece) - len(piece.lstrip())], m.size)  # not all keep spaces at ends
        fixed = f' textLength="{_n(width(text, m.size))}" lengthAdjust="spacingAndGlyphs"'
        how = f'font-size="{_n(m.size)}"{weight}{slope}{fixed}'
        out += f'<text class="{m.style}" x="{_n(at)}" y="{_n(m.y + 0.36 * m.size)}" {how}>{escape(text)}</text>'
        x += width(piece, m.size)
    return out


def _number(number: str, x: float, y: float, size: float) -> str:
    """The number of a footnote in its circle; (x, y) is the left end at half its height."""
    across, high, small = mark_width(number, size) - 2, 1.3 * size, 0.8 * size
    long = width(number, small)
    return (
        f'<rect class="u-mark" x="{_n(x + 1)}" y="{_n(y - high / 2)}" width="{_n(across)}" height="{_n(high)}" '
        f'rx="{_n(high / 2)}"/><text class="u-on-mark" x="{_n(x + 1 + (across - long) / 2)}" y="{_n(y + 0.36 * small)}" '
        f'font-size="{_n(small)}" textLength="{_n(long)}" lengthAdjust="spacingAndGlyphs">{number}</text>'
    )


def _corners(m: Form) -> list[Point]:
    """The corners of a hexagon or of a host port."""
    x, y, w, h = m.x, m.y, m.width, m.height
    if m.outline is Outline.HEXAGON:
        s = 8.0
        return [(x, y + h / 2), (x + s, y), (x + w - s, y), (x + w, y + h / 2), (x + w - s, y + h), (x + s, y + h)]
    s = 14.0
    if m.outline is Outline.FLAG:
        points = [(x, y), (x + w - s, y), (x + w, y + h / 2), (x + w - s, y + h), (x, y + h)]
    else:
        points = [(x, y), (x + w, y), (x + w, y + h), (x, y + h), (x + s, y + h / 2)]
    return [(2 * x + w - px, py) for px, py in points] if m.mirrored else points


def _path(line: Sequence[Point]) -> str:
    """A line with round corners, which ends where the head begins."""
    parts = [f"M{_n(line[0][0])} {_n(line[0][1])}"]
    for before, at, after in zip(line, line[1:], line[2:], strict=False):
        r = min(ROUND, math.dist(before, at) / 2, math.dist(at, after) / 2)
        (x0, y0), (x1, y1) = _towards(at, before, r), _towards(at, after, r)
        parts.append(f"L{_n(x0)} {_n(y0)}Q{_n(at[0])} {_n(at[1])} {_n(x1)} {_n(y1)}")
    end = _towards(line[-1], line[-2], 6.0)
    return "".join([*parts, f"L{_n(end[0])} {_n(end[1])}"])


def _head(line: Sequence[Point]) -> str:
    """The head of an arrow, a triangle."""
    (x, y), back = line[-1], _towards(line[-1], line[-2], 10.0)
    dx, dy = (x - back[0]) * 0.4, (y - back[1]) * 0.4
    points = ((x, y), (back[0] - dy, back[1] + dx), (back[0] + dy, back[1] - dx))
    return f'<polygon class="u-head" points="{" ".join(f"{_n(px)},{_n(py)}" for px, py in points)}"/>'


def _towards(a: Point, b: Point, length: float) -> Point:
    """The point so far from `a` on the way to `b`."""
    d = math.dist(a, b) or 1.0
    return a[0] + (b[0] - a[0]) * length / d, a[1] + (b[1] - a[1]) * length / d


def _n(x: float) -> str:
    """A number with at most two digits behind the point."""
    return f"{x:.2f}".rstrip("0").rstrip(".") if x else "0"
