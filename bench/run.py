"""The benchmarks: `make bench` measures and writes `bench/RESULTS.md` and `bench/results.json`.

Each figure is the median of interleaved runs, with a peer measured in the same run, because machines differ and drift.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import upl_mlir as upl
from upl_mlir.api import Compiled

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
RUNS = 7


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, in which unit, the aim (empty if there is none), the peer beside it."""

    what: str
    value: float
    unit: str
    aim: str
    peer: str
    peer_value: float

    @property
    def text(self) -> str:
        """The line in Markdown."""
        ratio = self.value / self.peer_value if self.peer_value else float("nan")
        return (
            f"| {self.what} | {self.value:.4g} {self.unit} | {self.aim} | {self.peer}: {self.peer_value:.4g} {self.unit} "
            f"| {ratio:.3g} |"
        )


def interleaved(*actions: Callable[[], float]) -> list[float]:
    """Medians of figures measured in turn, after one round to warm up."""
    for action in actions:
        action()
    figures: list[list[float]] = [[] for _ in actions]
    for _ in range(RUNS):
        for found, action in zip(figures, actions, strict=True):
            found.append(action())
    return [statistics.median(f) for f in figures]


def interpreter() -> list[Row]:
    """Firings per second of the interpreter: value and gradient of a 64-32-10 perceptron, one example."""
    layers = [64, 32, 10]
    program = upl.vjp(upl.load(HERE.parent / "examples" / "perceptron.upl", K=3, N=layers), of="R", wrt=["W"])
    random = np.random.default_rng(0)
    w = random.normal(size=program.inputs["W"].shape(D=1))
    arrays = {"X": random.normal(size=(1, 64)), "W": w, "d_R": random.normal(size=(1, 10))}

    def per_second(f: Compiled) -> Callable[[], float]:
        def once() -> float:
            f(**arrays)
            return sum(f.stats["firings"].values()) / f.stats["seconds"]

        return once

    fifo, shuffled = interleaved(
        per_second(upl.compile(program)), per_second(upl.compile(program, order="random"))
    )
    return [
        Row(
            "interpreter, 64-32-10 perceptron, value and gradient", fifo / 1e6, "M firings/s", ">= 0.3",
            "same in random order", shuffled / 1e6,
        )
    ]  # fmt: skip


def process(*command: str) -> Callable[[], float]:
    """Seconds of a whole process."""

    def once() -> float:
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, cwd=HERE.parent)
        return time.perf_counter() - start

    return once


def start() -> list[Row]:
    """Start-up time of the driver, against xDSL's own and a bare interpreter."""
    example = "examples/perceptron.upl"
    ours, theirs, bare = interleaved(
        process(str(BIN / "upl-opt"), example, "-t", "upl"),
        process(str(BIN / "xdsl-opt"), "--help"),
        process(sys.executable, "-c", "pass"),
    )
    return [
        Row("upl-opt, parse and print a program", ours, "s", "<= 0.4", "xdsl-opt --help", theirs),
        Row("upl-opt, parse and print a program", ours, "s", "<= 0.4", "python -c pass", bare),
    ]


def compile_times() -> list[Row]:
    """Seconds to infer, check and differentiate the perceptron of the paper and one ten times as wide."""
    path = HERE.parent / "examples" / "perceptron.upl"

    def timed(action: Callable[[upl.Program], object], **sizes: object) -> Callable[[], float]:
        def once() -> float:
            program = upl.load(path, **sizes)  # pyright: ignore[reportArgumentType]
            begin = time.perf_counter()
            action(program)
            return time.perf_counter() - begin

        return once

    wide = {"N": [40, 40, 50, 60, 40, 30, 30]}
    rows: list[Row] = []
    for what, action in (("check", lambda p: p.check()), ("differentiate", lambda p: upl.vjp(p, of="R", wrt=["W"]))):
        small, large = interleaved(timed(action), timed(action, **wide))
        title = f"{what} the perceptron with layers ten times as wide"
        rows.append(Row(title, large, "s", "independent of sizes", "as in the paper", small))
    return rows


def main() -> None:
    """Measure everything, print the table, write it."""
    rows = [*interpreter(), *start(), *compile_times()]
    head = "| what | measured | aim | beside it, same run | ratio |\n|---|---|---|---|---|"
    table = "\n".join([head, *(r.text for r in rows)])
    python = platform.python_version()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {python}, medians of {RUNS} interleaved runs"
    print(f"{table}\n\n{machine}")
    (HERE / "RESULTS.md").write_text(
        f"# Measured\n\nWritten by `make bench`. {machine}.\n\n{table}\n", encoding="utf-8"
    )
    (HERE / "results.json").write_text(
        json.dumps({"machine": machine, "rows": [asdict(r) for r in rows]}, indent=2) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
