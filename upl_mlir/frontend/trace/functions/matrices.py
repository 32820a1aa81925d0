# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Factorisations and solves: each is a loop over rows or columns, traced once, so a recurrence in UPL.

They are the textbook's (Golub and Van Loan, Matrix Computations, 3.1, 3.4, 4.2, 5.2), of one matrix at a time, without
blocks.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import reduce, wraps
from typing import Any, NamedTuple

import numpy as np

from upl_mlir.frontend.tensor import Apply, Expr, Number
from upl_mlir.frontend.trace import loops
from upl_mlir.frontend.trace.array import Array, as_array, broadcast, common_shape, computed, filled, numbers
from upl_mlir.frontend.trace.contract import matmul
from upl_mlir.frontend.trace.functions.elements import UFUNCS, is_finite, still, where
from upl_mlir.frontend.trace.functions.folds import cumulative, fold_max, fold_min, fold_sum
from upl_mlir.frontend.trace.functions.order import along, places
from upl_mlir.frontend.trace.functions.shapes import triangle
from upl_mlir.frontend.trace.position import fail
from upl_mlir.frontend.trace.reshape import concatenate, diagonal, reshape, stack, transpose

MOST = 64
"""Matrices in a batch at most: each has a loop of its own in the program. Chosen, not measured."""
_equal, _sqrt = UFUNCS["equal"], UFUNCS["sqrt"]


class Slogdet(NamedTuple):
    """What numpy.linalg.slogdet returns."""

    sign: Array
    logabsdet: Array


class QR(NamedTuple):
    """What numpy.linalg.qr returns."""

    Q: Array
    R: Array


