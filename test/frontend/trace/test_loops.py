"""Loops that are traced once: derivatives in each of their rounds, and `upl.scan`.

Outside of traced functions `upl.range`, `fori_loop` and `scan` are Python's loops, and each derivative in them is that of a
program of its own, which knows nothing of other rounds: that is the reference here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

RANDOM = np.random.default_rng(7)
A, B = RANDOM.normal(size=(3, 2)) * 0.3, RANDOM.normal(size=(2, 2)) * 0.3
X = RANDOM.normal(size=(4, 3, 3))
ROUNDS = len(X)


def loss(a: Any, b: Any, x: Any) -> Any:
    return np.mean(np.tanh(x @ a) @ b) ** 2


def momentum(a: Any, b: Any, x: Any) -> Any:
    a, v = a.copy(), np.zeros_like(a)
    for k in upl.range(ROUNDS):
        v[:] = 0.9 * v + upl.grad(loss)(a, b, x[k])
        a[:] = a - 0.1 * v
    return a


def in_turns(a: Any, b: Any, x: Any) -> Any:
    """Each of two gradients reads what the other one has made: rounds before are constants in both."""

    def body(k: Any, s: Any) -> Any:
        a, b = s
        a = a - 0.5 * upl.grad(loss)(a, b, x[k])
        b = b - 0.5 * upl.grad(lambda b: np.mean(np.tanh(np.tanh(x[k] @ a) @ b) ** 3))(b)
        return a, b

    return upl.fori_loop(0, ROUNDS, body, (a, b))


def running_average(a: Any, b: Any, x: Any) -> Any:
    """The objective reads an average that the earlier rounds' parameters have made."""

    def body(k: Any, s: Any) -> Any:
        a, average = s

        def objective(a: Any) -> Any:
            z = np.tanh(x[k] @ a)
            q = 0.5 * average + 0.5 * np.mean(z, 0)
            return np.sum((z - q) ** 2), q

        d, q = upl.grad(objective, has_aux=True)(a)
        return a - 0.5 * d, q

    return upl.fori_loop(0, ROUNDS, body, (a, np.zeros_like(a[0])))


def epochs(a: Any, b: Any, x: Any) -> Any:
    """A loop in a loop, whose other array is carried through both."""

    def batch(k: Any, s: Any) -> Any:
        a, b = s
        return a - 0.3 * upl.grad(loss)(a, b, x[k]), b + 0.1 * a[:2]

    return upl.fori_loop(0, 2, lambda _, s: upl.fori_loop(0, ROUNDS, batch, s), (a, b))


def of_a_gradient(a: Any, b: Any, x: Any) -> Any:
    def body(k: Any, a: Any) -> Any:
        return a - 0.1 * upl.grad(lambda a: np.sum(upl.grad(loss)(a, b, x[k]) ** 2))(a)

    return upl.fori_loop(0, 2, body, a)


def both_modes(a: Any, b: Any, x: Any) -> Any:
    def body(k: Any, a: Any) -> Any:
        f: Callable[[Any], Any] = lambda a: np.tanh(x[k] @ a)  # noqa: E731
        _, tangent = upl.jvp(f, (a,), (b[:1] * np.ones_like(a),))
        _, back = upl.vjp(f, a)
        return a - 0.1 * back(tangent)[0]

    return upl.fori_loop(0, ROUNDS, body, a)


def of_a_recurrence(a: Any, b: Any, x: Any) -> Any:
    """The objective of each round has a loop of its own."""

    def body(c: Any, x: Any) -> Any:
        def objective(a: Any) -> Any:
            h, _ = upl.scan(lambda h, row: (np.tanh(row @ a + h @ b), None), np.zeros_like(b[0]), x)
            return np.sum(h**2)

        value, d = upl.value_and_grad(objective)(c)
        return c - 0.1 * d, value

    return upl.scan(body, a, x)


TRAINING = [momentum, in_turns, running_average, epochs, of_a_gradient, both_modes, of_a_recurrence]


def close(found: Any, wanted: Any) -> None:
    for f, w in zip(*((t if isinstance(t, tuple) else (t,)) for t in (found, wanted)), strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("f", TRAINING, ids=lambda f: f.__name__)
def test_a_round_has_its_own_derivative(f: Callable[..., Any]) -> None:
    close(upl.function(f)(A, B, X), f(A, B, X))


@pytest.mark.parametrize("engine", ["native"], indirect=True)
def test_native_code_trains(engine: str) -> None:
    close(upl.function(epochs)(A, B, X), epochs(A, B, X))


@pytest.mark.parametrize("f", [in_turns, running_average], ids=lambda f: f.__name__)
def test_the_whole_run_is_differentiated(f: Callable[..., Any]) -> None:
    """By its first weights, through all rounds and all their derivatives."""
    upl.check_grads(lambda a, b, x: sum(np.sum(q**2) for q in f(a, b, x)), (A, B, X))


def every_form(w: Any, x: Any) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = np.tanh(row @ w + h)
        return h, {"twice": h * 2, "none": None, "large": h > 0.1}

    def outer(h: Any, _: Any) -> Any:
        h, ys = upl.scan(step, h, x)
        return h, ys["twice"][1:]

    h, ys = upl.scan(step, np.zeros_like(x[0]), x)
    again, inner = upl.scan(outer, h, length=2)
    once = upl.scan(lambda c, x: (c + x, c), h, x[:1])
    first = upl.scan(lambda c, x: (c + x["a"], (c, 1.0)), h, {"a": np.ones((3, 3))})
    return h, ys["twice"], ys["large"] * 1.0, again, inner, *once, first[0], *first[1]


def test_scan_is_a_loop() -> None:
    x, w = X[0], RANDOM.normal(size=(3, 3))
    close(upl.function(every_form)(w, x), every_form(w, x))
    upl.check_grads(lambda w, x: upl.scan(lambda h, r: (np.tanh(r @ w + h), h * r), x[0], x)[1], (w, x))


def test_a_scan_sends_each_result_once() -> None:
    """A loop that writes into an array carries it whole; what scan stacks is sent from the round that made it."""
    tokens: list[int] = []
    for n in (4, 8):
        f = upl.function(lambda x: upl.scan(lambda c, v: (c + v, c * v), np.zeros_like(x[0]), x)[1])
        run = upl.compile(f.program(np.ones(n)))
        run(x=np.arange(float(n)))
        tokens.append(sum(run.stats["tokens"].values()) if isinstance(run.stats["tokens"], dict) else run.stats["tokens"])
    assert tokens[1] < 2.2 * tokens[0]


def test_a_constant_passes_no_derivative() -> None:
    x = np.array([0.3, -2.0])
    np.testing.assert_array_equal(upl.grad(lambda x: np.sum(x * upl.stop_gradient(x)))(x), x)
    assert upl.stop_gradient(x) is x
