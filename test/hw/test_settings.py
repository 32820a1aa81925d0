"""Machines that are set by a register take the same cycles as machines that are built so, token for token."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from upl_mlir.engines.rtl.prepare import adjustable_system, build_of, setting_writes
from upl_mlir.engines.rtl.run import _encoded  # pyright: ignore[reportPrivateUsage]
from upl_mlir.explore.job import Job, prepare
from upl_mlir.hw.core.layouts import Dimensions
from upl_mlir.hw.core.settings import ROOM, adjustable, settings, settings_layout
from upl_mlir.hw.direct.home import Spread
from upl_mlir.hw.machine import Machine, Matching, Organisation
from upl_mlir.hw.sim.amaranth_sim import AmaranthSimulation
from upl_mlir.hw.sim.compiled import CompiledSimulation, available
from upl_mlir.hw.sim.interface import Ended, Report
from upl_mlir.hw.system.layouts import System

sys.path.insert(0, str(Path(__file__).resolve().parent))
from programs_bench import LAYER

JOB = Job("layer", LAYER, {"X": "random", "W": "random"})


def machine(**matching: int) -> Machine:
    return Machine(matching=Matching(organisation=Organisation.HASHED, **matching))


def test_one_library_serves_many_machines() -> None:
    builds = {
        build_of(machine(capacity=capacity, ways=ways, spill_capacity=spill, backing_latency_cycles=latency))
        for capacity, ways, spill, latency in [(1024, 4, 4096, 20), (4, 4, 4096, 1), (64, 1, 100, 32), (256, 2, 0, 7)]
    }
    assert len(builds) == 1
    assert build_of(machine(capacity=8192)) not in builds


def test_what_does_not_fit_in_the_room_is_built_as_it_is() -> None:
    d = adjustable(Dimensions(sets=1 << 14, ways=16, spill_words=9999, backing_cycles=1000))
    assert (d.sets, d.ways, d.spill_words, d.backing_cycles) == (1 << 14, 16, 9999, 1000)
    small = Dimensions(sets=1, ways=1, spill_words=1, queue_words=1, backing_cycles=1)
    assert all(getattr(adjustable(small), name) == sizes[0] for name, sizes in ROOM.items() if name != "entries")
    associative = replace(small, organisation=Organisation.CAM)
    assert adjustable(associative).sets == ROOM["entries"][0]
    direct = replace(small, organisation=Organisation.DIRECT)
    assert adjustable(direct) == direct
    assert setting_writes(direct, direct) == []


def test_settings_fit_in_their_layout() -> None:
    for d in (Dimensions(), Dimensions(sets=1, ways=3, spill_words=0, queue_words=77, backing_cycles=900)):
        for built in (d, adjustable(d)):
            layout = settings_layout(built)
            assert layout.from_bits(layout.const(settings(d)).as_bits()) == layout.const(settings(d))


def run(wanted: Machine, *, built: bool) -> Report:
    system = System.of(wanted)
    prepared = prepare(JOB, {"n": 4}, wanted)
    if built:
        simulation = AmaranthSimulation(system)
        d = system.core
    else:
        served = adjustable_system(system)
        d = served.core
        simulation = CompiledSimulation(served)
    image, program, words = _encoded(prepared.engine.image, d, prepared.tokens, Spread())
    simulation.configure([*setting_writes(d, system.core), *program.writes])
    report = simulation.run(words, 20_000, watch=True)
    assert image is prepared.engine.image
    return report


@pytest.mark.skipif(not available(), reason="no C++ compiler")
@pytest.mark.parametrize("matching", [
    {}, {"capacity": 8, "ways": 2}, {"capacity": 1, "ways": 1, "backing_latency_cycles": 3}, {"capacity": 12, "ways": 3},
    {"capacity": 4, "ways": 1, "queue_capacity": 5, "backing_latency_cycles": 1},
])  # fmt: skip
def test_a_register_is_as_good_as_a_constant(matching: dict[str, int]) -> None:
    """The same tokens taken, fired and sent in every cycle, and the same patterns of events."""
    a, b = run(machine(**matching), built=True), run(machine(**matching), built=False)
    assert a.ended is b.ended is Ended.IDLE
    assert (a.cycles, a.cores[0].patterns) == (b.cycles, b.cores[0].patterns)
    assert a.seen is not None
    assert b.seen is not None
    assert np.array_equal(a.seen["cycle"], b.seen["cycle"])
    assert np.array_equal(a.seen["words"], b.seen["words"])
    assert np.array_equal(a.outputs, b.outputs)


@pytest.mark.skipif(not available(), reason="no C++ compiler")
def test_settings_change_the_time() -> None:
    """They do something: less store, more cycles; slower backing memory, more cycles; too little of it, an end."""
    cycles = [run(machine(capacity=c, ways=min(c, 4)), built=False).cycles for c in (64, 2, 1)]
    assert cycles[0] < cycles[1] < cycles[2]
    fast, slow = (run(machine(capacity=2, ways=2, backing_latency_cycles=n), built=False).cycles for n in (1, 30))
    assert fast < slow
    assert run(machine(capacity=2, ways=2, spill_capacity=1), built=False).ended is Ended.FAILURE
