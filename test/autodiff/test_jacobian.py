"""Jacobians and Hessians against closed forms, complex steps and differences; which mode is chosen, and that it is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

INPUTS = Path(__file__).resolve().parents[1] / "Inputs"

# A network without a softmax: one hidden layer, symbolic sizes.
MLP = (INPUTS / "hidden.upl").read_text(encoding="utf-8")

# y = L^-1 b for a lower triangular L.
SOLVE = """program solve
param n >= 1
input L<i,j> in 0<=j<=i, i<n { if j<i: -> Mul.l<i,j>; if i==j: -> Row.d<i> }
input b<i> in 0<=i<n { -> Row.b }
output Y<i>
node Mul<i,j> in 0<=j<i, i<n { in l, y; l*y -> Row.s<i> }
node Row<i> in 0<=i<n { in b, d, @(+) s[i]; y = (b-s)/d; y -> Y; if i<n-1: y #n-1-i -> Mul.y<*,i> }
"""

# L = x'Ax + c'x, and a cubic in A.
QUADRATIC = """program quadratic
param n >= 1
input X<i> in 0<=i<n { #n -> P.x<i,*>; #n -> P.y<*,i>; -> Q.x<i> }
input A<i,j> in 0<=i<n, 0<=j<n { -> P.a<i,j> }
input c<i> in 0<=i<n { -> Q.c<i> }
output L
node P<i,j> { in x, y, a; x*a*y #n*n+n -> S.s<> }
node Q<i> { in x, c; x*c #n*n+n -> S.s<> }
node S { in @(+) s[#]; -> L }
"""

PRODUCTS = """program products
const n = 3
input X<i> in 0<=i<n { #n -> P.x<i,*> }
input Z<j> in 0<=j<n { #n -> P.z<*,j> }
output L
node P<i,j> { in x, z; exp(x*z)*x #n*n -> S.s<> }
node S { in @(+) s[#]; s*s -> L }
"""

ROWS = (INPUTS / "rows.upl").read_text(encoding="utf-8")

NEWTON = (INPUTS / "newton.upl").read_text(encoding="utf-8").replace("1e-9", "1e-12").replace("Nmax = 20", "Nmax = 30")


def _mlp(X: Any, U: Any, V: Any) -> Any:
    s = np.tanh(X @ U) @ V
    return s + np.sin(s)


def _complex_step(f: Any, x: Any) -> Any:
    """The Jacobian of an analytic function: f's fields, then x's."""
    out: list[Any] = []
    for at in np.ndindex(*x.shape):
        moved = x.astype(complex)
        moved[at] += 1e-30j
        out.append(np.imag(f(moved)) / 1e-30)
    return np.moveaxis(np.array(out).reshape((*x.shape, *np.shape(out[0]))), range(x.ndim), range(-x.ndim, 0))


def _column(f: Any, inputs: dict[str, Any], name: str, at: tuple[int, ...], h: float = 1e-3) -> Any:
    """The derivative of all results by one element, by central differences of fourth order."""
    total = 0.0
    for k, weight in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
        moved = inputs[name].copy()
        moved[at] += k * h
        total = total + weight * f({**inputs, name: moved})
    return total / (12 * h)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
@pytest.mark.parametrize("wrt", ["X", "U", "V"])
def test_a_network(tools, rng, mode, wrt) -> None:
    """Against the complex step; symbolic sizes; the Jacobian is a program like any other."""
    q = upl.jacobian(tools.load(MLP), of="Y", wrt=wrt, mode=mode)
    inputs = {"X": rng.normal(size=4), "U": rng.normal(size=(4, 3)), "V": rng.normal(size=(3, 2))}
    found = tools.consistent(q, inputs)[f"J_Y_{wrt}"]
    expected = _complex_step(lambda x: _mlp(**{**inputs, wrt: x}), inputs[wrt])
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
@pytest.mark.parametrize("wrt", ["X", "W"])
def test_the_perceptron(tools, rng, mode, wrt) -> None:
    """Against central differences: layers of different widths, fields that clash, a ragged W."""
    small = (mode, wrt) == ("forward", "W")  # its proof is the longest by far; reverse mode has the ragged W
    p = tools.load("perceptron", K=2, N=(2, 3)) if small else tools.load("perceptron", K=3, N=(2, 3, 2))
    q = upl.jacobian(p, of="R", wrt=wrt, mode=mode)
    fields = {"X": ("d", "i", "d_2", "i_2"), "W": ("d", "i", "d_2", "k", "i_2", "j")}[wrt]
    assert q.outputs[f"J_R_{wrt}"].fields == fields
    inputs = {n: np.abs(rng.normal(size=v.shape(D=2))) + 0.1 for n, v in p.inputs.items()}
    found = tools.consistent(q, inputs)
    run = upl.compile(p)
    for at in np.ndindex(*inputs[wrt].shape):
        expected = _column(lambda a: run(**a)["R"], inputs, wrt, at)
        np.testing.assert_allclose(found[f"J_R_{wrt}"][(..., *at)], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_a_triangular_solve(tools, rng, mode) -> None:
    """dY/db = L^-1, dY/dL = -L^-1 e_i y_j; the seeds by L are a triangle, not a box."""
    q = upl.jacobian(tools.load(SOLVE), of="Y", wrt=["b", "L"], mode=mode)
    n = 4
    low = np.tril(rng.normal(size=(n, n))) + 3 * np.eye(n)
    b = rng.normal(size=n)
    found = tools.consistent(q, {"L": low, "b": b}, proved=False)
    inverse = np.linalg.inv(low)
    np.testing.assert_allclose(found["J_Y_b"], inverse, rtol=1e-12, atol=1e-14)
    expected = -np.einsum("ri,j->rij", inverse, inverse @ b) * np.tri(n)
    np.testing.assert_allclose(found["J_Y_L"], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_what_does_not_depend_has_zeros(tools, mode) -> None:
    """A whole Jacobian of zeros, with all its fields."""
    p = tools.load("program two\nparam n >= 1\ninput A<i> in 0<=i<n { -> N.a<i> }\ninput B<k> in 0<=k<2 { -> M.b<k> }\n"
                   "output P<i>\noutput Q<k>\n"
                   "node N<i> { in a; a*a -> P<i> }\nnode M<k> { in b; b*b -> Q<k> }\n")  # fmt: skip
    q = upl.jacobian(p, of=["P", "Q"], wrt=["A", "B"], mode=mode)
    found = tools.consistent(q, {"A": np.array([1.0, 2.0, 3.0]), "B": np.ones(2)})
    np.testing.assert_array_equal(found["J_P_A"], np.diag([2.0, 4.0, 6.0]))
    np.testing.assert_array_equal(found["J_P_B"], np.zeros((3, 2)))
    np.testing.assert_array_equal(found["J_Q_A"], np.zeros((2, 3)))


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_rows_of_a_length_that_is_data(tools, rng, mode) -> None:
    """The count of a gather goes along when the tangent is divided from it."""
    q = upl.jacobian(tools.load(ROWS), of="Y", wrt="X", mode=mode)
    v, x, cnt = rng.normal(size=(3, 4)), rng.normal(size=4), np.array([0, 3, 4])
    found = tools.consistent(q, {"V": v, "X": x, "cnt": cnt}, proved=False)
    inside = v * (np.arange(1, 5) <= cnt[:, None])
    np.testing.assert_allclose(found["J_Y_X"], 2 * (inside @ x)[:, None] * inside, rtol=1e-12)


def test_the_cheaper_mode_is_chosen_and_said(tools) -> None:
    """By the number of instances: as polynomials where that decides, else at sizes that are named."""
    one = tools.load("program p\ninput X<i> in 0<=i<5 { #5 -> S.s<> }\noutput L\nnode S { in @(+) s[#]; s*s -> L }\n")
    assert upl.jacobian(one, of="L", wrt="X").notes[0].startswith("reverse mode: 1 instances")
    many = tools.load("program p\ninput X { #5 -> S.s<*>; }\ninput C<i> in 0<=i<5 { -> S.c<i> }\noutput Y<i>\n"
                      "node S<i> { in s, c; s*s*c -> Y }\n")  # fmt: skip
    q = upl.jacobian(many, of="Y", wrt="X")
    assert q.notes[0].startswith("forward mode: 5 instances")
    assert "forward mode" in str(q)
    mlp = upl.jacobian(tools.load(MLP), of="Y", wrt="X").notes[0]
    assert "compared at n=10, h=10, m=10" in mlp
    rows = tools.load("program p\nparam n >= 2\ninput X<i> in 0<=i<n { #n -> S.s<> }\ninput Z<j> in 0<=j<n*2 { -> T.z<j> }\n"
                      "output L\nnode S { in @(+) s[#]; s -> L }\noutput M<j>\nnode T<j> { in z; z*z -> M }\n")  # fmt: skip
    note = upl.jacobian(rows, of="L", wrt="X").notes[0]
    assert note == "reverse mode: 1 instances of derivative nodes, n in forward mode"
    asked = upl.jacobian(rows, of="L", wrt="X", mode="forward")
    assert asked.notes == ("forward mode, as asked: n instances of derivative nodes",)


def test_counts_are_those_of_the_program(tools) -> None:
    """What the choice counted is what the chosen program fires."""
    for mode, prefix in (("reverse", "D"), ("forward", "T")):
        q = upl.jacobian(tools.load("perceptron", K=3, N=(2, 3, 2)), of="R", wrt="X", mode=mode)
        firings = q.check().firings
        total = sum(v for n, v in firings.at(D=3).items() if n[0] == prefix and n != "D")
        counted = eval_count(q.notes[0], D=3)
        assert total == counted


SPARSE = """program sparse
input X<i> in 0<=i<5 { -> G.x }
input C<i>: int in 0<=i<5 { -> G.c }
output Y
output Z<i>
node G<i> in 0<=i<5 { in x, c: int; if c==0: sin(x) -> H.x<i>; if c!=0: x*x -> K.x<i> }
node H<i> { in x; exp(x) -> Z<i>; if i<2: x*x -> S.s }
node K<i> { in x; x + 1 -> Z<i>; if i<2: x*x*x -> S.s }
node S { in @(+) s[2]; exp(s) -> Y }
"""


@pytest.mark.parametrize(
    ("mode", "prefix", "counted"), [("reverse", "D", 5 + 5 + 5 + 1), ("forward", "T", 5 * (2 + 2 + 2 + 1))]
)
def test_where_data_decide_what_fires_the_most_is_counted(mode: str, prefix: str, counted: int) -> None:
    """Adjoint nodes have all of a node's instances then; tangents are sent where derivatives go."""
    q = upl.jacobian(upl.load(SPARSE), of="Y", wrt="X", mode=mode)
    assert eval_count(q.notes[0]) == counted
    run = upl.compile(q, engine="interp")
    found = run(X=np.arange(5) * 0.3 + 0.1, C=np.array([0, 1, 0, 1, 0]))["J_Y_X"]
    a, b = np.sin(0.1), 0.4**2
    np.testing.assert_allclose(found, np.exp(a**2 + b**3) * np.array([2 * a * np.cos(0.1), 6 * 0.4**5, 0, 0, 0]), rtol=1e-12)
    assert sum(n for name, n in run.stats["firings"].items() if name[0] == prefix) <= counted


def eval_count(note: str, **sizes: int) -> int:
    """The polynomial that a note names."""
    from upl_mlir.poly.parse import parse_index

    text = note.split("as asked: ")[1].split(" instances", maxsplit=1)[0]
    return parse_index(text).evaluate(sizes, lambda _a, _i: 0)


def test_scalars_and_node_inputs(tools, rng) -> None:
    """Ports without fields need no batch; node inputs name their Jacobian."""
    p = tools.load(QUADRATIC)
    x, a, c = rng.normal(size=3), rng.normal(size=(3, 3)), rng.normal(size=3)
    inputs = {"X": x, "A": a, "c": c}
    for mode in ("reverse", "forward"):
        found = tools.consistent(upl.jacobian(p, of="L", wrt=["X", "c"], mode=mode), inputs)
        np.testing.assert_allclose(found["J_L_X"], (a + a.T) @ x + c, rtol=1e-12)
        np.testing.assert_allclose(found["J_L_c"], x, rtol=1e-12)
        inner = tools.consistent(upl.jacobian(p, of="L", wrt="P.a", mode=mode), inputs)
        np.testing.assert_allclose(inner["J_L_P_a"], np.outer(x, x), rtol=1e-12)
        sums = tools.consistent(upl.jacobian(p, of="S.s", wrt="c", mode=mode), inputs)
        np.testing.assert_allclose(sums["J_S_s_c"], x, rtol=1e-12)
    newton = upl.jacobian(tools.load(NEWTON), of="Root", wrt="A")
    assert float(upl.compile(newton)(A=2.0, X0=1.0)["J_Root_A"]) == pytest.approx(1 / (2 * np.sqrt(2.0)), rel=1e-12)


def test_hessian_of_a_quadratic_form(tools, rng) -> None:
    """A + A', for symbolic n."""
    h = upl.hessian(tools.load(QUADRATIC), of="L", wrt="X")
    assert h.outputs["H_X_X"].fields == ("i", "i_2")
    a = rng.normal(size=(4, 4))
    found = tools.consistent(h, {"X": rng.normal(size=4), "A": a, "c": rng.normal(size=4)})
    np.testing.assert_allclose(found["H_X_X"], a + a.T, rtol=1e-13)


def test_hessian_blocks(tools, rng) -> None:
    """All blocks, against differences of gradients; the whole is symmetric."""
    p = tools.load(PRODUCTS)
    x, z = rng.normal(0, 0.5, 3), rng.normal(0, 0.5, 3)
    found = tools.consistent(upl.hessian(p, of="L", wrt=["X", "Z"]), {"X": x, "Z": z})
    whole = np.block([[found["H_X_X"], found["H_X_Z"]], [found["H_Z_X"], found["H_Z_Z"]]])
    np.testing.assert_allclose(whole, whole.T, rtol=1e-12, atol=1e-12)
    run = upl.compile(upl.grad(p, of="L", wrt=["X", "Z"]))
    for at in range(3):
        expected = tools.slopes(lambda a, at=at: float(run(**a)["d_Z"][at]), {"X": x, "Z": z}, "X")
        np.testing.assert_allclose(found["H_Z_X"][at], expected, rtol=1e-8, atol=1e-9)


def test_the_printed_jacobian_differentiates_again(tools, rng) -> None:
    """A third derivative: the Jacobian of a sum of the Hessian's elements against a difference."""
    p = tools.load(PRODUCTS)
    h = upl.load(str(upl.hessian(p, of="L", wrt="X")))
    x, z = rng.normal(0, 0.5, 3), rng.normal(0, 0.5, 3)
    upl.check_grads(h, of="H_X_X", wrt=["X", "Z"], inputs={"X": x, "Z": z}, rtol=1e-4)


def test_what_is_refused(tools) -> None:
    """A wrong mode, a wrong port, an integer."""
    p = tools.load(MLP)
    with pytest.raises(upl.UplError, match="UPL1802"):
        upl.jacobian(p, of="Y", wrt="X", mode="both")  # pyright: ignore[reportArgumentType]
    with pytest.raises(upl.UplError, match="UPL1401"):
        upl.jacobian(p, of="Y", wrt="Q")
    with pytest.raises(upl.UplError, match="UPL1406"):
        upl.hessian(p, of="Y", wrt="X")


# Only the sum tells `Step` its t; `Other` depends on other inputs, `Y` on none of the state.
RECURRENCE = """program recurrence
const T = 2
param n >= 1
input A<i,j> in 0<=i<n, 0<=j<n { #T -> Mul.a<*,i,j> }
input q<i> in 0<=i<n { #T -> Step.q<*,i> }
input r { #T*n -> Step.r<*,*> }
input X0<i> in 0<=i<n { -> X.x<0,i> }
input b<k> in 0<=k<3 { -> Other.b }
output L
output XT<i>
output Y<k>
node X<t,i> in 0<=t<=T, 0<=i<n {
  in x
  if t<T: x #n -> Mul.x<t+1,*,i>
  if t==T: -> XT<i>
  if t==T: x*x #n -> Sum.s<>
}
node Mul<t,i,j> { in a, x; a*x -> Step.s<t,i> }
node Step<t,i> { in q, r, @(+) s[n]; sin(s)*q + r -> X.x }
node Sum { in @(+) s[#]; -> L }
node Other<k> { in b; b*b -> Y }
"""


def recurrence(v: dict[str, Any]) -> dict[str, Any]:
    """What it computes, for the complex step."""
    x = v["X0"]
    for _ in range(2):
        x = np.sin(v["A"] @ x) * v["q"] + v["r"]
    return {"L": np.sum(x * x), "XT": x, "Y": v["b"] ** 2}


@pytest.fixture
def recurrence_data(rng) -> dict[str, Any]:
    return {
        "A": rng.normal(size=(2, 2)), "q": rng.normal(size=2), "r": np.array(0.3), "X0": rng.normal(size=2),
        "b": rng.normal(size=3),
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_every_output_by_every_input(mode, recurrence_data) -> None:
    """Shapes are the output's, then the input's, also of blocks of zeros; the program's own outputs stay as they were."""
    p, ins = upl.load(RECURRENCE), list(recurrence_data)
    q = upl.jacobian(p, of=list(p.outputs), wrt=ins, mode=mode)
    assert {n: q.outputs[n].fields for n in p.outputs} == {n: v.fields for n, v in p.outputs.items()}
    expected = recurrence(recurrence_data)
    for engine in ("interp", "native"):
        found = upl.compile(q, engine=engine)(**recurrence_data)
        for o, value in expected.items():
            np.testing.assert_allclose(found[o], value, rtol=1e-12)
            for i in ins:
                slope = _complex_step(lambda x, i=i, o=o: recurrence({**recurrence_data, i: x})[o], recurrence_data[i])
                assert found[f"J_{o}_{i}"].shape == slope.shape
                np.testing.assert_allclose(found[f"J_{o}_{i}"], slope, rtol=1e-11, atol=1e-14)


def test_hessian_blocks_of_a_recurrence(tools, recurrence_data) -> None:
    """By arrays of different shapes, one of them not read: `d_V`, made before, is in no block's index."""
    p, ins = upl.load(RECURRENCE), ["A", "r", "b"]
    h = upl.hessian(p, of="L", wrt=ins)
    assert {n: h.outputs[n].fields for n in ("L", "XT", "Y")} == {"L": (), "XT": ("i",), "Y": ("k",)}
    found = tools.consistent(h, recurrence_data)
    run = upl.compile(upl.grad(p, of="L", wrt=ins))
    for v in ins:
        assert found[f"d_{v}"].shape == recurrence_data[v].shape
        for w in ins:
            block = found[f"H_{v}_{w}"]
            assert block.shape == (*recurrence_data[v].shape, *recurrence_data[w].shape)
            for at in np.ndindex(*recurrence_data[w].shape):
                expected = _column(lambda a, v=v: run(**a)[f"d_{v}"], recurrence_data, w, at)
                np.testing.assert_allclose(block[(..., *at)], expected, rtol=1e-8, atol=1e-10)


def test_a_sum_that_data_count_still_tells_the_index(rng) -> None:
    """`Row` fires on what the program gives it, at both t, though no proof says that a sum has a summand."""
    p = upl.load("""program counted
input C<i>: int in 0<=i<2 { #2 -> Row.c<*,i>; #12 -> E.c<*,i,*,*> }
input X<t,i,j> in 0<=t<2, 0<=i<2, 0<=j<3 { #2 -> E.x<t,i,j,*> }
input Z<k> in 0<=k<2 { #12 -> E.z<*,*,*,k> }
output Y<t,i>
node E<t,i,j,k> in 0<=t<2, 0<=i<2, 0<=j<3, 0<=k<2 { in x, z, c: int; if j<c && k==0: x*z*x -> Row.s<t,i> }
node Row<t,i> in 0<=t<2, 0<=i<2 { in c: int, @(+) s[c]; s*s -> Y }
""")
    x, z, c = rng.normal(size=(2, 2, 3)), rng.normal(size=2), np.array([1, 3])
    q = upl.jacobian(p, of="Y", wrt="Z", mode="forward")
    assert q.outputs["Y"].fields == ("t", "i")
    found = upl.compile(q)(X=x, Z=z, C=c)
    sums = np.sum(x * x * (np.arange(3) < c[:, None]), axis=2)
    np.testing.assert_allclose(found["Y"], (sums * z[0]) ** 2, rtol=1e-13)
    np.testing.assert_allclose(found["J_Y_Z"][..., 0], 2 * sums**2 * z[0], rtol=1e-13)
    assert not found["J_Y_Z"][..., 1].any()


def test_what_only_the_other_part_reads_is_sent_to_it(tools) -> None:
    """When a node is divided, a value of the adjoint that serves the tangent alone moves over, and is not thrown away."""
    p = tools.load("""program p
    param n >= 1
    input X<i> in 0<=i<n { -> F.x<i> }
    output L
    node F<i> { in x; x**2/(2*n) #n -> S.l<> }
    node S { in @(+) l[#]; l -> L }
    """)
    found = tools.consistent(upl.hessian(p, of="L", wrt="X"), {"X": np.array([1.0, 2.0, -3.0])})["H_X_X"]
    np.testing.assert_array_equal(found, np.eye(3) / 3)
