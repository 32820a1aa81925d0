"""The engine "mpi" on several ranks: native code's bits, the bytes that were computed, errors in words, no endless wait."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from upl_mlir.tools.upl import main as upl_tool

ROOT = Path(__file__).resolve().parents[2]
BESIDE = Path(sys.executable).parent / "mpiexec"
MPIEXEC = str(BESIDE) if BESIDE.exists() else shutil.which("mpiexec")
needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or MPIEXEC is None,
    reason="MPI is not installed: pip install 'upl-mlir[mpi]'",
)
QUICK = ("jacobi1d@6", "floyd_warshall", "floyd_warshall@3", "wave@2:Y:U0,C", "conv2d@2:Y:X,G", "softmax", "spmv")
SLOW = (
    "jacobi2d@3", "jacobi2d@2:B:A", "wave@3", "matmul@2", "matmul@2:C:A,B", "fir", "fir:Y:X", "conv_strided", "lstm",
    "lstm:Y:X,W,V", "mds:Stress:X", "gmm", "gmm:L:X", "perceptron", "perceptron:R:W", "training", "iris", "iris_batch",
    "iris_batch:R:X", "hypergradient:L:rate", "upsample", "reshape", "diagonal:Y:A", "mlp:Loss:W,B",
)  # fmt: skip

MORE = (
    *(f"bench:{name}" for name in ("heat3d", "nbody", "regression", "mlp-gradient", "heat3d-gradient", "nbody-gradient",
                           "jacobi2d-gradient")),
    "conv2d@4", "digits",
)  # fmt: skip
RELAXED = (
    *(f"~bench:{name}" for name in ("regression", "mlp-gradient", "nbody", "nbody-gradient", "heat3d")),
    "~floyd_warshall@3:S:W", "~jacobi2d@3", "~digits", "~gmm:L:X", "~softmax", "~iris_batch:R:X", "~lstm:Y:X,W,V",
)  # fmt: skip
"""Sums over cut fields as sums of parts."""
REFUSED = {"spmv": "UPL1821"}


def job(ranks: int, *cases: str) -> list[str]:
    """What the first of several ranks prints."""
    assert MPIEXEC is not None
    command = [MPIEXEC, "-n", str(ranks), sys.executable, str(ROOT / "test" / "mpi" / "ranks.py"), *cases]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def killed(ranks: int, rank: int, call: int, *command: str) -> subprocess.CompletedProcess[str]:
    """A run of which a rank kills itself in one of its calls; it ends with an error within ten seconds."""
    assert MPIEXEC is not None
    script = [sys.executable, str(ROOT / "test" / "mpi" / "killed.py"), str(rank), str(call)]
    done = subprocess.run(
        [MPIEXEC, "-n", str(ranks), *script, *command, "--engine", "mpi"], capture_output=True, text=True, cwd=ROOT,
        timeout=900, check=False,
    )  # fmt: skip
    end = time.time()
    assert done.returncode not in (0, None)
    _, _, at = done.stderr.partition("killed at ")
    assert at, done.stderr
    assert end - float(at.split()[0]) < 10
    return done


def agree(lines: list[str], cases: tuple[str, ...], refused: dict[str, str]) -> None:
    """Every case is equal and sent what was computed, or is refused as expected."""
    assert [line.split()[0] for line in lines] == list(cases)
    for line in lines:
        name, what, *numbers = line.split()
        if name in refused:
            assert what == refused[name]
            continue
        assert what == "equal", line
        sent, predicted = numbers
        assert sent == predicted, line


@needs_mpi
def test_a_few_programs_on_three_ranks() -> None:
    agree(job(3, *QUICK), QUICK, REFUSED)


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 4])
def test_examples_and_gradients(ranks: int) -> None:
    agree(job(ranks, *QUICK, *SLOW), (*QUICK, *SLOW), REFUSED)


@needs_mpi
@pytest.mark.parametrize("ranks", [1, 3])
def test_examples_beyond(ranks: int) -> None:
    """A stencil in space, bodies, training by data-parallel sums, and what their derivatives need."""
    agree(job(ranks, *MORE), MORE, REFUSED)


@needs_mpi
@pytest.mark.parametrize("ranks", [3])
def test_examples_with_relaxed_sums(ranks: int) -> None:
    agree(job(ranks, *RELAXED), RELAXED, REFUSED)


@needs_mpi
def test_parts_of_a_sum_on_two_ranks() -> None:
    cases = ("~bench:regression", "~gmm")
    lines = job(2, *cases)
    agree(lines, cases, REFUSED)
    assert int(lines[0].split()[-1]) == 2 * 4 * 3 * 8  # ranks, steps, weights, bytes


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_examples_of_random_programs(ranks: int) -> None:
    """They are equal, and send what was computed, or are refused: nothing can be cut, or no bounds of a field are found."""
    cases = tuple(f"random:{seed}" for seed in range(100, 140))
    lines = job(ranks, *cases)
    refused = {line.split()[0]: line.split()[1] for line in lines if line.endswith(("UPL2101", "UPL1825"))}
    agree(lines, cases, refused)
    assert sum(" equal " in line for line in lines) > len(cases) // 2


@needs_mpi
def test_the_command_prints_once(tmp_path: Path) -> None:
    given = ["--input", "W=[[0,5,9],[1,0,2],[9,1,0]]"]
    command = [sys.executable, "-m", "upl_mlir", "run", "examples/floyd_warshall.upl", *given]
    outs = [
        subprocess.run([*command, *more], capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
        for more in (["--ranks", "2"], ["--engine", "native"])
    ]
    assert [o.returncode for o in outs] == [0, 0], outs[0].stderr
    assert outs[0].stdout == outs[1].stdout
    wrong = subprocess.run(
        [*command[:-1], "W=[1,2]", "--ranks", "2"], capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )
    assert wrong.returncode == 1 and wrong.stderr.count("error[UPL1503]") == 1 and "Traceback" not in wrong.stderr


@needs_mpi
def test_a_later_process_finds_the_plan(tmp_path: Path) -> None:
    """The division and its proof are on disk; of another program, or for another order of sums, they are not."""
    text = (ROOT / "examples/floyd_warshall.upl").read_text(encoding="utf-8")
    program, stats = tmp_path / "program.upl", tmp_path / "stats.json"
    environment = {**os.environ, "UPL_CACHE_DIR": str(tmp_path / "cache")}

    def run(*more: str) -> tuple[bool, str]:
        command = ["run", str(program), "--ranks", "2", "--input", "W=[[0,5,9],[1,0,2],[9,1,0]]", "--stats", str(stats)]
        done = subprocess.run(
            [sys.executable, "-m", "upl_mlir", *command, *more], capture_output=True, text=True, cwd=ROOT, timeout=120,
            check=False, env=environment,
        )  # fmt: skip
        assert not done.returncode, done.stderr
        return json.loads(stats.read_text(encoding="utf-8"))["cached"], done.stdout

    program.write_text(text, encoding="utf-8")
    first, out = run()
    assert not first
    assert run() == (True, out)
    assert not run("--gather", "ordered")[0]
    program.write_text(text.replace("to + from #2", "to + from + 1 #2"), encoding="utf-8")
    found, other = run()
    assert not found and other != out


@needs_mpi
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_blocks_of_arrays(ranks: int) -> None:
    """Ranks give blocks of inputs, of different lengths, and get blocks of native code's results."""
    assert MPIEXEC is not None
    script = str(ROOT / "test" / "mpi" / "local.py")
    command = [MPIEXEC, "-n", str(ranks), sys.executable, "-m", "mpi4py", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    said = dict(line.split(": ") for line in done.stdout.splitlines())
    assert set(said.values()) == {"equal", "UPL1503"} and len(said) == 7
    assert [name for name, what in said.items() if what == "UPL1503"] == [
        "another row length on one rank", "a number for an array",
    ]  # fmt: skip


@needs_mpi
def test_a_killed_rank_ends_the_run() -> None:
    """The second rank kills itself in its third exchange; the others would wait for it."""
    done = killed(3, 1, 3, "run", "examples/floyd_warshall.upl", "--input", "W=[[0,5,9],[1,0,2],[9,1,0]]")
    assert "S =" not in done.stdout


def test_without_mpi_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert upl_tool(["run", str(ROOT / "examples/floyd_warshall.upl"), "--ranks", "2"]) == 1
    assert "error[UPL2103]" in (err := capsys.readouterr().err) and "upl-mlir[mpi]" in err
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert upl_tool(["run", str(ROOT / "examples/floyd_warshall.upl"), "--engine", "mpi"]) == 1
    assert "error[UPL2103]" in (err := capsys.readouterr().err) and "upl-mlir[mpi]" in err


def test_a_signal_is_named() -> None:
    from upl_mlir.engines.mpi.world import ended

    assert f"signal {signal.SIGKILL.value}" in str(ended(128 + signal.SIGKILL))
