"""Case a: the paper's perceptron [4,4,5,6,4,3,3], trained example by example; and its value and gradient by batches."""

from __future__ import annotations

import timeit
from itertools import pairwise
from typing import Any

import numpy as np

from bench.native import c
from bench.native.case import EXAMPLES, Array, Arrays, Case, Run, Sizes, Task, simple
from bench.native.peers import jax_for, torch_for

N = (4, 4, 5, 6, 4, 3, 3)
LAYERS = len(N) - 1
WIDTH = max(N)
ETA = 0.1


def boxed(matrices: list[Any]) -> Array:
    """The ragged weights in their bounding box: layer, row, column."""
    out = np.zeros((LAYERS, WIDTH, WIDTH))
    for k, m in enumerate(matrices):
        out[k, : N[k], : N[k + 1]] = np.asarray(m)
    return out


def matrices(w: Array) -> list[Array]:
    """The weights of each layer."""
    return [np.ascontiguousarray(w[..., k, : N[k], : N[k + 1]]) for k in range(LAYERS)]


def forward(x: Array, weights: list[Array]) -> Array:
    """The net's answer."""
    for w in weights:
        x = np.maximum(x @ w, 0)
    return x


def inputs(sizes: Sizes) -> Arrays:
    """A net that learns from another: so the numbers stay finite and no ReLU dies.  Weights are positive and small enough
    for steps of 0.1."""
    random = np.random.default_rng(1)
    weights = [random.uniform(0.1, 0.6, (a, b)) for a, b in pairwise(N)]
    teacher = [w * random.uniform(0.8, 1.2, w.shape) for w in weights]
    x = random.uniform(0, 0.5, (sizes["D"], N[0]))
    return {"X": x, "Y": forward(x, teacher), "W": boxed(weights)}


def by_hand(x: Array, y: Array, weights: list[Array]) -> list[Array]:
    """Stochastic gradient descent, one example after the other."""
    weights = [w.copy() for w in weights]
    for d in range(len(x)):
        r = [x[d]]
        for w in weights:
            r.append(np.maximum(r[-1] @ w, 0))
        delta = r[-1] - y[d]
        for k in range(LAYERS - 1, -1, -1):
            delta = delta * (r[k + 1] > 0)
            step = np.outer(r[k], ETA * delta)
            delta = weights[k] @ delta
            weights[k] -= step
    return weights


def reference(task: Task) -> Arrays:
    """What training gives."""
    return {"W_out": boxed(by_hand(task.arrays["X"], task.arrays["Y"], matrices(task.arrays["W"])))}


