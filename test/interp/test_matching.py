"""Matching: wildcards, multiplicities, iterators, dynamic indices, conditions on data (LANGUAGE 3.1, 3.2, 3.6)."""

from __future__ import annotations

import numpy as np
import pytest

from upl_mlir.diagnostics import UplError
from upl_mlir.engines.interp import Engine

ORDERS = [("fifo", 0), *(("random", seed) for seed in range(6))]


def run(program, arrays, params=None, **options):
    return Engine(program, params, **options).run({k: np.asarray(v) for k, v in arrays.items()})


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_matrix_product_with_two_wildcards(ir, rng, order, seed):
    n, m, r = 3, 4, 5
    a, b = rng.standard_normal((n, m)), rng.standard_normal((m, r))
    program = ir.program(
        ir.input("A<i,k>", "0<=i<3 && 0<=k<4", 'upl.send %A -> @M::@a <"i,*,k"> count <"5"> : f64'),
        ir.input("B<k,j>", "0<=k<4 && 0<=j<5", 'upl.send %B -> @M::@b <"*,j,k"> count <"3"> : f64'),
        ir.node("M<i,j,k>", "a, b", '%p = arith.mulf %a, %b : f64\nupl.send %p -> @S::@s <"i,j"> : f64'),
        ir.node("S<i,j>", "@(+) s[4]", 'upl.send %s -> @C <"i,j"> : f64'),
        ir.output("C<i,j>", "0<=i<3 && 0<=j<5"),
    )
    result = run(program, {"A": a, "B": b}, order=order, seed=seed)
    np.testing.assert_allclose(result.outputs["C"], a @ b, rtol=1e-13)
    assert result.stats.firings == {"M": n * m * r, "S": n * r}


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_three_inputs_of_which_no_two_determine_the_index(ir, order, seed):
    # each pair leaves nothing open, each single one does: joins go through indices on part of the fields
    program = ir.program(
        ir.input("A<i>", "0<=i<3", 'upl.send %A -> @M::@a <"i,*,*"> count <"20"> : f64'),
        ir.input("B<j,k>", "0<=j<4 && 0<=k<5", 'upl.send %B -> @M::@b <"*,j,k"> count <"3"> : f64'),
        ir.input("C<i,k>", "0<=i<3 && 0<=k<5", 'upl.send %C -> @M::@c <"i,*,k"> count <"4"> : f64'),
        ir.node(
            "M<i,j,k>", "a, b, c",
            '%p = arith.addf %a, %b : f64\n%q = arith.addf %p, %c : f64\nupl.send %q -> @R <"i,j,k"> : f64',
        ),
        ir.output("R<i,j,k>", "0<=i<3 && 0<=j<4 && 0<=k<5"),
    )  # fmt: skip
    a, b, c = np.arange(3.0), 10 * np.arange(20.0).reshape(4, 5), 1000 * np.arange(15.0).reshape(3, 5)
    result = run(program, {"A": a, "B": b, "C": c}, order=order, seed=seed)
    assert np.array_equal(result.outputs["R"], a[:, None, None] + b[None] + c[:, None, :])
    assert result.stats.firings == {"M": 60}


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_two_patterns_on_one_input(ir, order, seed):
    # row 0 comes as one multicast, the other rows element by element
    program = ir.program(
        ir.input(
            "A<i,j>", "0<=i<3 && 0<=j<4",
            'upl.send %A -> @M::@a <"i,*"> count <"4"> when <"i==0 && j==0"> : f64\n'
            'upl.send %A -> @M::@a <"i,j"> when <"i>0"> : f64',
        ),
        ir.input("B<j>", "0<=j<4", 'upl.send %B -> @M::@b <"*,j"> count <"3"> : f64'),
        ir.node("M<i,j>", "a, b", '%p = arith.mulf %a, %b : f64\nupl.send %p -> @R <"i,j"> : f64'),
        ir.output("R<i,j>", "0<=i<3 && 0<=j<4"),
    )  # fmt: skip
    a, b = np.arange(1.0, 13).reshape(3, 4), np.arange(1.0, 5)
    expected = a * b
    expected[0] = a[0, 0] * b
    assert np.array_equal(run(program, {"A": a, "B": b}, order=order, seed=seed).outputs["R"], expected)


def lucky(ir):
    """The program of LANGUAGE section 5 whose multiplicities are right in number, but not by pairs."""
    return ir.program(
        ir.param("n", "n>=1"),
        ir.input("A<i>", "0<=i<n", 'upl.send %A -> @M::@a <"i,*"> count <"i"> when <"i>0"> : f64'),
        ir.input("B<j>", "0<=j<n", 'upl.send %B -> @M::@b <"*,j"> count <"n-1-j"> when <"j<n-1"> : f64'),
        ir.node(
            "M<i,j>", "a, b", '%p = arith.mulf %a, %b : f64\nupl.send %p -> @S::@s <""> : f64', "0<=j<i && i<n"
        ),
        ir.node("S", "@(+) s[n*(n-1) floordiv 2]", 'upl.send %s -> @R <""> : f64'),
        ir.output("R", ""),
    )  # fmt: skip


