"""Nodes with many inputs as several nodes with few: the same results, proved as before, whatever the limit."""

from __future__ import annotations

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.dialects.upl.query import nodes
from upl_mlir.passes.hardware.limit_inputs import limit_inputs, tokens_for

WIDE = """program wide
param n >= 2
input A<i> in 0<=i<n { -> M.a }
input B<i> in 0<=i<n { -> M.b }
input C { #n -> M.c<*> }
input D<i> in 0<=i<n { -> M.d<i> }
input E<i,j> in 0<=i<n, 0<=j<=i { -> M.e<i> }
output R<i>
output Q<i>
output S
node M<i> in 0<=i<n {
  in a, b, c, d, @(+) e[i+1]
  s = a*b
  t = s - c*d
  u = t > 0 ? t + e : t*i
  u -> R<i>
  if i>0: u*b -> Q<i>
  if i==0: c/4 -> S
}
"""
COUNTED = """program counted
input N: int { -> M.k }
input X<j> in 0<=j<3 { -> M.x<> }
input Y { -> M.y }
input Z { -> M.z }
input M_part { -> M.w }
output R
output Q
node M { in @(+) x[k], k: int, y, z, w; v = x*y; v + z -> R; v*w + k -> Q }
"""


CHAIN = """program chain
param n >= 2
input A<i> in 0<=i<n { -> M.a; -> M.b<i>; 2*A -> M.c<i>; A*A -> M.d<i> }
output R<i>
output Q<i>
output S
node M<i> in 0<=i<n { in a, b, c, d; s = a*b; t = s - c; t + d -> R<i>; if i>0: t*s -> Q<i>; if i==0: d -> S }
"""


@pytest.mark.parametrize(("text", "limit"), [(WIDE, 3), (WIDE, 4), (COUNTED, 3), (CHAIN, 2), (CHAIN, 3)])
def test_the_parts_compute_what_the_node_did(text: str, limit: int) -> None:
    program, divided = upl.load(text).infer_domains(), upl.load(text).infer_domains()
    limit_inputs(divided.op, limit)
    parts = list(nodes(divided.op))
    assert len(parts) > 1 and all(len(list(tokens_for(op))) <= limit for op in parts)
    again = upl.load(str(divided))
    assert [o.message for o in again.check().obligations if o.status.name == "REFUTED"] == []
    sizes = {} if text == COUNTED else {"n": 3}
    random = np.random.default_rng(1)
    given = {p: random.integers(-8, 9, port.shape(**sizes)) / 4 for p, port in program.inputs.items()}
    if text == COUNTED:
        given["N"] = 3
    wanted = upl.compile(program)(**given, **sizes)
    found = upl.compile(again, order="random", seed=2)(**given, **sizes)
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("text", [WIDE, COUNTED])
def test_what_reads_more_at_once_stays(text: str) -> None:
    """A choice reads its condition and both arms; a sum comes with the input that says of how many summands it is."""
    p = upl.load(text).infer_domains()
    before = str(p)
    limit_inputs(p.op, 2)
    assert str(p) == before
