# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Layers: how parameters and state are made, and what is done with them.

A layer is two functions.  *Parameters* are what is trained; *state* is what a layer keeps besides (running averages).  Both
are trees of arrays, None where there are none.  Source of the form: JAX's example library `stax`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from upl_mlir.frontend.trace.position import fail
from upl_mlir.nn import initial
from upl_mlir.nn.functions import convolution, normalise, sizes, windows
from upl_mlir.nn.initial import Initial, Shape

Made = tuple[Any, Any, Shape]
"""Parameters, state, and the shape of one result."""


@dataclass(frozen=True)
class Layer:
    """A layer, or a whole model.

    `make` has a random generator and the shape of one example, without the axis of examples; `run` parameters, state,
    examples along the first axis, and whether they are trained on; it returns results and the new state.
    """

    make: Callable[[np.random.Generator, Shape], Made]
    run: Callable[[Any, Any, Any, bool], tuple[Any, Any]]

    def init(self, rng: int | np.random.Generator, shape: Sequence[int]) -> tuple[Any, Any]:
        """Parameters and state for examples of this shape; `rng` is a seed or a generator.  f64 arrays.

        Raises UplError (UPL1931) for a shape that the layer does not take.
        """
        params, state, _ = self.make(np.random.default_rng(rng), tuple(shape))
        return params, state

    def __call__(self, params: Any, state: Any, x: Any, *, train: bool = False) -> tuple[Any, Any]:
        """The results for the examples `x`, and the state after them."""
        return self.run(params, state, x, train)


def chain(*layers: Layer) -> Layer:
    """One layer after the other; parameters and state are tuples with an entry for each."""

    def make(rng: np.random.Generator, shape: Shape) -> Made:
        params: list[Any] = []
        states: list[Any] = []
        for layer in layers:
            p, s, shape = layer.make(rng, shape)
            params.append(p)
            states.append(s)
        return tuple(params), tuple(states), shape

    def run(params: Any, state: Any, x: Any, train: bool) -> tuple[Any, Any]:
        new: list[Any] = []
        for layer, p, s in zip(layers, params, state, strict=True):
            x, s = layer.run(p, s, x, train)
            new.append(s)
        return x, tuple(new)

    return Layer(make, run)


def stateless(make: Callable[[np.random.Generator, Shape], tuple[Any, Shape]], run: Callable[[Any, Any], Any]) -> Layer:
    """A layer with parameters alone."""

    def made(rng: np.random.Generator, shape: Shape) -> Made:
        params, out = make(rng, shape)
        return params, None, out

    return Layer(made, lambda p, s, x, _: (run(p, x), s))


def activation(f: Callable[[Any], Any]) -> Layer:
    """A function of each element, as a layer."""
    return stateless(lambda _, shape: (None, shape), lambda _, x: f(x))


relu = activation(lambda x: np.where(x > 0, x, 0))
"""max(x, 0), with the derivative 0 at 0."""
tanh = activation(np.tanh)
flatten = stateless(
    lambda _, shape: (None, (int(np.prod(shape)),)), lambda _, x: np.reshape(x, (x.shape[0], int(np.prod(x.shape[1:]))))
)
"""All numbers of an example along one axis."""


def dense(units: int, *, bias: bool = True, weights: Initial = initial.lecun) -> Layer:
    """``x @ w + b`` along the last axis: [..., features] to [..., units]."""

    def make(rng: np.random.Generator, shape: Shape) -> tuple[Any, Shape]:
        need_axes("dense", shape, 1)
        w = {"w": weights(rng, (shape[-1], units))}
        return (w | {"b": np.zeros(units)} if bias else w), (*shape[:-1], units)

    return stateless(make, lambda p, x: x @ p["w"] + p["b"] if bias else x @ p["w"])


