"""What data choose as loops: rows of a table, their derivatives, and gathers whose tokens carry the number of summands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.if_convert import IfConvertPass
from upl_mlir.passes.schedule import schedule

EMBEDDING = Path(__file__).resolve().parents[2] / "examples" / "sparse" / "embedding.upl"


def gradient() -> upl.Program:
    return upl.vjp(upl.load(EMBEDDING), of="Y", wrt=["Table", "W"])


@pytest.mark.parametrize("gather", ["relaxed", "ordered"])
def test_rows_that_are_chosen_often_once_and_never(gather: Any) -> None:
    rng = np.random.default_rng(5)
    given: dict[str, Any] = {
        "Table": rng.normal(size=(9, 4)), "Id": np.array([3, 3, 8, 0, 3]), "W": rng.normal(size=(4, 3)),
        "d_Y": rng.normal(size=(5, 3)),
    }  # fmt: skip
    f = upl.compile(gradient(), engine="native", gather=gather)
    found = f(**given)
    rows = given["d_Y"] @ given["W"].T
    table = np.zeros((9, 4))
    np.add.at(table, given["Id"], rows)
    np.testing.assert_allclose(found["d_Table"], table, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(found["d_W"], given["Table"][given["Id"]].T @ given["d_Y"], rtol=1e-13, atol=1e-15)
    assert f.stats["firings"]["Pick"] is None  # loops ran, no tokens


def test_no_array_has_a_place_for_each_row_of_the_table_and_each_choice() -> None:
    program = gradient().derived(("test",), lambda: [IfConvertPass(compared=True)]).infer_domains()
    plan = schedule(program.op)
    for name, array in plan.kept.items():
        assert len([a for a in array.axes if str(a.extent) in ("n", "b")]) < 2, name


# The first sum has one summand, the others two, of which data decide the signs.
CARRIED = """program carried
param n >= 2
input X<i> in 0<=i<n { -> A.x }
input K<i>: int in 0<=i<n { -> A.k }
output Y<i>
node A<i> {
  in x, k: int
  if k>0 && i==0:  x #1 -> G.s<0>
  if k<=0 && i==0: -x #1 -> G.s<0>
  if k>0 && i>0:   x #2 -> G.s<i>
  if k<=0 && i>0:  -x #2 -> G.s<i>
  if i>0: 3*x #2 -> G.s<i>
}
node G<i> in 0<=i<n { in @(+) s[#]; s -> Y }
"""


def test_numbers_of_summands_that_differ_between_instances() -> None:
    f = upl.compile(upl.load(CARRIED), engine="native")
    found = f(X=np.array([1.0, 2.0, 3.0]), K=np.array([0, 1, -1]))
    assert found["Y"].tolist() == [-1, 8, 6]
    assert f.stats["firings"]["A"] is None  # loops ran, no tokens
