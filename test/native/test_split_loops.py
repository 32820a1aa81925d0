"""Loops that are divided where data say that a condition changes: any place of data, wrong data, and what is left to ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.if_convert import IfConvertPass
from upl_mlir.passes.loops.emit.function import FunctionWriter
from upl_mlir.passes.schedule import schedule

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
KNAPSACK = EXAMPLES / "sparse" / "knapsack.upl"
MAX, MIN = 2**63 - 1, -(2**63)

# Three conditions on one value, one of them the other way round, and one on another value.
BAND = """program band
param n >= 1
param m >= 1
input W<i>: int in 0<=i<m { #n -> B.w<i,*> }
input V<i>: int in 0<=i<m { #n -> B.v<i,*> }
input X<j> in 0<=j<n { #m -> B.x<*,j> }
output Y<i,j>
node B<i,j> in 0<=i<m, 0<=j<n {
  in x, w: int, v: int
  if j >= w && j < w+3: 2*x -> S.s<i,j>
  if w + j < 9: 3*x -> S.s<i,j>
  if j > v: -x -> S.s<i,j>
}
node S<i,j> in 0<=i<m, 0<=j<n { in @(+) s[##]; s -> Y }
"""


def lowered(program: upl.Program) -> str:
    converted = program.derived(("test",), lambda: [IfConvertPass(compared=True)]).infer_domains()
    return str(FunctionWriter(schedule(converted.op)).write())


def both(file: Any, gather: Any, **given: Any) -> tuple[Any, Any]:
    """The results of the interpreter and of native code, or their errors without what stands before the code."""
    out: list[Any] = []
    for engine in ("interp", "native"):
        try:
            out.append(upl.compile(upl.load(file), engine=engine, gather=gather)(**given))  # pyright: ignore[reportArgumentType]
        except upl.UplError as e:
            out.append([(d.code, d.message) for d in e.diagnostics])
    return out[0], out[1]


@pytest.mark.parametrize("gather", ["relaxed", "ordered"])
@pytest.mark.parametrize("weights", [[0, 1, 9], [10, 11, 3], [10, 10, 10], [2**40, 2**62, 1], [5, 5, 5], [1, 1, 1]])
def test_items_of_any_weight(weights: list[int], gather: Any) -> None:
    rng = np.random.default_rng(1)
    value = rng.random(3)
    one, two = both(KNAPSACK, gather, Weight=np.array(weights), Value=value, Zero=np.zeros(11))
    assert one["Y"].tobytes() == two["Y"].tobytes()
    chosen = [s for s in range(8) if sum(w for k, w in enumerate(weights) if s >> k & 1) <= 10]
    assert np.isclose(two["Y"], max(sum(v for k, v in enumerate(value) if s >> k & 1) for s in chosen))


@pytest.mark.parametrize("weight", [-1, -10, -11, -(2**40), MAX, MAX - 5])
def test_weights_that_are_wrong_are_to_both_engines(weight: int) -> None:
    one, two = both(KNAPSACK, "ordered", Weight=np.array([3, weight]), Value=np.ones(2), Zero=np.zeros(11))
    assert isinstance(one, list) is (weight >= MAX - 9), "a sum of weights overflows"
    assert one == two


@pytest.mark.parametrize("counts", [[0, 3, 1], [3, 3, 3], [0, 0, 0], [2, 4, 1], [1, -1, 2], [MAX, 1, 1], [MIN, 1, 1]])
def test_rows_of_any_length(counts: list[int]) -> None:
    col = np.array([[0, 1, 2], [2, 2, 2], [1, -7, 2**40]])  # of the last row no more than one place may be in use
    given = {"V": np.arange(1.0, 10).reshape(3, 3), "Col": col, "Count": np.array(counts), "X": np.array([2.0, 3.0, 5.0])}
    one, two = both(EXAMPLES / "spmv.upl", "ordered", **given)
    if isinstance(one, list):
        assert one == two
        return
    assert one["Y"].tobytes() == two["Y"].tobytes()
    v, x = given["V"], given["X"]
    assert two["Y"].tolist() == [sum(v[i, p] * x[col[i, p]] for p in range(n)) for i, n in enumerate(counts)]


@pytest.mark.parametrize("gather", ["relaxed", "ordered"])
def test_conditions_on_two_values(gather: Any) -> None:
    rng = np.random.default_rng(2)
    x = rng.random(20)
    w, v = np.array([0, 5, -2, 18, 19, 20, 40, -40, 2**50]), np.array([3, 5, 19, 0, -1, 25, 6, 10, -(2**50)])
    one, two = both(BAND, gather, W=w, V=v, X=x)
    j = np.arange(20)
    expected = [
        2 * x * ((j >= a) & (j < a + 3)) + 3 * x * (a + j < 9) - x * (j > b) for a, b in zip(w, v, strict=True)
    ]
    np.testing.assert_allclose(two["Y"], one["Y"], rtol=1e-13)
    np.testing.assert_allclose(two["Y"], expected, rtol=1e-13, atol=1e-15)


def test_gradients_of_items() -> None:
    rng = np.random.default_rng(3)
    given = {"Weight": rng.integers(0, 30, 12), "Value": rng.random(12), "Zero": np.zeros(41)}
    g = upl.grad(upl.load(KNAPSACK), of="Y", wrt="Value")
    found = [upl.compile(g, engine=e, gather="ordered")(**given)["d_Value"] for e in ("interp", "native")]  # pyright: ignore
    assert found[0].tobytes() == found[1].tobytes()
    assert set(found[1]) == {0.0, 1.0}  # an item is taken or not
    assert sum(given["Weight"] * found[1].astype(int)) <= 40


def test_no_iteration_asks() -> None:
    text = lowered(upl.load(KNAPSACK))
    loop = text[text.index("scf.for") :]
    inner = [part.split("scf.reduce")[0] for part in loop.split('"scf.parallel"')[1:]]
    assert len(inner) == 3  # below the weight, from it on, beyond
    assert not any(op in part for part in inner for op in ("scf.if", "arith.cmpi", "arith.select"))
    assert [part.count("memref.load %Best") for part in inner] == [1, 2, 1]


def test_no_array_counts_what_came_where_none_is_the_gathers_beginning() -> None:
    assert "came" not in lowered(upl.load(KNAPSACK))
