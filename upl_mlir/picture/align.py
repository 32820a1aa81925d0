"""Aligning two bands: both are pulled apart in x, between their columns, until what belongs together stands together.

A band is cut into columns that keep their width; the gaps between them only grow.  So nothing that was apart in a band
comes to overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

Span = tuple[float, float]
Map = Callable[[float], float]


def stretches(bands: Sequence[Sequence[Span]], pairs: Sequence[tuple[float, float]]) -> list[Map]:
    """For two bands with the spans that keep their length, and pairs of points that should meet: the maps of x.

    Of pairs that contradict each other, those that are met are a longest series that grows in both.
    """
    columns = [_merged(spans) for spans in bands]
    anchors: dict[tuple[int, int], tuple[float, float]] = {}
    for a, b in sorted(pairs):
        anchors.setdefault((_column(columns[0], a), _column(columns[1], b)), (a, b))
    chain = _growing(sorted(anchors))
    starts = [[c[0] for c in cs] for cs in columns]
    for _ in range(len(chain) + 1):  # every pass settles one pair more
        for i, j in chain:
            a, b = anchors[i, j]
            gap = starts[0][i] + a - columns[0][i][0] - starts[1][j] - b + columns[1][j][0]
            _push(starts[1], columns[1], j, gap) if gap > 0 else _push(starts[0], columns[0], i, -gap)
    return [_map(cs, s) for cs, s in zip(columns, starts, strict=True)]


def _merged(spans: Sequence[Span]) -> list[Span]:
    """The spans as columns: those that overlap are one."""
    out: list[Span] = []
    for lo, hi in sorted(spans):
        if out and lo <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], hi))
        else:
            out.append((lo, hi))
    return out


def _column(columns: Sequence[Span], x: float) -> int:
    return max(bisect_right([c[0] for c in columns], x) - 1, 0)


def _growing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """A longest series of pairs that grows strictly in both places."""
    best: list[list[tuple[int, int]]] = []
    none: list[tuple[int, int]] = []
    for p in pairs:
        before = max((s for s in best if s[-1][0] < p[0] and s[-1][1] < p[1]), key=len, default=none)
        best.append([*before, p])
    return max(best, key=len, default=none)


def _push(starts: list[float], columns: Sequence[Span], at: int, by: float) -> None:
    """Move a column to the right, and those behind it as far as the gaps between them would shrink."""
    starts[at] += by
    for i in range(at + 1, len(starts)):
        least = starts[i - 1] + columns[i][0] - columns[i - 1][0]
        if starts[i] >= least:
            break
        starts[i] = least


def _map(columns: Sequence[Span], starts: Sequence[float]) -> Map:
    def f(x: float) -> float:
        if not columns or x <= columns[0][0]:
            return x + (starts[0] - columns[0][0] if columns else 0.0)
        i = _column(columns, x)
        lo, hi = columns[i]
        if x <= hi or i + 1 == len(columns):
            return starts[i] + x - lo
        here, there = starts[i] + hi - lo, starts[i + 1]  # in the gap: in proportion
        return here + (x - hi) / (columns[i + 1][0] - hi) * (there - here)

    return f
