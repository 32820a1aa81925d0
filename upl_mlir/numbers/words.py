"""Numbers as words of bits: what passes through the ports of a circuit, and what its constants are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.numbers.formats import FixedFormat, Format
from upl_mlir.numbers.rounding import arithmetic


def to_words(values: NDArray[Any], f: Format | None) -> NDArray[np.uint32]:
    """The words of numbers rounded to a small type, or to f32 where `f` is None; of the same shape."""
    if f is None:
        return np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = np.array([arithmetic(f).round(x) for x in np.ravel(values).tolist()], np.float64).reshape(np.shape(values))
    if isinstance(f, FixedFormat):
        return ((rounded * f.scale).astype(np.int64) & ((1 << f.bits) - 1)).astype(np.uint32)
    if f.exponent == 5:
        return rounded.astype(np.float16).view(np.uint16).astype(np.uint32)
    return rounded.astype(np.float32).view(np.uint32) >> np.uint32(32 - f.bits)


def from_words(words: NDArray[np.uint32], f: Format | None) -> NDArray[Any]:
    """The numbers of words: f32, or f64 ones of a small type."""
    if f is None:
        return words.view(np.float32)
    if isinstance(f, FixedFormat):
        steps = words.astype(np.int64)
        return np.where(steps > f.greatest_step, steps - (1 << f.bits), steps) / f.scale
    if f.exponent == 5:
        return words.astype(np.uint16).view(np.float16).astype(np.float64)
    return (words << np.uint32(32 - f.bits)).view(np.float32).astype(np.float64)


def to_integer_words(values: NDArray[Any]) -> NDArray[np.uint32]:
    """The words of integers that fit 32 bits, and of truth values; of the same shape."""
    return np.asarray(values).astype(np.int64).astype(np.uint32)


def from_integer_words(words: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The integers of words."""
    return words.view(np.int32).astype(np.int64)
