"""`-t hw`: CIRCT parses and verifies the text, and the Verilog that CIRCT makes of it does what the circuit does."""

from __future__ import annotations

import ctypes
import io
import sys
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib.memory import Memory

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "hw" / "sim"))
import circuits
from circuit.test_verilator import agree, case
from circuit.verilated import compiled, simulation

from upl_mlir.engines.circuit.simulation import Simulation
from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.hw.circuit.verilog import circuit_hw
from upl_mlir.hw.sim.build import available
from upl_mlir.hw.verilog import netlist
from upl_mlir.netsim.circt import circt_text
from upl_mlir.netsim.read import read

circt: Any = pytest.importorskip("circt", reason="no CIRCT: the extra `circt` installs it, where there is a wheel")

ROOM = 64
"""Bytes for each value of the harness, more than any has."""
LOWERING = "builtin.module(lower-seq-firmem,lower-seq-to-sv,hw-memory-sim)"


def verilog(text: str) -> str:
    """Verilog by CIRCT, of a text that it has parsed and verified."""
    from circt.ir import Context
    from circt.ir import Module as Parsed
    from circt.passmanager import PassManager

    with Context() as context:
        circt.register_dialects(context)
        module = Parsed.parse(text)
        assert module.operation.verify()
        PassManager.parse(LOWERING).run(module.operation)
        out = io.StringIO()
        circt.export_verilog(module, out)
        return out.getvalue()


def test_a_text_that_is_wrong_is_refused() -> None:
    """The test would see it: a value of another width."""
    text = circuit_hw(case("matmul", 2).planned(1)[1])
    verilog(text)
    with pytest.raises(Exception, match="type"):
        verilog(text.replace("out C_tdata : i32", "out C_tdata : i31"))


@pytest.mark.skipif(not available(), reason="no C++ compiler")
@pytest.mark.parametrize(("name", "lanes"), [("matmul", 2), ("jacobi1d", 1)])
def test_what_circt_makes_of_a_circuit(tmp_path: Path, name: str, lanes: int) -> None:
    circuit = Circuit(case(name).planned(lanes)[1])
    agree(Simulation(circuit), simulation(tmp_path, circuit, verilog(circuit_hw(circuit.plan)), reset=False))


def test_what_is_in_no_circuit_yet() -> None:
    """Ports whose names are no identifiers; a memory of one word has an address of one bit; parts of words are written."""

    def made(m: Module, inputs: list[Any]) -> list[Any]:
        outputs: list[Any] = []
        for depth, grain in ((1, 8), (5, 2)):
            m.submodules[f"m{depth}"] = words = Memory(shape=8, depth=depth, init=[])
            write, port = words.write_port(granularity=grain), words.read_port(domain="comb")
            m.d.comb += [write.addr.eq(inputs[0]), write.data.eq(inputs[1]), write.en.eq(inputs[2]), port.addr.eq(inputs[0])]
            late = Signal(8)  # without any register CIRCT 1.62 forgets a macro
            m.d.sync += late.eq(port.data)
            outputs.append(late)
        return outputs

    circuit = circuits.Circuit([circuits.unsigned(3), circuits.unsigned(8), circuits.unsigned(4)], made)
    found = read(netlist(circuit, "top").replace('"i1"', '"δ"').replace('"o0"', '"σ"'), "top", {})
    text = circt_text(found, "top")
    assert '"δ" : i8' in text
    assert '"σ" : i8' in text
    assert "<5 x 8, mask 4>" in text
    assert "module top" in verilog(text)


@pytest.mark.skipif(not available(), reason="no C++ compiler")
def test_every_kind_of_cell(tmp_path: Path) -> None:
    """What CIRCT and Verilator make of each cell, against Amaranth's simulator, in each clock."""
    circuit = circuits.cells()
    assert max(circuit.sizes) <= 8 * ROOM
    rows = circuits.stimuli(circuit.shapes, 100, 1)
    (tmp_path / "circuit.v").write_text(verilog(circt_text(read(netlist(circuit, "circuit"), "circuit", {}), "circuit")))
    ins, outs = [f"i{n}" for n in range(len(circuit.shapes))], [f"o{n}" for n in range(len(circuit.sizes))]
    (tmp_path / "harness.cpp").write_text("\n".join([
        '#include <cstring>\n#include "Vcircuit.h"\nextern "C" void run(int clocks, const char* in, char* out) {',
        "    Vcircuit m; m.clk = 0;", "    for (int n = 0; n < clocks; n++) {",
        *(f"        std::memcpy(&m.{i}, in, sizeof m.{i}), in += {ROOM};" for i in ins), "        m.eval();",
        *(f"        std::memcpy(out, &m.{o}, sizeof m.{o}), out += {ROOM};" for o in outs),
        "        m.clk = 1, m.eval(), m.clk = 0, m.eval();\n    }\n}",
    ]))  # fmt: skip
    given = b"".join(value.to_bytes(ROOM, "little") for row in rows for value in row)
    out = ctypes.create_string_buffer(len(rows) * len(outs) * ROOM)
    ctypes.CDLL(str(compiled(tmp_path))).run(len(rows), given, out)
    found = [int.from_bytes(out.raw[n : n + ROOM], "little") for n in range(0, len(out), ROOM)]
    wanted = circuits.by_amaranth(circuit, rows)
    assert len({tuple(row) for row in wanted}) > 50
    for n, row in enumerate(wanted):
        assert found[n * len(outs) : (n + 1) * len(outs)] == row, f"clock {n}"
