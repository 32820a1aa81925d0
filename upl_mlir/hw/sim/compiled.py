"""A machine as machine code, called through C functions (`harness.cpp`)."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import error
from upl_mlir.hw.core.code.encode import Write
from upl_mlir.hw.core.core import MOVES
from upl_mlir.hw.core.layouts import Failure
from upl_mlir.hw.sim.build import available, lanes_for, machine_library, watch_words
from upl_mlir.hw.sim.interface import PATIENCE, TOKEN, CoreReport, Ended, Record, Report, Tokens, seen_dtype
from upl_mlir.hw.system.layouts import System

__all__ = ["CompiledSimulation", "available"]

_LINKS = 64
"""Links of a network that a report has room for: four for each of 16 cores."""
_ROOM = 1 << 16
"""Tokens for the host, and cycles of a core that were watched, that are fetched at a time."""


class _Record(ctypes.Structure):
    _fields_ = [
        ("tag", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("valid", "kind", "node", "left", "present", "total")),
    ]


def _report_dtype(s: System) -> np.dtype[Any]:
    words = (
        "cycles",
        "injected",
        "outputs",
        "seen",
        "last_injection",
        "injection_bound",
        "under_way_peak",
        "under_way_sum",
    )
    arrays = (("ports", s.ports), ("moved", _LINKS), ("waits", _LINKS))
    return np.dtype(
        [
            *((name, np.uint64) for name in words),
            *((name, np.uint64, (size,)) for name, size in arrays),
            ("ended", np.uint32),
            ("unused", np.uint32),
        ]
    )


def _core_dtype(s: System) -> np.dtype[Any]:
    words = ("used_peak", "used_sum", "queued_peak", "failing_tag")
    small = ("failure", "failing_node", "failing_input", "spilled", "patterns", "left")
    nodes = 1 << s.core.node_bits
    arrays = (("fired", nodes), ("taken", nodes))
    return np.dtype(
        [
            *((name, np.uint64) for name in words),
            *((name, np.uint32) for name in small),
            *((name, np.uint64, (size,)) for name, size in arrays),
        ]
    )


class CompiledSimulation:
    """A machine with these parameters, built if the cache does not have it. `lanes`: how many cores a model has (1, 2, 4 or
    8; None: what `build.lanes_for` says). `library`: one that was built in another way (`verilator.py`).
    `threads` evaluate models: None is what the environment variable
    UPL_SIMULATION_THREADS says, or one for each processor, but a single one in a process of a pool, where each processor has
    one. `late`: how often a thread is looked for before its share is evaluated by another one."""

    def __init__(
        self, s: System, threads: int | None = None, late: int = 0, lanes: int | None = None, library: Path | None = None
    ):
        self.s = s
        self.late = late
        self.threads = threads or _threads()
        self.library = _library(s, library or _built(s, lanes or lanes_for(s.cores)))
        self.handle = ctypes.c_void_p(self.library.upl_new())

    def __del__(self) -> None:
        handle, self.handle = getattr(self, "handle", None), None
        if handle:
            self.library.upl_free(handle)

    def configure(self, writes: Iterable[Write]) -> None:
        """As `Simulation` says."""
        for write in writes:
            self.library.upl_config(self.handle, int(write.select), write.address, ctypes.c_uint64(write.data))

    def run(self, tokens: Tokens, limit: int, checks: int = 0, watch: bool = False) -> Report:
        """As `Simulation` says."""
        tokens = np.ascontiguousarray(tokens, TOKEN)
        report = np.zeros(1, _report_dtype(self.s))
        cores = np.zeros(self.s.cores, _core_dtype(self.s))
        sums = np.zeros(max(1, checks), np.uint32)
        parts: list[Tokens] = []
        watched: list[NDArray[Any]] = []
        while True:
            out = np.empty(_ROOM, TOKEN)
            seen = np.empty(_ROOM, seen_dtype(watch_words(self.s))) if watch else np.empty(0)
            self.library.upl_run(
                self.handle, tokens.ctypes.data, len(tokens), out.ctypes.data, len(out), seen.ctypes.data if watch else None,
                len(seen), max(0, limit - int(report["cycles"][0])), sums.ctypes.data, checks, PATIENCE, MOVES,
                self.threads, self.late, report.ctypes.data, cores.ctypes.data,
            )  # fmt: skip
            parts.append(out[: int(report["outputs"][0])])
            watched.append(seen[: int(report["seen"][0])])
            if report["ended"][0] != Ended.NO_ROOM:
                break
        r = report[0]
        links = self.s.links
        each = [self._core(n, c) for n, c in enumerate(cores)]
        return Report(
            int(r["cycles"]), int(r["injected"]), np.concatenate(parts), int(r["last_injection"]), Ended(int(r["ended"])),
            each, r["ports"].tolist(), int(r["injection_bound"]), r["moved"].tolist()[:links],
            r["waits"].tolist()[:links], int(r["under_way_peak"]), int(r["under_way_sum"]),
            sums[: min(checks, int(r["cycles"]) + 1)].tolist(), np.concatenate(watched) if watch else None,
        )  # fmt: skip

    def _core(self, number: int, c: Any) -> CoreReport:
        patterns, times = np.empty((2, int(c["patterns"])), np.uint64)
        self.library.upl_patterns(self.handle, number, patterns.ctypes.data, times.ctypes.data)
        return CoreReport(
            dict(zip(patterns.tolist(), times.tolist(), strict=True)), c["fired"].tolist(), c["taken"].tolist(),
            int(c["used_peak"]), int(c["used_sum"]), int(c["queued_peak"]), int(c["spilled"]), Failure(int(c["failure"])),
            int(c["failing_node"]), int(c["failing_input"]), int(c["failing_tag"]), int(c["left"]),
        )  # fmt: skip

    def look(self, core: int, set_: int, way: int, spilled: int = 0) -> Record:
        """As `Simulation` says."""
        r = _Record()
        self.library.upl_look(self.handle, core, set_, way, spilled, ctypes.byref(r))
        return Record(bool(r.valid), r.kind, r.node, r.tag, r.left, r.present, r.total)


def _threads() -> int:
    given = os.environ.get("UPL_SIMULATION_THREADS", "")
    if given:
        if not given.isascii() or not given.isdigit() or not int(given):
            raise error("UPL1733", f"UPL_SIMULATION_THREADS={given}: expected a number of threads, 1 or more")
        return int(given)
    return _processors() if multiprocessing.parent_process() is None else 1


def _processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_built = cache(machine_library)


@cache
def _library(s: System, path: Path) -> ctypes.CDLL:
    """The library for a machine; it stays loaded."""
    library = ctypes.CDLL(str(path))
    pointer, word, small = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32
    library.upl_new.restype = pointer
    library.upl_free.argtypes = [pointer]
    library.upl_config.argtypes = [pointer, small, small, word]
    library.upl_run.argtypes = [pointer, pointer, word, pointer, word, pointer, word, word, pointer, word, word, word,
                                small, small, pointer, pointer]  # fmt: skip
    library.upl_patterns.argtypes = [pointer, small, pointer, pointer]
    library.upl_look.argtypes = [pointer, small, small, small, small, pointer]
    sizes = [library.upl_sizes(n) for n in range(5)]
    dtypes = (TOKEN, _report_dtype(s), _core_dtype(s), None, seen_dtype(watch_words(s)))
    wanted = [ctypes.sizeof(_Record) if dtype is None else dtype.itemsize for dtype in dtypes]
    assert sizes == wanted, (sizes, wanted)
    return library
