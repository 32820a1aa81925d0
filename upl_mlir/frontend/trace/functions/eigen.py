# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Eigenvalues of symmetric matrices and singular values, by Jacobi's rotations; least squares.

Rotations go in rounds, each of as many pairs of rows as have no row in common, after which the rows change places so that
others meet (R. P. Brent, F. T. Luk, SIAM J. Sci. Stat. Comput. 6 (1985); Golub and Van Loan, 8.5 and 8.6.3).  All rounds
are alike, so they are one loop that is traced once.  How many there are is fixed by the size; where they were too few,
the results are NaN, as numpy raises an exception.  Derivatives go through the rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from upl_mlir.frontend.tensor import Apply, Expr, Number
from upl_mlir.frontend.trace import loops
from upl_mlir.frontend.trace.array import Array, as_array, broadcast, computed, filled, numbers
from upl_mlir.frontend.trace.contract import matmul
from upl_mlir.frontend.trace.functions.elements import UFUNCS, still, where
from upl_mlir.frontend.trace.functions.folds import fold_max, fold_min, fold_sum
from upl_mlir.frontend.trace.functions.matrices import (
    beside,
    each,
    main_diagonal,
    qr,
    spread,
    square,
    triangular_solve,
    turned,
)
from upl_mlir.frontend.trace.functions.order import permuted, ranks
from upl_mlir.frontend.trace.position import fail
from upl_mlir.frontend.trace.reshape import concatenate

_sqrt, _abs, _equal, _larger = (UFUNCS[name] for name in ("sqrt", "absolute", "equal", "maximum"))
_LOOSE = 64.0
"""How many half units in the last place rows may be from orthogonal, of the greatest: rounding alone makes some."""


class Eigh(NamedTuple):
    """What numpy.linalg.eigh returns."""

    eigenvalues: Array
    eigenvectors: Array


class SVD(NamedTuple):
    """What numpy.linalg.svd returns."""

    U: Array
    S: Array
    Vh: Array


def _sweeps(n: int) -> int:
    """Of n/2 rotations at a time, n-1 times.  4 more than any of 1200 matrices of up to 64 rows took, with repeated and with
    graded eigenvalues or singular values among them: each further derivative takes one or so."""
    return 4 + 4 * math.ceil(math.log2(n))


def _meet(n: int) -> list[int]:
    """Where the rows come from after a round: row 0 stays, the others go round."""
    h = n // 2
    return [0, h, *range(1, h - 1), *range(h + 1, n), h - 1] if h > 1 else [0, 1]


def _apart(a: Expr, b: Expr, c: Expr) -> tuple[Expr, Expr]:
    """The difference of the diagonal of ((a, b), (b, c)), and of its eigenvalues."""
    d = Apply("-", (c, a))
    return d, Apply("sqrt", (Apply("+", (Apply("*", (d, d)), Apply("*", (Number(4), Apply("*", (b, b)))))),))


def _nothing(a: Expr, b: Expr, c: Expr, unit: Expr) -> Expr:
    """Whether there is nothing to turn: the eigenvalues are the same up to rounding."""
    return Apply("==", (Apply("+", (unit, _apart(a, b, c)[1])), unit))


def _tangent(a: Expr, b: Expr, c: Expr, unit: Expr) -> Expr:
    """Of the lesser of the two angles by which ((a, b), (b, c)) is turned so that b is 0."""
    d, r = _apart(a, b, c)
    below = Apply("?:", (Apply("<", (d, Number(0))), Apply("-", (d, r)), Apply("+", (d, r))))
    turn = Apply("/", (Apply("*", (Number(2), b)), below))
    return Apply("?:", (_nothing(a, b, c, unit), Number(0), turn))


class Rotation:
    """The rotations of a round: of rows i and n/2 + i, for all i below n/2."""

    def __init__(self, a: Array, b: Array, c: Array, unit: Any):
        """`unit`: what differences are measured by."""
        self.left = where(computed(_nothing, a, b, c, as_array(unit), boolean=True, word="nothing"), b, 0)
        self.tangent = computed(_tangent, a, b, c, as_array(unit), word="tangent")
        self.cos = 1 / _sqrt(1 + self.tangent * self.tangent)
        self.sin = self.tangent * self.cos

    def rows(self, m: Array) -> Array:
        """The rows of a matrix, turned, and in the order of the next round."""
        h = m.shape[-2] // 2
        c, s = self.cos[..., :, None], self.sin[..., :, None]
        above, below = m[..., :h, :], m[..., h:, :]
        return _moved(c * above - s * below, s * above + c * below, -2)


