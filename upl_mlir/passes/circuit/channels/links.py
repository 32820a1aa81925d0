"""Links: what an instance reads of earlier instances, of its own process or of another one, as delays between lanes.

An instance reads at a stage what another one wrote some slots before.  The *length* of a link is the number of slots in
between; it depends on the reading lane and its block only, or there is no link yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from upl_mlir.passes.circuit.nest import Dim, Ints
from upl_mlir.passes.circuit.placed import Placed
from upl_mlir.passes.circuit.process import Process
from upl_mlir.passes.circuit.stages import Site

VARYING = 2
"""The least length of a link whose length varies (`VariableDelay`), behind what leads back to an earlier lane."""


@dataclass(frozen=True)
class Link:
    """Into `lane`, from lane `source`: the length in each block, None where nothing is read."""

    lane: int
    source: int
    lengths: tuple[int | None, ...]

    @property
    def constant(self) -> int | None:
        """The one length, or None if there are several."""
        found = {n for n in self.lengths if n is not None}
        return found.pop() if len(found) == 1 else None

    @property
    def shortest(self) -> int:
        """The least length."""
        return min(n for n in self.lengths if n is not None)


class NoLink(Exception):
    """What is read has no fixed distance: the text says how far it varies."""


def least(lane: int, source: int) -> int:
    """The least length of a link: one back to an earlier lane waits until the later one, which is some clocks behind, has
    written (`Crossing.least`)."""
    return 0 if source <= lane else source - lane + 3


def sources(reader: Process, writer: Process, s: Site, values: dict[str, Any]) -> dict[str, Any]:
    """The instance of the writer that is read by the reader's instances with these values of fields."""
    if not s.running:
        exprs = reader.sizes.given(values)
        found = {f: exprs.expr(e) for f, e in zip(writer.fields, s.index, strict=True)}
        return found | {d.name: d.low + d.extent - 1 for d in writer.dims if d.name in writer.sums}
    out = dict(values)
    borrow: Any = True
    for d in reversed([d for d in reader.dims if d.name in reader.sums]):  # the summand before, the last iterator fastest
        x = values[d.name]
        out[d.name] = np.where(borrow, np.where(x == d.low, d.low + d.extent - 1, x - 1), x)
        borrow = np.logical_and(borrow, x == d.low)
    return out


@dataclass(frozen=True, eq=False)
class Distances:
    """Of one site: the distinct differences between reader and writer by field, with the reader's value of each field."""

    site: Site
    rows: Ints
    """(distinct, fields): reader minus writer."""


def distances(p: Process, s: Site, along: str) -> Distances:
    """All distinct differences, together with the reader's place along the field of the lanes (the last column)."""
    grid = dict(zip((d.name for d in p.dims), np.indices([d.extent for d in p.dims], dtype=np.int64), strict=True))
    grid = {d.name: grid[d.name] + d.low for d in p.dims}
    mask = np.broadcast_to(p.sizes.given(grid).formula(s.when), [d.extent for d in p.dims])
    if not mask.any():
        return Distances(s, np.zeros((0, len(p.dims) + 1), dtype=np.int64))
    values = {n: x[mask] for n, x in grid.items()}
    read = sources(p, p, s, values)
    low = next(d.low for d in p.dims if d.name == along)
    columns = [np.broadcast_to(values[d.name] - read[d.name], values[along].shape) for d in p.dims]
    return Distances(s, _distinct([*columns, values[along] - low]))


def _distinct(columns: Sequence[Ints]) -> Ints:
    key = np.zeros_like(columns[0])
    spans: list[tuple[int, int]] = []
    for c in columns:
        low, high = int(c.min()), int(c.max())
        spans.append((low, high - low + 1))
        key = key * (high - low + 1) + (c - low)
    rest = np.unique(key)
    out: list[Ints] = []
    for low, n in reversed(spans):
        out.append(rest % n + low)
        rest = rest // n
    return np.stack(out[::-1], axis=1)


@dataclass(frozen=True)
class Rule:
    """A dependence in loops and lanes: ``sum(every * loops) + skew * lanes >= slots``."""

    loops: tuple[int, ...]
    lanes: int
    slots: int


def rules(
    dims: Sequence[Dim], order: Sequence[str], along: str, lanes: int, found: Iterable[Distances], down: Sequence[str] = (),
    spare: int = 0,
) -> set[Rule]:
    """What the slots of loops and the skew have to keep; the loops of fields `down` run from the greatest value on.  What
    varies waits `spare` slots longer."""
    names = [d.name for d in dims]
    out: set[Rule] = set()
    for each in found:
        s = each.site
        assert s.written is not None
        more = VARYING + spare if len(np.unique(each.rows[:, :-1], axis=0)) > 1 else 0
        for row in each.rows.tolist():
            *delta, place = row
            by_name = dict(zip(names, delta, strict=True))
            lane, source = place % lanes, (place - by_name[along]) % lanes
            block = place // lanes - (place - by_name[along]) // lanes
            loops = tuple(block if f == along else -by_name[f] if f in down else by_name[f] for f in order)
            out.add(Rule(loops, lane - source, s.written - s.stage + least(lane, source) + more))
    return out


def links(reader: Placed, writer: Placed, s: Site) -> list[Link]:
    """The links of a site, as long as its slots are apart: whether a value is there in time is not asked.  Raises NoLink."""
    assert s.written is not None
    nest = reader.nest
    mask = reader.mask(s.when)
    source, then = writer.nest.place(sources(reader.process, writer.process, s, dict(nest.grid)))
    length = nest.everywhere(nest.begins - then + s.stage - s.written)
    source = nest.everywhere(source)
    out: list[Link] = []
    for lane in range(nest.lanes):
        here = mask[..., lane]
        if not here.any():
            continue
        if len(origins := np.unique(source[..., lane][here])) > 1:
            raise NoLink(f"lane {lane} reads of lanes {', '.join(map(str, origins.tolist()))}")
        lengths: list[int | None] = []
        for block in range(nest.extents[nest.block]):
            at = (*[slice(None)] * nest.block, block)
            found = np.unique(length[..., lane][at][here[at]])
            if len(found) > 1:
                raise NoLink(f"the distance varies from {found[0]} to {found[-1]} slots within a block")
            lengths.append(int(found[0]) if len(found) else None)
        out.append(Link(lane, int(origins[0]), tuple(lengths)))
    return out


def early(found: Sequence[Link]) -> int:
    """By how many slots the worst of some links is too short; 0 or less if none is."""
    return max(
        (least(k.lane, k.source) + (0 if k.constant is not None else VARYING) - k.shortest for k in found), default=0
    )
