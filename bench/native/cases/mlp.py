"""Case b: a perceptron 784-128-64-10 with ReLU, softmax and cross-entropy; value and gradient by all weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.native import c
from bench.native.case import PROGRAMS, Array, Arrays, Case, Run, Sizes, Task, simple
from bench.native.peers import jax_for, tensors, torch_for

WEIGHTS = ("W1", "W2", "W3", "B1", "B2", "B3")
GRADIENTS = tuple(f"d_{n}" for n in WEIGHTS)
WIDTHS = {"I": 784, "A": 128, "B": 64, "C": 10}
TINY = {"I": 5, "A": 4, "B": 3, "C": 3, "D": 2}


def inputs(sizes: Sizes) -> Arrays:
    """Random images, classes and weights of the usual size."""
    random = np.random.default_rng(3)
    widths = [sizes[n] for n in "IABC"]
    out = {"X": random.uniform(size=(sizes["D"], widths[0]))}
    out["Y"] = np.eye(widths[3])[random.integers(0, widths[3], sizes["D"])]
    for k in range(3):
        out[f"W{k + 1}"] = random.normal(0, widths[k] ** -0.5, (widths[k], widths[k + 1]))
        out[f"B{k + 1}"] = random.normal(0, 0.1, widths[k + 1])
    return out


def forward(a: Arrays) -> tuple[Array, Array, Array, Array]:
    """Hidden layers, softmax and loss."""
    h1 = np.maximum(a["X"] @ a["W1"] + a["B1"], 0)
    h2 = np.maximum(h1 @ a["W2"] + a["B2"], 0)
    z = h2 @ a["W3"] + a["B3"]
    z -= z.max(axis=1, keepdims=True)
    e = np.exp(z)
    total = e.sum(axis=1, keepdims=True)
    return h1, h2, e / total, (np.log(total[:, 0]) - (a["Y"] * z).sum(axis=1)).mean()


def by_hand(a: Arrays) -> tuple[Array, ...]:
    """The loss and its gradient in the order of WEIGHTS."""
    h1, h2, p, loss = forward(a)
    d3 = (p - a["Y"]) / len(p)
    d2 = (d3 @ a["W3"].T) * (h2 > 0)
    d1 = (d2 @ a["W2"].T) * (h1 > 0)
    return loss, a["X"].T @ d1, h1.T @ d2, h2.T @ d3, d1.sum(0), d2.sum(0), d3.sum(0)


def named(out: Any) -> Arrays:
    """Loss and gradients by the names of the program's outputs."""
    return {n: np.asarray(v) for n, v in zip(("L", *GRADIENTS), out, strict=True)}


def reference(task: Task) -> Arrays:
    """Value and gradient."""
    return named(by_hand(task.arrays))


def numpy_run(task: Task) -> Run:
    """numpy by hand: its matrix products are OpenBLAS."""
    return simple(lambda: by_hand(task.arrays), named, lambda: forward(task.arrays))


def _jax(task: Task, loss: Any) -> Run:
    jax = jax_for(task)
    arrays = {n: jax.numpy.asarray(a) for n, a in task.arrays.items()}
    weights = [arrays[n] for n in WEIGHTS]
    value = jax.jit(loss)
    gradient = jax.jit(jax.value_and_grad(loss))

    def both() -> Any:
        return jax.block_until_ready(gradient(weights, arrays["X"], arrays["Y"]))

    return simple(
        both,
        lambda out: named((out[0], *out[1])),
        lambda: jax.block_until_ready(value(weights, arrays["X"], arrays["Y"])),
    )


def jax_idiomatic(task: Task) -> Run:
    """Matrix products and `log_softmax`."""
    jax = jax_for(task)

    def loss(weights: list[Any], x: Any, y: Any) -> Any:
        w1, w2, w3, b1, b2, b3 = weights
        h = jax.nn.relu(jax.nn.relu(x @ w1 + b1) @ w2 + b2)
        return -(y * jax.nn.log_softmax(h @ w3 + b3)).sum(axis=1).mean()

    return _jax(task, loss)


def jax_literal(task: Task) -> Run:
    """The UPL program word for word: all products, then their sums."""
    jax = jax_for(task)
    jnp = jax.numpy

    def loss(weights: list[Any], x: Any, y: Any) -> Any:
        for w, b in zip(weights[:3], weights[3:], strict=True):
            z = (x[:, :, None] * w).sum(axis=1) + b
            x = jnp.where(z > 0, z, 0)
        z = z - jax.lax.stop_gradient(z).max(axis=1, keepdims=True)
        return ((jnp.log(jnp.exp(z).sum(axis=1)) - (y * z).sum(axis=1)) / len(x)).sum()

    return _jax(task, loss)


def torch_run(task: Task) -> Run:
    """PyTorch eager."""
    torch = torch_for(task)
    a = tensors(torch, task, WEIGHTS)
    weights = [a[n] for n in WEIGHTS]
    relu, entropy = torch.nn.functional.relu, torch.nn.functional.cross_entropy

    def loss() -> Any:
        h = relu(relu(a["X"] @ a["W1"] + a["B1"]) @ a["W2"] + a["B2"])
        return entropy(h @ a["W3"] + a["B3"], a["Y"])

    def both() -> tuple[Any, ...]:
        value = loss()
        return value.detach(), *torch.autograd.grad(value, weights)

    def value() -> Any:
        with torch.no_grad():
            return loss()

    return simple(both, named, value)


def c_run(task: Task) -> Run:
    """Microkernels for many examples, fused rows for one."""
    mlp = c.function("mlp", "mlp", task.real)
    a = task.arrays
    gradients = [np.zeros_like(a[n]) for n in WEIGHTS]
    first = [c.bound(v) for v in (task.sizes["D"], a["X"], a["Y"], *(a[n] for n in WEIGHTS))]
    rest, none = [c.bound(g) for g in gradients], [c.bound(None)] * len(WEIGHTS)
    return simple(
        lambda: mlp(*first, *rest),
        lambda loss: named((loss, *(g.copy() for g in gradients))),
        lambda: mlp(*first, *none),
    )


def case(batch: int, real: str, target: float) -> Case:
    """The case for one size of batch and one precision."""
    return Case(
        key=f"b {batch}" + (" f32" if real == "f32" else ""),
        title=f"MLP 784-128-64-10, batch {batch}, {real}",
        program=PROGRAMS / "mlp.upl",
        of="L",
        wrt=WEIGHTS,
        sizes={**WIDTHS, "D": batch},
        tiny=TINY,
        parameters=("D",),
        inputs=inputs,
        reference=reference,
        contenders={
            "jax": jax_idiomatic, "jax, literal": jax_literal, "torch": torch_run, "numpy": numpy_run, "C": c_run,
        },
        against_peers=target,
        first_seconds=0.3 if batch == 1 else 1.0,
        real=real,
        tolerance=1e-10 if real == "f64" else 2e-5,
        parallel=batch > 1,
    )


CASES = (case(1, "f64", 4), case(64, "f64", 1.2), case(1, "f32", 4), case(64, "f32", 1.2))
