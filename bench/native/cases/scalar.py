"""Case f: w2*log(w1) + sqrt(w2*log(w1)) and both derivatives, one Python call."""

from __future__ import annotations

import math
import timeit
from typing import Any

import numpy as np

from bench.native import c
from bench.native.case import EXAMPLES, Arrays, Case, Run, Sizes, Task
from bench.native.peers import jax_for, torch_for

W1, W2 = 3.0, 2.0


def inputs(_: Sizes) -> Arrays:
    """Two numbers."""
    return {"w1": np.array(W1), "w2": np.array(W2)}


def named(out: Any) -> Arrays:
    """By the names of the program's outputs."""
    return {n: np.asarray(v, np.float64) for n, v in zip(("Y", "d_w1", "d_w2"), out, strict=True)}


def by_hand(w1: float, w2: float) -> tuple[float, float, float]:
    """Value and derivatives by Python's math module."""
    log = math.log(w1)
    p = w2 * log
    root = math.sqrt(p)
    d = 1 + 0.5 / root
    return p + root, d * w2 / w1, d * log


def by_numpy(w1: Any, w2: Any) -> tuple[Any, Any, Any]:
    """The same by numpy's functions."""
    log = np.log(w1)
    p = w2 * log
    root = np.sqrt(p)
    d = 1 + 0.5 / root
    return p + root, d * w2 / w1, d * log


def _run(function: Any, w1: Any = W1, w2: Any = W2, value: Any = None) -> Run:
    scope = {"f": function, "g": value, "a": w1, "b": w2}
    return Run(
        timeit.Timer("f(a, b)", globals=scope), lambda: named(function(w1, w2)),
        timeit.Timer("g(a, b)", globals=scope) if value else None,
    )  # fmt: skip


def jax_idiomatic(task: Task) -> Run:
    """`jit(value_and_grad)`; the numbers are on the device already."""
    jax = jax_for(task)

    def loss(w1: Any, w2: Any) -> Any:
        p = w2 * jax.numpy.log(w1)
        return p + jax.numpy.sqrt(p)

    gradient = jax.jit(jax.value_and_grad(loss, (0, 1)))
    value = jax.jit(loss)

    def both(w1: Any, w2: Any) -> tuple[Any, ...]:
        total, slopes = jax.block_until_ready(gradient(w1, w2))
        return total, *slopes

    return _run(both, jax.numpy.asarray(W1), jax.numpy.asarray(W2), lambda w1, w2: jax.block_until_ready(value(w1, w2)))


def torch_run(task: Task) -> Run:
    """PyTorch eager."""
    torch = torch_for(task)
    a, b = (torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in (W1, W2))

    def loss(w1: Any, w2: Any) -> Any:
        p = w2 * torch.log(w1)
        return p + torch.sqrt(p)

    def both(w1: Any, w2: Any) -> tuple[Any, ...]:
        total = loss(w1, w2)
        return total.detach(), *torch.autograd.grad(total, (w1, w2))

    def value(w1: Any, w2: Any) -> Any:
        with torch.no_grad():
            return loss(w1, w2)

    return _run(both, a, b, value)


CASES = (
    Case(
        key="f",
        title="w2·log w1 + sqrt(w2·log w1), one Python call",
        program=EXAMPLES / "scalars.upl",
        of="Y",
        wrt=("w1", "w2"),
        sizes={},
        tiny={},
        parameters=(),
        inputs=inputs,
        reference=lambda task: named(by_hand(float(task.arrays["w1"]), float(task.arrays["w2"]))),
        contenders={
            "jax": jax_idiomatic, "torch": torch_run, "numpy": lambda _: _run(by_numpy, np.float64(W1), np.float64(W2)),
            "python": lambda _: _run(by_hand), "C": lambda _: _run(c.extension("scalar").value_and_gradient),
        },
        against_peers=None,
        first_seconds=0.3,
        seconds=150e-9,
        scalar=True,
    ),
)  # fmt: skip
