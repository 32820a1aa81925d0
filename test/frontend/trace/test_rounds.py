"""`upl.while_loop`: values and derivatives against JAX: its own loop, and, as that has no reverse mode, Python's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

jax = pytest.importorskip("jax", reason="JAX, the oracle, is not installed: pip install 'upl-mlir[oracle]'")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy

A, X = np.array([[2.0, 0.5], [0.3, 1.0]]), np.array([1.0, 0.3])
M, E = np.array([0.1, 0.5, 2.5]), np.array([0.8, 0.3, 0.6])


def in_python(cond: Any, body: Any, state: Any) -> Any:
    """The loop on JAX's arrays, round by round; JAX differentiates what was computed."""
    holds = jnp.asarray(cond(state))
    while holds.any():
        mask = holds
        state = jax.tree.map(lambda a, b, mask=mask: jnp.where(mask, a, b), body(state), state)
        holds = jnp.asarray(cond(state))
    return state


class Own:
    """What a case is written with: numpy, and the loops of this project."""

    np, loop, fori = np, staticmethod(upl.while_loop), staticmethod(upl.fori_loop)


class Jax:
    """The same of JAX; the loops are Python's."""

    np, loop = jnp, staticmethod(in_python)

    @staticmethod
    def fori(low: int, high: int, body: Any, state: Any) -> Any:
        for k in range(low, high):
            state = body(k, state)
        return state


def kepler(b: Any, m: Any, e: Any) -> Any:
    """Newton's method: each body in as many rounds as it takes."""

    def off(u: Any) -> Any:
        return (u - e * b.np.sin(u) - m) / (1 - e * b.np.cos(u))

    return b.loop(lambda u: abs(off(u)) > 1e-10, lambda u: u - off(u), m)


def root(b: Any, a: Any, x: Any) -> Any:
    """Of one number, by Newton's method; its start is an element of an array."""
    return b.loop(lambda s: abs(s * s - a[0, 1]) > 1e-12, lambda s: (s + a[0, 1] / s) / 2, x[0])


def collatz(b: Any, n: Any) -> Any:
    """How many rounds each number takes; the counter is broadcast."""

    def body(s: Any) -> Any:
        return {"n": b.np.where(s["n"] % 2 == 0, s["n"] / 2, 3 * s["n"] + 1), "k": s["k"] + 1}

    return b.loop(lambda s: s["n"] > 1, body, {"n": n, "k": 0.0 * n})["k"]


def power(b: Any, a: Any, x: Any) -> Any:
    """The power iteration: one condition, rounds that mix elements; the counter is a number."""

    def body(s: Any) -> Any:
        y = a @ s[0]
        return y / b.np.sqrt(b.np.sum(y * y)), s[0], s[2] + 1

    return b.loop(lambda s: (b.np.sum((s[0] - s[1]) ** 2) > 1e-6) & (s[2] < 100), body, (x, 0 * x, 0.0))


def never(b: Any, a: Any, x: Any) -> Any:
    """Zero rounds, of both forms; the body would divide by 0."""
    return b.loop(lambda s: s < -9, lambda s: s / (s - s), x), b.loop(lambda s: s @ s < -9, lambda s: s / (s @ s) / 0.0, x)


def from_outside(b: Any, a: Any, x: Any) -> Any:
    """Truth values, other places, sums and numbers: what no round changes."""
    p = x > 0.5

    def body(s: Any) -> Any:
        return b.np.where(p, s * 2, s * 1.5) + a.T[0] + x[::-1] + b.np.array([0.1, 0.2]) + b.np.sum(a)

    together = b.loop(lambda s: b.np.sum(b.np.where(p, s, 2 * s)) + a[0, 1] < 20, body, x)
    return together, b.loop(lambda s: b.np.where(p, s, 2 * s) + a[0] < 20, body, x)


def constants(b: Any, a: Any, x: Any) -> Any:
    """A round may return what is no state."""
    return b.loop(lambda s: b.np.sum(s) < 3, lambda s: b.np.array([2.0, 5.0]), x), b.loop(
        lambda s: b.np.sum(s) < 3, lambda s: b.np.ones_like(s) * 2, x
    )


def long_body(b: Any, a: Any, x: Any) -> Any:
    """Each element has rounds of its own, and a round is more than one node."""

    def body(s: Any) -> Any:
        for _ in range(6):
            s = s + 0.1 * s * s
        return s * a[0]

    return b.loop(lambda s: s < 10, body, x + 1)


def in_known_rounds(b: Any, a: Any, x: Any) -> Any:
    """Inside loops whose rounds are known, of both forms."""

    def apart(k: Any, y: Any) -> Any:
        return b.loop(lambda z: z < 10 * (k + 1), lambda z: 1.5 * z + a[0], y)

    def together(k: Any, y: Any) -> Any:
        return b.loop(lambda z: b.np.sum(z) < 30 * (k + 1), lambda z: a @ z + x, y)

    return b.fori(0, 3, apart, x), b.fori(0, 3, together, x)


