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
from upl_mlir.frontend.trace.functions.elements import UFUNCS, still, where
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


def times(change: Array, slope: Array) -> Array:
    """0, with the derivative of `change` times `slope`: of what is made of such numbers, no engine needs the values."""
    return computed(lambda x, s: Apply("with_derivative", (Number(0.0), x, s)), change, slope, word="derivative")


def with_change(value: Array, change: Array) -> Array:
    """The value, with the derivative of `change`."""
    return computed(lambda v, x: Apply("with_derivative", (v, x, Number(1.0))), value, change, word="derivative")


def _square(a: Array, what: str) -> int:
    n, m = a.shape
    if n != m:
        raise fail("UPL1931", f"{what}: a matrix of shape {a.shape} is not square", help="use a square matrix")
    return n


@each
def triangular_solve(
    a: Array, b: Array, *, lower: bool = True, left: bool = True, across: bool = False, unit: bool = False,
    change: bool = False,
) -> Array:  # fmt: skip
    """x with a x = b; if not `left`, with x a = b; `across`: with the transpose of a; `unit`: with ones on its diagonal.

    Row by row.  The other triangle of `a` is not looked at.  `change`: not the solution but its derivative by b (`times`).
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
        share = times(x, row[:, None]) if change else row[:, None] * x
        value = value - fold_sum(where(solved[:, None], share, 0), 0)
        if not unit:
            value = times(value, 1 / matrix[at, at]) if change else value / matrix[at, at]
        x[at] = value
    return x if left else transpose(x)


@each
def cholesky(a: Array, *, upper: bool = False) -> Array:
    """Column by column, the lower triangle, of which alone `a` is read; or the upper one.

    With Z = L⁻¹ dA L⁻ᵀ it changes by L times the lower triangle of Z, of whose diagonal a half counts.
    """
    matrix = numbers(a)
    n = _square(matrix, "cholesky")
    matrix = transpose(matrix) if upper else matrix
    out = filled(matrix.shape, 0.0)
    for k in loops.range(n):
        column = matrix[:, k] - fold_sum(out * out[k], 1)
        root = _sqrt(matrix[k, k] - fold_sum(out[k] * out[k], 0))
        below = UFUNCS["greater_equal"](places(n), k)
        out[:, k] = where(below, where(_equal(places(n), k), root, column / root), 0)
    i, j = places(n)[:, None], places(n)
    symmetric = where(UFUNCS["less"](i, j), transpose(matrix), matrix)
    y = triangular_solve(out, symmetric, change=True)
    z = triangular_solve(out, y, left=False, across=True, change=True)
    z = where(UFUNCS["less"](i, j), 0, where(_equal(i, j), z / 2, z))
    out = with_change(out, fold_sum(times(z, out[:, :, None]), 1))
    return transpose(out) if upper else out


def _ratio(below: Expr, column: Expr, pivot: Expr) -> Expr:
    """What a row has of the pivot's: 0 where the pivot is 0, as the column is then; of which the root has no derivative."""
    ratio = Apply("?:", (Apply("==", (pivot, Number(0))), Apply("sqrt", (column,)), Apply("/", (column, pivot))))
    return Apply("?:", (below, ratio, Number(0)))


def _is(at: Expr, number: Expr) -> Expr:
    """Whether a place has a number that is data."""
    return Apply("==", (at, Apply("int", (number,))))


def _chosen(at: Expr, number: Expr, value: Expr) -> Expr:
    """A value at the place that is a number, and what changes no sum elsewhere: native code reads the one that is chosen."""
    return Apply("?:", (_is(at, number), value, Number(-0.0)))


