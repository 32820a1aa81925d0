# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
"""Rules for factorisations and solves: each is a loop over rows or columns, traced once, so a recurrence in UPL.

They are the textbook's (Golub and Van Loan, Matrix Computations, 3.1, 3.4, 4.2), of one matrix at a time, without blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from upl_mlir.frontend.jaxpr.evaluate import copied, evaluate, traced
from upl_mlir.frontend.trace import functions, loops
from upl_mlir.frontend.trace.array import Array, as_array, filled, numbers
from upl_mlir.frontend.trace.functions import UFUNCS, where
from upl_mlir.frontend.trace.position import fail
from upl_mlir.frontend.trace.reshape import reshape, stack, transpose

MOST = 64
"""Matrices in a batch at most: each has a loop of its own in the program. Chosen, not measured."""


def each(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule for batches of matrices, one after the other."""

    def batched(eqn: Any, *arrays: Any) -> Any:
        ndim = np.ndim(arrays[0])
        if ndim == 2:
            return rule(eqn, *arrays)
        batch = np.shape(arrays[0])[: ndim - 2]
        if np.prod(batch) > MOST:
            message = f"`{eqn.primitive.name}` of {np.prod(batch)} matrices at once is not built"
            raise fail("UPL1936", message, help=f"at most {MOST} can be written out")
        flat = [reshape(traced(a), (-1, *np.shape(a)[ndim - 2 :])) for a in arrays]
        results = [rule(eqn, *(a[n] for a in flat)) for n in range(len(flat[0]))]
        columns = zip(*(r if isinstance(r, list) else [r] for r in results), strict=True)
        out = [reshape(stack(column), (*batch, *np.shape(column[0]))) for column in columns]
        return out if isinstance(results[0], list) else out[0]

    return batched


def _places(n: int, *, column: bool = False) -> Array:
    """0, 1, … as a row, or as a column."""
    return as_array(np.arange(n, dtype=float)[:, None] if column else np.arange(n, dtype=float))


def triangular_solve(eqn: Any, a: Any, b: Any) -> Array:
    """Row by row: what is solved is in `x`, the rest is 0 there."""
    p = eqn.params
    matrix, right = numbers(traced(a)), numbers(traced(b))
    lower, across = bool(p["lower"]), bool(p["transpose_a"])
    if not p["left_side"]:  # x a = b is aᵀ xᵀ = bᵀ
        right, across = transpose(right), not across
    if across:
        matrix, lower = transpose(matrix), not lower
    n = right.shape[0]
    x = copied(filled(right.shape, 0.0))
    for k in loops.range(n):
        at = k if lower else n - 1 - k
        row, left = matrix[at], right[at]
        rest = functions.fold_sum(where(UFUNCS["equal"](_places(n), at), 0, row)[:, None] * x, 0)
        value = left - rest
        x[at] = value if p["unit_diagonal"] else value / matrix[at, at]
    return x if p["left_side"] else transpose(x)


def cholesky(eqn: Any, a: Any) -> Array:
    """Column by column, the lower triangle."""
    matrix = numbers(traced(a))
    n = matrix.shape[0]
    out = copied(filled(matrix.shape, 0.0))
    for k in loops.range(n):
        column = matrix[:, k] - functions.fold_sum(out * out[k], 1)
        root = UFUNCS["sqrt"](matrix[k, k] - functions.fold_sum(out[k] * out[k], 0))
        below = UFUNCS["greater_equal"](_places(n), k)
        out[:, k] = where(below, where(UFUNCS["equal"](_places(n), k), root, column / root), 0)
    return out


def lu(eqn: Any, a: Any) -> list[Any]:
    """With partial pivoting: both factors in one matrix, the pivots, and the permutation of rows.

    Which row is next is data: rows change places by choosing among all of them.
    """
    factors = copied(numbers(traced(a)))
    n, m = factors.shape
    if n != m:
        raise fail("UPL1936", "`lu` of a matrix that is not square is not built", help="use a square matrix")
    i, j = _places(n, column=True), _places(n)
    permutation, pivots = copied(_places(n)), copied(filled((n,), 0.0))
    for k in loops.range(n):
        size = where(UFUNCS["greater_equal"](_places(n), k), UFUNCS["absolute"](factors[:, k]), -1)
        first = functions.fold_min(where(UFUNCS["equal"](size, functions.fold_max(size, 0)), _places(n), float(n)), 0)
        chosen = UFUNCS["equal"](_places(n), first)
        here = UFUNCS["equal"](_places(n), k)
        row = functions.fold_sum(where(chosen[:, None], factors, 0), 0)
        swapped = where(here[:, None], row, where(chosen[:, None], factors[k], factors)).copy()
        number = functions.fold_sum(where(chosen, permutation, 0), 0)
        permutation[...] = where(here, number, where(chosen, permutation[k], permutation))
        pivots[k] = first
        below = UFUNCS["greater"](i, k)
        pivot = functions.fold_sum(where(UFUNCS["equal"](j, k), row, 0), 0)
        column = functions.fold_sum(where(UFUNCS["equal"](j, k), swapped, 0), 1)
        ratio = where(below[:, 0], column / pivot, 0)
        right = UFUNCS["greater"](j, k)
        update = where(right, swapped - ratio[:, None] * row, where(UFUNCS["equal"](j, k), ratio[:, None], swapped))
        factors[...] = where(below, update, swapped)
    return [factors, pivots, permutation]


def linear_solve(eqn: Any, *args: Any) -> list[Any]:
    """`jnp.linalg.solve` and `inv`.

    JAX cuts the derivative of the factors and has a rule of its own for the solution.  UPL differentiates the
    factorisation, so the factors are made here again, of the matrix itself.
    """
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    ends = np.cumsum([0, lengths.matvec, lengths.vecmat, lengths.solve])
    (matvec, right), solve = (args[ends[0] : ends[1]], args[sum(lengths) :]), jaxprs.solve
    inside = [e.params.get("name") for e in solve.jaxpr.eqns]
    if (lengths.matvec, lengths.solve) != (1, 2) or inside != ["_lu_solve"]:  # as jax.numpy.linalg makes it
        raise fail("UPL1936", "a linear solve by functions of one's own is not built",
                   help="use jnp.linalg.solve, or triangular solves")  # fmt: skip
    factors, _, permutation = each(lu)(eqn, matvec[0])
    return evaluate(solve.jaxpr, solve.consts, [factors, permutation, *right])