def _moved(above: Array, below: Array, axis: int = -1) -> Array:
    def part(x: Array, first: int, end: int | None) -> Array:
        return x[..., first:end] if axis == -1 else x[..., first:end, :]

    if above.shape[axis] < 2:
        return concatenate([above, below], axis)
    parts = [part(above, 0, 1), part(below, 0, 1), part(above, 1, -1), part(below, 1, None), part(above, -1, None)]
    return concatenate(parts, axis)


def _padded(m: Array, rows: int, columns: int) -> Array:
    """The matrix with rows and columns of 0 behind it, as an array that a loop may write."""
    out = filled((*m.shape[:-2], rows, columns), 0.0)
    out[..., : m.shape[-2], : m.shape[-1]] = m
    return out


def _ones(a: Array, n: int) -> Array:
    """A matrix of ones on the diagonal for each of a batch, as an array that a loop may write."""
    return (broadcast(as_array(np.eye(n)), (*a.shape[:-2], n, n)) + 0).copy()


def _over(fold: Callable[..., Array], m: Array) -> Array:
    """A fold of all elements of a matrix."""
    return fold(m) if m.ndim == 2 else fold(fold(m, -1), -1)


def _scale(a: Array) -> Array:
    """The greatest size of an element, by which one may divide."""
    most = still(_over(fold_max, _abs(a)))
    return where(_equal(most, 0), 1, most)


def _alike(x: Array, unit: Any) -> Array:
    """Whether neighbours are the same up to rounding."""
    return _equal(unit + fold_min(_abs(x[..., 1:] - x[..., :-1]), -1), unit)


def _no_derivative(x: Array, of: Array, when: Array, power: float) -> Array:
    """x, whose derivatives by `of` are infinite where `when` holds: the first (power 0.5), or all but the first (1.5)."""
    zero = _over(fold_sum, of - still(of))
    return x + spread(where(when, UFUNCS["power"](zero, power), 0), x.ndim - zero.ndim)


@each
def eigh(a: Array) -> tuple[Array, Array]:
    """Eigenvalues, least first, and eigenvectors as columns, of (a + aᵀ)/2.

    Eigenvectors of the same eigenvalue have no derivative, nor have such eigenvalues a second one; they are infinite or NaN.
    """
    n = square(a, "eigh")
    a = (numbers(a) + turned(numbers(a))) / 2
    if n == 1:
        return a[..., 0, :], _ones(a, 1)
    size, h = n + n % 2, (n + 1) // 2
    scale, order = _scale(a), _meet(size)
    work, vectors = _padded(a / spread(scale, 2), size, size), _ones(a, size)
    pairs = np.eye(size)[np.roll(np.arange(size), h)][np.ix_(order, order)]
    for _ in loops.range(_sweeps(size) * (size - 1)):
        d, b = main_diagonal(work), main_diagonal(work[..., :h, h:])
        turn = Rotation(d[..., :h], b, d[..., h:], 1.0)
        change = turn.tangent * b
        ends = beside(_moved(d[..., :h] - change, d[..., h:] + change))
        left = beside(_moved(turn.left, turn.left))
        new = turn.rows(turned(turn.rows(work)))
        work[...] = where(pairs == 1, left, where(np.eye(size) == 1, ends, new))
        vectors[...] = turn.rows(vectors)
    values, rest = main_diagonal(work)[..., :n], where(np.eye(size) == 1, 0, work)
    done = _equal(_LOOSE + _over(fold_max, _abs(rest)), _LOOSE)
    rank, values = ranks([values]), where(spread(done), values, math.nan)
    values, columns = permuted(values, rank), permuted(turned(vectors[..., :n, :n]), beside(rank))
    same = _alike(values, 1.0)
    columns = where(spread(done, 2), columns, math.nan)
    return _no_derivative(values, a, same, 1.5) * spread(scale), _no_derivative(columns, a, same, 0.5)


