"""Products that read reshaped or joined arrays: contractions with linear indices, and no copy of a row for each column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.tree import Box, subtrees
from upl_mlir.passes.schedule import schedule

RNG = np.random.default_rng(2)
A, W, S = RNG.normal(size=(4, 24, 8)), RNG.normal(size=(32, 16)), RNG.normal(size=(20, 12))
H, V = RNG.normal(size=24), RNG.normal(size=(36, 40))
X, B, C, D = RNG.normal(size=(24, 96)), RNG.normal(size=(6, 6)), RNG.normal(size=(4, 4)), RNG.random((24, 24))


def heads(a: Any, w: Any) -> Any:
    """Heads of an attention, joined and mapped."""
    return np.sin(a.transpose(1, 0, 2).reshape(24, 32) @ w)


def joined(s: Any, h: Any, v: Any) -> Any:
    """A row and a state side by side, times a matrix, round by round."""

    def step(k: Any, h: Any) -> Any:
        return np.tanh(np.concatenate([s[k], h]) @ v)[:24]

    return upl.fori_loop(0, 20, step, h)


def cut(x: Any) -> Any:
    """Scores and results of heads, each of which is a part of the columns of one matrix."""
    q, k, v = (x[:, 32 * n : 32 * n + 32].reshape(24, 4, 8).transpose(1, 0, 2) for n in range(3))
    return np.sin(np.einsum("htd,hsd->hts", q, k) @ v)


def blocks(a: Any, b: Any) -> Any:
    """The square of a Kronecker product."""
    k = (a[:, None, :, None] * b[None, :, None, :]).reshape(24, 24)
    return np.sin(k @ k)


def scaled(c: Any) -> Any:
    """Sinkhorn's scaling of a matrix; its derivative adds products of all rounds inside of a product."""
    k = np.exp(-c)

    def step(n: Any, v: Any) -> Any:
        return 1 / (k.T @ (1 / (k @ v)))

    v = upl.fori_loop(0, 20, step, np.ones(24))
    return k * v[None, :]


def plan(p: upl.Program) -> LoopProgram:
    return schedule(p.infer_domains().op)


def compare(f: Any, args: tuple[Any, ...], gather: str) -> None:
    """Value and gradient, natively against the interpreter."""
    program = upl.function(f).program(*args)
    (of,) = program.outputs
    for p in (program, upl.vjp(program, of=of, wrt=list(program.inputs))):
        given = dict(zip(p.inputs, args, strict=False))
        if len(p.inputs) > len(args):
            given[list(p.inputs)[-1]] = RNG.normal(size=program.outputs[of].shape())
        wanted = upl.compile(p, gather=gather)(**given)
        found = upl.compile(p, engine="native", gather=gather)(**given)
        for name, w in wanted.items():
            if gather == "ordered":
                np.testing.assert_array_equal(found[name], w, err_msg=name)
            else:
                np.testing.assert_allclose(found[name], w, rtol=1e-11, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
@pytest.mark.parametrize(("f", "args"), [
    (heads, (A, W)), (joined, (S, H, V)), (cut, (X,)), (blocks, (B, C)), (scaled, (D,)),
])  # fmt: skip
def test_values_and_gradients(f: Any, args: tuple[Any, ...], gather: str) -> None:
    compare(f, args, gather)


def test_a_reshaped_factor_is_a_contraction() -> None:
    """The sum over 32 columns is one over 4 heads of 8; the derivative by the matrix has its rows so."""
    program = upl.function(heads).program(A, W)
    (out,) = (t for t in subtrees(plan(program).scheduled) if isinstance(t, Box))
    assert len(out.contraction.fold.parts[0].dims) == 2
    gradient = upl.vjp(program, of=next(iter(program.outputs)), wrt=list(program.inputs))
    found = {t.leaf.stmt.array for t in subtrees(plan(gradient).scheduled) if isinstance(t, Box)}
    assert any(name.endswith(":divided") for name in found)


def test_parts_of_columns_are_contractions() -> None:
    """Every sum of products of the gradient: those whose columns begin elsewhere, and those whose iterator has no index of
    its own."""
    p = upl.function(cut).program(X)
    (of,) = p.outputs
    for q, sums in ((p, 2), (upl.vjp(p, of=of, wrt=list(p.inputs)), 6)):
        found = plan(q)
        boxes = [t for t in subtrees(found.tree) if isinstance(t, Box)]
        assert len(boxes) == sums
        for t in (t for box in boxes for t in box.contraction.terms):
            indices = [e for of_factor in t.indices[:2] for e in of_factor]
            assert all(any((e - r.var).constant is not None for e in indices) for r in t.summed)


@pytest.mark.parametrize(("f", "args", "sums"), [(blocks, (B, C), 4), (scaled, (D,), 5)])
def test_products_of_a_gradient_are_contractions(f: Any, args: tuple[Any, ...], sums: int) -> None:
    """Rows and columns that are both numbered by two fields, and products among other summands."""
    p = upl.function(f).program(*args)
    (of,) = p.outputs
    found = [t for t in subtrees(plan(upl.vjp(p, of=of, wrt=list(p.inputs))).tree) if isinstance(t, Box)]
    assert len(found) == sums


def test_a_row_is_kept_once() -> None:
    """Not once for each column of the matrix that it is multiplied by."""
    program = upl.function(joined).program(S, H, V)
    kept = plan(program).arrays
    assert kept is not None
    assert max(len(a.axes) for a in kept.values()) <= 2


def test_a_count_may_ask_for_a_field() -> None:
    """The last batch of a training run is smaller, so its field is none that can be taken away."""
    program = upl.load(Path(__file__).resolve().parents[2] / "examples" / "digits.upl")
    of = next(iter(program.outputs))
    gradient = upl.vjp(program, of=of, wrt=[n for n, v in program.inputs.items() if v.dtype.kind == "f"])
    upl.compile(gradient, engine="native", gather="ordered", E=4, M=4)
