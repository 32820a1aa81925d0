"""Host arrays: layouts, every form an input may have, parameters from shapes, every error (LANGUAGE 3.7)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects import arith
from xdsl.dialects.builtin import Builtin
from xdsl.parser import Parser

from upl_mlir import host
from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl import UPL
from upl_mlir.dialects.upl.query import program_of
from upl_mlir.host import arrays as host_arrays
from upl_mlir.poly.counts.dense import Extents, solve_parameters
from upl_mlir.poly.parse import parse_formula
from upl_mlir.poly.sets import PolyContext


def program(*ports, params=('upl.param @D where <"D>=1">',)):
    """A program of ports only: (head, type, domain); outputs begin with `>`."""
    text = [*params, "upl.const @K = 4 : i64", 'upl.array @N <"0"> to <"3"> from 0 : i64 = array<i64: 3, 2, 4, 1>']
    for head, type_, where in ports:
        name, _, fields = head.strip(">").partition("<")
        args = "".join(f"%{f}: i64, " for f in fields.split(",") if f)
        mlir = {"real": "f64", "f32": "f32", "int": "i64", "bool": "i1"}[type_]
        text.append(f'upl.input @{name} <"{fields}"> "{type_}" in <"{where}"> {{ ^bb0({args}%{name}: {mlir}):\n}}')
    text.append('upl.output @R <"d,i"> "real" domain <"1<=d<=D && 0<=i<2">' if params else "")
    context = Context()
    for dialect in (Builtin, UPL, arith.Arith):
        context.load_dialect(dialect)
    return program_of(Parser(context, "builtin.module { upl.program @p {" + "\n".join(text) + "\n} }").parse_module())


X = ("X<d,i>", "real", "1<=d<=D && 1<=i<=N[0]")
W = ("W<k,i,j>", "real", "1<=k<K && 1<=i<=N[k-1] && 1<=j<=N[k]")


def dense(p, arrays, **params):
    bound = host.bind_parameters(p, arrays, params)
    return host.bind_arrays(p, host.host_ports(p, bound), arrays)


def fails(code, p, arrays, **params):
    with pytest.raises(UplError) as e:
        dense(p, arrays, **params)
    (found,) = e.value.diagnostics
    assert found.code == code, found
    return str(e.value)


def inside():
    """Which elements of W's box belong to it."""
    sizes, out = (3, 2, 4, 1), np.zeros((3, 4, 4), bool)
    for k in range(3):
        out[k, : sizes[k], : sizes[k + 1]] = True
    return out


def test_layout_of_a_port():
    port = host.host_ports(program(X, W), {"D": 5})["W"]
    assert (port.shape, port.origin) == ((3, 4, 4), (1, 1, 1))
    assert np.array_equal(port.inside, inside())
    points = list(port.points())
    assert points == sorted(points)
    assert len(points) == 6 + 8 + 4
    assert all(port.inside[port.box.place(p)] for p in points)


@pytest.mark.parametrize(
    ("where", "origin", "shape", "count"),
    [
        ("-2<=i<=2 && i mod 2 == 0", (-2,), (5,), 3),
        ("0<=i<9 && !(i<3 || i==5)", (3,), (6,), 5),
        ("0<=i<=9 && i<=N[i]", (0,), (3,), 3),  # outside the table a comparison is false
        ("0<=i<=9 && !(i<=N[i])", (3,), (1,), 1),  # negated or not
        ("0<=i && 2*i<=7", (0,), (4,), 4),
        ("i==3 || i==7", (3,), (5,), 2),
        ("0<=i<0", (0,), (0,), 0),
        ("0<=i<8 && i>=min(K,3) && i<=(K>3 ? 5 : 9)", (3,), (3,), 3),
    ],
)
def test_boxes_and_masks(where, origin, shape, count):
    port = host.host_ports(program(("X<i>", "real", where)), {"D": 1})["X"]
    assert (port.origin, port.shape, int(port.inside.sum())) == (origin, shape, count)


def test_dense_ragged_and_by_index_are_the_same():
    rng = np.random.default_rng(0)
    w = np.where(inside(), rng.standard_normal((3, 4, 4)), np.nan)  # outside the domain anything may stand
    p, x = program(X, W), np.ones((2, 3))
    expected = np.where(inside(), w, 0)
    lists = [w[0, :3, :2], w[1, :2, :4], w[2, :4, :1]]
    by_index = {(k + 1, i + 1, j + 1): w[k, i, j] for k, i, j in zip(*np.nonzero(inside()), strict=True)}
    for given in (w, lists, tuple(lists), [m.tolist() for m in lists], by_index, w.tolist()):
        assert np.array_equal(dense(p, {"X": x, "W": given})["W"], expected)
    back = host.ragged(expected, host.host_ports(p, {"D": 2})["W"], "k")
    assert all(np.array_equal(a, b) for a, b in zip(back, lists, strict=True))


