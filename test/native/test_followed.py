"""Arrays that a loop writes element by element, and hands on: read where they were written, with the same numbers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_schedules import compare, plan

import upl_mlir as upl
from upl_mlir.passes.loops.program import LoopProgram

# x<k,i>: the array in round k; round k writes element k, from those before.  FIRST is what stands there in the beginning,
# ROUND where element k is written (upwards or downwards).
FORWARD = """program forward
param n >= 1
input A<i,j> in 0<=i<n, 0<=j<n { -> T.a<i,i,j> }
input B<i> in 0<=i<n { -> W.b<i,i>; FIRST -> X.x<0,i> }
output R<i> in 0<=i<n
output S<k> in 0<=k<n
node X<k,i> in 0<=k<=n, 0<=i<n {
  in x
  if k<n: x -> T.x<k,k,i>
  if k<n && i != k: x -> X.x<k+1,i>
  if k==n: x -> R<i>
}
node T<k,i,j> in 0<=k<n, i==k, 0<=j<n { in a, x; t = j < i ? a*x : 0; t #n -> W.s<k,i>; x -> Q.x<k,j> }
node W<k,i> in 0<=k<n, i==k { in b, @(+) s[n]; w = b - s; w -> X.x<k+1,i> }
node Q<k,j> in 0<=k<n, 0<=j<n { in x; -> P.q<k> }
node P<k> in 0<=k<n { in @(+) q[n]; q -> S }
""".replace("t #n ->", "t ->")


def arrays(found: LoopProgram) -> dict[str, int]:
    """Of each array, its dimensions."""
    return {n: len(a.axes) for n, a in found.arrays.items()}


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
@pytest.mark.parametrize("first", ["0", "1.5", "B"])
def test_a_forward_substitution(gather: str, first: str) -> None:
    """The sums S read all of the array in each round: what was written, and what stands there from the beginning."""
    program = upl.load(FORWARD.replace("FIRST", first))
    if gather == "relaxed":
        assert arrays(plan(program))["X.x"] == 1
    for p in (program, upl.vjp(program, of="R", wrt=["A", "B"]), upl.vjp(program, of="S", wrt=["A", "B"])):
        for n in (1, 2, 3, 8):
            compare(p, {"n": n}, gather)


def backward(a: Any, b: Any) -> Any:
    """From the last element to the first; each is scaled afterwards."""
    x = np.zeros_like(b)
    for k in upl.range(len(b)):
        at = len(b) - 1 - k
        x[at] = b[at] - np.sum(np.where(np.arange(len(b)) > at, a[at] * x, 0.0))
    return x


def twice(a: Any, b: Any) -> Any:
    """An element is written in two rounds: the rounds stay."""
    x = np.zeros_like(b)
    for k in upl.range(len(b) - 1):
        x[k] = b[k] + x[k] * 2.0
        x[k + 1] = x[k] + 1.0
    return x


def rows(a: Any, b: Any) -> Any:
    """Row by row."""
    q = np.zeros_like(a)
    for k in upl.range(len(b)):
        q[k] = a[k] - (q @ a[k]) @ q
    return q


def in_numpy(f: Any, a: Any, b: Any) -> Any:
    """The function with Python's range."""
    names = {"upl": type("upl", (), {"range": range}), "np": np}
    return type(f)(f.__code__, names)(a, b)


@pytest.mark.parametrize("f", [backward, twice, rows])
def test_traced_loops(f: Any) -> None:
    random = np.random.default_rng(0)
    a, b = random.standard_normal((6, 6)) / 3, random.standard_normal(6)
    traced = upl.function(f)
    np.testing.assert_allclose(traced(a, b), in_numpy(f, a.copy(), b.copy()), rtol=1e-12)
    program = traced.program(a, b)
    for p in (program, upl.vjp(program, of="out", wrt=list(program.inputs)[-1:])):
        for gather in ("ordered", "relaxed"):
            compare(p, {}, gather)


def test_where_each_element_is_written_once_there_are_no_rounds() -> None:
    a, b = np.ones((6, 6)), np.ones(6)
    backwards, rowwise = (plan(upl.function(f).program(a, b)) for f in (backward, rows))
    assert [d for n, d in arrays(backwards).items() if n.endswith("_at.x")] == [1]
    assert [d for n, d in arrays(rowwise).items() if n.endswith("_at.x")] == [2]


# An element is handed on once, and then another one comes to its place.
ONCE = """program once
param n >= 1
input A<i> in 0<=i<n { -> W.a<i> }
output R<j,i> in 0<=j<=3, 0<=i<n
node X<k,i> in i+1<=k<=i+4, 0<=i<n {
  in x
  if k==i+1: x -> X.x<k+1,i>
  x -> R<k-i-1,i>
}
node W<i> in 0<=i<n { in a; sin(a) -> X.x<i+1,i>; 0.0 -> X.x<k,i> for k in i+3..i+4 }
"""


def test_what_is_handed_on_in_one_round_only() -> None:
    """The copies end where they begin: what is read later is something else."""
    p = upl.load(ONCE)
    for n in (1, 5):
        compare(p, {"n": n}, "ordered")


# A window over a sequence that goes on with a function of the window's ends.
WINDOW = """program window
param n >= 2
param T >= 1
input A<i> in 0<=i<n { -> X.x<0,i> }
output R<i> in 0<=i<n
node X<t,i> in 0<=t<=T, 0<=i<n {
  in x
  if t<T && i!=LAST: x -> X.x<t+1,STEP>
  if t<T && (i==0 || i==n-1): x -> V.s<t>
  if t==T: x -> R<i>
}
node V<t> in 0<=t<T { in @(+) s[2]; sin(s) -> X.x<t+1,FIRST> }
"""


@pytest.mark.parametrize(("last", "step", "first"), [("0", "i-1", "n-1"), ("n-1", "i+1", "0")])
def test_a_window_of_any_length_is_kept_once(last: str, step: str, first: str) -> None:
    """Its elements go to their neighbours' places in each round, and are read where they were written."""
    p = upl.load(WINDOW.replace("LAST", last).replace("STEP", step).replace("FIRST", first))
    assert arrays(plan(p))["X.x"] == 1
    for n, rounds in ((2, 1), (2, 7), (5, 3), (5, 12)):
        compare(p, {"n": n, "T": rounds}, "ordered")


def test_borders_of_a_grid_stay_in_the_rounds() -> None:
    """Time loops are tiled with them."""
    found = plan(upl.load((Path(__file__).resolve().parents[2] / "examples" / "jacobi1d.upl").read_text()))
    assert arrays(found)["U.u"] == 2
