"""Checkpoints: a killed run is taken up on other ranks with native code's bits; what does not fit is told in words."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from mpi.test_ranks import ROOT, killed, needs_mpi
from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl.query import poly_context
from upl_mlir.engines.mpi.boxes import Blocks
from upl_mlir.engines.mpi.checkpoint import LATEST, Checkpoints, Identity
from upl_mlir.engines.mpi.plan import make_plan
from upl_mlir.engines.native import target
from upl_mlir.passes.distribute.restart import restartable
from upl_mlir.passes.distribute.schedule import distribute
from upl_mlir.passes.schedule import prepared

CASES: dict[str, tuple[tuple[str, str] | None, int, dict[str, int], int]] = {
    "floyd_warshall": (None, 3, {}, 17), "jacobi1d": (None, 6, {"T": 100}, 9), "wave": (("Y", "U0"), 2, {"T": 50}, 14),
}  # fmt: skip
"""Of each program: of what by what its gradient is taken, the scale of its data, parameters, the call in which a rank
dies."""


def written(name: str, folder: Path, example_data: ModuleType) -> tuple[Path, Path, dict[str, Any]]:
    """The files of a program and of its inputs, and native code's results."""
    derivative, scale, params, _ = CASES[name]
    p, inputs = upl.load(ROOT / "examples" / f"{name}.upl"), dict(example_data.generate(name, scale).inputs)
    if derivative is not None:
        p = upl.vjp(p, of=derivative[0], wrt=[derivative[1]])
        inputs[f"d_{derivative[0]}"] = np.cos(inputs[derivative[1]])
    path, data = folder / "program.upl", folder / "data.npz"
    path.write_text(str(p), encoding="utf-8")
    np.savez(data, **inputs)
    return path, data, upl.compile(p, engine="native", gather="ordered")(**inputs, **params)


@needs_mpi
@pytest.mark.parametrize(("name", "before", "after"), [("floyd_warshall", 2, 3), ("jacobi1d", 3, 2), ("wave", 3, 1)])
def test_a_killed_run_is_taken_up_on_other_ranks(
    name: str, before: int, after: int, tmp_path: Path, example_data: ModuleType
) -> None:
    path, data, wanted = written(name, tmp_path, example_data)
    saved, out = tmp_path / "saved", tmp_path / "out.npz"
    params = [word for n, v in CASES[name][2].items() for word in ("--input", f"{n}={v}")]
    command = ["run", str(path), "--input", str(data), *params, "--gather", "ordered", "--checkpoint", str(saved)]
    killed(before, before - 1, CASES[name][3], *command)
    state = json.loads((saved / LATEST).read_text(encoding="utf-8"))
    assert state["ranks"] == before
    again = [sys.executable, "-m", "upl_mlir", *command, "--output", str(out), "--ranks", str(after)]
    done = subprocess.run(again, capture_output=True, text=True, cwd=ROOT, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert f"iteration {state['iteration']}" in done.stderr
    with np.load(out) as found:
        assert {n: found[n].tobytes() for n in found.files} == {n: a.tobytes() for n, a in wanted.items()}
    assert not list(saved.iterdir())  # a run that has ended needs no checkpoint


class Alone:
    """A communicator of one rank."""

    def Get_rank(self) -> int:
        return 0

    def Get_size(self) -> int:
        return 1

    def bcast(self, what: Any, root: int) -> Any:
        return what


WHAT = Identity("p", {"n": 3}, {"A": "a"}, "ordered sums, f64", "states")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (dataclasses.replace(WHAT, program="q"), "another program"),
        (dataclasses.replace(WHAT, sizes={"n": 4}), "it has n=4, this run has n=3"),
        (dataclasses.replace(WHAT, inputs={"A": "b"}), "the input `A` has other values"),
        (dataclasses.replace(WHAT, options="relaxed sums, f64"), "relaxed sums, f64"),
        (dataclasses.replace(WHAT, states="other"), "it has other arrays"),
        (None, "not one of a checkpoint"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(other: Identity | None, message: str, tmp_path: Path) -> None:
    of = {"of": None if other is None else other.to_dict(), "loop": 1, "iteration": 5, "ranks": 1}
    (tmp_path / LATEST).write_text(json.dumps(of), encoding="utf-8")
    with pytest.raises(UplError) as e:
        begun(tmp_path)
    assert e.value.diagnostics[0].code == "UPL2106" and message in str(e.value)


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / LATEST).write_text("{")
    for folder in (tmp_path / "file", tmp_path):
        with pytest.raises(UplError) as e:
            begun(folder)
        assert e.value.diagnostics[0].code == "UPL2107" and str(folder) in str(e.value)
    assert begun(tmp_path / "new") == {"restart at": 0}


def begun(folder: Path) -> dict[str, int]:
    """What a run begins with that has a checkpoint there."""
    context = poly_context(upl.load(ROOT / "examples" / "jacobi1d.upl").infer_domains().read())
    return Checkpoints(Alone(), folder, 1, (), WHAT, Blocks((), {}, 1, context.read)).begin()


def test_a_program_without_steps_is_refused() -> None:
    p = upl.load(ROOT / "examples" / "matmul.upl").infer_domains().read()
    with pytest.raises(UplError) as e:
        make_plan(p, target.host(), real="f64", gather="ordered", threads=1, saved=True)
    assert e.value.diagnostics[0].code == "UPL2108"


def test_what_is_saved() -> None:
    """Two loops over steps of a gradient; of the forward one no output is there yet."""
    p = upl.vjp(upl.load(ROOT / "examples" / "wave.upl"), of="Y", wrt=["U0"])
    d = distribute(prepared(p.module, "f64", "ordered"), gather="ordered")
    first, *_, last = restartable(d)
    assert "U.u" in first.arrays and "d_U0" not in first.arrays and first.var != last.var