def test_ragged_along_another_field_and_slices_of_one_shape():
    p = program(("T<i,j>", "real", "0<=i<3 && 0<=j<=i"))
    expected = np.tril(np.arange(9.0).reshape(3, 3))
    assert np.array_equal(dense(p, {"T": [expected[i, : i + 1] for i in range(3)]}, D=1)["T"], expected)
    # along j the list has three slices too, of lengths 3, 2, 1
    assert np.array_equal(dense(p, {"T": [expected[j:, j] for j in range(3)]}, D=1)["T"], expected)
    q = program(("T<i,j>", "real", "0<=i<3 && i<=j<=i+1"))  # each slice has two elements, the box has four columns
    assert dense(q, {"T": [[1.0, 2], [3, 4], [5, 6]]}, D=1)["T"].tolist() == [[1, 2, 0, 0], [0, 3, 4, 0], [0, 0, 5, 6]]


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.array(2), True + 1, {(): 2}])
def test_scalars_for_ports_without_fields(value):
    got = dense(program(("S", "real", "true")), {"S": value}, D=1)["S"]
    assert (got.shape, got.dtype, float(got)) == ((), np.float64, 2.0)


@pytest.mark.parametrize(
    ("type_", "given", "dtype"),
    [
        ("real", np.array([1, 2]), np.float64), ("f32", [0.1, 1e39], np.float32), ("int", [1.0, -3.0], np.int64),
        ("int", np.array([1, 2], np.uint8), np.int64), ("int", [True, False], np.int64),
        ("bool", [1, 0], np.bool_), ("bool", [1.0, 0.0], np.bool_), ("real", [np.nan, np.inf], np.float64),
        ("int", [2**62, -(2**63)], np.int64), ("real", [True, False], np.float64),
        ("real", [2**70, -(2**64)], np.float64), ("f32", [2**70, 0], np.float32),
    ],
)  # fmt: skip
def test_types_that_fit(type_, given, dtype):
    got = dense(program(("V<i>", type_, "0<=i<2")), {"V": given}, D=1)["V"]
    assert got.dtype == dtype
    with np.errstate(over="ignore"):
        assert np.array_equal(got, np.array(given).astype(dtype), equal_nan=True)


@pytest.mark.parametrize(
    ("type_", "given", "why"),
    [
        ("int", [1.5, 2], "1.5, not an integer"), ("int", [np.nan, 2], "NaN"), ("int", [np.inf, 2], "infinity"),
        ("int", [1e19, 2], "64 bits"), ("int", np.array([2**63, 0], np.uint64), "64 bits"),
        ("int", [2**70, 0], "64 bits"), ("bool", [2, 0], "other than true"), ("real", [1j, 0], "complex"),
        ("real", ["a", "b"], "expected numbers"), ("real", [None, 1], "NoneType"), ("bool", [np.nan, 0], "other than"),
        ("real", [10**400, 0], "does not fit f64"), ("bool", [2**70, 0], "64 bits"),
        ("real", {0: "x", 1: 2}, "expected numbers"), ("real", np.array(["2020-01-01"] * 2, "M8[D]"), "datetime64"),
    ],
)  # fmt: skip
def test_types_that_do_not(type_, given, why):
    assert why in fails("UPL1504", program(("V<i>", type_, "0<=i<2")), {"V": given}, D=1)


def test_values_outside_the_domain_are_not_looked_at():
    p = program(("V<i>", "int", "0<=i<3 && i!=1"))
    assert dense(p, {"V": [1.0, np.nan, 2.0]}, D=1)["V"].tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (np.ones((2, 4)), "expected shape (2, 3) over <d,i>, found shape (2, 4)"),
        (np.ones(6), "found shape (6,)"), (1.0, "found shape ()"),
        ([np.ones(3)] * 3, "along `d`: 2 slices"), ([np.ones(3), np.ones(2)], "fits no field"),
        ({(1, 1, 1): 0}, "is not an index of `X`"), ({"a": 0}, "is not an index of `X`"),
        ([np.ones(3), [np.ones(2), 1]], "not a list of arrays"),
    ],
)  # fmt: skip
def test_wrong_shapes(given, why):
    message = fails("UPL1503", program(X), {"X": given}, D=2)
    assert why in message, message


@pytest.mark.parametrize("entry", [[1, 2], np.ones(1), {0: 1}, "a"])
def test_entries_that_are_no_numbers(entry):
    p = program(("X<i>", "real", "0<=i<2"))
    fails("UPL1504", p, {"X": {(0,): entry, (1,): 1.0}}, D=1)
    fails("UPL1504", p, {"X": {(0,): entry, (1,): entry}}, D=1)


