"""Units that several processes use in turn, so that an array of lanes serves one product after the other.

Two sets of processes share: those with running sums, on an array of lanes, and those that compute an element at a time, on
one lane, as these run beside a product.  Processes that share read of each other one way only.  Each begins so late that
none of its operations meets one of an earlier process in a unit, run upon run.  In front of a unit a register takes the
operands of the process whose turn it is, so an operation takes `TURN` slots more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from upl_mlir.passes.circuit.body import LEAVES, Node
from upl_mlir.passes.circuit.channels.links import NoLink
from upl_mlir.passes.circuit.placed import Placed
from upl_mlir.passes.circuit.process import Network, Process

TURN = 1
"""Slots of the register that takes the operands of the process whose turn it is."""
LARGE = (
    "add", "sub", "mul", "div", "sqrt", "exp", "log", "tanh", "sigmoid", "sin", "cos",
)  # fmt: skip
"""Operations whose units are worth sharing: others are smaller than what would choose their operands."""


class Use(NamedTuple):
    """An operation of process number `part` on a unit."""

    part: int
    node: Node


@dataclass(frozen=True, eq=False)
class Unit:
    """A unit in each lane that has a use for it.  With several uses it is shared."""

    name: str
    kind: str
    uses: tuple[Use, ...]


Shared = tuple[frozenset[str], ...]
"""The sets of processes that share units, each by the arrays of its processes; no process is in two of them."""


def sharers(net: Network) -> Shared:
    """The processes that can share units: those with running sums and, if there are several, those beside them that compute
    an element at a time."""
    able = [g[0] for g in net.groups if len(g) == 1 and g[0].name not in g[0].reads]
    sums, elements = (
        _alike([p for p in able if (p.body.total is not None) == running]) for running in (True, False)
    )
    return tuple(names for names in (sums, elements) if names) if sums else ()


def _alike(processes: Sequence[Process]) -> frozenset[str]:
    """The arrays of the processes that have a kind of large operation in common with another one."""
    kinds = [k for p in processes for k in sorted({n.kind for n in large(p)})]
    return frozenset(p.name for p in processes if any(kinds.count(n.kind) > 1 for n in large(p)))


def group_of(array: str, shared: Shared) -> frozenset[str]:
    """The arrays of the processes with which that of an array shares units, with its own; none if it does not."""
    return next((g for g in shared if array in g), frozenset[str]())


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the elements of arrays are: of processes that share, the field along which their lanes lie, and how many they
    are; fields in strips, each with its least value and the values of a strip: of processes that compute an element at a
    time, so that they take what comes from an array of lanes."""

    lanes: Mapping[str, tuple[str, int]]
    strips: Mapping[str, tuple[tuple[str, int, int], ...]]


def layout(net: Network, lanes: int) -> Layout:
    """The fields with which most lanes are in use; of several that along which most operands lie already.  If the sums of a
    lane that run at once would be those of a long field, that field is in strips, so that few are kept at a time."""
    shared = next(iter(sharers(net)), frozenset[str]())
    sums = net.numbers.latency["add"] + TURN  # of a lane, so that an addition is over before the next one to the same sum
    lying: dict[str, tuple[str, int]] = {}
    strips: dict[str, tuple[tuple[str, int, int], ...]] = {}
    long: dict[str, tuple[int, int]] = {}
    """By array the place of a field in strips beside that of the lanes, and the values of a strip."""
    lies: dict[str, tuple[int, int]] = {}
    """By array the place of the field along which its lanes lie, and how many they are."""
    for group in net.groups:
        for p in group if len(group) == 1 else ():
            extent = {d.name: d.extent for d in p.array}
            made = {n: at for n, at in lies.items() if n not in net.inputs}
            low = {d.name: d.low for d in p.array}
            found = [f for f, _ in _lying(p, lies if p.name in shared else made) if f in extent]
            if p.name in shared:
                best = max(p.fields, key=lambda f: (usable(extent[f], lanes), found.count(f)), default=None)
                if best is None:
                    continue
                lying[p.name] = best, usable(extent[best], lanes)
                others = {f: n for f, n in extent.items() if f != best}
                between = extent[best] // lying[p.name][1] * prod(n for n in others.values() if n <= 2 * sums)
                longest = max(others, key=lambda f: others[f], default=None)
                if longest is not None and between < sums and others[longest] > 2 * sums:
                    size = next(n for n in range(sums, others[longest] + 1) if others[longest] % n == 0)
                    if size < others[longest]:
                        strips[p.name] = ((longest, low[longest], size),)
                        long[p.name] = p.fields.index(longest), size
                lies[p.name] = p.fields.index(best), lying[p.name][1]
                for array, place in _places(p, best):
                    lies.setdefault(array, (place, lies[p.name][1]))
            elif p.body.total is None and found:
                best = max(found, key=found.count)
                size = usable(extent[best], lanes)
                lies[p.name] = p.fields.index(best), size
                wanted = {best: size} if 1 < size < extent[best] else {}
                for f, places in _lying(p, long):
                    wanted.setdefault(f, places)
                strips[p.name] = tuple((f, low[f], n) for f, n in wanted.items())
    return Layout(lying, strips)


