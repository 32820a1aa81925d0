"""Case e: multidimensional scaling, the stress of 200 points in the plane and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.native import c
from bench.native.case import EXAMPLES, Array, Arrays, Case, Run, Sizes, Task, simple
from bench.native.peers import jax_for, tensors, torch_for


def inputs(sizes: Sizes) -> Arrays:
    """Points, and for each pair i<j the distance wanted, in a box without the empty first column and last row."""
    random = np.random.default_rng(6)
    n = sizes["n"]
    return {"X": random.normal(size=(n, 2)), "D": random.uniform(0.5, 2, (n - 1, n - 1))}


def square(target: Array) -> Array:
    """The wanted distances with rows and columns from 0 to n-1, above the diagonal."""
    n = len(target) + 1
    out = np.zeros((n, n), target.dtype)
    out[:-1, 1:] = target
    return np.triu(out, 1)


def stress(x: Array, wanted: Array, upper: Array) -> tuple[Array, Array, Array, Array]:
    """The stress, differences, distances and errors."""
    difference = x[:, None] - x[None]
    distance = np.sqrt((difference**2).sum(-1))
    error = (distance - wanted) * upper
    return (error**2).sum(), difference, distance, error


def by_hand(x: Array, wanted: Array, upper: Array) -> tuple[Array, Array]:
    """The stress and its gradient."""
    total, difference, distance, error = stress(x, wanted, upper)
    factor = 2 * error / (distance + (1 - upper))
    pull = factor[..., None] * difference
    return total, pull.sum(1) - pull.sum(0)


def named(out: Any) -> Arrays:
    """By the names of the program's outputs."""
    return {n: np.asarray(v) for n, v in zip(("Stress", "d_X"), out, strict=True)}


def _upper(n: int) -> Array:
    return np.triu(np.ones((n, n)), 1)


def reference(task: Task) -> Arrays:
    """Value and gradient."""
    wanted = square(task.arrays["D"])
    return named(by_hand(task.arrays["X"], wanted, _upper(len(wanted))))


def numpy_run(task: Task) -> Run:
    """The whole square of pairs at once."""
    x, wanted = task.arrays["X"], square(task.arrays["D"])
    upper = _upper(len(wanted))
    return simple(lambda: by_hand(x, wanted, upper), named, lambda: stress(x, wanted, upper)[0])


def _jax(task: Task, loss: Any, *arguments: Any) -> Run:
    jax = jax_for(task)
    value, gradient = jax.jit(loss), jax.jit(jax.value_and_grad(loss))
    x = jax.numpy.asarray(task.arrays["X"])
    given = [jax.numpy.asarray(a) for a in arguments]
    return simple(
        lambda: jax.block_until_ready(gradient(x, *given)), named, lambda: jax.block_until_ready(value(x, *given))
    )


def jax_idiomatic(task: Task) -> Run:
    """The whole square of pairs; the diagonal kept from the root by `where`."""
    jnp = jax_for(task).numpy
    wanted = square(task.arrays["D"])

    def loss(x: Any, wanted: Any, upper: Any) -> Any:
        squares = ((x[:, None] - x[None]) ** 2).sum(-1)
        distance = jnp.sqrt(jnp.where(upper > 0, squares, 1.0))
        return (upper * (distance - wanted) ** 2).sum()

    return _jax(task, loss, wanted, _upper(len(wanted)))


def jax_literal(task: Task) -> Run:
    """The pairs i<j alone, by their indices."""
    jnp = jax_for(task).numpy
    wanted = square(task.arrays["D"])
    i, j = np.triu_indices(len(wanted), 1)

    def loss(x: Any, wanted: Any) -> Any:
        return ((jnp.sqrt(((x[i] - x[j]) ** 2).sum(-1)) - wanted) ** 2).sum()

    return _jax(task, loss, wanted[i, j])


def torch_run(task: Task) -> Run:
    """PyTorch eager: `pdist`, made for this."""
    torch = torch_for(task)
    x = tensors(torch, task, ("X",))["X"]
    wanted = square(task.arrays["D"])
    flat = torch.tensor(wanted[np.triu_indices(len(wanted), 1)])

    def loss() -> Any:
        return ((torch.nn.functional.pdist(x) - flat) ** 2).sum()

    def both() -> tuple[Any, Any]:
        value = loss()
        return value.detach(), torch.autograd.grad(value, x)[0]

    def value() -> Any:
        with torch.no_grad():
            return loss()

    return simple(both, named, value)


def c_run(task: Task) -> Run:
    """Pairs i<j once, vectors along j, one Newton iteration for root and quotient."""
    run = c.function("scaling", "stress")
    d_x = np.zeros_like(task.arrays["X"])
    arguments = [c.bound(v) for v in (task.sizes["n"], task.arrays["X"], task.arrays["D"], d_x)]
    return simple(lambda: run(*arguments), lambda total: named((total, d_x.copy())))


CASES = (
    Case(
        key="e",
        title="multidimensional scaling, N=200, d=2",
        program=EXAMPLES / "mds.upl",
        of="Stress",
        wrt=("X",),
        sizes={"n": 200, "K": 2},
        tiny={"n": 5, "K": 2},
        parameters=("n", "K"),
        inputs=inputs,
        reference=reference,
        contenders={
            "jax": jax_idiomatic, "jax, literal": jax_literal, "torch": torch_run, "numpy": numpy_run, "C": c_run,
        },
        against_peers=12,
        first_seconds=0.3,
    ),
)
