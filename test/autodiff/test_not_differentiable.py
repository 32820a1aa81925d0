"""Programs without a derivative: an error with position, and the instance where it fails; never a silent zero.

What may be rounded, compared or sent twice all the same has its tests beside each error.
"""

from __future__ import annotations

import numpy as np
import pytest

import upl_mlir as upl

HEAD = "program p\n"
SUM_OF_INTS = "input X<i> in 0<=i<3 { -> F.x }\noutput Y\nnode F<i> { in x; int(x) -> G.n<> }\n"
TWO_OUTPUTS = "input X<i> in 0<=i<8 { -> F.x }\noutput Y<i>\noutput Z<i>\n"
ROUNDED = [
    ("input X { -> F.x }\noutput Y\nnode F { in x; floor(x)*2 -> Y }", "floor", "F<>", 4),
    ("input X { -> F.x }\noutput Y\nnode F { in x; x + floor(x)*2 -> Y }", "floor", "F<>", 4),
    ("input X { -> F.x }\noutput Y\nnode F { in x; n: int = int(x); n*2.0 -> Y }", "int", "F<>", 4),
    # the integer travels: as a token, through a sum of integers, into an extremum
    ("input X { -> F.x }\noutput Y\nnode F { in x; int(x) -> G }\nnode G { in n: int; n*1.0 -> Y }", "int", "F<>", 4),
    (f"{SUM_OF_INTS}node G {{ in @(+) n[3]: int; n*1.0 -> Y }}", "int", "F<0>", 4),
    ("input X<i> in 0<=i<3 { -> F.x }\noutput Y<i>\nnode F<i> { in x; max(x, int(x)) -> Y }", "int", "F<0>", 4),
    ("const A[0:2] = [1.5, 2.5, 3.5]\ninput X { -> F.x }\noutput Y\nnode F { in x; A[int(x)] -> Y }", "int", "F<>", 5),
    # only three instances reach Y
    (f"{TWO_OUTPUTS}node F<i> {{ in x; if i<3: (i>0 ? floor(x) : x) -> Y<i>; floor(x) -> Z }}", "floor", "F<0>", 5),
]  # fmt: skip


@pytest.mark.parametrize("mode", [upl.vjp, upl.jvp])
@pytest.mark.parametrize(("text", "word", "instance", "line"), ROUNDED)
def test_a_rounded_value_on_the_way_is_refused(mode, text, word, instance, line) -> None:
    with pytest.raises(upl.UplError, match="UPL1402") as e:
        mode(upl.load(HEAD + text), of="Y", wrt="X")
    (found,) = e.value.diagnostics
    assert f"`{word}` has no derivative, and `Y` depends on `X` through its value, at {instance}" in found.message
    assert found.span is not None and found.span.line == line
    assert f"{word}(stop_gradient(...))" in (found.help or "")


ROUNDED_FREELY = [
    # told to pass nothing; compared; not on the way; behind what is differentiated by
    ("node F { in x; x*floor(stop_gradient(x)) -> Y }", 2.0),
    ("node F { in x; x*stop_gradient(floor(x)) -> Y }", 2.0),
    ("node F { in x; with_derivative(floor(x), x, 3) -> Y }", 3.0),
    ("node F { in x; floor(x) > 1 ? x*x : x -> Y }", 5.0),
    ("node F { in x; x*x -> Y; int(x) -> Z }\noutput Z: int", 5.0),
    ("input W { -> F.w }\nnode F { in x, w; x*floor(w) -> Y }", 7.0),
]


@pytest.mark.parametrize(("text", "slope"), ROUNDED_FREELY)
def test_what_may_be_rounded(text, slope) -> None:
    p = upl.load(HEAD + "input X { -> F.x }\noutput Y\n" + text)
    given = {"X": 2.5, **({"W": 7.5} if "W" in p.inputs else {})}
    assert upl.compile(upl.grad(p, of="Y", wrt="X"))(**given)["d_X"] == slope
    assert upl.compile(upl.jvp(p, of="Y", wrt="X"))(**given, t_X=1.0)["t_Y"] == slope


def test_an_index_may_be_rounded() -> None:
    """A permutation that the data choose: the derivative goes back where the value came from."""
    text = "input X<i> in 0<=i<3 { -> F.x }\ninput K<i> in 0<=i<3 { -> F.k }\noutput Y<i> in 0<=i<3\n"
    text += "node F<i> { in x, k; j: int = int(k); j -> G.j; x -> G.x }\nnode G<i> { in x, j: int; x*x -> Y<j> }"
    out = upl.compile(upl.vjp(upl.load(HEAD + text), of="Y", wrt="X"))(
        X=np.array([1.0, 2.0, 3.0]), K=np.array([2.0, 0.0, 1.0]), d_Y=np.array([1.0, 10.0, 100.0])
    )
    np.testing.assert_array_equal(out["d_X"], [200.0, 4.0, 60.0])


