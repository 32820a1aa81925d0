"""Initial weights: functions of a random generator and a shape, which return f64 arrays.

A shape is that of a matrix ``[in, out]``, or of the kernels of a convolution, ``[out, in, *window]``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.frontend.trace.position import fail

Array = NDArray[Any]
Shape = tuple[int, ...]
Initial = Callable[[np.random.Generator, Shape], Array]
"""What makes the weights of a shape."""


def fans(shape: Shape) -> tuple[int, int]:
    """How many numbers one output is made of, and how many outputs one input goes into.  Raises UplError (UPL1931)."""
    if len(shape) < 2:
        help = "such weights are matrices [in, out] or kernels [out, in, *window]; nn.initial.zeros takes any shape"
        raise fail("UPL1931", f"weights of shape {shape} have no inputs and outputs", help=help)
    if len(shape) == 2:
        return shape
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def zeros(_: np.random.Generator, shape: Shape) -> Array:
    """Zeros."""
    return np.zeros(shape)


def ones(_: np.random.Generator, shape: Shape) -> Array:
    """Ones."""
    return np.ones(shape)


def glorot(rng: np.random.Generator, shape: Shape) -> Array:
    """Normal, with the variance 2 / (fan in + fan out).  Source: X. Glorot and Y. Bengio, AISTATS 2010."""
    return rng.normal(0.0, math.sqrt(2 / sum(fans(shape))), shape)


def he(rng: np.random.Generator, shape: Shape) -> Array:
    """Normal, with the variance 2 / fan in: before a ReLU.  Source: K. He et al., ICCV 2015."""
    return rng.normal(0.0, math.sqrt(2 / fans(shape)[0]), shape)


def lecun(rng: np.random.Generator, shape: Shape) -> Array:
    """Normal, with the variance 1 / fan in.  Source: Y. LeCun et al., "Efficient BackProp", 1998."""
    return rng.normal(0.0, math.sqrt(1 / fans(shape)[0]), shape)


def orthogonal(rng: np.random.Generator, shape: Shape) -> Array:
    """Orthonormal columns, or rows where these are fewer; axes but the first count as columns.

    Source: A. Saxe, J. McClelland and S. Ganguli, ICLR 2014.
    """
    fans(shape)
    rows, columns = shape[0], math.prod(shape[1:])
    q, r = np.linalg.qr(rng.normal(size=(max(rows, columns), min(rows, columns))))
    q = q * np.sign(np.diag(r))  # else the distribution depends on how the decomposition is computed
    return (q if rows >= columns else q.T).reshape(shape)
