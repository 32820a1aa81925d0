"""Every operation, bit for bit as on the interpreter, on values that matter: infinities, NaN, zeros, limits."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.engines.interp import Engine
from upl_mlir.engines.token.engine import TokenEngine

HERE = Path(__file__).resolve().parents[1] / "interp"


def _load(name):
    spec = importlib.util.spec_from_file_location(f"token_tables_{name}", HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ir = _load("conftest").ir
TABLES = _load("test_values")
SPECIAL = np.array([*TABLES.SPECIAL, 1e-320, 1.5, 2.5, -0.5, 0.3, 1e17, 4.9e-324, -745.2, 20.0, 0.9999999999999999])
INTS = np.array([0, 1, -1, 2, -2, 3, 7, -7, 10, 63])


def program(ir, kind, operations, size):
    """A program with one output for each operation on inputs A and B of a kind."""
    type_ = {"real": "f64", "int": "i64"}[kind]
    pieces = [
        ir.input("A<i>", f"0<=i<{size}", f'upl.send %A -> @M::@a <"i"> : {type_}', kind),
        ir.input("B<i>", f"0<=i<{size}", f'upl.send %B -> @M::@b <"i"> : {type_}', kind),
    ]
    lines = [f'{text}\nupl.send %r{i} -> @R{i} <"i"> : {out}' for i, (text, out) in enumerate(operations)]
    pieces.append(ir.node("M<i>", f"a: {kind}, b: {kind}", "\n".join(lines)))
    names = {"f64": "real", "i64": "int", "i1": "bool"}
    return ir.program(
        *pieces, *(ir.output(f"R{i}<i>", f"0<=i<{size}", names[out]) for i, (_, out) in enumerate(operations))
    )


def check(ir, kind, operations, a, b, real="f64"):
    p = program(ir, kind, operations, len(a))
    results = [e(p, real=real).run({"A": a, "B": b}).outputs for e in (Engine, TokenEngine)]
    for i, (text, _) in enumerate(operations):
        one, other = (r[f"R{i}"] for r in results)
        assert one.dtype == other.dtype
        assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f"), text
        if one.dtype.kind == "f":
            known = ~np.isnan(one)
            assert np.array_equal(np.signbit(one[known]), np.signbit(other[known])), text


def pairs(values):
    return np.repeat(values, len(values)), np.tile(values, len(values))


@pytest.mark.parametrize("real", ["f64", "f32"])
def test_operations_on_reals(ir, real):
    operations = [(f"%r{i} = {op} %a : f64", "f64") for i, op in enumerate(TABLES.UNARY)]
    operations += [(f"%r{i} = {op} %a, %b : f64", "f64") for i, op in enumerate(TABLES.BINARY, len(operations))]
    tests = ("oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno")
    operations += [(f"%r{i} = arith.cmpf {t}, %a, %b : f64", "i1") for i, t in enumerate(tests, len(operations))]
    operations.append((f"%r{len(operations)} = math.fma %a, %b, %b : f64", "f64"))
    a, b = pairs(SPECIAL)
    check(ir, "real", operations, a, b, real)


def test_fma_rounds_once_where_the_product_alone_underflows(ir):
    p = program(ir, "real", [("%r0 = math.fma %a, %b, %b : f64", "f64")], 1)
    for engine in (Engine, TokenEngine):
        out = engine(p).run({"A": np.array([0.5]), "B": np.array([4.9e-324])}).outputs["R0"]
        assert out.tolist() == [9.9e-324]  # 1.5 times the least number, to even


def test_operations_on_integers(ir):
    names = [op for op in TABLES.INTEGER if op != "math.ipowi"]
    operations = [(f"%r{i} = {op} %a, %b" + " : i64" * (op != "upl.mod"), "i64") for i, op in enumerate(names)]
    tests = ("eq", "ne", "slt", "sle", "sgt", "sge")
    operations += [(f"%r{i} = arith.cmpi {t}, %a, %b : i64", "i1") for i, t in enumerate(tests, len(operations))]
    a, b = pairs(INTS)
    check(ir, "int", operations, a[b != 0], b[b != 0])
    a, b = pairs(np.array([1, -1, 2, -3, 7]))
    check(ir, "int", [("%r0 = math.ipowi %a, %b : i64", "i64")], a, b)


def test_compiled_constants_are_those_of_the_library():
    """A compiler that folds exp(1.5) rounds it correctly, and the C library may not."""
    calls = [f"tanh({x})" for x in (0.7, 0.45, 0.3, 0.23)]  # glibc 2.36 rounds the first two the other way
    outputs = "\n".join(f"output R{i}" for i in range(len(calls)))
    arrows = "\n".join(f"  x*{call} -> R{i}" for i, call in enumerate(calls))
    p = upl.load(f"program p\ninput X {{ -> A }}\n{outputs}\nnode A {{\n  in x\n{arrows}\n}}\n")
    one, other = (upl.compile(p, e)(X=1.0) for e in ("interp", "token"))
    assert one == other


def test_truth_values_as_factors():
    """GCC 12 crashed on the product of a comparison and a whole number that becomes a real."""
    text = "program p\nparam n >= 1\ninput X<i> in 0<=i<n { -> A.x }\noutput R<i>\nnode A<i> { in x; b = x > 2; b*3 -> R }\n"
    g = upl.vjp(upl.load(text), of="R", wrt=["X"])
    out = upl.compile(g, "token")(X=[1.0, 2.5, 5.0], d_R=[1.0, 1.0, 1.0])
    assert (out["R"].tolist(), out["d_X"].tolist()) == ([0, 3, 3], [0, 0, 0])
