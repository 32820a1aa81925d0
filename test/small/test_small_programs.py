"""Programs on small types: every engine that has them gives the bits of the reference, and of a model in NumPy."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from small.pointwise import bits, pointwise

import upl_mlir as upl
from upl_mlir.host.arrays import host_ports
from upl_mlir.numbers.formats import small_format
from upl_mlir.numbers.rounding import arithmetic

REALS = ("f16", "bf16", "q8.8", "q4.14", "q1.17", "q2.30", "q12.20")
ENGINES = ("interp", "native")

FIR = """
program fir
param n >= 1
const T = 5
const W[0:T-1] = [0.25, -0.5, 1.1, 0.3, -0.125]
input X<i> in 0<=i<n+T-1 { -> Tap.x<i-t,t> for t in 0..T-1 if 0<=i-t && i-t<n }
output Y<i>
node Tap<i,t> { in x; W[t]*x -> Sum.s<i> }
node Sum<i> in 0<=i<n { in @(+) s[T]; -> Y }
"""
BODY = pointwise("body", "P Q R S", """
  p = -a/b + sqrt(abs(b))*0.3
  q = min(a, -b) - max(a*2, 0.7)/3
  r = a > b ? a**2 : b - i
  c: bool = a*b > 0.1
  s = c*a + floor(a) + exp(b)*sigmoid(a)
  p -> P; q -> Q; r -> R; s -> S
""")
GATHERS = """
program gathers
param n >= 1
input A<i,j> in 0<=i<n, 0<=j<i { -> G.m<i>; -> G.l<i>; A*1.5 -> G.p<i> }
output M<i>
output L<i>
output P<i>
node G<i> in 0<=i<n { in @(max) m[i], @(min) l[i], @(*) p[i]; m -> M; l -> L; p -> P }
"""


def program(name: str) -> upl.Program:
    """A program by its name."""
    match name:
        case "matmul":
            return upl.load("examples/matmul.upl")
        case "jacobi1d":
            return upl.load("examples/jacobi1d.upl")
        case "gradient":
            return upl.vjp(upl.load("examples/jacobi1d.upl"), of="B", wrt=["A"])
        case "perceptron":
            return upl.vjp(upl.load("examples/perceptron.upl", K=3, N=[5, 4, 2]), of="R", wrt=["W"])
        case _:
            return upl.load({"fir": FIR, "body": BODY, "gathers": GATHERS}[name])


def data(p: upl.Program, params: Mapping[str, int], size: float, seed: int) -> dict[str, Any]:
    """Normal numbers for all inputs."""
    rng = np.random.default_rng(seed)
    ports = host_ports(p.infer_domains().op, params)
    return {n: rng.normal(size=ports[n].shape) * size for n in p.inputs}


CASES = {
    "matmul": ({"m": 2, "n": 3, "r": 2}, {"m": 3, "n": 7, "r": 4}),
    "jacobi1d": ({"T": 1, "n": 4}, {"T": 3, "n": 9}),
    "gradient": ({"T": 1, "n": 4}, {"T": 3, "n": 9}),
    "perceptron": ({"D": 1}, {"D": 3}),
    "fir": ({"n": 1}, {"n": 20}),
    "body": ({"n": 1}, {"n": 60}),
    "gathers": ({"n": 1}, {"n": 7}),
}


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_engines_have_the_bits_of_the_reference(name: str, engine: Any, real: str) -> None:
    p = program(name)
    for params in CASES[name]:
        for size in (0.4, 30.0):
            given = data(p, params, size, seed=4)
            expected = upl.compile(p, "reference", real=real)(**given, **params)
            got = upl.compile(p, engine, real=real)(**given, **params)
            for n in p.outputs:
                assert (bits(got[n]) == bits(expected[n])).all(), (n, params, size)
                assert got[n].dtype == np.float64


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("real", REALS)
def test_sums_keep_their_order(real: str, order: int) -> None:
    """Of a product of matrices, by a loop over rounded products; the order of arrival plays no part."""
    f = small_format(real)
    assert f is not None
    a, p = arithmetic(f), program("matmul")
    given = data(p, {"m": 2, "n": 3, "r": 9}, 3.0, seed=5)
    x, y = (np.vectorize(a.round)(given[n]) for n in "AB")
    got = upl.compile(p, real=real, order="random" if order else "fifo", seed=order)(**given)["C"]
    for i in range(2):
        for j in range(3):
            total = a.product(x[i, 0], y[0, j])
            for k in range(1, 9):
                total = a.round(total + a.product(x[i, k], y[k, j]))
            assert got[i, j] == total


def test_f16_is_that_of_numpy() -> None:
    p = program("jacobi1d")
    a = np.random.default_rng(6).normal(size=12)
    u = a.astype(np.float16)
    for _ in range(4):
        inner = ((u[:-2] + u[1:-1]) + u[2:]) / np.float16(3)
        u = np.concatenate([u[:1], inner, u[-1:]])
    assert (upl.compile(p, real="f16", T=4)(A=a)["B"] == u).all()


def test_partial_sums_saturate() -> None:
    """100 + 100 stops at the greatest number, so 127.99609375 - 100 is left, not 100."""
    p = upl.load("""
        program s
        input A<i> in 0<=i<3 { -> S.s<> }
        output O
        node S<> { in @(+) s[3]; -> O<> }
    """)
    for engine in ("interp", "reference"):
        assert upl.compile(p, engine, real="q8.8")(A=[100.0, 100.0, -100.0])["O"] == 128 - 2.0**-8 - 100


def test_gathers_of_nothing_are_numbers_of_the_type() -> None:
    p = program("gathers")
    out = upl.compile(p, real="q1.17", n=1)(A=np.zeros((0, 0)))
    assert out["M"][0] == -1.0 and out["L"][0] == out["P"][0] == 1 - 2.0**-17


def test_a_declared_real_beside_a_small_type_is_refused() -> None:
    p = upl.load("program p\ninput A: f32 { -> B.a<> }\noutput O\nnode B<> { in a; a*a -> O<> }")
    for engine in ("interp", "reference"):
        with pytest.raises(upl.UplError, match=r"UPL1808.*`A` is declared f32: where `real` is bf16") as e:
            upl.compile(p, engine, real="bf16")(A=1.0)
        assert e.value.diagnostics[0].span is not None


@pytest.mark.parametrize("engine", ["token", "rtl"])
def test_engines_without_small_types_refuse(engine: Any) -> None:
    with pytest.raises(upl.UplError, match=f"UPL1733.*the engine `{engine}` has no arithmetic of type q8.8") as e:
        upl.compile(program("matmul"), engine, real="q<8.8>")
    assert e.value.diagnostics[0].span is not None


@pytest.mark.parametrize("real", ["q40.2", "f8", "int", "q0.4"])
def test_types_that_there_are_not(real: str) -> None:
    with pytest.raises(upl.UplError, match=r"UPL1802.*expected"):
        upl.compile(program("matmul"), real=real)
