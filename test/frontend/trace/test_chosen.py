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


def recurrent(name: str) -> Callable[..., Any]:
    """Indices in the rounds of a loop that is traced once: `f(scan, numpy's or JAX's functions, segment_sum)(*arrays)`."""

    def rows(scan: Any, np: Any, _: Any) -> Callable[..., Any]:
        return lambda x, k: scan(lambda h, t: (np.tanh(h + x[t]), h), np.zeros(3), k)[1]

    def segments(scan: Any, np: Any, sum_: Any) -> Callable[..., Any]:
        return lambda r, i, j: scan(lambda r, _: (0.1 + sum_(np.sin(r[i]), j, 5), 0.0), r, None, length=3)[0]

    def added(scan: Any, np: Any, _: Any) -> Callable[..., Any]:
        return lambda x, k, u: scan(lambda h, z: (0.9 * h.at[z[0]].add(z[1] * h[0]), h[z[0]]), x[:, 0], (k, u))[0]

    def twice(scan: Any, np: Any, _: Any) -> Callable[..., Any]:
        def outer(h: Any, k: Any) -> Any:
            return scan(lambda g, t: (np.cos(g * h[t]), 0.0), h, k)[0], 0.0

        return lambda x, k: scan(outer, x[:, 0], k)[0]

    return {"rows": rows, "segments": segments, "added": added, "twice": twice}[name]


def cases_in_loops() -> dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]]:
    ends = np.array([0, 1, 2, 3, 4, 0, 2]), np.array([1, 2, 3, 4, 0, 2, 1])
    given = {
        "rows": (X, K), "segments": (X[:, 0], *ends), "added": (X, K[:, None] + np.array([0, 0]), U[:, :2]),
        "twice": (X, np.array([[1, -1], [4, 0], [2, 2]])),
    }  # fmt: skip
    return {
        f"{name}, in a loop": (
            recurrent(name)(upl.scan, np, upl.segment_sum), recurrent(name)(jax.lax.scan, jnp, jax.ops.segment_sum), args,
        )
        for name, args in given.items()
    }  # fmt: skip


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
    **{
        name: (f, f, (X, *ks))
        for name, f, ks in (
            ("elements", lambda x, i, j: x[i, j], (K, np.array([2, 0, 1, -1]))),
            ("elements, one below the other", lambda x, i, j: x[i[:, None], j], (K, np.array([2, 0]))),
            ("of one row", lambda x, j: x[1, j] * 2, (np.array([2, 0, 0]),)),
            ("of some rows", lambda x, j: x[1:4, j] * 2, (np.array([2, 0, 0]),)),
            ("elements added", lambda x, i, j: x.at[i, j].add(x[0, 0]), (K, np.array([2, 0, 1, -1]))),
            ("added to one row", lambda x, j: x.at[2, j].add(x[0, j]), (np.array([2, 0, 0]),)),
        )
    },
    **cases_in_loops(),
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
    if name == "segments, in a loop":  # no order of the sums' tokens is found for second derivatives
        with pytest.raises(upl.UplError, match="UPL1309"):
            upl.grad(lambda *a: np.sum(upl.grad(ours)(*a) ** 2))(*args)
        return
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


@pytest.mark.parametrize("word", ["max", "min"])
def test_the_greatest_and_the_least_of_segments(word: str) -> None:
    """As in JAX, also where a segment is empty, and of arrays of numpy; the derivative goes to the one that was taken."""
    ids = np.array([1, 5, 1, 0])
    ours, theirs = getattr(upl, f"segment_{word}"), getattr(jax.ops, f"segment_{word}")
    expected = theirs(jnp.asarray(U), jnp.asarray(ids), 7)
    np.testing.assert_array_equal(upl.function(lambda u, k: ours(u, k, 7))(U, ids), expected)
    np.testing.assert_array_equal(ours(U, ids, 7), expected)
    whole = np.array([3, -2, 5, 1])
    np.testing.assert_array_equal(ours(whole, ids, 7), theirs(jnp.asarray(whole), jnp.asarray(ids), 7))
    truths = ours(np.array([True, False, True, False]), ids, 3 + 3)
    assert truths.dtype == bool and truths[1] and truths[2] == (word == "min"), "an empty segment has what changes nothing"
    found = upl.grad(lambda u, k: (ours(u, k, 7)[np.array([1, 5])] ** 3).sum())(U, ids)
    taken = np.zeros_like(U)
    rows = np.array([0, 2])[getattr(U[[0, 2]], f"arg{word}")(0)]
    taken[rows, [0, 1, 2]] = 3 * U[rows, [0, 1, 2]] ** 2
    taken[1] = 3 * U[1] ** 2
    np.testing.assert_allclose(found, taken, rtol=1e-13)


