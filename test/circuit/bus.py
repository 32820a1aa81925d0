"""Circuits on a bus, for the tests: hardware and C header in one library, with a memory behind the bus.

Arrays are put into the memory as plain numpy has them, row by row: nothing here knows orders or addresses of ports.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from upl_mlir.hw.circuit.bus.files import header, module_name
from upl_mlir.hw.circuit.bus.wishbone import Wishbone
from upl_mlir.hw.sim.build import harnessed
from upl_mlir.hw.verilog import netlist

LIMIT = 1_000_000
"""Clocks after which a run is given up, many times what one takes."""


class Bus:
    """A circuit with its driver and a memory of `words` words, after a reset.

    `latency`: clocks until the first word of a burst; `hold`: of 256 clocks, those in which a word has to wait.
    """

    def __init__(self, circuit: Wishbone, words: int = 1 << 14):
        self.circuit = circuit
        self.memory = np.zeros(words, np.uint32)
        self.bench: int | None = None
        self.library = library(circuit)
        self.reset()

    def reset(self, latency: int = 0, hold: int = 0, seed: int = 1) -> None:
        """Begin anew; what is in memory stays."""
        self.free()
        self.bench = self.library.upl_bus_new(self.memory.ctypes.data, len(self.memory), latency, hold, seed)

    def free(self) -> None:
        """Give the hardware up."""
        if self.bench is not None:
            self.library.upl_bus_free(self.bench)
            self.bench = None

    def runs(self, at: Sequence[Mapping[str, int]], limit: int = LIMIT) -> int:
        """How many runs are complete, of those whose arrays lie at these words, by name; the master did nothing wrong."""
        bases = np.array([[4 * one[name] for name in self.circuit.memory.arrays] for one in at], np.uint32)
        done = self.library.upl_bus_runs(self.bench, bases.ctypes.data, len(at), limit)
        fault = self.library.upl_bus_fault(self.bench)
        assert fault is None, fault.decode()
        return done

    def read(self, address: int) -> int:
        """A register."""
        return self.library.upl_bus_read(self.bench, address)

    def write(self, address: int, value: int) -> None:
        """Write a register."""
        self.library.upl_bus_write(self.bench, address, value)

    def clocks(self, count: int) -> None:
        """Let time pass."""
        self.library.upl_bus_clocks(self.bench, count)

    @property
    def bursts(self) -> int:
        """How many there were."""
        return self.library.upl_bus_bursts(self.bench)

    @property
    def words(self) -> int:
        """How many passed."""
        return self.library.upl_bus_words(self.bench)


def library(circuit: Wishbone) -> ctypes.CDLL:
    """Model, harness and header, compiled."""
    name = module_name(circuit.circuit.plan)
    files = {
        "driver.h": f'#include "{name}.h"\n#define RUNS {name}_runs\n#define ARRAYS {name}_arrays\n',
        f"{name}.h": header(circuit.circuit.plan, circuit.memory),
        "harness.cpp": (Path(__file__).parent / "bus.cpp").read_text(),
    }  # fmt: skip
    out = ctypes.CDLL(str(harnessed("bus", netlist(circuit, "wishbone"), "wishbone", files)))
    pointer, word, small = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32
    kinds: dict[str, tuple[Any, list[Any]]] = {
        "new": (pointer, [pointer, word, word, word, word]), "free": (None, [pointer]),
        "runs": (small, [pointer, pointer, small, word]), "read": (small, [pointer, small]),
        "write": (None, [pointer, small, small]), "clocks": (None, [pointer, word]), "bursts": (word, [pointer]),
        "words": (word, [pointer]), "fault": (ctypes.c_char_p, [pointer]),
    }  # fmt: skip
    for end, (result, arguments) in kinds.items():
        function = getattr(out, f"upl_bus_{end}")
        function.restype, function.argtypes = result, arguments
    return out
