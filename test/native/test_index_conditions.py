"""Conditions on indices cut domains and sums where they change: what is left has no test, and the numbers are the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_schedules import compare, plan

import upl_mlir as upl
from upl_mlir.passes.loops import equations
from upl_mlir.passes.loops.equations import Builder
from upl_mlir.passes.loops.show import schedule_lines

# Every way to compare, joined and negated; over fields, over what is summed, and over both.
PROGRAM = """program borders
param n >= 1
input A<i,j> in 0<=i<n, 0<=j<n { #n -> T.a<i,j,*> }
input C<j,k> in 0<=j<n, 0<=k<n { #n -> T.c<*,j,k> }
output B<i,k>
node T<i,j,k> { in a, c; x = CONDITION ? a*c*(k + 1) : SIDE; x #n -> S.s<i,k> }
node S<i,k> { in @(+) s[#]; y = i >= k ? 2*s : (i + 1 == k ? s : -s); y -> B }
"""
CONDITIONS = [
    "j < i", "j <= k", "i == j", "i != j", "j > i && j > k", "j == i || j == k", "!(j < i)", "real(j) >= i + 1", "2*j > i",
    "j + k < n", "a > 0", "j < i && a > 0",
]  # fmt: skip


def text(condition: str, side: str) -> str:
    return PROGRAM.replace("CONDITION", condition).replace("SIDE", side)


@pytest.mark.parametrize("side", ["0", "a - 1"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_values_and_gradients(condition: str, side: str) -> None:
    program = upl.load(text(condition, side))
    gradient = upl.vjp(program, of="B", wrt=["A", "C"])
    for p in (program, gradient):
        for gather in ("ordered", "relaxed"):
            for n in (1, 2, 5):
                compare(p, {"n": n}, gather)


CUTS = """program cuts
param n >= 4
input A<i,k> in 0<=i<n, 0<=k<n { -> S.s }
output B<i,k>
node S<i,k> {
  in s
  y = i < k ? (i + k < n ? 2*s : s + SIDE) : (2*i < k + n ? s*s : (i == n - 1 ? -s : 3*s))
  y -> B
}
"""


@pytest.mark.parametrize("most", [1, 2, 5])
def test_few_terms(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not cut any more is tested inside; every part is built once more at most."""
    built: list[str] = []
    term = Builder._term

    def noted(self: Builder, eq: Any, at: Any) -> Any:
        built.append(eq.name)
        return term(self, eq, at)

    def count(side: str) -> int:
        built.clear()
        compare(upl.load(CUTS.replace("SIDE", side)), {"n": 5}, "ordered")
        return len(built)

    monkeypatch.setattr(Builder, "_term", noted)
    usual = count(f"{most}.25")  # programs that no other test has compiled
    monkeypatch.setattr(equations, "MAX_TERMS", most)
    assert 0 < count(f"{most}.5") < usual


def lines(program: upl.Program, **options: Any) -> str:
    found = plan(program, **options)
    return "\n".join(schedule_lines(found.tree, found.arrays))


@pytest.mark.parametrize("condition", ["j < i", "i == j", "j > i && j > k", "!(j < i)", "real(j) >= i + 1"])
def test_no_test_is_left(condition: str) -> None:
    found = lines(upl.load(text(condition, "0")))
    assert "?" not in found and "i >= k" not in found


def test_half_of_a_triangle_is_summed() -> None:
    found = lines(upl.load(text("j < i", "0")))
    assert "63" not in found and " 0 for " not in found, "zeros are no summands"
    assert lines(upl.load(text("j < i", "0")), gather="ordered").count("?"), "the order of summands is kept"


def test_data_are_still_asked() -> None:
    found = lines(upl.load(text("j < i && a > 0", "a - 1")))
    assert "?" in found


def test_factorisations_ask_no_index() -> None:
    """A loop's index and numpy.arange are indices in the program, no arrays."""

    def f(a: Any) -> Any:
        return np.sum(np.linalg.cholesky(a)) + np.sum(np.linalg.solve(a, a[0]))

    a = np.random.default_rng(0).standard_normal((7, 7))
    a = a @ a.T + np.eye(7)
    found = upl.function(f)
    assert abs(found(a) - f(a)) < 1e-12 * abs(f(a))
    traced = found.program(a)
    assert len(traced.inputs) == 2, "the matrix, and where the permutation begins"
