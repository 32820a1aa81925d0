"""Data for every example program: parameters, inputs, and what numpy finds for the outputs.

    python examples/data.py wave -o wave.npz            # writes the inputs, prints the command that runs the program

    from data import generate                           # from tests and benchmarks
    d = generate("wave", scale=4)
    out = upl.compile(upl.load("examples/wave.upl", **d.params))(**d.inputs)     # close to d.outputs

Each reference is written with whole arrays, not after the program, so that the two can disagree.  The numbers follow from
the seed; sizes are small for `scale` 1 and grow with it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
Array = NDArray[Any]
Arrays = dict[str, Array]


class Data(NamedTuple):
    """What a program runs on: parameters and overridden constants by name (arrays as lists), inputs and outputs by port."""

    params: dict[str, int | list[int]]
    inputs: Arrays
    outputs: Arrays


Generator = Callable[[np.random.Generator, int], Data]
EXAMPLES: dict[str, Generator] = {}
"""The generators by the name of the program."""


def example(f: Generator) -> Generator:
    """Register a generator under the name of its function."""
    EXAMPLES[f.__name__] = f
    return f


def generate(name: str, scale: int = 1, seed: int = 0) -> Data:
    """Data for the example `name`.  Raises KeyError for a name that has none."""
    return EXAMPLES[name](np.random.default_rng(seed), scale)


# -- linear algebra ----------------------------------------------------------------------------------------------------
@example
def matmul(rng: np.random.Generator, scale: int) -> Data:
    m, n, r = 2 * scale, 4 * scale, 3 * scale
    a, b = rng.standard_normal((m, r)), rng.standard_normal((r, n))
    return Data({"m": m, "n": n, "r": r}, {"A": a, "B": b}, {"C": a @ b})


@example
def matrix_chain(rng: np.random.Generator, scale: int) -> Data:
    sizes = [scale * n for n in (2, 4, 1, 3)]
    k = len(sizes) - 1
    a = np.zeros((k, max(sizes[:-1]), max(sizes[1:])))
    factors = [rng.standard_normal(shape) for shape in itertools.pairwise(sizes)]
    for into, factor in zip(a, factors, strict=True):
        into[: factor.shape[0], : factor.shape[1]] = factor
    return Data({"K": k, "N": sizes}, {"A": a}, {"P": np.linalg.multi_dot(factors)})


@example
def diagonal(rng: np.random.Generator, scale: int) -> Data:
    n = 4 * scale
    a, d = rng.standard_normal((n, n)), rng.standard_normal(n)
    off = a * (1 - np.eye(n))
    return Data({"n": n}, {"A": a, "D": d}, {"Y": np.diag(a) * d, "Tr": np.trace(a), "R": off.sum(axis=1)})


@example
def triangular_solve(rng: np.random.Generator, scale: int) -> Data:
    n = 5 * scale
    lower = np.tril(rng.standard_normal((n, n)), -1) / n + np.diag(rng.uniform(1, 2, n))
    b = rng.standard_normal(n)
    return Data({"n": n}, {"L": lower, "B": b}, {"X": np.linalg.solve(lower, b)})


@example
def cholesky(rng: np.random.Generator, scale: int) -> Data:
    n = 5 * scale
    g = rng.standard_normal((n, n))
    a = g @ g.T + n * np.eye(n)
    return Data({"n": n}, {"A": np.tril(a)}, {"L": np.linalg.cholesky(a)})


@example
def spmv(rng: np.random.Generator, scale: int) -> Data:
    m, n, w = 4 * scale, 6 * scale, 3 * scale
    count = rng.integers(0, w + 1, m)
    count[0], count[1] = 0, w
    col = np.stack([rng.permutation(n)[:w] for _ in range(m)])
    v, x = rng.standard_normal((m, w)), rng.standard_normal(n)
    dense = np.zeros((m, n))
    for i, c in enumerate(count):
        dense[i, col[i, :c]] = v[i, :c]
    return Data({"m": m, "n": n, "w": w}, {"V": v, "Col": col, "Count": count, "X": x}, {"Y": dense @ x})


# -- grids and images --------------------------------------------------------------------------------------------------
@example
def jacobi1d(rng: np.random.Generator, scale: int) -> Data:
    steps, n = 3 * scale, 6 * scale
    a = rng.standard_normal(n)
    step = np.eye(n)
    for i in range(1, n - 1):
        step[i, i - 1 : i + 2] = 1 / 3
    return Data({"T": steps, "n": n}, {"A": a}, {"B": np.linalg.matrix_power(step, steps) @ a})


@example
def jacobi2d(rng: np.random.Generator, scale: int) -> Data:
    steps, m, n = 2 * scale, 4 * scale, 5 * scale
    a = rng.standard_normal((m, n))
    b, change = a.copy(), 0.0
    for _ in range(steps):
        around = np.pad(b, 1)
        near = around[1:-1, 1:-1] + around[:-2, 1:-1] + around[2:, 1:-1] + around[1:-1, :-2] + around[1:-1, 2:]
        new = b.copy()
        new[1:-1, 1:-1] = near[1:-1, 1:-1] / 5
        b, change = new, np.abs(new - b).max()
    return Data({"T": steps, "m": m, "n": n}, {"A": a}, {"B": b, "Change": np.float64(change)})


@example
def wave(rng: np.random.Generator, scale: int) -> Data:
    steps, n = 4 * scale, 6 * scale
    u0, u1, c = rng.standard_normal(n), rng.standard_normal(n), rng.uniform(0.1, 0.9, n - 2)
    u1[[0, -1]] = u0[[0, -1]]
    before, now = u0, u1
    for _ in range(steps - 1):
        bend = np.zeros(n)
        bend[1:-1] = c * np.diff(now, 2)
        inner = np.r_[0, np.ones(n - 2), 0]
        before, now = now, now + inner * (now - before) + bend
    return Data({"T": steps, "n": n}, {"U0": u0, "U1": u1, "C": c}, {"Y": now})


@example
def conv2d(rng: np.random.Generator, scale: int) -> Data:
    h, w = 4 * scale, 5 * scale
    x, g = rng.standard_normal((h, w)), rng.standard_normal((3, 3))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, 1), (3, 3))
    return Data({"H": h, "W": w}, {"X": x, "G": g}, {"Y": np.tanh(np.einsum("ijab,ab->ij", windows, g))})


@example
def fir(rng: np.random.Generator, scale: int) -> Data:
    k, n = 2 + scale, 5 * scale
    x, h = rng.standard_normal(n + k - 1), rng.standard_normal(k)
    return Data({"K": k, "n": n}, {"X": x, "H": h}, {"Y": np.correlate(x, h)})


@example
def conv_strided(rng: np.random.Generator, scale: int) -> Data:
    c, k, p, q = 2, 2 * scale, 2 * scale, 3 * scale
    x, w = rng.standard_normal((c, 2 * p + 1, 2 * q + 1)), rng.standard_normal((k, c, 3, 3))
    bias = rng.standard_normal(k)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::2, ::2]
    y = np.einsum("cpqab,kcab->kpq", windows, w) + bias[:, None, None]
    return Data({"C": c, "K": k, "P": p, "Q": q}, {"X": x, "W": w, "Bias": bias}, {"Y": y})


@example
def upsample(rng: np.random.Generator, scale: int) -> Data:
    m, n = 3 * scale, 4 * scale
    x = rng.standard_normal((m, n))
    rows = np.stack([np.interp(np.arange(2 * n - 1) / 2, np.arange(n), row) for row in x])
    columns = [np.interp(np.arange(2 * m - 1) / 2, np.arange(m), column) for column in rows.T]
    return Data({"m": m, "n": n}, {"X": x}, {"Y": np.stack(columns, axis=1)})


@example
def reshape(rng: np.random.Generator, scale: int) -> Data:
    n = 2 * scale
    a, w = rng.standard_normal((2 * n, 6)), rng.standard_normal((3 * n, 4))
    return Data({"n": n}, {"A": a, "W": w}, {"Y": (a.reshape(3 * n, 4) * w).T})


# -- learning and statistics -------------------------------------------------------------------------------------------
@example
def scalars(rng: np.random.Generator, scale: int) -> Data:
    w1, w2 = rng.uniform(1.5, 4.0, 2)
    p = np.log(w1**w2)
    return Data({}, {"w1": w1, "w2": w2}, {"Y": p + np.sqrt(p)})


@example
def softmax(rng: np.random.Generator, scale: int) -> Data:
    d, n = 2 * scale, 4 * scale
    x, y = 3 * rng.standard_normal((d, n)), rng.dirichlet(np.ones(n), d)
    p = _softmax(x)
    return Data({"D": d, "n": n}, {"X": x, "Y": y}, {"P": p, "Loss": -np.sum(y * np.log(p)) / d})


@example
def mlp(rng: np.random.Generator, scale: int) -> Data:
    sizes, d = [3 * scale, 4 * scale, 3 * scale, 2 * scale], 3 * scale
    k = len(sizes)
    w = rng.standard_normal((k - 1, max(sizes[:-1]), max(sizes[1:])))
    b = rng.standard_normal((k - 1, max(sizes[1:])))
    x, y = rng.standard_normal((d, sizes[0])), np.eye(sizes[-1])[rng.integers(0, sizes[-1], d)]
    z = x
    for i in range(k - 1):
        z = z @ w[i, : sizes[i], : sizes[i + 1]] + b[i, : sizes[i + 1]]
        z = np.tanh(z) if i < k - 2 else z
    loss = np.mean(np.log(np.exp(z).sum(axis=1)) - (z * y).sum(axis=1))
    return Data({"D": d, "K": k, "N": sizes}, {"X": x, "W": w, "B": b, "Y": y}, {"Loss": loss, "Z": z})


@example
def lstm(rng: np.random.Generator, scale: int) -> Data:
    t, e, h = 3 * scale, 2 * scale, 2 * scale
    x, w, v = rng.standard_normal((t, e)), rng.standard_normal((4, e, h)), rng.standard_normal((4, h, h))
    b, hidden, cell = rng.standard_normal((4, h)), rng.standard_normal(h), rng.standard_normal(h)
    inputs = {"X": x, "W": w, "V": v, "B": b, "H0": hidden, "C0": cell}
    shown: list[Array] = []
    for row in x:
        z = np.einsum("i,gij->gj", row, w) + np.einsum("i,gij->gj", hidden, v) + b
        enter, keep, _, show = 1 / (1 + np.exp(-z))
        cell = keep * cell + enter * np.tanh(z[2])
        hidden = show * np.tanh(cell)
        shown.append(hidden)
    return Data({"T": t, "E": e, "H": h}, inputs, {"Y": np.stack(shown), "C": cell})


@example
def mds(rng: np.random.Generator, scale: int) -> Data:
    n, k = 4 * scale, 2
    x, wanted = rng.standard_normal((n, k)), np.triu(rng.uniform(0.5, 2, (n, n)), 1)
    found = np.linalg.norm(x[:, None] - x[None], axis=2)
    box = wanted[: n - 1, 1:]  # i < j: the first row of j, and the last of i, are never read
    return Data({"n": n, "K": k}, {"X": x, "D": box}, {"Stress": np.sum(np.triu(found - wanted, 1) ** 2)})


@example
def gmm(rng: np.random.Generator, scale: int) -> Data:
    d, k, n = 3 * scale, 2 * scale, 2
    x, a, m = rng.standard_normal((d, n)), rng.standard_normal(k), rng.standard_normal((k, n))
    s = 0.3 * rng.standard_normal((k, n))
    weights = np.exp(a) / np.exp(a).sum()
    each = np.exp(-((x[:, None] - m) ** 2) / (2 * np.exp(2 * s))) / np.sqrt(2 * np.pi * np.exp(2 * s))
    likelihood = np.log(each.prod(axis=2) @ weights).sum()
    return Data({"D": d, "K": k, "n": n}, {"X": x, "A": a, "M": m, "S": s}, {"L": likelihood})


# -- discrete and data-dependent ---------------------------------------------------------------------------------------
@example
def floyd_warshall(rng: np.random.Generator, scale: int) -> Data:
    n = 5 * scale
    w = rng.uniform(1, 20, (n, n)) * (1 - np.eye(n))
    best = w
    for _ in range(n):  # one more place on the way each time
        best = np.minimum(best, (best[:, :, None] + w).min(axis=1))
    return Data({"n": n}, {"W": w}, {"S": best})


@example
def scan(rng: np.random.Generator, scale: int) -> Data:
    k = 2 + scale
    x = rng.standard_normal(2**k)
    return Data({"K": k, "P": [2**i for i in range(k + 1)]}, {"X": x}, {"Y": np.cumsum(x)})


@example
def newton(rng: np.random.Generator, scale: int) -> Data:
    n = 3 * scale
    mean, e = rng.uniform(0.2, 3.0, n), rng.uniform(0.05, 0.9, n)
    found = mean.copy()
    for _ in range(2000):  # the contraction E -> M + e sin E needs no derivative
        found = mean + e * np.sin(found)
    steps, at, open_ = np.zeros(n, dtype=int), mean, np.ones(n, dtype=bool)
    while open_.any():
        new = at - (at - e * np.sin(at) - mean) / (1 - e * np.cos(at))
        steps += open_
        at, open_ = new, open_ & (np.abs(new - at) > 1e-10)
    return Data({"n": n}, {"M": mean, "e": e}, {"E": found, "Steps": steps})


# -- the paper's perceptron --------------------------------------------------------------------------------------------
LAYERS = [4, 4, 5, 6, 4, 3, 3]


def _forward(x: Array, weights: list[Array], act: Callable[[Array], Array], last: bool) -> list[Array]:
    """The values of every layer; `act` is applied after each product, after the last one only if `last`."""
    values = [x]
    for k, w in enumerate(weights):
        s = values[-1] @ w
        values.append(act(s) if last or k < len(weights) - 1 else s)
    return values


def _step(
    x: Array,
    y: Array,
    weights: list[Array],
    act: Callable[[Array], Array],
    slope: Callable[[Array], Array],
    last: bool,
    final: Callable[[Array], Array] = lambda z: z,
) -> tuple[Array, list[Array]]:
    """Results, and by the weights the gradients of the loss whose derivative by the last layer's sums is result - y.

    `slope` takes the value of `act`; `final` makes the result of the last layer's values.
    """
    values = _forward(x, weights, act, last)
    result = final(values[-1])
    delta = result - y
    gradients: list[Array] = []
    for k in reversed(range(len(weights))):
        if last or k < len(weights) - 1:
            delta = delta * slope(values[k + 1])
        gradients.insert(0, values[k].T @ delta)
        delta = delta @ weights[k].T
    return result, gradients


def _relu(s: Array) -> Array:
    return np.maximum(s, 0)


def _softmax(z: Array) -> Array:
    e = np.exp(z)
    return e / e.sum(axis=1, keepdims=True)


def _split(w: Array, sizes: list[int]) -> list[Array]:
    """The matrices of the layers out of their common box."""
    return [w[k, :m, :n].copy() for k, (m, n) in enumerate(itertools.pairwise(sizes))]


def _joined(weights: list[Array], shape: tuple[int, ...]) -> Array:
    out = np.zeros(shape)
    for k, w in enumerate(weights):
        out[k, : w.shape[0], : w.shape[1]] = w
    return out


@example
def perceptron(rng: np.random.Generator, scale: int) -> Data:
    d = 2 * scale
    x = rng.uniform(0.5, 1.5, (d, LAYERS[0]))
    w = rng.normal(0.2, 0.5, (d, len(LAYERS) - 1, max(LAYERS[:-1]), max(LAYERS[1:])))
    r = np.stack([_forward(x[i], _split(w[i], LAYERS), _relu, True)[-1] for i in range(d)])
    return Data({"D": d}, {"X": x, "W": w}, {"R": r})


@example
def training(rng: np.random.Generator, scale: int) -> Data:
    d = 3 * scale
    x, y = rng.uniform(0.5, 1.5, (d, LAYERS[0])), rng.uniform(0, 1, (d, LAYERS[-1]))
    w = rng.normal(0.2, 0.4, (len(LAYERS) - 1, max(LAYERS[:-1]), max(LAYERS[1:])))
    weights = _split(w, LAYERS)
    for i in range(d):
        _, by = _step(x[i : i + 1], y[i : i + 1], weights, _relu, lambda v: (v > 0) * 1.0, True)
        weights = [a - 0.1 * g for a, g in zip(weights, by, strict=True)]
    return Data({"D": d}, {"X": x, "Y": y, "W": w}, {"W_out": _joined(weights, w.shape)})


def _iris(rng: np.random.Generator, scale: int, eta: float, batch: bool) -> Data:
    data = np.load(HERE / "data" / "iris.npz")
    rows = rng.permutation(len(data["X"]))[: 3 * scale]  # at most all 150
    x, y, w = data["X"][rows], data["Y"][rows], data["W"]
    weights, results = _split(w, [5, 8, 3]), []
    for part in [slice(None)] if batch else [slice(i, i + 1) for i in range(len(x))]:
        r, by = _step(x[part], y[part], weights, np.tanh, lambda v: 1 - v * v, False)
        weights = [a - eta * g for a, g in zip(weights, by, strict=True)]
        results.append(r)
    out = {"R": np.concatenate(results), "W_out": _joined(weights, w.shape)}
    return Data({"D": len(x)}, {"X": x, "Y": y, "W": w}, out)


@example
def iris(rng: np.random.Generator, scale: int) -> Data:
    return _iris(rng, scale, 0.05, batch=False)


@example
def iris_batch(rng: np.random.Generator, scale: int) -> Data:
    return _iris(rng, scale, 0.02, batch=True)


@example
def digits(rng: np.random.Generator, scale: int) -> Data:
    data = np.load(HERE / "data" / "digits.npz")
    sizes, batch, epochs = [64, min(4 * scale, 32), 10], min(2 * scale, 800), 2
    rows = rng.permutation(len(data["X"]))[: 2 * batch - 1]  # the last batch is not full
    x, y, w = data["X"][rows], data["Y"][rows], data["W"][:, :, : max(sizes[1:])]
    weights, results = _split(w, sizes), []
    for _ in range(epochs):
        results = []
        for i in range(0, len(x), batch):
            part = slice(i, i + batch)
            r, by = _step(x[part], y[part], weights, np.tanh, lambda v: 1 - v * v, False, _softmax)
            weights = [a - 0.03 * g for a, g in zip(weights, by, strict=True)]
            results.append(r)
    out = {"R": np.concatenate(results), "W_out": _joined(weights, w.shape)}
    return Data({"E": epochs, "M": len(x), "D": batch, "N": sizes}, {"X": x, "Y": y, "W": w}, out)


@example
def hypergradient(rng: np.random.Generator, scale: int) -> Data:
    steps, m, v, n = 3 * scale, 4 * scale, 2 * scale, 3
    rate, w = np.float64(0.3), rng.normal(0, 0.5, n)
    (x, xv), true = (rng.standard_normal((k, n)) for k in (m, v)), rng.standard_normal(n)
    y, yv = (np.tanh(a @ true) + 0.1 * rng.standard_normal(len(a)) for a in (x, xv))
    inputs = {"rate": np.asarray(rate), "W": w, "X": x, "Y": y, "XV": xv, "YV": yv}
    for _ in range(steps):
        r = np.tanh(x @ w)
        w = w - rate * (((r - y) * (1 - r * r)) @ x) / m
    loss = np.mean((np.tanh(xv @ w) - yv) ** 2) / 2
    return Data({"T": steps, "m": m, "v": v, "n": n}, inputs, {"L": loss, "W_out": w})


# -- the command line --------------------------------------------------------------------------------------------------
def main() -> None:
    """Write the inputs of an example, and its outputs if asked; print the command that runs it."""
    p = argparse.ArgumentParser(description="Data for an example program, ready for `upl run --input`.")
    p.add_argument("name", metavar="NAME", choices=sorted(EXAMPLES), help=f"one of {', '.join(sorted(EXAMPLES))}")
    p.add_argument("-o", dest="output", metavar="IN.npz", help="where to write the inputs (default NAME.npz)")
    p.add_argument("--expected", metavar="OUT.npz", help="where to write what numpy finds for the outputs")
    p.add_argument("--scale", type=int, default=1, help="factor of the sizes (default 1)")
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    if args.scale < 1:
        p.error("--scale must be at least 1")
    data = generate(args.name, args.scale, args.seed)
    output = args.output or f"{args.name}.npz"
    try:
        np.savez(output, **data.inputs)
        if args.expected:
            np.savez(args.expected, **data.outputs)
    except OSError as e:
        sys.exit(f"cannot write: {e}")
    defines = "".join(f" -D {n}={json.dumps(v, separators=(',', ':'))}" for n, v in data.params.items())
    print(f"upl run {HERE / args.name}.upl --input {output}{defines}")


if __name__ == "__main__":
    main()
