"""Sweeps over circuits: the points, their figures, what is kept, and what is wrong with a file."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from sweeps import explore, table

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.explore.circuits import run_circuit
from upl_mlir.explore.design import Design
from upl_mlir.explore.job import Job, Task, bind
from upl_mlir.explore.sweep import load_sweep

EXAMPLES = Path(__file__).parents[2] / "examples"
HEAD = """program = "p.upl"
[define]
m = 4
r = 4
[inputs]
A = "random"
B = "random"
"""
JOB = Job("matmul", (EXAMPLES / "matmul.upl").read_text(encoding="utf-8"), {"A": "random", "B": "random"})
SIZES = {"m": 4, "n": 3, "r": 4}


def sweep(tmp_path: Path, text: str) -> Path:
    (tmp_path / "p.upl").write_text(JOB.source, encoding="utf-8")
    path = tmp_path / "s.toml"
    path.write_text(HEAD + text, encoding="utf-8")
    return path


def test_a_sweep_over_circuits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '[circuit]\nlanes = 2\n[sweep]\n"define.n" = [3, 5]\n"circuit.real" = ["f32", "q4.14"]\n[search]\n'
    path = sweep(tmp_path, text + 'objectives = ["cycles", "lut", "difference"]\n')
    assert explore(path) == 0
    shown = capsys.readouterr().out
    assert "4 points; * no other point is better in cycles and lut and difference" in shown
    assert "estimated: docs/explore.md says how well" in shown
    rows = table(tmp_path / "out")
    assert [(r["define.n"], r["circuit.real"]) for r in rows] == [("3", "f32"), ("3", "q4.14"), ("5", "f32"), ("5", "q4.14")]
    assert [r["lanes"] for r in rows] == ["2"] * 4
    assert [r["dsp"] for r in rows] == ["6", "2"] * 2
    for r in rows:
        assert float(r["time_us"]) == pytest.approx(int(r["cycles"]) / float(r["fmax_mhz"]))
        assert 0 < float(r["busy"]) <= 1
        assert "bottleneck" not in r
    assert float(rows[0]["difference"]) < 1e-6 < float(rows[1]["difference"]) < 1e-2
    assert int(rows[1]["luts"]) < int(rows[0]["luts"])
    assert (tmp_path / "out" / "pareto.svg").exists() == (find_spec("matplotlib") is not None)
    config = json.loads((tmp_path / "out" / "runs" / rows[0]["run"] / "config.json").read_text())
    assert config["circuit"] == {"lanes": 2, "along": None, "share": False, "real": "f32"}

    # What is there is not done again.
    path.write_text(path.read_text().replace('["f32", "q4.14"]', '["f32", "q4.14", "f16"]'), encoding="utf-8")
    assert explore(path) == 0
    assert "6 points, 4 of them from before" in capsys.readouterr().out


def test_cycles_are_those_of_a_run_and_errors_those_of_the_results() -> None:
    """The simulated circuit is the judge."""
    outcome = run_circuit(JOB, Task(SIZES, Design(lanes=2, real="q4.14")))
    assert outcome.stats is not None, outcome.error
    _, _, dense = bind(JOB, SIZES)
    f = upl.compile(upl.load(JOB.source, **SIZES), engine="circuit", lanes=2, real="q4.14")
    found = f(**dense)["C"]
    assert outcome.stats["cycles"] == f.stats["cycles"]
    assert outcome.stats["interval"] == f.stats["interval"]
    exact = dense["A"].astype(np.float64) @ dense["B"].astype(np.float64)
    assert outcome.stats["difference"] == pytest.approx(np.abs(found - exact).max() / np.abs(exact).max())


def test_a_circuit_that_cannot_be_is_a_row_with_its_error(tmp_path: Path) -> None:
    """A field that there is not is an error of the circuit; 64 lanes take more LUT sites than the device has."""
    path = sweep(tmp_path, '[sweep]\n"define.n" = [3]\n"circuit.along" = ["i", "q"]\n')
    assert explore(path) == 0
    fine, wrong = table(tmp_path / "out")
    assert (fine["error"], int(fine["cycles"]) > 0) == ("", True)
    assert "UPL2004" in wrong["error"]
    outcome = run_circuit(JOB, Task({"m": 64, "n": 2, "r": 2}, Design(lanes=64, along="i")))
    assert outcome.error is not None
    assert "UPL1745" in outcome.error
    assert "an LFE5U-85F has 83,640" in outcome.error


@pytest.mark.parametrize(
    ("text", "code", "line", "parts"),
    [
        ('machine = "m.toml"\n[circuit]\n', "UPL1742", 1, ["a machine and circuits"]),
        ("[circuit]\nlane = 2\n", "UPL1741", 9, ["unknown key `lane`", "did you mean `lanes`?"]),
        ("[circuit]\nlanes = 'two'\n", "UPL1742", 9, ["Expected `int`, got `str`"]),
        ("[circuit]\nlanes = 0\n", "UPL1742", 9, ["lanes=0: expected 1 or more"]),
        ("[circuit]\nreal = 'f64'\n", "UPL1742", 9, ["f16, bf16"]),
        ('[sweep]\n"circuit.lane" = [1]\n', "UPL1741", 9, ["no key of a circuit", "did you mean `circuit.lanes`?"]),
        ('[circuit]\n[sweep]\n"matching.ways" = [1]\n', "UPL1741", 10, ["no key of a circuit"]),
        ('[sweep]\n"circuit.lanes" = [1, 0]\n', "UPL1742", 9, ["lanes=0"]),
        ('[sweep]\n"circuit.real" = ["f32", "q99.9"]\n', "UPL1742", 9, ["q99.9"]),
        ('[sweep]\n"circuit.lanes" = [1]\n[search]\nobjectives = ["energy"]\n', "UPL1742", 11, ["one of machines"]),
        ('[sweep]\n"cores" = [1]\n[search]\nobjectives = ["interval"]\n', "UPL1742", 11, ["one of circuits"]),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, code: str, line: int, parts: list[str]) -> None:
    path = sweep(tmp_path, text)
    if text.startswith("machine"):
        head, rest = text.split("\n", 1)
        path.write_text(f"{head}\n{HEAD}{rest}", encoding="utf-8")
    with pytest.raises(UplError) as found:
        load_sweep(path)
    (diagnostic,) = found.value.diagnostics
    assert diagnostic.span is not None
    assert (diagnostic.code, diagnostic.span.line) == (code, line)
    for part in parts:
        assert part in str(found.value)


def test_the_example() -> None:
    found = load_sweep(EXAMPLES / "circuits.toml")
    assert found.size >= 200
    assert len({found.design(p) for p in found.grid()}) == 210