def conv(
    filters: int, size: int | Sequence[int], *, stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = "valid", bias: bool = True, weights: Initial = initial.he,
) -> Layer:  # fmt: skip
    """`nn.convolution` with kernels of an odd or even `size`: [n, channels, *spatial] to [n, filters, *places]."""

    def make(rng: np.random.Generator, shape: Shape) -> tuple[Any, Shape]:
        need_axes("conv", shape, 2)
        channels, *spatial = shape
        kernels = weights(rng, (filters, channels, *sizes(size, len(spatial), "the size of a kernel")))
        p = {"w": kernels, "b": np.zeros(filters)} if bias else {"w": kernels}
        return p, _of_one(lambda x: run(p, x), shape)

    def run(p: Any, x: Any) -> Any:
        y = convolution(x, p["w"], stride, padding)
        return y + np.reshape(p["b"], (filters, *(1 for _ in y.shape[2:]))) if bias else y

    return stateless(make, run)


def max_pool(size: int | Sequence[int], stride: int | Sequence[int] | None = None) -> Layer:
    """The maximum of each window; windows stand side by side, unless `stride` says how far apart."""
    return _pool("max_pool", np.max, size, stride)


def mean_pool(size: int | Sequence[int], stride: int | Sequence[int] | None = None) -> Layer:
    """The mean of each window; windows stand side by side, unless `stride` says how far apart."""
    return _pool("mean_pool", np.mean, size, stride)


def _pool(what: str, fold: Callable[..., Any], size: Any, stride: Any) -> Layer:
    def run(x: Any) -> Any:
        count = x.ndim - 2
        shape = sizes(size, count, "the size of a window")
        apart = shape if stride is None else sizes(stride, count, "the stride")
        return fold(windows(x, shape, apart), axis=tuple(range(x.ndim, x.ndim + count)))

    def make(_: np.random.Generator, shape: Shape) -> tuple[Any, Shape]:
        need_axes(what, shape, 2)
        return None, _of_one(run, shape)

    return stateless(make, lambda _, x: run(x))


def layer_norm(epsilon: float = 1e-5) -> Layer:
    """Each example normalised along its last axis, then scaled and shifted.  Source: J. Ba et al., 2016."""

    def make(_: np.random.Generator, shape: Shape) -> tuple[Any, Shape]:
        need_axes("layer_norm", shape, 1)
        return {"scale": np.ones(shape[-1]), "shift": np.zeros(shape[-1])}, shape

    return stateless(make, lambda p, x: normalise(x, (-1,), epsilon) * p["scale"] + p["shift"])


def batch_norm(momentum: float = 0.9, epsilon: float = 1e-5) -> Layer:
    """Each channel normalised over the examples and the image, then scaled and shifted: [n, channels, ...].

    In training by the mean and variance of the batch, of which the state keeps running averages (``momentum`` times the old
    one); else by these.  Source: S. Ioffe and C. Szegedy, ICML 2015.
    """

    def make(_: np.random.Generator, shape: Shape) -> Made:
        need_axes("batch_norm", shape, 1)
        n = shape[0]
        return {"scale": np.ones(n), "shift": np.zeros(n)}, {"mean": np.zeros(n), "variance": np.ones(n)}, shape

    def run(p: Any, s: Any, x: Any, train: bool) -> tuple[Any, Any]:
        channel = (slice(None), *(None for _ in x.shape[2:]))
        axes = (0, *range(2, x.ndim))
        if train:
            mean, variance = np.mean(x, axis=axes), np.var(x, axis=axes)
            now = {"mean": mean, "variance": variance}
            s = {name: momentum * s[name] + (1 - momentum) * now[name] for name in s}
        else:
            mean, variance = s["mean"], s["variance"]
        factor = p["scale"] / np.sqrt(variance + epsilon)
        return (x - mean[channel]) * factor[channel] + p["shift"][channel], s

    return Layer(make, run)


def _of_one(f: Callable[[Any], Any], shape: Shape) -> Shape:
    """The shape of the result for one example: what numpy makes of zeros."""
    return np.shape(f(np.zeros((1, *shape))))[1:]


def need_axes(what: str, shape: Shape, least: int) -> None:
    """Raise UplError (UPL1931) for examples of too few axes."""
    if len(shape) < least:
        wanted = "[channels, *spatial]" if least == 2 else f"of {least} axes or more"
        help = "nn.flatten makes one axis of all; the axis of examples does not count"
        raise fail("UPL1931", f"{what}: the examples have shape {shape}, expected {wanted}", help=help)
