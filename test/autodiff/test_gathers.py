"""Derivatives through `@(max)`, `@(min)` and `@(*)` (rule 5): against closed forms, at ties, at zeros, in both modes."""

from __future__ import annotations

import numpy as np
import pytest

import upl_mlir as upl

ONE = """program one
param n >= 1
input X<i> in 0<=i<n { X*X -> F.x }
output L
node F<i> { in x; x*x #n -> M.s<> }
node M { in @(OP) s[#]; sin(s) -> L }
"""

ROWS = """program rows
param n >= 1
input X<i,j> in 0<=i<n, 0<=j<=i { -> F.x<i,j> }
input Z { -> M.s<i> for i in 0..n-1 }
output Y<i>
node F<i,j> { in x; y = x*x; if j==i: y -> M.s<k> for k in i..n-1; if j<i: y+x -> M.s<i> }
node M<i> in 0<=i<n { in @(OP) s[2*i+2]; sin(s) -> Y<i> }
"""

FOLD = {"max": np.max, "min": np.min, "*": np.prod}


def rows(op: str, x, z):
    """What ROWS computes, by numpy."""
    n = len(x)
    out = []
    for i in range(n):
        given = [z, *(x[k, k] ** 2 for k in range(i + 1)), *(x[i, j] ** 2 + x[i, j] for j in range(i))]
        out.append(np.sin(FOLD[op](given)))
    return np.array(out)


@pytest.mark.parametrize("op", FOLD)
def test_both_modes_against_numpy(op, tools, rng):
    n = 4
    x, z = np.tril(rng.standard_normal((n, n))), np.float64(0.4)
    seed, vx, vz = rng.standard_normal(n), np.tril(rng.standard_normal((n, n))), rng.standard_normal()
    text = ROWS.replace("OP", op)
    p = upl.load(text)
    np.testing.assert_allclose(upl.compile(p)(X=x, Z=z)["Y"], rows(op, x, z), rtol=1e-14)
    out = tools.consistent(tools.vjp(text, "Y", "X Z"), {"X": x, "Z": z, "d_Y": seed})
    forward = upl.jvp(p, of="Y", wrt=["X", "Z"])
    t = tools.consistent(forward, {"X": x, "Z": z, "t_X": vx, "t_Z": vz})["t_Y"]
    np.testing.assert_allclose(seed @ t, np.sum(out["d_X"] * vx) + out["d_Z"] * vz, rtol=1e-12)

    def objective(a):
        return seed @ rows(op, a["X"], a["Z"])

    np.testing.assert_allclose(out["d_X"], np.tril(tools.slopes(objective, {"X": x, "Z": z}, "X")), atol=1e-8)
    np.testing.assert_allclose(out["d_Z"], tools.slopes(objective, {"X": x, "Z": z}, "Z"), atol=1e-8)


@pytest.mark.parametrize(("op", "x"), [("max", [2.0, -2.0, 1.0, 2.0]), ("min", [2.0, 3.0, -2.0, 4.0])])
def test_ties_share_equally(op, x, tools):
    """As `jax.numpy.max` does; x and -x tie because F squares."""
    x = np.array(x)
    out = tools.consistent(tools.vjp(ONE.replace("OP", op), "L", "X"), {"X": x})
    best = np.abs(x) == 2
    slope = np.cos(16.0) * 4 * x**3
    np.testing.assert_allclose(out["d_X"], np.where(best, slope / best.sum(), 0), rtol=1e-13)
    t = upl.compile(upl.jvp(upl.load(ONE.replace("OP", op)), of="L", wrt="X"))
    v = np.arange(1.0, 5.0)
    np.testing.assert_allclose(t(X=x, t_X=v)["t_L"], out["d_X"] @ v, rtol=1e-13)


@pytest.mark.parametrize("x", [[1.5, -0.5, 2.0], [0.0, 3.0, 2.0], [0.0, 3.0, 0.0]], ids=["no zero", "one", "two"])
def test_a_product_with_zeros(x, rng):
    """Where one factor is 0 the derivative by it is the product of the others; nothing is divided by 0."""
    p = upl.load("program p\nparam n >= 1\ninput X<i> in 0<=i<n { #n -> M.s<> }\noutput L\nnode M { in @(*) s[#]; -> L }\n")
    x = np.array(x)
    exact = np.array([np.prod(np.delete(x, i)) for i in range(3)])
    np.testing.assert_allclose(upl.compile(upl.grad(p, of="L", wrt="X"))(X=x)["d_X"], exact, rtol=1e-15)
    v = rng.standard_normal(3)
    np.testing.assert_allclose(upl.compile(upl.jvp(p, of="L", wrt="X"))(X=x, t_X=v)["t_L"], exact @ v, rtol=1e-14)


