"""Which steps are evaluated together, and in which order.

A *region* is evaluated if something that it reads has changed since it was last evaluated (S. Beamer and D. Donofrio,
"Efficiently exploiting low activity factors to accelerate RTL simulation", DAC 2020, call this essential signal simulation).
Regions are runs of an order in which each step comes after those that it uses, so that no two of them wait for each other.
Where it is known which steps have something to do in the same cycles (`activity.py`), such steps come one after the other,
and the order is cut where that costs least; else steps come right before who needs them, and regions cost about the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from upl_mlir.hw.sim.netlist.activity import Activity
from upl_mlir.hw.sim.netlist.expression import Variable
from upl_mlir.hw.sim.netlist.program import Program, Step

LIMIT = 130
"""Cost of the steps of a region: smaller ones are looked at too often, larger ones have too much in them that is not due."""

_LOOK, _DUE = 2, 30
"""What a region costs beside its steps: in every cycle, and if it is due."""
_MOST = 700
"""The cost of the largest region that is cut by activity."""
_NEAR = 40
"""Steps back in which a step had better have what it uses: that saves it from being kept, compared and read again."""
_SAVED = 20
"""The cost of that."""


class Stage(IntEnum):
    """What steps are needed for: what the module shows, what another part is told, or what comes after the cycle."""

    SHOWN = 0
    TOLD = 1
    KEPT = 2


@dataclass(eq=False)
class Region:
    """Steps that are evaluated together, in one of three stages."""

    number: int
    stage: Stage
    steps: list[Step] = field(default_factory=list[Step])
    cost: int = 0


def schedule(
    program: Program, limit: int = LIMIT, activity: Activity | None = None, told: Collection[Variable] = ()
) -> list[Region]:
    """Regions in the order in which they are to be evaluated, stage by stage; `told` are the registers that another part
    reads. What a result needs, and nothing before it did, comes right before it, if nothing is known of the steps'
    activity."""
    made = {v: s for s in program.steps for v in s.outs}
    told = set(told)
    roots = {
        Stage.SHOWN: [made[v] for variables in program.outputs.values() for v in variables],
        Stage.TOLD: [s for s in program.steps if s.register in told],
        Stage.KEPT: [s for s in program.steps if s.register is not None or s.writes is not None],
    }
    done: set[Step] = set()
    regions: list[Region] = []
    for stage, ends in roots.items():
        cones = [cone for root in ends if (cone := list(_cone(root, made, done)))]
        if activity is not None:
            group = [s for cone in cones for s in cone]
            if stage is Stage.KEPT:
                group += [s for s in program.steps if s not in done]
            each = _cuts(_together(group, made, activity), activity)
        else:
            each = _filled(cones, limit)
        for steps in each:
            regions.append(Region(len(regions), stage, steps, sum(s.cost for s in steps)))
    return regions


def _filled(cones: Iterable[list[Step]], limit: int) -> list[list[Step]]:
    """Cones one after the other, cut where the cost is more than `limit`, between two of them if that can be."""
    out: list[list[Step]] = []
    cost = 0
    for cone in cones:
        if out and cost + sum(s.cost for s in cone) > limit:
            out.append([])
            cost = 0
        for step in cone:
            if not out or cost > limit:
                out.append([])
                cost = 0
            out[-1].append(step)
            cost += step.cost
    return out


def _cone(root: Step, made: Mapping[Variable, Step], done: set[Step]) -> Iterable[Step]:
    """Steps that are still to be done for this one, and it, each after those that it uses."""
    if root in done:
        return
    done.add(root)
    stack = [(root, iter(root.ins))]
    while stack:
        step, ins = stack[-1]
        before = next((made[v] for v in ins if v in made and made[v] not in done), None)
        if before is None:
            stack.pop()
            yield step
        else:
            done.add(before)
            stack.append((before, iter(before.ins)))


def _together(group: Sequence[Step], made: Mapping[Variable, Step], activity: Activity) -> list[Step]:
    """Steps in an order in which each comes after those of the group that it uses: the next one is, of those that can be,
    the one that would add least to a region of those before it."""
    there = set(group)
    uses = {s: {made[v] for v in s.ins if v in made and made[v] in there} for s in group}
    users: dict[Step, list[Step]] = defaultdict(list)
    for s in group:
        for t in uses[s]:
            users[t].append(s)
    left = {s: len(uses[s]) for s in group}
    ready = [s for s in group if not left[s]]
    bits, costs = activity.rows(ready) if ready else np.zeros((0, 1), np.uint64), [s.cost for s in ready]
    out: list[Step] = []
    region, cost = None, 0
    while ready:
        alone = _count(bits)
        if region is None:
            k = int(np.argmin(alone))
        else:
            both = _count(bits & region)
            more = (alone - both) * cost + (_count(region) - both) * np.array(costs)
            near = set(out[-_NEAR:])
            k = int(np.argmin(more / activity.cycles - _SAVED * np.array([len(uses[s] & near) for s in ready])))
        s = ready.pop(k)
        out.append(s)
        region, cost = (bits[k] | region, cost + s.cost) if region is not None and cost <= LIMIT else (bits[k], s.cost)
        bits = np.delete(bits, k, 0)
        del costs[k]
        for user in users[s]:
            left[user] -= 1
        new = [user for user in users[s] if not left[user]]
        if new:
            ready += new
            costs += [user.cost for user in new]
            bits = np.concatenate([bits, activity.rows(new)])
    return out


def _cuts(order: list[Step], activity: Activity) -> list[list[Step]]:
    """An order cut into regions that cost least in the cycles whose activity is known (by dynamic programming)."""
    if not order:
        return []
    bits, costs = activity.rows(order), np.array([s.cost for s in order], np.float64)
    best = np.full(len(order) + 1, np.inf)
    best[0] = 0
    begin = np.zeros(len(order) + 1, np.int64)
    for n in range(len(order)):
        cost = np.cumsum(costs[n : n + _MOST])
        some = int(np.searchsorted(cost, _MOST)) + 1
        due = _count(np.bitwise_or.accumulate(bits[n : n + some], 0)) / activity.cycles
        total = best[n] + _LOOK + due * (_DUE + cost[:some])
        better = total < best[n + 1 : n + 1 + some]
        best[n + 1 : n + 1 + some][better] = total[better]
        begin[n + 1 : n + 1 + some][better] = n
    out: list[list[Step]] = []
    end = len(order)
    while end:
        out.append(order[begin[end] : end])
        end = int(begin[end])
    return out[::-1]


def _count(bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    return np.bitwise_count(bits).sum(-1, dtype=np.int64)


class Readers:
    """Which regions need a variable that comes from elsewhere: from another region, an input, or a register."""

    def __init__(self, program: Program, regions: Sequence[Region]):
        self._of: dict[Variable, set[Region]] = defaultdict(set)
        home = {v: r for r in regions for s in r.steps for v in s.outs}
        for r in regions:
            for s in r.steps:
                for v in s.ins:
                    if home.get(v) is not r or v in program.initial:
                        self._of[v].add(r)

    def __getitem__(self, v: Variable) -> set[Region]:
        return self._of.get(v, set())

    def __contains__(self, v: Variable) -> bool:
        return v in self._of

    def wait(self, register: Variable, r: Region) -> bool:
        """Whether some still need the value of a register when this region has its next one."""
        return any(other.number > r.number and other.stage is not Stage.SHOWN for other in self[register])
