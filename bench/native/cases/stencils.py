"""Cases d and d′: the gradient of the sum after T steps on a grid by the first state; d′ must know all states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.native import c
from bench.native.case import PROGRAMS, Array, Arrays, Case, Run, Sizes, Task, simple
from bench.native.peers import jax_for, tensors, torch_for

SIZES = {"T": 100, "m": 512}
TINY = {"T": 3, "m": 5}
SEGMENT = 10  # checkpoints: the square root of T
BEFORE, WITHIN, AFTER = slice(None, -2), slice(1, -1), slice(2, None)
INNER = (WITHIN, WITHIN)
AROUND = ((BEFORE, WITHIN), (AFTER, WITHIN), (WITHIN, BEFORE), (WITHIN, AFTER))


def inputs(sizes: Sizes) -> Arrays:
    """A first state between 0 and 1."""
    return {"U0": np.random.default_rng(5).uniform(size=(sizes["m"], sizes["m"]))}


def around(u: Any) -> Any:
    """The sum of the four neighbours of the inner points; of numpy, JAX and PyTorch alike."""
    return u[AROUND[0]] + u[AROUND[1]] + u[AROUND[2]] + u[AROUND[3]]


def jacobi_rule(u: Any) -> Any:
    """The inner points' next state."""
    return 0.2 * (u[INNER] + around(u))


def reaction_rule(u: Any) -> Any:
    """The inner points' next state."""
    inner = u[INNER]
    return inner + 0.1 * inner * (around(u) - 4 * inner)


def scatter(g: Array, inner: Array, sent: Array) -> None:
    """The adjoint of one step, in place: `inner` stays where it is, `sent` goes to the four neighbours."""
    g[INNER] = inner
    for place in AROUND:
        g[place] += sent


def jacobi_back(g: Array, _: Array) -> None:
    """The adjoint of `jacobi_rule`."""
    sent = 0.2 * g[INNER]
    scatter(g, sent, sent)


def reaction_back(g: Array, u: Array) -> None:
    """The adjoint of `reaction_rule` at the state u."""
    inner = u[INNER]
    scatter(g, g[INNER] * (1 + 0.1 * (around(u) - 4 * inner) - 0.4 * inner), 0.1 * inner * g[INNER])


def named(out: Any) -> Arrays:
    """By the names of the program's outputs."""
    return {n: np.asarray(v) for n, v in zip(("L", "d_U0"), out, strict=True)}


