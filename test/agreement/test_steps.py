"""A few of the random recurrences of the campaign "steps"."""

from __future__ import annotations

import pytest

from agreement.steps import steps


@pytest.mark.parametrize("seed", [*range(6), 28, 20_000_112])
def test_random_recurrences(seed: int) -> None:
    """Values, gradients and, of the first of four, the proof of its schedule.  Of seed 28 LLVM's vectoriser of straight-line
    code made nothing: it ended the process."""
    found = steps(seed)
    assert found["steps: equal"] == 1 and found["steps: proved"] == int(seed % 4 == 0)
