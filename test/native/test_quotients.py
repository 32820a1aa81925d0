"""Quotients by literals as products with the inverse in two parts: errors in ulp, exact quotients, special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from upl_mlir.engines.native.backend import Kernel, compile_module
from upl_mlir.engines.native.llvm.lanes import F32, F64
from upl_mlir.engines.native.llvm.scalar_ops import inverse
from upl_mlir.engines.native.target import host

pytestmark = pytest.mark.skipif(not host().fuses, reason="only machines that fuse a product and a sum have it")

LOOP = """
func.func @f(%n: index, %x: memref<?x{type}>, %q: memref<?x{type}>, %status: memref<i64>)
    attributes {{upl.gather = "{gather}"}} {{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %c = arith.constant {c} : {type}
  scf.for %i = %zero to %n step %one {{
    %v = memref.load %x[%i] : memref<?x{type}>
    %d = arith.divf %v, %c : {type}
    memref.store %d, %q[%i] : memref<?x{type}>
    scf.yield
  }}
  func.return
}}
"""
LITERALS = [3.0, 5.0, -7.0, 0.1, 49.0, 1e10, -1.1e-5, 1.9999999999999998]
REAL: dict[str, Any] = {"f64": np.float64, "f32": np.float32}


def run(modules: Any, x: Any, c: float, gather: str = "relaxed") -> tuple[Kernel, Any]:
    type_ = "f64" if x.dtype == np.float64 else "f32"
    kernel = compile_module(modules.parse(LOOP.format(gather=gather, type=type_, c=repr(float(c)))))
    q = np.empty_like(x)
    kernel([len(x), x, q, modules.status()])
    return kernel, q


def divides(kernel: Kernel) -> bool:
    return "divp" in kernel.asm or "divs" in kernel.asm


@pytest.mark.parametrize("type_", ["f64", "f32"])
@pytest.mark.parametrize("c", LITERALS)
def test_errors_in_ulp(modules: Any, c: float, type_: str) -> None:
    real, rng = REAL[type_], np.random.default_rng(3)
    x = np.concatenate([rng.uniform(-1, 1, 50_000), 10 ** rng.uniform(-20, 20, 50_000), np.arange(-1e4, 1e4)]).astype(real)
    kernel, q = run(modules, x, c)
    assert not divides(kernel)
    exact = x.astype(np.longdouble) / np.longdouble(real(c))
    ulp = np.spacing(np.abs(x / real(c)))
    assert float(np.max(np.abs(q - exact)[x != 0] / ulp[x != 0])) < 0.51


@pytest.mark.parametrize("type_", ["f64", "f32"])
@pytest.mark.parametrize("c", LITERALS)
def test_exact_quotients_stay_exact(modules: Any, c: float, type_: str) -> None:
    real = REAL[type_]
    few = np.float64(np.float32(c)) if type_ == "f64" else real(np.float16(c)) if abs(c) < 6e4 and abs(c) > 1e-3 else real(3)
    n = np.arange(1, 2000).astype(real)  # their products with a literal of few bits have no rounding
    _, q = run(modules, n * real(few), float(few))
    np.testing.assert_array_equal(q, n)


@pytest.mark.parametrize("c", LITERALS)
def test_special_values(modules: Any, c: float) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.7e308, -1.7e308] * 8)
    _, q = run(modules, x, c)
    with np.errstate(all="ignore"):
        wanted = x / c
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(q[~finite], wanted[~finite])
    np.testing.assert_allclose(q[finite], wanted[finite], rtol=2.3e-16, atol=0)
    np.testing.assert_array_equal(np.signbit(q), np.signbit(wanted))


def test_subnormal_quotients(modules: Any) -> None:
    x = np.array([5e-324, -5e-324, 1e-310, 2.2250738585072014e-308, 3e-300] * 8)
    _, q = run(modules, x, 3.0)
    assert np.all(np.abs(q - x / 3.0) <= np.maximum(5e-324, np.spacing(np.abs(x / 3.0))))


def test_ordered_code_divides(modules: Any) -> None:
    x = np.random.default_rng(1).standard_normal(1000)
    kernel, q = run(modules, x, 5.0, "ordered")
    assert divides(kernel)
    np.testing.assert_array_equal(q, x / 5.0)


def test_literals_that_are_divided_by() -> None:
    for c in (0.0, 2.0, -0.25, float("inf"), float("nan"), 1e300, 1e-300):  # an exact inverse, or none in two normal parts
        assert inverse(F64, c) is None
    assert inverse(F32, 1e30) is None and inverse(F32, 3.0) is not None
