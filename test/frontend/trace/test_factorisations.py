"""Factorisations and solves: derivatives of all orders, what derivatives need, ties of pivots, and what is no number."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.schedule import schedule

jax: Any = pytest.importorskip("jax")
jnp: Any = importlib.import_module("jax.numpy")
jax.config.update("jax_enable_x64", True)
RANDOM = np.random.default_rng(3)
A, B, S = RANDOM.normal(size=(4, 4)), RANDOM.normal(size=(4, 2)), RANDOM.normal(size=(4, 4))


def solve(np: Any, a: Any, b: Any) -> Any:
    return np.sum(np.sin(np.linalg.solve(a, b)))


def cholesky(np: Any, a: Any, b: Any) -> Any:
    return np.sum(np.sin(np.linalg.cholesky(a @ a.T + np.eye(4))) @ b)


def qr(np: Any, a: Any, b: Any) -> Any:
    q, r = np.linalg.qr(a)
    return np.sum(np.sin(q) @ b) + np.sum(np.cos(r))


def tall(np: Any, a: Any, b: Any) -> Any:
    q, r = np.linalg.qr(b)
    return np.sum(np.sin(a @ q)) + np.sum(np.cos(r))


@pytest.mark.parametrize("engine", ["interp", "native"], indirect=True)
@pytest.mark.parametrize("b", [B, S], ids=["wide", "square"])
@pytest.mark.parametrize("f", [solve, cholesky, qr, tall])
def test_two_derivatives(f: Any, b: Any, engine: str) -> None:
    """The first goes by slopes, which have derivatives of their own for the second."""
    del engine
    ours = upl.function(lambda a, b: f(np, a, b))
    whole: Any = jax.hessian(lambda a, b: f(jnp, a, b), (0, 1))(A, b)
    first = upl.grad(ours, (0, 1))(A, b)
    for got, want in zip(first, jax.grad(lambda a, b: f(jnp, a, b), (0, 1))(A, b), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10)
    for got, want in zip(sum(upl.hessian(ours, (0, 1))(A, b), ()), sum(whole, ()), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-8)


def test_a_third_derivative() -> None:
    def along(np: Any, s: Any) -> Any:
        return np.sum(np.linalg.solve(A + s * S, B) ** 2) + np.sum(np.linalg.cholesky(A @ A.T + s * s * np.eye(4)))

    got: Any = lambda s: along(np, s)  # noqa: E731
    want: Any = lambda s: along(jnp, s)  # noqa: E731
    for _ in range(3):
        got, want = upl.grad(got), jax.grad(want)
    np.testing.assert_allclose(got(np.array(0.7)), want(0.7), rtol=1e-9)


@pytest.mark.parametrize("f", [solve, cholesky, tall])
def test_one_derivative_keeps_matrices_alone(f: Any) -> None:
    """No array has a state of a matrix for each round of a factorisation."""
    program = upl.grad(upl.function(lambda a, b: f(np, a, b)), (0, 1)).program(A, B)
    kept = schedule(program.op).arrays
    assert kept is not None
    assert not [n for n, a in kept.items() if np.prod([x.size.constant or 2 for x in a.axes if x.modulus is None]) > 32]


@pytest.mark.parametrize("engine", ["interp", "native"], indirect=True)
@pytest.mark.parametrize(
    "a",
    [
        np.array([[1, 3, 0], [1, -3, 5], [2, 0, 1]]), RANDOM.integers(-2, 3, (6, 6)), np.ones((3, 3)), np.zeros((2, 2)),
        np.array([[0, 1], [0, 2]]), np.array([[5]]),
    ],
)  # fmt: skip
def test_pivots_are_those_of_lapack(a: Any, engine: str) -> None:
    """Of equal numbers the first is the pivot, as rows then stand: also where none is left but zeros."""
    del engine
    found = upl.from_jax(jax.lax.linalg.lu)(a.astype(float))
    for got, want in zip(found, jax.lax.linalg.lu(a.astype(float)), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-12)


@pytest.mark.parametrize("engine", ["interp", "native"], indirect=True)
def test_what_is_no_number_stays_so(engine: str) -> None:
    del engine
    one, every = A.copy(), np.full((3, 3), np.nan)
    one[2, 3] = np.nan
    f = upl.function(np.linalg.solve)
    assert np.isnan(f(one, B)).all()
    factors, _, permutation = upl.from_jax(jax.lax.linalg.lu)(every)
    assert np.isnan(factors).all()
    assert sorted(permutation) == [0, 1, 2], "rows are still a permutation"
