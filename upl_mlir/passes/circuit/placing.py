"""Schedules of several processes, one group after the other: each begins when its values are there and its units are free.

Where processes share units, a wait for a value costs slots of a run.  Then schedules are changed one at a time, as long as a
run becomes shorter (list scheduling, Coffman 1976; local search): a process goes before another one with which it shares
units, or what another one waits for takes a loop order that costs as much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from types import TracebackType

from upl_mlir.diagnostics import UplError, error
from upl_mlir.passes.circuit.channels.inputs import inputs
from upl_mlir.passes.circuit.channels.links import NoLink
from upl_mlir.passes.circuit.channels.outputs import output
from upl_mlir.passes.circuit.channels.ways import ways
from upl_mlir.passes.circuit.choose import Wish, candidates, cost
from upl_mlir.passes.circuit.nest import Nest
from upl_mlir.passes.circuit.placed import Placed
from upl_mlir.passes.circuit.process import OTHER_ENGINES, Network, Process
from upl_mlir.passes.circuit.share import Shared, clear, group_of, spans
from upl_mlir.passes.circuit.together import together

MOST_COMPARED = 8
"""Schedules of a process that take as many slots of which the one that ends first is taken."""
MOST_TRIED = 200
"""Schedules of a process whose channels are looked at before the first reason is given."""
MOST_TRIES = 256
"""Changes of schedules that share units which are looked at; a hundredth of a second each, and more in large programs."""
LEAST_WAIT = 64
"""This part of a run a process waits for values, before what makes them gets other loops."""
SPARE = (4, 12, 36)
"""Slots that a process waits longer for its own values, if they come through a memory. Tried in turn."""

Group = tuple[Process, ...]


class Refusals:
    """Why schedules of a group of processes will not do: `with refusals:` around a try; the first reason is told."""

    def __init__(self, group: Sequence[Process]):
        self._group, self._first = group, ""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None) -> bool:
        if isinstance(e, UplError):
            self._first = self._first or e.diagnostics[0].message
        elif isinstance(e, NoLink):
            self._first = self._first or str(e)
        return isinstance(e, UplError | NoLink)

    def error(self) -> UplError:
        """UPL2003 with the first reason."""
        why = [f"the best one: {self._first}"] if self._first else ["every order of the loops goes against a dependence"]
        names = ", ".join(f"`{p.name}`" for p in self._group)
        what = f"no static schedule was found for {names}"
        return error("UPL2003", what, self._group[0].span, notes=why, help=OTHER_ENGINES)


@dataclass(frozen=True)
class _State:
    """Processes with their schedules, placed in the `order` of their groups; of some arrays the loops are `given`."""

    order: Sequence[Group]
    given: Mapping[str, Nest]
    parts: Sequence[Placed]


@dataclass(frozen=True)
class _Try:
    """Another order, or other loops; the first groups of it stay as they were, and `sooner` has to begin before."""

    same: int
    order: Sequence[Group]
    given: Mapping[str, Nest]
    sooner: Placed | None = None


@dataclass(frozen=True, eq=False)
class Placing:
    """Processes of a network that are `bare`, without a schedule, by array; `shared`: the sets of those that share units."""

    net: Network
    wish: Wish
    bare: Mapping[str, Placed]
    shared: Shared

    def placed(self) -> list[Placed]:
        """All processes with their schedules, in the order of the network.  Raises UplError UPL2003 if one has none."""
        found, left = _State(self.net.groups, {}, self._from([], self.net.groups, {})), MOST_TRIES if self.shared else 0
        while left:
            for other in islice(self._tries(found), left):
                left -= 1
                if (better := self._better(found, other)) is not None:
                    found = better
                    break
            else:
                break
        numbers = {p.name: n for n, p in enumerate(self.net.processes)}
        return sorted(found.parts, key=lambda p: numbers[p.array])

    def _better(self, s: _State, t: _Try) -> _State | None:
        """What a try leads to, if a run becomes shorter.  What ports keep takes most of the time, and is asked last."""
        before = {p.name for group in t.order[: t.same] for p in group}
        parts = s.parts
        for ports in (False, True):
            try:
                parts = self._from([p for p in s.parts if p.array in before], t.order[t.same :], t.given, ports, t.sooner)
                if spans(parts, self.shared) >= spans(s.parts, self.shared):
                    return None
            except (UplError, NoLink):
                return None
        return _State(t.order, t.given, parts)

    def _tries(self, s: _State) -> Iterator[_Try]:
        """Where a process that shares units waits for values: first another process before it, the last ones first; then
        other loops of what makes those values, and of what that one reads."""
        places = {group[0].name: n for n, group in enumerate(s.order) if len(group) == 1}
        parts = {p.array: p for p in s.parts}
        nests = {p.array: replace(p.nest, start=0) for p in s.parts if p.array in places}

        def makers(p: Placed) -> list[str]:
            return sorted(p.process.reads & places.keys() - {p.array})

        waiting = self._waiting(s)
        for late in reversed(waiting):
            to = places[late.array]
            for at in range(to + 1, len(s.order)):
                p, *more = s.order[at]
                alike = not more and late.array in group_of(p.name, self.shared)
                if alike and not p.reads & {r.name for group in s.order[to:at] for r in group}:
                    yield _Try(to, [*s.order[:to], s.order[at], *s.order[to:at], *s.order[at + 1 :]], s.given)
        for late in waiting:
            kept = {**s.given, **{n: nests[n] for n in places if places[n] <= places[late.array]}}
            for array in makers(late):
                for first in makers(parts[array]):
                    for nest, before in product(self._equal(parts[array]), self._equal(parts[first])):
                        yield _Try(places[first], s.order, {**kept, array: nest, first: before}, late)

    def _waiting(self, s: _State) -> list[Placed]:
        """The processes that share units, on which the length of a run depends, and begin later than these are free."""
        run = spans(s.parts, self.shared)
        limits = [group for group in self.shared if spans(s.parts, (group,)) == run]
        out: list[Placed] = []
        for n, p in enumerate(s.parts):
            with_it = group_of(p.array, self.shared)
            free = max((clear(q, p) for q in s.parts[:n] if q.array in with_it), default=0)
            if with_it in limits and (p.nest.start - free) * LEAST_WAIT > run:
                out.append(p)
        return out

    def _equal(self, p: Placed) -> list[Nest]:
        """The schedules of a process that cost as much as the one that it has."""
        lanes = replace(self.wish, lanes=p.nest.lanes)
        return [n for n in islice(_alone(p, lanes), MOST_COMPARED) if cost(n) == cost(p.nest)]

    def _from(
        self, placed: Sequence[Placed], groups: Sequence[Group], given: Mapping[str, Nest], ports: bool = True,
        sooner: Placed | None = None,
    ) -> list[Placed]:
        """Processes that have a schedule, and the best ones of groups behind them.  Raises UplError UPL2003; NoLink if a
        process does not begin before it did."""
        out = [*placed]
        for group in groups:
            out += self._best(out, group, given, ports)
            if sooner is not None and out[-1].array == sooner.array and out[-1].nest.start >= sooner.nest.start:
                raise NoLink(f"`{sooner.array}` begins no sooner")
        return out

    def _best(self, placed: Sequence[Placed], group: Group, given: Mapping[str, Nest], ports: bool) -> Sequence[Placed]:
        """Of the schedules of least cost the one that ends first, then that whose ports keep fewest words."""
        refused = Refusals(group)
        equal: list[Sequence[Placed]] = []
        # What computes an element at a time keeps up with an array that takes many slots for each.
        few = self.shared and not any(p.body.total for p in group)
        bare = [replace(self.bare[p.name], nest=given.get(p.name, self.bare[p.name].nest)) for p in group]
        wish = replace(self.wish, lanes=1) if few else self.wish
        for parts in [bare] if group[0].name in given else options(bare, wish):
            with refused:
                made = after(placed, parts, self.shared)
                if equal and cost(made[0].nest) != cost(equal[0][0].nest):
                    if (best := self._first_of(placed, equal, refused, ports)) is not None:
                        return best
                    equal = []
                equal = [*equal, made]
                if len(group) > 1 or len(equal) == MOST_COMPARED:
                    if (best := self._first_of(placed, equal, refused, ports)) is not None:
                        return best
                    equal = []
        best = self._first_of(placed, equal, refused, ports)
        if best is None:
            raise refused.error()
        return best

    def _first_of(
        self, placed: Sequence[Placed], equal: Sequence[Sequence[Placed]], refused: Refusals, ports: bool
    ) -> Sequence[Placed] | None:
        """The best of the schedules for which there are ports, if there is one."""
        by: dict[int, list[Sequence[Placed]]] = {}
        for made in equal:
            end = max(p.nest.start + p.nest.busy + p.nest.skew * (p.nest.lanes - 1) for p in made)
            by.setdefault(end, []).append(made)
        for _, some in sorted(by.items()):
            kept: list[tuple[int, Sequence[Placed]]] = []
            for made in some:
                with refused:
                    kept.append((sum(_with_ports(self.net, placed, p) for p in made) if ports else 0, made))
            if kept:
                return min(kept, key=lambda f: f[0])[1]
        return None


def options(group: Sequence[Placed], wish: Wish) -> Iterator[Sequence[Placed]]:
    """The schedules of a group of processes, the best first; behind them those with half as many lanes, and so on."""
    lanes = wish.lanes
    while lanes:
        less = replace(wish, lanes=lanes)
        if len(group) > 1:
            yield from islice(together(group, less), MOST_TRIED)
        else:
            for p in group:
                yield from ([replace(p, nest=nest)] for nest in _alone(p, less))
        lanes //= 2


def _alone(p: Placed, wish: Wish) -> Iterator[Nest]:
    """The schedules of a process, and behind them those in which what varies waits longer: it may come by a memory."""
    for spare in (0, *SPARE) if any(s.own and not s.running for s in p.sites) else (0,):
        nests = candidates(p.process, wish, p.sites, spare=spare)
        if not nests:  # every order goes against a dependence: some loop has to run down
            nests = [n for f in p.process.fields for n in candidates(p.process, wish, p.sites, f, True, spare)]
        yield from nests[:MOST_TRIED]


def after(placed: Sequence[Placed], parts: Sequence[Placed], shared: Shared) -> list[Placed]:
    """The processes of a group, so much later that what they read is there, and that units are free.  Raises NoLink."""
    everything = [*placed, *parts]
    start, inside = 0, {p.array for p in parts}
    for n in range(len(placed), len(everything)):
        _, short = ways(everything, n)
        if any(late > 0 for array, late in short.items() if array in inside):
            raise NoLink(f"a value is read {max(short.values())} slots before it is there")
        start = max([start, *short.values()])
        with_it = group_of(everything[n].array, shared)
        start = max([start, *(clear(p, everything[n]) for p in placed if p.array in with_it)])
    return [replace(p, nest=replace(p.nest, start=p.nest.start + start)) for p in parts]


def _with_ports(net: Network, placed: Sequence[Placed], part: Placed) -> int:
    """The words that ports keep which this process reads, other ones before it included.  Raises UplError UPL2003 if a port
    has no order for its schedule."""
    parts = [*placed, part]
    most = max(p.nest.lanes for p in parts)
    for d in net.outputs.values():
        if d.array == part.array:
            output(d, 0, part, None, most)
    read = {n: h for n, h in net.inputs.items() if n in part.process.reads}
    found = inputs(replace(net, inputs=read), parts, {})
    return sum(i.places(f) * (1 if f.shared else parts[f.part].nest.lanes) for i in found for f in i.feeds)
