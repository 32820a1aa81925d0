"""Programs that lack one thing that a transformation of loops needs: it has to ask for it, and leave them as they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_schedules import compare, plan

import upl_mlir as upl
from upl_mlir.passes.loops.legal import faults

GATHERS = pytest.mark.parametrize("gather", ["ordered", "relaxed"])


def both(program: upl.Program, given: dict[str, Any], gather: str, **sizes: int) -> None:
    """The same numbers as the interpreter's, or the same error."""
    told: list[Any] = []
    for engine in ("interp", "native"):
        try:
            told.append(upl.compile(program, engine=engine, gather=gather)(**given, **sizes))
        except upl.UplError as e:
            told.append(e.diagnostics[0].code)
    if isinstance(told[0], dict):
        for name, w in told[0].items():
            np.testing.assert_array_equal(told[1][name], w, err_msg=name)
    assert isinstance(told[0], dict) or told[0] == told[1]


# -- quotients and remainders --------------------------------------------------------------------------------------------
RESHAPED = """program reshaped
param r_q >= 1
input A<q,i,m> in 0<=q<4, 0<=i<r_q, 0<=m<4 { #3 -> P.a<4*q+m,i,*> }
input W<r,c> in 0<=r<16, 0<=c<3 { #r_q -> P.w<r,*,c> }
node P<r,i,c> in 0<=r<16, 0<=i<r_q, 0<=c<3 { in a, w; if WHEN: a*w #COUNT -> S.s<i,c> }
node S<i,c> in 0<=i<r_q, 0<=c<3 { in @(+) s[#]; s -> Y<i,c> }
output Y<i,c>
"""


@GATHERS
@pytest.mark.parametrize(("when", "count"), [("true", 16), ("r mod 3 != 0", 10), ("r mod 3 >= 1", 10), ("r mod 2 == 0", 8)])
def test_an_iterator_in_two_keeps_what_is_asked_of_it(when: str, count: int, gather: str) -> None:
    """The parameter has the name that the quotient of `r` would have."""
    program = upl.load(RESHAPED.replace("WHEN", when).replace("COUNT", str(count)))
    for n in (1, 3):
        compare(program, {"r_q": n}, gather)


SETTLED = """program settled
input X<r> in 0<=r<20 { #20 -> N.x<r,*> }
input Z<c> in 0<=c<20 { #20 -> N.z<*,c> }
node N<r,c> in 0<=r<20, 0<=c<20 { in x, z; if WHEN: x*z -> S.s<c> }
node S<c> in 0<=c<20 { in @(+) s[##]; s -> Y<c> }
output Y<c>
"""
EACH_OTHER = "5*(c floordiv 5) <= r < 5*(c floordiv 5) + 5 && 5*(r floordiv 5) <= c < 5*(r floordiv 5) + 5"


@GATHERS
@pytest.mark.parametrize("when", ["5*c <= r && r floordiv 5 <= c", "5*c <= r && r - r mod 5 <= 5*c", EACH_OTHER])
def test_what_settles_a_quotient_stays(when: str, gather: str) -> None:
    """The constraints by which a quotient is known have it themselves."""
    compare(upl.load(SETTLED.replace("WHEN", when)), {}, gather)


# -- what is taken out of loops that may never run -----------------------------------------------------------------------
ONCE = """program once
param T >= 0
param n >= 1
input Z: int { -> M.z<t> for t in 0..T-1 }
input X<v> in 0<=v<n { if T>0: #T -> W.x<*,v> }
node M<t> in 0<=t<T { in z: int; y: int = 10 floordiv z; y #n -> W.y<t,*> }
node W<t,v> in 0<=t<T, 0<=v<n { in x, y: int; x*y -> S.s<v> }
node S<v> in 0<=v<n { in @(+) s[T]; s -> Y<v> }
output Y<v>
"""


@GATHERS
@pytest.mark.parametrize(("steps", "z"), [(0, 0), (0, 3), (2, 0), (2, 3)])
def test_what_is_the_same_in_no_step_is_not_computed(steps: int, z: int, gather: str) -> None:
    both(upl.load(ONCE), {"Z": np.array(z), "X": np.ones(3)}, gather, T=steps, n=3)


APART = """program apart
param T >= 0
param n >= 1
input Z<i,j>: int in 0<=i<n, 0<=j<3 { -> P.z<k,i,j,c> for k in 0..T-1, c in 0..1 }
input B<j,c> in 0<=j<3, 0<=c<2 { -> P.b<k,i,j,c> for k in 0..T-1, i in 0..n-1 }
input C<k,i,c> in 0<=k<T, 0<=i<n, 0<=c<2 { -> S.c_<k,i,c> }
input U<i> in 0<=i<n { -> V<i> }
node P<k,i,j,c> in 0<=k<T, 0<=i<n, 0<=j<3, 0<=c<2 { in z: int, b; q: int = 10 floordiv z; real(q)*b -> S.s<k,i,c> }
node S<k,i,c> in 0<=k<T, 0<=i<n, 0<=c<2 { in c_, @(+) s[3]; v = c_ > 0 ? s : 0.5*s*s; v -> Y<k,i,c> }
output Y<k,i,c> in 0<=k<T, 0<=i<n, 0<=c<2
output V<i>
"""


@GATHERS
@pytest.mark.parametrize(("steps", "z"), [(0, 0), (2, 0), (2, 3)])
def test_a_product_for_no_step_is_not_computed(steps: int, z: int, gather: str) -> None:
    c = -np.ones((steps, 2, 2)) if steps else np.ones((0, 0, 0))
    given = {"Z": np.full((2, 3), z), "B": np.ones((3, 2)), "C": c, "U": np.ones(2)}
    both(upl.load(APART), given, gather, T=steps, n=2)


