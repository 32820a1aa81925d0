"""Python functions for the tests of the tracing front end: each takes numpy, or JAX's, as its first argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A function that returns one number, its arguments, and those that one differentiates by."""

    f: Function
    args: tuple[Any, ...]
    argnums: tuple[int, ...]


def normal(*shape: int, seed: int = 0, low: float | None = None) -> Any:
    """Random numbers; those above `low`, if it is given."""
    x = numpy.random.default_rng([seed, *shape]).normal(size=shape)
    return x if low is None else low + numpy.abs(x)


CASES: dict[str, Case] = {}


def case(*args: Any, by: tuple[int, ...] = (0,)) -> Callable[[Function], Function]:
    """Register a function with its arguments."""

    def register(f: Function) -> Function:
        CASES[f.__name__] = Case(f, args, by)
        return f

    return register


@case(normal(4, 3), normal(3, 5, seed=1), normal(5, seed=2), by=(0, 1, 2))
def affine_layer(np: Any, x: Any, w: Any, b: Any) -> Any:
    return np.sum(np.tanh(x @ w + b) ** 2)


LAYERS = [(normal(4, 5), normal(5)), (normal(5, 3, seed=1), normal(3)), (normal(3, 2, seed=2), normal(2))]


@case(LAYERS, normal(6, 4, seed=3), normal(6, 2, seed=4), by=(0, 1))
def mlp(np: Any, layers: Any, x: Any, y: Any) -> Any:
    *hidden, (w_out, b_out) = layers
    for w, b in hidden:
        x = np.maximum(x @ w + b, 0)
    return np.mean((x @ w_out + b_out - y) ** 2)


@case(normal(5, 4), numpy.array([0, 3, 1, 2, 3]))
def cross_entropy(np: Any, logits: Any, labels: Any) -> Any:
    one_hot = np.stack([np.where(np.arange(4) == k, 1.0, 0.0) for k in range(4)])
    targets = np.where(labels[:, None] == np.arange(4), 1.0, 0.0) @ one_hot
    shifted = logits - np.max(logits, axis=1, keepdims=True)
    return -np.mean(np.sum(targets * (shifted - np.log(np.sum(np.exp(shifted), axis=1, keepdims=True))), axis=1))


@case(normal(9), by=(0,))
def jacobi(np: Any, u: Any) -> Any:
    for _ in range(4):
        u = np.concatenate([u[:1], (u[:-2] + u[1:-1] + u[2:]) / 3, u[-1:]])
    return np.sum(u**2)


@case(normal(5, 6), normal(5, 6, seed=1), by=(0, 1))
def jacobi_2d(np: Any, u: Any, rhs: Any) -> Any:
    for _ in range(3):
        inner = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - rhs[1:-1, 1:-1]) / 4
        u = u.at[1:-1, 1:-1].set(inner) if hasattr(u, "at") else u
    return np.sum(u * u)


@case(normal(5, 2), normal(5, 5, seed=1, low=0.5))
def multidimensional_scaling(np: Any, x: Any, distance: Any) -> Any:
    difference = x[:, None, :] - x[None, :, :]
    squared = np.sum(difference**2, axis=-1)
    apart = 1 - np.eye(5)
    d = np.sqrt(np.where(apart > 0, squared, 1.0))
    return np.sum(apart * (d - distance) ** 2) / 2


