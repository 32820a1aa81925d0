"""Where a derivative starts: a variable at a host output, at a node input, or in another node."""

from __future__ import annotations

import numpy as np
import pytest

import upl_mlir as upl

SQUARE = """
program square
param n >= 1
input X<i> in 0<=i<n { -> F.x }
input Y<i> in 0<=i<n { -> G.y }
output R<i>
node F<i> { in x; x*x*x -> R<i>; x*x*x -> G.r<i> }
node G<i> { in r, y; e = r - y }
"""


def test_the_seed_of_a_host_output_comes_from_another_node() -> None:
    """`adjoint of R seed G.e`: the derivative is e * dR/dX, not dR/dX."""
    p = upl.load(SQUARE + "output D<i>\nnode K<i> { in x, dx; dx -> D }\nnode F { x -> K.x<i> }\n"
                 "adjoint of R seed G.e wrt F.x -> K.dx\n")  # fmt: skip
    assert p.check().ok
    x, y = np.array([1.0, 2.0, -3.0]), np.array([0.5, 1.0, 2.0])
    out = upl.compile(p)(X=x, Y=y)
    np.testing.assert_allclose(out["D"], (x**3 - y) * 3 * x**2, rtol=1e-14)


def test_a_seed_at_another_index_is_refused() -> None:
    """The seed stands at the same index as `of`."""
    with pytest.raises(upl.UplError, match="UPL1110"):
        upl.load(SQUARE + "output D<i>\nnode K<i> { in x, dx; dx -> D }\nnode F { x -> K.x<i>; x #n -> S.s<> }\n"
                 "node S { in @(+) s[#]; t = s*2; t -> T<> }\noutput T\n"
                 "adjoint of R seed S.t wrt F.x -> K.dx\n")  # fmt: skip
