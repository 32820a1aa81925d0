"""Eigenvalues and singular values in traced functions: matrices of all kinds, and what happens where derivatives end.

Values and derivatives of ordinary matrices are compared with numpy and JAX in `test_numpy_functions.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.frontend.trace.functions import eigen

RNG = np.random.default_rng(5)


def turned(values: Any) -> Any:
    """A symmetric matrix with these eigenvalues."""
    q, _ = np.linalg.qr(RNG.normal(size=(len(values), len(values))))
    a = (q * values) @ q.T
    return (a + a.T) / 2


def matrices(n: int) -> Iterator[Any]:
    """Symmetric ones, some of which are hard."""
    i = np.arange(n)
    a = RNG.normal(size=(n, n))
    yield a + a.T
    yield turned(10.0**-i)
    yield turned(np.repeat([1.0, 2.0], [n // 2, n - n // 2]))  # two eigenvalues, each many times
    yield np.ones((n, n))
    yield np.zeros((n, n))
    yield np.eye(n)[::-1]
    yield 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    yield 1 / (i[:, None] + i + 1.0)
    yield 1e200 * (a + a.T)
    yield 1e-200 * (a + a.T)


@pytest.mark.parametrize("n", [2, 5, 16, pytest.param(33, marks=pytest.mark.slow)])
def test_matrices_of_all_kinds(n: int) -> None:
    """Values beside numpy's; the factors multiply to the matrix, and vectors are orthogonal: as far as numpy's are."""
    eigh = upl.function(np.linalg.eigh, engine="native")
    svd = upl.function(lambda a: np.linalg.svd(a, full_matrices=False), engine="native")
    for a in matrices(n):
        size = np.abs(a).max() or 1.0
        near = 4e-15 * n
        values, vectors = eigh(a)
        np.testing.assert_allclose(values / size, np.linalg.eigvalsh(a) / size, rtol=0, atol=near)
        np.testing.assert_allclose((vectors * (values / size)) @ vectors.T, a / size, rtol=0, atol=near)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(n), rtol=0, atol=near)
        tall = np.concatenate([a, a[:1]])
        u, s, vh = svd(tall)
        there = s > 0  # what numpy makes up for the others is NaN here
        np.testing.assert_allclose(s / size, np.linalg.svdvals(tall) / size, rtol=0, atol=near)
        np.testing.assert_allclose((u * (s / size))[:, there] @ vh[there], tall / size, rtol=0, atol=near)
        np.testing.assert_allclose(vh @ vh.T, np.eye(n), rtol=0, atol=near)
        assert np.isnan(u[:, ~there]).all()


def test_single_precision() -> None:
    """All that is up to rounding is so for the numbers of the run."""
    a = np.float32(turned([1.0, 1.0, 3.0, 4.0]))
    values, vectors = upl.function(np.linalg.eigh, engine="native")(a)
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, [1, 1, 3, 4], rtol=2e-6)
    np.testing.assert_allclose((vectors * values) @ vectors.T, a, rtol=0, atol=3e-6)


@pytest.mark.parametrize("a", [np.eye(2), np.diag([1.0, 1.0, 2.0]), turned([1.0, 1.0, 2.0, 2.0]), np.zeros((2, 2))])
def test_repeated_eigenvalues(a: Any) -> None:
    """A first derivative of what treats them alike: that of the trace of exp(a) is exp(a)."""
    values, vectors = np.linalg.eigh(a)
    wanted = (vectors * np.exp(values)) @ vectors.T
    found = upl.grad(lambda a: np.sum(np.exp(np.linalg.eigvalsh(a))))(a)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14 * len(a))


@pytest.mark.parametrize("a", [np.eye(2), turned([2.0, 2.0])])
def test_where_there_is_no_derivative(a: Any) -> None:
    """Not a number, or infinite, rather than one of many."""
    assert not np.isfinite(upl.grad(lambda a: np.sum(np.linalg.eigh(a)[1] ** 3))(a)).any()
    assert not np.isfinite(upl.hessian(lambda a: np.sum(np.exp(np.linalg.eigvalsh(a))))(a)).any()


def test_second_derivatives() -> None:
    """The lower bound of a spectrum, smoothed: against differences of the first derivative."""
    a = turned([-1.0, 0.5])

    def low(a: Any) -> Any:
        return -np.log(np.sum(np.exp(-np.linalg.eigvalsh(a))))

    t = RNG.normal(size=(2, 2))
    slope = upl.grad(low)
    wanted = (slope(a + 1e-5 * t) - slope(a - 1e-5 * t)) / 2e-5
    np.testing.assert_allclose(np.tensordot(upl.hessian(low)(a), t), wanted, rtol=1e-7, atol=1e-9)


def test_too_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """No number is given that did not converge."""
    monkeypatch.setattr(eigen, "_sweeps", lambda n: 2)
    a = next(matrices(8))
    for found in (*upl.function(np.linalg.eigh)(a), *upl.function(np.linalg.svd)(a)):
        assert np.isnan(found).all()


def test_what_is_no_number() -> None:
    a = np.array([[1.0, np.nan], [np.nan, 2.0]])
    assert np.isnan(upl.function(np.linalg.eigvalsh)(a)).all() and np.isnan(upl.function(np.linalg.svdvals)(a)).all()


def test_without_full_rank_there_is_no_pseudoinverse() -> None:
    """NaN rather than another matrix than numpy's."""
    a = np.outer([1.0, 2.0, 4.0], [1.0, 3.0])
    assert np.isnan(upl.function(np.linalg.pinv)(a)).all()
    assert np.isnan(upl.function(lambda a, b: np.linalg.lstsq(a, b)[0])(a, np.ones(3))).all()


def test_proved() -> None:
    assert upl.grad(lambda a: np.sum(np.linalg.eigvalsh(a))).program(np.ones((2, 2))).check().ok