@case(
    {"w": normal(3, 8), "u": normal(2, 8, seed=1), "b": normal(8, seed=2)}, normal(4, 3, seed=3), normal(2, seed=4),
    by=(0, 1),
)  # fmt: skip
def lstm(np: Any, weights: Any, xs: Any, target: Any) -> Any:
    def sigmoid(x: Any) -> Any:
        return 1 / (1 + np.exp(-x))

    h = c = np.zeros(2)
    for t in range(4):
        gates = xs[t] @ weights["w"] + h @ weights["u"] + weights["b"]
        i, f, o, g = (gates[2 * k : 2 * k + 2] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    return np.sum((h - target) ** 2)


@case(normal(4, 3), normal(5, 3, seed=1), normal(5, 2, seed=2), by=(0, 1, 2))
def attention(np: Any, q: Any, k: Any, v: Any) -> Any:
    scores = np.einsum("id,jd->ij", q, k) / 3**0.5
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.sum((e / e.sum(axis=-1, keepdims=True) @ v) ** 3)


@case(normal(1, 2, 6, 6), normal(2, 2, 3, 3, seed=1), by=(0, 1))
def convolution(np: Any, image: Any, kernel: Any) -> Any:
    out = 0.0
    for p in range(3):
        for q in range(3):
            out = out + np.einsum("ncij,kc->nkij", image[:, :, p : p + 4, q : q + 4], kernel[:, :, p, q])
    pooled = out.reshape(1, 2, 2, 2, 2, 2).mean(axis=(3, 5))
    return np.sum(np.tanh(pooled))


@case(normal(3, 4), normal(3, seed=1), normal(4, seed=2), by=(0, 1, 2))
def layer_norm(np: Any, x: Any, a: Any, b: Any) -> Any:
    centred = x - x.mean(axis=1, keepdims=True)
    scaled = centred / np.sqrt(np.var(x, axis=1, keepdims=True) + 1e-5)
    return np.sum((scaled * b) ** 2 * a[:, None])


@case(normal(6), by=(0,))
def rosenbrock(np: Any, x: Any) -> Any:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


@case(normal(5), normal(5, 5, seed=1), by=(0, 1))
def quadratic_form(np: Any, x: Any, a: Any) -> Any:
    return x @ a @ x + np.trace(a) * np.linalg.norm(x)


@case(normal(8, 3), normal(3, seed=1), numpy.array([0, 1, 1, 0, 1, 0, 0, 1]), by=(1,))
def logistic_regression(np: Any, x: Any, w: Any, y: Any) -> Any:
    z = x @ w
    return np.sum(np.log1p(np.exp(-np.abs(z))) + np.maximum(z, 0) - y * z)


@case(normal(7, seed=5), by=(0,))
def recurrence(np: Any, x: Any) -> Any:
    total = 0.0
    state = x[0]
    for k in range(1, 7):
        state = np.sin(state) * x[k] + state / k
        total += state**2
    return total


@case(normal(3, 3), normal(3, seed=1), by=(0, 1))
def power_iteration(np: Any, a: Any, v: Any) -> Any:
    for _ in range(4):
        v = a @ v
        v = v / np.sqrt(np.dot(v, v))
    return v @ a @ v


@case(normal(3, 4, seed=8, low=0.2), by=(0,))
def elementary(np: Any, x: Any) -> Any:
    one = np.sqrt(x) + np.log(x) * np.cos(x) - np.exp(-x) / (1 + x) + np.arctan2(x, 2.0) + np.log1p(x) * np.expm1(x)
    two = np.sinh(x) - np.cosh(x) / 2 + np.power(x, 2.5) + np.minimum(x, 0.7) * np.sign(x - 0.5) + np.arctan(x) ** -2
    return np.sum(one * two + np.tan(x / 3) + np.logaddexp(x, 1 - x) + np.square(x) ** 2 + np.abs(x - 1))


@case(normal(4, 6), by=(0,))
def shapes(np: Any, x: Any) -> Any:
    y = np.concatenate([x.reshape(6, 4).T, x[:, ::-1]], axis=1).reshape(3, 16)
    z = np.stack([y[0, ::2], y[1, 1::2], y[2, 3:11]], axis=1)
    w = np.transpose(z.reshape(2, 4, 3), (2, 0, 1))
    return np.sum(np.squeeze(w[:, None]) * np.arange(24.0).reshape(3, 2, 4)) + np.sum(np.outer(x[0], x[1]) ** 2)


@case(normal(3, 4), normal(2, 4, seed=1), normal(3, 2, 4, seed=2), by=(0, 1, 2))
def triple_product(np: Any, a: Any, b: Any, c: Any) -> Any:
    return np.einsum("ik,jk,ijk->", a, b, c) + np.einsum("ik,jk->ij", a, b).sum() ** 2 + np.tensordot(a, c, ([0], [0])).sum()


@case(normal(6), normal(4, seed=1), by=(0, 1))
def gaussian_kernel(np: Any, x: Any, y: Any) -> Any:
    return np.log(np.sum(np.exp(-((x[:, None] - y) ** 2) / 2))) + np.prod(y) * np.max(x) - np.min(x * 2)


@case(normal(5, 5), by=(0,))
def triangular(np: Any, a: Any) -> Any:
    lower = np.tril(a) + np.triu(a, 1) ** 2
    return np.sum(np.diagonal(lower @ a) ** 2) + np.sum(np.cumsum(a, axis=1) ** 2) + np.sum(np.diag(a[0]) * a)


@case(0.7, -1.3, by=(0, 1))
def scalars(np: Any, a: Any, b: Any) -> Any:
    c = a * b - 2 / a
    return np.sin(c) ** 2 + np.where(c > 0, a, b * b) * 3 % 2 - b**3


@case(normal(4, 4), normal(4, seed=1), by=(0, 1))
def gradient_descent(np: Any, a: Any, b: Any) -> Any:
    x = np.zeros_like(b)
    for _ in range(3):
        x = x - 0.1 * (a.T @ (a @ x - b))
    return np.sum((a @ x - b) ** 2)
