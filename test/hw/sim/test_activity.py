"""The profile of core and fabric: what it knows, and what schedules by it are worth; any profile gives right models."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import circuits
from test_netlist import complaints

from upl_mlir.hw.machine import Machine, Matching
from upl_mlir.hw.sim import build
from upl_mlir.hw.sim.netlist import activity
from upl_mlir.hw.sim.netlist.activity import Activity, keys, recorded
from upl_mlir.hw.sim.netlist.lower import lower
from upl_mlir.hw.sim.netlist.program import Program
from upl_mlir.hw.sim.netlist.read import read
from upl_mlir.hw.sim.netlist.schedule import Region, Stage, schedule
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.verilog import core_netlist, fabric_netlist


@pytest.fixture(scope="module")
def core() -> Program:
    return lower(read(core_netlist(System.of(Machine()).core), "core"))


def fabric(cores: int) -> Program:
    return lower(read(fabric_netlist(System.of(Machine(cores=cores))), "fabric"))


def test_the_profile_is_of_the_hardware_as_it_is_now(core: Program) -> None:
    """If this fails the hardware has changed: run `python -m bench.activity` (machines are simulated right without)."""
    known = set(activity._file()[0])
    large = System.of(Machine(matching=Matching(capacity=4096, queue_capacity=1 << 15)))  # that it was recorded of
    wide = lower(read(core_netlist(large.core), "core"))
    four = fabric(4)
    assert len(known.intersection([*keys(wide), *keys(four)])) > 0.98 * len(known)
    assert len(known.intersection(keys(core))) > 0.95 * len(core.steps)
    assert len(known.intersection(keys(four))) > 0.95 * len(four.steps)


def test_what_is_of_another_kind_has_no_profile() -> None:
    assert recorded(fabric(4)) is not None
    assert recorded(fabric(16)) is None


def test_a_step_that_is_not_known_is_as_what_it_reads(core: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    known, cycles = activity._file()
    some = {k: bits for n, (k, bits) in enumerate(known.items()) if n % 4}
    monkeypatch.setattr(activity, "_file", lambda: (some, cycles))
    whole = recorded(core)
    assert whole is not None
    made = {v: s for s in core.steps for v in s.outs}
    for key, s in zip(keys(core), core.steps, strict=True):
        before = [whole.of[made[v]] for v in s.ins if v in made]
        expected = some.get(key, np.bitwise_or.reduce([0 * whole.of[s], *before]))
        assert np.array_equal(whole.of[s], expected)


def work(regions: Sequence[Region], known: Activity) -> float:
    """What the regions cost in a cycle of the profile, by steps evaluated."""
    due = (np.bitwise_count(np.bitwise_or.reduce(known.rows(r.steps))).sum() / known.cycles for r in regions)
    return sum(share * (20 + r.cost) for share, r in zip(due, regions, strict=True))


def test_a_schedule_by_activity_is_in_order_and_less_work(core: Program) -> None:
    known = recorded(core)
    assert known is not None
    plain, tuned = schedule(core), schedule(core, activity=known)
    assert sorted((s for r in tuned for s in r.steps), key=id) == sorted(core.steps, key=id)
    assert [r.number for r in tuned] == list(range(len(tuned)))
    assert [r.stage for r in tuned] == sorted(r.stage for r in tuned)
    done = {v for w in core.netlist.inputs.values() for v in core.variables[w]} | set(core.initial)
    for r in tuned:
        for s in r.steps:
            assert done.issuperset(s.ins)
            done.update(s.outs)
    shown = {s for r in plain if r.stage is Stage.SHOWN for s in r.steps}
    assert shown == {s for r in tuned if r.stage is Stage.SHOWN for s in r.steps}
    assert work(tuned, known) < 0.8 * work(plain, known)


@pytest.mark.skipif(not build.available(), reason="no C++ compiler")
@pytest.mark.parametrize("parts", [1, 2])
def test_any_profile_gives_a_right_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    rng = np.random.default_rng(parts)

    def anything(program: Program) -> Activity:
        return Activity({s: rng.integers(0, 1 << 63, 2, np.uint64) & 0x1248 for s in program.steps}, 128)

    monkeypatch.setattr(build, "recorded", anything)
    assert not complaints(tmp_path, {f"random{n}": circuits.random_circuit(n, 80) for n in range(30, 33)}, parts=parts)
