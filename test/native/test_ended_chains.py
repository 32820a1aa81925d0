"""Chains of steps that data end: loops that stop where no step is left, with the results of the interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.if_convert import IfConvertPass
from upl_mlir.passes.loops.emit.function import FunctionWriter
from upl_mlir.passes.loops.terms import Get, inner_first, made_of
from upl_mlir.passes.loops.tree import leaves
from upl_mlir.passes.schedule import schedule

NEWTON = Path(__file__).resolve().parents[2] / "examples" / "newton.upl"

# Integers that would overflow soon behind the last step; a value of each step goes to an output of its own.
SQUARES = """program squares
param n >= 1
const most = 12
input X<i>: int in 0<=i<n { -> S.x<i,1> }
output Last<i>: int
output Seen<i>: int
node S<i,k> in 0<=i<n, 1<=k<=most {
  in x: int
  if x < 1000 && k<most: x*x -> S.x<i,k+1>
  if x >= 1000 || k==most: x -> Last<i>
  x -> All.x<i>
}
node All<i> in 0<=i<n { in @(+) x[##]: int; x -> Seen<i> }
"""


def lowered(program: upl.Program) -> str:
    converted = program.derived(("test",), lambda: [IfConvertPass(compared=True)]).infer_domains()
    return str(FunctionWriter(schedule(converted.op)).write())


def run(program: Any, gather: Any, **given: Any) -> tuple[Any, Any]:
    a, b = (upl.compile(upl.load(program), engine=e, gather=gather)(**given) for e in ("interp", "native"))  # pyright: ignore
    return a, b


@pytest.mark.parametrize("gather", ["relaxed", "ordered"])
def test_each_body_to_its_end(gather: Any) -> None:
    rng = np.random.default_rng(4)
    e = np.concatenate([rng.uniform(0, 0.99, 40), [0.0, 0.999999, 0.0, np.nan]])  # many steps, then one, then none of use
    m = rng.uniform(0, 2 * np.pi, len(e))
    one, two = run(NEWTON, gather, M=m, e=e)
    if gather == "ordered":
        assert one["E"].tobytes() == two["E"].tobytes()
    np.testing.assert_allclose(two["E"], one["E"], rtol=1e-9)
    np.testing.assert_array_equal(two["Steps"], one["Steps"])
    assert len(set(one["Steps"])) > 3


def test_the_loop_ends_and_folds_inside() -> None:
    text = lowered(upl.load(NEWTON))
    assert text.count("scf.while") == 1
    assert "scf.for %k" not in text  # the gathers over the steps are folded in the loop
    assert text.count("memref<30xf64>") <= 4  # but the last one, no step is read


def test_all_steps_are_computed_where_one_is_read_whether_it_exists_or_not() -> None:
    converted = upl.load(NEWTON).derived(("test",), lambda: [IfConvertPass(compared=True)]).infer_domains()
    plan = schedule(converted.op)
    (result,) = [leaf.stmt for leaf, _ in leaves(plan.scheduled) if leaf.stmt.array == "E"]
    steps = [g for g in inner_first(result.term, made_of) if isinstance(g, Get) and g.array == "It:0"]
    result.term = next(g for g in steps if g.index[1].constant is not None)  # the last step, without its condition
    text = str(FunctionWriter(plan).write())
    assert "scf.while" not in text


@pytest.mark.parametrize("gather", ["relaxed", "ordered"])
def test_steps_that_do_not_exist_overflow_nothing(gather: Any) -> None:
    x = np.array([2, 3, 0, 1, 999, 1000, -5])
    f = upl.compile(upl.load(SQUARES), engine="native", gather=gather)
    found, expected = f(X=x), upl.compile(upl.load(SQUARES), gather=gather)(X=x)
    assert f.stats["firings"]["S"] is None  # loops ran, no tokens
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])
    assert found["Last"][0] == 65536


def test_what_exists_overflows_as_on_the_interpreter() -> None:
    found: list[Any] = []
    for engine in ("interp", "native"):
        with pytest.raises(upl.UplError) as e:
            upl.compile(upl.load(SQUARES), engine=engine)(X=np.array([3, -(2**40)]))  # pyright: ignore[reportArgumentType]
        found.append([(d.code, d.message) for d in e.value.diagnostics])
    assert found[0] == found[1]
    assert found[0][0][0] == "UPL1604"


def test_gradients_through_the_steps() -> None:
    g = upl.vjp(upl.load(NEWTON), of="E", wrt=["M", "e"])
    rng = np.random.default_rng(5)
    given = {"M": rng.uniform(0, 6, 9), "e": rng.uniform(0, 0.8, 9), "d_E": rng.random(9)}
    one, two = (upl.compile(g, engine=e, gather="ordered")(**given) for e in ("interp", "native"))  # pyright: ignore
    for name in one:
        assert one[name].tobytes() == two[name].tobytes(), name
    at = given["d_E"] / (1 - given["e"] * np.cos(one["E"]))  # by the implicit function theorem
    np.testing.assert_allclose(two["d_M"], at, rtol=1e-6)
    np.testing.assert_allclose(two["d_e"], at * np.sin(one["E"]), rtol=1e-6)
