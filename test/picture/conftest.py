"""Reading a picture back from its SVG: what stands where, as a reader's eye finds it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Area:
    """A rectangle in which something is drawn."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Area, slack: float = 0.6) -> bool:
        """Whether they have more than a hair in common."""
        return (
            min(self.right, other.right) - max(self.left, other.left) > slack
            and min(self.bottom, other.bottom) - max(self.top, other.top) > slack
        )

    def holds(self, x: float, y: float, slack: float = 0.6) -> bool:
        """Whether a point lies in it."""
        return self.left - slack <= x <= self.right + slack and self.top - slack <= y <= self.bottom + slack

    def joined(self, other: Area) -> Area:
        """The smallest area round both."""
        return Area(
            min(self.left, other.left), min(self.top, other.top),
            max(self.right, other.right), max(self.bottom, other.bottom),
        )  # fmt: skip


@dataclass(frozen=True)
class Outline:
    """A closed outline: its kind, class, area, and for polygons its corners."""

    tag: str
    style: str
    area: Area
    corners: tuple[tuple[float, float], ...]

    def holds(self, x: float, y: float) -> bool:
        """Whether a point lies inside, by the outline itself and not its area."""
        a = self.area
        if self.tag == "rect":
            return a.holds(x, y)
        if self.tag == "ellipse":
            cx, cy = (a.left + a.right) / 2, (a.top + a.bottom) / 2
            return ((x - cx) / (a.right - cx + 0.6)) ** 2 + ((y - cy) / (a.bottom - cy + 0.6)) ** 2 <= 1
        inside = False
        for (x0, y0), (x1, y1) in zip(self.corners, (*self.corners[1:], self.corners[0]), strict=True):
            if (y0 > y) != (y1 > y) and x < x0 + (y - y0) / (y1 - y0) * (x1 - x0):
                inside = not inside
        return inside


@dataclass(frozen=True)
class Text:
    """A line of text: its words, class and the area of its letters."""

    words: str
    style: str
    area: Area


