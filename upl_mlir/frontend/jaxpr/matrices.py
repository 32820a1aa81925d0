# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
"""Rules for factorisations and solves: traced functions have them (`trace/functions/matrices.py`, `eigen.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from upl_mlir.frontend.jaxpr.evaluate import evaluate, traced
from upl_mlir.frontend.trace.array import Array
from upl_mlir.frontend.trace.functions import eigen, matrices
from upl_mlir.frontend.trace.position import fail


def triangular_solve(eqn: Any, a: Any, b: Any) -> Array:
    """On either side, of the matrix or its transpose."""
    p = eqn.params
    return matrices.triangular_solve(
        traced(a), traced(b), lower=bool(p["lower"]), left=bool(p["left_side"]), across=bool(p["transpose_a"]),
        unit=bool(p["unit_diagonal"]),
    )  # fmt: skip


def cholesky(eqn: Any, a: Any) -> Array:
    """The lower triangle."""
    return matrices.cholesky(traced(a))


def lu(eqn: Any, a: Any) -> list[Any]:
    """Both factors in one matrix, the pivots, and the permutation of rows."""
    return [*matrices.lu(traced(a))]


def qr(eqn: Any, a: Any) -> list[Any]:
    """Without exchanging columns."""
    if eqn.params.get("pivoting"):
        raise fail("UPL1936", "`qr` that exchanges columns is not built", help="jnp.linalg.qr does without")
    return [*matrices.qr(traced(a), full=bool(eqn.params["full_matrices"]))]


def _whole(eqn: Any) -> None:
    """Raises UplError (UPL1936) where some of the values are asked for, by their places."""
    if eqn.params.get("subset_by_index") is not None:
        raise fail("UPL1936", f"`{eqn.primitive.name}` of some values is not built", help="take all, then a slice")


def eigh(eqn: Any, a: Any) -> list[Any]:
    """Eigenvectors, and eigenvalues, least first."""
    _whole(eqn)
    values, vectors = eigen.eigh(traced(a))
    return [vectors, values]


def svd(eqn: Any, a: Any) -> list[Any]:
    """Singular values, greatest first, and thin factors."""
    _whole(eqn)
    x, p = traced(a), eqn.params
    if p["compute_uv"] and p["full_matrices"] and x.shape[-1] != x.shape[-2]:
        raise fail("UPL1936", "`svd` with square factors is not built", help="full_matrices=False")
    u, s, vh = eigen.svd(x)
    return [s, u, vh] if p["compute_uv"] else [s]


def linear_solve(eqn: Any, *args: Any) -> list[Any]:
    """`jnp.linalg.solve` and `inv`.

    JAX cuts the derivative of the factors and has a rule of its own for the solution, as traced functions have
    (`matrices.solved`).  That is for matrices and right sides along the last axis, as jax.numpy makes it; else the factors
    are made here again, of the matrix itself, and differentiated.
    """
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    ends = np.cumsum([0, lengths.matvec, lengths.vecmat, lengths.solve])
    (matvec, right), solve = (args[ends[0] : ends[1]], args[sum(lengths) :]), jaxprs.solve
    inside = [e.params.get("name") for e in solve.jaxpr.eqns]
    if (lengths.matvec, lengths.solve) != (1, 2) or inside != ["_lu_solve"]:  # as jax.numpy.linalg makes it
        raise fail("UPL1936", "a linear solve by functions of one's own is not built",
                   help="use jnp.linalg.solve, or triangular solves")  # fmt: skip
    a, b = traced(matvec[0]), traced(right[0])
    product = next(iter(jaxprs.matvec.jaxpr.eqns))
    batch, of = tuple(range(a.ndim - 2)), a.ndim - 1
    if of - 1 <= b.ndim - 1 <= of and product.params.get("dimension_numbers") == (((of,), (b.ndim - 1,)), (batch, batch)):
        columns = b[..., :, None] if b.ndim == of else matrices.turned(b)
        x = matrices.solved(a, columns)
        return [x[..., :, 0] if b.ndim == of else matrices.turned(x)]
    factors, _, permutation = matrices.lu(a)
    return evaluate(solve.jaxpr, solve.consts, [factors, permutation, *right])
