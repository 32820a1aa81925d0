"""Sums along columns taken while the numbers are made: one pass over the pairs, nothing kept of them, the same results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.schedule import schedule

MDS = Path(__file__).resolve().parents[2] / "examples" / "mds.upl"

# A column sum and a row sum of one matrix that is computed, some of whose columns and rows are empty, and the matrix's
# use in an output: it stays, and both sums are taken in one pass.
SUMS = """program sums
param n >= 1
param m >= 1
input A<i> in 0<=i<n { #m -> P.a<i,*> }
input B<j> in 0<=j<m { #n -> P.b<*,j> }
output C<i,j> in 0<=i<n, 0<=j<m
output Col<j> in 0<=j<m
output Row<i> in 0<=i<n
node P<i,j> in 0<=i<n, 0<=j<m {
  in a, b
  v = exp(a - b) / (1 + a*a)
  v -> C
  if i<j: v -> U.v<j>
  if i>j: v*v -> V.v<i>
}
node U<j> in 0<=j<m { in @(+) v[min(j, n)]; v -> Col }
node V<i> in 0<=i<n { in @(+) v[min(i, m)]; v -> Row }
"""


def running(plan: LoopProgram) -> list[str]:
    return [name for name in plan.arrays if ".run" in name]


@pytest.mark.parametrize("real", ["f64", "f32"])
@pytest.mark.parametrize("n", [2, 3, 9, 17, 70])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_scaling_in_one_pass(n: int, k: int, real: Any) -> None:
    rng = np.random.default_rng(n)
    given: dict[str, Any] = {"X": rng.standard_normal((n, k)), "D": rng.uniform(0.5, 2, (n - 1, n - 1))}
    gradient = upl.grad(upl.load(MDS), of="Stress", wrt="X")
    wanted = upl.compile(gradient)(**given)
    tolerance = 1e-12 if real == "f64" else 2e-4
    bindings: list[dict[str, Any]] = [{"K": k}, {}]  # a number in the code, and a symbol
    for bound in bindings:
        found = upl.compile(gradient, engine="native", real=real, **bound)(**given)
        for name, w in wanted.items():
            np.testing.assert_allclose(found[name], w, rtol=tolerance, atol=tolerance * np.abs(w).max(), err_msg=name)


def test_nothing_is_kept_of_the_pairs() -> None:
    gradient = upl.grad(upl.load(MDS), of="Stress", wrt="X").infer_domains()
    for fixed in ({"K": 2}, {"K": 3}):
        found = schedule(gradient.op, fixed=fixed)
        assert running(found)
        assert [name for name in found.arrays if name.endswith(".turned")] == ["X.turned"]  # D's rows are long
        for name, array in found.arrays.items():
            open_ = [a for a in array.axes if a.extent.constant is None]
            assert len(open_) <= 1, f"{name} keeps a matrix"
    kept: list[dict[str, Any]] = [{"gather": "ordered"}, {"threads": 2}]  # the order of sums, and loops for threads
    for options in kept:
        assert not running(schedule(gradient.op, fixed={"K": 2}, **options))


def test_another_value_than_the_one_compiled_for() -> None:
    gradient = upl.grad(upl.load(MDS), of="Stress", wrt="X")
    f = upl.compile(gradient, engine="native", K=2)
    rng = np.random.default_rng(0)
    for k in (2, 3, 2):
        given: dict[str, Any] = {"X": rng.standard_normal((9, k)), "D": rng.uniform(0.5, 2, (8, 8))}
        wanted = upl.compile(gradient)(**given)
        found = f(**given, K=k)
        for name, w in wanted.items():
            np.testing.assert_allclose(found[name], w, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("n, m", [(1, 1), (1, 7), (7, 1), (5, 9), (9, 5), (130, 33)])
def test_sums_with_empty_rows_and_columns(n: int, m: int) -> None:
    program = upl.load(SUMS)
    rng = np.random.default_rng(1)
    given = {"A": rng.standard_normal(n), "B": rng.standard_normal(m)}
    wanted = upl.compile(program)(**given)
    found = upl.compile(program, engine="native")(**given)
    for name, w in wanted.items():
        np.testing.assert_allclose(found[name], w, rtol=1e-13, atol=1e-15, err_msg=name)