def usable(extent: int, lanes: int) -> int:
    """How many lanes a field can have so that all take turns: all its values, or a number that divides them."""
    return extent if extent <= lanes else max(n for n in range(1, lanes + 1) if extent % n == 0)


def _lying(p: Process, lies: Mapping[str, tuple[int, int]]) -> list[tuple[str, int]]:
    """The fields by which the reads of a process go along lanes, or in strips, and how many those are."""
    return [
        (name, lies[n.array][1])
        for n in p.body.nodes
        if n.kind == "read" and n.array in lies and (name := n.index[lies[n.array][0]].name) is not None
    ]


def _places(p: Process, field: str) -> list[tuple[str, int]]:
    """What a process reads by a field, and at which place of the index."""
    return [(n.array, k) for n in p.body.nodes if n.kind == "read" for k, e in enumerate(n.index) if e.name == field]


def large(p: Process) -> list[Node]:
    """The operations of a process that are worth sharing."""
    return [n for n in p.body.nodes if n.kind in LARGE]


def latencies(units: Mapping[str, int], shared: bool) -> Mapping[str, int]:
    """The slots of operations of a process."""
    return {k: n + TURN if shared and k in LARGE else n for k, n in units.items()}


def in_turn(part: Placed, node: Node, shared: Shared) -> bool:
    """Whether an operation takes a slot more, as the register in front of its unit does, be there others that use it or
    not."""
    return bool(group_of(part.array, shared)) and node.kind in LARGE


def units_of(parts: Sequence[Placed], shared: Shared) -> list[Unit]:
    """The units of a circuit: one for each operation of a body; processes that share have the first one of a kind in common,
    the second one, and so on."""
    made: dict[object, list[Use]] = {}
    for number, part in enumerate(parts):
        counts: dict[str, int] = {}
        for node in part.process.body.nodes:
            if node.kind in LEAVES:
                continue
            n = counts[node.kind] = counts.get(node.kind, -1) + 1
            key = (group_of(part.array, shared), node.kind, n) if in_turn(part, node, shared) else node
            made.setdefault(key, []).append(Use(number, node))
    out: list[Unit] = []
    for uses in made.values():
        kind = uses[0].node.kind
        operation = kind.partition(" ")[0]
        name = f"{operation}_{sum(u.kind.partition(' ')[0] == operation for u in out)}"
        out.append(Unit(name, kind, tuple(uses)))
    return out


def clear(earlier: Placed, later: Placed) -> int:
    """The first slot in which a process may begin behind an earlier one with which it shares units."""
    return max((end - begin for end, begin in _meets(earlier, later)), default=0) + later.nest.start


def spans(parts: Sequence[Placed], shared: Shared) -> int:
    """The slots of a run in which processes that share do not meet those of the run before.  Raises NoLink if they meet in
    one run."""
    out = 0
    for group in shared:
        members = [p for p in parts if p.array in group]
        for n, a in enumerate(members):
            for b in members[: n + 1]:
                if a is b or clear(b, a) <= a.nest.start:  # who begins later may use the units first
                    first, last = b, a
                elif clear(a, b) <= b.nest.start:
                    first, last = a, b
                else:
                    raise NoLink(f"`{b.array}` and `{a.array}` use a unit at the same time")
                out = max([out, *(end - begin for end, begin in _meets(last, first))])
    return out


def _meets(first: Placed, second: Placed) -> list[tuple[int, int]]:
    """For each unit that two processes have in common, in its first and its last lane: the slot after the last operation of
    the first process, and that of the first operation of the second one."""
    nodes = {key: s for s, key in _stages(first)}
    out: list[tuple[int, int]] = []
    for stage, key in _stages(second):
        if key in nodes:
            for lane in (0, min(first.nest.lanes, second.nest.lanes) - 1):
                end = first.nest.start + first.nest.skew * lane + first.nest.busy + nodes[key]
                out.append((end, second.nest.start + second.nest.skew * lane + stage))
    return out


def _stages(p: Placed) -> list[tuple[int, tuple[str, int]]]:
    counts: dict[str, int] = {}
    out: list[tuple[int, tuple[str, int]]] = []
    for node in large(p.process):
        n = counts[node.kind] = counts.get(node.kind, -1) + 1
        out.append((p.at.start[node], (node.kind, n)))
    return out
