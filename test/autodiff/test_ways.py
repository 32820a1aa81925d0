"""Values for which data choose the way: reverse mode answers the way taken, against forward mode and differences."""

from __future__ import annotations

import numpy as np
import pytest

import upl_mlir as upl

HEAD = "program ways\ninput X<i> in 0<=i<3 { -> A.x }\noutput R<i> in 0<=i<3\n"
PAIRS = "node P<i,j> in 0<=i<3, 0<=j<2 { in a, w; if j==0: a*w -> Q.u<i>; if j==1: sin(a)*w -> Q.v<i> }\n"
END = "node T<i> in 0<=i<3 { in r; r*r -> R }\n"
TWO = "node T<i> in 0<=i<3 { in r, q; r*sin(q) -> R }\n"

WAYS = {
    "to a row of nodes, or straight on": """
node A<i> in 0<=i<3 {
  in x
  p: bool = x > 0
  if p: x -> P.a<i,j> for j in 0..1
  if p: cos(x) -> P.w<i,j> for j in 0..1
  if !p: x -> T.r<i>
}
node Q<i> in 0<=i<3 { in u, v; u+v -> T.r<i> }
""" + PAIRS + END,
    "three ways": """
node A<i> in 0<=i<3 {
  in x
  p: bool = x > 0
  q: bool = x > -0.5
  if p: x -> P.a<i,j> for j in 0..1
  if p: x*x -> P.w<i,j> for j in 0..1
  if !p && q: x*x -> B.x<i>
  if !p && !q: x*x -> T.r<i>
}
node B<i> in 0<=i<3 { in x; sin(x) -> T.r<i> }
node Q<i> in 0<=i<3 { in u, v; u*v -> T.r<i> }
""" + PAIRS + END,
    "conditions within, through two nodes, to another index": """
node A<i> in 0<=i<3 { in x; p: bool = x > 0; if p: x -> B.x<2-i>; if !p: x -> T.r<i> }
node B<i> in 0<=i<3 { in x; p: bool = x > 1; if p: x*x -> C.x<i>; if !p: cos(x) -> T.r<2-i> }
node C<i> in 0<=i<3 { in x; x*x -> T.r<2-i> }
""" + END,
    "one value to two inputs": """
node A<i> in 0<=i<3 { in x; p: bool = x > 0; if p: x -> B.x<i>; if !p: x*x -> T.r<i>; if !p: x -> T.q<i> }
node B<i> in 0<=i<3 { in x; y = x*1.5; y -> T.r<i>; y -> T.q<i> }
""" + TWO,
    "to an output": """
node A<i> in 0<=i<3 { in x; p: bool = x > 0; if p: x -> B.x<i>; if !p: x*x -> R<i> }
node B<i> in 0<=i<3 { in x; p: bool = x > 1; if p: x -> R<i>; if !p: x*sin(x) -> R<i> }
""",
    "to the right or to the left": """
input D { #3 -> S.d<*>; if D > 0: 1 -> S.x<0>; if !(D > 0): 1 -> S.x<2> }
output Last
node A<i> in 0<=i<3 { in x; x -> S.a<i> }
node S<i> in 0<=i<3 {
  in a, d, x
  right: bool = d > 0
  y = x*cos(a)
  if right && i<2: y -> S.x<i+1>
  if !right && i>0: y -> S.x<i-1>
  if right && i==2 || !right && i==0: y -> Last
  y*y -> R<i>
}
""",
}  # fmt: skip
XS = [np.array([0.7, -0.3, 1.2]), np.array([-0.9, 1.3, 0.4])]


