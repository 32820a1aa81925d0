"""The gradient of chosen rows of a table: the rows' derivatives are computed once each, and added where data say."""

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
