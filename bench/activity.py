"""Records which steps of a core's model have something to do in the same cycles (`upl_mlir/hw/sim/netlist/activity.py`).

`python -m bench.activity` writes the profile, `activity.npz`, anew; a test says when that is due. Half of the cycles are of
a training step that waits for the backing memory, half of one that keeps the core busy.
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


def instrumented(folder: Path) -> tuple[Path, list[int]]:
    """The library of the machine whose regions are single steps and tell when they are evaluated; the keys of these."""
    s = System.of(training(1, DEFINE)[0])
    whole = Part(lower(read(core_netlist(s.core), "core")), build.STEADY, build.PROBES)
    regions = schedule(whole.program, 0)
    known = dict(zip(whole.program.steps, activity.keys(whole.program), strict=True))
    header, source = emit([whole], [regions], "Core")
    head = r"(static __attribute__\(\(noinline\)\) void r(\d+)\(Core& m\) \{)"
    source = re.sub(head, lambda f: f"{f[1]} now[{int(f[2]) // 64}] |= {1 << int(f[2]) % 64}ull;", source)
    settled = source.index("\n}", source.index("void Core::settle()"))
    words = -(-len(regions) // 64)
    seen = (
        f"    if (activity_every && activity_cycle++ % activity_every == 0 && activity_count < {CYCLES})\n"
        "        std::memcpy(activity_rows[activity_count++], now, sizeof now);\n    std::memset(now, 0, sizeof now);"
    )
    counts = "u64 activity_every = 0, activity_cycle = 0, activity_count = 0"
    extra = f'static u64 now[{words}];\nextern "C" {{ {counts}, activity_rows[{CYCLES}][{words}]; }}\n'
    first, _, rest = f"{source[:settled]}\n{seen}{source[settled:]}".partition("\n")
    fabric = build.model(folder, fabric_netlist(s), "fabric")
    harness = Path(compiled.__file__).with_name("harness.cpp").read_text(encoding="utf-8")
    texts = {"core.h": header, "core.cpp": f"{first}\n{extra}{rest}", "wires.h": build.wires(s, 1), "harness.cpp": harness}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    objects = [fabric, *(build.compile_source(folder / name) for name in ("core.cpp", "harness.cpp"))]
    return build.link(objects, folder / "machine.so"), [known[r.steps[0]] for r in regions]


def samples(define: dict[str, object], steps: int) -> NDArray[np.bool_]:
    """Which steps are evaluated, in cycles spread over a run."""
    machine, engine, tokens = training(1, define)
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


def main() -> int:
    """Writes the profile."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(build, "recorded", lambda _: None):  # of nothing older
        library, keys = instrumented(Path(folder))
        with mock.patch.object(compiled, "machine_library", lambda *_: library):
            found = np.concatenate([samples(define, len(keys)) for define in PROGRAMS])
    bits = np.packbits(found.T, axis=1, bitorder="little")
    order = np.argsort(keys)
    file = Path(activity.__file__).with_name(activity.FILE)
    np.savez_compressed(file, keys=np.array(keys, np.uint64)[order], bits=bits[order])
    print(f"{file.name}: {len(keys)} steps, {found.mean():.1%} of them in a cycle, {file.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
