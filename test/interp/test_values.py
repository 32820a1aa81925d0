"""Operations on values: IEEE without traps, 64-bit integers, f32 rounding, promotion (LANGUAGE 1, 3.6, 3.10)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from upl_mlir.diagnostics import UplError
from upl_mlir.engines.interp import Engine
from upl_mlir.engines.interp.bodies import TABLE

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-310, 1e300, -1e300, math.inf, -math.inf, math.nan, 709.0, 1e4]
INTS = [0, 1, -1, 2, -2, 3, 7, -7, 10]

UNARY = {
    "arith.negf": np.negative, "math.absf": np.abs, "math.floor": np.floor, "math.ceil": np.ceil,
    "math.trunc": np.trunc, "math.roundeven": np.round, "math.sqrt": np.sqrt, "math.cbrt": np.cbrt, "math.exp": np.exp,
    "math.exp2": np.exp2, "math.expm1": np.expm1, "math.log": np.log, "math.log2": np.log2, "math.log10": np.log10,
    "math.log1p": np.log1p, "math.sin": np.sin, "math.cos": np.cos, "math.tan": np.tan, "math.asin": np.arcsin,
    "math.acos": np.arccos, "math.atan": np.arctan, "math.sinh": np.sinh, "math.cosh": np.cosh, "math.tanh": np.tanh,
    "math.asinh": np.arcsinh, "math.acosh": np.arccosh, "math.atanh": np.arctanh,
    "upl.sigmoid": lambda x: 1 / (1 + np.exp(-x)), "math.rsqrt": lambda x: 1 / np.sqrt(x),
    "math.erf": np.vectorize(math.erf), "math.round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "upl.stop_gradient": lambda x: x,
}  # fmt: skip
BINARY = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.divf": np.divide,
    "arith.minimumf": np.minimum, "arith.maximumf": np.maximum, "arith.minnumf": np.fmin, "arith.maxnumf": np.fmax,
    "math.copysign": np.copysign, "math.powf": np.power, "math.atan2": np.arctan2,
}  # fmt: skip
INTEGER = {
    "arith.addi": lambda a, b: a + b, "arith.subi": lambda a, b: a - b, "arith.muli": lambda a, b: a * b,
    "arith.floordivsi": lambda a, b: math.floor(a / b), "arith.ceildivsi": lambda a, b: math.ceil(a / b),
    "arith.divsi": lambda a, b: math.trunc(a / b), "arith.remsi": lambda a, b: int(math.fmod(a, b)),
    "upl.mod": lambda a, b: a - b * math.floor(a / b), "arith.minsi": min, "arith.maxsi": max,
    "arith.andi": lambda a, b: a & b, "arith.ori": lambda a, b: a | b, "arith.xori": lambda a, b: a ^ b,
    "math.ipowi": lambda a, b: a**b if b >= 0 else math.trunc(float(a) ** b),
}  # fmt: skip


def pointwise(ir, ports, body, out="real", size=None, result="%r"):
    """A program that applies a body to elements: inputs A, B, ... of the given types, output R."""
    mlir = {"real": "f64", "f64": "f64", "f32": "f32", "int": "i64", "bool": "i1"}
    inputs = [
        ir.input(
            f"{n.upper()}<i>", f"0<=i<{size}", f'upl.send %{n.upper()} -> @M::@{n} <"i"> : {mlir[t]}', t
        )
        for n, t in ports.items()
    ]  # fmt: skip
    heads = ", ".join(n if t == "real" else f"{n}: {t}" for n, t in ports.items())
    node = ir.node("M<i>", heads, f'{body}\nupl.send {result} -> @R <"i"> : {mlir[out]}')
    return ir.program(*inputs, node, ir.output("R<i>", f"0<=i<{size}", out))


def evaluate(ir, ports, body, arrays, out="real", result="%r", **options):
    size = len(next(iter(arrays.values())))
    program = pointwise(ir, ports, body, out, size, result)
    return Engine(program, **options).run({k.upper(): np.asarray(v) for k, v in arrays.items()}).outputs["R"]


def same(got, expected, ulp=4):
    """Equal up to a few units in the last place, NaN for NaN, zeros with their sign."""
    expected = np.asarray(expected, got.dtype)
    zeros = expected == 0
    assert np.array_equal(np.signbit(got[zeros]), np.signbit(expected[zeros]))
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    finite = np.isfinite(expected)
    assert np.array_equal(got[~finite], expected[~finite], equal_nan=True)
    np.testing.assert_array_max_ulp(got[finite], expected[finite], ulp, dtype=got.dtype)


@pytest.mark.parametrize("op", UNARY)
def test_functions_of_one_real(ir, op):
    with np.errstate(all="ignore"):
        expected = UNARY[op](np.array(SPECIAL))
    same(evaluate(ir, {"a": "real"}, f"%r = {op} %a : f64", {"a": SPECIAL}), expected)


@pytest.mark.parametrize("op", BINARY)
def test_functions_of_two_reals(ir, op):
    a, b = np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))
    with np.errstate(all="ignore"):
        expected = BINARY[op](a, b)
    got = evaluate(ir, {"a": "real", "b": "real"}, f"%r = {op} %a, %b : f64", {"a": a, "b": b})
    if op.removeprefix("arith.") in ("minimumf", "maximumf", "minnumf", "maxnumf"):
        zeros = (a == 0) & (b == 0)  # numpy takes either zero; IEEE 754-2019 orders them
        both = np.signbit(a) | np.signbit(b) if "min" in op else np.signbit(a) & np.signbit(b)
        expected[zeros] = np.where(both[zeros], -0.0, 0.0)
    same(got, expected)


@pytest.mark.parametrize("op", INTEGER)
def test_functions_of_two_integers(ir, op):
    pairs = [(a, b) for a in INTS for b in INTS if b != 0 and not (op == "math.ipowi" and a == 0 and b < 0)]
    a, b = map(np.array, zip(*pairs, strict=True))
    text = f"%r = {op} %a, %b" + ("" if op == "upl.mod" else " : i64")
    got = evaluate(ir, {"a": "int", "b": "int"}, text, {"a": a, "b": b}, "int")
    assert got.tolist() == [INTEGER[op](x, y) for x, y in pairs]


@pytest.mark.parametrize(
    ("predicate", "test"),
    [
        ("oeq", lambda a, b: a == b), ("une", lambda a, b: a != b), ("olt", lambda a, b: a < b),
        ("ole", lambda a, b: a <= b), ("ogt", lambda a, b: a > b), ("oge", lambda a, b: a >= b),
        ("one", lambda a, b: (a < b) | (a > b)), ("ueq", lambda a, b: ~((a < b) | (a > b))),
        ("ult", lambda a, b: ~(a >= b)), ("uno", lambda a, b: np.isnan(a) | np.isnan(b)),
        ("ord", lambda a, b: ~(np.isnan(a) | np.isnan(b))), ("ugt", lambda a, b: ~(a <= b)),
        ("ule", lambda a, b: ~(a > b)), ("uge", lambda a, b: ~(a < b)),
    ],
)  # fmt: skip
def test_comparisons_of_reals(ir, predicate, test):
    a, b = np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))
    text = f"%r = arith.cmpf {predicate}, %a, %b : f64"
    got = evaluate(ir, {"a": "real", "b": "real"}, text, {"a": a, "b": b}, "bool")
    assert np.array_equal(got, test(a, b))


@pytest.mark.parametrize("op", ["addf", "subf", "mulf", "divf"])
def test_f32_rounds_every_operation(ir, rng, op):
    def values(*special):
        wide = rng.standard_normal(200) * 10.0 ** rng.integers(-30, 30, 200)
        return np.concatenate([wide, special]).astype("f")

    a, b = values(3e38, 1e-45, np.inf), values(3e38, 0.5, 1e-40)
    with np.errstate(all="ignore"):
        expected = BINARY[f"arith.{op}"](a, b)
    got = evaluate(ir, {"a": "real", "b": "real"}, f"%r = arith.{op} %a, %b : f64", {"a": a, "b": b}, real="f32")
    assert got.dtype == np.float32
    assert np.array_equal(got, expected, equal_nan=True)
    declared = evaluate(
        ir, {"a": "f32", "b": "f32"}, f"%r = arith.{op} %a, %b : f32", {"a": a, "b": b}, "f32"
    )  # declared f32 is f32 in every engine
    assert np.array_equal(declared, expected, equal_nan=True)


def test_inputs_are_rounded_to_f32(ir):
    got = evaluate(ir, {"a": "real"}, "", {"a": [0.1, 1e39, 1e-60]}, result="%a", real="f32")
    assert got.tolist() == [float(np.float32(0.1)), math.inf, 0.0]


def test_declared_f64_stays_f64_among_f32(ir):
    # f64 + real is f64; a literal takes the precision of where it stands
    body = "%c = arith.constant 0.1 : f64\n%s = arith.addf %a, %b : f64\n%r = arith.mulf %s, %c : f64"
    a, b = np.array([1 / 3, 1e-9]), np.array([0.7, 1.0])
    got = evaluate(ir, {"a": "f64", "b": "real"}, body, {"a": a, "b": b}, "f64", real="f32")
    assert got.dtype == np.float64
    assert np.array_equal(got, (a + b.astype("f").astype("d")) * 0.1)
    narrow = evaluate(ir, {"a": "real", "b": "real"}, body, {"a": a, "b": b}, real="f32")
    assert np.array_equal(narrow, (a.astype("f") + b.astype("f")) * np.float32(0.1))


def test_an_integer_joins_f64_without_a_detour_by_f32(ir):
    body = "%x = arith.sitofp %n : i64 to f64\n%r = arith.addf %a, %x : f64"
    n = 2**24 + 1  # has no f32
    got = evaluate(ir, {"a": "f64", "n": "int"}, body, {"a": [0.0], "n": [n]}, "f64", real="f32")
    assert got.tolist() == [n]
    assert evaluate(ir, {"a": "real", "n": "int"}, body, {"a": [0.0], "n": [n]}, real="f32").tolist() == [2**24]


def test_reals_take_the_precision_of_the_input_they_go_to(ir):
    program = ir.program(
        ir.input("A<i>", "0<=i<2", 'upl.send %A -> @N::@x <"i"> : f64\nupl.send %A -> @N::@y <"i"> : f64', "f64"),
        ir.node("N<i>", "x, y: f64", 'upl.send %x -> @R <"i"> : f64\nupl.send %y -> @S <"i"> : f64'),
        ir.output("R<i>", "0<=i<2", "f64"), ir.output("S<i>", "0<=i<2", "f64"),
    )  # fmt: skip
    a = np.array([0.1, 0.2])
    for real, rounded in (("f64", a), ("f32", a.astype("f").astype("d"))):
        got = Engine(program, real=real).run({"A": a}).outputs
        assert np.array_equal(got["R"], rounded)
        assert np.array_equal(got["S"], a)


def test_constants_parameters_and_arrays_in_bodies(ir):
    program = ir.program(
        ir.param("D", "D>=1"),
        "upl.const @eta = 0.25 : f64",
        'upl.array @V <"1"> to <"3"> from 1 : i64 = array<f64: 0.5, 1.5, 2.5>',
        ir.input("X<i>", "1<=i<=3", 'upl.send %X -> @M::@x <"i"> : f64'),
        ir.node(
            "M<i>", "x",
            """%e = upl.ref @eta : f64
            %d = upl.ref @D : i64
            %f = arith.sitofp %d : i64 to f64
            %v = upl.lookup @V[%i] : f64
            %1 = arith.mulf %e, %x : f64
            %2 = arith.mulf %f, %v : f64
            %3 = arith.addf %1, %2 : f64
            %i0 = arith.sitofp %i : i64 to f64
            %4 = arith.mulf %3, %i0 : f64
            upl.send %4 -> @R <"i"> : f64""",
        ),
        ir.output("R<i>", "1<=i<=3"),
    )  # fmt: skip
    got = Engine(program, {"D": 10}).run({"X": np.array([4.0, 8, 12])}).outputs["R"]
    assert got.tolist() == [(1 + 5) * 1, (2 + 15) * 2, (3 + 25) * 3]


TRAPS = {
    "%r = arith.addi %a, %b : i64": (2**62, 2**62, "overflow"),
    "%r = arith.subi %a, %b : i64": (-(2**63), 1, "overflow"),
    "%r = arith.muli %a, %b : i64": (2**32, 2**32, "overflow"),
    "%r = math.absi %a : i64": (-(2**63), 0, "overflow"),
    "%r = math.ipowi %a, %b : i64": (2, 63, "overflow"),
    "%r = arith.floordivsi %a, %b : i64": (1, 0, "division by zero"),
    "%r = arith.divsi %a, %b : i64": (-(2**63), -1, "overflow"),
    "%r = upl.mod %a, %b": (1, 0, "division by zero"),
    "%x = arith.sitofp %a : i64 to f64\n%y = arith.sitofp %b : i64 to f64\n%z = arith.divf %x, %y : f64\n"
    "%r = arith.fptosi %z : f64 to i64": (0, 0, "nan has no 64-bit integer value"),
}


@pytest.mark.parametrize("body", TRAPS)
def test_integers_without_a_value_are_errors_with_node_and_index(ir, body):
    a, b, why = TRAPS[body]
    with pytest.raises(UplError) as e:
        evaluate(ir, {"a": "int", "b": "int"}, body, {"a": [1, a], "b": [1, b]}, "int")
    assert e.value.diagnostics[0].code == "UPL1604"
    assert "`M<1>`" in str(e.value)
    assert why in str(e.value)


@pytest.mark.parametrize("arrows", [1, 2])
def test_a_condition_guards_the_value_of_its_arrow(ir, arrows):
    # x/0 as an integer has no value, but no arrow that is taken needs it
    body = """%zero = arith.constant 0.0 : f64
        %go = arith.cmpf une, %a, %zero : f64
        %one = arith.constant 1.0 : f64
        %q = arith.divf %one, %a : f64
        %n = arith.fptosi %q : f64 to i64
        %m = upl.let "m" %n : i64
        upl.send %m -> @Q <"i"> if %go : i64\n"""
    body += 'upl.send %m -> @P <"i"> if %go : i64\n' if arrows == 2 else ""
    program = ir.program(
        ir.input("A<i>", "0<=i<2", 'upl.send %A -> @M::@a <"i"> : f64'),
        ir.node("M<i>", "a", body),
        ir.output("Q<i>", "i==1", "int"),
        *([ir.output("P<i>", "i==1", "int")] if arrows == 2 else []),
    )
    assert Engine(program).run({"A": np.array([0.0, 0.25])}).outputs["Q"].tolist() == [4]


def test_the_sum_of_integers_overflows(ir):
    program = ir.program(
        ir.input("X<i>", "0<=i<2", 'upl.send %X -> @S::@s <""> : i64', "int"),
        ir.node("S", "@(+) s[2]: int", 'upl.send %s -> @R <""> : i64'),
        ir.output("R", "", "int"),
    )
    with pytest.raises(UplError, match=r"UPL1604.*overflow"):
        Engine(program).run({"X": np.array([2**62, 2**62])})


def test_an_unknown_operation_is_refused_before_running(ir):
    with pytest.raises(UplError, match=r"UPL1607.*arith\.shli"):
        Engine(pointwise(ir, {"a": "int"}, "%r = arith.shli %a, %a : i64", "int", 1))


def test_every_row_of_the_table_is_tested():
    tested = {*UNARY, *BINARY, *INTEGER, *(t.split("=")[-1].split()[0] for t in TRAPS)}
    elsewhere = {"arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.extui", "arith.extf", "arith.truncf",
                 "arith.select", "math.fma", "math.fpowi", "upl.along"}  # fmt: skip
    assert {op.name for op in TABLE} == tested - {"arith.andi", "arith.ori", "arith.xori"} | elsewhere


def test_a_given_derivative_does_not_change_the_value(ir):
    a = np.array([0.1, -3.0, 2.0])
    body = "%s = math.exp %a : f64\n%r = upl.along %s, %s, %a : f64"
    assert evaluate(ir, {"a": "real"}, body, {"a": a}).tolist() == a.tolist()


def test_conversions_select_and_fma(ir):
    body = """%z = arith.constant 0.0 : f64
        %p = arith.cmpf ogt, %a, %z : f64
        %i0 = arith.extui %p : i1 to i64
        %f = arith.sitofp %i0 : i64 to f64
        %t = arith.truncf %a : f64 to f32
        %w = arith.extf %t : f32 to f64
        %s = arith.select %p, %w, %z : f64
        %m = math.fma %a, %a, %s : f64
        %n = math.fpowi %m, %i0 : f64, i64
        %r = arith.addf %n, %f : f64"""
    a = np.array([0.1, -3.0, 2.0])
    w = np.where(a > 0, a.astype("f").astype("d"), 0)
    from fractions import Fraction

    m = [float(Fraction(x) * Fraction(x) + Fraction(y)) for x, y in zip(a, w, strict=True)]
    assert evaluate(ir, {"a": "real"}, body, {"a": a}).tolist() == [m[0] + 1, 1.0, m[2] + 1]
