"""A circuit as machine code: its netlist by `netsim`, a library in the cache, called through one C function."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import error
from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.hw.sim.build import harnessed
from upl_mlir.hw.verilog import netlist
from upl_mlir.passes.circuit.plan import unseen

Words = NDArray[np.uint32]
PATIENCE = 100_000
"""Clocks without end after which a circuit is said to hang, more than any run takes."""


class _Stream(ctypes.Structure):
    _fields_ = [
        ("words", ctypes.c_void_p), ("last", ctypes.c_void_p), ("clocks", ctypes.c_void_p), ("count", ctypes.c_uint64),
        ("room", ctypes.c_uint64),
    ]  # fmt: skip


class _Watch(ctypes.Structure):
    _fields_ = [("words", ctypes.c_void_p), ("count", ctypes.c_uint64), ("room", ctypes.c_uint64)]


@dataclass(frozen=True)
class Streamed:
    """What came out: by port the words, their marks and the clocks in which they passed; `taken`: clocks of input words;
    `watched`: what each probe saw; `cycles` until the last word, counted from 1."""

    words: Mapping[str, Words]
    last: Mapping[str, NDArray[np.uint8]]
    clocks: Mapping[str, NDArray[np.uint64]]
    taken: Mapping[str, NDArray[np.uint64]]
    watched: Sequence[Words]
    cycles: int


class Simulation:
    """A circuit that can be run.  The first run begins after a reset, each further one where the last one ended: when all of
    its slots have passed, so that each takes the clocks that are predicted.

    `library` has the harness with a model; by default it is ours.  Runs of one simulation in several threads wait for each
    other.
    """

    def __init__(self, circuit: Circuit, library: ctypes.CDLL | None = None):
        self.circuit = circuit
        self._library = library or _library(circuit)
        pointer, word, small = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32
        self._library.upl_circuit_new.restype = pointer
        for returns_nothing in (self._library.upl_circuit_reset, self._library.upl_circuit_delete):
            returns_nothing.argtypes, returns_nothing.restype = [pointer], None
        self._library.upl_circuit_run.argtypes = [pointer, pointer, pointer, pointer, word, word, word, small, small]
        self._library.upl_circuit_run.restype = word
        self._model: int = self._library.upl_circuit_new()
        weakref.finalize(self, self._library.upl_circuit_delete, self._model)
        self._running = Lock()

    def run(
        self, streams: Mapping[str, tuple[Words, NDArray[np.uint8]]], expected: Mapping[str, int], watched: int = 0, *,
        hold_in: int = 0, hold_out: int = 0, seed: int = 1, after: int = 0, limit: int | None = None,
    ) -> Streamed:  # fmt: skip
        """Feed words with their marks, by port; take so many of each output.

        `hold_in`, `hold_out`: of 256 clocks, in how many a port that could go on does not.  `watched`: words that each probe
        may see.  `after`: clocks in which nothing more may come, at least those that the run still has.  Raises UplError
        UPL1702, and resets the circuit, if it comes to nothing.
        """
        plan = self.circuit.plan
        ins, outs = [i.name for i in plan.inputs], [o.name for o in plan.outputs]
        kept: list[NDArray[Any]] = []

        def stream(words: NDArray[Any], last: NDArray[Any], count: int) -> _Stream:
            clocks = np.zeros(len(words), np.uint64)
            kept.extend((words, last, clocks))
            return _Stream(words.ctypes.data, last.ctypes.data, clocks.ctypes.data, count, len(words))

        given = [stream(np.ascontiguousarray(streams[n][0], np.uint32), streams[n][1], len(streams[n][0])) for n in ins]
        made = [stream(np.zeros(expected[n], np.uint32), np.zeros(expected[n], np.uint8), 0) for n in outs]
        seen = [np.zeros(watched, np.uint32) for _ in self.circuit.probes]
        probes = [_Watch(s.ctypes.data, 0, watched) for s in seen]
        watches = (_Watch * max(1, len(probes)))(*probes)
        ins_, outs_ = (_Stream * max(1, len(given)))(*given), (_Stream * max(1, len(made)))(*made)
        words = sum(len(streams[n][0]) for n in ins) + sum(expected.values())
        slots = plan.slots * (1 + words // max(1, sum(o.words for o in plan.outputs)))
        after = max(after, unseen(plan))
        bound = limit or PATIENCE + (slots + words) * 256 // (256 - max(hold_in, hold_out)) * 4
        with self._running:
            clock = self._library.upl_circuit_run(self._model, ins_, outs_, watches, bound, after, seed, hold_in, hold_out)
            stuck = clock == bound or any(s.count != s.room for s in outs_[: len(outs)])
            if stuck:
                self._library.upl_circuit_reset(self._model)
        if stuck:
            got = ", ".join(f"{n}: {s.count} of {s.room}" for n, s in zip(outs, outs_, strict=False))
            raise error("UPL1702", f"the circuit stands still, or sends too much, after {clock} clocks ({got} words)")
        arrays = [kept[3 * n : 3 * n + 3] for n in range(len(ins) + len(outs))]
        by_out = dict(zip(outs, arrays[len(ins) :], strict=True))
        return Streamed(
            {n: a[0] for n, a in by_out.items()}, {n: a[1] for n, a in by_out.items()}, {n: a[2] for n, a in by_out.items()},
            dict(zip(ins, (a[2] for a in arrays), strict=False)),
            [s[: w.count] for s, w in zip(seen, watches, strict=False)],
            int(max(a[2][-1] for a in by_out.values())) + 1,
        )  # fmt: skip


def _library(circuit: Circuit) -> ctypes.CDLL:
    net = netlist(circuit, "circuit")
    pins = _pins(circuit)
    harness = resources.files("upl_mlir.engines.circuit").joinpath("harness.cpp").read_text(encoding="utf-8")
    return ctypes.CDLL(str(harnessed("circuit", net, "circuit", {"pins.h": pins, "harness.cpp": harness})))


def _pins(circuit: Circuit) -> str:
    """The header that tells the harness the ports."""
    ins = [circuit.names[i.name] for i in circuit.plan.inputs]
    outs = [circuit.names[o.name] for o in circuit.plan.outputs]
    rows: list[tuple[str, list[str]]] = [
        *((f"in_{end}", [f"{n}_t{end}" for n in ins]) for end in ("valid", "data", "last", "ready")),
        *((f"out_{end}", [f"{n}_t{end}" for n in outs]) for end in ("valid", "data", "last", "ready")),
        ("watch", [f"watch_{n}" for n in range(len(circuit.probes))]),
        ("watch_word", [f"watch_{n}_word" for n in range(len(circuit.probes))]),
    ]
    members = [f"    u64* {name}[{max(1, len(ports))}];" for name, ports in rows]
    starts = ", ".join(f"{name}{{{', '.join(f'&m.{p}' for p in ports)}}}" for name, ports in rows)
    return "\n".join([
        f"constexpr int INPUTS = {len(ins)}, OUTPUTS = {len(outs)}, WATCHES = {len(circuit.probes)};",
        "struct Pins {", *members, f"    explicit Pins(Circuit& m) : {starts} {{}}", "};", "",
    ])  # fmt: skip
