"""Which nodes fire whatever data decide."""

from __future__ import annotations

import upl_mlir as upl
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.predicate.certain import surely_fires

# F has its tokens from itself, G from F where data say so, H from G always.
PROGRAM = """program ring
param n >= 1
const T = 4
input A<i> in 0<=i<n { -> F.x<0,i> }
output R<i> in 0<=i<n
node F<t,i> in 0<=t<=T, 0<=i<n {
  in x
  y = 2*x
  if t<T: y -> F.x<t+1,i>
  if t==T && x > 0: y -> G.x<i>
  if t==T && x <= 0: y -> R<i>
}
node G<i> in 0<=i<n { in x; -> H.x<i> }
node H<i> in 0<=i<n { in x; -> R<i> }
"""


def test_a_recurrence_fires_throughout() -> None:
    sure = surely_fires(ProgramSets(upl.load(PROGRAM).infer_domains().op))
    assert "F" in sure, "each instance has its token from the one before"
    assert not {"G", "H"} & sure, "data decide whether these do"
