"""The passes over `upl_loops`: one by one they make what `schedule` makes; with other options the result is legal, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdsl.dialects.builtin import ModuleOp

import upl_mlir as upl
from upl_mlir.passes.loops.ir import read
from upl_mlir.passes.loops.legal import faults
from upl_mlir.passes.loops.passes import LOOP_PASSES, Stage, loop_program_of
from upl_mlir.passes.lower_to_loops import legal
from upl_mlir.passes.pipelines import PIPELINES, SCHEDULE
from upl_mlir.passes.schedule import SchedulePass
from upl_mlir.pipeline import run
from upl_mlir.universe import PASSES

EXAMPLES = Path(__file__).parents[2] / "examples"
REACTION = Path(__file__).parents[1] / "filecheck" / "loops" / "Inputs" / "reaction.upl"


def module(name: str, wrt: str = "") -> ModuleOp:
    """An example, or the derivative of its first output."""
    p = upl.load(REACTION if name == "reaction" else EXAMPLES / f"{name}.upl")
    if wrt:
        p = upl.vjp(p, of=next(iter(p.outputs)), wrt=[wrt])
    return p.expanded().infer_domains().module.clone()


def after(m: ModuleOp, names: tuple[str, ...], **options: dict[str, Any]) -> ModuleOp:
    """The module after passes, verified between them."""
    run(m, [PASSES[n]()(**options.get(n.replace("-", "_"), {})) for n in names])
    return m


def test_pipelines_name_passes() -> None:
    """Each is there, and the loop level has no pass that `schedule` leaves out."""
    assert all(name in PASSES for p in PIPELINES.values() for name in p.passes)
    assert [n for n in SCHEDULE.passes if n in LOOP_PASSES] == list(LOOP_PASSES)


@pytest.mark.parametrize(
    ("name", "wrt"),
    [("matmul", ""), ("iris", "W"), ("wave", "C"), ("mds", "X"), ("digits", ""), ("lstm", "X"), ("reaction", "U0")],
)
def test_one_by_one_is_all_at_once(name: str, wrt: str) -> None:
    """Each pass reads what the one before has written; nothing else is handed on."""
    whole, parts = module(name, wrt), module(name, wrt)
    run(whole, [SchedulePass()])
    after(parts, SCHEDULE.passes)
    assert str(parts) == str(whole)


EQUATIONS = ("raise-to-loops", "split-products", "reuse-functions", "running-sums", "order-loops", "allocate-arrays")


@pytest.mark.parametrize(
    ("name", "wrt", "passes", "options"),
    [
        ("jacobi1d", "", (), {}),
        ("jacobi2d", "", ("tile-time",), {"tile_time": {"steps": 3}}),
        ("jacobi2d", "A", ("tile-time", "unroll-loops"), {"tile_time": {"steps": 1}, "unroll_loops": {"most": 2}}),
        ("iris", "W", ("unroll-loops",), {"unroll_loops": {"most": 2}}),
        ("mds", "X", (), {"running_sums": {"short": 1}, "reuse_functions": {"cost": 1}}),
        ("digits", "", ("unroll-loops", "forward-copies"), {}),
    ],
)  # fmt: skip
def test_any_options_are_legal(name: str, wrt: str, passes: tuple[str, ...], options: dict[str, Any]) -> None:
    """Shorter pipelines and other numbers make other loops, which are proved as well."""
    m = after(module(name, wrt), (*EQUATIONS, *passes), **options)
    assert not list(faults(legal(loop_program_of(m))))


@pytest.mark.slow
@pytest.mark.parametrize("segment", [1, 4, 10])
def test_recomputed_states_are_legal(segment: int) -> None:
    """The states that are kept, at their step, and those that are made again."""
    m = after(module("reaction", "U0"), (*EQUATIONS, "recompute-states"), recompute_states={"segment": segment})
    p = read(loop_program_of(m))
    assert [a.every for a in p.kept["U.u.kept"].axes] == [-segment, None, None]
    assert not list(faults(p))


@pytest.mark.parametrize("name", LOOP_PASSES)
def test_a_pass_at_another_stage_is_refused(name: str) -> None:
    """With the pass that is missing, or in front of which it should stand."""
    stages = {Stage.EQUATIONS: "raise-to-loops", Stage.ORDERED: "order-loops", Stage.KEPT: "allocate-arrays"}
    m = module("jacobi1d")
    wanted = LOOP_PASSES[name].stage
    for stage, maker in stages.items():
        after(m, (maker,))
        if stage is wanted:
            continue
        with pytest.raises(upl.UplError) as caught:
            after(m.clone(), (name,))
        (told,) = caught.value.diagnostics
        assert told.code == "UPL1831" and told.span is not None
        after_it = f"run `{stages[wanted]}` before `{name}`"
        assert (told.help == after_it) if stage.number < wanted.number else "already" in told.message


@pytest.mark.parametrize(
    ("name", "option"),
    [("tile-time", "steps"), ("unroll-loops", "most"), ("recompute-states", "segment"), ("running-sums", "short")],
)
def test_options_have_a_range(name: str, option: str) -> None:
    m = after(module("jacobi1d"), ("raise-to-loops",))
    with pytest.raises(upl.UplError, match=rf"UPL1802.*{option}=0: expected a number from 1 on"):
        after(m, (name,), **{name.replace("-", "_"): {option: 0}})
