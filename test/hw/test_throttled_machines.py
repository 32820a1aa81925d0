"""Whole machines with a throttle, compiled: the same results as without one, whatever the program; fewer records."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.engines.rtl.engine import RtlEngine
from upl_mlir.hw.machine import Host, Machine, Matching, Network, Organisation, Topology
from upl_mlir.hw.sim.compiled import available

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from agreement.machines import agreeing, same

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
pytestmark = pytest.mark.skipif(not available(), reason="no C++ compiler")


def machine(
    window: int, capacity: int = 64, organisation: Organisation = Organisation.HASHED, cores: int = 1
) -> Machine:
    """With small stores, in which it matters."""
    return Machine(
        cores=cores, matching=Matching(organisation=organisation, capacity=capacity, backing_latency_cycles=2),
        network=Network(topology=Topology.CROSSBAR), host=Host(window=window, ports=cores),
    )  # fmt: skip


def engine_of(program: upl.Program, on: Machine) -> tuple[RtlEngine, tuple[Any, ...]]:
    """The engine, and tokens of small whole numbers."""
    engine = RtlEngine(program.expanded().infer_domains().module, {}, machine=on)
    random = np.random.default_rng(1)
    arrays: dict[str, Any] = {}
    for name in engine.hosts:
        port = engine.ports[name]
        arrays[name] = random.integers(0, 2, port.shape).astype(port.zeros().dtype)
        if port.shape == (8, 8):  # a matrix whose diagonal is divided by
            np.fill_diagonal(arrays[name], 1)
    return engine, tuple(engine.inject(arrays))


@pytest.mark.parametrize(
    ("name", "constants", "along", "gains"),
    [
        ("training", {"D": 6, "eta": 0.5}, "d", True),
        ("perceptron", {"D": 6}, "d", True),
        ("matmul", {"m": 8, "n": 8, "r": 8}, "k", False),
        ("jacobi1d", {"T": 4, "n": 16}, None, False),  # all of its input is of the first stage
        ("triangular_solve", {"n": 8}, "i", False),
    ],
)
def test_examples(name: str, constants: dict[str, Any], along: str | None, gains: bool) -> None:
    engine, tokens = engine_of(upl.load(EXAMPLES / f"{name}.upl", **constants), machine(1))
    results = [engine.on(machine(w)).run_tokens(tokens) for w in (0, 1, 2, 4)]
    assert same(results)
    assert all(np.isfinite(a).all() for a in results[0].outputs.values())
    assert results[1].stats.throttle.get("along") == along
    if gains:
        assert results[1].stats.peak_waiting < results[0].stats.peak_waiting


def test_a_mini_batch_spills_less_and_is_faster() -> None:
    engine, tokens = engine_of(upl.load(EXAMPLES / "matmul.upl", m=12, n=12, r=12), machine(1))
    free, held = (engine.on(machine(w, 256)).run_tokens(tokens).stats for w in (0, 4))
    assert held.spills < free.spills
    assert held.cycles < free.cycles / 2


def test_random_programs() -> None:
    """Programs with and without streams, at stores of 16 records, against the interpreter and the machine without it."""
    machines = [machine(w, 16) for w in (0, 1, 3)]
    tried = list(islice(agreeing(range(9100, 9200), machines), 40))
    assert len(tried) >= 30
    assert sum(bool(held.stats.throttle) for _, held, _ in tried) >= 5


def fitting(capacity: int, cores: int = 1) -> Machine:
    """A machine that chooses the window by the store."""
    return msgspec.structs.replace(machine(0, capacity, cores=cores), host=Host(fit=True, ports=cores))


@pytest.mark.parametrize("seeds", [range(9100, 9160), pytest.param(range(9160, 10200), marks=pytest.mark.slow)], ids=str)
def test_the_bound_on_records_holds_for_random_programs(seeds: range) -> None:
    """Whatever the store, window and program: no more records wait than was said before the run."""
    tried = throttled = 0
    for results in agreeing(seeds, [fitting(8), fitting(64)]):
        tried += 1
        for result in results:
            said = result.stats.throttle
            throttled += bool(said["along"])
            assert result.stats.peak_waiting <= said["joins"] + said["gathers"]
    assert tried >= len(seeds) // 2 and throttled >= len(seeds) // 20


def test_the_window_is_the_greatest_for_which_all_records_find_room() -> None:
    engine, tokens = engine_of(upl.load(EXAMPLES / "iris_batch.upl", D=16), fitting(256))
    few, more, all_ = (engine.on(fitting(n)).run_tokens(tokens).stats for n in (256, 1024, 4096))
    assert [s.throttle["window"] for s in (few, more, all_)] == [1, 4, 4]
    for s, capacity in ((few, 256), (more, 1024), (all_, 4096)):
        assert s.throttle["along"] == "d"
        assert max(s.throttle["joins"], s.throttle["gathers"]) <= capacity
        assert s.peak_waiting <= s.throttle["joins"] + s.throttle["gathers"] <= 2 * s.peak_waiting


def test_two_cores() -> None:
    engine, tokens = engine_of(upl.load(EXAMPLES / "training.upl", D=6, eta=0.5), machine(1, cores=2))
    results = [engine.on(machine(w, cores=2)).run_tokens(tokens) for w in (0, 1, 4)]
    assert same(results)
    assert results[1].stats.peak_waiting < results[0].stats.peak_waiting


def test_an_associative_memory_that_would_be_too_small() -> None:
    """The throttle makes a program fit. It counts stages there, too: two at a time are enough to lose nothing by it."""

    def on(window: int) -> Machine:
        return machine(window, 64, Organisation.CAM)

    engine, tokens = engine_of(upl.load(EXAMPLES / "matmul.upl", m=24, n=4, r=4), on(1))
    with pytest.raises(UplError, match="UPL1702"):
        engine.on(on(0)).run_tokens(tokens)
    result, two, four = (engine.on(on(window)).run_tokens(tokens) for window in (1, 2, 4))
    assert result.stats.throttle == {"along": "i", "window": 1}
    assert two.stats.cycles == four.stats.cycles < result.stats.cycles
