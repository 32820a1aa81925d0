# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Factorisations and solves: each is a loop over rows or columns, traced once, so a recurrence in UPL.

They are the textbook's (Golub and Van Loan, Matrix Computations, 3.1, 3.4, 4.2, 5.2), without blocks.  Matrices of a batch
go through one loop together.
"""

from __future__ import annotations

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
from upl_mlir.frontend.trace.reshape import concatenate, diagonal, moveaxis, swapaxes, transpose

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
    """The rule, which takes the last two dimensions as those of matrices, for arrays whose others broadcast."""

    @wraps(rule)
    def batched(*arrays: Any, **options: Any) -> Any:
        given = [as_array(a) for a in arrays]
        if given[0].ndim < 2:
            message = f"{rule.__name__}: an array of shape {given[0].shape} is no matrix"
            raise fail("UPL1931", message, help="the last two dimensions are those of matrices")
        batch = common_shape([a.shape[:-2] for a in given], rule.__name__)
        return rule(*(broadcast(a, (*batch, *a.shape[-2:])) if batch else a for a in given), **options)

    return batched


def turned(a: Array) -> Array:
    """The transposes of matrices."""
    return transpose(a) if a.ndim == 2 else swapaxes(a, -1, -2)


def main_diagonal(a: Array) -> Array:
    """The diagonals of matrices."""
    return diagonal(a, axis1=-2, axis2=-1)


def spread(x: Array, axes: int = 1) -> Array:
    """Numbers of a batch with dimensions behind, as they stand beside arrays of these; one number stands beside all."""
    return x[(..., *(None,) * axes)] if x.ndim else x


def beside(x: Array, axes: int = 2) -> Array:
    """The last dimension of a batch behind so many dimensions; a row of its own stands beside all."""
    return x[(..., *(None,) * (axes - 1), slice(None))] if x.ndim > 1 else x


def behind(x: Array) -> Array:
    """Matrices of a batch behind one more dimension; a matrix of its own stands beside all."""
    return x[..., None, :, :] if x.ndim > 2 else x


def times(change: Array, slope: Array) -> Array:
    """0, with the derivative of `change` times `slope`: of what is made of such numbers, no engine needs the values."""
    return computed(lambda x, s: Apply("with_derivative", (Number(0.0), x, s)), change, slope, word="derivative")


def with_change(value: Array, change: Array) -> Array:
    """The value, with the derivative of `change`."""
    return computed(lambda v, x: Apply("with_derivative", (v, x, Number(1.0))), value, change, word="derivative")


def square(a: Array, what: str) -> int:
    n, m = a.shape[-2:]
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
        right, across = turned(right), not across
    if across:
        matrix, lower = turned(matrix), not lower
    n = right.shape[-2]
    x = filled(right.shape, 0.0)
    for k in loops.range(n):
        at = k if lower else n - 1 - k
        row, value = matrix[..., at, :], right[..., at, :]
        solved = UFUNCS["less" if lower else "greater"](places(n), at)
        share = times(x, row[..., :, None]) if change else row[..., :, None] * x
        value = value - fold_sum(where(solved[:, None], share, 0), -2)
        if not unit:
            pivot = spread(matrix[..., at, at])
            value = times(value, 1 / pivot) if change else value / pivot
        x[..., at, :] = value
    return x if left else turned(x)


@each
def cholesky(a: Array, *, upper: bool = False) -> Array:
    """Column by column, the lower triangle, of which alone `a` is read; or the upper one.

    With Z = L⁻¹ dA L⁻ᵀ it changes by L times the lower triangle of Z, of whose diagonal a half counts.
    """
    matrix = numbers(a)
    n = square(matrix, "cholesky")
    matrix = turned(matrix) if upper else matrix
    out = filled(matrix.shape, 0.0)
    for k in loops.range(n):
        row = out[..., k, :]
        column = matrix[..., :, k] - fold_sum(out * beside(row), -1)
        root = spread(_sqrt(matrix[..., k, k] - fold_sum(row * row, -1)))
        below = UFUNCS["greater_equal"](places(n), k)
        out[..., :, k] = where(below, where(_equal(places(n), k), root, column / root), 0)
    i, j = places(n)[:, None], places(n)
    symmetric = where(UFUNCS["less"](i, j), turned(matrix), matrix)
    y = triangular_solve(out, symmetric, change=True)
    z = triangular_solve(out, y, left=False, across=True, change=True)
    z = where(UFUNCS["less"](i, j), 0, where(_equal(i, j), z / 2, z))
    out = with_change(out, fold_sum(times(behind(z), out[..., :, :, None]), -2))
    return turned(out) if upper else out


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
    n, batch = square(a, "lu"), a.shape[:-2]
    places_ = places(n)
    start = broadcast(places_, (*batch, n)) if batch else places_

    def step(carry: tuple[Array, Array], k: Any) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
        rest, place = carry
        size = where(UFUNCS["greater_equal"](place, k), UFUNCS["absolute"](rest[..., :, k]), -1)
        first = fold_min(where(_equal(size, spread(fold_max(size, -1))), place, float(n)), -1)
        first = where(first < n, first, k)  # there is no greatest number where one is NaN
        number = fold_min(where(_equal(place, spread(first)), places_, float(n)), -1)
        row = fold_sum(computed(_chosen, places_[:, None], spread(number, 2), rest), -2)
        place = where(
            computed(_is, places_, spread(number), boolean=True), k, where(_equal(place, k), spread(first), place)
        )
        later = UFUNCS["greater"](place, k)
        pivot = fold_sum(where(_equal(places_, k), row, 0), -1)
        ratio = computed(_ratio, later, rest[..., :, k], spread(pivot))
        right = UFUNCS["greater"](places_, k)
        rest = where(right, where(later[..., :, None], rest - ratio[..., :, None] * beside(row), rest), rest)
        return (rest, place), (row, ratio, first, number)

    _, made = loops.counted_scan(lambda c, x: step(c, x[0]), (numbers(a), start), None, n)
    rows, ratios, pivots, permutation = (moveaxis(x, 0, len(batch)) if batch else x for x in made)
    ratio = turned(ratios)[..., :, None, :]
    columns = fold_sum(computed(_chosen, places_[:, None, None], spread(beside(permutation)), ratio), -3)
    return where(UFUNCS["greater_equal"](places_, places_[:, None]), rows, columns), pivots, permutation


def _householder(a: Array) -> tuple[Array, Array]:
    """Q, square, and R, with the signs of LAPACK: a column that is 0 below the diagonal stays as it is."""
    n, m = a.shape[-2:]
    q, r = (broadcast(as_array(np.eye(n)), (*a.shape[:-2], n, n)) + 0).copy(), a.copy()
    i = places(n)
    for k in loops.range(min(n, m)):
        below = where(UFUNCS["greater"](i, k), r[..., :, k], 0)
        rest, pivot = fold_sum(below * below, -1), r[..., k, k]
        size = _sqrt(pivot * pivot + rest)
        first = where(pivot < 0, size, -size)
        turns = rest > 0
        v = where(_equal(i, k), 1, where(spread(turns), below / spread(pivot - first), 0)).copy()
        share = spread(where(turns, (first - pivot) / first, 0), 2)
        r[...] = r - share * v[..., :, None] * beside(fold_sum(v[..., :, None] * r, -2))
        q[...] = q - share * fold_sum(q * beside(v), -1)[..., :, None] * beside(v)
    return q, r


@each
def qr(a: Array, *, full: bool = False) -> tuple[Array, Array]:
    """Q and R; with `full`, Q is square.

    Values are Householder's, with LAPACK's signs.  Reflections have no derivative where they have nothing to turn (a matrix
    that is triangular already), although Q and R have one.  It is that of A R⁻¹ = Q, with Q and R for slopes.  So who
    differentiates once gets by with Q and R themselves.
    """
    a = numbers(a)
    n, m = a.shape[-2:]
    least = min(n, m)
    q0, r0 = _householder(still(a))
    columns = q0 if full else q0[..., :, :least]
    near = triangular_solve(r0[..., :least, :least], a[..., :, :least], lower=False, left=False)
    near = concatenate([near, q0[..., :, least:]], -1) if full and least < n else near
    q = with_change(columns, _orthonormal(near))
    if columns.shape[-1] == least:
        r = triangle(1)(matmul(turned(q), a))
        q = with_change(q, _change(q, r[..., :, :least], a[..., :, :least]))
    return q, triangle(1)(matmul(turned(q), a))


def _orthonormal(near: Array) -> Array:
    """Orthonormal columns, of such that are nearly so: with R0 for the value of R, without a derivative, the columns of
    A R0⁻¹.  It has the derivatives of Q, all of them; they are NaN where A has not full rank."""
    root = cholesky(matmul(turned(near), near))
    return triangular_solve(root, near, left=False, across=True)


def _change(q: Array, r: Array, a: Array) -> Array:
    """What Q changes by, by A: with W = dA R⁻¹, and C = Qᵀ W, it is W + Q (L - Lᵀ - C), where L is C below the diagonal."""
    w = triangular_solve(r, a, lower=False, left=False, change=True)
    c = fold_sum(times(w[..., :, None, :], q[..., :, :, None]), -3)
    i = places(c.shape[-1])
    below = where(UFUNCS["greater"](i[:, None], i), c, 0)
    return w + fold_sum(times((below - turned(below) - c)[..., None, :, :], q[..., :, :, None]), -2)


def _qr(a: Any, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "complete", "r"):
        raise fail("UPL1932", f"qr: mode={mode!r} cannot be traced", help="`reduced`, `complete` and `r` can")
    q, r = qr(a, full=mode == "complete")
    return r if mode == "r" else QR(q, r)


def _parity(pivots: Array) -> Array:
    """1 or -1: whether rows changed places an even number of times."""
    swaps = fold_sum(numbers(UFUNCS["not_equal"](pivots, places(pivots.shape[-1]))), -1)
    return 1 - 2 * (swaps - 2 * UFUNCS["floor"](swaps / 2))


@each
def det(a: Array) -> Array:
    """Up to three rows by the definition, which has derivatives at singular matrices, too; else of the factors."""
    n = square(a, "det")
    if n <= 3:
        return _minors(numbers(a))
    factors, pivots, _ = lu(a)
    return _parity(pivots) * cumulative("multiply", main_diagonal(factors), -1)[..., -1]


def _minors(a: Array) -> Array:
    def at(i: int, j: int) -> Array:
        return a[..., i, j]

    n = a.shape[-1]
    if n == 1:
        return at(0, 0)
    if n == 2:
        return at(0, 0) * at(1, 1) - at(0, 1) * at(1, 0)
    pairs = ((1, 2), (2, 0), (0, 1))
    return reduce(
        operator.add, (at(0, k) * (at(1, m) * at(2, p) - at(1, p) * at(2, m)) for k, (m, p) in enumerate(pairs))
    )


@each
def _slogdet(a: Array) -> tuple[Array, Array]:
    factors, pivots, _ = lu(a)
    d = main_diagonal(factors)
    sign = _parity(pivots) * still(cumulative("multiply", UFUNCS["sign"](d), -1)[..., -1])
    return sign, fold_sum(UFUNCS["log"](UFUNCS["absolute"](d)), -1)


@each
def solved(a: Array, b: Array) -> Array:
    """x with a x = b, of two matrices.

    Its derivative is a⁻¹ (db - da x), by the factors that are there.  So the factorisation is differentiated only by who
    differentiates twice: x and the factors are slopes here, and have derivatives of their own.
    """
    a, b = numbers(a), numbers(b)
    factors, _, permutation = lu(a)
    if a.shape[-1] != b.shape[-2]:
        message = f"solve: a matrix of shape {a.shape}, a right side of shape {b.shape}"
        raise fail("UPL1931", message, help="they have as many rows")

    def by_factors(right: Array, change: bool) -> Array:
        rows = turned(along(turned(right), beside(permutation)))
        y = triangular_solve(factors, rows, unit=True, change=change)
        return triangular_solve(factors, y, lower=False, change=change)

    x = by_factors(b, False)
    change = b - fold_sum(times(a[..., :, :, None], behind(x)), -2)
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
