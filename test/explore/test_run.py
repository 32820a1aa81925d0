"""Sweeps that are run: tables, what is kept, what fails, and where the cycles went."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from sweeps import explore, table

from upl_mlir.engines.rtl.prepare import build_of
from upl_mlir.engines.rtl.run import run_machine
from upl_mlir.explore.bounds import bounds
from upl_mlir.explore.dependences import dependences
from upl_mlir.explore.job import Job, Task, bind, prepare, run_task
from upl_mlir.explore.sweep import load_sweep
from upl_mlir.hw.machine import Machine, Matching, Organisation
from upl_mlir.hw.sim.compiled import available
from upl_mlir.tools.upl import main

PROGRAM = """program layer
param D >= 1
const n = 3
input X<d,i> in 1<=d<=D, 1<=i<=n { -> M.x<d,i,*> #n }
input W<i,j> in 1<=i<=n, 1<=j<=n { -> M.w<*,i,j> #D }
output R<d,j>
node M<d,i,j> { in x, w; x*w #n -> S.s<d,j> }
node S<d,j> { in @(+) s[#]; s/2 -> R }
""".replace("-> M.x<d,i,*> #n", "#n -> M.x<d,i,*>").replace("-> M.w<*,i,j> #D", "#D -> M.w<*,i,j>")
HASHED = Machine(matching=Matching(organisation=Organisation.HASHED))
JOB = Job("layer", PROGRAM, {"X": "random", "W": "random"})


def sweep(tmp_path: Path, text: str) -> Path:
    (tmp_path / "p.upl").write_text(PROGRAM, encoding="utf-8")
    np.savez(tmp_path / "in.npz", X=np.ones((2, 3)), W=np.arange(9.0).reshape(3, 3))
    path = tmp_path / "s.toml"
    (tmp_path / "m.toml").write_text('[matching]\norganisation = "cam"\n', encoding="utf-8")
    path.write_text('program = "p.upl"\nmachine = "m.toml"\n' + text, encoding="utf-8")
    return path


def test_a_sweep_is_run_kept_and_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The store of 4 entries is too small: an error in the table, and no end of the sweep."""
    text = '[define]\nD = 2\n[inputs]\nfile = "in.npz"\n[sweep]\n"matching.capacity" = [4, 64, 128]\n[search]\n{}'
    path = sweep(tmp_path, text.format('objectives = ["cycles", "peak_waiting"]'))
    assert explore(path) == 0
    rows = table(tmp_path / "out")
    assert [r["matching.capacity"] for r in rows] == ["4", "64", "128"]
    assert "UPL1702" in rows[0]["error"]
    assert rows[1]["cycles"] == rows[2]["cycles"] != ""
    assert [r["pareto"] for r in rows] == ["False", "True", "True"]
    assert (tmp_path / "out" / "pareto.svg").exists() == (find_spec("matplotlib") is not None)
    shown = capsys.readouterr().out
    line = path.read_text(encoding="utf-8").splitlines().index('"matching.capacity" = [4, 64, 128]') + 1
    assert f"no result: matching.capacity = 4: {path}:{line}:1: error[UPL1702]" in shown
    assert "pip install 'upl-mlir[explore]'" in shown or (tmp_path / "out" / "table.parquet").exists()
    config = json.loads((tmp_path / "out" / "runs" / rows[1]["run"] / "config.json").read_text())
    assert config["point"] == {"matching.capacity": 64}
    assert config["machine"]["matching"]["capacity"] == 64
    assert {"upl-mlir", "hardware", "amaranth"} <= set(config["versions"])
    stats = json.loads((tmp_path / "out" / "runs" / rows[1]["run"] / "stats.json").read_text())
    assert str(stats["cycles"]) == rows[1]["cycles"]

    # The same again: what is there is not run; what failed is tried again.
    path.write_text(path.read_text().replace("[4, 64, 128]", "[4, 64, 128, 256]"), encoding="utf-8")
    assert explore(path) == 0
    assert "4 points, 2 of them from before" in capsys.readouterr().out
    assert len(table(tmp_path / "out")) == 4

    # Other inputs are other runs.
    path.write_text(path.read_text().replace("file = \"in.npz\"", 'X = "random"\nW = "random"'), encoding="utf-8")
    assert explore(path) == 0
    assert "from before" not in capsys.readouterr().out


def test_an_interrupted_sweep_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C after the first run: no traceback, nobody left working, and that run need not be done again."""
    path = sweep(tmp_path, '[inputs]\nX = "random"\nW = "random"\n[sweep]\n"define.D" = [1, 2, 3, 4, 5, 6, 7, 8, 9]\n')
    command = [sys.executable, "-c", "import sys; from upl_mlir.tools.upl import main; sys.exit(main())",
               "explore", str(path), "-o", str(tmp_path / "out"), "--jobs", "1"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(2400):
            if list(tmp_path.glob("out/runs/*/stats.json")) or process.poll() is not None:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "the same command goes on from here" in err
    assert "Traceback" not in err
    done = len(list(tmp_path.glob("out/runs/*/stats.json")))
    assert 1 <= done < 9
    assert explore(path) == 0
    assert f"9 points, {done} of them from before" in capsys.readouterr().out


@pytest.mark.skipif(not available(), reason="no C++ compiler")
def test_the_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One build for all its machines; less store is more time and more traffic to the memory behind it."""
    example = Path(__file__).parents[2] / "examples" / "sweep.toml"
    swept = load_sweep(example)
    assert len({build_of(swept.machine(point)) for point in swept.grid()}) == 1
    assert main(["explore", str(example), "-o", str(tmp_path), "--jobs", "1"]) == 0
    rows = table(tmp_path)
    assert len(rows) == 15
    assert not any(r["error"] for r in rows)
    slow = [r for r in rows if r["matching.backing_latency_cycles"] == "30"]
    small, large = (next(r for r in slow if r["matching.capacity"] == size) for size in ("64", "1024"))
    assert int(small["cycles"]) > int(large["cycles"])
    assert int(small["spills"]) > int(large["spills"]) == 0
    assert float(small["energy"]) > float(large["energy"])
    shown = capsys.readouterr().out
    for row in (r for r in rows if r["matching.capacity"] in ("64", "1024")):  # in a pipe: a line for each, whole
        stats = json.loads((tmp_path / "runs" / row["run"] / "stats.json").read_text())
        causes = stats["attribution"]["match"]
        if row["bottleneck"] in causes:
            assert causes[row["bottleneck"]] == max(causes.values())
        names = ("matching.organisation", "matching.capacity", "matching.backing_latency_cycles", "cycles")
        figures = [row[name] for name in names]
        line = next(line for line in shown.splitlines() if all(f" {figure} " in f" {line} " for figure in figures))
        assert f"{row['bottleneck']} {100 * float(row['bottleneck_share']):.0f} %" in line
    assert small["bottleneck"] == "backing"


def test_a_search_by_optuna(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna", reason="optuna is in the extra `explore`")
    text = '[inputs]\nX = "random"\nW = "random"\n[sweep]\n"define.D" = [1, 2, 3]\n"matching.capacity" = [32, 64]\n'
    path = sweep(tmp_path, text + '[search]\nsampler = "optuna"\ntrials = 5\n')
    assert explore(path) == 0
    rows = table(tmp_path / "out")
    assert len(rows) == len({r["run"] for r in rows}) <= 5
    first = sorted(r["run"] for r in rows)
    assert explore(path) == 0
    assert sorted(r["run"] for r in table(tmp_path / "out")) == first


def test_parquet_has_the_rows(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is in the extra `explore`")
    path = sweep(tmp_path, '[inputs]\nX = "random"\nW = "random"\n[sweep]\n"define.D" = [1, 2]\n')
    assert explore(path) == 0
    found = parquet.read_table(tmp_path / "out" / "table.parquet").to_pydict()
    assert found["define.D"] == [1, 2]
    assert [str(c) for c in found["cycles"]] == [r["cycles"] for r in table(tmp_path / "out")]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('[inputs]\nX = "random"\n', ["error[UPL1742]", "nothing is said of the input `W`", 'W = "random"']),
        ('[inputs]\nX = "random"\nV = 3\n', ["s.toml:5:1", "error[UPL1741]", "no input `V`"]),
        ('[inputs]\nX = "x.npy"\nW = 1\n', ["s.toml:4:1", "error[UPL1742]", "cannot read"]),
        ('[inputs]\nX = "x.txt"\nW = 1\n', ["s.toml:4:1", "error[UPL1742]", '"random"']),
        ("[inputs]\nX = [[1, 2], [3]]\nW = 1\n", ["s.toml:4:1", "error[UPL1742]", "a list of numbers"]),
        ('[inputs]\nX = "random"\nW = [1, 2]\n[define]\nD = 1\n', ["error[UPL1503]"]),
        ('[inputs]\nX = "random"\nW = "random"\n[define]\nd = 1\n', ["error[UPL1511]"]),
    ],
)
def test_faults_of_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, parts: list[str]) -> None:
    path = sweep(tmp_path, text)
    assert explore(path) == 1
    found = capsys.readouterr().err
    for part in parts:
        assert part in found


def test_the_size_of_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sweep(tmp_path, '[inputs]\nX = "random"\nW = "random"\n[sweep]\n"define.D" = [1, 2]\ncores = [1, 2, 4]\n')
    assert explore(path, "--list") == 0
    assert "6 points over define.D, cores" in capsys.readouterr().out
    assert explore(path, "--jobs", "0") == 2


# ---------------------------------------------------------------------------------------------------- where cycles went


def figures(machine: Machine, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    outcome = run_task(JOB, Task(params, machine))
    assert outcome.stats is not None, outcome.error
    program, bound, dense = bind(JOB, params)
    return outcome.stats, bounds(outcome.stats, machine, dependences(program, bound, dense, machine.execution))


@pytest.mark.parametrize("batch", [1, 5])
def test_every_cycle_has_one_cause(batch: int) -> None:
    stats, _ = figures(HASHED, {"D": batch})
    for causes in stats["attribution"].values():
        assert sum(causes.values()) == stats["cycles"]
    match, execute = stats["attribution"]["match"], stats["attribution"]["execute"]
    assert match["busy"] == sum(stats["tokens"][name] for name in stats["firings"]), "elements of outputs match nothing"
    assert execute["busy"] == round(stats["utilisation"]["alu"] * stats["cycles"]) > 0
    assert match["execute"] > 0


def test_what_is_prepared_is_for_the_machine_that_was_asked_for() -> None:
    """Though the program is lowered once: `direct` needs to know domains and streams, `hashed` does not."""
    direct = Machine(matching=Matching(organisation=Organisation.DIRECT))
    first, second = (prepare(JOB, {"D": 2}, machine) for machine in (HASHED, direct))
    assert second.program is first.program
    assert [p.engine.machine for p in (first, second)] == [HASHED, direct]
    assert not first.engine.image.domains
    assert second.engine.image.domains
    assert second.engine.image.streams


def test_every_cycle_of_two_cores_has_one_cause() -> None:
    """On Amaranth's simulator: no second machine is compiled."""
    machine = Machine(cores=2, matching=Matching(organisation=Organisation.HASHED))
    prepared = prepare(JOB, {"D": 1}, machine)
    stats = run_machine(prepared.engine.image, machine, prepared.tokens, simulator="amaranth").stats.to_dict()
    for causes in stats["attribution"].values():
        assert sum(causes.values()) == 2 * stats["cycles"]
    assert stats["attribution"]["match"]["outside"] > 0


@pytest.mark.parametrize("batch", [1, 5])
def test_no_run_is_below_its_bounds(batch: int) -> None:
    stats, found = figures(HASHED, {"D": batch})
    assert {"tokens", "probes", "instructions", "add", "mul", "host", "latency"} <= set(found)
    for name, bound in found.items():
        assert 0 <= bound <= stats["cycles"], name
    assert max(found.values()) >= stats["cycles"] / 4, "no bound is near: something that limits runs has none"


def test_activity_is_counted() -> None:
    stats, _ = figures(HASHED, {"D": 2})
    activity = stats["activity"]
    # 2 * 9 products; 2 * 3 sums of 3; a division of each.
    assert (activity["mul_f32"], activity["add_f32"], activity["div_f32"]) == (18, 12, 6)
    assert activity["ram_bit"] > 32 * sum(stats["tokens"].values())
