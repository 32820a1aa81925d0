"""Hutchinson's estimate of the trace of a Hessian: without bias, and converging as its variance says."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np

import upl_mlir as upl

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "hutchinson.py"
_SPEC = importlib.util.spec_from_file_location("examples_hutchinson", SCRIPT)
assert _SPEC is not None and _SPEC.loader is not None
hutchinson = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(hutchinson)


def test_the_mean_over_all_signs_is_the_trace() -> None:
    """No luck involved: every vector of signs once."""
    random = np.random.default_rng(3)
    x, d = random.normal(size=(3, 2)), 1 + random.random((2, 2))
    p = upl.load(hutchinson.PROGRAM)
    h = hutchinson.products(p, "Stress", "X")
    assert h.check().ok
    signs = np.array(list(product([-1.0, 1.0], repeat=x.size))).reshape(-1, *x.shape)
    values = hutchinson.estimates(h, "X", {"X": x, "D": d}, signs)
    whole = upl.compile(upl.hessian(p, of="Stress", wrt="X"))(X=x, D=d)["H_X_X"].reshape(x.size, x.size)
    np.testing.assert_allclose(whole, whole.T, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(np.mean(values), np.trace(whole), rtol=1e-12)
    np.testing.assert_allclose(
        values, np.einsum("pi,ij,pj->p", flat := signs.reshape(-1, x.size), whole, flat), rtol=1e-9, atol=1e-12
    )


def test_the_estimate_converges() -> None:
    """Within four standard deviations of the trace, which the Hessian's other elements give; the more probes, the nearer."""
    random = np.random.default_rng(4)
    x, d = random.normal(size=(4, 2)), 1 + random.random((3, 3))
    p = upl.load(hutchinson.PROGRAM)
    probes = random.choice([-1.0, 1.0], (300, *x.shape))
    values = hutchinson.estimates(hutchinson.products(p, "Stress", "X"), "X", {"X": x, "D": d}, probes)
    whole = upl.compile(upl.hessian(p, of="Stress", wrt="X"))(X=x, D=d)["H_X_X"].reshape(x.size, x.size)
    spread = np.sqrt(2 * np.sum((whole - np.diag(np.diag(whole))) ** 2))
    for n in (30, 300):
        assert abs(np.mean(values[:n]) - np.trace(whole)) < 4 * spread / np.sqrt(n)


def test_the_script_runs() -> None:
    """What a reader types."""
    out = subprocess.run(
        [sys.executable, str(SCRIPT), "16"], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    assert "16 probes" in out and "the trace" in out
