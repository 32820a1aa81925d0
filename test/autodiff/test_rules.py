"""The table of derivative rules, row by row: `grad` of a one-node program against central differences."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.autodiff.derivative_table import TABLE


@cache
def derivative(body: str):
    """(value, gradient) as callables of (a, b) for a node body over the reals `a` and `b` that assigns `y`."""
    program = upl.load(
        f"program one\ninput a {{ -> F.a }}\ninput b {{ -> F.b }}\noutput L\nnode F {{ in a, b\n {body}\n y -> L\n}}\n"
    )
    gradient = upl.grad(program, of="L", wrt=["a", "b"])
    assert gradient.check().ok
    run = upl.compile(gradient)

    def at(a: float, b: float) -> tuple[float, float, float]:
        out = run(a=a, b=b)
        return out["L"].item(), out["d_a"].item(), out["d_b"].item()

    return at


def slope(f, x: float) -> float:
    """The derivative by a central difference of fourth order."""
    h = 1e-3 * max(1.0, abs(x))
    return (f(x - 2 * h) - 8 * f(x - h) + 8 * f(x + h) - f(x + 2 * h)) / (12 * h)


def sigmoid(x: float) -> float:
    """The logistic function."""
    return 1 / (1 + math.exp(-x))


BOTH = [(1.3, 0.7), (-0.8, 1.9), (2.5, -1.1), (-1.7, -0.4), (0.2, 3.1)]
POSITIVE = [(1.3, 0.7), (0.3, 1.9), (2.5, -1.1), (0.7, -0.4), (3.2, 3.1)]

ROWS = [
    ("a + b", lambda a, b: a + b, BOTH),
    ("a - b", lambda a, b: a - b, BOTH),
    ("a*b", lambda a, b: a * b, BOTH),
    ("a/b", lambda a, b: a / b, BOTH),
    ("b/(a*a)", lambda a, b: b / (a * a), BOTH),
    ("-a*b", lambda a, b: -a * b, BOTH),
    ("min(a, b)", min, BOTH),
    ("max(a, b)", max, BOTH),
    ("max(a, b, 0.5)", lambda a, b: max(a, b, 0.5), BOTH),
    ("abs(a)*b", lambda a, b: abs(a) * b, BOTH),
    ("sqrt(a)*b", lambda a, b: math.sqrt(a) * b, POSITIVE),
    ("exp(a)*b", lambda a, b: math.exp(a) * b, BOTH),
    ("log(a)*b", lambda a, b: math.log(a) * b, POSITIVE),
    ("sin(a)*b", lambda a, b: math.sin(a) * b, BOTH),
    ("cos(a)*b", lambda a, b: math.cos(a) * b, BOTH),
    ("tan(a)*b", lambda a, b: math.tan(a) * b, [(0.3, 1.0), (-0.9, 2.0), (1.2, -1.0), (0.0, 0.5)]),
    ("tanh(a)*b", lambda a, b: math.tanh(a) * b, BOTH),
    ("atan2(a, b)", math.atan2, BOTH),
    ("erf(a)*b", lambda a, b: math.erf(a) * b, BOTH),
    ("expm1(a)*b", lambda a, b: math.expm1(a) * b, BOTH),
    ("log1p(a)*b", lambda a, b: math.log1p(a) * b, POSITIVE),
    ("sigmoid(a)*b", lambda a, b: sigmoid(a) * b, BOTH),
    ("a**b", lambda a, b: a**b, POSITIVE),
    ("a**3 + b", lambda a, b: a**3 + b, BOTH),
    ("2**a*b", lambda a, b: 2**a * b, BOTH),
    ("a > b ? a*a : b*b*b", lambda a, b: a * a if a > b else b**3, BOTH),
    ("a > 0 ? (b > 0 ? a*b : a) : -b", lambda a, b: (a * b if b > 0 else a) if a > 0 else -b, BOTH),
    ("(a > 0)*a*b", lambda a, b: (a > 0) * a * b, BOTH),
    ("floor(stop_gradient(a))*b + a", lambda a, b: math.floor(a) * b + a, BOTH),
    ("a*a*a*b*b + a", lambda a, b: a**3 * b * b + a, BOTH),
    ("exp(-a*a)/(1 + exp(b))", lambda a, b: math.exp(-a * a) / (1 + math.exp(b)), BOTH),
]  # fmt: skip


@pytest.mark.parametrize(("text", "function", "points"), [r for r in ROWS if r[2]], ids=[r[0] for r in ROWS if r[2]])
def test_a_row_in_both_operands(text, function, points):
    at = derivative(f"y = {text}")
    for a, b in points:
        value, by_a, by_b = at(a, b)
        assert value == pytest.approx(function(a, b), rel=1e-14)
        assert by_a == pytest.approx(slope(lambda x, b=b: function(x, b), a), rel=1e-8, abs=1e-9), (a, b)
        assert by_b == pytest.approx(slope(lambda x, a=a: function(a, x), b), rel=1e-8, abs=1e-9), (a, b)


def test_every_row_that_passes_a_derivative_is_tried():
    spoken = {
        "AddfOp": "a + b", "SubfOp": "a - b", "MulfOp": "a*b", "DivfOp": "a/b", "NegfOp": "-a*b", "MinimumfOp": "min(a, b)",
        "MaximumfOp": "max(a, b)", "AbsFOp": "abs(a)*b",
        "SqrtOp": "sqrt(a)*b", "ExpOp": "exp(a)*b", "LogOp": "log(a)*b", "SinOp": "sin(a)*b", "CosOp": "cos(a)*b",
        "TanOp": "tan(a)*b", "TanhOp": "tanh(a)*b", "Atan2Op": "atan2(a, b)", "ErfOp": "erf(a)*b",
        "Log1pOp": "log1p(a)*b", "ExpM1Op": "expm1(a)*b", "SigmoidOp": "sigmoid(a)*b",
        "PowFOp": "a**b", "LetOp": "a*b", "SelectOp": "a > b ? a*a : b*b*b",
    }  # fmt: skip
    active = {op.__name__ for op, row in TABLE.items() if any(entry is not None for entry in row)}
    assert active == spoken.keys() | {"ExtFOp", "TruncFOp", "AlongOp"}  # these have tests of their own
    assert set(spoken.values()) <= {r[0] for r in ROWS}


def test_f32_passes_the_derivative_through_both_conversions():
    text = "program p\ninput a { -> F.a }\noutput L\nnode F { in a: f32; a*a -> G.b }\nnode G { in b; b*b -> L }\n"
    program = upl.load(text)
    out = upl.compile(upl.grad(program, of="L", wrt=["a"]))(a=1.5)
    assert out["d_a"] == 4 * 1.5**3 and out["L"] == 1.5**4


def test_a_derivative_that_the_user_gives():
    """`with_derivative(v, x, s, ...)` is v with the given slopes and no others; x may itself be computed."""
    at = derivative("y = with_derivative(a*b, a, 10*b, exp(b), 3)")
    assert at(1.5, 0.5) == (0.75, 5.0, pytest.approx(3 * math.exp(0.5), rel=1e-15))
    at = derivative("y = with_derivative(floor(a), a, 1)*b")  # straight through
    assert at(1.5, 0.5) == (0.5, 0.5, 1.0)
    at = derivative("y = with_derivative(a, a, -1)*b")  # gradient reversal
    assert at(1.5, 0.5) == (0.75, -0.5, 1.5)


def test_a_given_derivative_in_forward_mode_and_second_order():
    program = upl.load(
        "program p\ninput a { -> F.a }\noutput L\nnode F { in a; y = with_derivative(sin(a), a, a*a*a); y*y -> L }\n"
    )
    forward = upl.compile(upl.jvp(program, of="L", wrt="a"))(a=1.5, t_a=2.0)["t_L"]
    assert forward == pytest.approx(2 * math.sin(1.5) * 1.5**3 * 2, rel=1e-15)
    second = upl.compile(upl.hvp(program, of="L", wrt="a"))(a=1.5, t_a=1.0)["t_d_a"]
    assert second == pytest.approx(2 * 1.5**6 + 2 * math.sin(1.5) * 3 * 1.5**2, rel=1e-14)


@pytest.mark.parametrize("call", ["with_derivative(a)", "with_derivative(a, b)", "with_derivative(a, b, 1, a)"])
def test_pairs_of_a_given_derivative_are_complete(call):
    with pytest.raises(upl.UplError, match="a value and pairs of what it depends on and the slope"):
        derivative(f"y = {call}")


def test_stop_gradient_passes_nothing():
    at = derivative("y = stop_gradient(a)*b")
    assert at(1.5, 0.5) == (0.75, 0.0, 1.5)


@pytest.mark.parametrize(
    ("text", "at", "by_a", "by_b"),
    [
        ("abs(a)*b", (0.0, 2.0), 0.0, 0.0),
        ("abs(a)*b", (-0.0, 2.0), 0.0, 0.0),
        ("max(a, b)", (1.5, 1.5), 0.5, 0.5),
        ("min(a, b)", (1.5, 1.5), 0.5, 0.5),
        ("max(a, 0.0)", (0.0, 1.0), 0.5, 0.0),
        ("(a > 0)*a", (0.0, 1.0), 0.0, 0.0),
        ("a > 0 ? a : 0.0", (0.0, 1.0), 0.0, 0.0),
        ("a**b", (0.0, 2.0), 0.0, 0.0),
        ("a**b", (0.0, 1.0), 1.0, 0.0),
        ("a**b", (2.0, 0.0), 0.0, math.log(2)),
        ("a**b", (0.0, 0.0), 0.0, 0.0),
        ("a**2", (0.0, 0.0), 0.0, 0.0),
        ("a**3", (-2.0, 0.0), 12.0, 0.0),
    ],
)
def test_conventions_at_kinks(text, at, by_a, by_b):
    _, x, y = derivative(f"y = {text}")(*at)
    assert (x, y) == pytest.approx((by_a, by_b))


@pytest.mark.parametrize(
    ("body", "at", "gradient"),
    [
        ("y = a > 0 ? sqrt(a)*b : b", (0.0, 2.0), (0.0, 1.0)),
        ("y = a > 0 ? sqrt(a)*b : b", (-1.0, 2.0), (0.0, 1.0)),
        ("y = a > 0 ? sqrt(a)*b : b", (4.0, 2.0), (0.5, 2.0)),
        ("y = a > 0 ? log(a)*b : a", (0.0, 2.0), (1.0, 0.0)),
        ("y = a > 0 ? log(a)*b : a", (-3.0, 2.0), (1.0, 0.0)),
        ("y = a != 0 ? b/a : b", (0.0, 2.0), (0.0, 1.0)),
        ("t = sqrt(a)\n u = log(t)*b\n y = a > 0 ? u : b", (0.0, 3.0), (0.0, 1.0)),
        ("t = sqrt(a)\n u = log(t)*b\n y = a > 0 ? u : b", (1.0, 3.0), (1.5, 0.0)),
        ("t = sqrt(a)\n y = a > 0 ? (b > 0 ? t/b : t) : a", (0.0, 0.0), (1.0, 0.0)),
        ("t = sqrt(a)\n y = a > 0 ? (b > 0 ? t/b : t) : a", (4.0, 0.0), (0.25, 0.0)),
        ("t = 1/a\n y = a > 0 ? t*t : (a < 0 ? t : b*b)", (0.0, 3.0), (0.0, 6.0)),
        ("y = b > 0 ? a**b : b", (0.0, -1.0), (0.0, 1.0)),
        ("t = atan2(a, b)\n y = a*a + b*b > 0 ? t : a", (0.0, 0.0), (1.0, 0.0)),
        ("t = log(a)\n y = a > 0 ? t + t*b : b + b", (0.0, 1.0), (0.0, 2.0)),
    ],
)
def test_an_untaken_branch_brings_no_nan(body, at, gradient):
    _, x, y = derivative(body)(*at)
    assert (x, y) == pytest.approx(gradient)


def test_an_arrow_that_is_not_taken_brings_no_nan():
    """The guard is the arrow's condition: at i = 0 the logarithm of 0 is computed and not sent."""
    program = upl.load("""program guarded
const n = 4
input X<i> in 0<=i<n { -> F.x }
output L
node F<i> { in x; y = log(x)*sqrt(x); if i>0: y #n -> S.s<>; if i==0: 3*x #n -> S.s<> }
node S { in @(+) s[#]; -> L }
""")
    x = np.array([0.0, 1.0, 2.0, 3.0])
    out = upl.compile(upl.grad(program, of="L", wrt=["X"]))(X=x)
    expected = [3.0, *((2 + np.log(x[1:])) / (2 * np.sqrt(x[1:])))]
    np.testing.assert_allclose(out["d_X"], expected, rtol=1e-14)