def part(task: Task, scale: int) -> Task:
    """The first 1/scale of the examples."""
    count = max(1, task.sizes["D"] // scale)
    arrays = {n: a if n == "W" else a[:count] for n, a in task.arrays.items()}
    return Task(arrays, {**task.sizes, "D": count}, task.real, task.threads)


def numpy_run(task: Task) -> Run:
    """numpy, on a tenth of the examples."""
    some = part(task, 10)
    x, y, w = some.arrays["X"], some.arrays["Y"], matrices(some.arrays["W"])

    def train() -> list[Array]:
        return by_hand(x, y, w)

    return Run(
        timeit.Timer(train), lambda: {"W_out": boxed(train())}, scale=some_scale(task, some), expected=reference(some)
    )


def torch_run(task: Task) -> Run:
    """PyTorch eager, on a fiftieth of the examples."""
    torch = torch_for(task)
    some = part(task, 50)
    x, y = torch.tensor(some.arrays["X"]), torch.tensor(some.arrays["Y"])
    start = [torch.tensor(m) for m in matrices(some.arrays["W"])]

    def train() -> list[Any]:
        weights = [w.clone().requires_grad_() for w in start]
        for d in range(len(x)):
            r = x[d]
            for w in weights:
                r = torch.relu(r @ w)
            loss = 0.5 * ((r - y[d]) ** 2).sum()
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                for w, g in zip(weights, gradients, strict=True):
                    w -= ETA * g
        return weights

    def outputs() -> Arrays:
        return {"W_out": boxed([w.detach().numpy() for w in train()])}

    return Run(timeit.Timer(train), outputs, scale=some_scale(task, some), expected=reference(some))


def some_scale(task: Task, some: Task) -> float:
    """How many times the part goes into the whole."""
    return task.sizes["D"] / some.sizes["D"]


def _jax_step(jax: Any) -> Any:
    def loss(weights: list[Any], x: Any, y: Any) -> Any:
        for w in weights:
            x = jax.nn.relu(x @ w)
        return 0.5 * ((x - y) ** 2).sum()

    def step(weights: list[Any], example: tuple[Any, Any]) -> tuple[list[Any], None]:
        gradients = jax.grad(loss)(weights, *example)
        return [w - ETA * g for w, g in zip(weights, gradients, strict=True)], None

    return step


def jax_idiomatic(task: Task) -> Run:
    """A list of matrices, `lax.scan` over the examples."""
    jax = jax_for(task)
    step = _jax_step(jax)
    train = jax.jit(lambda w, x, y: jax.lax.scan(step, w, (x, y))[0])
    x, y = jax.numpy.asarray(task.arrays["X"]), jax.numpy.asarray(task.arrays["Y"])
    w = [jax.numpy.asarray(m) for m in matrices(task.arrays["W"])]
    return simple(lambda: jax.block_until_ready(train(w, x, y)), lambda out: {"W_out": boxed(out)})


def jax_unrolled(task: Task) -> Run:
    """The same with four examples in a turn of the loop."""
    jax = jax_for(task)
    step = _jax_step(jax)
    train = jax.jit(lambda w, x, y: jax.lax.scan(step, w, (x, y), unroll=4)[0])
    x, y = jax.numpy.asarray(task.arrays["X"]), jax.numpy.asarray(task.arrays["Y"])
    w = [jax.numpy.asarray(m) for m in matrices(task.arrays["W"])]
    return simple(lambda: jax.block_until_ready(train(w, x, y)), lambda out: {"W_out": boxed(out)})


def jax_literal(task: Task) -> Run:
    """The UPL program word for word: weights in a box, products, sums over the rows, the comparison times the sum."""
    jax = jax_for(task)
    jnp = jax.numpy

    def loss(w: Any, x: Any, y: Any) -> Any:
        r = jnp.zeros(WIDTH).at[: N[0]].set(x)
        for k in range(LAYERS):
            s = (r[:, None] * w[k]).sum(0)
            r = (s > 0) * s
        return 0.5 * ((r[: N[-1]] - y) ** 2).sum()

    def step(w: Any, example: tuple[Any, Any]) -> tuple[Any, None]:
        return w - ETA * jax.grad(loss)(w, *example), None

    train = jax.jit(lambda w, x, y: jax.lax.scan(step, w, (x, y))[0])
    x, y, w = (jnp.asarray(task.arrays[n]) for n in "XYW")
    return simple(lambda: jax.block_until_ready(train(w, x, y)), lambda out: {"W_out": np.asarray(out)})


def jax_by_calls(task: Task) -> Run:
    """One Python call for an example, on a tenth of them."""
    jax = jax_for(task)
    some = part(task, 10)
    step = jax.jit(_jax_step(jax))
    rows = zip(some.arrays["X"], some.arrays["Y"], strict=True)
    examples = [(jax.numpy.asarray(x), jax.numpy.asarray(y)) for x, y in rows]
    start = [jax.numpy.asarray(m) for m in matrices(some.arrays["W"])]

    def train() -> list[Any]:
        weights = start
        for example in examples:
            weights, _ = step(weights, example)
        return jax.block_until_ready(weights)

    return Run(
        timeit.Timer(train), lambda: {"W_out": boxed(train())}, scale=some_scale(task, some), expected=reference(some)
    )


def c_run(task: Task) -> Run:
    """Vectors, both forms of the weights, everything in one pass."""
    return _c("perceptron", task)


def c_plain_run(task: Task) -> Run:
    """The loops as one writes them down."""
    return _c("perceptron_plain", task)


def _c(name: str, task: Task) -> Run:
    train = c.function(name, "train", result=None)
    out = np.zeros((LAYERS, WIDTH, WIDTH))
    arguments = [c.bound(v) for v in (task.sizes["D"], *(task.arrays[n] for n in "XYW"), ETA, out)]
    return simple(lambda: train(*arguments), lambda _: {"W_out": out.copy()})


TRAINING = Case(
    key="a",
    title="perceptron [4,4,5,6,4,3,3], trained example by example, 10⁴ examples",
    program=EXAMPLES / "training.upl",
    of="",
    wrt=(),
    sizes={"D": 10_000},
    tiny={"D": 5},
    parameters=("D",),
    inputs=inputs,
    reference=reference,
    contenders={
        "jax": jax_idiomatic, "jax, unrolled": jax_unrolled, "jax, literal": jax_literal, "jax, by calls": jax_by_calls,
        "torch": torch_run, "numpy": numpy_run, "C": c_run, "C, plain": c_plain_run,
    },
    against_peers=8,
    first_seconds=0.3,
    tolerance=1e-8,  # 10⁴ steps carry the rounding of each into the next
)  # fmt: skip

# ------------------------------------------------------------------------ value and gradient, weights for each example


def batch_inputs(sizes: Sizes) -> Arrays:
    """Examples that each have weights of their own, and a seed."""
    random = np.random.default_rng(2)
    weights = [random.normal(0, a**-0.5, (sizes["D"], a, b)) for a, b in pairwise(N)]
    box = np.zeros((sizes["D"], LAYERS, WIDTH, WIDTH))
    for k, w in enumerate(weights):
        box[:, k, : N[k], : N[k + 1]] = w
    x, seed = random.uniform(0.5, 1, (sizes["D"], N[0])), random.normal(size=(sizes["D"], N[-1]))
    return {"X": x, "W": box, "d_R": seed}


def batch_value(x: Array, weights: list[Array]) -> list[Array]:
    """All layers' outputs."""
    r = [x]
    for w in weights:
        r.append(np.maximum(np.einsum("di,dij->dj", r[-1], w), 0))
    return r


def batch_by_hand(x: Array, weights: list[Array], seed: Array) -> tuple[Array, Array]:
    """The answers and the derivative by the weights in their box."""
    r = batch_value(x, weights)
    out = np.zeros((len(x), LAYERS, WIDTH, WIDTH), x.dtype)
    delta = seed
    for k in range(LAYERS - 1, -1, -1):
        delta = delta * (r[k + 1] > 0)
        out[:, k, : N[k], : N[k + 1]] = r[k][:, :, None] * delta[:, None, :]
        delta = np.einsum("dij,dj->di", weights[k], delta)
    return r[-1], out


def batch_reference(task: Task) -> Arrays:
    """Value and gradient."""
    r, d_w = batch_by_hand(task.arrays["X"], matrices(task.arrays["W"]), task.arrays["d_R"])
    return {"R": r, "d_W": d_w}


def batch_numpy(task: Task) -> Run:
    """numpy on all examples at once."""
    x, w, seed = task.arrays["X"], matrices(task.arrays["W"]), task.arrays["d_R"]
    return simple(
        lambda: batch_by_hand(x, w, seed), lambda out: {"R": out[0], "d_W": out[1]}, lambda: batch_value(x, w)
    )


def batch_jax(task: Task) -> Run:
    """`vmap` over the examples."""
    jax = jax_for(task)

    def answer(x: Any, w: Any) -> Any:
        for k in range(LAYERS):
            x = jax.nn.relu(x @ w[k, : N[k], : N[k + 1]])
        return x

    value = jax.jit(jax.vmap(answer))

    def both(x: Any, w: Any, seed: Any) -> tuple[Any, Any]:
        r, back = jax.vjp(lambda v: jax.vmap(answer)(x, v), w)
        return r, back(seed)[0]

    gradient = jax.jit(both)
    x, w, seed = (jax.numpy.asarray(task.arrays[n]) for n in ("X", "W", "d_R"))
    return simple(
        lambda: jax.block_until_ready(gradient(x, w, seed)),
        lambda out: {"R": np.asarray(out[0]), "d_W": np.asarray(out[1])},
        lambda: jax.block_until_ready(value(x, w)),
    )


BATCH = Case(
    key="a vjp",
    title="the same net, value and gradient, 1000 examples with weights of their own",
    program=EXAMPLES / "perceptron.upl",
    of="R",
    wrt=("W",),
    sizes={"D": 1000},
    tiny={"D": 3},
    parameters=("D",),
    inputs=batch_inputs,
    reference=batch_reference,
    contenders={"jax": batch_jax, "numpy": batch_numpy},
    against_peers=None,  # here for (value and gradient)/value, which training has none of
    first_seconds=0.3,
)

CASES = (TRAINING, BATCH)
