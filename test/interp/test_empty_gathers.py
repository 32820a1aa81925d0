"""Gathers of no summands whose count is no affine expression: which instances they are is looked up point by point."""

from __future__ import annotations

import numpy as np
import pytest

import upl_mlir as upl

CORNER = """program corner
param n >= 1
param m >= 1
input A<i,j> in 0<=i<n, 0<=j<m { -> G.s<i+1,j+1> }
node G<i,j> in 0<=i<=n, 0<=j<=m { in @(+) s[min(i,1)*min(j,1)]; s -> R<i,j> }
output R<i,j> in 0<=i<=n, 0<=j<=m
"""


@pytest.mark.parametrize("engine", ["interp", "token", "native", "rtl"])
def test_a_count_that_is_a_product(engine: str) -> None:
    """The first row and the first column get no summands: 0, as the sum of none."""
    a = np.arange(1.0, 7.0).reshape(2, 3)
    found = upl.compile(upl.load(CORNER), engine=engine)(A=a)["R"]
    assert np.array_equal(found, np.pad(a, ((1, 0), (1, 0))))
