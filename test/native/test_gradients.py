"""Native code against the interpreter: every example, every gradient, tangents and second order.

`ordered` folds are equal bit for bit, functions of libm included: both call the same ones.  `relaxed` ones differ by what
LANGUAGE 3.10 allows, n·ε·Σ|x|.
"""

from __future__ import annotations

import importlib.util
import math
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.api.programs import reverse
from upl_mlir.ops import SPOKEN

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
NAMES = sorted(p.stem for p in EXAMPLES.glob("*.upl"))
DECIDED_BY_DATA = {"newton", "spmv"}
"""Outside the affine class: these run on the other engines."""
NO_GRADIENT = {"digits"}
"""Gradients of a whole training run of batches: too complex for isl, as test/examples says of it."""


@cache
def module(path: str) -> ModuleType:
    """A module that belongs to no package."""
    spec = importlib.util.spec_from_file_location(f"of_{Path(path).stem}", ROOT / path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def sized(name: str, params: dict[str, Any]) -> tuple[upl.Program, dict[str, int]]:
    """An example and the parameters of its calls: open sizes, or bound ones where arrays are among them."""
    arrays = any(isinstance(v, list) for v in params.values())
    text = (EXAMPLES / f"{name}.upl").read_text(encoding="utf-8")
    if arrays or name in ("training", "iris"):  # with open sizes isl gives up on their gradients
        return upl.load(text, **params).expanded(), {}
    open_ = set(upl.load(text).params)
    return upl.load(text, **{n: v for n, v in params.items() if n not in open_}).expanded(), {
        n: v for n, v in params.items() if n in open_
    }


def reals(ports: dict[str, Any]) -> list[str]:
    return [n for n, v in ports.items() if v.dtype.kind == "f"]


def filled(p: upl.Program, given: dict[str, Any], params: dict[str, int]) -> dict[str, Any]:
    """The inputs with random ones for those that differentiation added."""
    rng = np.random.default_rng(20211121)
    return given | {n: rng.standard_normal(v.shape(**params)) for n, v in p.inputs.items() if n not in given}


def agree(p: upl.Program, given: dict[str, Any], params: dict[str, int], *, real: Any = "f64") -> None:
    """Both engines give the same bits in order, and almost the same numbers else."""
    wanted = upl.compile(p, real=real, gather="ordered")(**given, **params)
    assert not any(np.isnan(v).any() for v in wanted.values())
    ordered = upl.compile(p, engine="native", real=real, gather="ordered")(**given, **params)
    assert ordered.keys() == wanted.keys()
    for name, value in wanted.items():
        assert ordered[name].dtype == value.dtype
        np.testing.assert_array_equal(ordered[name], value, err_msg=name)
    relaxed = upl.compile(p, engine="native", real=real)(**given, **params)
    near = 1e-12 if real == "f64" else 1e-4
    for name, value in wanted.items():
        scale = np.abs(value).max(initial=0.0)
        np.testing.assert_allclose(relaxed[name], value, rtol=near, atol=near * max(scale, 1e-300), err_msg=name)


@pytest.mark.parametrize("real", ["f64", "f32"])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in DECIDED_BY_DATA])
def test_an_example(name: str, real: str) -> None:
    d = module("examples/data.py").generate(name)
    p, params = sized(name, d.params)
    agree(p, d.inputs, params, real=real)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in DECIDED_BY_DATA | NO_GRADIENT])
def test_the_gradients_of_an_example(name: str) -> None:
    """Every real output by all real inputs."""
    d = module("examples/data.py").generate(name)
    p, params = sized(name, d.params)
    for of in reals(p.outputs):
        g = reverse(p, of=of, wrt=reals(p.inputs))
        agree(g, filled(g, d.inputs, params), params)


@pytest.mark.parametrize(("name", "of", "wrt"), [("mds", "Stress", "X"), ("gmm", "L", "M"), ("lstm", "Y", "W")])
def test_tangents_and_second_order(name: str, of: str, wrt: str) -> None:
    d = module("examples/data.py").generate(name)
    p, params = sized(name, d.params)
    derived = [upl.jvp(p, of=of, wrt=wrt)]
    if not p.outputs[of].fields:
        derived.append(upl.hvp(p, of=of, wrt=wrt))
    for g in derived:
        agree(g, filled(g, d.inputs, params), params)


