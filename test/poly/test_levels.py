"""The greatest value over a set, as an expression, against enumeration at small sizes."""

from __future__ import annotations

import pytest

from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.levels import attains, bounds, greatest
from upl_mlir.poly.parse import parse_formula, parse_index
from upl_mlir.poly.sets import PolyContext

CTX = PolyContext(("n",), parse_formula("n>=1"), {"K": 3}, {"N": Table(0, (2, 3, 1, 4))})


@pytest.mark.parametrize(
    ("formulas", "shown"),
    [
        (["0<=k<=K && 0<=i<N[k] && l==2*k+i"], "9"),  # said without the entry that bounds i
        (["0<=k<=n && k<=i<=2*n && l==k+i"], "3*n"),
        (["0<=k<n && 0<=i<=k && l==i", "k==0 && i==0 && l==2"], "max(2,n-1)"),
        (["0<=k<=n && 0<=i<=n && l==k+i", "n>=3 && k==0 && i==0 && l==n"], "2*n"),
        (["0<=k<n && k<=K && 0<=i<N[k] && l==2*k+i"], None),  # 9 from n = 4 on, less before
        (["0<=k<n && k<=K && 0<=i<N[k] && l==2*k+i", "k==0 && i==0 && l==n+9"], "n+9"),
        (["0<=k<n && 0<=i<=k && l==i+k", "n>=3 && k==0 && i==0 && l==9"], None),
        (["0<=k<n && i==0 && l>=k"], None),
    ],
)
def test_the_greatest_value(formulas: list[str], shown: str | None) -> None:
    """None where it has no end, or is one expression for some sizes only."""
    parsed = [parse_formula(f) for f in formulas]
    found = greatest(CTX.set(("k", "i", "l"), f) for f in parsed)
    assert (found if found is None else str(found)) == shown
    for n in range(1, 6) if found is not None else ():
        env = {"n": n, "K": 3}
        points = ((k, i, v) for k in range(n + 4) for i in range(2 * n + 5) for v in range(4 * n + 12))
        values = [v for k, i, v in points for f in parsed if f.evaluate({**env, "k": k, "i": i, "l": v}, CTX.read)]
        assert found is not None and found.evaluate(env, CTX.read) == max(values)


@pytest.mark.parametrize(
    ("formula", "hull"),
    [
        ("4*(a floordiv 2)-2*n+2<=a<=4*(a floordiv 2)+1", ("-1", "2*n")),  # pairs change places: 0 to 2*n-1
        ("0<=a<3*n && a mod 3==2", ("0", "3*n-1")),
        ("2<=2*a && 3*a<=6*n", ("1", "2*n")),
        ("0<=a<=n && a mod 2==1", ("1", "n")),  # the greatest is n or n-1
    ],
)
def test_exact_bounds(formula: str, hull: tuple[str, str]) -> None:
    """A hull is known as one, and the bounds that take its place are least and greatest values."""
    s = CTX.set(("a",), parse_formula(formula))
    rough: tuple[IndexExpr, IndexExpr] = (parse_index(hull[0]), parse_index(hull[1]))
    found = rough if attains(s, "a", *rough) else bounds(s, "a")
    for n in range(1, 6):
        values = [a for a in range(-3, 20) if parse_formula(formula).evaluate({"n": n, "a": a}, CTX.read)]
        ends = (min(values), max(values))
        assert found is not None and tuple(e.evaluate({"n": n}, CTX.read) for e in found) == ends
