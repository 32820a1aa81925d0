"""Counts of programs whose array of sizes is open: sums over its entries, which are what runs count at any values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

LAYERS = """program layers
param K >= 2
param N[0:K-1] >= 1
param D >= 1
input X<d,i> in 1<=d<=D, 1<=i<=N[0] { -> Res.r<d,1,i> }
input W<k,i,j> in 1<=k<K, 1<=i<=N[k-1], 1<=j<=N[k] { #D -> Link.w<*,k,i,j> }
output R<d,i>
node Res<d,k,i> in 1<=d<=D, 1<=k<=K, 1<=i<=N[k-1] { in r; if k<K: #N[k] -> Link.r<d,k,i,*>; if k==K: -> R<d,i> }
node Link<d,k,i,j> { in r, w; r*w #N[k-1] -> Sum.s<d,k,j> }
node Sum<d,k,i> { in @(+) s[#]; -> Res.r<d,k+1,i> }
"""
PAIRS = """program pairs
param K >= 1
param N[1:K] >= 1
input A<k,i> in 1<=k<=K, 1<=i<=N[k] { -> M.a<k,m,i,j> for m in 1..k, j in 1..3 }
output R<k,m,i,j>
node M<k,m,i,j> in 1<=k<=K, 1<=m<=k, 1<=i<=N[k], 1<=j<=3 { in a; -> R }
"""
"""The fibre over `k` is no product of entries alone: `m` goes up to `k`."""


def run_counts(text: str, constants: dict[str, Any], **inputs: np.ndarray) -> dict[str, Any]:
    f = upl.compile(upl.load(text, **constants))
    f(**inputs)
    return f.stats


@pytest.mark.parametrize("sizes", [[3, 2], [4, 1, 5], [2, 3, 4, 1]])
@pytest.mark.parametrize("d", [1, 2])
def test_they_are_what_a_run_counts(sizes: list[int], d: int) -> None:
    report = upl.load(LAYERS).check()
    constants = {"K": len(sizes), "N": sizes, "D": d}
    weights = np.ones((len(sizes) - 1, max(sizes[:-1]), max(sizes[1:])))
    stats = run_counts(LAYERS, constants, X=np.ones((d, sizes[0])), W=weights)
    at = {"K": len(sizes), "D": d, "N": sizes}
    assert report.firings.at(**at) == stats["firings"]
    assert report.tokens.at(**at) == stats["tokens"]
    assert sum(v or 0 for v in report.tokens.at(**at).values()) == stats["tokens_sent"]


def test_they_are_printed() -> None:
    report = upl.load(LAYERS).check()
    assert str(report.firings["Link"]) == "D*sum(N[k-1]*N[k] for k in 1..K-1)"
    assert str(report.firings["Res"]) == "D*sum(N[k-1] for k in 1..K)"
    assert str(report.firings.total).startswith("D*sum(")


def test_a_known_number_of_layers_is_written_out() -> None:
    report = upl.load(LAYERS, K=3).check()
    assert str(report.firings["Link"]) == "D*N[0]*N[1]+D*N[1]*N[2]"
    many = upl.load(LAYERS, K=9).check()
    assert str(many.firings["Link"]) == "D*sum(N[k-1]*N[k] for k in 1..8)"
    assert many.firings.at(D=1, N=[1] * 9)["Link"] == 8


def test_fields_and_entries_together() -> None:
    report = upl.load(PAIRS).check()
    assert report.firings.at(K=3, N={1: 2, 2: 1, 3: 4})["M"] == 3 * (1 * 2 + 2 * 1 + 3 * 4)
    stats = run_counts(PAIRS, {"K": 3, "N": [2, 1, 4]}, A=np.ones((3, 4)))
    assert stats["firings"]["M"] == 48


def test_a_missing_entry_is_an_error() -> None:
    with pytest.raises(upl.UplError, match=r"UPL1513.*N\[2\]"):
        upl.load(LAYERS).check().firings.at(K=3, D=1, N=[1, 2])


def test_entries_that_may_be_0_are_not_counted_as_if_they_were_not() -> None:
    """Where an entry may leave no points, the interval of the others depends on it: no sum is claimed, or a right one."""
    report = upl.load(LAYERS.replace("N[0:K-1] >= 1", "N[0:K-1] >= 0")).check()
    found = report.firings["Res"]
    assert found is None or report.firings.at(K=3, D=2, N=[2, 0, 3])["Res"] == 2 * (2 + 0 + 3)
