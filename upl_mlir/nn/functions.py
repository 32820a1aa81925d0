# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Functions without parameters of their own: windows and convolutions, norms, softmax, attention, the GRU's step.

Arrays are numpy's or traced.  Images are ``[n, channels, *spatial]``, sequences ``[n, time, features]``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from upl_mlir.frontend.trace.position import fail
from upl_mlir.frontend.trace.transforms import stop_gradient

SPATIAL, TAPS = "pqxyz", "rstuv"
"""Names in `einsum` for the axes of an image and of a window."""
MASKED = -1e30
"""The score of a place that attention must not see.  Finite, as differences of infinities are NaN; its exponential is 0
beside any score above -1e29, in f32 too."""


def windows(x: Any, size: Sequence[int], stride: Sequence[int]) -> Any:
    """All windows of images: ``[n, channels, *places, *size]``, where places are `stride` apart.  A view.

    Raises UplError (UPL1931) for windows that do not fit.
    """
    spatial = x.shape[2:]
    if len(size) != len(spatial) or any(not 0 < k <= n for k, n in zip(size, spatial, strict=False)):
        help = "images are [n, channels, *spatial]; padding makes them larger"
        raise fail("UPL1931", f"a window of {tuple(size)} does not fit into images of {tuple(spatial)}", help=help)
    every = sliding_window_view(x, tuple(size), axis=tuple(range(2, x.ndim)))
    return every[(slice(None), slice(None), *(slice(None, None, s) for s in stride))]


def sizes(value: int | Sequence[int], count: int, what: str) -> tuple[int, ...]:
    """One number for each axis; a single one holds for all.  Raises UplError (UPL1934)."""
    out = tuple(map(operator.index, value)) if isinstance(value, Sequence) else (operator.index(value),) * count
    if len(out) != count or any(n < 1 for n in out):
        help = "give one positive whole number for all, or one for each"
        raise fail("UPL1934", f"{what} is {value!r}, for {count} axes", help=help)
    return out


def padded(x: Any, size: Sequence[int], padding: str | int | Sequence[int]) -> Any:
    """Images with zeros round them: so many on either side of each axis, ``"valid"`` for none, ``"same"`` for as many as
    windows of odd sizes need to have one at each place.  Raises UplError (UPL1934).
    """
    if padding == "same" and all(n % 2 for n in size):
        widths = [n // 2 for n in size]
    elif isinstance(padding, str):
        if padding != "valid":
            help = 'write "valid", "same" (for odd windows), or the number of zeros on either side'
            raise fail("UPL1934", f"there is no padding {padding!r} for windows of {tuple(size)}", help=help)
        widths = [0] * len(size)
    else:
        given = padding if isinstance(padding, Sequence) else (padding,) * len(size)
        widths = [operator.index(n) for n in given]
        if len(widths) != len(size) or any(n < 0 for n in widths):
            help = "give one number for all axes, or one for each"
            raise fail("UPL1934", f"the padding is {padding!r}, for {len(size)} axes", help=help)
    return np.pad(x, [(0, 0), (0, 0), *((n, n) for n in widths)]) if any(widths) else x


def convolution(
    x: Any, kernels: Any, stride: int | Sequence[int] = 1, padding: str | int | Sequence[int] = "valid"
) -> Any:
    """Images ``[n, in, *spatial]`` and kernels ``[out, in, *window]``: ``[n, out, *places]``, as jax.lax.conv, where
    ``out[n,k,p,q] = sum over c, r, s of x[n, c, stride*p + r, stride*q + s] * kernels[k,c,r,s]``.

    Raises UplError: UPL1931 (shapes that do not fit), UPL1934 (stride or padding).
    """
    size = kernels.shape[2:]
    if x.ndim != kernels.ndim or not 2 < x.ndim <= 2 + len(SPATIAL) or x.shape[1] != kernels.shape[1]:
        help = "images are [n, in, *spatial], kernels [out, in, *window]"
        raise fail("UPL1931", f"kernels of shape {kernels.shape} do not fit images of shape {x.shape}", help=help)
    found = windows(padded(x, size, padding), size, sizes(stride, len(size), "the stride"))
    p, r = SPATIAL[: len(size)], TAPS[: len(size)]
    return np.einsum(f"nc{p}{r},kc{r}->nk{p}", found, kernels)


def normalise(x: Any, axes: Sequence[int], epsilon: float = 1e-5) -> Any:
    """Less its mean along the axes, over the root of its variance (with 1/count) plus `epsilon`."""
    mean = np.mean(x, axis=tuple(axes), keepdims=True)
    return (x - mean) / np.sqrt(np.var(x, axis=tuple(axes), keepdims=True) + epsilon)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), by tanh: it does not overflow."""
    return 0.5 * np.tanh(0.5 * x) + 0.5


def softmax(x: Any, axis: int = -1) -> Any:
    """exp(x) over its sum along an axis.  The largest x is taken off first, which changes no value and no derivative."""
    e = np.exp(x - stop_gradient(np.max(x, axis=axis, keepdims=True)))
    return e / np.sum(e, axis=axis, keepdims=True)


def log_softmax(x: Any, axis: int = -1) -> Any:
    """The logarithm of `softmax`, without its overflow and without log(0)."""
    z = x - stop_gradient(np.max(x, axis=axis, keepdims=True))
    return z - np.log(np.sum(np.exp(z), axis=axis, keepdims=True))


def attention(q: Any, k: Any, v: Any, *, causal: bool = False, mask: Any = None) -> Any:
    """Scaled dot products: ``softmax(q k' / sqrt(d)) v`` of ``[..., m, d]``, ``[..., n, d]``, ``[..., n, e]``.

    `causal`: place i of q sees the places up to i + n - m.  `mask` is true where q's place may see k's, and broadcasts to
    ``[..., m, n]``; each place must see one.  Source: A. Vaswani et al., "Attention is all you need", 2017.
    """
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if causal:
        m, n = scores.shape[-2:]
        scores = np.where(np.tril(np.ones((m, n), bool), n - m), scores, MASKED)
    if mask is not None:
        scores = np.where(mask, scores, MASKED)
    return softmax(scores) @ v


def gru_cell(p: Mapping[str, Any], h: Any, x: Any) -> Any:
    """One step of a gated recurrent unit: the hidden values ``[n, hidden]`` after the inputs ``[n, features]``.

    `p` has ``w`` [features, 3 hidden], ``u`` [hidden, 3 hidden], ``b`` and ``c`` [3 hidden], each for the gates *reset* and
    *update* and the candidate.  The reset gate stands behind the product, as in cuDNN, PyTorch and Flax.
    Source: K. Cho et al., EMNLP 2014.
    """
    n = h.shape[-1]
    a, b = x @ p["w"] + p["b"], h @ p["u"] + p["c"]
    reset, update = sigmoid(a[..., :n] + b[..., :n]), sigmoid(a[..., n : 2 * n] + b[..., n : 2 * n])
    candidate = np.tanh(a[..., 2 * n :] + reset * b[..., 2 * n :])
    return (1 - update) * candidate + update * h