CASES = module("test/autodiff/test_programs.py").CASES


@pytest.mark.parametrize(("text", "of", "wrt", "params"), [c[1:5] for c in CASES], ids=[c[0] for c in CASES])
def test_the_shapes_that_arrows_can_have(text: str, of: str, wrt: str, params: dict[str, int]) -> None:
    g = reverse(upl.load(text), of=of, wrt=wrt.split())
    given = {n: 0.1 + np.abs(v) for n, v in filled(g, {}, params).items()}
    agree(g, given, params)


def test_every_function_in_order() -> None:
    """All functions of LANGUAGE 2 on many arguments, the edges of their domains among them; the interpreter's bits."""
    names = [*(name for name, f in SPOKEN.items() if f.arity == 1), "abs"]
    binary = ["x**2.0", "x**3", "x**0.5", "x**y", "atan2(x, y)", "min(x, y)", "max(x, y)", "x/y", "2.0**x"]
    values = [f"{n}(x)" for n in names] + binary
    outputs = "\n".join(f"output R{i}<n>" for i in range(len(values)))
    sends = "\n".join(f"  {v} -> R{i}" for i, v in enumerate(values))
    p = upl.load(f"""program functions
param N >= 1
input X<n> in 0<=n<N {{ -> F.x }}
input Y<n> in 0<=n<N {{ -> F.y }}
{outputs}
node F<n> {{ in x, y
{sends}
}}
""")
    rng = np.random.default_rng(1)
    edges = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 5e-324, 1e308, -745.2, 709.8, 0.5, 1e22, 2.0**-1022]
    x = np.concatenate([rng.standard_normal(1500), 10.0 ** rng.uniform(-9, 9, 500), np.repeat(edges, len(edges))])
    y = np.concatenate([rng.standard_normal(1500), 10.0 ** rng.uniform(-2, 2, 500), np.tile(edges, len(edges))])
    for real in ("f64", "f32"):
        t = np.dtype(np.float64 if real == "f64" else np.float32)
        with np.errstate(over="ignore"):
            given = {"X": x.astype(t), "Y": y.astype(t)}
        wanted = upl.compile(p, real=real, gather="ordered")(**given)
        found = upl.compile(p, engine="native", real=real, gather="ordered")(**given)
        for i, value in enumerate(values):
            np.testing.assert_array_equal(found[f"R{i}"], wanted[f"R{i}"], err_msg=f"{value} {real}")
            zeros = wanted[f"R{i}"] == 0
            np.testing.assert_array_equal(np.signbit(found[f"R{i}"][zeros]), np.signbit(wanted[f"R{i}"][zeros]))


@pytest.mark.parametrize("n", [1, 7, 64, 1000])
@pytest.mark.parametrize("real", ["f64", "f32"])
def test_a_relaxed_sum_is_within_the_bound(n: int, real: str) -> None:
    """|found - exact| ≤ n·ε·Σ|x| with summands that cancel."""
    p = upl.load("""program dot
param n >= 1
input X<i> in 0<=i<n { -> Mul.x }
input Y<i> in 0<=i<n { -> Mul.y }
output S
node Mul<i> { in x, y; x*y -> Sum.s<> }
node Sum    { in @(+) s[n]; s -> S }
""")
    rng = np.random.default_rng(n)
    t = np.float64 if real == "f64" else np.float32
    x = (rng.standard_normal(n) * 10.0 ** rng.uniform(-4, 4, n)).astype(t)
    y = np.where(np.arange(n) % 2, -1, 1).astype(t) * rng.permutation(np.abs(x))
    found = upl.compile(p, engine="native", real=real)(X=x, Y=y)["S"]
    products = [float(a) * float(b) for a, b in zip(x, y, strict=True)]  # of f32: exact
    bound = n * np.finfo(t).eps * sum(map(abs, products))
    assert abs(float(found) - math.fsum(products)) <= bound