def test_several_uses_add_up_and_a_variable_nobody_sends_counts_nothing():
    at = derivative("t = a*b\n unused = exp(t)/0\n u = t + a\n y = t*u + u")
    a, b = 1.25, -0.5
    t, u = a * b, a * b + a
    assert at(a, b) == pytest.approx((t * u + u, b * u + (t + 1) * (b + 1), a * u + (t + 1) * a))


def test_integers_and_conditions_pass_nothing():
    at = derivative("n = int(stop_gradient(a))\n y = n*b + (a > b) + a")
    assert at(2.0, 3.0) == (8.0, 1.0, 2.0)


def test_a_body_whose_values_are_read_twice() -> None:
    """What is recomputed of what is found once for each value, not once for each way to it: there are 2**40 ways."""
    lines = "; ".join(f"v{k} = v{k - 1}*v{k - 1}" for k in range(1, 40))
    value, a, _ = derivative(f"v0 = a + 0*b; {lines}; y = v39")(1 + 2.0**-40, 0.0)
    assert value == pytest.approx(math.exp(0.5), rel=1e-6) and a == pytest.approx(2.0**39 * value, rel=1e-6)


def test_a_long_body() -> None:
    """Hundreds of operations, each of which reads the one before."""
    lines = "; ".join(f"v{k} = v{k - 1}*b + sin(v{k - 1})*0.25" for k in range(1, 400))
    body = f"v0 = a*1.5; {lines}; y = v399"
    text = f"program one\ninput a {{ -> F.a }}\ninput b {{ -> F.b }}\noutput L\nnode F {{ in a, b\n {body}\n y -> L\n}}\n"
    along = upl.compile(upl.jvp(upl.load(text), of="L", wrt="a"))(a=0.5, b=0.76, t_a=1.0)["t_L"]
    L, a, _ = derivative(body)(0.5, 0.76)
    assert L > 0.01 and a == pytest.approx(along.item(), rel=1e-12)
