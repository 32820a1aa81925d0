"""Functions for the import of JAX functions: small ones, each about one primitive or two, and their arguments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

RNG: Any = np.random.default_rng(0)


def _n(*shape: int) -> Any:
    return RNG.normal(size=shape)


def _first(u: Any, s: Any, vh: Any) -> Any:
    """The first part of a matrix: signs of vectors are not determined, those of products are."""
    return u[:, :1] @ vh[:1] * s[-1]


def _functions(a: Any) -> Any:
    one = jnp.arcsin(jnp.tanh(a)) + jnp.arctan2(a, 2.0) + jnp.sinh(a) + jnp.cosh(a) + jnp.arcsinh(a)
    two = jax.scipy.special.erf(a) + jax.nn.softplus(a) + jax.nn.silu(a) + jnp.exp2(a) + jnp.cbrt(a)
    return one + two + lax.rsqrt(a * a + 1)


FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "solve": (jnp.linalg.solve, (_n(4, 4), _n(4))),
    "solve, two right sides": (jnp.linalg.solve, (_n(4, 4), _n(4, 2))),
    "inv": (jnp.linalg.inv, (_n(5, 5),)),
    "cholesky": (lambda a: jnp.linalg.cholesky(a @ a.T + jnp.eye(4)), (_n(4, 4),)),
    "triangular solve": (
        lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True),
        (np.tril(_n(4, 4)) + 3 * np.eye(4), _n(4)),
    ),
    "triangular solve, transposed": (
        lambda a, b: jax.scipy.linalg.solve_triangular(a, b, trans=1),
        (np.triu(_n(4, 4)) + 3 * np.eye(4), _n(4)),
    ),
    "det": (jnp.linalg.det, (_n(3, 3),)),
    "slogdet": (lambda a: jnp.linalg.slogdet(a)[1], (_n(3, 3),)),
    "argmax": (lambda a: jnp.argmax(a, axis=1), (_n(3, 5),)),
    "argmin": (jnp.argmin, (_n(7),)),
    "cumsum": (lambda a: jnp.cumsum(a, axis=1), (_n(3, 5),)),
    "cumprod": (jnp.cumprod, (_n(5),)),
    "cummax": (lax.cummax, (_n(6),)),
    "cumlogsumexp": (lax.cumlogsumexp, (_n(6),)),
    "cumsum, from the end": (lambda a: lax.cumsum(a, reverse=True), (_n(6),)),
    "pad": (lambda a: lax.pad(a, 1.5, ((1, 2, 1), (-1, 0, 2))), (_n(3, 4),)),
    "pad, cut off": (lambda a: lax.pad(a, 0.0, ((-2, 1, 2),)), (_n(5),)),
    "rev": (lambda a: a[::-1, ::2], (_n(3, 5),)),
    "convolution, strides and dilation": (
        lambda x, k: lax.conv_general_dilated(x, k, (2,), ((1, 2),), rhs_dilation=(2,)),
        (_n(2, 3, 11), _n(4, 3, 3)),
    ),
    "convolution, transposed": (
        lambda x, k: lax.conv_general_dilated(x, k, (1, 1), ((2, 2), (1, 1)), lhs_dilation=(2, 3)),
        (_n(1, 2, 4, 3), _n(3, 2, 2, 2)),
    ),
    "convolution, groups": (
        lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME", feature_group_count=2),
        (_n(1, 4, 5, 5), _n(6, 2, 3, 3)),
    ),
    "convolution, channels last": (
        lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        (_n(1, 5, 5, 2), _n(3, 3, 2, 3)),
    ),
    "reduce_window, max": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3), (1, 2), "SAME"), (_n(3, 7),)),
    "reduce_window, sum": (lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID"), (_n(3, 7),)),
    "take": (lambda x: x[jnp.array([2, 0, 2])], (_n(4, 3),)),
    "take, columns": (lambda x, k: x[:, k], (_n(4, 3), np.array([2, 0, 1, 1]))),
    "take, clipped": (lambda x, k: jnp.take(x, k, axis=0, mode="clip"), (_n(4, 3), np.array([-1, 7, 2]))),
    "take, clipped row by row": (
        jax.vmap(lambda x, k: jnp.take(x, k, mode="clip")), (_n(2, 3), np.array([[5, -2], [1, 3]])),
    ),
    "take, from the end": (lambda x, k: jnp.take(x, k, axis=0), (_n(4, 3), np.array([-1, 0]))),
    "rows of data in a loop": (
        lambda e, k: lax.scan(lambda h, t: (jnp.tanh(h + e[t]), h), jnp.zeros(2), k)[1], (_n(40, 2), np.array([3, 39, 3]))
    ),
    "segments in a loop": (
        lambda v, i, j: lax.fori_loop(0, 3, lambda _, v: jax.ops.segment_max(jnp.sin(v)[i], j, 6) + v, v),
        (_n(6), np.arange(9) % 6, np.array([0, 1, 1, 3, 0, 0, 2, 4, 5])),
    ),
    "segment_sum": (lambda v, k: jax.ops.segment_sum(v, k, 4), (_n(6, 2), np.array([0, 1, 1, 3, 0, 0]))),
    "least and greatest at places": (
        lambda x, v, k: x.at[0, k].max(v).at[1, k].min(v), (_n(2, 5), _n(3), np.array([4, 0, 4])),
    ),
    "histogram": (lambda x, k: x[0] * jnp.zeros(4).at[k].add(1.0), (_n(4), np.array([1, 3, 1]))),
    "elements of one number": (lambda x, k: x[0] * jnp.full(4, 3.0)[k], (_n(4), np.array([1, 3]))),
    "set": (lambda x: x.at[1].set(7.0).at[:, 2].set(0.0), (_n(4, 3),)),
    "set, a list of rows": (lambda x: x.at[jnp.array([0, 2])].set(1.0), (_n(4, 3),)),
    "dynamic_slice": (lambda x: lax.dynamic_slice(x, (1,), (3,)), (_n(6),)),
    "dynamic_slice by data": (lambda x, i: lax.dynamic_slice(x, (i,), (3,)), (_n(6), np.array(2))),
    "dynamic_update_slice": (lambda x: lax.dynamic_update_slice(x, jnp.ones(2), (3,)), (_n(6),)),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda x: x * 2, jnp.sin, x), (_n(4),)),
    "switch": (lambda x, i: lax.switch(i, [lambda x: x, lambda x: x * x, lambda x: -x], x), (_n(4), np.array(1))),
    "fori_loop": (lambda x: lax.fori_loop(0, 5, lambda i, c: c * 0.5 + x[i] * i, 0.0), (_n(5),)),
    "fori_loop that writes": (lambda x: lax.fori_loop(1, 5, lambda i, c: c.at[i].set(c[i - 1] + c[i]), x), (_n(5),)),
    "scan, a number is carried on": (lambda x: lax.scan(lambda c, a: (0.0, c + a), 1.0, x)[1], (_n(5),)),
    "scan, from the end": (lambda x: lax.scan(lambda c, a: (c * a + 1, c), 1.0, x, reverse=True)[1], (_n(5),)),
    "whole division": (lambda a, b: a // b, (np.array([7, -7, 7]), np.array([2, 2, -2]))),
    "remainder of whole numbers": (lambda a, b: a % b, (np.array([7, -7, 7]), np.array([2, 2, -2]))),
    "fmod": (jnp.fmod, (_n(3), _n(3))),
    "round": (jnp.round, (np.array([0.5, 1.5, -0.5, 2.4, -2.6]),)),
    "clip": (lambda a: jnp.clip(a, -0.5, 0.5), (_n(5),)),
    "where": (lambda a: jnp.where(a > 0, jnp.log1p(jnp.abs(a)), -a), (_n(5),)),
    "logic": (lambda a, b: (a > 0) & ~(b > 0) | (a < b), (_n(5), _n(5))),
    "power": (lambda a, b: jnp.abs(a) ** b + a**3 + a ** (-2) + a**5, (_n(5), _n(5))),
    "functions of one number": (_functions, (_n(5),)),
    "einsum": (lambda a, b: jnp.einsum("bij,bjk->bik", a, b), (_n(2, 3, 4), _n(2, 4, 5))),
    "tensordot": (lambda a, b: jnp.tensordot(a, b, axes=([0], [2])), (_n(3, 4), _n(2, 5, 3))),
    "kron": (jnp.kron, (_n(2, 3), _n(2, 2))),
    "roll": (lambda a: jnp.roll(a, 2) - jnp.roll(a, -1), (_n(6),)),
    "concat": (lambda a, b: jnp.concatenate([a, b], 1), (_n(2, 3), _n(2, 2))),
    "tile": (lambda a: jnp.tile(a, (2, 3)), (_n(2, 2),)),
    "repeat": (lambda a: jnp.repeat(a, 2, axis=0), (_n(2, 2),)),
    "tril and triu": (lambda a: jnp.tril(a) + jnp.triu(a, 1) * 2, (_n(3, 3),)),
    "diag": (lambda a: jnp.diag(a) + jnp.diag(jnp.diag(jnp.ones((3, 3)) * a)), (_n(3),)),
    "norm": (jnp.linalg.norm, (_n(3, 3),)),
    "std": (lambda a: jnp.std(a, axis=0) + jnp.median(jnp.ones(3)), (_n(4, 3),)),
    "all": (lambda a: jnp.all(a > -9, axis=0) & jnp.any(a > 0), (_n(4, 3),)),
    "vmap": (lambda a, b: jax.vmap(lambda x: jnp.dot(x, b))(a), (_n(4, 3), _n(3))),
    "jit and checkpoint inside": (lambda a: jax.jit(lambda x: x * 2)(a) + jax.checkpoint(jnp.sin)(a), (_n(3),)),
    "polyval": (jnp.polyval, (_n(4), _n(3))),
    "one_hot": (lambda k: jax.nn.one_hot(k, 4), (np.array([1, 3, 0]),)),
    "isfinite": (lambda a: jnp.isfinite(a) | jnp.isnan(a), (_n(3),)),
    "sign": (lambda a: jnp.sign(a) * jnp.floor(a) + jnp.ceil(a) + jnp.trunc(a), (_n(6),)),
    "logsumexp": (lambda a: jax.nn.logsumexp(a, axis=1), (_n(3, 4),)),
    "sort": (lambda a: jnp.sort(a, axis=0) - jnp.sort(a, descending=True), (_n(3, 4),)),
    "sort, ties": (lambda a: jnp.sort(a) * jnp.arange(6), (np.array([2.0, -1.0, 2.0, 0.5, -1.0, 2.0]),)),
    "sort, several": (lambda a, b: jnp.stack(lax.sort((jnp.round(a), b, a * b), num_keys=2)), (_n(9), _n(9))),
    "sort, no numbers": (jnp.sort, (np.array([1.0, np.nan, -np.inf, 0.0, np.inf, np.nan]),)),
    "sort, whole numbers": (jnp.sort, (np.array([[3, 1, 2], [1, 1, 0]]),)),
    "argsort": (lambda a: jnp.argsort(a) + jnp.argsort(a, axis=0, descending=True), (_n(3, 4),)),
    "lexsort": (lambda a: jnp.lexsort((a, jnp.round(a))), (_n(7),)),
    "top_k": (lambda a: lax.top_k(a, 2)[0], (_n(3, 4),)),
    "top_k, places": (lambda a: lax.top_k(a, 3)[1], (np.array([[1.0, 2.0, 2.0, 0.0], [np.nan, 1.0, np.inf, np.nan]]),)),
    "partition": (lambda a: jnp.partition(a, 2)[2], (_n(6),)),
    "median": (lambda a: jnp.median(a, axis=0), (_n(4, 3),)),
    "quantile": (lambda a: jnp.quantile(a, jnp.array([0.1, 0.5, 0.9]), axis=1), (_n(2, 5),)),
    "percentile": (lambda a: jnp.percentile(a, 30), (_n(7),)),
    "nanmedian": (jnp.nanmedian, (np.array([3.0, np.nan, 1.0, 2.0, 7.0]),)),
    "searchsorted": (lambda a, v: jnp.searchsorted(jnp.sort(a), v), (_n(6), _n(3))),
    "take_along_axis": (lambda a: jnp.take_along_axis(a, jnp.argsort(-a, axis=1), axis=1), (_n(3, 4),)),
    "take_along_axis, out of bounds": (
        lambda a, k: jnp.isnan(jnp.take_along_axis(a, k, axis=1)), (_n(2, 3), np.array([[3, 0], [-4, 1]])),
    ),
    "take_along_axis, beside others": (
        lambda a, k: jax.vmap(lambda x, i: x[:, i])(a, k) * 1.0, (_n(3, 2, 4), np.array([[1, 3], [0, 0], [2, 1]])),
    ),
    "sort in a loop": (lambda a: lax.fori_loop(0, 3, lambda i, x: jnp.sort(x) * jnp.cos(x + i), a), (_n(5),)),
    "sort in vmap": (jax.vmap(lambda x: jnp.sort(x)[::2]), (_n(3, 5),)),
    "inverses": (lambda a: jnp.arccosh(1 + a * a) + jnp.arctanh(jnp.tanh(a)), (_n(5),)),
    "argmax, no number": (jnp.argmax, (np.array([1.0, np.nan, 3.0, np.nan]),)),
    "cumlogsumexp, from -inf": (lax.cumlogsumexp, (np.array([-np.inf, -np.inf, 1.0, -np.inf]),)),
    "qr": (lambda a: jnp.linalg.qr(a)[0], (_n(4, 3),)),
    "qr, square": (lambda a: jnp.linalg.qr(a)[0] @ jnp.linalg.qr(a)[1][:, ::-1], (_n(3, 3),)),
    "qr, R": (lambda a: jnp.linalg.qr(a, mode="r"), (_n(4, 3),)),
    "qr of a triangle": (lambda a: jnp.stack(jnp.linalg.qr(a)), (np.triu(_n(3, 3)),)),
    "qr of an identity": (lambda a: jnp.stack(jnp.linalg.qr(a)), (np.eye(3),)),
    "eigh": (lambda a: jnp.linalg.eigvalsh(a) * jnp.linalg.eigh(a)[1] ** 2, (_n(3, 3) + _n(3, 3).T,)),
    "svd": (lambda a: jnp.linalg.svd(a, compute_uv=False), (_n(2, 3),)),
    "svd, factors": (lambda a: _first(*jnp.linalg.svd(a, full_matrices=False)), (_n(3, 2),)),
    "lstsq": (lambda a, b: jnp.linalg.lstsq(a, b)[0], (_n(4, 2), _n(4))),
    "pinv": (jnp.linalg.pinv, (_n(2, 3),)),
    "qr, a batch": (lambda a: jnp.linalg.qr(a)[1], (_n(2, 3, 2),)),
    "add, out of bounds": (lambda x: x.at[5].add(1.0) + x.at[-7].add(2.0) + x.at[-1].add(3.0), (_n(3),)),
    "set, out of bounds": (lambda x: x.at[5].set(1.0) + x.at[-7].set(2.0) + x.at[-1].set(3.0), (_n(3),)),
    "set, out of bounds in a loop": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: c.at[i, 5].set(4.0).at[i, 1].set(2.0), x), (_n(3, 3),),
    ),
    "set, clipped": (lambda x: x.at[jnp.array([0, 9])].set(jnp.array([2.0, 3.0]), mode="clip"), (_n(3),)),
    "set, clipped number": (lambda x: x.at[9].set(2.0, mode="clip"), (_n(3),)),
    "add, clipped": (lambda x, k: x.at[k].add(jnp.array([2.0, 3.0]), mode="clip"), (_n(3), np.array([0, 9]))),
    "add, two clipped": (lambda x, k: x.at[k, 1].add(jnp.array([2.0, 3.0]), mode="clip"), (_n(3, 2), np.array([0, 9]))),
    "scatter of a part, out of bounds": (
        lambda x: lax.scatter(x, jnp.array([2]), jnp.ones(2), lax.ScatterDimensionNumbers((0,), (), (0,))), (_n(3),),
    ),
    "filled": (lambda x: x.at[5].get(mode="fill", fill_value=9.0) * x[:, None], (_n(3),)),
    "filled, some": (lambda x: x.at[jnp.array([1, 5])].get(mode="fill", fill_value=9.0), (_n(3),)),
    "filled, diagonal": (
        lambda x: x.at[jnp.array([0, 1, 2]), jnp.array([2, 3, 4])].get(mode="fill", fill_value=9.0), (_n(3, 3),),
    ),
    "filled, row by row": (
        jax.vmap(lambda x, k: x.at[k].get(mode="fill", fill_value=9.0)), (_n(2, 3), np.array([[5, 1], [1, 2]])),
    ),
    "filled, whole numbers": (lambda x: jnp.take(x, jnp.array([0, 5]), mode="fill"), (np.array([1, 2, 3]),)),
    "xlogy at 0": (jax.scipy.special.xlogy, (np.array([0.0, 0.5]), np.array([2.0, 3.0]))),
    "xlogy in vmap": (jax.vmap(jax.scipy.special.xlogy), (np.array([[0.0, 0.5]]), np.array([[2.0, 3.0]]))),
    "xlogy, broadcast": (lambda x, y: jax.scipy.special.xlogy(x[:, None], y), (np.array([0.0, 0.5]), np.array([2.0, 3.0]))),
    "xlogy, by a number": (jax.scipy.special.xlogy, (np.array([0.0, 0.5]), np.array(2.0))),
    "xlogy in a loop": (
        lambda x, y: lax.map(lambda a: jax.scipy.special.xlogy(*a), (x, y)), (np.array([0.0, 0.5]), _n(2) ** 2),
    ),
    "softmax in vmap": (jax.vmap(jax.nn.softmax), (_n(2, 3),)),
    "xlog1py at 0": (jax.scipy.special.xlog1py, (np.array([0.0, 0.5]), np.array([2.0, 3.0]))),
    "log_ndtr, far below": (jax.scipy.special.log_ndtr, (np.array([0.3, -9.0, 7.0, -19.0]),)),
    "relu6 at its ends": (jax.nn.relu6, (np.array([0.0, 6.0, 1.0]),)),
    "clamp at its ends": (lambda x: lax.clamp(0.0, x, 1.0), (np.array([0.0, 1.0, 0.5, -1.0, 2.0]),)),
    "clamp, its bounds": (
        lax.clamp, (np.array([0.0, 1.0, 3.0]), np.array([0.0, 0.5, 1.0]), np.array([2.0, 2.0, 2.0])),
    ),
    "fmod, exactly": (
        jnp.fmod, (np.array([6.0, -6.0, 1e17, 5.0, 7.0]), np.array([0.1, 0.1, 3.0, np.inf, -0.7])),
    ),
    "remainder, exactly": (
        jnp.mod, (np.array([6.0, -6.0, 1e17, 5.0, 7.0]), np.array([0.1, 0.1, 3.0, np.inf, -0.7])),
    ),
    "all and any of none": (lambda x: jnp.all(x[:0] > 0) & ~jnp.any(x[:0] > 0), (_n(3),)),
    "unsigned, below 0": (
        lambda x, k: jnp.stack([x.astype(jnp.uint32), k.astype(jnp.uint32), jnp.uint32(1) - k.astype(jnp.uint32)]),
        (np.array([-1.5, 2.5]), np.array([-1, 2])),
    ),
    "mean and var": (lambda a: a.mean(0) * a.var(0), (_n(3, 4),)),
}
