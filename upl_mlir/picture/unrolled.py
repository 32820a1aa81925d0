"""The picture of an unrolled program: the instances of each node as a grid by their fields, coloured by what is asked for.

The last field goes to the right and the one before it downwards; further fields make blocks of such grids, in turns to the
right and downwards.  A node stands to the right of those whose instances begin to fire before its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from upl_mlir.picture.page import player
from upl_mlir.picture.style import DARK, LIGHT, Theme, rules
from upl_mlir.picture.text import FACE, escape, width

COLOURS = ("time", "core", "store", "critical")
"""What cells may be coloured by."""
MOST_ARROWS = 4000
"""More are not drawn, but for those of a longest chain."""
MANY_ARROWS = 400
"""From here on they are paler."""
_MARGIN, _GAP, _WIDE = 18.0, 34.0, 1500.0
_SCALE = ("#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#fde725")  # viridis: it reads in grey as well
_CORES = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#ee8866", "#44bb99", "#999933",
          "#332288", "#882255", "#117733", "#ddcc77", "#88ccee", "#cc6677")  # fmt: skip
_NONE = "#9a9a9a"


@dataclass(frozen=True)
class Grid:
    """A node with the indices of its instances; their numbers follow from `first`."""

    name: str
    fields: tuple[str, ...]
    points: tuple[tuple[int, ...], ...]
    first: int


@dataclass(frozen=True)
class Unrolled:
    """All that is to be drawn.  `time`, `core`, `store` and `slack` are of each instance; no time: it does not fire."""

    name: str
    grids: tuple[Grid, ...]
    arrows: tuple[tuple[int, int], ...]
    time: Sequence[int | None]
    unit: str  # of the time
    store: Sequence[int]  # how long its tokens waited, added up
    core: Sequence[int] | None = None
    slack: Sequence[int] = ()  # by how many firings the longest chain through it is shorter than the longest of all
    chain: tuple[int, ...] = ()  # one of the longest

    @property
    def instances(self) -> int:
        """How many there are."""
        return sum(len(g.points) for g in self.grids)


@dataclass
class _Place:
    """Where cells stand."""

    cell: float
    at: dict[int, tuple[float, float]] = field(default_factory=dict[int, tuple[float, float]])
    texts: list[tuple[float, float, str, str]] = field(default_factory=list[tuple[float, float, str, str]])
    """Position, text, and how it is set."""
    width: float = 0.0
    height: float = 0.0


def svg_of_unrolled(u: Unrolled, colour: str = "time", theme: Theme | None = Theme.AUTO) -> str:
    """The picture as an SVG document; without a theme it has no styles, for a page that has its own."""
    place = _lay_out(u)
    paint, legend = _paint(u, colour)
    chain = dict(pairwise(u.chain)) if colour == "critical" else {}
    shown = u.arrows if len(u.arrows) <= MOST_ARROWS else [(a, b) for a, b in u.arrows if chain.get(a) == b]
    if len(shown) < len(u.arrows):
        legend += f"; {len(u.arrows) - len(shown)} arrows are not drawn"
    head = f"{u.instances} instances, {legend}"
    wide = max(place.width, width(head, 12.0) + 2 * _MARGIN, width(u.name, 17.0) + 2 * _MARGIN)
    title = escape(f"Instances of {u.name}")
    size = f'width="{wide:.0f}" height="{place.height:.0f}" viewBox="0 0 {wide:.0f} {place.height:.0f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="upl-picture" {size} role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        *([f"<style>{_style(theme)}</style>"] if theme is not None else []),
        f'<rect class="u-page" x="0" y="0" width="{wide:.0f}" height="{place.height:.0f}"/>',
        _text(_MARGIN, 30, u.name, "start", 17.0, bold=True),
        _text(_MARGIN, 50, head, "start", 12.0),
        *_scale(u, colour),
        f'<g class="{"u-many" if len(shown) > MANY_ARROWS else "u-few"}">',
        *(_arrow(u, place, (a, b)) for a, b in shown if chain.get(a) != b),
        "</g>",
        *_cells(u, place, paint, set(u.chain) if chain else set()),
        *(_arrow(u, place, step, " u-chain") for step in chain.items()),
        *(_text(x, y, text, anchor) for x, y, text, anchor in place.texts),
    ]
    return "\n".join([*lines, "</svg>", ""])


def page_of_unrolled(u: Unrolled, colour: str = "time") -> str:
    """One HTML page: the picture, and the replay of its times."""
    times = sorted({t for t in u.time if t is not None})
    picture = svg_of_unrolled(u, colour, None)
    return player(f"Instances of {u.name}", "unrolled", picture, times, shared=_SHARED, unit=u.unit)


# -- places ---------------------------------------------------------------------------------------------------------------


def _lay_out(u: Unrolled) -> _Place:
    n = u.instances
    place = _Place(22.0 if n <= 120 else 15.0 if n <= 500 else 9.0)
    columns: dict[int, list[Grid]] = {}
    for g in u.grids:
        times = [t for t in u.time[g.first : g.first + len(g.points)] if t is not None]
        columns.setdefault(min(times, default=-1), []).append(g)
    x, y, low = _MARGIN, 84.0, 84.0
    for _, grids in sorted(columns.items()):
        sizes = [_grid(place, g, 0, 0, draw=False) for g in grids]
        wide = max(w for w, _ in sizes)
        if x > _MARGIN and x + wide > _WIDE:
            x, y = _MARGIN, low + _GAP
        at = y
        for g, (_, high) in zip(grids, sizes, strict=True):
            _grid(place, g, x, at)
            at += high + _GAP
        low = max(low, at - _GAP)
        x += wide + 2 * _GAP
        place.width = max(place.width, x - 2 * _GAP + _MARGIN)
    place.height = low + _MARGIN
    return place


def _grid(place: _Place, g: Grid, x: float, y: float, *, draw: bool = True) -> tuple[float, float]:
    """Puts the cells of a node at a place; returns the size with its texts."""
    title = f"{g.name}<{','.join(g.fields)}>" if g.fields else g.name
    values = [sorted({p[k] for p in g.points}) for k in range(len(g.fields))]
    pitch = [0.0] * len(g.fields)
    size = [place.cell, place.cell]
    for turn, k in enumerate(reversed(range(len(g.fields)))):
        pitch[k] = size[turn % 2] + (0.0 if turn < 2 else max(12.0, place.cell * 0.7))
        size[turn % 2] = pitch[k] * (len(values[k]) - 1) + size[turn % 2]
    named = [f"{name} {'→' if turn % 2 == 0 else '↓'}" for turn, name in enumerate(reversed(g.fields))]
    axes = "  ".join(named)
    left = max((width(str(v), 9.0) + 5 for v in values[-2]), default=0.0) if len(values) > 1 else 0.0
    top = 18.0 + (30.0 if g.fields else 6.0) + (10.0 if len(g.fields) > 2 else 0.0)
    if draw:
        place.texts.append((x, y + 10, title, "start bold"))
        if axes:
            place.texts.append((x, y + 26, axes, "start small"))
        order = [{v: i for i, v in enumerate(vs)} for vs in values]
        for n, p in enumerate(g.points, g.first):
            steps = [pitch[k] * order[k][v] for k, v in enumerate(p)]
            back = steps[::-1]
            place.at[n] = (x + left + sum(back[0::2]), y + top + sum(back[1::2]))
        for turn, k in enumerate(range(len(values) - 3, max(-1, len(values) - 5), -1)):  # the blocks
            for v, i in order[k].items():
                dx, dy = (pitch[k] * i, -15.0) if turn == 0 else (-left, pitch[k] * i - 5)
                if turn == 0 or i:
                    place.texts.append((x + left + dx, y + top + dy, f"{g.fields[k]}={v}", "start tick"))
        if place.cell >= 12 and values:
            for v, i in order[-1].items():
                place.texts.append((x + left + pitch[-1] * i + place.cell / 2, y + top - 4, str(v), "middle tick"))
            for v, i in order[-2].items() if len(values) > 1 else ():
                place.texts.append((x + left - 4, y + top + pitch[-2] * i + place.cell / 2 + 3, str(v), "end tick"))
    return max(left + size[0], width(title), width(axes, 10.0)), top + size[1]


# -- what it looks like ---------------------------------------------------------------------------------------------------

_SHARED = (
    f".upl-picture text{{font-family:{FACE};white-space:pre}}"
    ".u-flow{stroke-width:.8;fill:none}.u-few{stroke-opacity:.5}.u-many{stroke-opacity:.2}"
    ".u-chain{stroke:#d4145a;stroke-width:2.4}"
)


def _style(theme: Theme) -> str:
    match theme:
        case Theme.LIGHT:
            return _SHARED + _ours(rules(LIGHT), LIGHT.arrow)
        case Theme.DARK:
            return _SHARED + _ours(rules(DARK), DARK.arrow)
        case Theme.AUTO:
            dark = _ours(rules(DARK), DARK.arrow)
            return f"{_SHARED}{_ours(rules(LIGHT), LIGHT.arrow)}@media (prefers-color-scheme:dark){{{dark}}}"


def _ours(sheet: str, arrow: str) -> str:
    return f"{sheet}.u-few,.u-many{{stroke:{arrow}}}"


def _paint(u: Unrolled, colour: str) -> tuple[Callable[[int], str], str]:
    """The colour of an instance, and what the colours mean."""
    match colour:
        case "core" if u.core is not None:
            cores = u.core
            many = max(cores, default=0) + 1
            return lambda n: _CORES[cores[n] % len(_CORES)], f"coloured by core (of {many})"
        case "store":
            most = max(u.store, default=0)
            text = f"coloured by how long their tokens wait in the store (0..{most} {u.unit}s, added up)"
            return lambda n: _shade(u.store[n], most), text
        case "critical":
            most = max(u.slack, default=0)
            text = f"the longest chain has {len(u.chain)} firings (red: one); colour: how much shorter theirs is, 0..{most}"
            return lambda n: _shade(most - u.slack[n], most), text
        case _:
            last = max((t for t in u.time if t is not None), default=0)
            first = min((t for t in u.time if t is not None), default=0)

            def by_time(n: int) -> str:
                t = u.time[n]
                return _NONE if t is None else _shade(t - first, last - first)

            return by_time, f"coloured by the {u.unit} in which they fire ({first}..{last})"


def _scale(u: Unrolled, colour: str) -> Iterator[str]:
    """A key to the colours."""
    if colour == "core" and u.core is not None:
        for c in range(max(u.core, default=0) + 1):
            x = _MARGIN + 46 * c
            yield f'<rect x="{x:.0f}" y="58" width="12" height="12" fill="{_CORES[c % len(_CORES)]}"/>'
            yield _text(x + 16, 68, str(c), "start", 10.0)
    else:
        for n in reversed(range(40)) if colour == "critical" else range(40):
            yield f'<rect x="{_MARGIN + 5 * n:.0f}" y="58" width="5.5" height="10" fill="{_shade(n, 39)}"/>'


def _shade(value: float, most: float) -> str:
    """A colour of the scale."""
    at = (value / most if most else 0.0) * (len(_SCALE) - 1)
    k = min(int(at), len(_SCALE) - 2)
    pair = [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in _SCALE[k : k + 2]]
    return "#" + "".join(f"{round(a + (b - a) * (at - k)):02x}" for a, b in zip(*pair, strict=True))


def _cells(u: Unrolled, place: _Place, paint: Callable[[int], str], chained: set[int]) -> Iterator[str]:
    side = place.cell - (3 if place.cell > 12 else 1.5)
    for g in u.grids:
        for n, p in enumerate(g.points, g.first):
            x, y = place.at[n]
            facts: Mapping[str, object] = {
                u.unit: "never" if u.time[n] is None else u.time[n], "waited in the store": u.store[n],
                **({"core": u.core[n]} if u.core is not None else {}),
            }  # fmt: skip
            told = "; ".join(f"{k} {v}" for k, v in facts.items()) + (
                "; on a longest chain" if u.slack and not u.slack[n] else ""
            )
            chain = " u-chain" if n in chained else ""
            when = "" if u.time[n] is None else f' data-t="{u.time[n]}"'
            name = escape(f"{g.name}<{','.join(map(str, p))}>")
            yield (
                f'<rect class="u-cell{chain}" x="{x + 1:.1f}" y="{y + 1:.1f}" width="{side:.1f}" height="{side:.1f}" rx="2" '
                f'fill="{paint(n)}"{when}><title>{name}: {told}</title></rect>'
            )


def _arrow(u: Unrolled, place: _Place, arrow: tuple[int, int], chain: str = "") -> str:
    (x0, y0), (x1, y1) = (place.at[n] for n in arrow)
    half = place.cell / 2
    when = "" if u.time[arrow[1]] is None else f' data-t="{u.time[arrow[1]]}"'
    return f'<path class="u-flow{chain}" d="M{x0 + half:.1f} {y0 + half:.1f}L{x1 + half:.1f} {y1 + half:.1f}"{when}/>'


def _text(x: float, y: float, text: str, anchor: str, size: float = 0.0, *, bold: bool = False) -> str:
    where, _, kind = anchor.partition(" ")
    size = size or {"bold": 13.0, "small": 10.0, "tick": 9.0}.get(kind, 11.0)
    weight = ' font-weight="bold"' if bold or kind == "bold" else ""
    how = f'font-size="{size:.0f}" text-anchor="{where}"{weight}'
    return f'<text class="u-text" x="{x:.1f}" y="{y:.1f}" {how}>{escape(text)}</text>'
