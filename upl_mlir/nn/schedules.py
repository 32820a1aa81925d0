"""Learning rates as functions of the step, from 0; `nn.sgd` and `nn.adam` take them in the place of a number.

They are made of numpy's functions, so a step is a number or a traced array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Schedule = Callable[[Any], Any]
"""From the number of a step, from 0, to its rate."""


def constant(rate: float) -> Schedule:
    """The same rate in all steps."""
    return lambda step: rate + 0 * step


def steps(rate: float, at: Sequence[int], factor: float = 0.1) -> Schedule:
    """The rate, multiplied by `factor` from each of the steps `at` on."""

    def schedule(step: Any) -> Any:
        out = rate + 0 * step
        for boundary in at:
            out = out * np.where(step < boundary, 1.0, factor)
        return out

    return schedule


def cosine(rate: float, length: int, last: float = 0.0) -> Schedule:
    """Half a cosine from `rate` at step 0 down to `last` at step `length`, and `last` from then on.

    Source: I. Loshchilov and F. Hutter, "SGDR", ICLR 2017.
    """
    return lambda step: last + (rate - last) * 0.5 * (1 + np.cos(math.pi / length * np.minimum(step, length)))


def warmup(length: int, schedule: Schedule) -> Schedule:
    """A line up to the schedule's first rate in the first `length` steps, then the schedule from its beginning."""
    return lambda step: np.minimum((step + 1) / length, 1.0) * schedule(np.maximum(step - length, 0.0))