TABLE = """program table
param P >= 1
const N = 30
const T = 20
input Z<j> in 0<=j<P { if j==LAST-1: #600 -> W.z<*,*> }
input X<i> in 0<=i<N { -> V.x<0,i> }
output Y<i> in 0<=i<N
node V<k,i> in 0<=k<=T, 0<=i<N {
  in x
  if k<T && P>=LAST: x -> W.x<k,i>
  if k<T && P<LAST: 0.5*x -> V.x<k+1,i>
  if k==T: x -> Y<i>
}
node W<k,i> in 0<=k<T, 0<=i<N, P>=LAST { in x, z; x + exp(0.01*z*(i+k)) -> V.x<k+1,i> }
"""


@GATHERS
def test_a_table_reads_nothing_that_is_not_there(gather: str) -> None:
    """Its function has an element of an array that is long enough for some sizes only."""
    program = upl.load(TABLE.replace("LAST", "5"))
    found = plan(program.infer_domains(), gather=gather)
    assert any(":table" in n for n in found.kept) and not list(faults(found))
    for p in (1, 4, 5, 6):
        compare(program, {"P": p}, "relaxed")


# -- errors -----------------------------------------------------------------------------------------------------------------
UNREAD = """program unread
const n = 4
input A<i,r>: int in 0<=i<n, 0<=r<3 { -> S.s<k,i> for k in 0..n-1 }
node S<k,i> in 0<=k<n, 0<=i<n { in @(+) s[3]: int; s -> L.s<k,i>; s -> M.s<k,i> }
node L<k,i> in 0<=k<n, 0<=i<n { in s: int; v = i > k ? real(s) : 0; v -> Y<k,i> }
node M<k,i> in 0<=k<n, 0<=i<n { in s: int; v = i > k ? 2*real(s) : 0; v -> Z<k,i> }
output Y<k,i>
output Z<k,i>
"""


@GATHERS
def test_sums_of_whole_numbers_that_nobody_reads_may_overflow(gather: str) -> None:
    a = np.arange(12).reshape(4, 3)
    both(upl.load(UNREAD), {"A": a}, gather)
    a[0] = 2**62
    both(upl.load(UNREAD), {"A": a}, gather)


# -- time tiles -------------------------------------------------------------------------------------------------------------
EVERY_SECOND = """program every_second
param n >= 4
param m >= 4
param T >= 1
input X<i,j> in 0<=i<n, 0<=j<m { -> U.u<0,i,j> }
input Z<t,j> in 0<=t<=T, 0<=j<m { if t>0 && t mod 2 == 0: -> U.u<t,0,j> }
node U<t,i,j> in 0<=t<=T, 0<=i<n, 0<=j<m {
  in u
  if t<T && t mod 2 == 0: u -> A.c<t+1,i,j>
  if t<T && t mod 2 == 1 && i>0: u -> V.v<t+1,i,j>
  if t==T: u -> Y<i,j>
  if t<T && t mod 2 == 1 && i==0: u -> E<t,j>
}
output E<t,j> in 0<t<T, t mod 2 == 1, 0<=j<m
node V<t,i,j> in 0<t<=T, t mod 2 == 0, 0<i<n, 0<=j<m { in v; 0.5*v -> U.u<t,i,j> }
node A<t,i,j> in 0<t<=T, t mod 2 == 1, 0<=i<n, 0<=j<m {
  in c
  a = tanh(c)
  if i > 1: a -> C.x<t,i-2,j>
  if i < 2: 0.5 -> C.x<t,n-1-i,j>
  a -> C.y<t,i,j>
  if i < n-1: a -> C.z<t,i+1,j>
  if i == n-1: 0.25 -> C.z<t,0,j>
}
node C<t,i,j> in 0<t<=T, t mod 2 == 1, 0<=i<n, 0<=j<m { in x, y, z; v = tanh(x) + 0.5*y + 0.1*z; v -> U.u<t,i,j> }
output Y<i,j>
"""


@GATHERS
def test_what_is_made_in_every_second_step_keeps_its_place(gather: str) -> None:
    """`A` has the same places in all steps, and elements in every second one: those of the next but one come too early."""
    program = upl.load(EVERY_SECOND)
    assert not list(faults(plan(program.infer_domains(), gather=gather)))
    for steps in (1, 2, 21):
        compare(program, {"n": 40, "m": 33, "T": steps}, gather)


NO_ENTRY = """program no_entry
const N[1:2] = [1, 2]
input X<m,l> in 1<=m<=2, 0<=l<=N[m]-1 { if 1>m-1 || l>N[m-1]-1: -> A.x<m,l> }
input Y<m,l> in 1<=m<=2, 0<=l<=N[m]-1 { -> B.x }
node A<m,l> in 1<=m<=2, 0<=l<=N[m]-1 {
  in x
  if !(1<=m-1 && l<=N[m-1]-1): x -> B.x
  if x<0.5: x -> B.z<m,l>
  if !(x<0.5): x -> B.z<m,l>
  if m+1<=2 && l<=N[m+1]-1: -> B.x<m+1,l>
}
node B<m,l> {
  in @(max) x[2], z
  v = z<0.5 ? z : z-x
  1.0 -> R<m,l>
  if m+1<=2 && l<=N[m+1]-1: v+v -> A.x<m+1,l>
}
output R<m,l>
"""


@GATHERS
def test_room_is_made_for_what_there_is(gather: str) -> None:
    """The last step would read an entry that does not exist: it makes nothing."""
    given = {"X": np.arange(4.0).reshape(2, 2), "Y": np.arange(4.0).reshape(2, 2)}
    both(upl.load(NO_ENTRY), given, gather)