@dataclass
class Group:
    """A box or an arrow of the picture."""

    facts: dict[str, str]
    title: str
    styles: tuple[str, ...]
    outlines: list[Outline] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
    marks: list[Outline] = field(default_factory=list)  # round numbers of footnotes
    path: str = ""

    def words(self, style: str) -> list[str]:
        """The texts of a class, in order."""
        return [t.words for t in self.texts if t.style == style]

    def styled(self, style: str) -> list[Outline]:
        """The outlines of a class."""
        return [o for o in self.outlines if style in o.style.split()]

    @property
    def points(self) -> list[tuple[float, float]]:
        """The corners of an arrow's line."""
        numbers = [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", self.path)]
        return list(zip(numbers[::2], numbers[1::2], strict=True))


@dataclass
class Reading:
    """A picture as read."""

    root: ET.Element
    boxes: list[Group]
    arrows: list[Group]
    loose: Group  # what stands in no group: title, constants, bands
    notes: dict[str, str]  # the footnotes by their numbers, without spaces

    def box(self, name: str, *, second: bool = False) -> Group:
        """The box of that name; `second`: its second place."""
        return next(b for b in self.boxes if b.facts["name"] == name and ("u-second" in b.styles) is second)

    def between(self, source: str, target: str) -> list[Group]:
        """The arrows from one box to another, by names."""
        names = {b.facts["id"]: b.facts["name"] for b in self.boxes}
        return [a for a in self.arrows if (names[a.facts["source"]], names[a.facts["target"]]) == (source, target)]


def _area(e: ET.Element) -> tuple[Area, tuple[tuple[float, float], ...]]:
    n = {k: float(v) for k, v in e.attrib.items() if k in ("x", "y", "width", "height", "cx", "cy", "rx", "ry")}
    if e.tag == f"{SVG}rect":
        return Area(n["x"], n["y"], n["x"] + n["width"], n["y"] + n["height"]), ()
    if e.tag == f"{SVG}ellipse":
        return Area(n["cx"] - n["rx"], n["cy"] - n["ry"], n["cx"] + n["rx"], n["cy"] + n["ry"]), ()
    corners = tuple((float(x), float(y)) for x, y in (p.split(",") for p in e.attrib["points"].split()))
    xs, ys = zip(*corners, strict=True)
    return Area(min(xs), min(ys), max(xs), max(ys)), corners


def _fill(group: Group, elements: Iterator[ET.Element]) -> None:
    for e in elements:
        tag = e.tag.removeprefix(SVG)
        style = e.attrib.get("class", "")
        if tag in ("rect", "ellipse", "polygon") and style != "u-head":
            (group.marks if style == "u-mark" else group.outlines).append(Outline(tag, style, *_area(e)))
        elif tag == "text":
            size, x, y = float(e.attrib["font-size"]), float(e.attrib["x"]), float(e.attrib["y"])
            area = Area(x, y - 0.72 * size, x + float(e.attrib["textLength"]), y + 0.05 * size)
            group.texts.append(Text(e.text or "", style, area))
        elif tag == "path":
            group.path = e.attrib["d"]


def _note(g: ET.Element) -> tuple[str, str]:
    number, *lines = (t.text or "" for t in g.iter(f"{SVG}text"))
    return number, "".join("".join(lines).split())


def _read(svg: str) -> Reading:
    root = ET.fromstring(svg)
    found: dict[str, list[Group]] = {"u-box": [], "u-arrow": []}
    notes: dict[str, str] = {}
    for g in root.findall(f"{SVG}g"):
        if g.attrib["class"] == "u-notes":
            notes |= dict(map(_note, g))
            continue
        styles = tuple(g.attrib["class"].split())
        facts = {k.removeprefix("data-"): v for k, v in g.attrib.items() if k.startswith("data-")}
        group = Group(facts, g.findtext(f"{SVG}title") or "", styles)
        _fill(group, iter(g))
        found[styles[0]].append(group)
    loose = Group({}, root.findtext(f"{SVG}title") or "", ())
    _fill(loose, iter(root))
    return Reading(root, found["u-box"], found["u-arrow"], loose, notes)


@pytest.fixture(scope="session")
def read() -> Callable[[str], Reading]:
    """The function that reads an SVG document."""
    return _read


def _inside(found: Reading) -> None:
    """Every text with a ground of its own stands on it; every mark stands on the page."""
    grounds = {"u-on-fields": "u-fields", "u-on-port": "u-port", "u-on-index": "u-index", "u-condition": "u-when"}
    width, height = float(found.root.attrib["width"]), float(found.root.attrib["height"])
    for g in (*found.boxes, *found.arrows, found.loose):
        for t in g.texts:
            a = t.area
            assert a.left >= 0 and a.right <= width and a.top >= 0 and a.bottom <= height, t
            if t.style == "u-domain" or g is found.loose:
                continue
            styles = [grounds[t.style]] if t.style in grounds else ["u-node", "u-host", "u-value"]
            corners = [(x, y) for x in (a.left, a.right) for y in (a.top, a.bottom)]
            holders = g.marks if t.style == "u-on-mark" else [o for s in styles for o in g.styled(s)]
            assert any(all(o.holds(x, y) for x, y in corners) for o in holders), (g.title, t)


def _apart(found: Reading) -> None:
    """No two boxes, labels, conditions, domains overlap."""
    things: list[tuple[str, Area]] = []
    for b in found.boxes:
        whole = b.outlines[0].area
        for o in b.outlines:
            whole = whole.joined(o.area)
        things.append((b.facts["name"], whole))
        things += [(f"domain of {b.facts['name']}", t.area) for t in b.texts if t.style == "u-domain"]
    for a in found.arrows:
        things += [(f"label of {a.title}", o.area) for o in a.outlines]
    things += [("constants", o.area) for o in found.loose.styled("u-constants")]
    for i, (name, area) in enumerate(things):
        for other, there in things[i + 1 :]:
            assert not area.overlaps(there), (name, other)


def _lines_are_clear(found: Reading) -> None:
    """No arrow runs through a box, or through the text of another arrow."""
    for a in found.arrows:
        for (x0, y0), (x1, y1) in zip(a.points, a.points[1:], strict=False):
            for k in range(1, 20):
                x, y = x0 + (x1 - x0) * k / 20, y0 + (y1 - y0) * k / 20
                for b in found.boxes:
                    own = b.facts["id"] in (a.facts["source"], a.facts["target"])
                    assert own or not any(o.area.holds(x, y, -0.6) for o in b.outlines), (a.title, b.facts)
                for other in found.arrows:
                    if other is not a:
                        assert not any(o.area.holds(x, y, -0.6) for o in other.outlines), (a.title, other.title)


def _tidy(found: Reading) -> None:
    _inside(found)
    _apart(found)
    _lines_are_clear(found)


@pytest.fixture(scope="session")
def tidy() -> Callable[[Reading], None]:
    """The function that asserts: text stands inside its shape, nothing overlaps, no arrow runs through another thing."""
    return _tidy
