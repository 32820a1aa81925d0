"""Models of several cores that several threads evaluate: how runs end, go on, and begin again."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from upl_mlir.diagnostics import UplError
from upl_mlir.engines.rtl.run import NO_STREAM, _encoded, placement_writes  # pyright: ignore[reportPrivateUsage]
from upl_mlir.explore.job import Job, prepare
from upl_mlir.hw.core.core import Event
from upl_mlir.hw.direct.home import Spread
from upl_mlir.hw.machine import Machine, Matching
from upl_mlir.hw.sim import build, compiled
from upl_mlir.hw.sim.compiled import CompiledSimulation
from upl_mlir.hw.sim.interface import Ended, Report
from upl_mlir.hw.system.layouts import System

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from programs_bench import LAYER

pytestmark = pytest.mark.skipif(not build.available(), reason="no C++ compiler")

MACHINE = Machine(cores=3, matching=Matching(capacity=4, ways=1))  # so small that records go to the backing memory and back
SYSTEM = System.of(MACHINE)


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    """What loads the machine, and its tokens."""
    prepared = prepare(Job("layer", LAYER, {"X": "random", "W": "random"}), {"n": 7}, MACHINE)
    image, program, words = _encoded(prepared.engine.image, SYSTEM.core, prepared.tokens, Spread())
    return [*program.writes, *placement_writes(image, MACHINE, SYSTEM.core, program, NO_STREAM)], words


def runs(loaded: tuple[Any, Any], threads: int, late: int = 0) -> list[Report]:
    """Two runs of the machine, one after the other, and one of a part of the tokens, which leaves some stranded."""
    writes, tokens = loaded
    simulation = CompiledSimulation(SYSTEM, threads, late, lanes=1)
    simulation.configure(writes)
    out = [simulation.run(some, 20_000, checks=20_000, watch=True) for some in (tokens, tokens, tokens[:-5])]
    left = [simulation.look(0, n, 0, n) for n in range(4)]
    assert any(record.valid for record in left)
    return [*out, left]


def same(a: list[Any], b: list[Any]) -> bool:
    """Whether reports and records are equal."""
    pairs = list(zip(a[:-1], b[:-1], strict=True))
    whole = all(replace(x, outputs=0, seen=None) == replace(y, outputs=0, seen=None) for x, y in pairs)
    events = all(x.seen.tobytes() == y.seen.tobytes() and x.outputs.tolist() == y.outputs.tolist() for x, y in pairs)
    return whole and events and a[-1] == b[-1]


@pytest.mark.parametrize(("threads", "late"), [(2, 0), (3, 0), (2, 1 << 31)])
def test_runs_end_go_on_and_begin_again(
    loaded: tuple[Any, Any], threads: int, late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = runs(loaded, 1)
    assert [r.ended for r in whole[:-1]] == [Ended.IDLE] * 3
    patterns = whole[0].cores[0].patterns
    assert any(events >> Event.SPILLED & 1 for events in patterns)
    assert len(whole[0].outputs) == 7
    assert all(sum(core.fired) for core in whole[0].cores)  # all have something to do
    assert same(whole, runs(loaded, threads, late))
    monkeypatch.setattr(compiled, "_ROOM", 7)  # the run stops often, for the host to fetch what there is
    assert same(whole, runs(loaded, threads, late))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity of threads")
def test_a_helper_that_is_late_loses_its_rounds(loaded: tuple[Any, Any]) -> None:
    """Two threads on one processor: the helper is hardly ever there in time, and its share is done by the caller."""
    whole = runs(loaded, 1)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert same(whole, runs(loaded, 2))
    finally:
        os.sched_setaffinity(0, before)


def test_a_limit_is_kept_to_the_cycle(loaded: tuple[Any, Any]) -> None:
    writes, tokens = loaded
    for threads in (1, 2):
        simulation = CompiledSimulation(SYSTEM, threads, lanes=1)
        simulation.configure(writes)
        report = simulation.run(tokens, 77)
        assert (report.cycles, report.ended) == (77, Ended.LIMIT)


def test_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPL_SIMULATION_THREADS", "3")
    assert CompiledSimulation(SYSTEM).threads == 3
    for wrong in ("0", "-1", "two", "²"):
        monkeypatch.setenv("UPL_SIMULATION_THREADS", wrong)
        with pytest.raises(UplError, match=r"UPL1733.*UPL_SIMULATION_THREADS"):
            CompiledSimulation(SYSTEM)
