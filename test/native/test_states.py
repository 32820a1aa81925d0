"""Recurrences with a state of rows: products with the state, functions of a row, and states that are small."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_schedules import compare, plan

import upl_mlir as upl
from upl_mlir.passes.loops.groups import functions_of
from upl_mlir.passes.loops.tree import Box, Leaf, Loop, Tree, subtrees

GATHERS = pytest.mark.parametrize("gather", ["ordered", "relaxed"])


def traced(f: Any, *shapes: tuple[int, ...]) -> upl.Program:
    return upl.function(f).program(*(np.zeros(s) for s in shapes))


def gradient(p: upl.Program) -> upl.Program:
    return upl.grad(p, of=next(iter(p.outputs)), wrt=list(p.inputs))


def steps(trees: Sequence[Tree]) -> list[Loop]:
    """The loops over steps."""
    return [t for t in subtrees(trees) if isinstance(t, Loop) and not t.parallel]


def loops_of(trees: Sequence[Tree], array: str) -> Iterator[Loop]:
    """The innermost loop round each statement that writes an array."""
    for loop in (t for t in subtrees(trees) if isinstance(t, Loop)):
        if any(isinstance(t, Leaf) and t.stmt.array == array for t in loop.body):
            yield loop


def associations(q: Any, k: Any, v: Any) -> Any:
    """A matrix that each step adds to and multiplies by a row; the row of a step meets what the step has made."""

    def step(s: Any, rows: Any) -> Any:
        q, k, v = rows
        s = s + k[:, None] * v[None, :]
        return s, q @ s

    _, out = upl.scan(step, np.zeros((20, 20)), (q, k, v))
    return np.sum(out * out)


def test_a_product_with_the_state_of_a_step_stays_in_its_loop() -> None:
    """So one state is kept, not that of each step; and the product reads the new state, which is stored already."""
    found = plan(traced(associations, (30, 20), (30, 20), (30, 20)))
    (loop,) = steps(found.scheduled)
    (box,) = [t for t in subtrees([loop]) if isinstance(t, Box)]
    (term,) = box.contraction.terms
    state = next(g.array for g in term.arrays if len(g.index) == 3)
    assert found.arrays is not None
    assert [a.extent.constant for a in found.arrays[state].axes if a.modulus is None] == [20, 20]


def test_a_product_that_all_steps_have_in_common_is_none_of_a_step() -> None:
    """One factor is the same in all: cut, it would be many small products."""

    def f(x: Any, w: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = np.tanh(h + row)
            return h, h

        _, out = upl.scan(step, np.zeros(30), x)
        return np.sum((out @ w) ** 2)

    found = plan(traced(f, (40, 30), (30, 30)))
    assert not [t for t in subtrees(steps(found.scheduled)) if isinstance(t, Box)]
    assert [t for t in subtrees(found.scheduled) if isinstance(t, Box)]


@GATHERS
def test_products_with_states_are_right(gather: str) -> None:
    p = traced(associations, (9, 20), (9, 20), (9, 20))
    compare(p, {}, gather)
    compare(gradient(p), {}, gather)


def experts(p: Any, x: Any, w: Any) -> Any:
    """Products of matrices, weighted and added up."""
    return np.sum(np.einsum("be,bef->bf", p, np.einsum("bd,edf->bef", x, w)) ** 2)


@GATHERS
def test_a_sum_inside_a_factor_is_a_product_of_its_own(gather: str) -> None:
    p = traced(experts, (20, 4), (20, 16), (4, 16, 24))
    assert any(isinstance(t, Box) for t in subtrees(plan(p, gather=gather).scheduled))
    compare(p, {}, gather)
    compare(gradient(p), {}, gather)


def selective(x: Any, a: Any) -> Any:
    """Rows of short vectors that fade, each at a rate of its own in each step."""

    def step(h: Any, row: Any) -> Any:
        rate = np.log1p(np.exp(row))
        h = h * np.exp(-rate[:, None] * a) + rate[:, None]
        return h, np.sum(h, axis=1)

    _, out = upl.scan(step, np.zeros((12, 8)), x)
    return np.sum(out * out)


def test_functions_of_a_row_have_a_loop_of_their_own() -> None:
    """Beside the row's own short loop they would be computed one by one; and the states are too small for tiles."""
    found = plan(traced(selective, (40, 12), (12, 8)))
    (loop,) = steps(found.scheduled)
    assert not loop.tiled
    rows = [t for t in loop.body if isinstance(t, Loop)]
    found_in = [t.stmt for r in rows for t in r.body if isinstance(t, Leaf)]
    assert "math.log1p" in {name for s in found_in for name, _ in functions_of(s)}
    for r in rows:
        assert len({isinstance(t, Leaf) for t in r.body}) == 1, "either a function, or a loop"


def test_large_states_are_tiled() -> None:
    """The same with rows that no first-level cache holds."""

    def grid(x: Any) -> Any:
        def step(h: Any, _: Any) -> Any:
            inner = h[1:-1] + 0.1 * (h[:-2] + h[2:] - 2 * h[1:-1])
            return np.concatenate([h[:1], inner, h[-1:]]), 0.0

        h, _ = upl.scan(step, x, None, length=40)
        return np.sum(h * h)

    plans = {n: subtrees(plan(traced(grid, (n, 16))).scheduled) for n in (20, 900)}
    tiled = {n: any(t.tiled for t in trees if isinstance(t, Loop)) for n, trees in plans.items()}
    assert tiled == {20: False, 900: True}


@GATHERS
def test_functions_of_rows_are_right(gather: str) -> None:
    p = traced(selective, (6, 12), (12, 8))
    compare(p, {}, gather)
    compare(gradient(p), {}, gather)


def test_derivatives_share_the_loop_in_which_their_powers_are_computed() -> None:
    def production(k: Any, l: Any, r: Any) -> Any:
        return np.sum((0.4 * k**r + 0.6 * l**r) ** (1 / r))

    p = gradient(traced(production, (50,), (50,), (50,)))
    found = plan(p)
    outputs = [n for n in p.outputs if n != "out"]
    loops = {id(loop) for n in outputs for loop in loops_of(found.scheduled, n)}
    assert len(outputs) == 3 and len(loops) == 1
    compare(p, {}, "relaxed", between=(0.5, 1.5))