def each(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule for batches of matrices, one after the other."""

    @wraps(rule)
    def batched(*arrays: Any, **options: Any) -> Any:
        given = [as_array(a) for a in arrays]
        if given[0].ndim < 2:
            message = f"{rule.__name__}: an array of shape {given[0].shape} is no matrix"
            raise fail("UPL1931", message, help="the last two dimensions are those of matrices")
        if all(a.ndim == 2 for a in given):
            return rule(*given, **options)
        batch = common_shape([a.shape[:-2] for a in given], rule.__name__)
        count = math.prod(batch)
        if count > MOST:
            message = f"`{rule.__name__}` of {count} matrices at once is not built"
            raise fail("UPL1932", message, help=f"at most {MOST} can be written out")
        flat = [reshape(broadcast(a, (*batch, *a.shape[-2:])), (-1, *a.shape[-2:])) for a in given]
        results = [rule(*(a[n] for a in flat), **options) for n in range(count)]
        columns = zip(*(r if isinstance(r, tuple) else (r,) for r in results), strict=True)
        out = [reshape(stack(column), (*batch, *column[0].shape)) for column in columns]
        return tuple(out) if isinstance(results[0], tuple) else out[0]

    return batched


def _square(a: Array, what: str) -> int:
    n, m = a.shape
    if n != m:
        raise fail("UPL1931", f"{what}: a matrix of shape {a.shape} is not square", help="use a square matrix")
    return n


@each
def triangular_solve(
    a: Array, b: Array, *, lower: bool = True, left: bool = True, across: bool = False, unit: bool = False
) -> Array:  # fmt: skip
    """x with a x = b; if not `left`, with x a = b; `across`: with the transpose of a; `unit`: with ones on its diagonal.

    Row by row.  The other triangle of `a` is not looked at.
    """
    matrix, right = numbers(a), numbers(b)
    if not left:  # x a = b is aᵀ xᵀ = bᵀ
        right, across = transpose(right), not across
    if across:
        matrix, lower = transpose(matrix), not lower
    n = right.shape[0]
    x = filled(right.shape, 0.0)
    for k in loops.range(n):
        at = k if lower else n - 1 - k
        row, value = matrix[at], right[at]
        solved = UFUNCS["less" if lower else "greater"](places(n), at)
        value = value - fold_sum(where(solved[:, None], row[:, None] * x, 0), 0)
        x[at] = value if unit else value / matrix[at, at]
    return x if left else transpose(x)


@each
def cholesky(a: Array, *, upper: bool = False) -> Array:
    """Column by column, the lower triangle, of which alone `a` is read; or the upper one."""
    matrix = numbers(a)
    n = _square(matrix, "cholesky")
    matrix = transpose(matrix) if upper else matrix
    out = filled(matrix.shape, 0.0)
    for k in loops.range(n):
        column = matrix[:, k] - fold_sum(out * out[k], 1)
        root = _sqrt(matrix[k, k] - fold_sum(out[k] * out[k], 0))
        below = UFUNCS["greater_equal"](places(n), k)
        out[:, k] = where(below, where(_equal(places(n), k), root, column / root), 0)
    return transpose(out) if upper else out


def _ratio(below: Expr, column: Expr, pivot: Expr) -> Expr:
    """What a row has of the pivot's: 0 where the pivot is 0, as the column is then; of which the root has no derivative."""
    ratio = Apply("?:", (Apply("==", (pivot, Number(0))), Apply("sqrt", (column,)), Apply("/", (column, pivot))))
    return Apply("?:", (below, ratio, Number(0)))


def _alone(chosen: Expr, value: Expr) -> Expr:
    """A value where it is chosen, and what changes no sum elsewhere: native code then reads the one that is chosen."""
    return Apply("?:", (chosen, value, Number(-0.0)))


@each
def lu(a: Array) -> tuple[Array, Array, Array]:
    """With partial pivoting: both factors in one matrix, the pivots, and the permutation of rows.

    Which row is next is data: rows change places by choosing among all of them.
    """
    n = _square(a, "lu")
    factors = numbers(a).copy()
    i, j = places(n)[:, None], places(n)
    permutation, pivots = places(n).copy(), filled((n,), 0.0)
    for k in loops.range(n):
        size = where(UFUNCS["greater_equal"](places(n), k), UFUNCS["absolute"](factors[:, k]), -1)
        first = fold_min(where(_equal(size, fold_max(size, 0)), places(n), float(n)), 0)
        chosen = computed(lambda at, row: Apply("==", (at, Apply("int", (row,)))), places(n), first, boolean=True)
        here = _equal(places(n), k)
        later = UFUNCS["greater"](i, k)
        row = fold_sum(computed(_alone, chosen[:, None], factors), 0)
        swapped = where(here[:, None], row, where(later, where(chosen[:, None], factors[k], factors), factors)).copy()
        number = fold_sum(computed(_alone, chosen, permutation), 0)
        moved = where(later[:, 0], where(chosen, permutation[k], permutation), permutation)
        permutation[...] = where(here, number, moved)
        pivots[k] = first
        pivot = fold_sum(where(_equal(j, k), row, 0), 0)
        column = fold_sum(where(_equal(j, k), swapped, 0), 1)
        ratio = computed(_ratio, later[:, 0], column, pivot)
        right = UFUNCS["greater"](j, k)
        update = where(right, swapped - ratio[:, None] * row, where(_equal(j, k), ratio[:, None], swapped))
        factors[...] = where(later, update, swapped)
    return factors, pivots, permutation


def _householder(a: Array) -> tuple[Array, Array]:
    """Q, square, and R, with the signs of LAPACK: a column that is 0 below the diagonal stays as it is."""
    n, m = a.shape
    q, r = (as_array(np.eye(n)) + 0).copy(), a.copy()
    i = places(n)
    for k in loops.range(min(n, m)):
        below = where(UFUNCS["greater"](i, k), r[:, k], 0)
        rest = fold_sum(below * below, 0)
        size = _sqrt(r[k, k] * r[k, k] + rest)
        first = where(r[k, k] < 0, size, -size)
        turns = rest > 0
        v = where(_equal(i, k), 1, where(turns, below / (r[k, k] - first), 0)).copy()
        share = where(turns, (first - r[k, k]) / first, 0)
        r[...] = r - share * v[:, None] * fold_sum(v[:, None] * r, 0)
        q[...] = q - share * fold_sum(q * v, 1)[:, None] * v
    return q, r


@each
def qr(a: Array, *, full: bool = False) -> tuple[Array, Array]:
    """Q and R; with `full`, Q is square.

    Values are Householder's, with LAPACK's signs.  Reflections have no derivative where they have nothing to turn (a matrix
    that is triangular already), although Q and R have one.  So the derivative goes another way: with R0 for the value of R,
    without a derivative, the columns of A R0⁻¹ are nearly those of Q, and become so by the factor of Cholesky of their
    products.
    """
    a = numbers(a)
    n, m = a.shape
    least = min(n, m)
    q0, r0 = _householder(still(a))
    columns = q0 if full else q0[:, :least]
    turned = triangular_solve(r0[:least, :least], a[:, :least], lower=False, left=False)
    turned = concatenate([turned, q0[:, least:]], 1) if full and least < n else turned
    root = cholesky(matmul(transpose(turned), turned))
    smooth = triangular_solve(root, turned, left=False, across=True)
    change = smooth - still(smooth)  # 0, but for the derivative; NaN where A has not full rank, as the derivative is then
    q = columns + where(is_finite(change), change, 0)
    return q, triangle(1)(matmul(transpose(q), a))


def _qr(a: Any, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "complete", "r"):
        raise fail("UPL1932", f"qr: mode={mode!r} cannot be traced", help="`reduced`, `complete` and `r` can")
    q, r = qr(a, full=mode == "complete")
    return r if mode == "r" else QR(q, r)


def _parity(pivots: Array) -> Array:
    """1 or -1: whether rows changed places an even number of times."""
    swaps = fold_sum(numbers(UFUNCS["not_equal"](pivots, places(len(pivots)))))
    return 1 - 2 * (swaps - 2 * UFUNCS["floor"](swaps / 2))


@each
def det(a: Array) -> Array:
    """Up to three rows by the definition, which has derivatives at singular matrices, too; else of the factors."""
    n = _square(a, "det")
    if n <= 3:
        return _minors(numbers(a))
    factors, pivots, _ = lu(a)
    return _parity(pivots) * cumulative("multiply", diagonal(factors), 0)[-1]


def _minors(a: Array) -> Array:
    n = len(a)
    if n == 1:
        return a[0, 0]
    if n == 2:
        return a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]
    pairs = ((1, 2), (2, 0), (0, 1))
    return reduce(operator.add, (a[0, k] * (a[1, m] * a[2, p] - a[1, p] * a[2, m]) for k, (m, p) in enumerate(pairs)))


