"""A program in two parts that two threads do side by side, each with a state of its own.

In a cycle a part needs the other's registers only as they were when it began; so the parts meet once in a cycle. What both
need between registers, both evaluate (H. Wang and S. Beamer, "RepCut: Superlinear Parallel RTL Simulation with
Replication-Aided Partitioning", ASPLOS 2023); and a memory that both read is there twice, with all that is written to it.
The first part has the outputs, and what depends on inputs that change in a run, so that the second one need not wait for
these. What is evaluated twice is kept small by moving registers from part to part (C. M. Fiduccia and R. M. Mattheyses, "A
linear-time heuristic for improving network partitions", DAC 1982).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from upl_mlir.hw.sim.netlist.activity import Activity
from upl_mlir.hw.sim.netlist.expression import Variable
from upl_mlir.hw.sim.netlist.program import Program, Step
from upl_mlir.hw.sim.netlist.read import Memory, Unit

_BEGINNINGS = 4
"""Trials, each from another register."""
_TOTAL = 0.3
"""What all work counts for, beside that of the part that has more."""
_UNIT = 5000
"""The cost of a unit, which is better not there twice."""
_HALVINGS = 4
"""How often cycles are halved, into classes with similar work."""
_LOOK = 0.3
"""What a step costs in a cycle in which it has nothing to do."""


@dataclass(eq=False)
class Part:
    """Steps of a program, some of them or all. `steady`: inputs that change between runs only, when `ports` is called.
    `probes`: outputs that are made only when `probe` is called. `exports`: registers of this part that the other one reads,
    in the order of its `imports`."""

    program: Program
    steady: Collection[str] = ()
    probes: Collection[str] = ()
    imports: list[Variable] = field(default_factory=list[Variable])
    exports: list[Variable] = field(default_factory=list[Variable])


def halve(whole: Part, ahead: float = 0, activity: Activity | None = None) -> tuple[Part, Part]:
    """Two parts of about the same cost, which is that in cycles of a known activity if there is one. The second one reads no
    inputs that are not steady. `ahead`: what the first part has to do beside its steps, as a share of the cost of all."""
    program = whole.program
    sinks = _Sinks(program, whole.steady)
    second = _second(sinks, ahead, activity)
    first, last = (
        replace(whole, program=_part(program, sinks.needed(second, side), side)) for side in (False, True)
    )
    for part, other in ((first, last), (last, first)):
        owned = {s.register for s in part.program.steps if s.register is not None}
        read = {v for s in other.program.steps for v in s.ins}
        part.exports = [v for v in program.initial if v in owned and v in read]
        other.imports = part.exports
    return first, last


class _Sinks:
    """Steps that end in a register or in an output. `cone[k, n]`: step `n` is needed for sink `k`."""

    def __init__(self, program: Program, steady: Collection[str]):
        self.steps = program.steps
        number = {s: n for n, s in enumerate(self.steps)}
        made = {v: s for s in self.steps for v in s.outs}
        writer = {s.writes: s for s in self.steps if s.writes is not None}
        shown = {made[v] for variables in program.outputs.values() for v in variables}
        self.sinks = [s for s in self.steps if s.register is not None or s in shown]
        self.cone = np.zeros((len(self.sinks), len(self.steps)), bool)
        for k, sink in enumerate(self.sinks):
            self.cone[k, [number[s] for s in _needed(sink, made, writer)]] = True
        moving = {v for name, w in program.netlist.inputs.items() if name not in steady for v in program.variables[w]}
        waiting = np.array([not moving.isdisjoint(s.ins) for s in self.steps], bool)
        self.first: NDArray[np.bool_] = np.array([s in shown for s in self.sinks], bool) | (self.cone & waiting).any(1)
        """Sinks that have to be in the first part."""

    def needed(self, second: NDArray[np.bool_], side: bool) -> list[Step]:
        """The steps of a part, in their order. What nothing needs is in the first one."""
        users = self.cone[np.equal(second, side)].sum(0).tolist()
        idle = (self.cone.sum(0) == 0).tolist()
        return [s for s, some, none in zip(self.steps, users, idle, strict=True) if some or (none and not side)]


def _needed(sink: Step, made: dict[Variable, Step], writer: dict[Memory | Unit, Step]) -> Iterable[Step]:
    """What has to be in a part with a sink: who reads a memory needs what is written to it."""
    found = {sink}
    stack = [sink]
    while stack:
        s = stack.pop()
        before = [made[v] for v in s.ins if v in made]
        before += [writer[s.rows]] if s.rows in writer else []
        stack += (new := dict.fromkeys(t for t in before if t not in found))
        found.update(new)
    return found


def _second(sinks: _Sinks, ahead: float, activity: Activity | None) -> NDArray[np.bool_]:
    """Which sinks are in the second part."""
    cost = np.array([_UNIT if isinstance(s.rows or s.writes, Unit) else s.cost for s in sinks.steps], np.float64)[:, None]
    if activity is not None:
        cost = _in_cycles(cost, activity.cycle_bits(sinks.steps)) + _LOOK
    columns, which = np.unique(sinks.cone.T, axis=0, return_inverse=True)  # steps that the same sinks need count as one
    weight = np.zeros((len(columns), cost.shape[1]), np.float32)
    np.add.at(weight, which.ravel(), cost)
    trials = [_Cut(columns.T.astype(np.float32), weight, sinks.first, ahead) for _ in range(_BEGINNINGS)]
    free = np.flatnonzero(~sinks.first)
    for n, trial in enumerate(trials):
        if len(free):
            trial.grow(int(free[n * len(free) // len(trials)]))
            trial.improve()
    return min(trials, key=lambda trial: trial.value()).second


def _in_cycles(cost: NDArray[np.float64], due: NDArray[np.bool_]) -> NDArray[np.float64]:
    """What steps cost in classes of cycles in which similar things are to be done: as a cycle takes as long as the part that
    has more to do in it, parts are to have the same share of each. Cycles are halved again and again, each time along the
    first principal component of what is due."""
    classes = [due.astype(np.float64) * np.sqrt(cost[:, 0])]
    for _ in range(_HALVINGS):
        classes = [half for some in classes for half in np.array_split(some[np.argsort(_component(some), kind="stable")], 2)]
    return np.stack([(some**2).mean(0) for some in classes], 1)


def _component(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The first principal component of each row."""
    rows = rows - rows.mean(0)
    return np.linalg.eigh(rows @ rows.T)[1][:, -1]


