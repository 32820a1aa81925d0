"""Forward mode: against reverse mode (the inner-product identity), against differences, and composed with reverse mode.

Vectors are random, never all-ones: a transposed or permuted derivative must show.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl

INPUTS = Path(__file__).resolve().parents[1] / "Inputs"

CONV = (INPUTS / "convolution.upl").read_text(encoding="utf-8").replace("H = 7", "H = 6")

HEAT = (INPUTS / "stencil.upl").read_text(encoding="utf-8")

NEWTON = (INPUTS / "newton.upl").read_text(encoding="utf-8").replace("1e-9", "1e-12").replace("Nmax = 20", "Nmax = 30")

SCALAR = """
program scalar
input Z<i> in 0<=i<3 { -> N.z<i> }
output L
node N<i> { in z; exp(z)*z #3 -> S.s<> }
node S { in @(+) s[#]; s*s*s -> E.u<> }
node E { in u; u + sin(u) -> L }
"""


def _shapes(p: upl.Program, **sizes: int) -> dict[str, tuple[int, ...]]:
    return {n: v.shape(**sizes) for n, v in p.inputs.items()}


@pytest.mark.parametrize(
    ("text", "of", "wrt", "sizes"),
    [(CONV, "Y", ["X", "W"], {}), (CONV, "Y", ["W"], {}), (HEAT, "Y", ["U0"], {"T": 3, "n": 6})],
)
def test_forward_and_reverse_agree(text: str, of: str, wrt: list[str], sizes: dict[str, int]) -> None:
    """<J t, d> = <t, J^T d>, and J t is the difference quotient."""
    random = np.random.default_rng(5)
    p = upl.load(text)
    inputs = {n: random.normal(0.0, 0.5, s) for n, s in _shapes(p, **sizes).items()}
    tangents = {f"t_{n}": random.normal(size=inputs[n].shape) for n in wrt}
    forward = upl.jvp(p, of=of, wrt=wrt)
    assert forward.check().ok
    pushed = upl.compile(forward, **sizes)(**inputs, **tangents)[f"t_{of}"]
    d = random.normal(size=pushed.shape)
    pulled = upl.compile(upl.vjp(p, of=of, wrt=wrt), **sizes)(**inputs, **{f"d_{of}": d})
    left = float(np.sum(pushed * d))
    right = sum(float(np.sum(pulled[f"d_{n}"] * tangents[f"t_{n}"])) for n in wrt)
    assert left == pytest.approx(right, rel=1e-12)
    run, step = upl.compile(p, **sizes), 1e-6
    ahead, behind = (
        run(**{n: v + s * tangents.get(f"t_{n}", 0.0) for n, v in inputs.items()})[of] for s in (step, -step)
    )
    np.testing.assert_allclose(pushed, (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-8)


def test_the_perceptron() -> None:
    """Layers of different widths, multicast and gather."""
    random = np.random.default_rng(2)
    p = upl.load("examples/perceptron.upl", K=3, N=[3, 4, 2])
    inputs = {n: np.abs(random.normal(size=s)) for n, s in _shapes(p, D=2).items()}
    tangents = {f"t_{n}": random.normal(size=v.shape) for n, v in inputs.items()}
    pushed = upl.compile(upl.jvp(p, of="R", wrt=["X", "W"]))(**inputs, **tangents)["t_R"]
    d = random.normal(size=pushed.shape)
    pulled = upl.compile(upl.vjp(p, of="R", wrt=["X", "W"]))(**inputs, d_R=d)
    inside = {"d_X": np.ones_like(inputs["X"]), "d_W": pulled["d_W"] != 0}  # the box of W is larger than its domain
    right = sum(float(np.sum(pulled[f"d_{n}"] * tangents[f"t_{n}"] * inside[f"d_{n}"])) for n in ("X", "W"))
    assert float(np.sum(pushed * d)) == pytest.approx(right, rel=1e-12)


def test_a_data_dependent_loop() -> None:
    """The derivative of the square root through Newton's own exit test."""
    f = upl.compile(upl.jvp(upl.load(NEWTON), of="Root", wrt="A"))
    out = f(A=2.0, X0=1.0, t_A=1.0)
    assert float(out["Root"]) == pytest.approx(np.sqrt(2.0), rel=1e-14)
    assert float(out["t_Root"]) == pytest.approx(1 / (2 * np.sqrt(2.0)), rel=1e-12)


def test_an_output_that_does_not_depend_has_tangent_zero() -> None:
    """No path from `wrt` to `of`: the tangent is there, and 0."""
    p = upl.load("program two\ninput A { -> N.a }\ninput B { -> M.b }\noutput P\noutput Q\n"
                 "node N { in a; a*a -> P }\nnode M { in b; b*b -> Q }\n")  # fmt: skip
    out = upl.compile(upl.jvp(p, of="Q", wrt="A"))(A=3.0, B=2.0, t_A=1.0)
    assert float(out["Q"]) == 4.0
    assert float(out["t_Q"]) == 0.0


def test_hessian_times_vector_in_both_orders() -> None:
    """Forward over reverse = reverse over reverse = a difference of gradients; the Hessian is symmetric."""
    p = upl.load(SCALAR)
    g = upl.grad(p, of="L", wrt="Z")
    h = upl.hvp(p, of="L", wrt="Z")
    again = upl.vjp(g, of="d_Z", wrt="Z")
    assert h.check().ok and again.check().ok
    z, v = np.array([0.1, 0.2, -0.3]), np.array([1.0, 0.5, -2.0])
    forward = upl.compile(h)(Z=z, t_Z=v)["t_d_Z"]
    reverse = upl.compile(again)(Z=z, d_d_Z=v)["d_Z_2"]
    np.testing.assert_allclose(forward, reverse, rtol=1e-13)
    run, step = upl.compile(g), 1e-5
    quotient = (run(Z=z + step * v)["d_Z"] - run(Z=z - step * v)["d_Z"]) / (2 * step)
    np.testing.assert_allclose(forward, quotient, rtol=1e-7)
    rows = np.array([upl.compile(h)(Z=z, t_Z=e)["t_d_Z"] for e in np.eye(3)])
    np.testing.assert_allclose(rows, rows.T, rtol=1e-13)


def test_by_a_node_input() -> None:
    """`wrt NODE.input` perturbs what arrives there; `of NODE.input` observes what arrives."""
    p = upl.load(SCALAR)
    out = upl.compile(upl.jvp(p, of="E.u", wrt="N.z"))(Z=np.array([0.1, 0.2, -0.3]), t_N_z=np.array([1.0, 0.0, 0.0]))
    s = float(np.sum(np.exp([0.1, 0.2, -0.3]) * [0.1, 0.2, -0.3]))
    assert float(out["t_E_u"]) == pytest.approx(3 * s * s * np.exp(0.1) * 1.1, rel=1e-12)


def test_a_host_input_that_computes() -> None:
    """Expressions and conditions of a host input move to a node that has its element and its tangent."""
    p = upl.load(
        "program q\ninput A<i> in 0<=i<3 { A*A -> N.a<i>; if A > 0: A*A*A -> P<i>; if !(A > 0): sin(A) -> P<i> }\n"
        "output P<i> in 0<=i<3\noutput Q<i>\nnode N<i> { in a; a*a -> Q<i> }\n"
    )
    a, v = np.array([0.5, -0.7, 2.0]), np.array([1.0, 2.0, -1.0])
    out = upl.compile(upl.jvp(p, of="P", wrt="A"))(A=a, t_A=v)
    np.testing.assert_allclose(out["t_P"], np.where(a > 0, 3 * a * a, np.cos(a)) * v, rtol=1e-14)
    out = upl.compile(upl.jvp(p, of="Q", wrt="A"))(A=a, t_A=v)
    np.testing.assert_allclose(out["t_Q"], 4 * a**3 * v, rtol=1e-14)


def test_check_grads_accepts_right_derivatives_and_refuses_wrong_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """To second order, in both modes; a table row that is off by a factor is found."""
    from xdsl.dialects import math

    from upl_mlir.passes.autodiff import derivative_table

    p = upl.load(HEAT)
    u0 = np.random.default_rng(3).normal(size=6)
    upl.check_grads(p, of="Y", wrt=["U0"], inputs={"U0": u0}, params={"T": 3}, order=2)
    q = upl.load(SCALAR)
    z = np.array([0.1, 0.2, -0.3])
    upl.check_grads(q, of="L", wrt="Z", inputs={"Z": z}, order=2, rtol=1e-4)
    monkeypatch.setitem(derivative_table.TABLE, math.ExpOp, (lambda d, a, b, o: d * o * 1.01,))
    for mode in ("fwd", "rev"):
        with pytest.raises(upl.UplError, match="UPL1410"):
            upl.check_grads(q, of="L", wrt="Z", inputs={"Z": z}, modes=(mode,))


def test_the_extremum_of_no_summands_does_not_move() -> None:
    """Neither forward nor in reverse mode: its value is infinite, its derivative 0."""
    p = upl.load(
        "program q\nparam n >= 0\ninput X<i> in 0<=i<n { -> Top.x<> }\noutput Y\noutput Z\n"
        "node Top { in @(max) x[n]; -> Y; if n > 0: x*x -> Z; if n <= 0: 1.5 -> Z }\n"
    )
    forward = upl.compile(upl.jvp(p, of="Y", wrt="X"))
    for x, tangent, moved in (([], [], 0.0), ([1.0, 3.0, 2.0], [0.1, 0.2, 0.4], 0.2), ([2.0, 2.0], [0.1, 0.4], 0.25)):
        assert forward(X=np.array(x), t_X=np.array(tangent))["t_Y"] == pytest.approx(moved)
    assert upl.compile(upl.jvp(p, of="Z", wrt="X"))(X=np.zeros(0), t_X=np.zeros(0))["t_Z"] == 0


RAGGED = """
input W<i,j> in 1<=i<=3, 1<=j<=i { -> N.w<i,j> }
input K<i>: int in 1<=i<=3 { #i -> N.k<i,*> }
output Y<i,j>
node N<i,j> in 1<=i<=3, 1<=j<=i { in w, k: int; k*sin(w) -> Y<i,j> }
"""


def test_check_grads_takes_what_programs_take() -> None:
    """Lists of slices and entries by index; what is not there is told."""
    p = upl.load(RAGGED)
    rows, k = [np.full(i, 0.5) for i in (1, 2, 3)], {1: 1, 2: 2, 3: 3}
    upl.check_grads(p, of="Y", wrt="W", inputs={"W": rows, "K": k}, order=2)
    for of, wrt, inputs, why in (
        ("Y", "Q", {"W": rows, "K": k}, "UPL1502.*no input `Q`"), ("Q", "W", {"W": rows, "K": k}, "UPL1502.*no output `Q`"),
        ("Y", "W", {"K": k}, "UPL1501"),
    ):  # fmt: skip
        with pytest.raises(upl.UplError, match=why):
            upl.check_grads(p, of=of, wrt=wrt, inputs=inputs)


@pytest.mark.parametrize("engine", ["interp", "token", "native"])
def test_the_tangent_of_an_open_extremum_comes_where_the_node_fires(engine: str) -> None:
    """Nothing comes to `M<1>`, neither summands nor `g`: it does not fire, and no tangent is left over there."""
    p = upl.load("""program gated
input X<i,j> in 0<=i<3, 0<=j<2 { if X>0: -> M.x<i> }
input G<i> in 0<=i<3 { if G>0: -> M.g }
output L
node M<i> { in @(max) x[##], g; x*x*g -> S.s<> }
node S { in @(+) s[##]; -> L }
""")
    x, g = np.array([[1.0, 2.0], [-1.0, -2.0], [3.0, 3.0]]), np.array([0.5, -1.0, 2.0])
    t = np.array([[0.1, 0.2], [0.4, 0.8], [1.6, 3.2]])
    found = upl.compile(upl.jvp(p, of="L", wrt="X"), engine=engine)(X=x, G=g, t_X=t)  # pyright: ignore[reportArgumentType]
    assert found["L"] == 4 * 0.5 + 9 * 2 and found["t_L"] == pytest.approx(2 * 2 * 0.2 * 0.5 + 2 * 3 * 2.4 * 2)