def test_right_by_luck_in_fifo_order_and_stranded_in_random_order(ir):
    arrays = {"A": np.arange(1.0, 7), "B": np.ones(6)}
    result = run(lucky(ir), arrays, {"n": 6})
    assert result.stats.firings == {"M": 15, "S": 1}
    outcomes = []
    for seed in range(20):
        try:
            outcomes.append(float(run(lucky(ir), arrays, {"n": 6}, order="random", seed=seed).outputs["R"]))
        except UplError as e:
            assert "UPL1601" in str(e)
            outcomes.append(None)
    assert None in outcomes, "some order strands tokens"


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_unbounded_multiplicity_is_never_left_over(ir, order, seed):
    program = ir.program(
        ir.input("A", "", 'upl.send %A -> @M::@a <"*"> count <"##"> : f64'),
        ir.input("B<i>", "0<=i<4", 'upl.send %B -> @M::@b <"i"> : f64'),
        ir.node("M<i>", "a, b", '%p = arith.mulf %a, %b : f64\nupl.send %p -> @R <"i"> : f64'),
        ir.output("R<i>", "0<=i<4"),
    )
    result = run(program, {"A": 3.0, "B": [1.0, 2, 3, 4]}, order=order, seed=seed)
    assert result.outputs["R"].tolist() == [3, 6, 9, 12]
    (left,) = result.waiting
    assert (left.node, left.input, left.index, left.multiplicity) == ("M", "a", (None,), None)


def test_iterators_with_a_condition_send_one_token_per_point(ir):
    program = ir.program(
        ir.input(
            "X<i>", "0<=i<3",
            'upl.send %X -> @S::@s <"i+a-b"> for <"a in 0..2, b in 0..a"> when_point <"i+a-b!=2"> : f64',
        ),
        ir.node("S<j>", "@(+) s[n(j)]".replace("n(j)", "C[j]"), 'upl.send %s -> @R <"j"> : f64'),
        'upl.array @C <"0"> to <"4"> from 0 : i64 = array<i64: 3, 5, 0, 3, 1>',
        ir.output("R<j>", "0<=j<=4 && j!=2"),
    )  # fmt: skip
    x = np.array([1.0, 10.0, 100.0])
    expected = np.zeros(5)
    for i in range(3):
        for a in range(3):
            for b in range(a + 1):
                if i + a - b != 2:
                    expected[i + a - b] += x[i]
    assert np.array_equal(run(program, {"X": x}).outputs["R"], expected)


@pytest.mark.parametrize(("order", "seed"), ORDERS)
def test_dynamic_index_by_an_input_and_by_a_variable(ir, order, seed):
    program = ir.program(
        ir.input("P<i>", "0<=i<4", 'upl.send %P -> @M::@p <"i"> : i64', "int"),
        ir.input("X<i>", "0<=i<4", 'upl.send %X -> @M::@x <"i"> : f64'),
        ir.node(
            "M<i>", "p: int, x",
            """%2 = arith.constant 2 : i64
            %3 = arith.muli %p, %2 : i64
            %q = upl.let "q" %3 : i64
            upl.send %x -> @R <"p"> : f64
            upl.send %x -> @Q <"q+1"> : f64""",
        ),
        ir.output("R<i>", "0<=i<4"),
        ir.output("Q<i>", "0<=i<8 && i mod 2 == 1"),
    )  # fmt: skip
    result = run(program, {"P": [2, 0, 3, 1], "X": [1.0, 2, 3, 4]}, order=order, seed=seed)
    assert result.outputs["R"].tolist() == [2, 4, 1, 3]
    assert result.outputs["Q"].tolist() == [2, 0, 4, 0, 1, 0, 3]  # the box begins at 1 and has holes
    assert Engine(program).ports["Q"].origin == (1,)


def test_newtons_iteration_ends_by_a_condition_on_data(ir):
    program = ir.program(
        ir.input("A", "", 'upl.send %A -> @N::@a <"0"> : f64\nupl.send %A -> @N::@x <"0"> : f64'),
        ir.node(
            "N<t>", "a, x",
            """%h = arith.constant 0.5 : f64
            %q = arith.divf %a, %x : f64
            %s = arith.addf %x, %q : f64
            %y = arith.mulf %h, %s : f64
            %d = arith.subf %y, %x : f64
            %e = math.absf %d : f64
            %m = arith.constant 1.0e-14 : f64
            %go = arith.cmpf ogt, %e, %m : f64
            %no = arith.cmpf ole, %e, %m : f64
            upl.send %a -> @N::@a <"t+1"> if %go : f64
            upl.send %y -> @N::@x <"t+1"> if %go : f64
            upl.send %y -> @R <""> if %no : f64""",
        ),
        ir.output("R", ""),
    )  # fmt: skip
    result = run(program, {"A": 2.0})
    assert abs(float(result.outputs["R"]) - 2**0.5) < 1e-15
    assert 4 <= result.stats.firings["N"] <= 8
    assert result.stats.tokens == {"N": 2 * result.stats.firings["N"], "R": 1}


def test_a_declared_domain_is_not_a_filter(ir):
    program = ir.program(
        ir.input("X<i>", "0<=i<4", 'upl.send %X -> @M::@x <"i"> : f64'),
        ir.node("M<i>", "x", 'upl.send %x -> @R <"i"> : f64', "0<=i<2"),
        ir.output("R<i>", "0<=i<4"),
    )
    assert run(program, {"X": np.ones(4)}).stats.firings == {"M": 4}


def test_conditions_guard_what_has_no_value_outside(ir):
    # N[i+1] is outside the array for the last i, and so is the multiplicity 0 for i = 0
    program = ir.program(
        'upl.array @N <"0"> to <"3"> from 0 : i64 = array<i64: 0, 1, 2, 3>',
        ir.input("X<i>", "0<=i<4", 'upl.send %X -> @M::@x <"i"> : f64'),
        ir.node("M<i>", "x", 'upl.send %x -> @R <"N[i+1]"> when <"N[i+1]>0"> : f64'),
        ir.output("R<i>", "1<=i<=3"),
    )
    assert run(program, {"X": [1.0, 2, 3, 4]}).outputs["R"].tolist() == [1, 2, 3]
