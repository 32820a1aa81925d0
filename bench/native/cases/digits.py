"""Case g: handwritten digits, a 64-32-10 perceptron, five epochs of mini-batches in one call; all contenders in f64."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.native import c
from bench.native.case import EXAMPLES, Absent, Array, Arrays, Case, Run, Sizes, Task, simple
from bench.native.peers import jax_for, torch_for

ETA, BATCH = 0.03, 32
HIDDEN, CLASSES = 32, 10


def inputs(sizes: Sizes) -> Arrays:
    """The first M images of `examples/data/digits.npz`."""
    try:
        with np.load(EXAMPLES / "data" / "digits.npz") as found:
            return {n: found[n] if n == "W" else found[n][: sizes["M"]] for n in found.files}
    except FileNotFoundError:
        raise Absent("no examples/data/digits.npz: run examples/make_digits.py") from None


def matrices(w: Array) -> tuple[Array, Array]:
    """Both layers' weights."""
    return w[0].copy(), w[1, :HIDDEN, :CLASSES].copy()


def named(out: tuple[Any, Any, Any]) -> Arrays:
    """Probabilities and weights by the names of the program's outputs."""
    r, w1, w2 = (np.asarray(v) for v in out)
    box = np.zeros((2, *w1.shape))
    box[0], box[1, :HIDDEN, :CLASSES] = w1, w2
    return {"R": r, "W_out": box}


def by_hand(x: Array, y: Array, w: Array, epochs: int, batch: int = BATCH) -> tuple[Array, Array, Array]:
    """The last epoch's probabilities, each before its batch's update, and the weights."""
    w1, w2 = matrices(w)
    out = np.zeros_like(y)
    for _ in range(epochs):
        for at in range(0, len(x), batch):
            some = slice(at, at + batch)
            hidden = np.tanh(x[some] @ w1)
            z = hidden @ w2
            e = np.exp(z - z.max(axis=1, keepdims=True))
            out[some] = e / e.sum(axis=1, keepdims=True)
            error = out[some] - y[some]
            back = error @ w2.T * (1 - hidden**2)
            w2 -= ETA * hidden.T @ error
            w1 -= ETA * x[some].T @ back
    return out, w1, w2


def arrays(task: Task) -> tuple[Array, Array, Array, int]:
    """What the contenders take."""
    return task.arrays["X"], task.arrays["Y"], task.arrays["W"], task.sizes["E"]


def numpy_run(task: Task) -> Run:
    """numpy by hand."""
    return simple(lambda: by_hand(*arrays(task)), named)


def jax_run(task: Task) -> Run:
    """`lax.scan` over epochs and over whole batches; the last, smaller batch by itself."""
    jax = jax_for(task)
    jnp = jax.numpy
    x, y, w, epochs = arrays(task)
    whole = len(x) // BATCH
    parts = [jnp.asarray(a[: whole * BATCH]).reshape(whole, BATCH, -1) for a in (x, y)]
    rest = [jnp.asarray(a[whole * BATCH :]) for a in (x, y)]
    start = [jnp.asarray(m) for m in matrices(w)]

    def loss(weights: Any, x: Any, y: Any) -> tuple[Any, Any]:
        z = jnp.tanh(x @ weights[0]) @ weights[1]
        return -(y * jax.nn.log_softmax(z)).sum(), jax.nn.softmax(z)

    def step(weights: Any, batch: Any) -> tuple[Any, Any]:
        slopes, p = jax.grad(loss, has_aux=True)(weights, *batch)
        return [v - ETA * g for v, g in zip(weights, slopes, strict=True)], p

    def epoch(weights: Any, _: Any) -> tuple[Any, Any]:
        weights, p = jax.lax.scan(step, weights, tuple(parts))
        p = p.reshape(-1, CLASSES)
        if len(rest[0]):
            weights, last = step(weights, rest)
            p = jnp.concatenate([p, last])
        return weights, p

    @jax.jit
    def train(weights: Any) -> Any:
        weights, p = jax.lax.scan(epoch, weights, None, length=epochs)
        return p[-1], *weights

    return simple(lambda: jax.block_until_ready(train(start)), named)


def c_run(task: Task) -> Run:
    """Small products for each mini-batch, the weights in place."""
    x, y, w, epochs = arrays(task)
    run = c.function("digits", "train", task.real, result=None)
    first, second = matrices(w)
    w1, w2, r = np.empty_like(first), np.empty_like(second), np.zeros_like(y)
    given = [c.bound(v) for v in (epochs, len(x), ETA, x, y, w1, w2, r)]

    def train() -> Any:
        w1[:], w2[:] = first, second
        run(*given)
        return r, w1, w2

    return simple(train, named)


def torch_run(task: Task) -> Run:
    """PyTorch eager."""
    torch = torch_for(task)
    x, y, w, epochs = arrays(task)
    batches = [(torch.tensor(x[at : at + BATCH]), torch.tensor(y[at : at + BATCH])) for at in range(0, len(x), BATCH)]
    start = [torch.tensor(m) for m in matrices(w)]

    def train() -> Any:
        weights = [m.clone().requires_grad_() for m in start]
        out: list[Any] = []
        for _ in range(epochs):
            out = []
            for some, wanted in batches:
                z = torch.tanh(some @ weights[0]) @ weights[1]
                loss = torch.nn.functional.cross_entropy(z, wanted, reduction="sum")
                slopes = torch.autograd.grad(loss, weights)
                with torch.no_grad():
                    out.append(torch.softmax(z, 1))
                    for v, g in zip(weights, slopes, strict=True):
                        v -= ETA * g
        return torch.cat(out), *(v.detach() for v in weights)

    return simple(train, named)


CASES = (
    Case(
        key="g",
        title="digits: five epochs over 1797 images in mini-batches of 32, one call",
        program=EXAMPLES / "digits.upl",
        of="",
        wrt=(),
        sizes={"E": 5, "M": 1797},
        tiny={"E": 2, "M": 9},
        parameters=("E", "M"),
        inputs=inputs,
        reference=lambda task: named(by_hand(*arrays(task))),
        contenders={"jax": jax_run, "torch": torch_run, "numpy": numpy_run, "C": c_run},
        against_peers=1,
        first_seconds=1.0,
        tolerance=1e-9,
    ),
)
