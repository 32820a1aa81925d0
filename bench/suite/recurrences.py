"""Functions of JAX whose rounds have a state of several dimensions, or read what data choose, and two without rounds."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

scan = jax.lax.scan


def linear_attention(q: Any, k: Any, v: Any) -> Any:
    """Each row meets the sum of the outer products so far."""
    q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1

    def step(c: Any, rows: Any) -> Any:
        (s, z), (q, k, v) = c, rows
        s, z = s + k[:, None] * v[None], z + k
        return (s, z), (q @ s) / (q @ z)

    _, out = scan(step, (jnp.zeros((k.shape[1], v.shape[1])), jnp.zeros(k.shape[1])), (q, k, v))
    return jnp.sum(out**2)


def selective_scan(x: Any, rates: Any, a: Any, b: Any, c: Any) -> Any:
    """States that fade at rates of their own in each step."""
    rates = jax.nn.softplus(rates)

    def step(h: Any, rows: Any) -> Any:
        x, r, b, c = rows
        h = h * jnp.exp(-r[:, None] * jnp.exp(a)) + (r * x)[:, None] * b[None]
        return h, h @ c

    return jnp.sum(scan(step, jnp.zeros(a.shape), (x, rates, b, c))[1] ** 2)


def ctc(x: Any, labels: Any) -> Any:
    """The loss of all ways to read labels from rows of scores, with blanks between them."""
    scores, n = jax.nn.log_softmax(x), 2 * labels.shape[0] + 1
    wanted = jnp.zeros(n, int).at[1::2].set(labels)
    two = jnp.concatenate([jnp.zeros(2, bool), (wanted[2:] != wanted[:-2]) & (wanted[2:] != 0)])
    none = jnp.full(2, -1e9)

    def step(a: Any, row: Any) -> Any:
        one_back, two_back = jnp.concatenate([none[:1], a[:-1]]), jnp.concatenate([none, a[:-2]])
        ways = jnp.logaddexp(jnp.logaddexp(a, one_back), jnp.where(two, two_back, -1e9))
        return ways + row[wanted], None

    first = jnp.full(n, -1e9).at[0].set(scores[0, 0]).at[1].set(scores[0, wanted[1]])
    a, _ = scan(step, first, scores[1:])
    return -jnp.logaddexp(a[-1], a[-2])


def embedding_rnn(table: Any, w: Any, ids: Any) -> Any:
    """A recurrent network that looks up a row in each step."""

    def step(h: Any, k: Any) -> Any:
        h = jnp.tanh(h @ w + table[k])
        return h, h

    return jnp.sum(scan(step, jnp.zeros(w.shape[0]), ids)[1] ** 2)


def experts(x: Any, gate: Any, w: Any) -> Any:
    """A mixture of products, weighted for each row."""
    weights = jax.nn.softmax(x @ gate)
    return jnp.sum(jnp.einsum("be,bef->bf", weights, jnp.einsum("bd,edf->bef", x, w)) ** 2)


def production(k: Any, l: Any, r: Any) -> Any:
    """Powers of sums of powers."""
    return jnp.sum((0.4 * k**r + 0.6 * l**r) ** (1 / r))


def arguments(rng: np.random.Generator) -> dict[str, tuple[Any, tuple[Any, ...], tuple[int, ...]]]:
    """The functions by their titles, with arguments and the numbers of those that have derivatives."""

    def n(*shape: int) -> Any:
        return rng.normal(size=shape)

    def u(*shape: int) -> Any:
        return rng.random(shape)

    return {
        "linear attention": (linear_attention, (n(128, 32), n(128, 32), n(128, 32)), (0, 1, 2)),
        "selective scan": (selective_scan, (n(64, 32), n(64, 32), n(32, 8), n(64, 8), n(64, 8)), (0, 1, 2, 3, 4)),
        "CTC loss": (ctc, (n(50, 20), rng.integers(1, 20, 10)), (0,)),
        "embedding in a loop": (embedding_rnn, (n(1000, 32), n(32, 32) / 6, rng.integers(0, 1000, 100)), (0, 1)),
        "mixture of experts": (experts, (n(64, 32), n(32, 4), n(4, 32, 32) / 6), (0, 1, 2)),
        "production": (production, (u(500) + 0.5, u(500) + 0.5, 0.3 * u(500) + 0.3), (0, 1, 2)),
    }
