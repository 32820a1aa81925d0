"""Which steps are evaluated together, and in which order.

A *region* is evaluated if something that it reads has changed since it was last evaluated (S. Beamer and D. Donofrio,
"Efficiently exploiting low activity factors to accelerate RTL simulation", DAC 2020, call this essential signal simulation).
Regions are runs of an order in which each step comes after those that it uses, so that no two of them wait for each other.
Steps come right before who needs them, and regions cost about the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from upl_mlir.netsim.expression import Variable
from upl_mlir.netsim.program import Program, Step

LIMIT = 130
"""Cost of the steps of a region: smaller ones are looked at too often, larger ones have too much in them that is not
due. No table of trials is on record."""


class Stage(IntEnum):
    """What steps are needed for: what the module shows, or what comes after the cycle."""

    SHOWN = 0
    KEPT = 1


@dataclass(eq=False)
class Region:
    """Steps that are evaluated together, in one of two stages."""

    number: int
    stage: Stage
    steps: list[Step] = field(default_factory=list[Step])
    cost: int = 0


def schedule(program: Program, limit: int = LIMIT) -> list[Region]:
    """Regions in the order in which they are to be evaluated, stage by stage. What a result needs, and nothing before it
    did, comes right before it."""
    made = {v: s for s in program.steps for v in s.outs}
    roots = {
        Stage.SHOWN: [made[v] for variables in program.outputs.values() for v in variables],
        Stage.KEPT: [s for s in program.steps if s.register is not None or s.writes is not None],
    }
    done: set[Step] = set()
    regions: list[Region] = []
    for stage, ends in roots.items():
        cones = [cone for root in ends if (cone := list(_cone(root, made, done)))]
        for steps in _filled(cones, limit):
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