@pytest.mark.parametrize("op", ["max", "min"])
def test_second_order_through_an_extremum(op, rng):
    p = upl.load(ONE.replace("OP", op))
    x, v = rng.standard_normal(4), rng.standard_normal(4)
    h = upl.compile(upl.hvp(p, of="L", wrt="X"))(X=x, t_X=v)["t_d_X"]
    i = (np.argmax if op == "max" else np.argmin)(np.abs(x))
    expected = np.zeros(4)
    expected[i] = (-np.sin(x[i] ** 4) * 16 * x[i] ** 6 + np.cos(x[i] ** 4) * 12 * x[i] ** 2) * v[i]
    np.testing.assert_allclose(h, expected, rtol=1e-12)


def test_softmax_is_stable_and_differentiable(tools, rng):
    """The subtracted maximum does not change the derivative."""
    text = """program softmax
    param n >= 1
    input X<i> in 0<=i<n { #n -> Max.s<>; -> Exp.x }
    output Y<i>
    node Max { in @(max) s[n]; #n -> Exp.m<*> }
    node Exp<i> { in x, m; e = exp(x-m); e -> Sum.s<>; e -> Div.e<i> }
    node Sum { in @(+) s[n]; #n -> Div.z<*> }
    node Div<i> { in e, z; e/z -> Y<i> }
    """
    x, seed = rng.standard_normal(5), rng.standard_normal(5)
    y = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
    out = tools.consistent(tools.vjp(text, "Y", "X"), {"X": x, "d_Y": seed})
    np.testing.assert_allclose(out["d_X"], y * (seed - seed @ y), rtol=1e-11, atol=1e-15)
    far = upl.compile(tools.vjp(text, "Y", "X"))(X=x + 1e4, d_Y=seed)["d_X"]
    np.testing.assert_allclose(far, out["d_X"], rtol=1e-10, atol=1e-13)


def test_by_one_source_of_two(tools, rng):
    """The other source is no variable, but it can win, and it counts among the ties."""
    text = """program floor
    param n >= 1
    input X<i> in 0<=i<n { -> M.s<i> }
    input C<i> in 0<=i<n { -> M.s<i> }
    output Y<i>
    node M<i> in 0<=i<n { in @(max) s[2]; s*s -> Y<i> }
    """
    x, c = np.array([1.0, -1.0, 2.0]), np.array([0.0, 0.5, 2.0])
    out = tools.consistent(tools.vjp(text, "Y", "X"), {"X": x, "C": c, "d_Y": np.ones(3)})
    np.testing.assert_array_equal(out["d_X"], [2.0, 0.0, 2.0])


NAMES = """program names
param n >= 1
const v = 2
const d = 3
input X<m> in 0<=m<n { -> F.e }
output L
node F<m> { in e; e*v #n -> M.w<> }
node M { in @(OP) w[#]; w*d -> L }
"""


@pytest.mark.parametrize("op", FOLD)
def test_names_of_new_inputs_hide_nothing(op, tools, rng):
    """Constants, parameters and fields that are called as the rule would call its inputs."""
    x = rng.standard_normal(3)
    out = tools.consistent(tools.vjp(NAMES.replace("OP", op), "L", "X"), {"X": x})
    t = upl.compile(upl.jvp(upl.load(NAMES.replace("OP", op)), of="L", wrt="X"))(X=x, t_X=np.ones(3))["t_L"]
    np.testing.assert_allclose(t, out["d_X"].sum(), rtol=1e-12)


@pytest.mark.parametrize("real", ["real", "f32"])
@pytest.mark.parametrize("form", ["text", "mlir", "module"])
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_a_second_derivative_through_a_product_is_refused(mode, form, real):
    """The mark is part of the program: it comes back from either text.  As a number it would be wrong at factors 0."""
    text = ONE.replace("OP", "*").replace("s[#]", f"s[#]: {real}")
    for g in (upl.grad(upl.load(text), of="L", wrt="X"), upl.jvp(upl.load(text), of="L", wrt="X")):
        again = {"text": str, "mlir": upl.Program.to_mlir, "module": lambda p: p}[form](g)
        g = upl.load(again) if form != "module" else g
        of = "d_X" if "d_X" in g.outputs else "t_L"
        with pytest.raises(upl.UplError, match=r"UPL1404.*second derivative"):
            upl.vjp(g, of=of, wrt="X") if mode == "reverse" else upl.jvp(g, of=of, wrt="X")


def test_summands_that_data_decide():
    """Of the two largest, which are equal, each earns a half; what was not sent earns nothing."""
    text = """program p
    input X<i> in 0<=i<3 { -> F.x }
    input n: int { -> M.n }
    output L
    node F<i> { in x; if x>0: x -> M.s<> }
    node M { in @(max) s[n], n: int; s -> L }
    """
    x = np.array([2.0, -1.0, 2.0])
    np.testing.assert_array_equal(upl.compile(upl.grad(upl.load(text), of="L", wrt="X"))(X=x, n=2)["d_X"], [0.5, 0, 0.5])
    moved = upl.compile(upl.jvp(upl.load(text), of="L", wrt="X"))(X=x, n=2, t_X=np.array([1.0, 8.0, 3.0]))
    assert moved["t_L"] == 2.0
