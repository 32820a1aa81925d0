"""Circuits that Verilator makes of Verilog, run by the harness of our own simulation.

Only the model differs: streams, stalls and clocks are counted by the same code, so everything may be compared.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from importlib import resources
from pathlib import Path

from hw.verilated import root, verilator

from upl_mlir.engines.circuit.simulation import Simulation, _pins
from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.hw.sim import build

ADAPTER = """
#pragma once
#include "Vcircuit.h"
using u64 = uint64_t;
struct Circuit {{  // with the members and functions of our models
    Vcircuit model;
    u64 {members};
    Circuit() {{ model.clk = 0; {reset} settle(); }}
    void settle() {{
        {inputs}
        model.eval();
        {outputs}
    }}
    void edge() {{
        settle();
        model.clk = 1, model.eval();
        model.clk = 0, model.eval();
    }}
}};
"""


def simulation(folder: Path, circuit: Circuit, text: str, reset: bool = True) -> Simulation:
    """The simulation of a circuit whose model is Verilator's, of this text with the module `circuit`; `reset`: if it has an
    input `rst`."""
    return Simulation(circuit, ctypes.CDLL(str(_library(folder, circuit, text, reset))))


def _library(folder: Path, circuit: Circuit, text: str, reset: bool) -> Path:
    names = circuit.names
    ins, outs = ([names[p.name] for p in ports] for ports in (circuit.plan.inputs, circuit.plan.outputs))
    given = [f"{n}_t{end}" for n in ins for end in ("data", "valid", "last")] + [f"{n}_tready" for n in outs]
    shown = [f"{n}_tready" for n in ins] + [f"{n}_t{end}" for n in outs for end in ("data", "valid", "last")]
    adapter = ADAPTER.format(
        members=", ".join(f"{n} = 0" for n in (*given, *shown)), reset="model.rst = 0;" if reset else "",
        inputs=" ".join(f"model.{n} = {n};" for n in given), outputs=" ".join(f"{n} = model.{n};" for n in shown),
    )  # fmt: skip
    harness = resources.files("upl_mlir.engines.circuit").joinpath("harness.cpp").read_text()
    for name, content in {"circuit.v": text, "circuit.h": adapter, "pins.h": _pins(circuit), "harness.cpp": harness}.items():
        (folder / name).write_text(content)
    return compiled(folder)


def compiled(folder: Path) -> Path:
    """The library of `circuit.v`, by Verilator, and of the C++ files in a folder."""
    done = verilator("--cc", "-sv", "-Wno-fatal", "-Wno-lint", "-Wno-style", "--top-module", "circuit", "--prefix",
                     "Vcircuit", "-Mdir", folder, folder / "circuit.v")  # fmt: skip
    assert not done.returncode, done.stderr
    include = root() / "include"
    files = [*folder.glob("*.cpp"), include / "verilated.cpp", include / "verilated_threads.cpp"]
    compiler = shutil.which("g++") or build.compiler() or ""  # clang++ wants one library more
    command = [compiler, "-O0", "-fPIC", "-std=c++17", "-shared", "-o", folder / "circuit.so", "-I", folder, "-I", include,
               "-I", include / "vltstd", *files, "-lpthread"]  # fmt: skip
    subprocess.run(command, check=True)
    return folder / "circuit.so"
