"""How many values of some dimensions there are for a point of the others, against enumeration: triangles and their kin."""

from __future__ import annotations

from itertools import product

import pytest

from upl_mlir.poly.equality import same_value
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.fibres import fibre_counts
from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.parse import parse_formula, parse_index
from upl_mlir.poly.sets import PolyContext

CTX = PolyContext(("n",), parse_formula("n>=1"), {}, {"N": Table(0, (2, 1, 3, 0, 2))})

FIBRES = [
    "0<=x<=3 && 0<=t<n && 0<=i<=t && j==0",
    "0<=x<=n && 0<=t<n && 0<=i<=t+x && j==0",
    "0<=x<=3 && x<=t<=n+x && x<=i<=t && i<=j<=t",  # a tetrahedron
    "0<=x<=3 && 0<=t<n && 0<=i<=t floordiv 2 && j==0",
    "0<=x<=3 && 0<=t<n && 0<=i<=(t+x) floordiv 3 && j==0",
    "0<=x<=3 && 0<=t<n && 0<=i<=t && i mod 2==t mod 2 && j==0",  # every second one
    "0<=x<=3 && 0<=t<=n && 0<=i<=n && (t+2*i+x) mod 3==1 && t<=i && j==0",
    "0<=x<=3 && 0<=t && 0<=i && 2*t+3*i<=n+x && j==0",
    "0<=x<=3 && 0<=t<=4 && 1<=i<=N[t] && j==0",
    "0<=x<=3 && 0<=t<=x && 1<=i<=N[t] && 0<=j<n",
    "0<=x<=3 && 0<=t<=N[x] && 0<=i<=t && j==0",
    "0<=x<=3 && 0<=t<n+3 && max(0,t-n)<=i<=min(t,2) && j==0",
    "0<=x<=3 && 0<=t<n+3 && max(x,t-n)<=i<=min(t+1,n+x) && j==0",
    "0<=x<=3 && 0<=t<n && 0<=i<=t && t<=j<n",  # a product in the middle, a sum outside
]


@pytest.mark.parametrize("where", FIBRES)
def test_terms_add_up_to_the_number_of_points(where):
    f = parse_formula(where)
    terms = fibre_counts(CTX.set(("x", "t", "i", "j"), f), ("t", "i", "j"))
    assert terms is not None
    for n, x in product((1, 2, 3, 6), range(4)):

        def holds(t: int, i: int, j: int, n: int = n, x: int = x) -> bool:
            try:
                return f.evaluate({"n": n, "x": x, "t": t, "i": i, "j": j}, CTX.read)
            except IndexError:
                return False

        points = sum(holds(*p) for p in product(range(-1, 11), repeat=3))
        here = parse_formula(f"n=={n} && x=={x}")
        found = sum(m.evaluate({"n": n, "x": x}, CTX.read) for s, m in terms if not s.constrain(here).is_empty())
        assert found == points, (n, x)


def test_a_triangle_is_one_polynomial():
    ((_, n),) = fibre_counts(CTX.set(("x", "t", "i"), parse_formula("0<=x<=3 && 0<=t<n && 0<=i<=t")), ("t", "i")) or ()
    assert n == parse_index("(n*n+n) floordiv 2")


@pytest.mark.parametrize("most", [1, 2])
def test_what_is_counted_value_by_value_names_the_entries(most):
    """Two values as more of them."""
    terms = fibre_counts(CTX.set(("x", "t", "i"), parse_formula(f"0<=x<=3 && 0<=t<={most} && N[t]<=i<n+t")), ("t", "i"))
    assert [str(n) for _, n in terms or ()] == ["n-N[0]", "n-N[1]+1", "n-N[2]+2"][: most + 1]


def test_two_quotients_that_isl_cannot_compare():
    """Both are one factor: to ask whether factors are equal would be to ask the same again."""
    s = CTX.set(("x",), parse_formula("0<=x<=3"))
    triangle = parse_index("(n*n+n) floordiv 2")
    assert not same_value(s, triangle, parse_index("(n*n+3*n) floordiv 2"))
    assert same_value(s, triangle, triangle)
    assert not same_value(s, triangle, IndexExpr.of(1))
