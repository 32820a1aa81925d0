"""Roots and quotients by them from the approximate reciprocal root: errors in ulp, and special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from upl_mlir.engines.native.backend import Kernel, compile_module
from upl_mlir.engines.native.target import host

Floats = NDArray[np.float64]

pytestmark = pytest.mark.skipif(host().vector_bytes != 64, reason="only machines with AVX-512 have it")

LOOP = """
func.func @f(%n: index, %a: memref<?xf64>, %x: memref<?xf64>, %r: memref<?xf64>, %q: memref<?xf64>, %status: memref<i64>)
    attributes {{upl.gather = "{gather}"}} {{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  scf.for %i = %zero to %n step %one {{
    %u = memref.load %a[%i] : memref<?xf64>
    %v = memref.load %x[%i] : memref<?xf64>
    %s = math.sqrt %v : f64
    %d = arith.divf %u, %s : f64
    memref.store %s, %r[%i] : memref<?xf64>
    memref.store %d, %q[%i] : memref<?xf64>
    scf.yield
  }}
  func.return
}}
"""


def run(modules: Any, a: Floats, x: Floats, gather: str = "relaxed") -> tuple[Kernel, Floats, Floats]:
    kernel = compile_module(modules.parse(LOOP.format(gather=gather)))
    r, q = np.empty_like(x), np.empty_like(x)
    kernel([len(x), a, x, r, q, modules.status()])
    return kernel, r, q


def test_errors_in_ulp(modules: Any) -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate([10 ** rng.uniform(-280, 300, 100_000), rng.uniform(0, 4, 100_000), rng.uniform(1, 1.001, 10_000),
                        10 ** rng.uniform(-323, -280, 10_000)])  # fmt: skip
    a = rng.standard_normal(len(x))
    kernel, r, q = run(modules, a, x)
    assert "rsqrt14" in kernel.asm
    root = np.sqrt(x.astype(np.longdouble))
    assert float(np.max(np.abs(r - root) / np.spacing(np.sqrt(x)))) < 0.75
    quotient = a / root
    assert float(np.max(np.abs(q - quotient) / np.spacing(np.abs(a / np.sqrt(x))))) < 1.5


def test_special_values(modules: Any) -> None:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, -1e-310, 5e-324, 1e-310, 2.2250738585072014e-308, 1.7e308]
    x = np.array([v for v in special for _ in range(8)])
    a = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-3] * len(special))
    _, r, q = run(modules, a, x)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(r, np.sqrt(x), rtol=2e-16)
        np.testing.assert_array_equal(np.signbit(r[:16]), np.signbit(np.sqrt(x[:16])))
        np.testing.assert_allclose(q, a / np.sqrt(x), rtol=4e-16)


def test_one_exception_among_eight(modules: Any) -> None:
    """Its lane, and the seven others, wherever it stands: in a whole vector or in what is left over."""
    rng = np.random.default_rng(5)
    for a1, x1 in ((np.inf, 2.0), (1e200, 1e-300), (1.0, 0.0), (3.0, np.inf), (1.0, np.nan), (-1.0, 3e-320)):
        for at in range(13):
            a, x = rng.standard_normal(13), rng.uniform(0.1, 4, 13)
            a[at], x[at] = a1, x1
            _, r, q = run(modules, a, x)
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(r, np.sqrt(x), rtol=2e-16)
                np.testing.assert_allclose(q, a / np.sqrt(x), rtol=4e-16)


def test_ordered_code_rounds_as_the_interpreter(modules: Any) -> None:
    rng = np.random.default_rng(4)
    a, x = rng.standard_normal(1000), rng.uniform(0, 4, 1000)
    kernel, r, q = run(modules, a, x, "ordered")
    assert "rsqrt14" not in kernel.asm
    np.testing.assert_array_equal(r, np.sqrt(x))
    np.testing.assert_array_equal(q, a / np.sqrt(x))