def test_segment_sum_of_numpy_arrays() -> None:
    found = upl.segment_sum(U, np.array([1, 5, 1, 0]), 6)
    np.testing.assert_allclose(found, jax.ops.segment_sum(jnp.asarray(U), jnp.array([1, 5, 1, 0]), 6), rtol=1e-15)


Y, I, J = RNG.normal(size=(4, 3, 5)), np.array([3, 0, -1]), np.array([[2, -2, 0], [1, 1, 2]])
KEYS: dict[str, Callable[..., Any]] = {
    "two": lambda i, j: (i, j), "around a slice": lambda i, j: (i, slice(None), j + 2), "behind": lambda i, j: (..., j, j),
    "an integer before": lambda i, j: (1, j), "an integer apart": lambda i, j: (1, slice(None), j),
    "a part before": lambda i, j: (slice(1, 3), j), "all": lambda i, j: (i, j, i),
    "one and parts": lambda i, j: (i, slice(2), slice(1, None, 2)),
}  # fmt: skip


@pytest.mark.parametrize("engine", ["interp", "native"])
@pytest.mark.parametrize("key", KEYS)
def test_keys_as_in_numpy(key: str, engine: Any) -> None:
    """Where the chosen elements stand, which they are, and what is added to them."""
    k = KEYS[key]
    plain = Y[k(I, J)]
    np.testing.assert_array_equal(upl.function(lambda y, i, j: y[k(i, j)] + 0, engine=engine)(Y, I, J), plain)
    more, w = Y.copy(), RNG.normal(size=plain.shape)
    np.add.at(more, k(I, J), w)
    np.testing.assert_allclose(upl.function(lambda y, i, j, w: y.at[k(i, j)].add(w), engine=engine)(Y, I, J, w), more)


@pytest.mark.parametrize("engine", ["interp", "native"])
@pytest.mark.parametrize(("i", "j"), [(0, 5), (1, -6), (4, 0), (-5, 1)])
def test_one_of_several_out_of_bounds_ends_the_run(i: int, j: int, engine: Any) -> None:
    """Each is looked at alone: element (0, 5) of rows of five is not element (1, 0)."""
    f = upl.function(lambda y, i, j: y[i, 0, j] * 2, engine=engine)
    np.testing.assert_array_equal(f(Y, np.array([0, 3]), np.array([4, -5])), Y[[0, 3], 0, [4, -5]] * 2)
    with pytest.raises(upl.UplError, match="UPL16"):
        f(Y, np.array([0, i]), np.array([4, j]))
    with pytest.raises(upl.UplError, match="out of bounds"):
        upl.function(lambda y: y[np.array([0, i]), 0, np.array([4, j])] * 2)(Y)


def test_a_number_out_of_bounds_ends_the_run() -> None:
    with pytest.raises(upl.UplError, match=r"UPL160[13]"):
        upl.function(lambda x, k: x[k])(X, np.array([0, 5]))


def test_the_program_says_what_it_does() -> None:
    text = str(upl.function(lambda x, k: x[k]).program(X, K))
    assert "##" in text and "_pick" in text and "int(" in text


@pytest.mark.parametrize("engine", ["interp", "native"])
def test_a_number_out_of_bounds_in_a_loop_ends_the_run(engine: Any) -> None:
    f = upl.function(recurrent("rows")(upl.scan, np, None))
    p = f.program(X, K)
    with pytest.raises(upl.UplError, match="UPL16"):
        upl.compile(p, engine=engine)(x=X, k=np.array([4, 0, 5, 2]))


def test_none_in_a_loop_that_data_end() -> None:
    def f(x: Any, k: Any) -> Any:
        return upl.while_loop(lambda h: h[0] < 3, lambda h: h + 1 + x[k, 0], x[:, 0])

    with pytest.raises(upl.UplError, match="inside a loop that data end"):
        upl.function(f)(X, K)
