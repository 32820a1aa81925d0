"""Sums whose summands data choose: rows without a summand are +0, in both orders of sums, and places that do not exist are
told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

COORDINATES = """program coordinates
output Y<i> in 0<=i<m
node Elem<e> { in v, row: int, col: int; v -> Mul.v<col,e>; row -> Mul.row<col,e> }
node Mul<j,e> { in x, v, row: int; x*v -> Sum.s<row> }
node Sum<i> in 0<=i<m { in @(+) s[##]; s -> Y }
input X<j> in 0<=j<n { ## -> Mul.x<j,*> }
input Col<e>: int in 0<=e<z { -> Elem.col }
input Row<e>: int in 0<=e<z { -> Elem.row }
input V<e> in 0<=e<z { -> Elem.v }
param z >= 1
param n >= 1
param m >= 1
"""


def given() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    data = {"X": rng.random(5), "V": rng.random(9), "Row": rng.integers(0, 4, 9), "Col": rng.integers(0, 5, 9)}
    data["Row"][:2], data["V"][:2] = 4, -0.0  # row 4 has summands -0, row 5 none
    return data


@pytest.mark.parametrize("gather", ["relaxed", "ordered"])
def test_empty_rows(gather: str) -> None:
    data = given()
    want = upl.compile(upl.load(COORDINATES), engine="interp", gather="ordered", m=6)(**data)["Y"]
    got = upl.compile(upl.load(COORDINATES), engine="native", gather=gather, m=6)(**data)["Y"]
    np.testing.assert_allclose(got, want, rtol=1e-15)
    assert not np.signbit(got[5])
    if gather == "ordered":
        assert got.tobytes() == want.tobytes()
        assert np.signbit(got[4])


@pytest.mark.parametrize(("port", "value"), [("Row", 6), ("Row", -1), ("Col", 5), ("Col", -1)])
@pytest.mark.parametrize("at", [0, 8])
def test_a_place_that_does_not_exist(port: str, value: int, at: int) -> None:
    """The fault is gathered in the loop that adds; the error is the interpreter's."""
    data = given()
    data[port][at] = value
    said: list[str] = []
    for engine in ("interp", "native"):
        with pytest.raises(upl.UplError) as e:
            upl.compile(upl.load(COORDINATES), engine=engine, m=6)(**data)
        said.append(str(e.value))
    assert said[0] == said[1]


# Whether a sum is asked for depends on numbers of its rows; data decide where it goes.
ASKED = """program asked
param n >= 1
param m >= 1
input V<i,k,l> in 0<=i<n, 0<=k<m, 0<=l<m { -> S.s<i> }
input C<i,k>: int in 0<=i<n, 0<=k<m { C > 0 ? 1 : 0 -> S.c<i> }
input R<i>: int in 0<=i<n { -> W.r }
output Y<i>
node S<i> in 0<=i<n { in @(+) s[m*m], @(+) c[m]: int; c == 0 ? 0.0 : s -> W.y<i> }
node W<i> in 0<=i<n { in y, r: int; y -> Z.y<r> }
node Z<i> in 0<=i<n { in @(+) y[##]; y -> Y }
"""


@pytest.mark.parametrize("gather", ["relaxed", "ordered"])
def test_a_count_of_something_else_is_asked(gather: str) -> None:
    """It has other iterators than the sum."""
    v, c, r = np.arange(18.0).reshape(2, 3, 3) + 1, np.array([[0, 0, 0], [0, 1, 1]]), np.array([1, 0])
    assert upl.compile(upl.load(ASKED), engine="native", gather=gather)(V=v, C=c, R=r)["Y"].tolist() == [126, 0]
