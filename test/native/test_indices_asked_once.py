"""An index from data is asked once: the test that guards its element says whether something went wrong, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from bench.sparse.programs import COO
from upl_mlir.passes.if_convert import IfConvertPass
from upl_mlir.passes.loops.emit.bits import guards_an_element
from upl_mlir.passes.lower_to_loops import lower_to_loops

SPMV = Path(__file__).resolve().parents[2] / "examples" / "spmv.upl"


def asked(p: upl.Program) -> tuple[int, int]:
    """How many tests guard an element, and how many of them hand on a bit."""
    converted = p.derived(("test",), lambda: [IfConvertPass(compared=True)]).infer_domains()
    module = lower_to_loops(converted.op).module
    found = [op for op in module.walk() if op.name == "scf.if" and guards_an_element(op)]  # pyright: ignore
    return len(found), sum(bool(op.results) and str(op.results[-1].type) == "i1" for op in found)


@pytest.mark.parametrize(("text", "tests"), [(SPMV, 1), (COO, 2)])
def test_the_test_hands_on_the_bit(text: Any, tests: int) -> None:
    assert asked(upl.load(text)) == (tests, tests)


@pytest.mark.parametrize(("gather", "real"), [("relaxed", "f64"), ("ordered", "f64"), ("relaxed", "f32")])
@pytest.mark.parametrize("w", [*range(1, 8), 13])
def test_rows_of_any_length(w: int, gather: Any, real: Any) -> None:
    """Four summands at a time, pairs, one that is left over, none at all; one that is not there among them."""
    rng, m, n = np.random.default_rng(w), 9, 6
    p = upl.load(SPMV)
    count = rng.integers(0, w + 1, m)
    v, x, col = rng.integers(-8, 8, (m, w)) / 8, rng.integers(-8, 8, n) / 8, rng.integers(0, n, (m, w))
    given = {"V": v, "Col": np.where(np.arange(w) < count[:, None], col, 99), "Count": count, "X": x, "w": w}
    f = upl.compile(p, engine="native", gather=gather, real=real)
    dense = [sum(v[i, k] * x[col[i, k]] for k in range(count[i])) for i in range(m)]
    assert f(**given)["Y"].tolist() == dense
    used = np.argwhere(np.arange(w) < count[:, None])
    i, k = used[rng.integers(len(used))]
    for wrong in (-1, n):
        given["Col"][i, k] = wrong
        with pytest.raises(upl.UplError, match=f"Mul<{wrong},{i},{k}>"):
            f(**given)


@pytest.mark.parametrize(("port", "wrong"), [("Row", -1), ("Row", 4), ("Col", -1), ("Col", 5)])
@pytest.mark.parametrize("at", [0, 6])
def test_one_test_inside_of_another(port: str, wrong: int, at: int) -> None:
    rng = np.random.default_rng(1)
    given: dict[str, Any] = {"Row": rng.integers(0, 4, 7), "Col": rng.integers(0, 5, 7), "V": rng.random(7),
                             "X": rng.random(5), "m": 4}  # fmt: skip
    f = upl.compile(upl.load(COO), engine="native")
    y = np.zeros(4)
    np.add.at(y, given["Row"], given["V"] * given["X"][given["Col"]])
    np.testing.assert_allclose(f(**given)["Y"], y, rtol=1e-14)
    given[port][at] = wrong
    with pytest.raises(upl.UplError) as expected:
        upl.compile(upl.load(COO))(**given)
    with pytest.raises(upl.UplError) as found:
        f(**given)
    assert [d.code for d in found.value.diagnostics] == [d.code for d in expected.value.diagnostics]
