"""The last stage of the demo, which trains on a circuit; each claim that it prints is one that it has asserted."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from upl_mlir.hw.sim.build import available

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


@pytest.mark.skipif(not available(), reason="no C++ compiler")
def test_training_on_a_circuit(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("examples_demo", SCRIPT)
    assert spec is not None and spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    demo.train_on_a_circuit(batch=10, epochs=3, target=0.8)
    out = capsys.readouterr().out
    assert "ok: as many cycles as predicted" in out
    assert "ok: the weights after 45 steps = interpreter, bit for bit" in out
    assert "FAILED" not in out
