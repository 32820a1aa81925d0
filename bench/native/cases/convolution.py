"""Case c: a 3 by 3 convolution with its gradients by both operands, small and large, in double and single precision."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from bench.native import c
from bench.native.case import PROGRAMS, Array, Arrays, Case, Run, Sizes, Task, simple
from bench.native.engines import NATIVE, compiled
from bench.native.peers import jax_for, tensors, torch_for
from upl_mlir.frontend import einsum

R = 3
SMALL = {"n": 2, "c": 16, "k": 8, "o": 5}
LARGE = {"n": 8, "c": 64, "k": 64, "o": 56}
TINY = {"n": 2, "c": 2, "k": 3, "o": 3}


def inputs(sizes: Sizes) -> Arrays:
    """Images, kernels and the derivatives of the result."""
    random = np.random.default_rng(4)
    n, channels, k, o = (sizes[s] for s in "ncko")
    h = o + R - 1
    return {
        "X": random.normal(size=(n, channels, h, h)),
        "W": random.normal(size=(k, channels, R, R)),
        "d_R": random.normal(size=(n, k, o, o)),
    }


def window(x: Array, p: int, q: int) -> Array:
    """What tap (p, q) sees."""
    o = x.shape[2] - R + 1
    return x[:, :, p : p + o, q : q + o]


def forward(x: Array, w: Array) -> Array:
    """The convolution as nine matrix products."""
    taps = [np.tensordot(w[:, :, p, q], window(x, p, q), (1, 1)) for p in range(R) for q in range(R)]
    return np.ascontiguousarray(sum(taps).transpose(1, 0, 2, 3))  # type: ignore


def by_hand(x: Array, w: Array, d: Array) -> tuple[Array, Array, Array]:
    """Value and both gradients."""
    d_x, d_w = np.zeros_like(x), np.zeros_like(w)
    for p in range(R):
        for q in range(R):
            window(d_x, p, q)[...] += np.tensordot(w[:, :, p, q], d, (0, 1)).transpose(1, 0, 2, 3)
            d_w[:, :, p, q] = np.tensordot(d, window(x, p, q), ((0, 2, 3), (0, 2, 3)))
    return forward(x, w), d_x, d_w


def named(out: Any) -> Arrays:
    """By the names of the program's outputs."""
    return {n: np.asarray(v) for n, v in zip(("R", "d_X", "d_W"), out, strict=True)}


def reference(task: Task) -> Arrays:
    """Value and gradients."""
    return named(by_hand(*(task.arrays[n] for n in ("X", "W", "d_R"))))


def numpy_run(task: Task) -> Run:
    """Nine matrix products for each of the three."""
    x, w, d = (task.arrays[n] for n in ("X", "W", "d_R"))
    return simple(lambda: by_hand(x, w, d), named, lambda: forward(x, w))


def _jax(task: Task, convolve: Any) -> Run:
    jax = jax_for(task)

    def both(x: Any, w: Any, d: Any) -> tuple[Any, Any, Any]:
        r, back = jax.vjp(convolve, x, w)
        return r, *back(d)

    value, gradient = jax.jit(convolve), jax.jit(both)
    x, w, d = (jax.numpy.asarray(task.arrays[n]) for n in ("X", "W", "d_R"))
    return simple(lambda: jax.block_until_ready(gradient(x, w, d)), named, lambda: jax.block_until_ready(value(x, w)))


def jax_idiomatic(task: Task) -> Run:
    """`lax.conv`."""
    jax = jax_for(task)
    return _jax(task, lambda x, w: jax.lax.conv(x, w, (1, 1), "VALID"))


def jax_literal(task: Task) -> Run:
    """The sum over the nine taps, each a contraction over the channels."""
    jax = jax_for(task)

    def convolve(x: Any, w: Any) -> Any:
        return sum(
            jax.numpy.einsum("bfij,gf->bgij", window(x, p, q), w[:, :, p, q]) for p in range(R) for q in range(R)
        )

    return _jax(task, convolve)


def torch_run(task: Task) -> Run:
    """PyTorch eager: oneDNN in single precision."""
    torch = torch_for(task)
    a = tensors(torch, task, ("X", "W"))
    convolve = torch.nn.functional.conv2d

    def both() -> tuple[Any, ...]:
        r = convolve(a["X"], a["W"])
        return r.detach(), *torch.autograd.grad(r, (a["X"], a["W"]), a["d_R"])

    def value() -> Any:
        with torch.no_grad():
            return convolve(a["X"], a["W"])

    return simple(both, named, value)


def einsum_run(task: Task) -> Run:
    """The native engine, with the program that the einsum front end makes of a kernel in single precision."""
    n, channels, k, o = (task.sizes[s] for s in "ncko")
    h = o + R - 1
    product = f"B<{n}, {channels}, {h}, {h}>[n, c, p + r, q + s] * C<{k}, {channels}, {R}, {R}>[k, c, r, s]"
    kernel = f"A<{n}, {k}, {o}, {o}>[n, k, p, q] = {product};"
    names = {"name": "conv2d", "ins": ["B", "C"], "outs": ["A"], "grad_to": ["B", "C"]}
    program = einsum.gradient(json.dumps(names | {"data_type": "float", "kernel": kernel}))
    run = compiled(program, NATIVE, task, {})
    given = {"B": task.arrays["X"], "C": task.arrays["W"], "d_A": task.arrays["d_R"]}
    return simple(lambda: run(**given), lambda out: named([out[n] for n in ("A", "d_B", "d_C")]))


def c_run(task: Task) -> Run:
    """Flat images for large shapes; for the small one channels as lanes."""
    small = all(task.sizes[n] == SMALL[n] for n in SMALL)
    convolve = c.function("small_convolution" if small else "convolution", "convolution", task.real, result=None)
    out = [np.zeros_like(task.arrays[n]) for n in ("d_R", "X", "W")]
    r, d_x, d_w = out
    first = [c.bound(v) for v in (*(task.sizes[n] for n in "ncko"), task.arrays["X"], task.arrays["W"], r)]
    rest, none = [c.bound(v) for v in (task.arrays["d_R"], d_x, d_w)], [c.bound(None)] * 3
    return simple(
        lambda: convolve(*first, *rest), lambda _: named([v.copy() for v in out]), lambda: convolve(*first, *none)
    )


def case(name: str, sizes: dict[str, int], real: str, target: float) -> Case:
    """The case for one shape and one precision."""
    n, channels, k, o = (sizes[s] for s in "ncko")
    contenders = {"jax": jax_idiomatic, "jax, literal": jax_literal, "torch": torch_run, "numpy": numpy_run, "C": c_run}
    return Case(
        key=f"c {name} {real}",
        title=f"convolution gradients by both operands, {n}×{k}×{o}×{o} from {channels} channels, {real}",
        program=PROGRAMS / "convolution.upl",
        of="R",
        wrt=("X", "W"),
        sizes=sizes,
        tiny=TINY,
        parameters=("n", "c", "k", "o"),
        inputs=inputs,
        reference=reference,
        contenders=contenders | ({"native, einsum": einsum_run} if real == "f32" else {}),
        against_peers=target,
        first_seconds=0.3 if sizes is SMALL else 1.0,
        real=real,
        tolerance=1e-10 if real == "f64" else 1e-4,
        parallel=sizes is LARGE,
    )


CASES = (
    case("small", SMALL, "f64", 6), case("large", LARGE, "f64", 3),
    case("small", SMALL, "f32", 5), case("large", LARGE, "f32", 1.2),
)  # fmt: skip
