"""Cycles among points: rings are found with a point on them, orders are proved, also for symbolic sizes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upl_mlir.poly.closure import Dependence, find_cycle
from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.parse import parse_formula
from upl_mlir.poly.sets import PolyContext

CTX = PolyContext(("n",), parse_formula("n>=1"), {"K": 4}, {"N": Table(0, (2, 3, 2, 1)), "M": Table(0, (2, 3, 1, 9))})


def step(source: int, target: int, where: str, src: str = "i", dst: str = "a") -> Dependence:
    """A dependence from points of `source` over `src` to points of `target` over `dst`."""
    return Dependence(source, target, CTX.set((*src, *dst), parse_formula(where)), len(src))


def find(*steps: Dependence, width: int = 2):
    return find_cycle(CTX, width, steps)


ACYCLIC = {
    "nothing": (),
    "a chain": (step(0, 0, "0<=i<n && a==i+1"),),
    "a chain downwards": (step(0, 0, "0<=i<n && a==i-1"),),
    "any later one": (step(0, 0, "0<=i<n && i<a<n"),),
    "two spaces, no way back": (step(0, 1, "0<=i<n && a==i"), step(0, 0, "0<=i<n && a==i+1")),
    "two spaces, one step later": (step(0, 1, "0<=i<n && a==i"), step(1, 0, "0<=i<n && a==i+1")),
    "lexicographic": (
        step(0, 0, "0<=i<n && a==i && 0<=j<n && b==j+1", "ij", "ab"),
        step(0, 0, "0<=i<n && a==i+1 && 0<=j<n && 0<=b<n", "ij", "ab"),
    ),
    "a ring with a gap": (step(0, 0, "0<=i<2 && a==i+1"), step(0, 0, "i==2 && a==5")),
    "exchange below a time step": (step(0, 0, "0<=i<n && a==i+1 && 0<=j<3 && b==2-j", "ij", "ab"),),
    "entries of an array": (step(0, 0, "0<=i<3 && a==i+1 && 1<=j<=N[i] && 1<=b<=N[a]", "ij", "ab"),),
    "entries as targets": (step(0, 0, "0<=i<4 && a==M[i]"),),
    "halves": (step(0, 0, "1<=i<=n && a==i floordiv 2"),),
    "a star": (step(0, 0, "i==0 && 1<=a<=3"), step(0, 1, "1<=i<=3 && a==0"), step(1, 1, "0<=i<=2 && a==i+1")),
}

CYCLIC = {
    "itself": ((step(0, 0, "0<=i<n && a==i"),), lambda at: at[0] >= 0),
    "a ring modulo 3": ((step(0, 0, "0<=i<3 && a==(i+1) mod 3"),), lambda at: 0 <= at[0] < 3),
    "one fixed point": ((step(0, 0, "0<=i<=6 && a==6-i"),), lambda at: 0 <= at[0] <= 6),
    "two spaces": ((step(0, 1, "0<=i<4 && a==i+1"), step(1, 0, "1<=i<5 && a==i-1")), lambda at: 0 <= at[0] < 5),
    "entries as targets": ((step(0, 0, "0<=i<4 && a==N[i]"),), lambda at: 1 <= at[0] <= 3),
    "only at one point": ((step(0, 0, "0<=i<=4 && a==i+1"), step(0, 0, "i==3 && a==1")), lambda at: 1 <= at[0] <= 3),
    "no dimension": ((Dependence(0, 1, CTX.set(()), 0), Dependence(1, 0, CTX.set(()), 0)), lambda at: True),
}


@pytest.mark.parametrize("name", ACYCLIC)
def test_orders_are_proved(name):
    assert find(*ACYCLIC[name]) is None


@pytest.mark.parametrize("name", CYCLIC)
def test_cycles_are_found_with_a_point_on_them(name):
    steps, on_the_cycle = CYCLIC[name]
    found = find(*steps)
    assert isinstance(found, tuple), found
    space, at, params = found
    assert space in (0, 1) and on_the_cycle(at)
    assert all(v >= 1 for v in params.values())


def test_a_cycle_that_needs_a_large_parameter_comes_with_one():
    found = find(step(0, 0, "0<=i<=n && a==i+1"), step(0, 0, "0<=i<=n && i>=5 && a==2"))
    assert isinstance(found, tuple)
    assert found[2].get("n", 0) >= 5


@settings(max_examples=60)
@given(st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=6))
def test_against_search_on_small_graphs(edges):
    reach = set(edges)
    for _ in range(5):
        reach |= {(a, d) for a, b in reach for c, d in reach if b == c}
    cyclic = {a for a, b in reach if a == b}
    found = find(*(step(0, 0, f"i=={a} && a=={b}") for a, b in edges), width=1)
    if isinstance(found, tuple):
        assert found[1][0] in cyclic
    elif found is None:
        assert not cyclic
    else:
        raise AssertionError("so small a graph can always be decided")
