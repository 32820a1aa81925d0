"""`upl run --engine native`: the interpreter's results, figures, options, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Tool = Callable[..., Any]


@pytest.fixture
def wave(examples: Path, tmp_path: Path) -> tuple[Any, ...]:
    """A command that runs the wave equation, without its engine."""
    rng = np.random.default_rng(0)
    data = tmp_path / "wave.npz"
    np.savez(data, U0=rng.standard_normal(7), U1=rng.standard_normal(7), C=np.full(5, 0.3))
    return ("run", examples / "wave.upl", "--input", data, "-D", "T=5")


@pytest.mark.parametrize("real", ["f64", "f32"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_interpreters_results_in_order(
    upl: Tool, wave: tuple[Any, ...], tmp_path: Path, real: str, threads: int
) -> None:
    options = ("--gather", "ordered", "--real", real)
    for engine in ("interp", "native"):
        more = ("--threads", threads) if engine == "native" else ()
        done = upl(*wave, *options, *more, "--engine", engine, "--output", tmp_path / f"{engine}.npz",
                   "--stats", tmp_path / f"{engine}.json")  # fmt: skip
        assert (done.status, done.err) == (0, "")
    with np.load(tmp_path / "interp.npz") as a, np.load(tmp_path / "native.npz") as b:
        assert a.files == b.files
        assert all(np.array_equal(a[n], b[n]) and a[n].dtype == b[n].dtype for n in a.files)
    a, b = (json.loads((tmp_path / f"{engine}.json").read_text()) for engine in ("interp", "native"))
    assert a.keys() <= b.keys()
    assert (b["engine"], b["firings"], b["tokens"]) == ("native", a["firings"], a["tokens"])
    assert b["seconds"] > 0


def test_printed(upl: Tool, wave: tuple[Any, ...]) -> None:
    done = upl(*wave, "--engine", "native")
    assert (done.status, done.out) == (0, upl(*wave).out)


def test_refused(upl: Tool, examples: Path, wave: tuple[Any, ...]) -> None:
    """Exit status 1, a position, no output, no traceback."""
    sparse = ("run", examples / "spmv.upl", "--engine", "native", "--input", "V=[[1.0]]", "--input", "X=[2.0]", "--input")
    assert "[2.]" in upl(*sparse, "Col=[[0]]", "--input", "Count=[1]").out
    done = upl(*sparse, "Col=[[1]]", "--input", "Count=[1]")
    assert (done.status, done.out) == (1, "")
    assert "spmv.upl:15:1: error[UPL1601]: a token is left over in `Mul`: Mul.v<1,0,0>" in done.err
    assert "Traceback" not in done.err
    done = upl(*wave, "--engine", "native", "--threads", 0)
    assert done.status == 1
    assert "error[UPL1802]: threads=0: expected 1 or more" in done.err
