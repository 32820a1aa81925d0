"""Records which steps of a machine's models have something to do in the same cycles (`upl_mlir/hw/sim/netlist/activity.py`).

`python -m bench.activity` writes the profile, `activity.npz`, anew; a test says when that is due. Half of the cycles are of
a training step that waits for the backing memory, half of one that keeps the core busy. A core is recorded where there is
one, the fabric where there are four.
"""

from __future__ import annotations

import ctypes
import re
import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from bench.simulation import DEFINE, training
from upl_mlir.hw.run import run_machine
from upl_mlir.hw.sim import build, compiled
from upl_mlir.hw.sim.compiled import CompiledSimulation
from upl_mlir.hw.sim.netlist import activity
from upl_mlir.hw.sim.netlist.emit import emit
from upl_mlir.hw.sim.netlist.lower import lower
from upl_mlir.hw.sim.netlist.partition import Part
from upl_mlir.hw.sim.netlist.read import read
from upl_mlir.hw.sim.netlist.schedule import schedule
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.verilog import core_netlist, fabric_netlist

PROGRAMS = (DEFINE, {**DEFINE, "N": [8, 4, 3]})
CYCLES = 256
"""Of each program."""
MODELS = {"core": (1, "settle", build.STEADY, build.PROBES), "fabric": (4, "edge", frozenset[str](), frozenset[str]())}
"""What is recorded: in a machine of how many cores, what its cycle ends with, its steady inputs and its probes."""


def instrumented(folder: Path, top: str) -> tuple[Path, list[int]]:
    """The library of a machine in which the regions of one model are single steps and tell when they are evaluated; the
    keys of these."""
    cores, last, steady, probes = MODELS[top]
    s = System.of(training(cores, DEFINE)[0])
    texts = {"core": core_netlist(s.core), "fabric": fabric_netlist(s)}
    whole = Part(lower(read(texts.pop(top), top)), steady, probes)
    regions = schedule(whole.program, 0)
    known = dict(zip(whole.program.steps, activity.keys(whole.program), strict=True))
    name = top.capitalize()
    header, source = emit([whole], [regions], name)
    head = rf"(static __attribute__\(\(noinline\)\) void r(\d+)\({name}& m\) \{{)"
    source = re.sub(head, lambda f: f"{f[1]} now[{int(f[2]) // 64}] |= {1 << int(f[2]) % 64}ull;", source)
    end = source.index("\n}", source.index(f"void {name}::{last}()"))
    words = -(-len(regions) // 64)
    seen = (
        f"    if (activity_every && activity_cycle++ % activity_every == 0 && activity_count < {CYCLES})\n"
        "        std::memcpy(activity_rows[activity_count++], now, sizeof now);\n    std::memset(now, 0, sizeof now);"
    )
    counts = "u64 activity_every = 0, activity_cycle = 0, activity_count = 0"
    extra = f'static u64 now[{words}];\nextern "C" {{ {counts}, activity_rows[{CYCLES}][{words}]; }}\n'
    first, _, rest = f"{source[:end]}\n{seen}{source[end:]}".partition("\n")
    objects = [build.model(folder, text, other, 1, 1, *MODELS[other][2:]) for other, text in texts.items()]
    harness = Path(compiled.__file__).with_name("harness.cpp").read_text(encoding="utf-8")
    files = {f"{top}.h": header, "wires.h": build.wires(s, 1)}
    files |= {f"{top}.cpp": f"{first}\n{extra}{rest}", "harness.cpp": harness}
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    objects += [build.compile_source(folder / file) for file in files if file.endswith(".cpp")]
    return build.link(objects, folder / f"{top}.so"), [known[r.steps[0]] for r in regions]


def samples(cores: int, define: dict[str, object], steps: int) -> NDArray[np.bool_]:
    """Which steps are evaluated, in cycles spread over a run."""
    machine, engine, tokens = training(cores, define)
    simulation = CompiledSimulation(System.of(machine), 1, lanes=1, parts=1)
    every, count = (ctypes.c_uint64.in_dll(simulation.library, f"activity_{n}") for n in ("every", "count"))
    cycles = run_machine(engine.image, machine, tokens, simulation=simulation).stats.cycles
    every.value, count.value = cycles // CYCLES, 0
    run_machine(engine.image, machine, tokens, simulation=simulation)
    words = -(-steps // 64)
    rows = (ctypes.c_uint64 * (CYCLES * words)).in_dll(simulation.library, "activity_rows")
    bits = np.array(rows, np.uint64).reshape(CYCLES, words)
    assert count.value == CYCLES
    return np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little")[:, :steps].astype(bool)


def record(top: str) -> tuple[list[int], NDArray[np.uint8]]:
    """The keys of a model's steps, and their bits."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(build, "recorded", lambda _: None):  # of nothing older
        library, keys = instrumented(Path(folder), top)
        with mock.patch.object(compiled, "machine_library", lambda *_: library):
            found = np.concatenate([samples(MODELS[top][0], define, len(keys)) for define in PROGRAMS])
    print(f"{top}: {len(keys)} steps, {found.mean():.1%} of them in a cycle")
    return keys, np.packbits(found.T, axis=1, bitorder="little")


def main() -> int:
    """Writes the profile."""
    keys, bits = zip(*map(record, MODELS), strict=True)
    every, first = np.unique(np.array([key for some in keys for key in some], np.uint64), return_index=True)
    file = Path(activity.__file__).with_name(activity.FILE)
    np.savez_compressed(file, keys=every, bits=np.concatenate(bits)[first])
    print(f"{file.name}: {file.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
