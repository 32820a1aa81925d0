"""The points of domains: the search by ranges finds those that enumeration of a cube finds, and says where it cannot."""

from __future__ import annotations

import itertools

import pytest

from upl_mlir.engines.reference.points import NoValue, Unbounded, holds, points, value
from upl_mlir.poly.parse import parse_formula, parse_index

ENV = {"n": 4, "K": 3}
TABLES = {"N": {0: 2, 1: 0, 2: 3}}
SIDE = range(-7, 12)


@pytest.mark.parametrize(
    "text",
    [
        "0<=i<n && 0<=j<=i",
        "1<=j<=K && 1<=i<=N[j-1]",
        "0<=i+j<=3 && 0<=i-j<=3",  # no comparison bounds a field by itself
        "(0<=i<=2 && j==i) || (5<=i<=6 && i*j<=12 && j>=1)",
        "0<=i+j<=3 && 0<=i-j<=3 || !(i+j<4 || i+j>5 || i-j<0 || i-j>1)",
        "!(i<0 || i>n || j<1 || j>2)",
        "0<=i<=9 && i mod 3==1 && j==i floordiv 2",
        "0<=2*i+j<=5 && 0<=j<2",
        "j>=0 && n>2*((j+1) floordiv 2)+2*(j floordiv 2)-j && i==0",
        "i ceildiv 2==2 && min(i,j)>=1 && max(i,j)<=4",
        "0<=i<3 && j==(i>0 ? N[i-1] : n)",
        "0<=i<5 && 0<=j<5 && i!=j && i*j<=4",
        "n<0 && i==j",
        "0<=i<=4 && N[i]>=2 && j==0",  # no entry: not in the domain
        "0<=i<=4 && !(N[i]>=2) && j==0",  # nor here
    ],
)
def test_as_by_enumeration(text):
    f = parse_formula(text)
    cube = [x for x in itertools.product(SIDE, SIDE) if holds(f, {**ENV, "i": x[0], "j": x[1]}, TABLES)]
    assert points(("i", "j"), (f,), ENV, TABLES) == cube
    assert cube or text.startswith("n<0")
    assert not any({SIDE[0], SIDE[-1]} & set(x) for x in cube), "the cube is too small for this test"


def test_no_fields():
    assert points((), (parse_formula("n>=4"),), ENV, TABLES) == [()]
    assert points((), (parse_formula("n>4"),), ENV, TABLES) == []


def test_no_bound_is_said():
    with pytest.raises(Unbounded, match=r"^i$"):
        points(("i", "j"), (parse_formula("0<=i-j<=3"),), ENV, TABLES)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(0-7) floordiv n", -2), ("(0-7) ceildiv n", -1), ("(0-7) mod n", 1), ("2*n*K-1", 23), ("N[K-1]+N[0]", 5),
        ("max(n,K,1)", 4),
    ],
)  # fmt: skip
def test_expressions(text, found):
    assert value(parse_index(text), ENV, TABLES) == found


@pytest.mark.parametrize(("text", "why"), [("N[n]", r"`N\[4\]` is outside"), ("n floordiv (K-3)", "division by zero")])
def test_no_value(text, why):
    with pytest.raises(NoValue, match=why) as e:
        value(parse_index(text), ENV, TABLES)
    assert e.value.why
