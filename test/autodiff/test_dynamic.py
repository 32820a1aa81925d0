"""Reverse mode through branches, loops and indices that data decide: against closed forms and forward mode."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl

INPUTS = Path(__file__).resolve().parents[1] / "Inputs"

NEWTON = (INPUTS / "newton.upl").read_text(encoding="utf-8")

BRANCH = """program branch
param n >= 1
input X<i> in 0<=i<n { -> N.x<i> }
output Y<i>
node N<i> { in x; c: bool = x > 0; if c: x -> A.x<i>; if !c: x*3 -> B.x<i> }
node A<i> in 0<=i<n { in x; x*x -> C.s<i> }
node B<i> in 0<=i<n { in x; sin(x) -> C.s<i> }
node C<i> in 0<=i<n { in s; s*s -> Y<i> }
"""

SPARSE = """program sparse
const m = 4
const w = 3
input V<i,p> in 0<=i<m, 0<=p<w { -> E.v<i,p> }
input C<i>: int in 0<=i<m { #w -> E.cnt<i,*>; -> Dot.n<i> }
input X<i,p> in 0<=i<m, 0<=p<w { -> E.x<i,p> }
output Y<i>
node E<i,p> { in v, x, cnt: int; if p<cnt: v*log(x) -> Dot.s<i> }
node Dot<i> in 0<=i<m { in @(+) s[n], n: int; s*s -> Y<i> }
"""

SCATTER = """program scatter
param n >= 1
input X<i> in 0<=i<n { -> P.x<i> }
input I<i>: int in 0<=i<n { -> P.j<i> }
output Y<i> in 0<=i<n
node P<i> { in x, j: int; x*x -> Y<j> }
"""

LOOP = """program loop
const M = 30
param n >= 1
input X<i> in 0<=i<n { -> S.x<i,0> }
output Y<i>
node S<i,k> in 0<=i<n, 0<=k<M {
  in x
  y = x*x/2 + 0.3
  more: bool = abs(y-x) > 0.01
  if more && k<M-1: y -> S.x<i,k+1>
  if !more: y*y -> Y<i>
  if more && k==M-1: y -> Y<i>
}
"""

OUTPUT = """program direct
param n >= 1
input X<i> in 0<=i<n { -> N.x<i> }
output Y<i>
node N<i> { in x; c: bool = x > 0; if c: x*x -> Y<i>; if !c: sin(x) -> Y<i> }
"""

EITHER = """program either
param n >= 1
input X<i> in 0<=i<n { if X > 0: X*X -> A.x<i>; if !(X > 0): X -> A.x<i> }
output Y<i> in i==0
node A<i> in 0<=i<n { in x; x*x*x #n -> S.s<> }
node S { in @(+) s[#]; s -> Y<0> }
"""

CLIPPED = """program clipped
param n >= 1
input X<i> in 0<=i<n { -> A.x<i> }
output Y<i> in i==0
node A<i> in 0<=i<n {
  in x
  big: bool = x > 0.6
  if big: x*x -> S.s<>
  if !big: 0.0 -> S.s<>
  if big: x -> B.x<i>
  if !big: 1.0 -> B.x<i>
}
node B<i> in 0<=i<n { in x; log(x) -> S.s<> }
node S { in @(+) s[2*n]; s*s -> Y<0> }
"""

CASES = [
    ("branch at an output", OUTPUT, "X", {"X": [0.7, -1.2, 0.1, -0.3]}),
    ("branch of a host input", EITHER, "X", {"X": [0.7, -1.2, 0.1, -0.3]}),
    ("branches that meet in a gather", CLIPPED, "X", {"X": [0.7, 0.2, 1.1, 0.5]}),
    ("branch", BRANCH, "X", {"X": [0.7, -1.2, 0.1, -0.3]}),
    ("token counts", SPARSE, "V X", {"V": (4, 3), "X": "positive", "C": [0, 2, 3, 1]}),
    ("scatter", SCATTER, "X", {"X": (5,), "I": [3, 1, 0, 4, 2]}),
    ("loop", LOOP, "X", {"X": [0.1, 0.5, 0.85, 0.35]}),
]


def data(spec, rng):
    """Arrays for a case: given, random of a shape, or positive."""
    return {
        n: {str: lambda _: rng.uniform(0.5, 2, (4, 3)), tuple: rng.standard_normal, list: np.array}[type(v)](v)
        for n, v in spec.items()
    }


@pytest.mark.parametrize(("name", "text", "wrt", "spec"), CASES, ids=[c[0] for c in CASES])
def test_reverse_is_the_transpose_of_forward(name, text, wrt, spec, tools, rng):
    given = data(spec, rng)
    p = upl.load(text)
    seed = rng.standard_normal(p.outputs["Y"].shape(**({"n": len(given["X"])} if p.params else {})))
    out = tools.consistent(tools.vjp(text, "Y", wrt), {**given, "d_Y": seed}, proved=False)
    v = {n: rng.standard_normal(given[n].shape) for n in wrt.split()}
    t = upl.compile(upl.jvp(p, of="Y", wrt=wrt.split()))(**given, **{f"t_{n}": x for n, x in v.items()})
    np.testing.assert_allclose(np.sum(seed * t["t_Y"]), sum(np.sum(out[f"d_{n}"] * v[n]) for n in v), rtol=1e-12)
    run = upl.compile(p)
    for n in wrt.split():
        slopes = tools.slopes(lambda a: np.sum(seed * run(**a)["Y"]), given, n, h=1e-5)
        np.testing.assert_allclose(out[f"d_{n}"], slopes, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("name", "text", "wrt", "spec"), CASES, ids=[c[0] for c in CASES])
def test_second_order(name, text, wrt, spec, rng):
    given = data(spec, rng)
    p = upl.load(text)
    params = {"n": len(given["X"])} if p.params else {}
    upl.check_grads(p, of="Y", wrt=wrt.split(), inputs=given, params=params, order=2)


def test_an_element_that_was_not_sent_brings_no_nan(rng):
    """log(x) of an element beyond the row's count: its partial is infinite, its derivative 0."""
    given = data(next(c for c in CASES if c[0] == "token counts")[3], rng)
    given["X"][0, 0] = 0.0
    out = upl.compile(upl.vjp(upl.load(SPARSE), of="Y", wrt=["V", "X"]))(**given, d_Y=np.ones(4))
    assert out["d_X"][0, 0] == 0 and out["d_V"][0, 0] == 0
    assert not np.isnan(out["d_X"]).any() and not np.isnan(out["d_V"]).any()


def test_newton_with_its_own_exit(tools):
    """d sqrt(a)/da = 1/(2 sqrt(a)); the start does not matter.  The iterations that ran are the ones differentiated."""
    g = tools.vjp(NEWTON, "Root", "A X0")
    for a in (2.0, 0.3, 50.0):
        out = tools.consistent(g, {"A": a, "X0": 1.5}, proved=False)
        np.testing.assert_allclose(out["d_A"], 0.5 / np.sqrt(a), rtol=1e-9)
        assert abs(out["d_X0"]) < 1e-9
        run = upl.compile(g)
        run(A=a, X0=1.5)
        assert run.stats["firings"]["DIt"] == run.stats["firings"]["It"] == out["Steps"] + 1
    second = upl.compile(upl.hvp(upl.load(NEWTON), of="Root", wrt="A"))(A=2.0, X0=1.5, t_A=1.0)
    np.testing.assert_allclose(second["t_d_A"], -0.25 * 2.0**-1.5, rtol=1e-6)


def test_a_value_sent_exactly_once_needs_no_count(tools):
    """``if c`` and ``if !c``: one token goes out whatever the data, so one derivative comes back."""
    text = str(tools.vjp(NEWTON, "Root", "A"))
    assert "in d_y, @(+) d_a[n_a]" in text


def test_disjoint_sources_need_no_identifier(tools):
    assert "by_x" not in str(tools.vjp(NEWTON, "Root", "A"))
    assert "by_s: int" in str(tools.vjp(BRANCH, "Y", "X"))


CONDITIONS = {
    "X > 0 || X < -1": lambda x, i: (x > 0) | (x < -1),
    "X > 0 && X < 1": lambda x, i: (x > 0) & (x < 1),
    "X > 0 || i == 1": lambda x, i: (x > 0) | (i == 1),
    "!(X > 0) || !(X < 1) && i > 0": lambda x, i: (x <= 0) | ((x >= 1) & (i > 0)),
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_of_two_arrows_one_sends_whatever_the_condition(tools, condition):
    """``if c`` and ``if !c`` with `c` made of several: every instance fires, so a sum over all of them can go back."""
    g = tools.vjp(EITHER.replace("X > 0", condition), "Y", "X")
    x = np.array([-2.0, -0.5, 0.5, 2.0])
    c = CONDITIONS[condition](x, np.arange(4))
    assert 0 < c.sum() < 4
    found = upl.compile(g)(X=x, d_Y=[2.0])["d_X"]
    np.testing.assert_allclose(found, 2 * np.where(c, 6 * x**5, 3 * x**2), rtol=1e-14)


UNKNOWN_SUM = """program p
const M = 9
input X { -> S.x<0> }
input n: int { -> T.n }
output L
node S<k> in 0<=k<M { in x; more: bool = x<1; x*x -> T.s<>; if more && k<M-1: x+x -> S.x<k+1> }
node T { in @(+) s[n], n: int; s -> L }
"""
UNKNOWN_USES = """program p
const M = 9
input X { -> S.x<0> }
input A { ## -> S.a<*> }
output L
node S<k> in 0<=k<M {
  in x, a
  more: bool = x<1
  if more && k<M-1: x*a -> S.x<k+1>
  if !(more && k<M-1): x -> L
}
"""


def test_a_gather_of_as_many_iterations_as_data_say(tools):
    """S fires for 0.3, 0.6 and 1.2, so L = X² + (2X)² + (4X)²."""
    out = tools.consistent(upl.grad(upl.load(UNKNOWN_SUM), of="L", wrt="X"), {"X": 0.3, "n": 3}, proved=False)
    np.testing.assert_allclose(out["d_X"], 2 * 0.3 * (1 + 4 + 16), rtol=1e-14)


def test_a_value_that_as_many_instances_use_as_data_say(tools):
    """0.3, 0.6, 1.2: L = X·A², and A is used twice."""
    for wrt, slope in (("A", 2 * 0.3 * 2.0), ("X", 4.0)):
        out = tools.consistent(upl.grad(upl.load(UNKNOWN_USES), of="L", wrt=wrt), {"X": 0.3, "A": 2.0}, proved=False)
        np.testing.assert_allclose(out[f"d_{wrt}"], slope, rtol=1e-14)


def test_a_derivative_by_an_input_of_instances_that_data_make_fire(tools):
    """It is 0 where none fired; all together are the derivative by the host input that feeds them."""
    p = upl.load(NEWTON)
    out = tools.consistent(upl.grad(p, of="Root", wrt="It.a"), {"A": 2.0, "X0": 1.5}, proved=False)
    steps = int(upl.compile(p)(A=2.0, X0=1.5)["Steps"])
    assert out["d_It_a"][: steps + 1].any() and not out["d_It_a"][steps + 1 :].any()
    whole = upl.compile(upl.grad(p, of="Root", wrt="A"))(A=2.0, X0=1.5)["d_A"]
    np.testing.assert_allclose(out["d_It_a"].sum(), whole, rtol=1e-12)


def test_a_value_sent_to_two_instances_or_to_none(tools):
    """As many derivatives are waited for as tokens were sent: none where the condition does not hold."""
    text = """program choose
input X<i> in 0<=i<3 { -> A.x }
output R<i>
node A<i> in 0<=i<3 {
  in x
  p: bool = x > 0
  if p: x -> P.a<i,j> for j in 0..1
  if p: 3.0 -> P.w<i,j> for j in 0..1
  if !p: 5.0 -> T.r<i>
}
node P<i,j> in 0<=i<3, 0<=j<2 { in a, w; if j==0: a*w -> Q.u<i>; if j==1: a*w -> Q.v<i> }
node Q<i> in 0<=i<3 { in u, v; u+v -> T.r<i> }
node T<i> in 0<=i<3 { in r; r*r -> R }
"""
    x, d = np.array([0.5, -1.0, 2.0]), np.array([1.0, 2.0, 3.0])
    out = upl.compile(tools.vjp(text, "R", "X"))(X=x, d_R=d)
    np.testing.assert_array_equal(out["R"], np.where(x > 0, (6 * x) ** 2, 25.0))
    np.testing.assert_array_equal(out["d_X"], np.where(x > 0, 72 * x * d, 0.0))


STAGES = """program stages
const K = 3
const N[1:3] = [4, 5, 4]
const U[1:3] = [2, 4, 3]
input S<k,i>: int in 1<=k<=K, 0<=i<4 { -> Give.j<k,i> }
input Z<i> in 0<=i<4 { -> R.x<0,i> }
input A<k,i> in 1<=k<=K, 0<=i<N[k] { -> Cell.a; -> Own.a }
input G<k,i>: int in 1<=k<=K, 0<=i<N[k] { -> Own.g }
input T<k,i> in 1<=k<=K, 0<=i<U[k] { -> Give.t }
input F<k,i> in 1<=k<=K, U[k]<=i<4 { -> Give.t }
output L<i>
node R<k,i> in 0<=k<=K, 0<=i<4 { in x; if k<K: x -> Give.x<k+1,i>; if k==K: x -> L<i> }
node Give<k,i> in 1<=k<=K, 0<=i<4 { in x, t, j: int; if j>=0: x*t -> Cell.s<k,j> }
node Own<k,i> in 1<=k<=K, 0<=i<N[k] { in a, g: int; if g==1: a -> Cell.s<k,i> }
node Cell<k,i> in 1<=k<=K, 0<=i<N[k] { in s, a; if i<4: sin(s)*a -> R.x<k,i> }
"""


def stages_data(rng):
    """Every stage sends its four values to places of the next that data choose; those left out take their own."""
    targets = np.array([[2, 0, -1, 1], [4, -1, 0, 2], [1, 2, 0, -1]])
    own = np.array([[i not in row for i in range(5)] for row in targets], dtype=int)
    own[[0, 2], 4] = 0
    return {
        "S": targets, "G": own, "A": rng.standard_normal((3, 5)), "Z": rng.standard_normal(4),
        "T": rng.standard_normal((3, 4)), "F": rng.standard_normal((3, 2)),
    }  # fmt: skip


@pytest.mark.parametrize("wrt", ["A", "T", "Z", "A T"])
@pytest.mark.parametrize("engine", ["interp", "token"])
def test_only_live_instances_are_answered_where_the_index_is_data(wrt, engine, tools, rng):
    """By A alone nothing goes back to the first stage's `Give`, by T only for some i: who answers must know from the data
    whether the source that served it wants a derivative, for no count of tokens comes to one that does not."""
    given, p = stages_data(rng), upl.load(STAGES)
    seed = rng.standard_normal(4)
    out = upl.compile(tools.vjp(STAGES, "L", wrt), engine=engine)(**given, d_L=seed)
    run = upl.compile(p, engine=engine)
    for n in wrt.split():
        slopes = tools.slopes(lambda a: np.sum(seed * run(**a)["L"]), given, n, h=1e-4)
        np.testing.assert_allclose(out[f"d_{n}"], slopes, rtol=1e-7, atol=1e-9)
    upl.check_grads(p, of="L", wrt=wrt.split(), inputs=given, order=2)


def test_a_dead_instance_gets_nothing(tools, rng):
    """The first stage's `Give` has no adjoint by A: the condition on the data says so."""
    g = tools.vjp(STAGES, "L", "A")
    assert "node DGive<k,i> in 2<=k<=K" in str(g)
    tools.consistent(g, {**stages_data(rng), "d_L": rng.standard_normal(4)}, proved=False)


UNBOUNDED = """program unbounded
input X<i> in 0<=i<4 { -> It.x<i,0> }
input A<i> in 0<=i<4 { -> It.a<i,0> }
output Y<i> in 0<=i<4
node It<i,k> in 0<=i<4, 0<=k {
  in x, a
  c: bool = x > 0.1
  if c: a*sin(x) -> It.x<i,k+1>
  if c: a -> It.a<i,k+1>
  if !c: x*a -> Y<i>
}
"""


@pytest.mark.parametrize("engine", ["interp", "token"])
def test_second_derivatives_of_a_loop_without_a_bound(engine) -> None:
    """Reverse over reverse, against differences of the first derivative; it stranded tokens behind the last round."""
    x, a, w = np.array([0.5, 1.2, 0.01, 0.3]), np.array([0.7, 0.9, 0.3, -0.4]), np.array([0.3, -1.1, 2.0, 0.7])
    g = upl.vjp(upl.load(UNBOUNDED), of="Y", wrt=["X", "A"])
    first = upl.compile(g, engine=engine)
    for by in ("X", "A"):
        h = upl.vjp(g, of=f"d_{by}", wrt=["X", "A"])
        assert h.check().ok
        out = upl.compile(h, engine=engine)(X=x, A=a, d_Y=w, **{f"d_d_{by}": np.ones(4)})
        new = [n for n in h.outputs if n not in g.outputs]
        step = 1e-6
        for name, moved in zip(new, ("X", "A"), strict=True):
            at = {"X": x, "A": a}
            ahead, behind = (first(**{**at, moved: at[moved] + s}, d_Y=w)[f"d_{by}"] for s in (step, -step))
            np.testing.assert_allclose(out[name], (ahead - behind) / (2 * step), rtol=1e-7, atol=1e-8)
            assert np.any(out[name])
