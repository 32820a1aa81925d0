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
            group.outlines.append(Outline(tag, style, *_area(e)))
        elif tag == "text":
            size, x, y = float(e.attrib["font-size"]), float(e.attrib["x"]), float(e.attrib["y"])
            area = Area(x, y - 0.72 * size, x + float(e.attrib["textLength"]), y + 0.05 * size)
            group.texts.append(Text(e.text or "", style, area))
        elif tag == "path":
            group.path = e.attrib["d"]


def _read(svg: str) -> Reading:
    root = ET.fromstring(svg)
    found: dict[str, list[Group]] = {"u-box": [], "u-arrow": []}
    for g in root.findall(f"{SVG}g"):
        styles = tuple(g.attrib["class"].split())
        facts = {k.removeprefix("data-"): v for k, v in g.attrib.items() if k.startswith("data-")}
        group = Group(facts, g.findtext(f"{SVG}title") or "", styles)
        _fill(group, iter(g))
        found[styles[0]].append(group)
    loose = Group({}, root.findtext(f"{SVG}title") or "", ())
    _fill(loose, iter(root))
    return Reading(root, found["u-box"], found["u-arrow"], loose)


@pytest.fixture(scope="session")
def read() -> Callable[[str], Reading]:
    """The function that reads an SVG document."""
    return _read
