"""Arrays of positions as indices: no data take part, so the arrows are known, proved, and differentiated as such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

AT = np.arange(7)
X = np.random.default_rng(0).normal(size=7)


def clipped(x: Any) -> Any:
    total = np.zeros(7) * x
    for k in upl.range(4):
        total[:] = total + x[np.clip(k - AT, 0, 6)] * (k + 1)
    return total


def round_and_round(x: Any) -> Any:
    total = np.zeros(7) * x
    for k in upl.range(4):
        total[:] = total + x[(AT + k) % 7] * x
    return total


def window(x: Any) -> Any:
    total = np.zeros(3) * x[0]
    for k in upl.range(5):
        total[:] = total * x[k] + x[np.minimum(k + np.arange(3), 6)]
    return total


@pytest.mark.parametrize("f", [clipped, round_and_round, window])
def test_positions_are_indices(f: Callable[[Any], Any]) -> None:
    plain = f(X.copy())
    traced = upl.function(f)
    np.testing.assert_allclose(traced(X), plain, rtol=1e-14)
    program = traced.program(X)
    assert program.check().ok
    text = str(program)
    assert "int(" not in text and "@(+)" not in text  # nothing is compared with data, nothing is chosen by a sum
    gradient = upl.grad(upl.function(lambda x: np.sin(f(x)).sum()))(X)
    step = 1e-20
    for n in range(7):  # complex step
        moved = X.astype(complex)
        moved[n] += 1j * step
        assert abs(np.sin(f(moved)).sum().imag / step - gradient[n]) < 1e-12


def test_what_is_taken_is_a_copy() -> None:
    @upl.function
    def f(x: Any) -> Any:
        y = x * 1.0
        for k in upl.range(3):
            before = y[np.clip(k + AT, 0, 6)]
            y[:] = 0.5 * y + before
        return y

    y = X.copy()
    for k in range(3):
        y = 0.5 * y + y[np.clip(k + AT, 0, 6)]
    np.testing.assert_allclose(f(X), y, rtol=1e-14)


def test_out_of_bounds_is_told() -> None:
    """Such an index is left to those who ask data, who say what is wrong."""

    @upl.function
    def f(x: Any) -> Any:
        total = np.zeros(7) * x
        for k in upl.range(4):
            total[:] = total + x[AT + k]
        return total

    with pytest.raises(upl.UplError):
        f(X)
