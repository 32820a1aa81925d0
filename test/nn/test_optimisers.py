"""Optimisers and schedules against their published formulas, written anew for one number at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir import nn

STEPS = 7
GRADIENTS = np.random.default_rng(5).normal(size=(STEPS, 2))
START = {"a": np.array(0.7), "b": (np.array([[-1.2]]),)}


def by_sgd(p: float, gradients: list[float], rate: Callable[[int], float], mu: float, nesterov: bool, decay: float) -> float:
    v = 0.0
    for t, g in enumerate(gradients):
        v = mu * v + g
        p = p - rate(t) * ((g + mu * v if nesterov else v) + decay * p)
    return p


def by_adam(p: float, gradients: list[float], rate: Callable[[int], float], decay: float) -> float:
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        p = p - rate(t - 1) * (m / (1 - 0.9**t) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8) + decay * p)
    return p


def halved(t: int) -> float:
    return 0.4 * (0.5 if t >= 2 else 1) * (0.5 if t >= 5 else 1)


def waved(t: int) -> float:
    """Two steps of warming up, then half a cosine of four steps from 0.3 to 0.1, and 0.1 from then on."""
    if t < 2:
        return 0.3 * (t + 1) / 2
    return 0.1 + 0.2 * (1 + math.cos(math.pi * min(t - 2, 4) / 4)) / 2


CASES: list[tuple[nn.Optimiser, Callable[[float, list[float]], float]]] = [
    (nn.sgd(0.1), lambda p, g: by_sgd(p, g, lambda _: 0.1, 0, False, 0)),
    (nn.sgd(0.1, momentum=0.8, decay=0.3), lambda p, g: by_sgd(p, g, lambda _: 0.1, 0.8, False, 0.3)),
    (nn.sgd(nn.schedules.constant(0.1), momentum=0.8, nesterov=True),
     lambda p, g: by_sgd(p, g, lambda _: 0.1, 0.8, True, 0)),
    (nn.sgd(nn.schedules.steps(0.4, [2, 5], 0.5)), lambda p, g: by_sgd(p, g, halved, 0, False, 0)),
    (nn.adam(0.1), lambda p, g: by_adam(p, g, lambda _: 0.1, 0)),
    (nn.adam(nn.schedules.warmup(2, nn.schedules.cosine(0.3, 4, 0.1)), decay=0.2), lambda p, g: by_adam(p, g, waved, 0.2)),
]  # fmt: skip


def run(optimiser: nn.Optimiser, gradients: Any, start: Any) -> Any:
    def step(carry: Any, g: Any) -> Any:
        params, state = carry
        return optimiser.update({"a": g[0], "b": (g[1:, None],)}, state, params), None

    return upl.scan(step, (start, optimiser.init(start)), gradients)[0]


@pytest.mark.parametrize(("optimiser", "formula"), CASES)
def test_updates(optimiser: nn.Optimiser, formula: Callable[[float, list[float]], float]) -> None:
    params, state = upl.function(lambda g, p: run(optimiser, g, p))(GRADIENTS, START)
    np.testing.assert_allclose(params["a"], formula(0.7, list(GRADIENTS[:, 0])), rtol=1e-12)
    np.testing.assert_allclose(params["b"][0], [[formula(-1.2, list(GRADIENTS[:, 1]))]], rtol=1e-12)
    assert state["step"] == STEPS
    plain, _ = run(optimiser, GRADIENTS, START)  # on numpy arrays
    np.testing.assert_allclose(plain["a"], params["a"], rtol=1e-14)


def test_long_gradients_are_cut() -> None:
    clipped = nn.clipped(nn.sgd(1.0), 2.0)
    for g, length in ((np.array([3.0, 4.0]), 5.0), (np.array([0.3, 0.4]), 0.5)):
        params, _ = upl.function(lambda g: clipped.update(g, clipped.init(g), (0.0 * g[0], 0.0 * g[1])))((g[:1], g[1:]))
        np.testing.assert_allclose(np.concatenate(params), -g * min(1, 2 / length), rtol=1e-14)


def test_single_precision_stays() -> None:
    params = nn.map_tree(np.float32, START)
    optimiser = nn.adam(nn.schedules.cosine(0.1, 3))
    state = optimiser.init(params)
    new, state = upl.function(lambda p, s: optimiser.update(p, s, p))(params, state)
    assert {a.dtype for a in (new["a"], new["b"][0], state["step"], state["beta1"])} == {np.dtype(np.float32)}


def test_gradients_of_other_parameters() -> None:
    optimiser = nn.adam(0.1)
    with pytest.raises(upl.UplError, match=r"UPL1934.*differ in structure"):
        optimiser.update((START["a"],), optimiser.init(START), START)