@each
def svd(a: Array) -> tuple[Array, Array, Array]:
    """The thin factors: of U and Vh as many columns and rows as the lesser extent.  Vectors of a singular value that is 0
    are NaN, as nothing determines them (but on the side of fewer rows)."""
    m, n = a.shape[-2:]
    if m < n:
        u, s, vh = svd(turned(numbers(a)))
        return turned(vh), s, turned(u)
    a = numbers(a)
    scale, size, h = _scale(a), n + n % 2, (n + 1) // 2
    work, vectors = _padded(turned(a) / spread(scale, 2), size, m), _ones(a, size)
    unit = still(_larger(_over(fold_sum, work * work), 1))
    for _ in loops.range(_sweeps(size) * (size - 1)):
        above, below = work[..., :h, :], work[..., h:, :]
        p, b, q = fold_sum(above * above, -1), fold_sum(above * below, -1), fold_sum(below * below, -1)
        turn = Rotation(p, b, q, _larger(p, q))
        work[...], vectors[...] = turn.rows(work), turn.rows(vectors)
    work, vectors = work[..., :n, :], vectors[..., :n, :n]
    squares, products = fold_sum(work * work, -1), still(matmul(work, turned(work)))
    longer = _larger(squares[..., :, None], still(beside(squares)))
    unit2 = spread(unit, 2)
    leaning = where(np.eye(n) == 1, 0, _abs(products)) / _sqrt(where(_equal(longer, 0), 1, still(longer)) * unit2)
    done = _equal(_LOOSE + _over(fold_max, leaning), _LOOSE)
    rank = ranks([squares], descending=True)
    s = permuted(where(spread(done), _sqrt(squares), math.nan), rank)
    length = where(_equal(still(s), 0), math.nan, s)  # squares of what is left of a column may be 0, though it is not
    left, right = permuted(turned(work), beside(rank)) / beside(length), turned(permuted(turned(vectors), beside(rank)))
    same = _alike(s * s, unit) if n > 1 else _equal(0, 1)
    left, right = (_no_derivative(where(spread(done, 2), v, math.nan), a, same, 0.5) for v in (left, right))
    return left, _no_derivative(s, a, same, 1.5) * spread(scale), right


def _svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    x = as_array(a)
    if not compute_uv:
        return svd(x)[1]
    if full_matrices and x.ndim >= 2 and x.shape[-1] != x.shape[-2]:
        raise fail("UPL1932", "svd: full_matrices=True cannot be traced", help="full_matrices=False can")
    return SVD(*svd(x))


@each
def _inverse(a: Array) -> Array:
    """The pseudoinverse where the rank is full, NaN elsewhere."""
    if a.shape[-2] < a.shape[-1]:
        return turned(_inverse(turned(a)))
    q, r = qr(a)
    pivots = _abs(still(main_diagonal(r)))
    most = 16 * fold_max(pivots, -1)
    rank = UFUNCS["not_equal"](most + fold_min(pivots, -1), most)
    return where(spread(rank, 2), triangular_solve(r, turned(q), lower=False), math.nan)


def _pinv(a: Any) -> Array:
    return _inverse(a)


def _lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Array, Array, int, Array]:
    matrix, right = numbers(as_array(a)), numbers(as_array(b))
    if matrix.ndim != 2 or right.ndim not in (1, 2) or len(matrix) != len(right):
        message = f"lstsq: a matrix of shape {matrix.shape}, a right side of shape {right.shape}"
        raise fail("UPL1931", message, help="they have as many rows")
    m, n = matrix.shape
    x = matmul(_inverse(matrix), right)
    off = right - matmul(matrix, x)
    over = fold_sum(off * off, 0)
    return x, over if over.ndim else over[None], min(m, n), svd(matrix)[1]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "eigh": lambda a, UPLO="L": Eigh(*eigh(a)), "eigvalsh": lambda a, UPLO="L": eigh(a)[0],
    "svd": _svd, "svdvals": lambda x: svd(x)[1], "pinv": _pinv, "lstsq": _lstsq,
}  # fmt: skip
"""numpy.linalg's functions, by their names."""