class Stencil:
    """The contenders of one rule."""

    def __init__(self, name: str, rule: Callable[[Any], Any], back: Callable[[Array, Array], None], keeps: bool):
        self.name, self.rule, self.back, self.keeps = name, rule, back, keeps

    def states(self, u: Array, steps: int) -> list[Array]:
        """All states, or only the last where the adjoint does not ask for the others."""
        kept = [u]
        for _ in range(steps):
            u = u.copy()
            u[INNER] = self.rule(u)
            if self.keeps:
                kept.append(u)
            else:
                kept[0] = u
        return kept

    def by_hand(self, u: Array, steps: int) -> tuple[Any, Array]:
        """The sum and its gradient."""
        kept = self.states(u, steps)
        g = np.ones_like(u)
        for t in range(steps - 1, -1, -1):
            self.back(g, kept[t if self.keeps else 0])
        return kept[-1].sum(), g

    def reference(self, task: Task) -> Arrays:
        """Value and gradient."""
        return named(self.by_hand(task.arrays["U0"], task.sizes["T"]))

    def numpy_run(self, task: Task) -> Run:
        """Whole arrays, slices."""
        u, steps = task.arrays["U0"], task.sizes["T"]

        def value() -> Any:
            return self.states(u, steps)[-1].sum()

        return simple(lambda: self.by_hand(u, steps), named, value)

    def _jax(self, task: Task, step: Any, segment: int = 1) -> Run:
        jax = jax_for(task)
        steps = task.sizes["T"]

        def march(u: Any, count: int) -> Any:
            return jax.lax.scan(lambda v, _: (step(v), None), u, None, length=count)[0]

        def total(u: Any) -> Any:
            if segment == 1:
                return march(u, steps).sum()
            some = jax.checkpoint(lambda v: march(v, segment))
            return jax.lax.scan(lambda v, _: (some(v), None), u, None, length=steps // segment)[0].sum()

        value, gradient = jax.jit(total), jax.jit(jax.value_and_grad(total))
        u = jax.numpy.asarray(task.arrays["U0"])
        return simple(lambda: jax.block_until_ready(gradient(u)), named, lambda: jax.block_until_ready(value(u)))

    def jax_idiomatic(self, task: Task) -> Run:
        """`lax.scan`, slices, `.at[...].set`."""
        return self._jax(task, lambda u: u.at[INNER].set(self.rule(u)))

    def jax_checkpointed(self, task: Task) -> Run:
        """The same with `jax.checkpoint` over segments of ten steps."""
        return self._jax(task, lambda u: u.at[INNER].set(self.rule(u)), SEGMENT)

    def jax_literal(self, task: Task) -> Run:
        """Every point of the grid by its rule: shifted grids, and a mask for the border."""
        jnp = jax_for(task).numpy
        m = task.sizes["m"]
        index = jnp.arange(m)
        at_border = (index == 0) | (index == m - 1)
        border = at_border[:, None] | at_border[None, :]

        def step(u: Any) -> Any:
            n, s, w, e = jnp.roll(u, 1, 0), jnp.roll(u, -1, 0), jnp.roll(u, 1, 1), jnp.roll(u, -1, 1)
            new = u + 0.1 * u * (n + s + w + e - 4 * u) if self.keeps else 0.2 * (u + n + s + w + e)
            return jnp.where(border, u, new)

        return self._jax(task, step)

    def jax_padded(self, task: Task) -> Run:
        """The inner points padded with zeros plus the border."""
        jnp = jax_for(task).numpy
        m = task.sizes["m"]
        border = jnp.ones((m, m)).at[INNER].set(0)
        return self._jax(task, lambda u: border * u + jnp.pad(self.rule(u), 1))

    def torch_run(self, task: Task) -> Run:
        """PyTorch eager."""
        torch = torch_for(task)
        u0, steps = tensors(torch, task, ("U0",))["U0"], task.sizes["T"]

        def total() -> Any:
            u = u0
            for _ in range(steps):
                new = u.clone()
                new[INNER] = self.rule(u)
                u = new
            return u.sum()

        def both() -> tuple[Any, Any]:
            value = total()
            return value.detach(), torch.autograd.grad(value, u0)[0]

        def value() -> Any:
            with torch.no_grad():
                return total()

        return simple(both, named, value)

    def c_run(self, task: Task) -> Run:
        """A wavefront of rows through many steps at once."""
        run = c.function(self.name, self.name)
        gradient = np.zeros_like(task.arrays["U0"])
        first = [c.bound(v) for v in (task.sizes["T"], task.sizes["m"], task.arrays["U0"])]
        into, none = c.bound(gradient), c.bound(None)
        return simple(
            lambda: run(*first, into), lambda total: named((total, gradient.copy())), lambda: run(*first, none)
        )


def case(key: str, title: str, stencil: Stencil, target: float) -> Case:
    """The case for one rule."""
    contenders = {"jax": stencil.jax_idiomatic, "jax, padded": stencil.jax_padded, "jax, literal": stencil.jax_literal}
    if stencil.keeps:
        contenders["jax, checkpointed"] = stencil.jax_checkpointed
    contenders |= {"torch": stencil.torch_run, "numpy": stencil.numpy_run, "C": stencil.c_run}
    return Case(
        key=key,
        title=title,
        program=PROGRAMS / f"{stencil.name}.upl",
        of="L",
        wrt=("U0",),
        sizes=SIZES,
        tiny=TINY,
        parameters=("T", "m"),
        inputs=inputs,
        reference=stencil.reference,
        contenders=contenders,
        against_peers=target,
        first_seconds=1.0,
        parallel=True,
        trajectory_bytes=SIZES["T"] * SIZES["m"] ** 2 * 8 if stencil.keeps else 0,
    )


CASES = (
    case(
        "d", "Jacobi-2D 512², T=100, gradient of the sum by the start",
        Stencil("jacobi", jacobi_rule, jacobi_back, False), 8,
    ),
    case(
        "d′", "u + 0.1·u·lap(u), 512², T=100 (values must be kept)",
        Stencil("reaction", reaction_rule, reaction_back, True), 6,
    ),
)  # fmt: skip
