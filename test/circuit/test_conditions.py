"""Half-planes as conditions: they are the given points, in any lanes; none are found where there are none."""

from __future__ import annotations

import numpy as np
import pytest

from upl_mlir.hw.circuit.conditions import half_planes

I, J, K = np.indices((40, 30, 20))
"""Counters of a nest; the first one counts blocks of four lanes."""
SCALES = (4, 1, 1)


@pytest.mark.parametrize(
    "yes",
    [
        J <= 4 * I + 2, 4 * I + 1 < J, (J <= 4 * I + 3) & (J >= 4 * I - 5), (J + K < 30) & (K <= J), J - K <= 4 * I,
        (abs(J - 15) + abs(K - 10) <= 7), 2 * J >= 4 * I + K,
    ],
    ids=str,
)  # fmt: skip
def test_half_planes_are_the_points(yes: np.ndarray) -> None:
    found = half_planes(yes, ~yes, SCALES)
    assert found is not None
    inside = np.ones(yes.shape, bool)
    for p in found:
        assert len(p.by) == 3
        inside &= I * p.by[0] + J * p.by[1] + K * p.by[2] <= p.limit
    assert (inside == yes).all()


@pytest.mark.parametrize("yes", [(J + K) % 3 == 0, (J < 5) | (J > 20) & (K > 3), J * J <= 40 * K], ids=str)
def test_what_is_no_few_half_planes(yes: np.ndarray) -> None:
    assert half_planes(yes, ~yes, SCALES) is None


def test_only_given_points_count() -> None:
    """Elsewhere a condition may be anything: a strip is enough."""
    yes, no = (J > 20) & (K < 3), (J < 3) & (K < 3)
    found = half_planes(yes, no, SCALES)
    assert found is not None
    assert len(found) == 1