def known_rounds_in(b: Any, a: Any, x: Any) -> Any:
    """A loop whose rounds are known in each round."""

    def body(s: Any) -> Any:
        y = b.fori(0, 3, lambda k, y: b.np.tanh(a @ y + x[0] * k), s[0])
        return y * 0.5, s[1] + 1

    return b.loop(lambda s: (b.np.sum(s[0] ** 2) > 0.2) & (s[1] < 6), body, (x * 3, 0.0))


def one_in_another(b: Any, a: Any, x: Any) -> Any:
    """Loops in each round, of both forms."""

    def body(s: Any) -> Any:
        y = b.loop(lambda z: b.np.max(z) < 10, lambda z: a @ z + s[0], s[0])
        return b.loop(lambda z: z < 30, lambda z: 1.5 * z + s[0] + 1, y) / 20, s[1] + 1

    return b.loop(lambda s: s[1] < 3, body, (x, 0.0))


def of_two_shapes(b: Any, a: Any, x: Any) -> Any:
    """One condition for all states; those that no round needs are left out."""
    first, _, last = b.loop(
        lambda s: b.np.sum(s[0] * s[2]) < 50, lambda s: (s[0] + 1, s[1] * 2, b.np.sqrt(s[2] * s[0])), (x[0], a, x)
    )
    return first * last


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "kepler": (kepler, (M, E)), "root": (root, (A, X)), "power": (power, (A, X)), "never": (never, (A, X)),
    "from outside": (from_outside, (A, X)), "constants": (constants, (A, X)), "long body": (long_body, (A, X)),
    "in known rounds": (in_known_rounds, (A, X)), "known rounds in": (known_rounds_in, (A, X)),
    "one in another": (one_in_another, (A, X)), "two shapes": (of_two_shapes, (A, X)),
}  # fmt: skip


def close(found: Any, wanted: Any, rtol: float = 1e-10) -> None:
    for f, w in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(f, w, rtol=rtol, atol=1e-12)


