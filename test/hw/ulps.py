"""Errors of functions in units in the last place of binary32."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

from typing import Any

import numpy as np


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def any_bits(rng: np.random.Generator, count: int) -> Any:
    """Numbers of all bits."""
    return rng.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)


def units(got: Any, wanted: Any) -> Any:
    """The errors in units in the last place of the wanted values, subnormals included; infinite where the kind is wrong."""
    with np.errstate(all="ignore"):
        unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(wanted), 2.0**-126))) - 23)
        largest = float(np.finfo(np.float32).max) * (1 + 2.0**-25)
        clipped = np.where(np.abs(wanted) >= largest, np.copysign(np.inf, wanted), wanted)
        error = np.abs(got.astype(np.float64) - wanted) / unit
        error = np.where((got == clipped) | (np.isnan(got) & np.isnan(wanted)), 0, error)
    return np.where(np.isnan(error), np.inf, error)
