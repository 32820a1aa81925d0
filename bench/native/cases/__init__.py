"""The cases of the table, a to f, and g beside them."""

from __future__ import annotations

from bench.native.case import Case
from bench.native.cases import convolution, digits, mlp, perceptron, scalar, scaling, stencils

CASES: tuple[Case, ...] = (
    *perceptron.CASES, *mlp.CASES, *convolution.CASES, *stencils.CASES, *scaling.CASES, *scalar.CASES, *digits.CASES,
)  # fmt: skip


def by_key(key: str) -> Case:
    """The case with this key."""
    return next(c for c in CASES if c.key == key)
