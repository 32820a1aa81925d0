"""Models as one writes them in JAX, with arguments, and the positions of those to differentiate by."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

RNG: Any = np.random.default_rng(0)


def _n(*shape: int) -> Any:
    return RNG.normal(size=shape)


def mlp(w1: Any, b1: Any, w2: Any, b2: Any, x: Any, y: Any) -> Any:
    """A perceptron and its cross entropy."""
    h = jax.nn.relu(x @ w1 + b1)
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(h @ w2 + b2) * y, axis=1))


def lenet(k1: Any, k2: Any, w: Any, x: Any) -> Any:
    """Two convolutions with pools, of averages and of maxima."""
    h = jnp.tanh(jax.lax.conv_general_dilated(x, k1, (1, 1), "SAME"))
    h = jax.lax.reduce_window(h, 0.0, jax.lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4
    h = jnp.tanh(jax.lax.conv_general_dilated(h, k2, (1, 1), "VALID"))
    h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return jnp.sum(jax.nn.softmax(h.reshape(h.shape[0], -1) @ w) ** 2)


def gru(wz: Any, uz: Any, wr: Any, ur: Any, wh: Any, uh: Any, h0: Any, xs: Any) -> Any:
    """A recurrent network along a sequence."""

    def cell(h: Any, x: Any) -> Any:
        z = jax.nn.sigmoid(x @ wz + h @ uz)
        r = jax.nn.sigmoid(x @ wr + h @ ur)
        h = (1 - z) * h + z * jnp.tanh(x @ wh + (r * h) @ uh)
        return h, h

    h, hs = jax.lax.scan(cell, h0, xs)
    return jnp.sum(h**2) + jnp.mean(hs)


def attention(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, g: Any, b: Any) -> Any:
    """Self-attention after layer normalisation."""
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    h = (x - mean) / jnp.sqrt(var + 1e-5) * g + b
    q, k, v = h @ wq, h @ wk, h @ wv
    return jnp.sum((x + jax.nn.softmax(q @ k.T / jnp.sqrt(q.shape[-1])) @ v @ wo) ** 2)


def runge_kutta(y0: Any, p: Any) -> Any:
    """200 steps of the Lorenz system."""

    def f(y: Any) -> Any:
        return jnp.stack([p[0] * (y[1] - y[0]), y[0] * (p[1] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]])

    def step(y: Any, _: Any) -> Any:
        h = 0.005
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + f(y + h * k3)), None

    return jnp.sum(jax.lax.scan(step, y0, None, length=200)[0] ** 2)


def jacobi(u: Any) -> Any:
    """20 steps of a relaxation."""

    def step(_: Any, u: Any) -> Any:
        return u.at[1:-1, 1:-1].set(0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]))

    return jnp.sum(jax.lax.fori_loop(0, 20, step, u) ** 2)


def transformer(x: Any, emb: Any, wqkv: Any, wo: Any, w1: Any, w2: Any) -> Any:
    """A block with two heads and a mask."""
    x = x @ emb
    length, width = x.shape
    q, k, v = jnp.moveaxis((x @ wqkv).reshape(length, 3, 2, width // 2), 1, 0)
    s = jnp.einsum("thd,shd->hts", q, k) / np.sqrt(width // 2)
    a = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((length, length))) > 0, s, -1e9), axis=-1)
    x = x + jnp.einsum("hts,shd->thd", a, v).reshape(length, width) @ wo
    return jnp.mean(jax.nn.logsumexp(x + jax.nn.gelu(x @ w1) @ w2, axis=-1))


def kalman(a: Any, h: Any, q: Any, r: Any, zs: Any) -> Any:
    """A Kalman filter, with the inverse of the innovation's covariance."""

    def step(carry: Any, z: Any) -> Any:
        m, p = carry
        m, p = a @ m, a @ p @ a.T + q
        gain = p @ h.T @ jnp.linalg.inv(h @ p @ h.T + r)
        y = z - h @ m
        return (m + gain @ y, p - gain @ h @ p), jnp.sum(y**2)

    n = a.shape[0]
    (m, _), e = jax.lax.scan(step, (jnp.zeros(n), jnp.eye(n)), zs)
    return jnp.sum(e) + jnp.sum(m**2)


def physics(w1: Any, b1: Any, w2: Any, xs: Any) -> Any:
    """The residual of u'' + u = 0, of a network: derivatives inside the function."""

    def net(x: Any) -> Any:
        return jnp.tanh(x * w1 + b1) @ w2

    return jnp.mean(jax.vmap(lambda x: jax.grad(jax.grad(net))(x) + net(x))(xs) ** 2)


def autoencoder(we: Any, wm: Any, wv: Any, wd: Any, x: Any, eps: Any) -> Any:
    """The loss of a variational autoencoder, the noise given."""
    h = jnp.tanh(x @ we)
    m, v = h @ wm, h @ wv
    out = jax.nn.sigmoid((m + jnp.exp(v / 2) * eps) @ wd)
    return -jnp.mean(x * jnp.log(out) + (1 - x) * jnp.log1p(-out)) - 0.5 * jnp.mean(1 + v - m**2 - jnp.exp(v))


_CELL = tuple(_n(4, 5) if k % 2 == 0 else 0.3 * _n(5, 5) for k in range(6))
MODELS: dict[str, tuple[Any, tuple[Any, ...], tuple[int, ...]]] = {
    "mlp": (mlp, (_n(5, 6), _n(6), _n(6, 3), _n(3), _n(8, 5), np.eye(3)[RNG.integers(0, 3, 8)]), (0, 1, 2, 3)),
    "lenet": (lenet, (_n(3, 1, 3, 3), _n(4, 3, 3, 3), _n(36, 5), _n(2, 1, 16, 16)), (0, 1, 2)),
    "gru": (gru, (*_CELL, _n(5), _n(7, 4)), (0, 1, 2, 3, 4, 5, 6)),
    "attention": (attention, (_n(6, 4), *(_n(4, 4) for _ in range(4)), _n(4), _n(4)), (0, 1, 2, 3, 4, 5, 6)),
    "runge_kutta": (runge_kutta, (_n(3), np.array([10.0, 28.0, 8 / 3])), (0, 1)),
    "jacobi": (jacobi, (_n(8, 9),), (0,)),
    "transformer": (
        transformer, (np.eye(5)[RNG.integers(0, 5, 6)], _n(5, 8), _n(8, 24), _n(8, 8), _n(8, 16), _n(16, 8)),
        (1, 2, 3, 4, 5),
    ),
    "kalman": (kalman, (0.4 * _n(3, 3), _n(2, 3), np.eye(3), np.eye(2), _n(6, 2)), (0, 1)),
    "physics": (physics, (_n(6), _n(6), _n(6), _n(5)), (0, 1, 2)),
    "autoencoder": (
        autoencoder, (_n(6, 5), _n(5, 2), _n(5, 2), _n(2, 6), RNG.random((4, 6)), _n(4, 2)), (0, 1, 2, 3),
    ),
}  # fmt: skip
