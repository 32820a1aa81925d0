"""The choice of a schedule: along which field the lanes lie, in which order the loops run, how many slots pass idle.

All orders of the loops are tried with all fields for the lanes.  The slots of loops and the skew between lanes are
the least that keep every dependence: a system of inequalities whose unknowns only grow (as in modulo scheduling with
an initiation interval of 1; Rau 1994).  The best schedule takes the fewest slots for a run, then the least time for
its results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

from upl_mlir.diagnostics import did_you_mean, error
from upl_mlir.passes.circuit.channels.links import Distances, Rule, distances, rules
from upl_mlir.passes.circuit.nest import Nest, tight
from upl_mlir.passes.circuit.process import Process
from upl_mlir.passes.circuit.stages import Site

MOST_ROUNDS = 200
"""Of corrections to a schedule, each of which keeps one more dependence; real ones take as many as there are
dependences."""


@dataclass(frozen=True)
class Wish:
    """What the user asks for: `lanes`, and perhaps the field `along` which they lie and the `order` of the loops; `share`:
    whether processes use units in turn, where they can; `real`: f32 or a small type."""

    lanes: int
    along: str | None = None
    order: tuple[str, ...] | None = None
    share: bool = False
    real: str = "f32"
    lanes_of: Mapping[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """The field for the lanes of single processes, and how many they are, by array."""


def asked(processes: Sequence[Process], wish: Wish) -> None:
    """Raise UplError UPL2004 for fields that there are not."""
    names = list(dict.fromkeys(d.name for p in processes for d in p.dims))
    if wish.along is not None and wish.along not in names:
        help_ = did_you_mean(wish.along, names)
        raise error("UPL2004", f"along={wish.along}: expected one of {', '.join(names)}", help=help_)
    if wish.order is not None and (len(processes) > 1 or sorted(wish.order) != sorted(names)):
        one = f"expected {', '.join(names)} in some order"
        expected = one if len(processes) == 1 else "it is for one process, not several"
        raise error("UPL2004", f"order={','.join(wish.order)}: {expected}")


def candidates(
    p: Process, wish: Wish, sites: Sequence[Site], outer: str | None = None, down: bool = False, spare: int = 0
) -> list[Nest]:
    """Schedules that keep the dependences of a process on itself, the best first; its lanes lie along the field that is
    asked for, if it has it.  The outermost loop is that of the field `outer`, if it is given, and may run `down`.  What is
    read at distances that vary waits `spare` slots longer."""
    found: list[tuple[tuple[int, ...], int, Nest]] = []
    own = [s for s in sites if s.own]
    names = {d.name for d in p.dims}
    along, most = wish.lanes_of.get(p.name, (wish.along if wish.along in names else None, wish.lanes))
    for d in p.dims:
        if along not in (None, d.name) or (d.name == outer and (along is None or down) and len(names) > 1):
            continue
        lanes = min(wish.lanes, most, d.extent) if d.name != outer else 1
        apart = [distances(p, s, d.name) for s in own]
        for order in _orders(p, wish):
            if outer is not None and order[0] != outer:
                continue
            for by_skew in (False, True):
                below = (outer,) if outer is not None and down else ()
                nest = _scheduled(p, d.name, lanes, order, apart, by_skew, below, spare)
                if nest is not None:
                    found.append((cost(nest), len(found), nest))
    return list(dict.fromkeys(nest for _, _, nest in sorted(found, key=lambda f: f[:2])))


def _orders(p: Process, wish: Wish) -> Iterator[tuple[str, ...]]:
    if wish.order is not None:
        yield wish.order
    else:
        yield from permutations(d.name for d in p.dims)


def cost(nest: Nest) -> tuple[int, ...]:
    """Slots of a run; lanes; slots until the last result."""
    return (nest.slots, nest.lanes, nest.busy + nest.skew * (nest.lanes - 1))


def _scheduled(
    p: Process, along: str, lanes: int, order: tuple[str, ...], apart: Sequence[Distances], by_skew: bool,
    down: tuple[str, ...] = (), spare: int = 0,
) -> Nest | None:
    """The schedule with the least slots for this order, or None if the order goes against a dependence.

    A dependence on a lane before, and on an earlier iteration, is kept `by_skew` or by slots that pass idle.
    """
    bare = Nest(p.dims, along, lanes, order, (), 0, 0)
    idle = [0] * len(order)
    skew = 0
    found = rules(p.dims, order, along, lanes, apart, down, spare)
    for _ in range(MOST_ROUNDS):
        every = tight(bare.extents, idle)
        short = next((r for r in found if _slots(r, every, skew) < r.slots), None)
        if short is None:
            return Nest(p.dims, along, lanes, order, every, skew, every[0] * bare.extents[0], 0, down)
        missing = short.slots - _slots(short, every, skew)
        level = next((n for n, k in enumerate(short.loops) if k), None)
        carried = level is not None and short.loops[level] > 0
        if short.lanes > 0 and (by_skew or not carried):
            skew += -(-missing // short.lanes)
        elif level is not None and carried:
            # Idle slots behind the loops inside of this one make its iterations longer.
            idle[level] += -(-missing // short.loops[level])
        else:
            return None
    return None


def _slots(r: Rule, every: Sequence[int], skew: int) -> int:
    return sum(k * n for k, n in zip(r.loops, every, strict=True)) + r.lanes * skew
