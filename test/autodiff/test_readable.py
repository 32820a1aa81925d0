"""Gradients as a person would write them: one derivative for each value, plain conditions and counts, a stencil's offsets.

The numbers of the same programs are compared with JAX in `test_jax.py`; here only the text is looked at.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import upl_mlir as upl

WANTED = {
    # the product that two arrows send is one value with one derivative; a domain is one chain
    ("cholesky", "L", "A"): """node DMul<i,j,k> in 0<=k<j<=i<n {  // adjoint of Mul
  in d_s, p, q
  d_s*q #n-k+1 -> DLow.d_l<i,k>
  d_s*p #n-k+1 -> DLow.d_l<j,k>
}""",
    # x+x and factors of two are gathered, signs stand in front, a count that needs no cases has none
    ("mds", "Stress", "X D"): """node DDiff<i,j,k> in 0<=i<j<n, 0<=k<K {  // adjoint of Diff
  in d_s, v
  2*d_s*v #n-1 -> DX.d_X<i,k>
  -2*d_s*v #n-1 -> DX.d_X<j,k>
}""",
    # of two derivatives one comes: a choice, not a sum
    ("lstm", "Y", "X W V"): """node DGate<t,g,j> in 1<=t<=T, 0<=g<=3, 0<=j<H {  // adjoint of Gate
  in @(+) d_enter[(g!=2 ? 1 : 0)], @(+) d_new[(g==2 ? 1 : 0)], z
  t1 = tanh(z)
  t2 = sigmoid(z)
  t3 = g != 2 ? d_enter*(t2*(1 - t2)) : d_new*(1 - t1*t1)
""",
    # a stencil goes back by the author's offsets; each neighbour counts where it is
    ("jacobi2d", "B", "A"): """node DMean<t,i,j> in 1<=t<=T, 1<=i<=m-2, 1<=j<=n-2 {  // adjoint of Mean
  in d_u
  d_u/5 -> DU.d_u<t-1,i-a,j-b> for a in -1..1, b in -1..1 if a==0 || b==0
}""",
    # zeros that nobody has to send are not sent
    ("diagonal", "Y", "A D"): """node DScale<i> in 0<=i<n {  // adjoint of Scale
  in d_Y, a, d
  d_Y*a -> d_D<i>
  d_Y*d -> d_A<i,i>
}
output d_A<i,j> in 0<=i<n, j==i  // derivative of the objective by A
""",
    # quotient and remainder, as in the primal
    ("reshape", "Y", "A W"): "  d_Y*w -> d_A<(c+4*r) floordiv 6,(c+4*r) mod 6>\n",
    # the offset is an entry of an array
    ("scan", "Y", "X"): "  if k>0 && i>=P[k-1]: d_s #2 -> DS.d_s<k-1,i-P[k-1]>\n",
}


@pytest.mark.parametrize(("name", "of", "wrt"), WANTED, ids=[w[0] for w in WANTED])
def test_an_adjoint_node_is_written_as_by_hand(tools, name, of, wrt) -> None:
    assert WANTED[name, of, wrt] in str(tools.vjp(name, of, wrt))


def test_tidied_quotients_are_equal() -> None:
    """At all small values: whole numbers inside, remainders, what has two quotients or another factor stays."""
    from upl_mlir.poly.describe import tidy
    from upl_mlir.poly.parse import parse_index

    texts = ["r + (c-2*r) floordiv 6", "c - 2*r - 6*((c-2*r) floordiv 6)", "c + 4*r - 6*((c-2*r) floordiv 6)"]
    texts += ["2 + c floordiv 4", "c - 5 - 4*((c-1) floordiv 4)", "c - 3*(c floordiv 4)", "c floordiv 2 + r floordiv 3"]
    for text in texts:
        e = parse_index(text)
        for c in range(-7, 8):
            for r in range(-7, 8):
                at = {"c": c, "r": r}
                assert tidy(e).evaluate(at, lambda _a, _i: 0) == e.evaluate(at, lambda _a, _i: 0), (text, at)
    assert [str(tidy(parse_index(t))) for t in texts[:2]] == ["(c+4*r) floordiv 6", "(c+4*r) mod 6"]


def test_each_neighbour_of_a_stencil_counts_where_it_is(tools) -> None:
    text = str(tools.vjp("jacobi2d", "B", "A"))
    (count,) = re.findall(r"in @\(\+\) d_u\[(.*)\]", text)
    assert count.count("? 1 : 0)") == 4 and count.endswith("+1")


def test_exceptions_are_said_as_such(tools) -> None:
    """``i!=k && j!=k``, not the four quadrants; results come behind the nodes that serve them."""
    text = str(tools.vjp("floyd_warshall", "S", "W"))
    assert "i>k" not in text and "i!=k && j!=k" in text
    assert text.rstrip().splitlines()[-1].startswith("output d_W")


def test_the_zeros_that_are_not_sent_are_there(tools, rng) -> None:
    """The array keeps the shape of A; a derivative of it may be asked for again."""
    given = {"A": rng.normal(size=(4, 4)), "D": rng.normal(size=4), "d_Y": rng.normal(size=4)}
    g = tools.vjp("diagonal", "Y", "A D")
    run = upl.compile(g)
    np.testing.assert_array_equal(run(**given)["d_A"], np.diag(given["d_Y"] * given["D"]))
    value = upl.compile(tools.load("diagonal"))
    value(A=given["A"], D=given["D"])
    assert sum(run.stats["firings"].values()) == sum(value.stats["firings"].values()) + 4
    again = upl.compile(upl.vjp(g, of="d_A", wrt="D"))
    seed = rng.normal(size=(4, 4))
    np.testing.assert_allclose(again(**given, d_d_A=seed)["d_D_2"], np.diagonal(seed) * given["d_Y"], rtol=1e-15)


def test_a_shape_that_the_zeros_make_is_kept(tools) -> None:
    """Only the first two elements count: the others' zeros are sent, so that the array is as large as X."""
    p = "program p\nparam n >= 3\ninput X<i> in 0<=i<n { if i<2: -> S.s<>; if i>=2: -> T.s<> }\noutput L\noutput M\n"
    p += "node S { in @(+) s[2]; s*s -> L }\nnode T { in @(+) s[n-2]; -> M }"
    out = upl.compile(tools.vjp(p, "L", "X"))(X=np.array([1.0, 2.0, 5.0, 7.0]))
    np.testing.assert_array_equal(out["d_X"], [6.0, 6.0, 0.0, 0.0])


def product(body: str, names: str) -> str:
    """A node whose inputs are elements of arrays of that name, and R is what `body` computes."""
    inputs = "".join(f"input {v.upper()}<i> in 0<=i<n {{ -> S.{v} }}\n" for v in names)
    return (
        f"program p\nparam n >= 1\n{inputs}output R<i>\nnode S<i> in 0<=i<n {{ in {', '.join(names)}; {body} -> R }}\n"
    )


def test_one_value_is_sent_where_it_is_all_that_a_derivative_reads(tools) -> None:
    """By x alone: the factor that was computed from y and z, not both, which derivatives by them would read."""
    text = str(tools.vjp(product("x*sin(y*z)", "xyz"), "R", "X"))
    assert "node DS<i> in 0<=i<n { in d_R, v1; d_R*v1 -> d_X<i> }" in text


def test_what_two_names_are_given_is_one_value(tools) -> None:
    """Of which there is one derivative."""
    assert " 2*d_R*w*v -> d_X<i>" in str(tools.vjp(product("v = exp(x); w = exp(x); v*w", "x"), "R", "X"))


def test_twice_through_arrows_whose_iterators_are_named_like_fields(tools, rng) -> None:
    """The derivative of a derivative: its arrows' iterators must not meet the fields of what they come back to."""
    g = tools.vjp("scan", "Y", "X", K=3, P=(1, 2, 4, 7))
    h = upl.vjp(upl.load(str(g)), of="d_X", wrt="d_Y")
    symbolic = upl.vjp(tools.vjp("scan", "Y", "X"), of="d_X", wrt="d_Y")
    assert all(o.status.name == "PROVED" for o in symbolic.check().obligations)
    seed = rng.normal(size=7)
    out = upl.compile(h)(X=np.zeros(7), d_Y=np.zeros(7), d_d_X=seed)
    np.testing.assert_allclose(out["d_d_Y"], np.cumsum(seed), rtol=1e-14)
