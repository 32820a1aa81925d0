# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false
"""Batches of matrices go through one loop together: results are those of each matrix alone, and the program is no longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.dialects.upl.query import nodes

RANDOM = np.random.default_rng(4)
A, B, T = RANDOM.normal(size=(2, 3, 4, 4)), RANDOM.normal(size=(3, 4, 2)), RANDOM.normal(size=(2, 3, 5, 3))
S = A @ np.swapaxes(A, -1, -2) + np.eye(4)
FUNCTIONS: dict[str, tuple[Callable[..., Any], np.ndarray[Any, Any]]] = {
    "solve": (lambda a: np.linalg.solve(a, B[0]), A),
    "inv": (np.linalg.inv, A),
    "det": (np.linalg.det, A),
    "det of three rows": (lambda a: np.linalg.det(a[..., :3, :3]), A),
    "slogdet": (lambda a: np.linalg.slogdet(a)[1] * np.linalg.slogdet(a)[0], A),
    "cholesky": (np.linalg.cholesky, S),
    "qr": (lambda a: np.linalg.qr(a)[0], T),
    "qr, wide": (lambda a: np.linalg.qr(np.swapaxes(a, -1, -2))[1], T),
    "eigvalsh": (np.linalg.eigvalsh, S),
    "eigh": (lambda a: np.linalg.eigh(a)[1] ** 2, S),
    "svd": (lambda a: np.linalg.svd(a, full_matrices=False)[1], T),
    "svd, vectors": (lambda a: np.linalg.svd(np.swapaxes(a, -1, -2), full_matrices=False)[2] ** 2, T),
    "pinv": (np.linalg.pinv, T),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_one_by_one(name: str) -> None:
    f, x = FUNCTIONS[name]
    np.testing.assert_allclose(upl.function(f, engine="native")(x), f(x), rtol=1e-9, atol=1e-11)
    gradient = upl.grad(upl.function(lambda a: np.sum(np.sin(f(a))), engine="native"))
    together = gradient(x)
    for at in np.ndindex(x.shape[:2]):
        np.testing.assert_allclose(together[at], gradient(x[at]), rtol=1e-7, atol=1e-9)


def test_matrices_and_right_sides_broadcast() -> None:
    solve = upl.function(np.linalg.solve, engine="native")
    np.testing.assert_allclose(solve(A, B), np.linalg.solve(A, B), rtol=1e-10)
    np.testing.assert_allclose(solve(A[0, 0], B), np.linalg.solve(A[0, 0], B), rtol=1e-10)
    np.testing.assert_allclose(solve(A, B[0, :, 0]), np.linalg.solve(A, B[0, :, 0]), rtol=1e-10)


@pytest.mark.parametrize("name", ["solve", "cholesky", "qr", "eigh", "svd"])
def test_the_program_is_as_long_for_many(name: str) -> None:
    f, x = FUNCTIONS[name]
    few, many = (upl.function(f).program(np.broadcast_to(x[0, 0], (n, *x.shape[-2:]))) for n in (2, 200))
    assert len(nodes(few.op)) == len(nodes(many.op))
