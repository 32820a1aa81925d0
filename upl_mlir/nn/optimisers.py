# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Optimisers as pairs of pure functions on trees of arrays, as in Optax: they run inside a traced training loop.

    adam = nn.adam(1e-3)
    state = adam.init(params)
    params, state = adam.update(gradients, state, params)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from upl_mlir.frontend.trace.position import fail
from upl_mlir.frontend.trace.tree import leaves, map_tree, structure
from upl_mlir.nn.schedules import Schedule

Rate = float | Schedule
"""A learning rate, or what gives it for a step."""


class Optimiser(NamedTuple):
    """`init` makes the state for parameters; `update` has gradients, state and parameters, and returns new parameters and
    the new state."""

    init: Callable[[Any], Any]
    update: Callable[[Any, Any, Any], tuple[Any, Any]]


def sgd(rate: Rate, *, momentum: float = 0.0, nesterov: bool = False, decay: float = 0.0) -> Optimiser:
    """Gradient descent: ``v = momentum*v + g; p -= rate*(v + decay*p)``; with `nesterov` ``g + momentum*v`` in place of v.

    `decay` is decoupled weight decay.  Source: I. Sutskever et al., ICML 2013.
    """

    def init(params: Any) -> Any:
        return {"step": _number(params), "speed": map_tree(np.zeros_like, params) if momentum else None}

    def update(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
        _fitting(gradients, params)
        speed, towards = state["speed"], gradients
        if momentum:
            speed = towards = map_tree(lambda v, g: momentum * v + g, speed, gradients)
            if nesterov:
                towards = map_tree(lambda g, v: g + momentum * v, gradients, speed)
        new = _moved(params, towards, _rate(rate, state["step"]), decay)
        return new, {"step": state["step"] + 1, "speed": speed}

    return Optimiser(init, update)


def adam(
    rate: Rate, *, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, decay: float = 0.0
) -> Optimiser:
    """Adam; with `decay`, decoupled weight decay, AdamW.

    Sources: D. Kingma and J. Ba, ICLR 2015; I. Loshchilov and F. Hutter, ICLR 2019.
    """

    # the powers of the betas are carried: products have the same bits on every engine, powers have not
    def init(params: Any) -> Any:
        zero = _number(params)
        moments = {"mean": map_tree(np.zeros_like, params), "square": map_tree(np.zeros_like, params)}
        return {"step": zero, "beta1": zero + 1, "beta2": zero + 1, **moments}

    def update(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
        _fitting(gradients, params)
        one, two = state["beta1"] * beta1, state["beta2"] * beta2
        mean = map_tree(lambda m, g: beta1 * m + (1 - beta1) * g, state["mean"], gradients)
        square = map_tree(lambda v, g: beta2 * v + (1 - beta2) * g * g, state["square"], gradients)
        towards = map_tree(lambda m, v: m / (1 - one) / (np.sqrt(v / (1 - two)) + epsilon), mean, square)
        new = _moved(params, towards, _rate(rate, state["step"]), decay)
        return new, {"step": state["step"] + 1, "beta1": one, "beta2": two, "mean": mean, "square": square}

    return Optimiser(init, update)


def clipped(optimiser: Optimiser, norm: float) -> Optimiser:
    """The optimiser with gradients that are made shorter where all arrays, as one vector, are longer than `norm`."""

    def update(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
        length = np.sqrt(sum(np.sum(g * g) for _, g in leaves(gradients)))
        factor = norm / np.maximum(length, norm)
        return optimiser.update(map_tree(lambda g: g * factor, gradients), state, params)

    return Optimiser(optimiser.init, update)


def _number(params: Any) -> Any:
    """A zero of the type that parameters have.  Raises UplError (UPL1934) where there are none."""
    first = next((p for _, p in leaves(params)), None)
    if first is None:
        help = "pass the tree of arrays that model.init gives"
        raise fail("UPL1934", "an optimiser has no parameters to train", help=help)
    return np.zeros_like(first, shape=())


def _rate(rate: Rate, step: Any) -> Any:
    return rate(step) if callable(rate) else rate


def _moved(params: Any, towards: Any, rate: Any, decay: float) -> Any:
    if decay:
        return map_tree(lambda p, d: p - rate * (d + decay * p), params, towards)
    return map_tree(lambda p, d: p - rate * d, params, towards)


def _fitting(gradients: Any, params: Any) -> None:
    """Raise UplError (UPL1934) for trees that differ."""
    if structure(gradients) != structure(params):
        help = "pass what upl.grad gives for these parameters"
        raise fail("UPL1934", "gradients and parameters differ in structure", help=help)