def of(b: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: f(b, *args)


def summed(b: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    """One number, on which each element of the results has another influence."""

    def call(*args: Any) -> Any:
        leaves = jax.tree.leaves(f(b, *args))
        return sum(b.np.sum(b.np.sin(v * (n + 1))) for n, v in enumerate(leaves))

    return call


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name: str) -> None:
    """Of traced functions, and values of ordinary ones."""
    f, args = CASES[name]
    given = tuple(map(jnp.asarray, args))
    wanted = f(Jax, *given)
    close(upl.function(of(Own, f))(*args), wanted)
    close(f(Own, *args), wanted)
    ours, theirs = summed(Own, f), summed(Jax, f)
    close(upl.grad(ours, argnums=(0, 1))(*args), jax.grad(theirs, argnums=(0, 1))(*given))
    along = tuple(np.cos(np.arange(a.size)).reshape(a.shape) for a in args)
    close(upl.jvp(ours, args, along), jax.jvp(theirs, given, tuple(map(jnp.asarray, along))))


@pytest.mark.parametrize("name", ["kepler", "power"])
def test_second_derivatives(name: str) -> None:
    f, args = CASES[name]
    given, direction = tuple(map(jnp.asarray, args)), np.cos(args[0])
    _, back = upl.vjp(upl.grad(summed(Own, f)), *args)
    _, wanted = jax.vjp(jax.grad(summed(Jax, f)), *given)
    close(back(direction), wanted(jnp.asarray(direction)), rtol=1e-9)


@pytest.mark.parametrize("engine", ["token", "native"], indirect=True)
@pytest.mark.parametrize("f", [kepler, power])
def test_on_other_engines(engine: str, f: Callable[..., Any]) -> None:
    args = (M, E) if f is kepler else (A, X)
    given = tuple(map(jnp.asarray, args))
    close(upl.function(of(Own, f))(*args), f(Jax, *given))
    close(upl.grad(summed(Own, f))(*args), jax.grad(summed(Jax, f))(*given))
    along = tuple(np.ones_like(a) for a in args)
    close(upl.jvp(summed(Own, f), args, along), jax.jvp(summed(Jax, f), given, tuple(map(jnp.asarray, along))))


def test_the_loop_of_jax() -> None:
    """`jax.lax.while_loop` itself, for values and forward mode; mapped, each example has rounds of its own."""

    class Lax(Jax):
        loop = staticmethod(jax.lax.while_loop)

    along = (np.ones_like(A), np.array([1.0, -1.0]))
    close(upl.jvp(of(Own, power), (A, X), along), jax.jvp(of(Lax, power), (jnp.asarray(A), jnp.asarray(X)), along))
    xs = np.array([X, [-0.4, 1.0], [1.0, 0.28], [-0.1, 0.5]])
    many = upl.vmap(of(Own, power), in_axes=(None, 0))(A, xs)
    close(many, jax.vmap(of(Lax, power), in_axes=(None, 0))(jnp.asarray(A), jnp.asarray(xs)))
    assert len(set(many[2])) > 2, "the rounds differ"
    one = jax.vmap(of(Lax, kepler))(jnp.asarray(M), jnp.asarray(E))
    close(upl.function(of(Own, kepler))(M, E), one)
    close(upl.vmap(upl.grad(of(Own, kepler)))(M, E), jax.vmap(jax.grad(kepler_in_turns))(M, E))


def kepler_in_turns(m: Any, e: Any) -> Any:
    """More rounds than any needs."""
    u = m
    for _ in range(12):
        u = u - (u - e * jnp.sin(u) - m) / (1 - e * jnp.cos(u))
    return u


def test_each_element_takes_its_own_rounds() -> None:
    """Whole numbers are exact; a node fires once for each round, and once to see that it was the last one."""
    n = np.array([[1.0, 7.0, 27.0], [2.0, 3.0, 4.0]])
    wanted = np.array([[0, 16, 111], [1, 7, 2]])
    f = upl.function(of(Own, collatz))
    np.testing.assert_array_equal(f(n), wanted)
    np.testing.assert_array_equal(collatz(Own, n), wanted)
    p = f.program(n)
    run = upl.compile(p, engine="interp")
    run(**dict.fromkeys(p.inputs, n))
    (rounds,) = (count for name, count in run.stats["firings"].items() if name.endswith("_while"))
    assert rounds == np.sum(wanted + 1)


def test_together() -> None:
    """With one condition every element goes round as often: what no round reads is not carried, and no bound is stated."""
    f = upl.function(lambda x, y: upl.while_loop(lambda s: np.max(s[0]) < 100, lambda s: (s[0] * 2, y), (x, x))[0])
    p = f.program(X, X)
    assert "0<=k" in str(p) and "y" not in p.inputs
    np.testing.assert_array_equal(f(X, X), X * 128)


def test_writing_into_the_state() -> None:
    """As into any array; the arguments stay as they were."""

    def f(x: Any, k: Any) -> Any:
        def body(s: Any) -> Any:
            z = np.zeros_like(s)
            z[1] = s[0] * 3
            s[1:] += z[1]
            s[0] = s[1] - z[1] + k
            return s

        return upl.while_loop(lambda s: np.sum(s) < 50, body, x), x

    given = X.copy()
    y = given.copy()
    while np.sum(y) < 50:
        y = np.array([y[1] + 0.5, y[1] + 3 * y[0]])
    close(upl.function(f)(given, 0.5), (y, X))
    close(f(given, 0.5), (y, X))
    upl.check_grads(lambda x, k: f(x, k)[0], (given, 0.5), order=2)


def test_in_a_static_graph() -> None:
    """`call_op` takes the function's statements over, and gradients go through them."""
    from upl_mlir.frontend import graph as ad

    m, e, a, x = (ad.Variable(n) for n in "meax")
    u, p = ad.call_op(of(Own, kepler), m, e), ad.call_op(lambda a, x: power(Own, a, x)[0], a, x)
    total = ad.sum_op(u) + ad.sum_op(p)
    found = ad.Executor([u, p, *ad.gradients(total, [e, a])], engine="interp").run({m: M, e: E, a: A, x: X})
    slopes = jax.grad(lambda e: jnp.sum(kepler(Jax, jnp.asarray(M), e)))(jnp.asarray(E))
    turns = jax.grad(lambda a: jnp.sum(power(Jax, a, jnp.asarray(X))[0]))(jnp.asarray(A))
    close(found, [kepler(Jax, M, E), power(Jax, A, X)[0], slopes, turns])


def test_single_precision() -> None:
    f = upl.function(of(Own, power))
    found = f(A.astype(np.float32), X.astype(np.float32))
    assert found[0].dtype == np.float32
    np.testing.assert_allclose(found[0], power(Own, A, X)[0], rtol=1e-5)


def test_errors_of_ordinary_loops() -> None:
    """The same as those of traced ones."""
    for cond, body, init, code in [
        (lambda s: s[0] < 5, lambda s: s + 1, A, "UPL1931"),
        (lambda s: np.sum(s) < 50, lambda s: s[:, None] + A, X, "UPL1931"),
        (lambda s: s[0] < 5, lambda s: s[0], (1.0, 2.0), "UPL1931"),
        (lambda s: (s, s), lambda s: s, X, "UPL1934"),
        (lambda s: "yes", lambda s: s, X, "UPL1934"),
    ]:
        with pytest.raises(upl.UplError, match=code):
            upl.while_loop(cond, body, init)