TWICE = [
    ("input X<i> in 0<=i<3 { -> F.x<0> }\noutput Y<i> in 0<=i<1\nnode F<i> { in x; x*x -> Y<i> }",
     "two tokens of X -> F.x reach F<0>", 2),
    ("param n >= 16\ninput X<i> in 0<=i<n { -> F.x<i floordiv 2> }\noutput Y<i>\nnode F<i> { in x; x*x -> Y<i> }",
     "two tokens of X -> F.x reach F<0> (n=16)", 3),
    ("const N[0:3] = [0, 1, 1, 2]\ninput X<i> in 0<=i<4 { -> F.x<N[i]> }\noutput Y<i>\nnode F<i> { in x; x*x -> Y<i> }",
     "two tokens of X -> F.x reach F<1>", 3),
    ("input X<i> in 0<=i<4 { -> F.x }\ninput Z<i> in 3<=i<5 { -> F.x }\noutput Y<i>\nnode F<i> { in x; x*x -> Y<i> }",
     "F<3> gets a token from X -> F.x and another from Z -> F.x", 3),
    ("input X<i> in 0<=i<4 { -> F.x }\noutput Y\nnode F<i> { in x; x*x -> Y }", "two tokens of F -> Y reach Y<>", 4),
]  # fmt: skip


@pytest.mark.parametrize("mode", [upl.vjp, upl.jvp])
@pytest.mark.parametrize(("text", "why", "line"), TWICE)
def test_an_instance_that_fires_twice_is_refused(mode, text, why, line) -> None:
    with pytest.raises(upl.UplError, match="UPL1407") as e:
        mode(upl.load(HEAD + text), of="Y", wrt="X")
    (found,) = e.value.diagnostics
    assert why in found.message and found.span is not None and found.span.line == line


def test_a_table_that_maps_one_to_one_is_no_obstacle() -> None:
    """The index is inverted by a search over the fibre; summands may come together."""
    text = (
        "const N[0:3] = [3, 1, 2, 0]\ninput X<i> in 0<=i<4 { -> F.x<N[i]> }\noutput Y<i>\nnode F<i> { in x; x*x -> Y }"
    )
    given = {"X": np.array([1.0, 2.0, 3.0, 4.0]), "d_Y": np.array([1.0, 10.0, 100.0, 1000.0])}
    out = upl.compile(upl.vjp(upl.load(HEAD + text), of="Y", wrt="X"))(**given)
    np.testing.assert_array_equal(out["d_X"], [2000.0, 40.0, 600.0, 8.0])


SQUARES = """input X<i> in 0<=i<n { -> F.x<i*i> }
output Y
node F<i> { in x; x*x #n -> S.s<> }
node S { in @(+) s[#]; -> Y }
"""


@pytest.mark.parametrize("engine", ["interp", "token"])
def test_an_index_that_is_not_affine(engine: str) -> None:
    """Which instances i*i there are is known where the size is."""
    p = upl.load(f"{HEAD}const n = 4\n{SQUARES}")
    x = np.array([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(upl.compile(upl.vjp(p, of="Y", wrt="X"), engine=engine)(X=x, d_Y=3.0)["d_X"], 6 * x)


def test_an_index_that_is_not_affine_is_said() -> None:
    with pytest.raises(upl.UplError, match=r"UPL1203.*no bound in `i`: it follows from `i\*i`") as e:
        upl.vjp(upl.load(f"{HEAD}param n >= 1\n{SQUARES}"), of="Y", wrt="X")
    assert e.value.diagnostics[0].span is not None


def test_one_of_several_that_a_value_may_serve() -> None:
    """`##` into instances that data choose: that each element of Y is served does not tell by which instance."""
    text = "param n >= 3\ninput X<i> in 0<=i<n { ## -> G.x<i,*> }\ninput K<j>: int in 0<=j<n { -> S.k<j> }\n"
    text += "output Y<j> in 0<=j<n\nnode S<j> in 0<=j<n { in k: int; k -> G.k<k,j> }\n"
    text += "node G<i,j> in 0<=i<n, 0<=j<n { in x, k: int; x*x -> Y<j> }"
    x, k = np.array([2.0, 3.0, 4.0]), np.array([2, 0, 2])
    found = upl.compile(upl.vjp(upl.load(HEAD + text), of="Y", wrt="X"))(X=x, K=k, d_Y=np.array([1.0, 10.0, 100.0]))
    np.testing.assert_array_equal(found["d_X"], 2 * x * [10.0, 0.0, 101.0])
