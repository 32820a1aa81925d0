"""Schedules of processes that read of each other: they share their outermost loop.

The loop of each process is that of one of its fields, plus a shift, so that every value is read in the iteration in which it
is written, or in a later one (Kennedy and Allen 1987; shifts: Feautrier 1992, the longest ways through the dependences).
Within an iteration each process begins so late that what it reads of the same iteration is there; an iteration takes as many
slots as what it reads of earlier ones needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod

from upl_mlir.passes.analysis.components import components
from upl_mlir.passes.circuit.channels.links import NoLink, sources
from upl_mlir.passes.circuit.channels.ways import ways
from upl_mlir.passes.circuit.choose import Wish, candidates
from upl_mlir.passes.circuit.nest import Ints, Nest
from upl_mlir.passes.circuit.placed import Placed

MOST_LOOPS = 64
"""Choices of fields for the shared loop that are looked at."""
MOST_SORTED = 1 << 12
"""Choices that are all written down; thirty processes of three fields have 10^14."""
MOST_NESTS = 4
"""Schedules of each process inside of it."""
MOST_ROUNDS = 100
"""Of corrections to the slots of a schedule."""
MOST_WAIT = 16
"""So many times longer than all processes one after the other an iteration may be, and `ALONE` slots for each process:
what waits for a stream that waits for an iteration grows without end."""
ALONE = 256
"""Slots for each process, beside its own ones: about two of the longest pipelines. Chosen."""


@dataclass(frozen=True, eq=False)
class _Dependence:
    """Process `reader` reads of `writer`: the values of their fields, by instance."""

    reader: int
    writer: int
    here: Mapping[str, Ints]
    there: Mapping[str, Ints]


@dataclass(frozen=True)
class _Loop:
    """The shared loop: of each process its field and the shift of its values; all run down, or none does.

    `least`: by reader and writer, by how many iterations a value is read later at least.
    """

    fields: tuple[str, ...]
    shifts: tuple[int, ...]
    down: bool
    least: Mapping[tuple[int, int], int]


def together(parts: Sequence[Placed], wish: Wish) -> Iterator[list[Placed]]:
    """The schedules of a group of processes, the best of each choice of the shared loop first."""
    found: list[tuple[int, int, list[Placed]]] = []
    for loop in _loops(parts, _dependences(parts)):
        inner = [candidates(p.process, wish, p.sites, f, loop.down) for p, f in zip(parts, loop.fields, strict=True)]
        order = [n for group in components(range(len(parts)), partial(_same, loop)) for n in group]
        for depth in range(max((len(i) for i in inner), default=0)):
            if depth >= MOST_NESTS:
                break
            nests = [i[min(depth, len(i) - 1)] for i in inner] if all(inner) else []
            made = _timed(parts, nests, loop, order) if nests else None
            if made is not None:
                found.append((made[0].nest.slots, len(found), made))
                break
    for _, _, made in sorted(found, key=lambda f: f[:2]):
        yield made


def _dependences(parts: Sequence[Placed]) -> list[_Dependence]:
    numbers = {p.array: n for n, p in enumerate(parts)}
    out: list[_Dependence] = []
    for n, p in enumerate(parts):
        for s in p.sites:
            if s.array not in numbers or s.running:
                continue
            writer = parts[numbers[s.array]]
            mask = p.mask(s.when)
            there = sources(p.process, writer.process, s, dict(p.nest.grid))
            out.append(_Dependence(
                n, numbers[s.array], {f: p.nest.everywhere(x)[mask] for f, x in p.nest.grid.items()},
                {f: p.nest.everywhere(x)[mask] for f, x in there.items()},
            ))  # fmt: skip
    return out


def _loops(parts: Sequence[Placed], found: Sequence[_Dependence]) -> Iterator[_Loop]:
    """The choices of the shared loop; fields of the same name first."""
    for fields in _choices([p.process.fields for p in parts]):
        for down in (False, True):
            least: dict[tuple[int, int], int] = {}
            for d in found:
                apart = d.here[fields[d.reader]] - d.there[fields[d.writer]]
                if apart.size:
                    key = d.reader, d.writer
                    least[key] = min(least.get(key, 1 << 30), int((-apart if down else apart).min()))
            shifts = _shifts(len(parts), least)
            if shifts is None:
                continue
            left = {key: n + shifts[key[0]] - shifts[key[1]] for key, n in least.items()}
            loop = _Loop(fields, shifts, down, left)
            if all(len(g) == 1 for g in components(range(len(parts)), partial(_same, loop))):
                yield loop


def _choices(options: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Choices of a field for each process; fields of the same name first.  Of many processes only such choices as take one
    name wherever it is a field."""
    if prod(map(len, options)) <= MOST_SORTED:
        return sorted(product(*options), key=lambda fields: len(set(fields)))[:MOST_LOOPS]
    names = dict.fromkeys(f for fields in options for f in fields)
    by_name = [tuple(n if n in fields else fields[0] for fields in options) for n in names if all(options)]
    return sorted(dict.fromkeys(by_name), key=lambda fields: len(set(fields)))[:MOST_LOOPS]


def _shifts(n: int, least: Mapping[tuple[int, int], int]) -> tuple[int, ...] | None:
    """The least shifts with which nothing is read in an earlier iteration; None if there are none."""
    shifts = [0] * n
    for _ in range(n + 1):
        changed = False
        for (reader, writer), apart in least.items():
            if shifts[reader] < shifts[writer] - apart:
                shifts[reader], changed = shifts[writer] - apart, True
        if not changed:
            return tuple(s - min(shifts) for s in shifts)
    return None


def _same(loop: _Loop, reader: int) -> list[int]:
    """The other processes of which a process reads in the same iteration."""
    return [w for (r, w), n in loop.least.items() if r == reader and w != reader and n <= 0]


def _timed(parts: Sequence[Placed], nests: Sequence[Nest], loop: _Loop, order: Sequence[int]) -> list[Placed] | None:
    """The processes with the slots of the shared loop, and when each starts; None if no slots will do."""
    every = max(n.every[0] for n in nests)
    offsets = [0] * len(parts)
    dims = [next(d for d in p.process.dims if d.name == f) for p, f in zip(parts, loop.fields, strict=True)]
    begin = [-(d.low + d.extent - 1) if loop.down else d.low for d in dims]
    values = [b + s for b, s in zip(begin, loop.shifts, strict=True)]
    arrays = {p.array: n for n, p in enumerate(parts)}
    most = MOST_WAIT * sum(n.busy + ALONE for n in nests)
    for _ in range(MOST_ROUNDS):
        made: list[Placed] = []
        for p, nest, v, o in zip(parts, nests, values, offsets, strict=True):
            start = o + every * (v - min(values))
            whole = replace(nest, every=(every, *nest.every[1:]), start=start, slots=every * nest.extents[0])
            made.append(replace(p, nest=whole))
        good = True
        for n in order:
            try:
                _, short = ways(made, n)
            except NoLink:
                return None
            for array, late in short.items():
                if late <= 0:
                    continue
                good = False
                apart = loop.least.get((n, arrays[array]), 0)
                if apart > 0:
                    every += -(-late // apart)
                else:
                    offsets[n] += late
        if max(every, *offsets) > most:
            return None
        if good:
            return [replace(p, nest=replace(p.nest, start=p.nest.start - min(q.nest.start for q in made))) for p in made]
    return None
