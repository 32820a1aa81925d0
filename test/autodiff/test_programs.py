"""Derivatives of small programs, one for each shape that arrows can have; what is not supported is an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl

INPUTS = Path(__file__).resolve().parents[1] / "Inputs"

CONVOLUTION = (INPUTS / "convolution.upl").read_text(encoding="utf-8")

STENCIL = (INPUTS / "stencil.upl").read_text(encoding="utf-8")

RESHAPE = (INPUTS / "reshape.upl").read_text(encoding="utf-8")

FORK = """program fork
const n = 5
input X<i> in 0<=i<n { -> A.x; X*X -> B.q }
output Y<i>
node A<i> { in x; y = exp(x); y -> B.p; y -> C.p; x -> C.q; sin(x) -> C.r }
node B<i> { in p, q; p*q #2 -> D.s }
node C<i> { in p, q, r; p + q*r #2 -> D.s }
node D<i> { in @(+) s[#]; -> Y }
"""

UNUSED = """program unused
const n = 4
input X<i> in 0<=i<n { -> A.x; if i<2: X -> Sink.v }
input Z<i> in 0<=i<n { -> A.z }
output Y<i>
output T
node A<i> { in x, z; w = log(z); x*x*x -> Y }
node Sink<i> { in v; v #2 -> Total.s<> }
node Total { in @(+) s[#]; s*s -> T }
"""

DIAGONAL = """program diagonal
const n = 4
input A<i,j> in 0<=i<n, 0<=j<n { if i==j: A*A #n -> Trace.s<>; A -> Copy.a }
output L
output B<i,j>
node Trace { in @(+) s[#]; s*s -> L }
node Copy<i,j> { in a; -> B }
"""

STRIDE = """program stride
const n = 4
input X<i> in 0<=i<2*n { if i mod 2==0: X*X -> A.x<i floordiv 2>; if i mod 2==1: X -> A.y<(i-1) floordiv 2> }
input V<i> in 0<=i<n { -> E.v<2*i+1>; V*V -> E.v<2*i> }
output Y<i>
output Z<i>
node A<i> { in x, y; x*y -> Y }
node E<i> in 0<=i<2*n { in v; v*v -> Z }
"""

SHARED = """program shared
const n = 3
const m = 4
input A<i> in 0<=i<n { #m -> P.a<i,*> }
input B<j> in 0<=j<m { #n -> P.b<*,j> }
input C { #n*m -> P.c<*,*> }
output Y<i>
node P<i,j> { in a, b, c; sin(a*b)*c #m -> Row.s<i> }
node Row<i> { in @(+) s[#]; -> Y }
"""

SCALAR = """program scalar
const n = 5
input X<i> in 0<=i<n { X*X*X #n -> S.s<> }
input Y { -> S.y }
output L
node S { in @(+) s[#], y; s > 0 ? s*y : y*y -> L }
"""

EMPTY_GATHER = """program triangle
const n = 4
input X<i> in 0<=i<n { -> Below.x<k> for k in i+1..n-1 }
output Y<k>
node Below<k> in 0<=k<n { in @(+) x[k]; x*x -> Y }
"""

LEVELS = """program levels
const K = 3
const N[0:K] = [2, 3, 1, 2]
input X<k,i> in 0<=k<=K, 0<=i<N[k] { X*X -> F.x<k,N[k]-1-i> }
output Y<k,i>
node F<k,i> { in x; if k mod 2==0: x*x -> Y; if k mod 2!=0: 3*x -> Y }
"""


def arrays(program, rng, low=None, **params):
    """Random inputs for a program, of the right shapes."""
    out = {n: rng.standard_normal(v.shape(**params)) for n, v in program.inputs.items()}
    return out if low is None else {n: np.abs(a) + low for n, a in out.items()}


# (name, text, of, wrt, parameters, all obligations are proved)
CASES = [
    ("convolution by W", CONVOLUTION, "Y", "W", {}, True),
    ("convolution by X", CONVOLUTION, "Y", "X", {}, True),
    ("stencil", STENCIL, "Y", "U0", {"T": 3, "n": 6}, True),
    ("stencil, least size", STENCIL, "Y", "U0", {"T": 1, "n": 3}, True),
    ("reshape", RESHAPE, "Y", "A W", {}, True),
    ("a value sent twice", FORK, "Y", "X", {}, True),
    ("a value nobody consumes", UNUSED, "Y", "X", {}, True),
    ("no path", UNUSED, "Y", "X Z", {}, True),
    ("one output of two", UNUSED, "T", "X Z", {}, True),
    ("diagonal", DIAGONAL, "L", "A", {}, True),
    ("diagonal, the other output", DIAGONAL, "B", "A", {}, True),
    ("stride 2, gathering", STRIDE, "Y", "X V", {}, True),
    ("stride 2, spreading", STRIDE, "Z", "X V", {}, True),
    ("multicasts", SHARED, "Y", "A B C", {}, True),
    ("scalar output", SCALAR, "L", "X Y", {}, True),
    ("gathers of nothing", EMPTY_GATHER, "Y", "X", {}, True),
    ("entries in indices", LEVELS, "Y", "X", {}, True),
]


@pytest.mark.parametrize(("text", "of", "wrt", "params", "proved"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_against_differences(tools, rng, text, of, wrt, params, proved):
    program = tools.load(text)
    assert program.check().ok
    g = tools.vjp(text, of, wrt)
    inputs = arrays(program, rng, 0.1 if "log" in text else None, **params)
    shape = program.outputs[of].shape(**params)
    seed = rng.standard_normal(shape) if shape else np.float64(1.0)
    given = {**inputs, **params, **({f"d_{of}": seed} if shape else {})}
    out = tools.consistent(g, given, proved=proved)
    run = upl.compile(program)
    assert set(out) == {*program.outputs, *(f"d_{n}" for n in wrt.split())}

    def objective(a):
        return float(np.sum(run(**a, **params)[of] * seed))

    for name in wrt.split():
        found = out[f"d_{name}"]
        assert found.shape == inputs[name].shape
        np.testing.assert_allclose(found, tools.slopes(objective, inputs, name), rtol=1e-7, atol=1e-8, err_msg=name)


SEEDED = [c for c in CASES if f"output {c[2]}<" in c[1]]  # where the objective is one number its seed is 1


@pytest.mark.parametrize(("text", "of", "wrt", "params"), [c[1:5] for c in SEEDED], ids=[c[0] for c in SEEDED])
def test_linear_in_the_seed(tools, rng, text, of, wrt, params):
    program = tools.load(text)
    shape = program.outputs[of].shape(**params)
    run = upl.compile(tools.vjp(text, of, wrt))
    inputs = arrays(program, rng, 0.1, **params)
    one, other = rng.standard_normal(shape), rng.standard_normal(shape)
    a, b, both = (run(**inputs, **params, **{f"d_{of}": s}) for s in (one, other, 0.5 * one - 4 * other))
    for name in wrt.split():
        np.testing.assert_allclose(both[f"d_{name}"], 0.5 * a[f"d_{name}"] - 4 * b[f"d_{name}"], rtol=1e-11, atol=1e-12)


def test_convolution_by_hand(tools, rng):
    """The values, and the varying count: an element of X takes part in 1 to 9 products."""
    g = tools.vjp(CONVOLUTION, "Y", "X W")
    x, w, seed = rng.standard_normal((7, 7)), rng.standard_normal((3, 3)), rng.standard_normal((5, 5))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3))
    y = np.tanh(np.einsum("ijab,ab->ij", windows, w))
    d = seed * (1 - y * y)
    d_x = np.zeros((7, 7))
    for a in range(3):
        for b in range(3):
            d_x[a : a + 5, b : b + 5] += w[a, b] * d
    run = upl.compile(g, order="random", seed=3)
    out = run(X=x, W=w, d_Y=seed)
    np.testing.assert_allclose(out["Y"], y, rtol=1e-12)
    np.testing.assert_allclose(out["d_W"], np.einsum("ijab,ij->ab", windows, d), rtol=1e-12)
    np.testing.assert_allclose(out["d_X"], d_x, rtol=1e-12, atol=1e-13)
    assert run.stats["firings"]["DMul"] == 225 and run.stats["firings"]["DX"] == 49 and run.stats["firings"]["DW"] == 9
    ones = run(X=np.zeros((7, 7)), W=np.ones((3, 3)), d_Y=np.ones((5, 5)))["d_X"]
    assert ones[0, 0] == 1 and ones[3, 3] == 9 and ones[0, 3] == 3 and ones[1, 1] == 4


def test_reshape_by_hand(tools, rng):
    a, w, seed = rng.standard_normal((6, 4)), rng.standard_normal((3, 8)), rng.standard_normal((8, 3))
    out = upl.compile(tools.vjp(RESHAPE, "Y", "A W"))(A=a, W=w, d_Y=seed)
    b = a.reshape(3, 8)
    np.testing.assert_allclose(out["d_A"], (2 * b * w * seed.T).reshape(6, 4), rtol=1e-13)
    np.testing.assert_allclose(out["d_W"], b * b * seed.T, rtol=1e-13)


def test_stencil_by_complex_step(tools, rng):
    n, steps = 8, 4
    u = rng.standard_normal(n) * 0.5
    seed = rng.standard_normal(n)

    def forward(v):
        for _ in range(steps):
            v = np.concatenate([v[:1], (v[:-2] + v[1:-1] ** 2 + v[2:]) / 3, v[-1:]])
        return v

    out = tools.consistent(tools.vjp(STENCIL, "Y", "U0"), {"U0": u, "d_Y": seed, "T": steps})
    np.testing.assert_allclose(out["Y"], forward(u), rtol=1e-13)
    expected = [np.sum(seed * forward(u + 1e-30j * np.eye(n)[i]).imag) / 1e-30 for i in range(n)]
    np.testing.assert_allclose(out["d_U0"], expected, rtol=1e-11, atol=1e-14)


def test_no_path_is_zero_with_the_shape_of_the_input(tools, rng):
    g = tools.vjp(UNUSED, "Y", "Z")
    out = tools.consistent(g, {"X": rng.standard_normal(4), "Z": np.ones(4), "d_Y": np.ones(4)}, proved=False)
    assert out["d_Z"].shape == (4,) and not out["d_Z"].any()
    out = tools.consistent(tools.vjp(UNUSED, "T", "X"), {"X": np.arange(4.0), "Z": np.ones(4)})
    np.testing.assert_array_equal(out["d_X"], [2.0, 2.0, 0.0, 0.0])


def test_off_the_diagonal_the_derivative_is_zero(tools, rng):
    a = rng.standard_normal((4, 4))
    out = tools.consistent(tools.vjp(DIAGONAL, "L", "A"), {"A": a})
    np.testing.assert_allclose(out["d_A"], np.diag(4 * np.sum(np.diag(a) ** 2) * np.diag(a)), rtol=1e-13)


def test_gradient_of_a_scalar_has_the_seed_one(tools):
    g = upl.grad(tools.load(SCALAR), of="L", wrt=["X", "Y"])
    assert not [n for n in g.inputs if n.startswith("d_")]
    x = np.arange(5.0)
    out = tools.consistent(g, {"X": x, "Y": 3.0})
    np.testing.assert_allclose(out["d_X"], 9 * x * x)
    assert out["d_Y"] == np.sum(x**3)
    out = tools.consistent(g, {"X": -x, "Y": 3.0})
    assert not out["d_X"].any() and out["d_Y"] == 6


def test_of_a_gather_and_by_an_input_of_a_node(tools, rng):
    """`of Row.s`, `wrt P.b`: the derivative by each use of a value, before the uses are added up."""
    a, b, c = rng.standard_normal(3), rng.standard_normal(4), 1.5
    seed = rng.standard_normal(3)
    g = tools.vjp(SHARED, "Row.s", "P.b B")
    out = tools.consistent(g, {"A": a, "B": b, "C": c, "d_Row_s": seed}, proved=False)
    np.testing.assert_allclose(out["d_P_b"], seed[:, None] * c * a[:, None] * np.cos(np.outer(a, b)), rtol=1e-12)
    assert not out["d_B"].any(), "the way to B leads through P.b, where it ends"
    out = tools.consistent(tools.vjp(SHARED, "Row.s", "B"), {"A": a, "B": b, "C": c, "d_Row_s": seed})
    np.testing.assert_allclose(out["d_B"], seed @ (c * a[:, None] * np.cos(np.outer(a, b))), rtol=1e-12)


def test_elimination_leaves_no_counts_wrong(tools, rng):
    """By A alone nothing of B's and C's adjoints is left."""
    g = tools.vjp(SHARED, "Y", "A")
    run = upl.compile(g)
    run(A=rng.standard_normal(3), B=rng.standard_normal(4), C=1.0, d_Y=np.ones(3))
    assert {n: c for n, c in run.stats["firings"].items() if n not in ("P", "Row")} == {"DRow": 3, "DP": 12, "DA": 3}
    assert "d_B" not in str(g) and "d_C" not in str(g)


def test_names_that_are_taken_get_a_number():
    text = "program p\ninput d_L { -> F.x }\ninput y { -> F.y }\noutput L\nnode F { in x, y; d_x = x*y; d_x -> DF.t }\n"
    text += "node DF { in t; t*t -> L }\n"
    g = upl.grad(upl.load(text), of="L", wrt=["d_L", "y"])
    out = upl.compile(upl.load(str(g)))(d_L=3.0, y=2.0)
    assert out["d_d_L"] == 2 * 6 * 2 and out["d_y"] == 2 * 6 * 3


def test_a_derivative_can_be_differentiated_again(tools):
    text = "program p\nconst n = 3\ninput X<i> in 0<=i<n { X*X*X #n -> S.s<> }\noutput L\n"
    text += "node S { in @(+) s[#]; s*s -> L }\n"
    first = tools.vjp(text, "L", "X")
    second = upl.vjp(first, of="d_X", wrt=["X"])
    x, v = np.array([1.0, -0.5, 2.0]), np.array([0.5, 1.0, -1.0])
    out = upl.compile(second, order="random", seed=1)(X=x, d_d_X=v)
    s = np.sum(x**3)
    hessian = 18 * np.outer(x * x, x * x) + np.diag(12 * s * x)
    np.testing.assert_allclose(out["d_X"], 6 * s * x * x, rtol=1e-13)
    name = next(n for n in out if n.startswith("d_X_"))
    np.testing.assert_allclose(out[name], hessian @ v, rtol=1e-13)


# -- errors --------------------------------------------------------------------------------------------------------
MAXIMUM = """program maximum
input X<i> in 0<=i<3 { #3 -> M.v<> }
input n: int { -> C.n }
output L
output B: int
node M { in @(max) v[#]; -> L }
node C { in n: int; -> B }
"""
CORNER = "program p\ninput X<i> in 0<=i<3 { -> A.x }\noutput Y<i>\nnode A<i> { in x; x -> Y }\n"
ERRORS = [
    (MAXIMUM, "L", ["n"], "UPL1401", "of type int"),
    (MAXIMUM, "B", ["X"], "UPL1401", "of type int"),
    (MAXIMUM, "C.n", ["X"], "UPL1401", "of type int"),
    (CORNER, "Y", ["x"], "UPL1401", "no port or node `x`"),
    (CORNER, "Z", ["X"], "UPL1401", "no port or node `Z`"),
    (CORNER, "Y", ["A.z"], "UPL1401", "no input `z`"),
    (CORNER, "Y", ["A"], "UPL1401", "say which input"),
    (CORNER, "A", ["X"], "UPL1401", "say which input"),
    (CORNER, "X", ["X"], "UPL1401", "expected a host output"),
    (CORNER, "Y", ["Y"], "UPL1401", "expected a host input"),
    (CORNER, "Y.y", ["X"], "UPL1401", "expected a host output"),
    (CORNER, "Y", [], "UPL1401", "nothing to differentiate by"),
]


@pytest.mark.parametrize(("text", "of", "wrt", "code", "words"), ERRORS)
def test_what_is_not_supported_is_said(text, of, wrt, code, words):
    with pytest.raises(upl.UplError) as e:
        upl.vjp(upl.load(text), of=of, wrt=wrt)
    (found,) = e.value.diagnostics
    assert found.code == code and words in found.message


def test_a_gradient_is_of_one_number():
    with pytest.raises(upl.UplError) as e:
        upl.grad(upl.load(CORNER), of="Y", wrt=["X"])
    assert e.value.diagnostics[0].code == "UPL1406"


def test_differentiation_leaves_the_program_as_it_is():
    p = upl.load(CORNER)
    before = str(p)
    upl.vjp(p, of="Y", wrt=["X"])
    assert str(p) == before
