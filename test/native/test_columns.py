"""Folds down columns run along rows: the same bits in order, a row of memory, loops for what depends on itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.if_convert import IfConvertPass
from upl_mlir.passes.loops.transform.columns import DOWN, OVER
from upl_mlir.passes.loops.tree import leaves
from upl_mlir.passes.lower_to_loops import lower_to_loops
from upl_mlir.passes.schedule import schedule

VITERBI = Path(__file__).resolve().parents[2] / "examples" / "sparse" / "viterbi.upl"
# The greatest and the least of each column, and of what is above the diagonal a sum and the least row of a negative number.
COLUMNS = """program columns
param m >= 1
param n >= m-1
input A<i,j> in 0<=i<n, 0<=j<m { -> P.a }
output Top<j>
output Low<j>
output Sum<j>
output Less<j>: int
node P<i,j> { in a; a -> T.a<j>; a -> L.a<j>; if i<j: exp(a) -> S.a<j>; if i<j: (a < 0 ? i : n) -> C.a<j> }
node T<j> in 0<=j<m { in @(max) a[n]; a -> Top }
node L<j> in 0<=j<m { in @(min) a[n]; 2*a -> Low }
node S<j> in 0<=j<m { in @(+) a[j]; a -> Sum }
node C<j> in 0<=j<m { in @(min) a[j]: int; a -> Less }
"""
# The longest path to each vertex of a graph whose edges go upwards: each needs all before it.
LONGEST = """program longest
param n >= 2
input W<i,j> in 0<=i<j, j<n { -> E.w }
output D<j> in 0<=j<n
node V<j> in 0<=j<n { in d; d -> D; if j<n-1: d #n-1-j -> E.d<j,*> }
node E<i,j> in 0<=i<j, j<n { in w, d; w + d -> M.x<j> }
node M<j> in 1<=j<n { in @(max) x[j]; x -> V.d }
input Start { -> V.d<0> }
"""


def columns(plan: Any) -> list[str]:
    return [name for name in plan.arrays if DOWN in name and not name.endswith(".all")]


@pytest.mark.parametrize("gather", ["relaxed", "ordered"])
@pytest.mark.parametrize("shape", [(1, 1), (40, 7), (39, 40), (70, 33), (5, 5), (6, 7), (3, 4)])
def test_folds_of_columns(shape: tuple[int, int], gather: Any) -> None:
    a = np.random.default_rng(1).standard_normal(shape)
    p = upl.load(COLUMNS)
    wanted = upl.compile(p, gather="ordered")(A=a)
    found = upl.compile(p, engine="native", gather=gather)(A=a)
    for name, w in wanted.items():
        if gather == "ordered":
            assert found[name].tobytes() == w.tobytes(), name
        np.testing.assert_allclose(found[name], w, rtol=1e-14, err_msg=name)


def test_they_take_a_row() -> None:
    plan = schedule(upl.load(COLUMNS).infer_domains().op)
    assert len(columns(plan)) == 4
    assert all([a.at for a in plan.kept[name].axes] == [1] for name in columns(plan))


def test_columns_known_to_be_short_stay() -> None:
    assert not columns(schedule(upl.load(COLUMNS, n=5, m=4).infer_domains().op))


@pytest.mark.parametrize("gather", ["relaxed", "ordered"])
def test_a_recurrence(gather: Any) -> None:
    n = 20
    w = np.random.default_rng(2).standard_normal((n, n))
    p = upl.load(LONGEST)
    d = [0.5]
    for j in range(1, n):
        d.append(max(d[i] + w[i, j] for i in range(j)))
    found = upl.compile(p, engine="native", gather=gather)(W=w[:-1, 1:], Start=0.5, n=n)["D"]
    assert found.tolist() == d


def test_a_best_path_and_its_gradient() -> None:
    rng = np.random.default_rng(3)
    states, steps = 30, 5
    given = {"Start": rng.random(states), "Move": rng.random((states, states)), "Seen": rng.random((steps, states))}
    p = upl.load(VITERBI)
    g = upl.grad(p, of="Score", wrt=["Move", "Seen"])
    for program in (p, g):
        wanted = upl.compile(program)(**given)
        found = upl.compile(program, engine="native")(**given)
        for name, w in wanted.items():
            np.testing.assert_allclose(found[name], w, rtol=1e-13, err_msg=name)


@pytest.mark.parametrize("gather", ["relaxed", "ordered"])
def test_steps_of_a_loop_are_the_outermost(gather: Any) -> None:
    """What all steps of a best path earn is added up step by step, downwards with the adjoint where sums have no order."""
    p = upl.grad(upl.load(VITERBI), of="Score", wrt=["Move", "Seen"])
    q = p.derived(("test",), lambda: [IfConvertPass(compared=True, ordered=gather == "ordered")]).infer_domains()
    plan = schedule(q.op, gather=gather)
    (steps,) = (name for name in plan.arrays if OVER in name and not name.endswith(".all"))
    assert steps.startswith("d_Move") and [a.at for a in plan.kept[steps].axes] == [1, 2]
    loops = [loop for leaf, around in leaves(plan.scheduled) if leaf.stmt.array == steps for loop in around]
    made = [loop for leaf, around in leaves(plan.scheduled) if leaf.stmt.array == "Back.s" for loop in around]
    assert bool(set(map(id, loops)) & set(map(id, made))) == (gather == "relaxed")
    rng = np.random.default_rng(3)
    given = {"Start": rng.random(5), "Move": rng.integers(0, 3, (5, 5)) / 2, "Seen": rng.integers(0, 3, (7, 5)) / 2}
    wanted = upl.compile(p, gather="ordered")(**given)  # with ties
    found = upl.compile(p, engine="native", gather=gather)(**given)
    for name, w in wanted.items():
        if gather == "ordered":
            assert found[name].tobytes() == w.tobytes(), name
        np.testing.assert_allclose(found[name], w, rtol=1e-14, err_msg=name)


def test_which_zero_is_greatest_is_told_in_order_only() -> None:
    p = upl.load(COLUMNS)
    for gather, flags in (("relaxed", " fastmath<nsz>"), ("ordered", "")):
        text = str(lower_to_loops(p.infer_domains().op, gather=gather).module)
        assert re.findall(r"arith\.maximumf %\w+, %\w+(.*) : f64", text) == [flags, flags]
    zeros = np.array([[0.0, -0.0], [-0.0, -0.0]])
    top = upl.compile(p, engine="native", gather="ordered")(A=zeros)["Top"]
    assert np.signbit(top).tolist() == [False, True]
