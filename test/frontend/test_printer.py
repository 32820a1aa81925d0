
"""Printing and reading back: the same program, and text that a person would write."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp, StringAttr, f32, f64, i64
from xdsl.ir import Operation

from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl import FormulaAttr, LetOp, NodeOp, OutputOp, Port, ProgramOp, SendOp, UplType, port_ref
from upl_mlir.dialects.upl.query import endpoints, program_of
from upl_mlir.frontend.upl_text.load import load_text
from upl_mlir.frontend.upl_text.printing.printer import print_program
from upl_mlir.poly.parse import parse_formula

INPUTS = Path(__file__).resolve().parents[1] / "Inputs"

PERCEPTRON = """program perceptron
param D >= 1
const K = 7
const N[0:K-1] = [4, 4, 5, 6, 4, 3, 3]

input X<d,i> in 1<=d<=D, 1<=i<=N[0] { X -> Res.r<d,1,i> }
input W<d,k,i,j> in 1<=d<=D, 1<=k<K, 1<=i<=N[k-1], 1<=j<=N[k] { W -> Link.w<d,k,i,j> }
output R<d,i>

node Res<d,k,i> in 1<=d<=D, 1<=k<=K, 1<=i<=N[k-1] {
  in r
  if k<K: r #N[k] -> Link.r<d,k,i,*>
  if k==K: r -> R<d,i>
}
node Link<d,k,i,j> { in r, w; r*w #N[k-1] -> Sum.s<d,k,j> }
node Sum<d,k,i> { in @(+) s[#]; s -> AF_ReLU.s<d,k,i> }
node AF_ReLU<d,k,i> {
  in s
  b = s > 0
  b*s -> Res.r<d,k+1,i>
}
"""

SHORT = (INPUTS / "perceptron.upl").read_text(encoding="utf-8")

TRAINING = (INPUTS / "training.upl").read_text(encoding="utf-8")

CONV2D = (INPUTS / "convolution.upl").read_text(encoding="utf-8")

JACOBI = (INPUTS / "stencil.upl").read_text(encoding="utf-8")

NEWTON = (INPUTS / "newton.upl").read_text(encoding="utf-8")

RESHAPE = (INPUTS / "reshape.upl").read_text(encoding="utf-8")

MANY = """program many
param D
param E != 3
const big = -9223372036854775807 - 1
const inf = 1/0
const nothing = 0/0
const M[-1:1] = [0.5, -2.0, 1e-9]
input P<i>: int in 0<=i<D, i!=3 || i>10 { if i>0 || i<-3: 1 -> A.x<P> }
input Q
output S<i>: int
output T: f64
node A<i> in i>=0 {
  in x: f32, n: int, @(&&) p[i+1]: bool, @(min) m[n], @(*) q[2*(i mod 3)]: f64
  v: real = n
  u = p && n > 0 || !p
  t1: f32 = x + 0.5
  if i>=0 && (p || i > n): v ## -> A.x<max(i,3)>
  if !(i>2 || i<1) && u: v*M[n]**2 #max(1,D-i) -> A.q<(i>0 ? i : 0)> for a in 0..D, b in a..2*a if a!=b
  -x -> A.m<i>
  n*(n floordiv 2) - (n - 1) -> S<i>
}
node A { t1 -> T<> }
"""

PROGRAMS = {
    "perceptron": PERCEPTRON, "as written": SHORT, "training": TRAINING, "conv2d": CONV2D, "jacobi1d": JACOBI,
    "newton": NEWTON, "reshape": RESHAPE, "many": MANY,
}  # fmt: skip


def text_of(module: ModuleOp, *, domains: bool = False) -> str:
    return print_program(program_of(module), domains=domains)


@pytest.mark.parametrize("text", list(PROGRAMS.values()), ids=list(PROGRAMS))
def test_reads_back_as_the_same_program(text: str) -> None:
    module = load_text(text)
    printed = text_of(module)
    again = load_text(printed)
    assert module.is_structurally_equivalent(again), printed
    assert text_of(again) == printed


def test_as_a_person_would_write_it() -> None:
    assert text_of(load_text(SHORT)) == PERCEPTRON


def test_conditions_and_directive() -> None:
    newton = text_of(load_text(NEWTON))
    assert "  y = x - (x*x - a)/(2*x)\n  more = abs(y - x) > 1e-09\n  if n<Nmax-1 && more: y -> It.x<n+1>\n" in newton
    assert "adjoint of Err.r seed Err.e wrt Link.w -> Upd.dw\n" in text_of(load_text(TRAINING))


VALUES = [
    "(a + b)*c", "a + b*c", "a - (b - c)", "a - b - c", "a/(b*c)", "-a**2", "(-a)**2", "a**b**c", "(a**b)**c",
    "a**(-1)", "-(a + b)", "p ? a : q ? b : c", "(p ? a : b) + c", "a*(-b)", "min(a, b, c)", "max(0, min(a, 1))",
    "real(n)**2", "n**2 + 0.5", "f32(a)*f", "f32(0.1)*f", "int(a)*floor(b)", "(n mod 3)/m", "2*n floordiv 3", "2*a", "2.0*n",
    "n/m", "a + (b + c)", "abs(n)", "sqrt(2)", "stop_gradient(a)",
    "with_derivative(floor(a), a, 1)", "with_derivative(a*b, b, 2*a, c, a)", "with_derivative(n, f, 0.5)*b",
    "N[n + 1]*a", "D*a", "eta", "1e+20", "0.1", "-0.5",
    "(a > 0)*b", "p + p", "p*a", "p && q ? 1 : 0.5", "(a < b) != (b < c) ? a : b", "atan2(a, b)",
]  # fmt: skip
TESTS = [
    "p || q && !p", "(p || q) && p", "a < b < c", "a < b && b == c || p", "0 < n < a", "!(a < b)", "a != b", "n == 2",
    "p == q", "(p ? a : b) < c", "p && (q && p)", "1 < a*b <= 2",
]  # fmt: skip


def wrapped(value: str, port: str) -> str:
    return (
        "program w\nparam D\nconst eta = 0.5\nconst N[0:1] = [1, 2]\n\noutput R\noutput P: bool\n\nnode A {\n"
        f"  in a, b, c, f: f32, n: int, m: int, p: bool, q: bool\n  {value} -> {port}<>\n}}\n"
    )


@pytest.mark.parametrize("value", VALUES)
def test_values_keep_their_text(value: str) -> None:
    one_line = text_of(load_text(wrapped(value, "R")))
    assert f"; {value} -> R<> }}" in one_line or f"  {value} -> R<>\n" in one_line


@pytest.mark.parametrize("value", TESTS)
def test_truth_values_keep_their_text(value: str) -> None:
    assert f"{value} -> P<>" in text_of(load_text(wrapped(value, "P")))


def _number(r: random.Random, depth: int) -> str:
    if not depth:
        leaves = (
            "x y f n m p q k K eta N[k] M[n] 0 1 2 7 0.5 2.0 1e-9 -3 -0.0 1e20 f32(0.1) true real(n) int(x) floor(y)"
        )
        return r.choice(leaves.split())
    a, b = _number(r, depth - 1), _number(r, depth - 1)
    function = r.choice("sqrt exp abs sigmoid floor int real f32 f64 stop_gradient tanh".split())
    return r.choice(
        [
            f"({a} {r.choice('+ - * / **'.split())} {b})", f"({a} {r.choice('+-')} {b})", f"(-{a})", f"{function}({a})",
            f"{r.choice(['min', 'max'])}({a}, {b}, {_number(r, 0)})", f"with_derivative({a}, {b}, {_number(r, 0)})",
            f"({_test(r, depth - 1)} ? {a} : {b})",
            f"(int({a}) {r.choice('floordiv ceildiv mod'.split())} {r.choice(['n', '3', 'int(y)'])})", f"atan2({a}, {b})",
        ]
    )  # fmt: skip


def _test(r: random.Random, depth: int) -> str:
    if not depth:
        return r.choice("p q true false".split())
    a, b, c = (_number(r, depth - 1) for _ in range(3))
    p, q = _test(r, depth - 1), _test(r, depth - 1)
    compare = "< <= > >= == !=".split()
    return r.choice(
        [
            f"({a} {r.choice(compare)} {b})", f"({a} {r.choice(compare)} {b} {r.choice(compare)} {c})",
            f"({p} {r.choice(['&&', '||'])} {q})", f"(!{p})", f"({p} ? {q} : {p})",
        ]
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_read_back(seed: int) -> None:
    r = random.Random(seed)
    for _ in range(4):
        text = (
            "param D\nconst K = 3\nconst eta = 0.5\nconst N[0:3] = [1,2,3,4]\nconst M[0:1] = [0.5, 2.0]\n"
            "node A<k> {\n  in x, y, f: f32, n: int, m: int, p: bool, q: bool\n"
            f"  v = {_number(r, 1)}\n  w: {r.choice(['real', 'f32'])} = {_number(r, 3)}\n"
            f"  if {_test(r, 2)} && {r.choice(['k<K', 'true', 'k<n', '(k<1||k>D)'])} && {_test(r, 2)}:"
            f" {_number(r, 3)} -> B.a\n  {_number(r, 3)} -> B.b<k>\n  {_test(r, 3)} -> B.c\n}}\n"
            "node B<k> { in a, b: f32, c: bool; a -> R }\noutput R<k>\n"
        )
        module = load_text(text)
        printed = text_of(module)
        again = load_text(printed)
        assert module.is_structurally_equivalent(again), f"{text}\n{printed}\n{module}\n{again}"


# -- programs that passes make -------------------------------------------------------------------------------------


def made(ops: list[Operation], node: NodeOp) -> str:
    node.block.add_ops(ops)
    program = ProgramOp("p", [OutputOp("R", (), UplType.REAL, None), node])
    module = ModuleOp([program])
    module.verify()
    printed = print_program(program)
    load_text(printed)
    return printed


def test_a_shared_value_gets_a_name() -> None:
    node = NodeOp("A", (), [Port("x"), Port("t1")])
    ops: list[Operation] = []
    value = node.arg("x")
    for _ in range(40):  # 2**40 leaves if written out
        op = arith.AddfOp(value, value)
        ops.append(op)
        value = op.result
    printed = made([*ops, SendOp(value, port_ref("R"), ())], node)
    assert "  t2 = x + x\n  t3 = t2 + t2\n" in printed
    assert printed.count("\n") < 60


def test_a_name_given_by_an_assignment_serves_all() -> None:
    node = NodeOp("A", (), [Port("x")])
    op = math.ExpOp(node.arg("x"))
    let = LetOp("e", op.result)
    total = arith.AddfOp(op.result, let.result)
    printed = made([op, let, total, SendOp(total.result, port_ref("R"), ())], node)
    assert "  e = exp(x)\n  e + e -> R<>\n" in printed


def test_dead_values_are_left_out_and_deep_ones_broken_up() -> None:
    node = NodeOp("A", (), [Port("x")])
    ops: list[Operation] = [math.ExpOp(node.arg("x"))]
    value = node.arg("x")
    for _ in range(400):
        op = arith.AddfOp(node.arg("x"), value)
        ops.append(op)
        value = op.result
    printed = made([*ops, SendOp(value, port_ref("R"), ())], node)
    assert "exp" not in printed
    assert "  t1 = " in printed


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (FloatAttr(float("inf"), f64), "1/0"),
        (FloatAttr(float("-inf"), f64), "-1/0"),
        (FloatAttr(float("nan"), f64), "0/0"),
        (FloatAttr(-0.0, f64), "-0.0"),
        (FloatAttr(1e-9, f64), "1e-09"),
        (FloatAttr(2.0, f64), "2"),
        (FloatAttr(0.1, f32), "f32(0.1)"),
        (IntegerAttr(-(2**63), i64), "-9223372036854775807 - 1"),
    ],
)
def test_numbers(number: FloatAttr | IntegerAttr, text: str) -> None:
    node = NodeOp("A", (), [Port("x")])
    constant = arith.ConstantOp(number)
    out: list[Operation] = [constant]
    if number.type == i64:
        out.append(arith.SIToFPOp(constant.result, f64))
    elif number.type == f32:
        out.append(arith.ExtFOp(constant.result, f64))
    assert f"{text} -> R<>" in made([*out, SendOp(out[-1].results[0], port_ref("R"), ())], node)


def test_comments_rules_and_domains() -> None:
    module = load_text(
        "program c\noutput R<i>\nnode A<i> { in x; x -> R; x #2 -> A.x<i> }\nnode B<i> { in x; x -> R }\n"
    )
    a, b = (endpoints(program_of(module))[n] for n in "AB")
    assert isinstance(a, NodeOp) and isinstance(b, NodeOp)
    a.attributes["upl.comment"] = StringAttr("adjoint of\nA")
    a.sends[0].attributes["upl.comment"] = StringAttr("rule 2")
    b.attributes["upl.comment"] = StringAttr("short")
    a.domain = FormulaAttr(parse_formula("0<=i<3"))
    printed = text_of(module)
    assert "node A<i> {  // adjoint of A\n  in x\n  x -> R<i>  // rule 2\n  x #2 -> A.x<i>\n}\n" in printed
    assert "node B<i> { in x; x -> R<i> }  // short\n" in printed
    assert "node A<i> in 0<=i<3 {" in text_of(module, domains=True)
    load_text(printed)


def test_what_has_no_text_is_an_error() -> None:
    node = NodeOp("A", (), [Port("x")])
    op = math.Log2Op(node.arg("x"))
    with pytest.raises(UplError, match=r"UPL1113.*math\.log2"):
        made([op, SendOp(op.result, port_ref("R"), ())], node)


def test_the_same_text_under_any_hash_seed() -> None:
    script = (
        "import sys; from upl_mlir.frontend.upl_text.load import load_text;"
        "from upl_mlir.frontend.upl_text.printing.printer import print_program;"
        "from upl_mlir.dialects.upl.query import program_of;"
        "print(print_program(program_of(load_text(sys.stdin.read()))))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", script],
            input=MANY,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1")
    }
    assert len(texts) == 1