@each
def lu(a: Array) -> tuple[Array, Array, Array]:
    """With partial pivoting: both factors in one matrix, the pivots, and the permutation of rows.

    Which row is next is data.  Rows stay where they are, and `place` says where each would stand if they had changed places.
    Of what is written once, the rows above the diagonal and the columns below it, each round hands out its own.
    """
    n = _square(a, "lu")
    places_ = places(n)

    def step(carry: tuple[Array, Array], k: Any) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
        rest, place = carry
        size = where(UFUNCS["greater_equal"](place, k), UFUNCS["absolute"](rest[:, k]), -1)
        first = fold_min(where(_equal(size, fold_max(size, 0)), place, float(n)), 0)
        first = where(first < n, first, k)  # there is no greatest number where one is NaN
        number = fold_min(where(_equal(place, first), places_, float(n)), 0)
        row = fold_sum(computed(_chosen, places_[:, None], number, rest), 0)
        place = where(computed(_is, places_, number, boolean=True), k, where(_equal(place, k), first, place))
        later = UFUNCS["greater"](place, k)
        pivot = fold_sum(where(_equal(places_, k), row, 0), 0)
        ratio = computed(_ratio, later, rest[:, k], pivot)
        right = UFUNCS["greater"](places_, k)
        rest = where(right, where(later[:, None], rest - ratio[:, None] * row, rest), rest)
        return (rest, place), (row, ratio, first, number)

    _, (rows, ratios, pivots, permutation) = loops.counted_scan(lambda c, x: step(c, x[0]), (numbers(a), places_), None, n)
    ratio = transpose(ratios)[:, None, :]
    columns = fold_sum(computed(_chosen, places_[:, None, None], permutation[:, None], ratio), 0)
    return where(UFUNCS["greater_equal"](places_, places_[:, None]), rows, columns), pivots, permutation


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
    that is triangular already), although Q and R have one.  It is that of A R⁻¹ = Q, with Q and R for slopes.  So who
    differentiates once gets by with Q and R themselves.
    """
    a = numbers(a)
    n, m = a.shape
    least = min(n, m)
    q0, r0 = _householder(still(a))
    columns = q0 if full else q0[:, :least]
    turned = triangular_solve(r0[:least, :least], a[:, :least], lower=False, left=False)
    turned = concatenate([turned, q0[:, least:]], 1) if full and least < n else turned
    q = with_change(columns, _orthonormal(turned))
    if columns.shape[1] == least:
        r = triangle(1)(matmul(transpose(q), a))
        q = with_change(q, _change(q, r[:, :least], a[:, :least]))
    return q, triangle(1)(matmul(transpose(q), a))


def _orthonormal(turned: Array) -> Array:
    """Orthonormal columns, of such that are nearly so: with R0 for the value of R, without a derivative, the columns of
    A R0⁻¹.  It has the derivatives of Q, all of them; they are NaN where A has not full rank."""
    root = cholesky(matmul(transpose(turned), turned))
    return triangular_solve(root, turned, left=False, across=True)


def _change(q: Array, r: Array, a: Array) -> Array:
    """What Q changes by, by A: with W = dA R⁻¹, and C = Qᵀ W, it is W + Q (L - Lᵀ - C), where L is C below the diagonal."""
    w = triangular_solve(r, a, lower=False, left=False, change=True)
    c = fold_sum(times(w[:, None, :], q[:, :, None]), 0)
    i = places(len(c))
    below = where(UFUNCS["greater"](i[:, None], i), c, 0)
    return w + fold_sum(times((below - transpose(below) - c)[None], q[:, :, None]), 1)


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
    """x with a x = b, of two matrices.

    Its derivative is a⁻¹ (db - da x), by the factors that are there.  So the factorisation is differentiated only by who
    differentiates twice: x and the factors are slopes here, and have derivatives of their own.
    """
    a, b = numbers(a), numbers(b)
    factors, _, permutation = lu(a)
    if len(a) != len(b):
        message = f"solve: a matrix of shape {a.shape}, a right side of shape {b.shape}"
        raise fail("UPL1931", message, help="they have as many rows")

    def by_factors(right: Array, change: bool) -> Array:
        y = triangular_solve(factors, transpose(along(transpose(right), permutation)), unit=True, change=change)
        return triangular_solve(factors, y, lower=False, change=change)

    x = by_factors(b, False)
    change = b - fold_sum(times(a[:, :, None], x), 1)
    return with_change(x, by_factors(change, True))


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