@each
def _slogdet(a: Array) -> tuple[Array, Array]:
    factors, pivots, _ = lu(a)
    d = diagonal(factors)
    sign = _parity(pivots) * still(cumulative("multiply", UFUNCS["sign"](d), 0)[-1])
    return sign, fold_sum(UFUNCS["log"](UFUNCS["absolute"](d)))


@each
def solved(a: Array, b: Array) -> Array:
    """x with a x = b, of two matrices."""
    factors, _, permutation = lu(a)
    if len(a) != len(b):
        message = f"solve: a matrix of shape {a.shape}, a right side of shape {b.shape}"
        raise fail("UPL1931", message, help="they have as many rows")
    right = transpose(along(transpose(numbers(b)), permutation))
    return triangular_solve(factors, triangular_solve(factors, right, unit=True), lower=False)


def _solve(a: Any, b: Any) -> Array:
    right = as_array(b)
    return solved(a, right[:, None])[..., 0] if right.ndim == 1 else solved(a, right)


def _inv(a: Any) -> Array:
    return solved(a, np.eye(as_array(a).shape[-1]))


def _matrix_power(a: Any, n: int) -> Array:
    """By squares."""
    base, left = as_array(a), operator.index(n)
    base, left = (_inv(base), -left) if left < 0 else (base, left)
    if not left:
        return broadcast(as_array(np.eye(base.shape[-1])), base.shape) + 0
    out: Array | None = None
    while left:
        if left & 1:
            out = base if out is None else matmul(out, base)
        left >>= 1
        base = matmul(base, base) if left else base
    assert out is not None
    return out


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "solve": _solve, "inv": _inv, "cholesky": cholesky, "det": det, "slogdet": lambda a: Slogdet(*_slogdet(a)), "qr": _qr,
    "matrix_power": _matrix_power, "multi_dot": lambda arrays, *, out=None: reduce(matmul, arrays),
}  # fmt: skip
"""numpy.linalg's factorisations, by their names."""
