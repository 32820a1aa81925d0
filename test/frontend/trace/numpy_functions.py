"""Functions of numpy for the tests of the tracing front end, in groups, each of which is one program.

Each is a function of a module (numpy, or JAX's) and arrays.  `REAL` have derivatives, `OTHER` are compared as values: their
results are places, truth values or whole numbers, or JAX has another idea of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

RNG: Any = numpy.random.default_rng(11)
X, Y, V, W = (RNG.normal(size=shape) for shape in ((3, 5), (3, 5), (6,), (4,)))
TIES = numpy.array([2.0, -1.0, 2.0, 0.5, -1.0, 2.0])
M, N, S = RNG.normal(size=(4, 4)), RNG.normal(size=(2, 3, 3)), RNG.normal(size=(3,))
SINGULAR = numpy.outer([1.0, 2, 4], [1.0, -2, 2]) + numpy.eye(3)[0]
P = M @ M.T + numpy.eye(4)
B = RNG.normal(size=(4, 2))
K = numpy.array([[3, 0], [1, 1], [4, -2]])
ODD = numpy.array([1.0, numpy.nan, -numpy.inf, 0.0, numpy.inf, -2.5, numpy.nan])
HALVES = numpy.array([0.5, 1.5, -0.5, 2.4, -2.6, 0.49999999999999994, 2.5])

Cases = dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]
REAL: dict[str, Cases] = {
    "sorting": {
        "sort": (lambda np, x: np.sort(x), (X,)),
        "sort, first axis": (lambda np, x: np.sort(x, axis=0), (X,)),
        "sort, flat": (lambda np, x: np.sort(x, axis=None), (X,)),
        "sort, ties": (lambda np, x: np.sort(x) * np.arange(6), (TIES,)),
        "take_along_axis": (lambda np, x: np.take_along_axis(x, np.argsort(-x, axis=1), axis=1), (X,)),
        "take_along_axis, fewer": (lambda np, x: np.take_along_axis(x, np.asarray(K), axis=1), (X,)),
        "median": (lambda np, x: np.median(x), (V,)),
        "median, an axis": (lambda np, x: np.median(x, axis=1), (X,)),
        "median, two axes": (lambda np, x: np.median(x, axis=(0, 2), keepdims=True), (N,)),
        "quantile": (lambda np, x: np.quantile(x, np.asarray([0.0, 0.3, 0.5, 1.0]), axis=0), (X,)),
        "percentile": (lambda np, x: np.percentile(x, 35.0), (V,)),
        "interp": (lambda np, x, f: np.interp(x, np.asarray([-2.0, -1.0, 0.2, 1.0]), f), (V, W)),
    },
    "folds": {
        "cumsum": (lambda np, x: np.cumsum(x, axis=1), (X,)),
        "cumsum, flat": (lambda np, x: np.cumsum(x), (X,)),
        "cumprod": (lambda np, x: np.cumprod(x, axis=0), (X,)),
        "ptp": (lambda np, x: np.ptp(x, axis=1), (X,)),
        "average": (lambda np, x, w: np.average(x, axis=0, weights=w), (M, W**2)),
        "std": (lambda np, x: np.std(x, axis=0, ddof=1) + np.var(x, axis=0), (X,)),
        "prod": (lambda np, x: np.prod(x, axis=1), (X,)),
        "diff": (lambda np, x: np.diff(x, 2, axis=1), (X,)),
        "gradient": (lambda np, x: np.gradient(x, 0.5, axis=1), (X,)),
        "gradient, both axes": (lambda np, x: np.stack(np.gradient(x)), (X,)),
        "trapezoid": (lambda np, x: np.trapezoid(x, dx=0.5) + np.trapezoid(x, np.asarray([0, 1, 3, 4, 6.0])), (X,)),
        "nansum": (lambda np, x: np.nansum(x) + np.nanmean(x * x), (X,)),
        "cov": (lambda np, x: np.cov(x), (X,)),
        "corrcoef": (lambda np, x: np.corrcoef(x), (X,)),
        "norm": (lambda np, x: np.linalg.norm(x, axis=1) + np.linalg.norm(x) + np.linalg.norm(x, 1, axis=1), (X,)),
        "norm, inf": (lambda np, x: np.linalg.norm(x, np.inf) + np.linalg.norm(x, 3, axis=0)[0], (X,)),
        "norm, 1": (lambda np, x: np.linalg.norm(x, 1) + np.linalg.norm(x, "fro"), (X,)),
        "norm, by its other names": (lambda np, x: np.linalg.matrix_norm(x) + np.linalg.vector_norm(x, axis=0)[1], (X,)),
        "vector_norm": (lambda np, x: np.linalg.vector_norm(x, ord=1) + np.linalg.vector_norm(x), (X,)),
        "trace": (lambda np, x: np.trace(x, 1) + np.trace(x), (X,)),
    },
    "elements": {
        "sinc": (lambda np, x: np.sinc(x) + np.sinc(x / 50), (X,)),
        "select": (lambda np, x: np.select([x > 1, x > 0], [x * x, np.sin(x)], -x), (X,)),
        "piecewise": (lambda np, x: np.piecewise(x, [x < 0, x > 1], [lambda x: x**2, lambda x: x**3, 0.5]), (X,)),
        "nan_to_num": (lambda np, x: np.nan_to_num(x), (X,)),
        "inverses": (lambda np, x: np.arccosh(1 + x * x) + np.arctanh(np.tanh(x)) + np.arcsinh(x), (X,)),
        "logaddexp": (lambda np, x, y: np.logaddexp(x, y) + np.logaddexp2(x, y), (X, Y)),
        "angles": (lambda np, x: np.deg2rad(x) + np.rad2deg(x) + np.degrees(x) + np.radians(x), (X,)),
        "fmod": (lambda np, x, y: np.fmod(x, y) + np.remainder(x, y), (X, Y)),
        "fmax": (lambda np, x, y: np.fmax(x, y) - np.fmin(x, y), (X, Y)),
        "powers": (lambda np, x: np.float_power(np.abs(x), 1.5) + np.square(x) + np.cbrt(x) + np.reciprocal(x), (X,)),
        "logs": (lambda np, x: np.exp2(x) + np.log2(x * x) + np.log10(x * x) + np.expm1(x) + np.log1p(x * x), (X,)),
        "hypot": (lambda np, x, y: np.hypot(x, y) + np.heaviside(x, 0.5) + np.sign(y), (X, Y)),
        "clip": (lambda np, x: np.clip(x, -0.5, 0.5), (X,)),
    },
    "places": {
        "kron": (lambda np, x, y: np.kron(x, y), (B, S)),
        "cross": (lambda np, x, y: np.cross(x, y), (N[0], S)),
        "cross, first axis": (lambda np, x, y: np.cross(x, y, axis=0), (X, Y)),
        "outer": (lambda np, x, y: np.outer(x, y) + np.tensordot(x, y, 0), (V, W)),
        "inner": (lambda np, x, y: np.inner(x, y) + np.vdot(x, y), (X, Y)),
        "rot90": (lambda np, x: np.stack([np.rot90(x, k) for k in (0, 1, 2, 3)]), (M,)),
        "meshgrid": (lambda np, x, y: np.meshgrid(x, y)[0] * np.meshgrid(x, y)[1], (V, W)),
        "meshgrid, ij": (lambda np, x, y: np.meshgrid(x, y, indexing="ij")[0] - y, (V, W)),
        "triangles": (lambda np, x: np.tril(x) + 2 * np.triu(x, 1), (M,)),
        "roll": (lambda np, x: np.roll(x, 2, axis=1) + np.flip(x, 0) + np.fliplr(x), (X,)),
        "repeats": (lambda np, x: np.tile(x, 2) + np.repeat(x, 2), (V,)),
        "repeat, each": (lambda np, x: np.repeat(x, np.array([1, 0, 2, 1]), axis=0, **_total(np, 4)), (B,)),
        "columns": (lambda np, x, y: np.column_stack([x, y]), (W, B)),
        "append": (lambda np, x, y: np.append(x, y), (W, B)),
        "split": (lambda np, x: np.hsplit(x, 2)[1] * np.vsplit(x, 2)[0][0, 1], (M,)),
        "linspace": (lambda np, x: np.linspace(x, 2 * x + 1, 5), (W,)),
        "vander": (lambda np, x: np.vander(x, 3) + np.vander(x, 3, increasing=True), (W,)),
        "polyval": (lambda np, p, x: np.polyval(p, x), (W, V)),
        "pad": (lambda np, x: np.pad(x, ((1, 0), (2, 1)), constant_values=1.5), (X,)),
        "pad, many neighbours": (lambda np, x: weighted(np.pad(x, ((2, 1), (1, 2))), x.shape), (X,)),
        "diag": (lambda np, x: np.diag(x, 1) + np.diag(np.diag(np.outer(x, x)), -1), (W,)),
        **{f"convolve, {m}": (lambda np, x, y, m=m: np.convolve(x, y, m), (V, W)) for m in ("full", "same", "valid")},
        **{f"correlate, {m}": (lambda np, x, y, m=m: np.correlate(x, y, m), (W, V)) for m in ("full", "same", "valid")},
    },
    "matrices": {
        "solve": (lambda np, a, b: np.linalg.solve(a, b), (M, W)),
        "solve, two right sides": (lambda np, a, b: np.linalg.solve(a, b), (M, B)),
        "solve, a batch": (lambda np, a, b: np.linalg.solve(a, b), (N, N[0])),
        "inv": (lambda np, a: np.linalg.inv(a), (M,)),
        "det": (lambda np, a: np.linalg.det(a), (M,)),
        "det of a singular matrix": (lambda np, a: np.linalg.det(a), (SINGULAR,)),
        "det, a batch": (lambda np, a: np.linalg.det(a), (N,)),
        "slogdet": (lambda np, a: np.linalg.slogdet(a)[1], (M,)),
        "cholesky": (lambda np, a: np.linalg.cholesky((a + a.T) / 2), (P,)),
        "matrix_power": (lambda np, a: np.linalg.matrix_power(a, 5) + np.linalg.matrix_power(a, -1), (M,)),
        "multi_dot": (lambda np, a, b: np.linalg.multi_dot([a, a, b]), (M, B)),
        "qr, square": (lambda np, a: np.linalg.qr(a)[0] + np.linalg.qr(a)[1], (M,)),
        "qr, tall": (lambda np, a: np.linalg.qr(a)[0], (B,)),
        "qr, R": (lambda np, a: np.linalg.qr(a, mode="r"), (B,)),
    },
    "eigenvalues": {
        "eigvalsh": (lambda np, a: np.linalg.eigvalsh(a + a.T), (M,)),
        "eigvalsh of one row": (lambda np, a: np.linalg.eigvalsh(a), (M[:1, :1],)),
    },
    "eigenvectors": {
        "eigh": (lambda np, a: np.linalg.eigh(a + a.T)[1] ** 2, (N[0],)),  # but for the signs
    },
    "singular values": {
        "svd": (lambda np, a: np.linalg.svd(a, compute_uv=False), (M,)),
        "svdvals, tall": (lambda np, a: np.linalg.svdvals(a), (B,)),
        "svd, wide": (lambda np, a: _outer(np.linalg.svd(a, full_matrices=False)), (B.T,)),
        "svd, a row": (lambda np, a: _outer(np.linalg.svd(a, full_matrices=False)), (M[:1],)),
    },
    "least squares": {
        "lstsq": (lambda np, a, b: np.linalg.lstsq(a, b)[0], (B, W)),
        "lstsq, wide": (lambda np, a, b: np.linalg.lstsq(a, b)[0], (B.T, M[:2])),
        "what is left": (lambda np, a, b: np.linalg.lstsq(a, b)[1], (B, W)),
        "pinv": (lambda np, a: np.linalg.pinv(a), (N[:, :2],)),
    },
}  # fmt: skip


def _beyond(np: Any, x: Any) -> Any:
    """Where numpy raises an exception, NaN says it, as in JAX."""
    k = numpy.array([[0, 5], [-6, 1], [-5, 4]])
    if isinstance(x, numpy.ndarray):
        return numpy.where((k >= -5) & (k < 5), x[numpy.arange(3)[:, None], k % 5], numpy.nan)
    return np.take_along_axis(x, k, axis=1)


def _outer(factors: Any) -> Any:
    """The first part of a matrix: signs of vectors are not determined, those of products are."""
    u, s, vh = factors
    return u[:, :1] @ vh[:1] * s[-1]


def weighted(x: Any, shape: tuple[int, ...]) -> Any:
    """The weighted sum of 4 by 4 neighbours."""
    return sum((1 + i + 3 * j) * x[i : i + shape[0], j : j + shape[1]] for i in range(4) for j in range(4))


def _total(np: Any, n: int) -> dict[str, int]:
    """JAX wants to know how many elements there will be."""
    return {} if np is numpy else {"total_repeat_length": n}


OTHER: dict[str, Cases] = {
    "places": {
        "argsort": (lambda np, x: np.argsort(x), (X,)),
        "argsort, ties": (lambda np, x: np.argsort(x, kind="stable"), (TIES,)),
        "argsort, flat": (lambda np, x: np.argsort(x, axis=None), (X,)),
        "argmax": (lambda np, x: np.argmax(x, axis=0), (X,)),
        "argmax, flat": (lambda np, x: np.argmax(x), (X,)),
        "argmax, kept": (lambda np, x: np.argmax(x, axis=1, keepdims=True), (X,)),
        "argmin, ties": (lambda np, x: np.argmin(x), (TIES,)),
        "lexsort": (lambda np, x: np.lexsort((np.arange(6.0)[::-1], x)), (TIES,)),
        "searchsorted": (lambda np, x: np.searchsorted(np.sort(x), np.array([-1.0, 0.0, 2.0, 3.0])), (TIES,)),
        "searchsorted, right": (lambda np, x: np.searchsorted(np.sort(x), np.array([-1.0, 2.0]), side="right"), (TIES,)),
        "unravel_index": (lambda np, x: np.stack(np.unravel_index(np.argsort(x), (2, 3))), (TIES,)),
        "count_nonzero": (lambda np, x: np.count_nonzero(x > 0, axis=1) + np.count_nonzero(x), (X,)),
        "all and any": (lambda np, x: np.logical_or.reduce(x > 0, axis=1) & ~np.all(x > 1, axis=1), (X,)),
    },
    "no numbers": {
        "sort": (lambda np, x: np.sort(x), (ODD,)),
        "argsort": (lambda np, x: np.argsort(x, kind="stable"), (ODD,)),
        "argmax": (lambda np, x: np.argmax(x), (ODD,)),
        "argmin": (lambda np, x: np.argmin(x), (ODD,)),
        "median": (lambda np, x: np.stack([np.median(x), np.median(x[2:6]), np.median(x[:1])]), (ODD,)),
        "accumulate": (lambda np, x: np.maximum.accumulate(x[2:]), (ODD,)),
        "cumsum": (lambda np, x: np.cumsum(x[3:]), (ODD,)),
        "tests": (lambda np, x: np.stack([np.isnan(x), np.isinf(x), np.isfinite(x)]), (ODD,)),
        "signs": (lambda np, x: np.stack([np.isposinf(x), np.isneginf(x)]), (ODD,)),
        "nan_to_num": (lambda np, x: np.nan_to_num(x), (ODD,)),
        "nan_to_num, chosen": (lambda np, x: np.nan_to_num(x, nan=7, posinf=8, neginf=9), (ODD,)),
        "nansum": (lambda np, x: np.nansum(x[:2]) + np.nanprod(x[:2]) + np.nanmean(x[:2]), (ODD,)),
        "fmax": (lambda np, x: np.fmax(x, 0.5) + np.fmin(x, 9), (ODD,)),
        "sign": (lambda np, x: np.sign(x) + np.heaviside(x, 0.5), (ODD,)),
        "isclose": (lambda np, x: np.isclose(x, x[::-1]) | np.isclose(x, x + 1e-12, equal_nan=True), (ODD,)),
        "logaddexp": (lambda np, x: np.logaddexp(x, -np.inf), (ODD,)),
        "interp": (lambda np, x: np.interp(x, [0.0, 1.0], [3.0, 4.0], left=-7), (ODD,)),
        "searchsorted": (lambda np, x: np.searchsorted(np.array([-1.0, 2.0, np.nan]), x), (ODD,)),
    },
    "elements": {
        "round": (lambda np, x: np.stack([np.round(x), np.rint(x), np.trunc(x), np.fix(x)]), (HALVES,)),
        "round, decimals": (lambda np, x: np.round(x, 1) + np.around(x * 100, -1), (HALVES,)),
        "divmod": (lambda np, x: np.stack(np.divmod(x, 0.75)), (X,)),
        "modf": (lambda np, x: np.stack(np.modf(x * 3)), (X,)),
        "accumulate": (lambda np, x: np.minimum.accumulate(x, axis=1) + np.add.accumulate(x, axis=1), (X,)),
        "multiply.accumulate": (lambda np, x: np.multiply.accumulate(x) + np.logaddexp.accumulate(x), (X,)),
        "made": (lambda np, x: np.eye(4, like=x) * x + np.arange(4.0, like=x) + np.tri(4, like=x), (M,)),
        "take_along_axis, out of bounds": (_beyond, (X,)),
        "slogdet": (lambda np, x: np.linalg.slogdet(x)[0] + np.linalg.slogdet(-x)[0], (M,)),
        "det, a pivot of 0": (lambda np, x: np.linalg.det(x * np.array([1.0, 0.0, 1.0, 1.0])), (M,)),
        "slogdet, a pivot of 0": (lambda np, x: np.stack(np.linalg.slogdet(x * np.array([1.0, 0.0, 1.0, 1.0]))), (M,)),
        "solve, one matrix": (lambda np, a, b: np.linalg.solve(a, b), (N[0], N)),
        "eigvalsh, a batch": (lambda np, a: np.linalg.eigvalsh(a + np.swapaxes(a, 1, 2)), (N,)),
        "qr, complete": (lambda np, x: np.linalg.qr(x, mode="complete")[0], (B,)),
        "qr, wide": (lambda np, x: np.linalg.qr(x)[1], (B.T,)),
        "qr of an identity": (lambda np, x: np.stack(np.linalg.qr(np.round(x) * 0 + np.eye(4))), (M,)),
        "qr without full rank": (lambda np, x: np.linalg.qr(x[:, :1] @ x[:1])[1][0], (M,)),
    },
}  # fmt: skip
