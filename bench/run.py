"""The benchmarks: `make bench` measures and writes `bench/RESULTS.md` and `bench/results.json`.

Each figure is the median of interleaved runs, with a peer measured in the same run, because machines differ and drift.
Parts (`make bench BENCH_ARGS='compile cost'`; all without arguments): tools, compile, server, cost, token, picture,
simulation, native.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # this file is a script: `bench` must be found from anywhere, before what follows
# ruff: noqa: E402

import upl_mlir as upl
from bench import compile_time, cost, language_server, picture, report, simulation, token_engine
from bench.report import Row, interleaved, table, this_machine
from upl_mlir.api.programs import Compiled

BIN = Path(sys.executable).parent


def interpreter() -> list[Row]:
    """Firings per second of the interpreter: value and gradient of a 64-32-10 perceptron, one example."""
    layers = [64, 32, 10]
    program = upl.vjp(upl.load(ROOT / "examples" / "perceptron.upl", K=3, N=layers), of="R", wrt=["W"])
    random = np.random.default_rng(0)
    w = random.normal(size=program.inputs["W"].shape(D=1))
    arrays = {"X": random.normal(size=(1, 64)), "W": w, "d_R": random.normal(size=(1, 10))}

    def per_second(f: Compiled) -> Callable[[], float]:
        def once() -> float:
            f(**arrays)
            return sum(f.stats["firings"].values()) / f.stats["seconds"]

        return once

    fifo, shuffled = interleaved(per_second(upl.compile(program)), per_second(upl.compile(program, order="random")))
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
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
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


def record(key: str, rows: list[Row], note: str = "") -> None:
    """Print a part's table and write it."""
    print(table(rows), *([note] if note else []), sep="\n\n", end="\n\n", flush=True)
    report.update(key, {"machine": this_machine(), "rows": [asdict(r) for r in rows], "note": note})


def tools() -> None:
    """Interpreter and start of the tools."""
    record("tools", [*interpreter(), *start()])


def compilation() -> None:
    """How long checks and derivatives take, and what that depends on."""
    record("compile", *compile_time.rows())


def server() -> None:
    """How soon an editor shows mistakes."""
    record("server", language_server.rows(), f"Medians of {language_server.TIMES} keys, on one document.")


def costs() -> None:
    """What derivatives cost to run."""
    record("cost", *cost.rows())


def native() -> None:
    """The native engine against its peers."""
    subprocess.run([sys.executable, "-m", "bench.native"], check=True, cwd=ROOT)


def tokens() -> None:
    """The token engine at scale."""
    record("token", token_engine.rows())


def pictures() -> None:
    """How long pictures take."""
    record("picture", picture.rows(), "Medians of three runs; the page was written once after one to warm up.")


def machines() -> None:
    """Simulation of machines."""
    note = "The sweep was run once, after one of one machine."
    record("simulation", simulation.rows(), note)


PARTS: dict[str, Callable[[], None]] = {
    "tools": tools, "compile": compilation, "server": server, "cost": costs, "token": tokens, "picture": pictures,
    "simulation": machines,
    "native": native,
}  # fmt: skip


def main() -> None:
    """Measure the parts asked for, print their tables, write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    given = parser.parse_args().parts or list(PARTS)
    unknown = [p for p in given if p not in PARTS]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    for part in given:
        PARTS[part]()


if __name__ == "__main__":
    main()
