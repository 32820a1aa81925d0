"""Bounds by elimination: which say all that the constraints do, and which only where a value surely does not lie."""

import pytest

from upl_mlir.poly.linear import Cons, Linear
from upl_mlir.poly.parse import parse_formula
from upl_mlir.poly.sets import PolyContext

LIN = Linear(PolyContext(("n",), parse_formula("n>=0"), {}, {}))


def constraints(text: str) -> Cons:
    (cons,) = LIN.cases(parse_formula(text))
    return cons


PLAIN = [
    ("0<=d && d<=i", lambda d, i: 0 <= d <= i),
    ("2*d==i", lambda d, i: 2 * d == i),
    ("i-3<=2*d && 3*d<=i+1", lambda d, i: i - 3 <= 2 * d and 3 * d <= i + 1),
]
HIDDEN = [
    "0<=d && d<=i && d mod 2==0", "0<=d && d floordiv 2<=i", "0<=d && d<=i && i mod (d+1)>=1", "0<=d && d<=4 && i*d<=3",
    "0<=d && d<=i && d+d floordiv 2<=4",
]  # fmt: skip


@pytest.mark.parametrize(("text", "inside"), PLAIN)
def test_bounds_that_say_all(text, inside):
    ends = LIN.exact_limits(constraints(text), "d", ("i",))
    assert ends is not None
    lows, highs = ends
    for i in range(-6, 9):
        first, last = (choose(e.evaluate({"i": i}, lambda *_: 0) for e in s) for choose, s in ((max, lows), (min, highs)))
        assert [*range(first, last + 1)] == [d for d in range(-20, 20) if inside(d, i)]


@pytest.mark.parametrize("text", HIDDEN)
def test_a_condition_that_bounds_do_not_say(text):
    """An iterator was left out of a fold with such a condition, as if it held for one value of all."""
    assert LIN.exact_limits(constraints(text), "d", ("i",)) is None
    lows, highs = LIN.limits(constraints(text), "d", ("i",))
    assert lows and highs


def test_a_bound_by_what_is_not_outside():
    assert LIN.exact_limits(constraints("0<=d && d<=j && d<=i"), "d", ("i",)) is None


def test_no_upper_bound():
    assert LIN.exact_limits(constraints("i<=d"), "d", ("i",)) is None
