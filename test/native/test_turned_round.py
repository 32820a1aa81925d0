"""Arrows whose source follows from their target in a roundabout way: native code reads the right element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

QUOTIENTS = """program quotients
input Y<p> in 0<=p<12 { -> C.x<(p floordiv 2) floordiv 3,(p floordiv 2) mod 3,(p mod 2) mod 2,(p mod 2) floordiv 2> }
output R<c,q,g,h>
node C<c,q,g,h> { in x; x*x -> R }
"""
MIXED = """program mixed
input X<t,d> in 0<=t<=2, 0<=d<=t { if !(0<=t-2 && d<=t-2): -> A.x<3*d+t>
  if 0<=t-2 && d<=t-2: 2.0*X -> A.x<3*d+t> }
output R<g>
node A<g> { in x; x+1.0 -> R }
"""
CASES = """program cases
param n >= 1
const N[-1:1] = [1, 3, 2]
input X<d,j,m> in 1<=d<=n, -1<=j<=1, 0<=m<=N[j]-1 { if m==N[j]-1: -> B.x<d,j> }
output R<d,j>
node B<d,j> { in x; 3.0*x -> R }
"""
ODD = """program odd
param n >= 1
input Z<h> in h mod 2==1, -n<=(h-1) floordiv 2<=n { -> C.x<(h-1) floordiv 2> }
output R<l>
node C<l> { in x; x*x -> R }
"""
LAST = """program last
param n >= 1
input X<i> in 0<=i<4*n, i mod 4>=3 { -> C.x<i floordiv 4> }
output R<l>
node C<l> { in x; x*x -> R }
"""
NEGATIVE = """program negative
input X<p> in -9<=p<9 { if p<0: X -> C.x<(p floordiv 3) floordiv 2,(p floordiv 3) mod 2,p mod 3>
  if p>=0: -X -> C.x<(p floordiv 3) floordiv 2,(p floordiv 3) mod 2,p mod 3> }
output R<a,b,c>
node C<a,b,c> { in x; x-1.0 -> R }
"""

# By entries of constant arrays: native code has an array of the places of these entries.
PERMUTED = """program permuted
const P[0:4] = [2, 0, 3, 1, 9]
input X<i,j> in 0<=i<4, 0<=j<3 { -> A.x<P[i],2-j> }
output R<k,j>
node A<k,j> { in x; x*x -> R }
"""
SHIFTED = """program shifted
const P[1:5] = [7, 7, 5, 6, 4]
input X<i> in 1<=i<=3 { -> A.x<6-P[6-i]> }
output R<k>
node A<k> in 0<=k<=2 { in x; x*x -> R }
"""
NONE = """program none
const P[0:5] = [-1, 2, -1, 0, -1, 1]
input X<i> in 0<=i<=5 { if P[i]>=0: -> A.x<P[i]>; if P[i]<0: -> B.x<i> }
output R<k>
output S<k> in 0<=k<=5, P[k]<0
node A<k> in 0<=k<=2 { in x; x*x -> R }
node B<k> in 0<=k<=5, P[k]<0 { in x; -x -> S }
"""
HANDED_ON = """program handed_on
const T[0:4] = [-1, -1, -1, 2, 3]
input X { -> A.x<4> }
output R<k>
node A<k> in 2<=k<=4 { in x; if T[k]>=0: x+1 -> A.x<T[k]>; x -> R }
"""
SUMS = """program sums
const P[0:4] = [1, 0, 1, 2, 0]
const Q[0:4] = [4, 2, 0, 1, 3]
input X<i> in 0<=i<5 { -> S.s<P[i]>; -> T.s<Q[i]> }
output R<k>
output U<k>
node S<k> in 0<=k<3 { in @(+) s[k<2 ? 2 : 1]; s -> R }
node T<k> in 0<=k<5 { in @(+) s[1]; s -> U }
"""
BY_ENTRIES = [PERMUTED, SHIFTED, NONE, HANDED_ON, SUMS]


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
@pytest.mark.parametrize("text", [QUOTIENTS, MIXED, CASES, ODD, LAST, NEGATIVE, *BY_ENTRIES], ids=lambda t: t.split()[1])
def test_the_source_is_found(text: str, gather: Any) -> None:
    p = upl.load(text)
    params = dict.fromkeys(p.params, 3)
    arrays = {n: np.random.default_rng(1).standard_normal(v.shape(**params)) for n, v in p.inputs.items()}
    expected = upl.compile(p, gather="ordered")(**arrays, **params)
    found = upl.compile(p, engine="native", gather=gather)(**arrays, **params)
    assert expected.keys() == found.keys()
    for name, values in expected.items():
        assert np.any(values)
        np.testing.assert_array_equal(found[name], values)


def test_what_does_not_follow_is_looked_at_in_the_run() -> None:
    """Which of the summands sends is decided by data."""
    text = """program data
input X<i> in 0<=i<4 { if X>0.5: -> A.x<i floordiv 4> }
output R<i>
node A<i> in 0<=i<1 { in x; x -> R }
"""
    with pytest.raises(upl.UplError, match="UPL1602"):
        upl.compile(upl.load(text), engine="native")(X=np.ones(4))
    assert upl.compile(upl.load(text), engine="native")(X=np.array([0.0, 2.0, 0.0, 0.5]))["R"] == 2
