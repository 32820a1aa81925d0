"""Elements that arrays of numbers choose, in traced functions: values, derivatives of first and second order against JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

jax = pytest.importorskip("jax", reason="JAX, the oracle, is not installed: pip install 'upl-mlir[oracle]'")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy

RNG: Any = np.random.default_rng(3)
X, W, U = RNG.normal(size=(5, 3)), RNG.normal(size=(3, 2)), RNG.normal(size=(4, 3))
K = np.array([4, 0, -1, 2])


def attended(x: Any, k: Any, w: Any) -> Any:
    """Rows are chosen, changed, and added where they came from."""
    return x.at[k].add(np.tanh(x[k] @ w @ w.T))


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "rows": (lambda x, k, w: x[k] @ w, lambda x, k, w: x[k] @ w, (X, K, W)),
    "columns": (lambda x, k: np.take(x, k, axis=1), lambda x, k: jnp.take(x, k, axis=1), (X, np.array([[2, 0], [1, 1]]))),
    "last axis": (lambda x, k: x[..., k] * 2, lambda x, k: x[..., k] * 2, (X, np.array([2, 2]))),
    "one row": (lambda x, k: x[k], lambda x, k: x[k], (X, np.array(3))),
    "flat": (np.take, jnp.take, (X, np.array([14, 0, 7]))),
    "a list": (lambda x: x[[0, -2]], lambda x: x[jnp.array([0, -2])], (X,)),
    "a constant": (lambda u: X[K] * 1 + u[np.array([3, 3, 1, 0])], lambda u: X[K] + u[jnp.array([3, 3, 1, 0])], (U,)),
    "added": (lambda x, k, u: x.at[k].add(u * u), lambda x, k, u: x.at[k].add(u * u), (X, K, U)),
    "one number added": (lambda x, k: (x * x).at[k].add(2.0), lambda x, k: (x * x).at[k].add(2.0), (X, K)),
    "segments": (
        lambda u, k: upl.segment_sum(np.sin(u), k, 6), lambda u, k: jax.ops.segment_sum(jnp.sin(u), k, 6),
        (U, np.array([1, 5, 1, 0])),
    ),
    "there and back": (attended, lambda x, k, w: x.at[k].add(jnp.tanh(x[k] @ w @ w.T)), (X, K, W)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_against_jax(name: str) -> None:
    f, g, args = CASES[name]
    given = tuple(map(jnp.asarray, args))
    np.testing.assert_allclose(upl.function(f)(*args), g(*given), rtol=1e-13, atol=1e-14)

    def ours(*a: Any) -> Any:
        return np.sum(np.sin(f(*a)))

    def theirs(*a: Any) -> Any:
        return jnp.sum(jnp.sin(g(*a)))

    np.testing.assert_allclose(upl.grad(ours)(*args), jax.grad(theirs)(*given), rtol=1e-10, atol=1e-12)
    twice = upl.grad(lambda *a: np.sum(upl.grad(ours)(*a) ** 2))(*args)
    np.testing.assert_allclose(twice, jax.grad(lambda *a: jnp.sum(jax.grad(theirs)(*a) ** 2))(*given), rtol=1e-8, atol=1e-10)


def test_many_at_once() -> None:
    """`vmap` over the array, over the numbers that choose, and over both."""
    ks, xs = np.array([[4, 0], [1, 1], [2, 3]]), RNG.normal(size=(3, 5, 3))

    def f(x: Any, k: Any) -> Any:
        return np.sum(np.tanh(x[k]))

    def g(x: Any, k: Any) -> Any:
        return jnp.sum(jnp.tanh(x[k]))

    for axes, x, k in (((None, 0), X, ks), ((0, None), xs, ks[0]), ((0, 0), xs, ks)):
        given = (jnp.asarray(x), jnp.asarray(k))
        np.testing.assert_allclose(upl.vmap(f, in_axes=axes)(x, k), jax.vmap(g, in_axes=axes)(*given), rtol=1e-13)
        slopes = upl.vmap(upl.grad(f), in_axes=axes)(x, k)
        np.testing.assert_allclose(slopes, jax.vmap(jax.grad(g), in_axes=axes)(*given), rtol=1e-10, atol=1e-12)


def test_segment_sum_of_numpy_arrays() -> None:
    found = upl.segment_sum(U, np.array([1, 5, 1, 0]), 6)
    np.testing.assert_allclose(found, jax.ops.segment_sum(jnp.asarray(U), jnp.array([1, 5, 1, 0]), 6), rtol=1e-15)


def test_a_number_out_of_bounds_ends_the_run() -> None:
    with pytest.raises(upl.UplError, match=r"UPL160[13]"):
        upl.function(lambda x, k: x[k])(X, np.array([0, 5]))


def test_the_program_says_what_it_does() -> None:
    text = str(upl.function(lambda x, k: x[k]).program(X, K))
    assert "##" in text and "_pick" in text and "int(" in text
