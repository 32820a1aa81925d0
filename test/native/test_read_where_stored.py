"""What is stored already, or computed for another instance, is read: fewer arrays, the same bits."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_schedules import compare, plan

import upl_mlir as upl
from upl_mlir.engines.native.target import host
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.terms import Fold
from upl_mlir.passes.loops.tree import Guard, Loop, subtrees
from upl_mlir.poly.expr import Div, IndexExpr

GATHERS = pytest.mark.parametrize("gather", ["ordered", "relaxed"])


def both(program: upl.Program, sizes: dict[str, int], gather: str, of: str, wrt: str) -> None:
    """The program and its gradient."""
    compare(program, sizes, gather)
    compare(upl.vjp(program, of=of, wrt=[wrt]), sizes, gather)


# -- tables ------------------------------------------------------------------------------------------------------------
# A tree of prices: what an early exercise pays depends on 2*i + k only.
PRICES = """program prices
const N = 30
const T = 20
input s { #600 -> W.s<*,*> }
input X<i> in 0<=i<N { -> V.x<0,i> }
output Y<i> in 0<=i<N
node V<k,i> in 0<=k<=T, 0<=i<N {
  in x
  if k<T: x -> W.x<k,i>
  if k==T: x -> Y<i>
}
node W<k,i> in 0<=k<T, 0<=i<N { in x, s; TERM -> V.x<k+1,i> }
"""


def tables(found: LoopProgram) -> list[int]:
    """Of each table, its dimensions."""
    return [len(a.axes) for n, a in found.kept.items() if ":table" in n]


@GATHERS
@pytest.mark.parametrize("term", [
    "max(1 - exp(s*(real(2*i) - real(5 - k))), 0.5*x)",
    "x + exp(s*(i + k))*tanh(3.0*real(i + k) - s)",
    "x + 1/sin(s*(-1.0*real(i + k)))",
    "x*exp(s*(2*k - 3*i))",
])  # fmt: skip
def test_a_function_of_one_sum_of_indices_is_a_table(term: str, gather: str) -> None:
    program = upl.load(PRICES.replace("TERM", term))
    assert tables(plan(program, gather=gather)) == [1]
    both(program, {}, gather, "Y", "X" if "sin" in term else "s")


def test_one_value_for_all_steps_is_a_table_too() -> None:
    program = upl.load(PRICES.replace("TERM", "x + (i == 3 ? exp(s*i) : 0)"))
    (table,) = (a for n, a in plan(program).kept.items() if ":table" in n)
    assert [a.extent.constant for a in table.axes] == [1]
    compare(program, {}, "ordered")


@pytest.mark.parametrize("term", ["x + exp(s*(i*k))", "x + exp(s*x)", "x + exp(s*(i - k)*(i + k))", "x + exp(s*(9*i + k))"])
def test_other_functions_are_none(term: str) -> None:
    program = upl.load(PRICES.replace("TERM", term))
    assert not tables(plan(program))
    compare(program, {}, "ordered")


def test_sums_beyond_whole_numbers_are_added_in_their_order() -> None:
    program = upl.load(PRICES.replace("TERM", "x + sin(s*((real(i) + 9007199254740992.0) - real(k)))"))
    assert not tables(plan(program))
    compare(program, {}, "ordered")


def test_a_small_type_has_no_tables() -> None:
    program = upl.load(PRICES.replace("TERM", "x + 0.1*exp(s*(i - k)/30)"))
    assert not tables(plan(program, real="bf16"))


# -- remainders --------------------------------------------------------------------------------------------------------
PAIRS = """program pairs
param n >= 1
const T = 5
input X<i> in 0<=i<3*n+1 { -> S.x<0,i> }
output Y<i> in 0<=i<3*n+1
node S<t,i> in 0<=t<=T, 0<=i<3*n+1 {
  in x
  if t<T && i<3*n && i mod 3==0: x -> M.a<t,i floordiv 3>
  if t<T && i<3*n && i mod 3==1: x -> M.b<t,i floordiv 3>
  if t<T && i<3*n && i mod 3==2: x -> M.c<t,i floordiv 3>
  if t<T && i==3*n: x -> S.x<t+1,0>
  if t==T: x -> Y<i>
}
node M<t,p> in 0<=t<T, 0<=p<n {
  in a, b, c
  min(a, b) -> S.x<t+1,3*p+1>
  max(a, b) - 0.5*c -> S.x<t+1,3*p+2>
  b*c -> S.x<t+1,3*p+3>
}
"""


@GATHERS
@pytest.mark.parametrize("n", [1, 2, 5, 23])
def test_loops_are_written_out_by_remainders(gather: str, n: int) -> None:
    program = upl.load(PAIRS)
    both(program, {"n": n}, gather, "Y", "X")
    fixed = upl.load(PAIRS.replace("param n >= 1", f"const n = {n}"))
    compare(fixed, {}, gather)
    asked = [
        a for t in subtrees(plan(fixed).scheduled) if isinstance(t, Guard) for c in t.cons for a in c.e.atoms()
        if isinstance(a, Div)
    ]  # fmt: skip
    assert not asked


EMPTY = """program empty
param n >= 1
input W<t,i> in 0<=t<n, 0<=i<n { -> P.w<t,i> }
output R<t,i> in 0<=t<n, 0<=i<n
node P<t,i> in 0<=t<n, 0<=i<n {
  in w
  if i<t-3 && i mod 3==1: w -> R<t,i>
  if i<t-3 && i mod 3!=1: 2*w -> R<t,i>
  if i>=t-3: 3*w -> R<t,i>
}
"""


@GATHERS
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 12])
def test_a_loop_that_never_runs_is_written_out_to_none(gather: str, n: int) -> None:
    program = upl.load(EMPTY)
    compare(program, {"n": n}, gather)
    loops = [t for t in subtrees(plan(program).scheduled) if isinstance(t, Loop)]
    rests = [t for t in loops if any(isinstance(a, Div) for e in t.lows for a in e.atoms())]
    assert rests and all(IndexExpr.of(0) in t.lows for t in rests)


# -- copies and terms --------------------------------------------------------------------------------------------------
# Two fields of which each changes with the other; E's new values are used twice, and handed on by a node of its own.
WAVES = """program waves
param n >= 2
const T = 4
input E0<i,j> in 0<=i<n, 0<=j<n { -> E.x<0,i,j> }
input H0<i,j> in 0<=i<n, 0<=j<n { -> H.x<0,i,j> }
output Y<i,j> in 0<=i<n, 0<=j<n
node E<t,i,j> in 0<=t<=T, 0<=i<n, 0<=j<n {
  in x
  if t<T && j==0: x -> Edge.e<t,i>
  if t<T && j>0: x -> New.e<t,i,j>
}
node H<t,i,j> in 0<=t<=T, 0<=i<n, 0<=j<n {
  in x
  if t<T && j>0: x -> New.h<t,i,j>
  if t<T && j<n-1: x -> New.before<t,i,j+1>
  if t<T && j<n-1: x -> Last.h<t,i,j>
  if t<T && j==n-1: x -> H.x<t+1,i,j>
  if t==T: x -> Y<i,j>
}
node Edge<t,i> in 0<=t<T, 0<=i<n { in e; e -> Hand.e<t,i,0>; e -> Last.left<t,i,0> }
node New<t,i,j> in 0<=t<T, 0<=i<n, 1<=j<n {
  in e, h, before
  v = e - 0.5*(h - before)
  v -> Hand.e<t,i,j>
  v -> Last.right<t,i,j-1>
  if j<n-1: v -> Last.left<t,i,j>
}
node Last<t,i,j> in 0<=t<T, 0<=i<n, 0<=j<n-1 { in h, left, right; h - 0.7*(right - left) -> H.x<t+1,i,j> }
node Hand<t,i,j> in 0<=t<T, 0<=i<n, 0<=j<n { in e; e -> E.x<t+1,i,j> }
"""


@GATHERS
@pytest.mark.parametrize("n", [2, 3, 9, 30])
def test_what_a_step_stores_is_stored_and_computed_once(gather: str, n: int) -> None:
    program = upl.load(WAVES)
    assert {name for name, a in plan(program, gather=gather).kept.items() if len(a.axes) > 1} <= {"E.x", "H.x"}
    both(program, {"n": n}, gather, "Y", "E0")


# B<t,i>: what was put in i steps ago, or is to be put in; PLACE is where the next one stands, AFTER where one goes.
REGISTER = """program register
const D = 7
param n >= 1
input A { #n -> F.a<*> }
input X<t> in 0<=t<n { -> F.x<t> }
input S<i> in 0<=i<D { -> B.x<0,i> }
output Y<t> in 0<=t<n
node B<t,i> in 0<=t<=n, 0<=i<D {
  in x
  if t<n && i==LAST: x -> F.late<t>
  if t<n && i!=LAST: x -> B.x<t+1,AFTER>
}
node F<t> in 0<=t<n { in x, late, a; v = x + a*tanh(late); v -> Y<t>; v -> B.x<t+1,FIRST> }
"""


@GATHERS
@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("length", [1, 2, 7, 40])
def test_a_shift_register_is_read_where_it_was_written(gather: str, up: bool, length: int) -> None:
    names = {"LAST": "0", "AFTER": "i-1", "FIRST": "D-1"} if up else {"LAST": "D-1", "AFTER": "i+1", "FIRST": "0"}
    text = REGISTER.replace("const D = 7", f"const D = {length}")
    for name, value in names.items():
        text = text.replace(name, value)
    program = upl.load(text)
    if length > 2:
        assert all(len(a.axes) < 2 for a in plan(program).kept.values())
    for n in (1, 5, 25, 90):
        both(program, {"n": n}, gather, "Y", "X")
    compare(upl.vjp(program, of="Y", wrt=["S", "A"]), {"n": 25}, gather)


ROWS = """program rows
const D = 7
param n >= 1
param m >= 1
input X<t,p> in 0<=t<n, 0<=p<m { -> F.x<t,p> }
input S<i,p> in 0<=i<D, 0<=p<m { -> B.x<0,i,p> }
output Y<t,p> in 0<=t<n, 0<=p<m
node B<t,i,p> in 0<=t<=n, 0<=i<D, 0<=p<m {
  in x
  if t<n && i==0: x -> F.late<t,p>
  if t<n && i!=0: x -> B.x<t+1,i-1,p>
}
node F<t,p> in 0<=t<n, 0<=p<m { in x, late; v = x + tanh(late); v -> Y<t,p>; v -> B.x<t+1,D-1,p> }
"""


@GATHERS
def test_a_shift_register_of_rows_too(gather: str) -> None:
    program = upl.load(ROWS)
    assert all(len(a.axes) < 3 for a in plan(program, gather=gather).kept.values())
    compare(program, {"n": 9, "m": 3}, gather)


# -- comparisons -------------------------------------------------------------------------------------------------------
ALIGNED = """program aligned
param n >= 1
input M<i,j> in 0<=i<n, 0<=j<n { -> V.m<i,j> }
output Y<i,j> in 0<=i<n, 0<=j<n
node V<i,j> in 0<=i<n, 0<=j<n {
  in m, up, left
  v = max(max(0.5, m), max(left - 0.25, up - 1))
  v -> Y<i,j>
  if i<n-1: v -> V.up<i+1,j>
  if j<n-1: v -> V.left<i,j+1>
}
input U<j> in 0<=j<n { -> V.up<0,j> }
input L<i> in 0<=i<n { -> V.left<i,0> }
"""


@pytest.mark.parametrize("place", [None, (0, 0), (3, 4), (8, 8)])
def test_the_order_of_comparisons_changes_nothing(place: tuple[int, int] | None) -> None:
    """A number that is none wins wherever it stands."""
    random = np.random.default_rng(0)
    given = {"M": 4 * random.random((9, 9)), "U": random.random(9), "L": random.random(9)}
    if place is not None:
        given["M"][place] = np.nan
    program = upl.load(ALIGNED)
    wanted = upl.compile(program, engine="interp")(**given)["Y"]
    for gather in ("ordered", "relaxed"):
        np.testing.assert_array_equal(upl.compile(program, engine="native", gather=gather)(**given)["Y"], wanted)


# -- rows --------------------------------------------------------------------------------------------------------------
@GATHERS
@pytest.mark.parametrize("n", [18, 26, 32, 33, 47, 63, 64, 67])
def test_rows_of_known_sizes(gather: str, n: int) -> None:
    """Rows that vectors do not fill, in place and not, that begin at a cache line or not."""
    text = WAVES.replace("param n >= 2", f"const n = {n}").replace("const T = 4", "const T = 2")
    compare(upl.load(text), {}, gather)


FAULTY = """program faulty
input X<i> in 0<=i<100 { -> P.x<i> }
output Y<i> in 0<=i<100
node P<i> in 0<=i<100 { in x; k = int(x); real(k) + x -> Y<i> }
"""


def test_faults_of_a_loop_are_told_at_its_end() -> None:
    f = upl.compile(upl.load(FAULTY), engine="native")
    x = np.arange(100) / 7
    np.testing.assert_array_equal(f(X=x)["Y"], np.trunc(x) + x)
    for place in (0, 50, 97, 99):
        wrong = x.copy()
        wrong[place] = np.nan
        with pytest.raises(upl.UplError, match="UPL1604"):
            f(X=wrong)
    np.testing.assert_array_equal(f(X=x)["Y"], np.trunc(x) + x)


# -- functions in folds ------------------------------------------------------------------------------------------------
POOLED = """program pooled
const N = 7
input X<i,j,a,b> in 0<=i<3, 0<=j<N, 0<=a<2, 0<=b<2 { -> P.x<i,j,a,b> }
output Y<i,j> in 0<=i<3, 0<=j<N
node P<i,j,a,b> in 0<=i<3, 0<=j<N, 0<=a<2, 0<=b<2 { in x; tanh(2*x) #4 -> S.s<i,j> }
node S<i,j> in 0<=i<3, 0<=j<N { in @(OP) s[#]; s/4 -> Y }
"""


@GATHERS
@pytest.mark.parametrize("op", ["+", "max"])
@pytest.mark.parametrize("n", [1, 5, 8, 15, 40])
def test_functions_in_a_short_fold_have_loops_of_their_own(op: str, n: int, gather: str) -> None:
    program = upl.load(POOLED.replace("OP", op).replace("const N = 7", f"const N = {n}"))
    assert any(".part" in name for name in plan(program, gather=gather).kept)
    both(program, {}, gather, "Y", "X")


def test_functions_in_a_long_fold_stay_there() -> None:
    text = POOLED.replace("a<2", "a<9").replace("#4", "#18").replace("OP", "+")
    assert not any(".part" in name for name in plan(upl.load(text)).kept)


# -- quotients ---------------------------------------------------------------------------------------------------------
FLAT = """program flat
input H<c,i,j> in 0<=c<3, 0<=i<4, 0<=j<5 { #2 -> P.h<*,20*c+5*i+j> }
input W<r,o> in 0<=r<60, 0<=o<2 { -> P.w<o,r> }
output Y<o> in 0<=o<2
node P<o,r> in 0<=o<2, 0<=r<60 { in h, w; h*w #60 -> S.s<o> }
node S<o> in 0<=o<2 { in @(+) s[#]; -> Y }
"""


@GATHERS
def test_the_gradient_of_a_flat_array_looks_for_no_index(gather: str) -> None:
    program = upl.load(FLAT)
    both(program, {}, gather, "Y", "H")
    back = plan(upl.vjp(program, of="Y", wrt=["H"]), gather=gather)
    asked = [c for eq in back.system.equations.values() for _, t in eq.pieces if isinstance(t, Fold)
             for p in t.parts for c in p.cons if any(isinstance(a, Div) for a in c.e.atoms())]  # fmt: skip
    assert not asked and all(len(p.dims) == 1 for _, t in back.system.equations["d_H"].pieces if isinstance(t, Fold)
                             for p in t.parts)  # fmt: skip


ROUNDED = """program p
param n>=1
input X<i> in 0<=i<n { X -> T.x<i> }
node T<i> in 0<=i<n { in x; exp(-(x - floor(8*x)/8))*(x - int(4*x)/4) -> Y<i> }
output Y<i> in 0<=i<n
"""


def test_a_loop_that_rounds_twice_is_one_of_vectors() -> None:
    """Two numbers of each round become integers; that one of them is none is told behind the loop."""
    f = upl.compile(upl.load(ROUNDED), engine="native")
    x = np.random.default_rng(3).normal(size=1003) * 50
    expected = np.exp(-(x - np.floor(8 * x) / 8)) * (x - np.trunc(4 * x) / 4)
    np.testing.assert_allclose(f(X=x)["Y"], expected, rtol=1e-12, atol=1e-12)
    for wrong in (np.inf, np.nan, 1e300):
        with pytest.raises(upl.UplError, match="UPL1604"):
            f(X=np.where(np.arange(1003) == 77, wrong, x))
    if host().vector_bytes == 64:
        assert re.search(r"vmul\S*pd\s+%zmm", f._native.kernel.asm)  # pyright: ignore