class _Cut:
    """Which sinks are in the second part, and how many of each part need each column of steps. `weight`: what these cost,
    in cycles of several classes."""

    def __init__(self, cone: NDArray[np.float32], weight: NDArray[np.float32], fixed: NDArray[np.bool_], ahead: float):
        self.cone, self.weight, self.fixed = cone, weight, fixed
        self.ahead = ahead * float(weight.sum(0).mean())
        self.second = np.zeros(len(cone), bool)
        self.users = np.stack([cone.sum(0), np.zeros(len(weight), np.float32)])

    def value(self) -> float:
        return float(self._value(*((row > 0) @ self.weight for row in self.users)))

    def _value(self, first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
        return (np.maximum(first + self.ahead, second) + _TOTAL * (first + second)).mean(-1)

    def _moved(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The costs of both parts after each of the possible moves."""
        return self._after(self.users[0], ~self.second), self._after(self.users[1], self.second)

    def _after(self, users: NDArray[np.float32], members: NDArray[np.bool_]) -> NDArray[np.float32]:
        """The costs of a part after each sink has left it, or has come."""
        come = np.array(self.cone @ (self.weight * (users == 0)[:, None]), np.float32)
        left = np.array(self.cone @ (self.weight * (users == 1)[:, None]), np.float32)
        return np.where(members[:, None], -left, come) + self.weight[users > 0].sum(0)

    def _move(self, k: int) -> None:
        to = int(not self.second[k])
        self.users[to] += self.cone[k]
        self.users[1 - to] -= self.cone[k]
        self.second[k] = not self.second[k]

    def grow(self, k: int) -> None:
        """From one sink on, by those that cost least, until the second part has its share."""
        self._move(k)
        while True:
            first, second = (costs.mean(-1) for costs in self._moved())
            costs = np.where(self.second | self.fixed, np.inf, first + second)
            k = int(np.argmin(costs))
            if not np.isfinite(costs[k]) or second[k] > first[k] + self.ahead:
                return
            self._move(k)

    def improve(self) -> None:
        """Passes: each sink is moved at most once, the best one first, though it may be a loss; then back to the best
        state on the way."""
        before = np.inf
        while (best := self.value()) < before:
            before = best
            moved: list[int] = []
            good, locked = 0, self.fixed.copy()
            while len(moved) - good < len(self.fixed) // 6 and not locked.all():
                values = np.where(locked, np.inf, self._value(*self._moved()))
                k = int(np.argmin(values))
                self._move(k)
                moved.append(k)
                locked[k] = True
                if values[k] < best:
                    best, good = float(values[k]), len(moved)
            for k in moved[good:]:
                self._move(k)


def _part(program: Program, steps: list[Step], second: bool) -> Program:
    """The program of a part."""
    there = {s.writes for s in steps} | {s.rows for s in steps}
    net = program.netlist
    some = replace(
        net, memories=[m for m in net.memories if m in there], units=[u for u in net.units if u in there],
        inputs={name: w for name, w in net.inputs.items() if not second or _read(program.variables[w], steps)},
    )  # fmt: skip
    commits = [c for c in program.commits if c.memory in there]
    return replace(program, netlist=some, steps=steps, commits=commits, outputs={} if second else program.outputs)


def _read(variables: list[Variable], steps: list[Step]) -> bool:
    read = {v for s in steps for v in s.ins}
    return not read.isdisjoint(variables)
