"""Blocks of a tiled loop over time on two threads: the same bits as on one, at any sizes; and nothing waits for ever."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects import scf

import upl_mlir as upl
from upl_mlir.engines.native.llvm import pipelined
from upl_mlir.passes.loops.emit.code import WAVE
from upl_mlir.passes.loops.passes import wavefront
from upl_mlir.passes.loops.tree import Loop, subtrees
from upl_mlir.passes.lower_to_loops import lower_to_loops
from upl_mlir.passes.schedule import schedule

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "bench" / "native" / "programs"
SIZES = [{"T": 1, "m": 3}, {"T": 17, "m": 4}, {"T": 70, "m": 61}]
"""A block, two of them, several; grids with few rows, and with more than a block is behind."""


def programs() -> dict[str, upl.Program]:
    jacobi, reaction = (upl.load(PROGRAMS / f"{n}.upl") for n in ("jacobi", "reaction"))
    return {
        "jacobi2d": upl.load(ROOT / "examples" / "jacobi2d.upl"), "jacobi": jacobi, "reaction": reaction,
        "jacobi gradient": upl.grad(jacobi, "L", ["U0"]), "reaction gradient": upl.grad(reaction, "L", ["U0"]),
    }  # fmt: skip


def lags(p: upl.Program) -> list[int]:
    """Of the loops over blocks."""
    return [t.lag for t in subtrees(schedule(p.op, threads=2).scheduled) if isinstance(t, Loop) and t.tiled]


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
@pytest.mark.parametrize("name", [*programs()])
def test_two_threads_give_the_bits_of_one(name: str, gather: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelined, "LEAST", 0)
    program = programs()[name]
    one, two = (upl.compile(program, engine="native", gather=gather, threads=n) for n in (1, 2))
    ir = vars(two)["_native"].kernel.ir
    assert ("atomicrmw" in ir) == any(lag >= 0 for lag in lags(program))
    for sizes in SIZES:
        given = {k: v for k, v in (sizes | {"n": sizes["m"] + 2, "p": sizes["m"] + 1}).items() if k in program.params}
        random = np.random.default_rng(3)
        arrays = {n: random.standard_normal(port.shape(**given)) for n, port in program.inputs.items()}
        wanted = one(**arrays, **given)
        for n, a in two(**arrays, **given).items():
            np.testing.assert_array_equal(a, wanted[n], err_msg=f"{n} at {given}")


def test_which_loops_are_pipelines() -> None:
    """A block is behind the one before by as many waves as it has steps.  States that are made again run block by block."""
    found = {n: lags(p) for n, p in programs().items()}
    assert found["jacobi2d"] == [wavefront.STEPS]
    assert found["jacobi"] == found["reaction"] == [wavefront.STEPS]
    assert found["reaction gradient"][-1] == -1


def test_rows_in_waves_stay_whole() -> None:
    """A row is too short to be shared: what is forked are loops outside of waves, and the blocks of pipelines."""
    program = programs()["reaction gradient"]
    module = lower_to_loops(program.infer_domains().op, threads=2).module
    blocks = [op for op in module.walk() if isinstance(op, scf.ForOp) and WAVE in op.attributes]
    waves = {op for b in blocks for op in b.walk()}
    parallel = [op for op in module.walk() if isinstance(op, scf.ParallelOp) and op not in waves]
    outermost = [op for op in parallel if not isinstance(op.parent_op(), scf.ParallelOp)]
    pipelines = [b for b in blocks if pipelined.lag(b) != -1]
    assert (len(blocks), len(pipelines)) == (2, 1)
    ir = vars(upl.compile(program, engine="native", threads=2))["_native"].kernel.ir
    assert ir.count("call void %fork(") == len(outermost) + len(pipelines)
