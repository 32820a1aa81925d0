"""Programs that compute an element at a time, and bits to compare, for the tests of small types."""

from __future__ import annotations

from typing import Any

import numpy as np


def pointwise(name: str, outputs: str, body: str) -> str:
    """The text of a program of two vectors `A` and `B` of length `n`, whose elements a body has as `a` and `b`.

    `outputs` are names with blanks between them.
    """
    declared = "\n".join(f"output {n}<i>" for n in outputs.split())
    inputs = "\n".join(f"input {n}<i> in 0<=i<n {{ -> F.{n.lower()} }}" for n in "AB")
    return f"program {name}\nparam n >= 1\n{inputs}\n{declared}\nnode F<i> {{\n  in a, b\n{body}}}\n"


def bits(a: Any) -> Any:
    """The bits of doubles; all NaNs are one."""
    values = np.asarray(a, np.float64)
    return np.where(np.isnan(values), np.float64(np.nan), values).view(np.uint64)
