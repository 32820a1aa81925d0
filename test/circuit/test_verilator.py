"""The Verilog of circuits in a second simulator, Verilator: equal words, marks and clocks; and what its lint says of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circuit.circuits import CASES, Case, data
from circuit.verilated import simulation
from hw.verilated import lint

from upl_mlir.engines.circuit.engine import run
from upl_mlir.engines.circuit.simulation import Simulation
from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.hw.circuit.verilog import circuit_verilog
from upl_mlir.hw.sim.build import available

STALLS: list[dict[str, Any]] = [{}, {"hold_in": 120, "seed": 5}, {"hold_out": 120, "seed": 6},
                                {"hold_in": 90, "hold_out": 60, "seed": 7}]  # fmt: skip


def case(name: str, which: int = 1) -> Case:
    """A program at its middle size."""
    return [c for c in CASES if c.name == name][which]


def agree(ours: Simulation, theirs: Simulation) -> None:
    """Three runs without a reset, without and with ports that wait: all that passes at any port is the same, and when."""
    plan = ours.circuit.plan
    inputs = [data(plan, seed) for seed in range(3)]
    for stalls in STALLS:
        (_, a), (_, b) = run(ours, inputs, **stalls), run(theirs, inputs, **stalls)
        assert a.cycles == b.cycles > plan.slots
        for x, y in ((a.words, b.words), (a.last, b.last), (a.clocks, b.clocks), (a.taken, b.taken)):
            assert x.keys() == y.keys()
            for port, values in x.items():
                np.testing.assert_array_equal(values, y[port], err_msg=f"{port} with {stalls}")
        for o in plan.outputs:
            assert np.flatnonzero(b.last[o.name]).tolist() == [n * o.words - 1 for n in range(1, 4)]


@pytest.mark.skipif(not available(), reason="no C++ compiler")
@pytest.mark.parametrize(("name", "lanes"), [("matmul", 2), ("jacobi1d", 1)])
def test_two_simulators_see_the_same(tmp_path: Path, name: str, lanes: int) -> None:
    _, plan = case(name).planned(lanes)
    circuit = Circuit(plan)
    agree(Simulation(circuit), simulation(tmp_path, circuit, circuit_verilog(plan)))


LINTED = [("matmul", 1, "generic"), ("fir", 2, "generic"), ("jacobi1d", 4, "generic"), ("conv2d", 1, "generic"),
          ("scan", 2, "generic"), ("wave", 2, "ecp5"), ("matmul", 4, "ecp5")]  # fmt: skip


@pytest.mark.parametrize(("name", "lanes", "device"), LINTED)
def test_the_lint_says_nothing(tmp_path: Path, name: str, lanes: int, device: str) -> None:
    """With -Wall; only blocks of the device are not described: they are given by their ports."""
    text = circuit_verilog(case(name).planned(lanes)[1], device)
    boxes = black_boxes(text)
    assert set(boxes) <= ({"DP16KD", "MULT18X18D", "TRELLIS_DPR16X4"} if device == "ecp5" else set())
    assert lint(tmp_path, text + "".join(boxes.values()), "circuit") == set()


def black_boxes(text: str) -> dict[str, str]:
    """Modules without contents for the instances whose modules a text has not."""
    own = set(re.findall(r"(?m)^module (\S+)", text))
    out: dict[str, str] = {}
    for name, parameters, ports in re.findall(r"(?m)^  (\S+) #\(\n(.*?)\n  \) \S+ ?\(\n(.*?)\n  \);", text, re.S):
        if name not in own:
            inside = "".join(f"  parameter {p} = 0;\n" for p in re.findall(r"\.(\w+)\(", parameters))
            kinds = [f"{'output' if re.match('DO|RO|P[0-9]', p) else 'input'} {p}" for p in re.findall(r"\.(\w+)\(", ports)]
            waived = "".join(f"/* verilator lint_off {w} */ " for w in ("UNUSEDSIGNAL", "UNDRIVEN", "UNUSEDPARAM"))
            out[name] = f"{waived}\nmodule {name}({', '.join(kinds)});\n{inside}endmodule\n"
    return out