def test_what_is_missing_or_unknown():
    p = program(X, W)
    assert "`W`: expected an array of shape (3, 4, 4)" in fails("UPL1501", p, {"X": np.ones((2, 3))})
    assert "X<2,3>" in fails("UPL1501", program(X), {"X": {(1, i): 0 for i in (1, 2, 3)}}, D=2)
    assert "nothing is given" in fails("UPL1501", program(X), {"X": None}, D=2)
    assert "did you mean `Wide`?" in fails("UPL1502", program(("Wide<i>", "real", "0<=i<2")), {"wide": 1}, D=1)
    assert "not an input" in fails("UPL1502", program(X), {"X": np.ones((1, 3)), "R": 1}, D=1)


def test_parameters_from_shapes():
    p = program(X, ("Y<i>", "real", "0<=i<2*D+m"), params=('upl.param @D where <"D>=1">', "upl.param @m"))
    given = {"X": np.ones((5, 3)), "Y": np.ones(13)}
    assert host.bind_parameters(p, given) == {"D": 5, "m": 3}
    assert host.bind_parameters(p, {"Y": np.ones(13)}, {"m": 3}) == {"D": 5, "m": 3}
    assert host.bind_parameters(p, {"X": [np.ones(3)] * 5}, {"m": 0}) == {"D": 5, "m": 0}
    ragged = [np.ones(3), np.ones(3)]
    assert host.bind_parameters(program(X), {"X": ragged})["D"] == 2
    assert host.bind_parameters(program(X), {"X": {(d, i): 0 for d in (1, 2, 3, 4) for i in (1, 2, 3)}})["D"] == 4


@pytest.mark.parametrize("names", list(itertools.permutations("abc")))
def test_parameters_are_told_apart_in_every_order_of_declaration(names):
    condition = parse_formula("a>=1 && b<=a+9 && c<=a+b+9")  # isl orders the three as it likes
    known = [Extents(("i",), parse_formula(f"0<=i<{p}"), ({"i": n},)) for p, n in (("a", 2), ("b", 5))]
    assert solve_parameters(PolyContext(names, condition), known) == {"a": 2, "b": 5, "c": None}


def test_parameters_are_told_apart():
    params = ('upl.param @n where <"n>=1">', 'upl.param @m where <"m<=n+5">')
    p = program(("Y<i>", "real", "0<=i<2*n+1"), ("Z<i>", "real", "0<=i<m"), params=params)
    assert host.bind_parameters(p, {"Y": np.ones(7), "Z": np.ones(4)}) == {"n": 3, "m": 4}
    with pytest.raises(UplError, match="`m` does not follow"):  # an empty array leaves every m <= 0
        host.bind_parameters(p, {"Y": np.ones(7), "Z": np.ones(0)})


@pytest.mark.parametrize(
    ("arrays", "params", "why"),
    [
        ({"X": np.ones((0, 3))}, {}, "no value of `D`"),
        ({"X": np.ones((2, 4))}, {}, "d: 2, i: 4"),
        ({"X": np.ones((2, 3)), "Z": np.ones(3)}, {}, "`Z`"),
        ({}, {"D": 0}, "breaks its condition `D>=1`"),
        ({}, {"D": 1.5}, "must be an integer"),
        ({}, {"D": True}, "must be an integer"),
        ({}, {"d": 1}, "no parameter `d`"),
    ],
)
def test_parameters_that_cannot_be(arrays, params, why):
    p = program(X, ("Z<d>", "real", "1<=d<=D"))
    with pytest.raises(UplError) as e:
        host.bind_parameters(p, arrays, params)
    assert e.value.diagnostics[0].code == "UPL1505"
    assert why in str(e.value)


def test_an_input_that_is_missing_comes_before_the_parameter_that_its_shape_tells():
    p = program(("S", "real", "0<=0"), X, ("Z<i>", "real", "0<=i<m"), params=('upl.param @D where <"D>=1">', "upl.param @m"))
    assert "the input `X`, whose shape tells the parameter `D`" in fails("UPL1501", p, {"S": 1, "Z": np.ones(3)})
    assert "the input `Z`, whose shape tells the parameter `m`" in fails("UPL1501", p, {"X": np.ones((2, 3))})
    assert "the input `Z`" in fails("UPL1501", p, {}, D=2)
    assert "give it as q=…" in fails("UPL1505", program(X, params=("upl.param @D", "upl.param @q")), {"X": np.ones((2, 3))})


def test_too_large_an_array_is_refused_before_it_is_made():
    message = fails("UPL1506", program(X), {"X": {(1, 1): 0}}, D=10**12)
    assert str(3 * 8 * 10**12) in message
    assert str(host_arrays.MAX_ARRAY_BYTES) in message


@pytest.mark.parametrize(
    ("where", "why"), [("0<=i", "`i` has no bound"), ("0<=i && i*i mod 7<=D", "`i` has no bound")]
)  # fmt: skip
def test_domains_without_a_box(where, why):
    assert why in fails("UPL1507", program(("V<i>", "real", where)), {"V": [1]}, D=3)
