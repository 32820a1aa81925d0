"""The capacity rule: however small the store, the result is the same and only time grows; too little backing memory is
the capacity error; nothing hangs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.hw.engine import RtlEngine
from upl_mlir.hw.machine import Machine, Matching, Organisation

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from agreement.campaign import case_of
from agreement.engines import NOT_ON_THE_MACHINE
from agreement.generator import generate
from agreement.properties import host_arrays

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def machine(capacity: int, spill: int = 4096) -> Machine:
    ways = min(4, capacity)
    return Machine(
        matching=Matching(
            organisation=Organisation.HASHED, capacity=capacity, ways=ways, spill_capacity=spill, backing_latency_cycles=1
        )
    )  # fmt: skip


@pytest.fixture(scope="module")
def perceptron() -> tuple[RtlEngine, dict[str, np.ndarray]]:
    """The perceptron; binary32 is exact on the data."""
    program = upl.load(EXAMPLES / "perceptron.upl", D=1).infer_domains()
    random = np.random.default_rng(1)
    arrays = {name: random.integers(0, 2, v.shape()).astype(np.float32) for name, v in program.inputs.items()}
    return RtlEngine(program.module, {}, machine=machine(1024)), arrays


def test_every_capacity_gives_the_same_result(perceptron: tuple[RtlEngine, dict[str, np.ndarray]]) -> None:
    engine, arrays = perceptron
    tokens = tuple(engine.inject(arrays))
    cycles: dict[int, int] = {}
    results: set[bytes] = set()
    spills: dict[int, int] = {}
    for power in range(10):
        result = engine.on(machine(1 << power)).run_tokens(tokens)
        cycles[1 << power], spills[1 << power] = result.stats.cycles, result.stats.spills
        results.add(b"".join(a.tobytes() for a in result.outputs.values()))
    assert len(results) == 1
    assert spills[512] == 0 < spills[1]
    # A store of one size may be luckier than the next one; over two steps more room is never slower.
    assert all(cycles[1 << p] >= cycles[1 << p + 2] for p in range(8)), cycles
    assert cycles[1] > 1.5 * cycles[512]


def test_too_little_backing_memory_is_the_capacity_error(perceptron: tuple[RtlEngine, dict[str, np.ndarray]]) -> None:
    engine, arrays = perceptron
    tokens = tuple(engine.inject(arrays))
    enough = 0
    for spill in (4, 16, 64, 256, 1024):
        try:
            engine.on(machine(4, spill)).run_tokens(tokens)
            enough += 1
        except UplError as e:
            assert "UPL1702" in str(e) and "matching.spill_capacity" in str(e)
            assert not enough, "more is enough, if less was"
    assert 0 < enough < 5


def test_random_programs_keep_to_it() -> None:
    """Small stores against the large one, and the interpreter."""
    tried: list[int] = []
    for seed in range(9000, 9040):
        case = case_of(generate(seed, 3), seed)
        if not case.exact_single or len(tried) == 4:
            continue
        program = upl.load(case.text)
        arrays = host_arrays(program, case.params, seed)
        wanted = upl.compile(program, real="f32", gather="ordered")(**arrays, **case.params)
        try:
            bound = program.expanded().infer_domains()
            engine = RtlEngine(bound.module, dict(case.params), machine=machine(1024))
            tokens = tuple(engine.inject({n: np.asarray(a, engine.ports[n].zeros().dtype) for n, a in arrays.items()}))
            results = [engine.on(machine(capacity)).run_tokens(tokens) for capacity in (1024, 8, 1)]
        except UplError as e:
            assert e.diagnostics[0].code in NOT_ON_THE_MACHINE, str(e)
            continue
        tried.append(seed)
        for name, values in results[0].outputs.items():
            assert all(np.array_equal(r.outputs[name], values, equal_nan=values.dtype.kind == "f") for r in results), seed
            assert case.smooth or np.array_equal(wanted[name], values), seed  # functions have last bits of their own
        # The order in which tokens meet may be luckier with the small one, by a little.
        assert results[0].stats.cycles <= 1.02 * results[2].stats.cycles
    assert len(tried) == 4
