"""Integer inputs that come as arrays of int32 are read in place; values have 64 bits, results and errors stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.lower_to_loops import lower_to_loops

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TWICE = """program twice
param n >= 1
input  X<i>: int in 0<=i<n { -> F.x }
output Y<i>: int
node F<i> { in x: int; x+x -> Y }
"""


def narrow(arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays, integers in 32 bits."""
    return {n: a.astype(np.int32) if a.dtype == np.int64 else a for n, a in arrays.items()}


def sparse(rows: int = 40, width: int = 6, columns: int = 30) -> dict[str, Any]:
    """Inputs of `spmv`."""
    rng = np.random.default_rng(3)
    return {
        "V": rng.normal(size=(rows, width)), "Col": rng.integers(0, columns, (rows, width)),
        "Count": rng.integers(0, width + 1, rows), "X": rng.normal(size=columns),
    }  # fmt: skip


def test_values_have_64_bits() -> None:
    f = upl.compile(upl.load(TWICE), engine="native")
    x = np.array([2**31 - 1, -(2**31), 7], np.int32)
    for _ in range(2):  # the second call is served like the first
        found = f(X=x)["Y"]
        assert found.dtype == np.int64 and found.tolist() == [2**32 - 2, -(2**32), 14]
    assert f(X=x.astype(np.int64) * 4)["Y"].tolist() == [2**34 - 8, -(2**34), 56]  # and wide ones are as before


def test_the_function_takes_them_as_they_are() -> None:
    op = upl.load(TWICE).infer_domains().read()
    text = str(lower_to_loops(op, narrow={"X"}).module)
    assert "%X: memref<?xi32>" in text and "arith.extsi" in text


@pytest.mark.parametrize("which", [("Col",), ("Count",), ("Col", "Count")], ids=" ".join)
def test_a_sparse_product_with_some_of_them(which: tuple[str, ...]) -> None:
    f = upl.compile(upl.load(EXAMPLES / "spmv.upl"), engine="native")
    arrays = sparse()
    mixed = arrays | {n: arrays[n].astype(np.int32) for n in which}
    assert f(**mixed)["Y"].tobytes() == f(**arrays)["Y"].tobytes()
    assert f.stats["firings"]["Mul"] is None  # loops ran, no tokens


@pytest.mark.parametrize("gather", ["relaxed", "ordered"])
def test_gradients(gather: Any) -> None:
    g = upl.vjp(upl.load(EXAMPLES / "spmv.upl"), of="Y", wrt=["V", "X"])
    f = upl.compile(g, engine="native", gather=gather)
    arrays = sparse() | {"d_Y": np.random.default_rng(4).normal(size=40)}
    expected = upl.compile(g, engine="native", gather=gather)(**arrays)
    found = f(**narrow(arrays))
    assert all(found[n].tobytes() == a.tobytes() for n, a in expected.items())


def test_an_index_that_no_instance_has_is_the_same_error() -> None:
    f = upl.compile(upl.load(EXAMPLES / "spmv.upl"), engine="native")
    arrays = sparse()
    arrays["Col"][3, :] = -2
    said: list[str] = []
    for given in (arrays, narrow(arrays)):
        with pytest.raises(upl.UplError) as e:
            f(**given)
        said.append(str(e.value))
    assert said[0] == said[1] and "Mul<-2,3,0>: `x` never came" in said[0]


def test_parameters_that_are_numbers_in_the_code() -> None:
    f = upl.compile(upl.load(TWICE), engine="native", n=2)
    assert f(X=np.array([5, 6], np.int32))["Y"].tolist() == [10, 12]
    assert f(X=np.array([5, 6, 7], np.int32), n=3)["Y"].tolist() == [10, 12, 14]
    assert f(X=np.arange(6, dtype=np.int32)[::3])["Y"].tolist() == [0, 6]  # converted to contiguous
