"""Running a sweep: which points are left, builds, runs in parallel, results as they come."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from upl_mlir.diagnostics import UplError
from upl_mlir.engines.rtl.prepare import build_of, prepare_machine
from upl_mlir.explore.circuits import run_circuit, synthesise_circuit
from upl_mlir.explore.design import Design
from upl_mlir.explore.inputs import job_of
from upl_mlir.explore.job import Job, Outcome, Task, run_task
from upl_mlir.explore.records import Records
from upl_mlir.explore.sweep import Point, Sweep
from upl_mlir.hw.machine import Energy, Machine
from upl_mlir.hw.synth.ecp5 import Clock
from upl_mlir.hw.synth.figures import figures

BATCH = 16
"""Points that a worker gets at a time, at most: long enough that handing them over costs nothing."""
OUTSTANDING = 4
"""Batches for each worker that are under way at a time."""


class Progress(Protocol):
    """Told how a sweep goes on."""

    def phase(self, what: str, total: int) -> None:
        """Something begins that has so many steps."""
        ...

    def step(self, done: int = 1) -> None:
        """So many steps are done."""
        ...


@dataclass
class Run:
    """A point with what became of it."""

    point: Point
    task: Task
    key: str
    outcome: Outcome
    area: dict[str, Any] | None = None
    """By synthesis, as `Figures.to_dict` has it under `composed`; None if nothing was synthesised."""
    area_error: str | None = None


@dataclass
class Runner:
    """A sweep that is being run."""

    sweep: Sweep
    records: Records
    pool: Executor
    workers: int
    progress: Progress
    runs: list[Run] = field(default_factory=list[Run])
    kept: int = 0
    """Runs that were there already."""

    def __post_init__(self) -> None:
        self.job: Job = job_of(self.sweep)
        self._areas: dict[str, Future[dict[str, Any]]] = {}

    def grid(self) -> None:
        """Run all points of the grid that are not there yet."""
        todo: list[Run] = []
        for run in self._begin(self.sweep.grid()):
            (todo if run.outcome == NOT_RUN else self.runs).append(run)
        self._build(todo, "builds")
        # Points of the same program follow one another, so that a worker has it ready.
        todo.sort(key=lambda r: json.dumps(r.task.define, sort_keys=True))
        self.progress.phase("runs", len(todo))
        for run in self._all(todo):
            self.runs.append(run)
            self.progress.step()
        self._synthesise(self.runs, "syntheses")

    def ask(self, points: Sequence[Point]) -> list[Run]:
        """Run some points, whose results are wanted before others are chosen; those of a search."""
        asked: list[Run] = []
        new: dict[str, Run] = {}
        for run in self._begin(points):
            known = next((r for r in (*self.runs, *new.values()) if r.key == run.key and run.key), run)
            if known is run:
                new[run.key or json.dumps(run.point)] = run
            asked.append(known)
        todo = [r for r in new.values() if r.outcome == NOT_RUN]
        self._build(todo)
        list(self._all(todo, batch=1))
        self._synthesise([*new.values()])
        self.runs += new.values()
        return asked

    def _begin(self, points: Iterable[Point]) -> Iterator[Run]:
        """Points as runs: with the outcome if there is one, or if the machine cannot be built."""
        for point in points:
            define = self.sweep.definitions(point)
            try:
                task = Task(define, self.sweep.subject(point))
            except UplError as e:
                on = Machine() if self.sweep.circuit is None else Design()
                yield Run(point, Task(define, on), "", Outcome(error=str(e)))
                continue
            key = self.records.key(self.job, task)
            found = self.records.load(key)
            self.kept += found is not None
            yield Run(point, task, key, found or NOT_RUN)

    def _build(self, runs: Sequence[Run], phase: str = "") -> None:
        """Build the machines that the runs will use, each once; of circuits nothing is simulated."""
        machines = [r.task.on for r in runs if isinstance(r.task.on, Machine)]
        different = {build: m for m in machines if (build := build_of(m)) is not None}
        if phase and machines:
            self.progress.phase(phase, len(different))
        for machine in different.values():
            prepare_machine(machine)
            if phase:
                self.progress.step()

    def _all(self, todo: Sequence[Run], batch: int = BATCH) -> Iterator[Run]:
        """The runs as they end; each is written down at once."""
        size = max(1, min(batch, len(todo) // (OUTSTANDING * self.workers)))
        batches = [todo[n : n + size] for n in range(0, len(todo), size)]
        waiting: dict[Future[list[Outcome]], Sequence[Run]] = {}
        while batches or waiting:
            while batches and len(waiting) < OUTSTANDING * self.workers:
                part = batches.pop(0)
                waiting[self.pool.submit(run_points, self.job, [r.task for r in part])] = part
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                for run, outcome in zip(waiting.pop(future), future.result(), strict=True):
                    run.outcome = outcome
                    self.records.save(run.key, run.point, run.task, outcome)
                    yield run

    def _synthesise(self, runs: Sequence[Run], phase: str = "") -> None:
        """Put areas, and clocks where asked for, into runs that ended well."""
        if not self.sweep.search.synthesis:
            return
        wanted: dict[str, list[Run]] = {}
        for run in runs:
            if run.outcome.stats is not None:
                wanted.setdefault(_built_for(run), []).append(run)
        if phase:
            self.progress.phase(phase, len(wanted))
        for name, those in wanted.items():
            if name not in self._areas:
                self._areas[name] = self.pool.submit(
                    synthesise, self.job, those[0].task, self.sweep.search.place_and_route
                )
        for name, those in wanted.items():
            found = self._areas[name].result()
            for run in those:
                run.area, run.area_error = found.get("composed"), found.get("error")
            if phase:
                self.progress.step()


NOT_RUN = Outcome()


def run_points(job: Job, tasks: Sequence[Task]) -> list[Outcome]:
    """Run points one after the other."""
    return [run_circuit(job, t) if isinstance(t.on, Design) else run_task(job, t) for t in tasks]


def _built_for(run: Run) -> str:
    """A name for what has the same area: a circuit with its sizes, or a machine without what changes no RTL."""
    if isinstance(run.task.on, Design):
        return run.key
    machine = msgspec.structs.replace(run.task.on, name="", energy=Energy(), placement={})
    return json.dumps(msgspec.to_builtins(machine, enc_hook=str), sort_keys=True)


def synthesise(job: Job, task: Task, clock: bool) -> dict[str, Any]:
    """The figures of a machine as `Figures.to_dict` has them, those of a circuit under `composed`; or the `error` that
    synthesis ended with."""
    if isinstance(task.on, Design):
        return synthesise_circuit(job, task, clock)
    try:
        return figures(task.on, clock=Clock.ROUTED if clock else None).to_dict()
    except UplError as e:
        return {"error": str(e)}