@pytest.mark.parametrize("way", WAYS)
def test_the_way_that_was_taken_is_answered(way, tools, rng):
    p = upl.load(HEAD + WAYS[way])
    g = upl.vjp(p, of="R", wrt="X")
    run, back, along = upl.compile(p), upl.compile(g), upl.compile(upl.jvp(p, of="R", wrt="X"))
    for n, x in enumerate(XS):
        given = {"X": x} | ({"D": (-1.0) ** n} if "D" in p.inputs else {})
        d, v = rng.standard_normal(3), rng.standard_normal(3)
        if n == 0:
            tools.consistent(g, {**given, "d_R": d}, proved=False)
        found = back(**given, d_R=d)["d_X"]
        tangent = along(**given, t_X=v)["t_R"]
        np.testing.assert_allclose(d @ tangent, found @ v, rtol=1e-12)
        slopes = tools.slopes(lambda a, d=d: d @ run(**a)["R"], given, "X")
        np.testing.assert_allclose(found, slopes, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("way", ["three ways", "one value to two inputs"])
def test_second_order(way, rng):
    g = upl.vjp(upl.load(HEAD + WAYS[way]), of="R", wrt="X")
    back, along = upl.compile(g), upl.compile(upl.jvp(g, of="d_X", wrt="X"))
    d, v, h = rng.standard_normal(3), rng.standard_normal(3), 1e-5
    for x in XS:
        slope = (back(X=x + h * v, d_R=d)["d_X"] - back(X=x - h * v, d_R=d)["d_X"]) / (2 * h)
        np.testing.assert_allclose(along(X=x, d_R=d, t_X=v)["t_d_X"], slope, rtol=1e-6, atol=1e-8)


def test_the_token_engine_takes_the_derivative():
    g = upl.vjp(upl.load(HEAD + WAYS["to a row of nodes, or straight on"]), of="R", wrt="X")
    given = {"X": XS[0], "d_R": np.array([1.0, 2.0, 3.0])}
    np.testing.assert_array_equal(upl.compile(g, engine="token")(**given)["d_X"], upl.compile(g)(**given)["d_X"])


SUMS = """program sums
input X<i> in 0<=i<3 { -> S.a<i> }
input D { #3 -> S.d<*> }
input N<i>: int in 0<=i<3 { -> S.n<i> }
output R<i> in 0<=i<3
node S<i> in 0<=i<3 {
  in a, d, @(+) x[n], n: int
  p: bool = d > 0
  y = x*sin(a)+a
  if p && i<2: y -> S.x<i+1>
  if !p && i>0: y -> S.x<i-1>
  y*y -> R<i>
}
"""


def test_sums_that_data_make_wait_for_each_other():
    """Data say from which side the summands come; the answers go back to that side only."""
    x, d = np.array([0.3, 0.4, 0.5]), np.array([1.0, 2.0, 3.0])
    g = upl.vjp(upl.load(SUMS), of="R", wrt="X")
    for right in (True, False):
        total, slope = 0.0, np.zeros(3)
        values, order = np.zeros(3), list(range(3)) if right else [2, 1, 0]
        for i in order:  # y = x*sin(a)+a along the way, R = y²
            values[i] = total * np.sin(x[i]) + x[i]
            total, before = values[i], total
            slope[i] = before * np.cos(x[i]) + 1
        back, want = 0.0, np.zeros(3)
        for i in reversed(order):
            at = back + 2 * d[i] * values[i]
            want[i], back = at * slope[i], at * np.sin(x[i])
        n = [0, 1, 1] if right else [1, 1, 0]
        found = upl.compile(g)(X=x, D=1.0 if right else -1.0, N=n, d_R=d)["d_X"]
        np.testing.assert_allclose(found, want, rtol=1e-14)


def test_sums_that_data_may_send_nowhere():
    one = upl.vjp(upl.load(SUMS.replace("  if !p && i>0: y -> S.x<i-1>\n", "")), of="R", wrt="X")
    x, d = np.array([0.3, 0.4, 0.5]), np.array([1.0, 2.0, 3.0])
    found = upl.compile(one)(X=x, D=-1.0, N=[0, 0, 0], d_R=d)["d_X"]
    np.testing.assert_allclose(found, 2 * d * x, rtol=1e-14)
