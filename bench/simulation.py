"""How fast machines are simulated, and how long a sweep over a thousand of them takes.

The program is a training step of a 32-16-10 perceptron on a mini-batch of 8 (`examples/iris_batch.upl`).  The peer of the
compiled simulation is Amaranth's simulator with the same machine, program and tokens, for its first cycles.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.report import Row
from upl_mlir.diagnostics import UplError
from upl_mlir.engines.rtl.engine import RtlEngine
from upl_mlir.engines.rtl.run import run_machine
from upl_mlir.explore.job import Job, bind
from upl_mlir.hw.machine import Machine, Matching
from upl_mlir.hw.results import HostToken
from upl_mlir.hw.sim.amaranth_sim import AmaranthSimulation
from upl_mlir.hw.sim.compiled import CompiledSimulation
from upl_mlir.hw.sim.interface import Report, Tokens
from upl_mlir.hw.system.layouts import System

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "examples" / "iris_batch.upl"
DEFINE = {"D": 8, "K": 3, "N": [32, 16, 10]}
AIMS = {1: 1.0, 4: 0.3, 16: 0.1}
"""Millions of cycles a second by cores."""
RUNS = 7
"""Runs of each kind, in turn."""
AMARANTH_CYCLES = {1: 1500, 4: 400, 16: 100}
SWEEP = """\
program = "{program}"
[define]
D = 8
[inputs]
X = "random"
Y = "random"
W = "random"
[sweep]
"matching.capacity" = [64, 128, 256, 512, 1024]
"matching.ways" = [1, 2, 4]
"matching.backing_latency_cycles" = [1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30]
"matching.queue_capacity" = [512, 1024, 2048, 4096]
[search]
objectives = ["cycles", "energy"]
"""
POINTS = 5 * 3 * 17 * 4


def rows() -> list[Row]:
    """Speed by cores, with a thread for each processor and with one; then the sweep."""
    return [*(row for cores in AIMS for row in _speed(cores)), sweep()]


class Timed(AmaranthSimulation):
    """Amaranth's simulator with a clock: loading the machine is not part of `seconds`."""

    seconds = 0.0

    def run(self, tokens: Tokens, limit: int, checks: int = 0, watch: bool = False) -> Report:
        """As `Simulation` says."""
        start = time.perf_counter()
        report = super().run(tokens, limit, checks, watch)
        self.seconds = time.perf_counter() - start
        return report


def training(cores: int, define: dict[str, object]) -> tuple[Machine, RtlEngine, tuple[HostToken, ...]]:
    """A machine with so many cores, a training step of these sizes for it, and its tokens."""
    job = Job("training", PROGRAM.read_text(encoding="utf-8"), dict.fromkeys("XYW", "random"))
    program, bound, dense = bind(job, define)
    machine = Machine(cores=cores, matching=Matching(capacity=4096, queue_capacity=1 << 15))
    engine = RtlEngine(program.module, bound, machine=machine)
    return machine, engine, tuple(engine.inject({name: dense[name] for name in engine.hosts}))


def _speed(cores: int) -> list[Row]:
    machine, engine, tokens = training(cores, DEFINE)

    def compiled(threads: int | None) -> float:
        simulation = CompiledSimulation(System.of(machine), threads)
        stats = run_machine(engine.image, machine, tokens, simulation=simulation).stats
        return stats.cycles / stats.seconds / 1e6

    slow = Timed(System.of(machine))
    try:
        run_machine(engine.image, machine, tokens, simulation=slow, max_cycles=AMARANTH_CYCLES[cores])
    except UplError as e:
        if e.diagnostics[0].code != "UPL1708":  # cut short, as it should be
            raise
    peer = AMARANTH_CYCLES[cores] / slow.seconds / 1e6
    what = f"training step of 32-16-10, {cores} core{'s' if cores > 1 else ''}, compiled simulation"
    both, one = (median(some) for some in zip(*((compiled(None), compiled(1)) for _ in range(RUNS)), strict=True))
    aim = f">= {AIMS[cores]}, 1000 times"
    return [
        Row(what, both, "M cycles/s", aim, "Amaranth's simulator", peer),
        Row(f"{os.cpu_count()} threads beside one", both, "M cycles/s", "", "one thread", one),
    ]


def sweep() -> Row:
    """The time of a sweep, after one that made what is compiled; beside it, what so many runs would take one after the
    other, each a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sweep.toml")
        file.write_text(SWEEP.format(program=PROGRAM), encoding="utf-8")
        one = Path(folder, "one.toml")
        head = SWEEP.format(program=PROGRAM).partition("[sweep]")[0]
        one.write_text(head + "[sweep]\ncores = [1]\n", encoding="utf-8")
        run = _explore(one, Path(folder, "one"))
        run()
        alone = run()
        seconds = _explore(file, Path(folder, "out"))()
        with Path(folder, "out", "table.csv").open(encoding="utf-8") as table:
            results = [r for r in csv.DictReader(table) if r["cycles"]]
    assert len(results) == POINTS, f"{len(results)} results"
    what = f"{POINTS} machines on the mini-batch of 8 (7 layers), {os.cpu_count()} processes"
    return Row(what, seconds, "s", "<= 300", f"a process for one, times {POINTS}", alone * POINTS)


def _explore(file: Path, out: Path) -> Callable[[], float]:
    def once() -> float:
        start = time.perf_counter()
        command = [str(Path(sys.executable).parent / "upl"), "explore", str(file), "-o", str(out)]
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - start

    return once
