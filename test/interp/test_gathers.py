"""Gathering inputs: operators, numbers of summands, n = 0, order (LANGUAGE 3.3, 3.10)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from upl_mlir.engines.interp import Engine

ORDERS = [("fifo", 0), *(("random", seed) for seed in range(5))]
INF = math.inf


def run(program, arrays, params=None, **options):
    return Engine(program, params, **options).run({k: np.asarray(v) for k, v in arrays.items()})


def fold(ir, op, type_, mlir, count="4", carried=False):
    sent = f' count <"{count}">' if carried else ""
    return ir.program(
        ir.input("X<i>", f"0<=i<{count}", f'upl.send %X -> @S::@s <"">{sent} : {mlir}', type_),
        ir.node("S", f"@({op}) s[{'#' if carried else count}]: {type_}", f'upl.send %s -> @R <""> : {mlir}', "true"),
        ir.output("R", "", type_),
    )


@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize(
    ("op", "type_", "mlir", "values", "expected"),
    [
        ("+", "real", "f64", [1, 2, 3, 4.5], 10.5),
        ("*", "real", "f64", [1, 2, 3, 4.5], 27.0),
        ("min", "real", "f64", [3, -INF, 0, 7], -INF),
        ("max", "real", "f64", [3, -1, 7, 0], 7.0),
        ("min", "real", "f64", [3, math.nan, 0, 7], math.nan),
        ("max", "real", "f64", [math.nan, 1, 0, 7], math.nan),
        ("max", "real", "f64", [-0.0, 0.0, -0.0, -1.0], 0.0),
        ("+", "int", "i64", [1, 2, 3, -10], -4),
        ("*", "int", "i64", [1, 2, 3, -10], -60),
        ("min", "int", "i64", [1, 2, -3, 5], -3),
        ("max", "int", "i64", [1, 2, -3, 5], 5),
        ("&&", "bool", "i1", [True, True, True, True], True),
        ("&&", "bool", "i1", [True, True, False, True], False),
        ("||", "bool", "i1", [False, False, False, False], False),
        ("||", "bool", "i1", [False, False, True, False], True),
    ],
)
def test_every_operator(ir, op, type_, mlir, values, expected, carried):
    for order, seed in ORDERS:
        for gather in ("relaxed", "ordered"):
            got = run(
                fold(ir, op, type_, mlir, carried=carried), {"X": values}, order=order, seed=seed, gather=gather
            ).outputs["R"]
            assert np.array_equal(got, expected, equal_nan=type_ == "real")
            assert math.copysign(1, got) == math.copysign(1, expected) or math.isnan(expected)


@pytest.mark.parametrize(
    ("op", "type_", "mlir", "expected"),
    [
        ("+", "real", "f64", 0.0), ("*", "real", "f64", 1.0), ("min", "real", "f64", INF), ("max", "real", "f64", -INF),
        ("+", "int", "i64", 0), ("*", "int", "i64", 1),
        ("min", "int", "i64", 2**63 - 1), ("max", "int", "i64", -(2**63)),
        ("&&", "bool", "i1", True), ("||", "bool", "i1", False),
    ],
)  # fmt: skip
def test_no_summands_give_the_identity(ir, op, type_, mlir, expected):
    # S has only a gather: it fires at the start; T waits for another input and takes the identity then
    x = np.zeros(0)
    assert run(fold(ir, op, type_, mlir, count="0"), {"X": x}).outputs["R"] == expected
    program = ir.program(
        ir.input("G<i>", "0<=i<2", f'upl.send %G -> @T::@g <"i"> : {mlir}', type_),
        ir.input("X", "", f'upl.send %X -> @T::@s <"1"> : {mlir}', type_),
        ir.node("T<i>", f"g: {type_}, @({op}) s[i]: {type_}", f'upl.send %s -> @R <"i"> : {mlir}'),
        ir.output("R<i>", "0<=i<2", type_),
    )
    for order, seed in ORDERS:
        got = run(program, {"G": np.ones(2), "X": 1}, order=order, seed=seed).outputs["R"]
        assert got.tolist() == [expected, 1]


def test_instances_without_summands_fire_once_at_the_start(ir):
    program = ir.program(
        ir.input("X<i>", "1<=i<=3", 'upl.send %X -> @S::@s <"i"> for <"a in 1..i"> : f64'),
        ir.node("S<i>", "@(+) s[i]", 'upl.send %s -> @R <"i"> : f64', "-2<=i<=3"),
        ir.output("R<i>", "-2<=i<=3"),
    )
    for order, seed in ORDERS:
        result = run(program, {"X": [1.0, 1, 1]}, order=order, seed=seed)
        assert result.outputs["R"].tolist() == [0, 0, 0, 1, 2, 3]
        assert result.stats.firings == {"S": 6}


def by_name(ir):
    """Node S counts its summands by the value of its input n."""
    return ir.program(
        ir.input("N<i>", "0<=i<4", 'upl.send %N -> @S::@n <"i"> : i64', "int"),
        ir.input("X<i,j>", "0<=i<4 && 0<=j<i", 'upl.send %X -> @S::@s <"i"> : f64'),
        ir.input("Y<i>", "0<=i<4", 'upl.send %Y -> @S::@y <"i"> : f64'),
        ir.node(
            "S<i>", "@(+) s[n], n: int, y",
            '%t = arith.addf %s, %y : f64\nupl.send %t -> @R <"i"> : f64',
        ),
        ir.output("R<i>", "0<=i<4"),
    )  # fmt: skip


@pytest.mark.parametrize("gather", ["relaxed", "ordered"])
def test_counts_by_the_name_of_an_input(ir, gather):
    x = np.tril(np.ones((3, 3)))
    for order, seed in ORDERS:
        result = run(
            by_name(ir), {"N": [0, 1, 2, 3], "X": x, "Y": [10.0, 20, 30, 40]}, order=order, seed=seed, gather=gather
        )
        assert result.outputs["R"].tolist() == [10, 21, 32, 43]
        assert result.waiting == ()


def test_a_multicast_input_counts_several_gathers(ir):
    program = ir.program(
        ir.input("N", "", 'upl.send %N -> @S::@n <"*"> count <"4"> : i64', "int"),
        ir.input("X<i,j>", "0<=i<4 && 0<=j<2", 'upl.send %X -> @S::@s <"i"> : f64'),
        ir.node("S<i>", "n: int, @(*) s[n]", 'upl.send %s -> @R <"i"> : f64'),
        ir.output("R<i>", "0<=i<4"),
    )
    x = np.arange(1.0, 9).reshape(4, 2)
    for order, seed in ORDERS:
        assert np.array_equal(run(program, {"N": 2, "X": x}, order=order, seed=seed).outputs["R"], x[:, 0] * x[:, 1])


def test_two_gathers_and_a_wildcard_on_one_node(ir):
    program = ir.program(
        ir.input("X<i,j>", "0<=i<3 && 0<=j<3", 'upl.send %X -> @S::@s <"i"> count <"3"> : f64'),
        ir.input("Y<i,j>", "0<=i<3 && 0<=j<2", 'upl.send %Y -> @S::@t <"i"> : f64'),
        ir.input("Z", "", 'upl.send %Z -> @S::@z <"*"> count <"3"> : f64'),
        ir.node(
            "S<i>", "z, @(+) s[#], @(max) t[2]",
            '%a = arith.mulf %s, %t : f64\n%b = arith.addf %a, %z : f64\nupl.send %b -> @R <"i"> : f64',
        ),
        ir.output("R<i>", "0<=i<3"),
    )  # fmt: skip
    x, y = np.arange(9.0).reshape(3, 3), np.arange(6.0).reshape(3, 2)
    for order, seed in ORDERS:
        got = run(program, {"X": x, "Y": y, "Z": 0.5}, order=order, seed=seed)
        assert np.array_equal(got.outputs["R"], x.sum(1) * y.max(1) + 0.5)
        assert got.stats.firings == {"S": 3}


def test_ordered_folds_by_arrow_then_source_index_then_iterator_point(ir):
    # values whose sum depends on the order; the second arrow of X comes after all tokens of the first
    program = ir.program(
        ir.node("S", "@(+) s[9]", 'upl.send %s -> @R <""> : f64'),
        ir.input(
            "X<i>", "0<=i<3",
            'upl.send %X -> @S::@s <""> : f64\n'
            '%m = arith.constant 0.1 : f64\n%y = arith.mulf %X, %m : f64\n'
            'upl.send %y -> @S::@s <""> for <"a in 0..1"> : f64',
        ),
        ir.output("R", ""),
    )  # fmt: skip
    x = np.array([1e16, 3.0, -1e16])
    expected = 0.0
    for v in [*x, *(v * 0.1 for v in x for _ in range(2))]:
        expected += v
    for order, seed in ORDERS:
        assert run(program, {"X": x}, order=order, seed=seed, gather="ordered").outputs["R"] == expected