SUMS = {
    "matrices": "A B",
    "beginnings": """program beginnings
param n >= 1
input X<j> in 0<=j<n { -> S.s<i> for i in j..n-1 }
output C<i>
node S<i> in 0<=i<n { in @(+) s[i+1]; s -> C }
""",
    "windows": """program windows
param n >= 1
input X<j> in 0<=j<n { -> S.s<i> for i in 0..n-9 if i<=j && j<i+9 }
output C<i>
node S<i> in 0<=i<=n-9 { in @(+) s[9]; s -> C }
""",
    "sum of sums": """program sums
param n >= 1
input X<j> in 0<=j<n { -> S.s<j mod 8> }
output C
node S<i> in 0<=i<8 { in @(+) s[(n-i+7) floordiv 8]; s -> T.t<> }
node T { in @(+) t[8]; t -> C }
""",
}


def _sums(what: str, x: Any, y: Any) -> list[tuple[list[Fraction], int, Fraction]]:
    """For each element of the result its summands, their number, and what these themselves may be off by, over ε."""
    n = len(x)
    exact = [Fraction(float(v)) for v in x]
    if what == "matrices":
        rows, columns = x.reshape(-1, 16), y.reshape(16, -1)
        pairs = [zip(r, c, strict=True) for r in rows for c in columns.T]
        return [([Fraction(float(a)) * Fraction(float(b)) for a, b in p], 16, Fraction(0)) for p in pairs]
    if what == "beginnings":
        return [(exact[: i + 1], i + 1, Fraction(0)) for i in range(n)]
    if what == "windows":
        return [(exact[i : i + 9], 9, Fraction(0)) for i in range(n - 8)]
    parts = [exact[i::8] for i in range(8)]
    return [([sum(p, Fraction(0)) for p in parts], 8, sum((len(p) * sum(map(abs, p)) for p in parts), Fraction(0)))]


@pytest.mark.parametrize("real", ["f64", "f32"])
@pytest.mark.parametrize("what", SUMS)
def test_relaxed_sums_on_general_data(what: str, real: str) -> None:
    """Each within n·ε·Σ|x| of what it is exactly; and some are summed in another order, so that this says something."""
    rng = np.random.default_rng(8)
    t = np.float64 if real == "f64" else np.float32
    x, y = ((rng.standard_normal(208) * 10.0 ** rng.uniform(-3, 3, 208)).astype(t) for _ in range(2))
    if what == "matrices":
        p, given = upl.load("examples/matmul.upl"), {"A": x.reshape(-1, 16), "B": y.reshape(16, -1)}
    else:
        p, given = upl.load(SUMS[what]), {"X": x}
    found, ordered = (
        upl.compile(p, engine="native", real=real, gather=g)(**given)["C"] for g in ("relaxed", "ordered")
    )
    epsilon = Fraction(float(np.finfo(t).eps))
    for value, (summands, n, before) in zip(found.ravel(), _sums(what, x, y), strict=True):
        bound = epsilon * (n * sum(map(abs, summands)) * (1 + n * epsilon) + before)
        assert abs(Fraction(float(value)) - sum(summands)) <= bound
    assert (found != ordered).any()


OPPOSITE = """program opposite
const K = 4
input X<i> in 0<=i<3 { -> Res.x<K-1,i> }
input W<k,i,j> in 1<=k<K, 0<=i<3, 0<=j<3 { -> Link.w }
output R<i>
node Res<q,i> in 0<=q<K, 0<=i<3 { in x; if q>0: #3 -> Link.x<K-q,i,*>; if q==0: -> R<i> }
node Link<k,i,j> { in x, w; x*w #3 -> Sum.s<k,j> }
node Sum<k,j> { in @(+) s[#]; tanh(s) -> Res.x<K-1-k,j> }
"""


def test_nodes_that_count_layers_in_opposite_directions() -> None:
    """One loop runs up for one array and down for the other."""
    p = upl.load(OPPOSITE)
    for g in (p, upl.vjp(p, of="R", wrt=["X", "W"])):
        agree(g, filled(g, {}, {}), {})
