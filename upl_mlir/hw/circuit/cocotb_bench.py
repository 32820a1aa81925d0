"""A bench for a circuit's Verilog in cocotb: AXI4-Stream drivers and monitors with random pauses.

`upl run F --engine circuit ... --bench DIR` writes it beside `circuit.v` and `streams.json`, the words of all ports. It
needs nothing else of this package. `python cocotb_bench.py icarus` or `python cocotb_bench.py verilator` runs it; in a
flow of your own it is the cocotb module for the top level `circuit`. Environment: `BENCH_STREAMS` is the file of words,
`BENCH_RUNS` how often they pass without a reset in between (default 3), `BENCH_SEED` that of the pauses.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportUntypedFunctionDecorator=false
# cocotb is installed by those who run benches.

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer

PERIOD = 10  # of the clock, in ns; any will do
PATIENCE = 100_000
"""Clocks without a word at any port after which the circuit is said to stand still."""
PAUSES = ((0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (0.3, 0.3), (0.9, 0.1), (0.1, 0.9))
"""How often inputs and outputs pause, as parts of all clocks; a test for each."""


class Driver:
    """Sends words into a port, each offered until it is taken."""

    def __init__(self, dut: Any, port: str, words: list[int], run: int):
        self.valid, self.ready, self.data, self.last = _pins(dut, port)
        self.words, self.run = words, run
        self.sent, self.offered = 0, False
        self.valid.value, self.data.value, self.last.value = 0, 0, 0

    def before(self, pause: bool) -> None:
        """The pins for the edge to come."""
        self.offered = self.sent < len(self.words) and (self.offered or not pause)
        self.valid.value = int(self.offered)
        self.data.value = self.words[self.sent] if self.offered else random.getrandbits(len(self.data))
        self.last.value = int(self.offered and self.sent % self.run == self.run - 1)

    def at_edge(self) -> bool:
        """Whether a word passes."""
        taken = self.offered and int(self.ready.value) == 1
        self.sent += taken
        self.offered = self.offered and not taken
        return taken


class Monitor:
    """Takes words from a port and compares each; what is offered must stay until it is taken."""

    def __init__(self, dut: Any, port: str, words: list[int], run: int):
        self.valid, self.ready, self.data, self.last = _pins(dut, port)
        self.port, self.words, self.run = port, words, run
        self.seen, self.waits = 0, None
        self.ready.value = 0

    def before(self, pause: bool) -> None:
        """The pin for the edge to come."""
        self.ready.value = int(not pause)

    def at_edge(self) -> bool:
        """Whether a word passes."""
        offered = (int(self.data.value), int(self.last.value)) if int(self.valid.value) == 1 else None
        assert self.waits is None or offered == self.waits, f"{self.port}: {self.waits} was offered, not taken, and is gone"
        taken = offered is not None and int(self.ready.value) == 1
        self.waits = None if taken else offered
        if taken:
            assert self.seen < len(self.words), f"{self.port}: a word too many"
            wanted = (self.words[self.seen], int(self.seen % self.run == self.run - 1))
            assert offered == wanted, f"{self.port}: word {self.seen} with its mark is {offered}, expected {wanted}"
            self.seen += 1
        return taken


def _pins(dut: Any, port: str) -> list[Any]:
    return [getattr(dut, f"{port}_t{end}") for end in ("valid", "ready", "data", "last")]


@cocotb.test()
@cocotb.parametrize(pauses=PAUSES)
async def streams(dut: Any, pauses: tuple[float, float]) -> None:
    """All runs of the file pass with the expected words and marks, and nothing comes after them."""
    runs = int(os.environ.get("BENCH_RUNS", "3"))
    draw = random.Random(f"{os.environ.get('BENCH_SEED', '1')} {pauses}")
    path = os.environ.get("BENCH_STREAMS", Path(__file__).with_name("streams.json"))
    file = json.loads(Path(path).read_text(encoding="utf-8"))
    drivers = [Driver(dut, port, words * runs, len(words)) for port, words in file["inputs"].items()]
    monitors = [Monitor(dut, port, words * runs, len(words)) for port, words in file["outputs"].items()]

    dut.rst.value = 1
    cocotb.start_soon(Clock(dut.clk, PERIOD, "ns").start())
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    clocks = still = after = 0
    while after < 100:
        for d in drivers:
            d.before(draw.random() < pauses[0])
        for o in monitors:
            o.before(draw.random() < pauses[1])
        await Timer(PERIOD // 4, "ns")  # between the edges everything is settled
        passed = [end.at_edge() for end in (*drivers, *monitors)]
        done = all(o.seen == len(o.words) for o in monitors)
        after, clocks, still = after + done, clocks + (not done), 0 if any(passed) else still + 1
        assert still < PATIENCE, f"the circuit stands still after {clocks} clocks"
        await FallingEdge(dut.clk)
    assert all(d.sent == len(d.words) for d in drivers), "the circuit did not take all words"
    dut._log.info(f"{runs} runs in {clocks} clocks")


def main() -> None:
    """Builds `circuit.v` for a simulator and runs the bench."""
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    here = Path(__file__).resolve().parent
    simulator = sys.argv[1] if len(sys.argv) > 1 else "verilator"
    runner = get_runner(simulator)
    options = ["-Wno-fatal"] if simulator == "verilator" else []
    build = here / f"build_{simulator}"
    scale = ("1ns", "1ps")
    sources = [here / "circuit.v"]
    runner.build(sources=sources, hdl_toplevel="circuit", build_dir=build, build_args=options, timescale=scale)
    results = runner.test(hdl_toplevel="circuit", test_module=Path(__file__).stem, build_dir=build, test_dir=here)
    tests, failures = get_results(results)
    print(f"{simulator}: {tests} tests, {failures} failures")
    sys.exit(failures > 0 or tests == 0)


if __name__ == "__main__":
    main()
