"""Python functions as UPL programs: values and derivatives of all orders against JAX, in double precision."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

jax: Any = pytest.importorskip("jax")
jnp: Any = importlib.import_module("jax.numpy")
jax.config.update("jax_enable_x64", True)

sys.path.insert(0, str(Path(__file__).parent))
functions = importlib.import_module("functions")
sys.path.pop(0)
CASES = functions.CASES
normal = functions.normal


def compiled(transform: Any) -> Any:
    """One of JAX's transformations, compiled as a whole: by itself JAX compiles each operation, which takes ten times as
    long."""
    return lambda f, *args, **options: jax.jit(transform(f, *args, **options))


whole: Any = SimpleNamespace(
    grad=compiled(jax.grad), value_and_grad=compiled(jax.value_and_grad), hessian=compiled(jax.hessian),
    jacobian=compiled(jax.jacobian), jvp=lambda f, p, t: jax.jit(lambda p, t: jax.jvp(f, p, t))(p, t),
)  # fmt: skip


def same(got: Any, want: Any, tolerance: float = 1e-10) -> None:
    """That two trees of arrays have the same structure, shapes and values."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.shape(g) == np.shape(w)
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)


def pair(name: str) -> tuple[Callable[..., Any], Callable[..., Any], Any]:
    """The function for UPL, the same one for JAX, and the case."""
    case = CASES[name]
    return partial(case.f, np), partial(case.f, jnp), case


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient(name: str) -> None:
    f, g, case = pair(name)
    value, d = upl.value_and_grad(f, argnums=case.argnums)(*case.args)
    same((value, d), whole.value_and_grad(g, argnums=case.argnums)(*case.args))


COMPILED = ["mlp", "jacobi", "multidimensional_scaling", "lstm", "triangular"]


@pytest.mark.parametrize("engine", ["native"], indirect=True)
@pytest.mark.parametrize("name", COMPILED)
def test_native_code(name: str, engine: str) -> None:
    f, g, case = pair(name)
    value, d = upl.value_and_grad(f, argnums=case.argnums)(*case.args)
    same((value, d), whole.value_and_grad(g, argnums=case.argnums)(*case.args))


@pytest.mark.parametrize("engine", ["native"], indirect=True)
def test_loop_as_native_code(engine: str) -> None:
    args = normal(6), normal(5, seed=1)
    same(upl.value_and_grad(partial(heat, np))(*args), whole.value_and_grad(partial(heat, jnp))(*args))


def test_there_are_twenty() -> None:
    assert len(CASES) >= 20


def real(args: tuple[Any, ...]) -> bool:
    return all(np.asarray(a).dtype.kind == "f" for a in jax.tree.leaves(args))


FORWARD = ["affine_layer", "lstm", "multidimensional_scaling", "scalars", "elementary"]


@pytest.mark.parametrize("name", FORWARD)
def test_jvp(name: str) -> None:
    f, g, case = pair(name)
    assert real(case.args)
    tangents = jax.tree.map(lambda a: normal(*np.shape(a), seed=9) if np.shape(a) else 0.3, case.args)
    same(upl.jvp(f, case.args, tangents), whole.jvp(g, case.args, tangents))


def layered(xp: Any, x: Any, w: Any) -> Any:
    h = xp.tanh(x @ w)
    return {"h": h, "total": (xp.sum(h * x[0, 0]), x.T)}


def test_vjp_of_several_results() -> None:
    x, w = normal(4, 3), normal(3, 2, seed=1)
    value, back = upl.vjp(partial(layered, np), x, w)
    value_jax, back_jax = jax.vjp(partial(layered, jnp), x, w)
    same(value, value_jax)
    for seed in (2, 3):
        weights = {"h": normal(4, 2, seed=seed), "total": (0.7 * seed, normal(3, 4, seed=seed))}
        same(back(weights), back_jax(weights))


def test_jvp_of_several_results() -> None:
    x, w = normal(4, 3), normal(3, 2, seed=1)
    tangents = normal(4, 3, seed=5), normal(3, 2, seed=6)
    same(upl.jvp(partial(layered, np), (x, w), tangents), whole.jvp(partial(layered, jnp), (x, w), tangents))


@pytest.mark.parametrize("name", ["rosenbrock", "scalars", "triple_product", "quadratic_form"])
def test_hessian(name: str) -> None:
    f, g, case = pair(name)
    args = tuple(a[(slice(3),) * np.ndim(a)] if np.ndim(a) else a for a in case.args)
    same(upl.hessian(f, case.argnums)(*args), whole.hessian(g, case.argnums)(*args), 1e-9)
    same(upl.hessian(f)(*args), whole.hessian(g)(*args), 1e-9)


@pytest.mark.parametrize("mode", ["auto", "reverse", "forward"])
def test_jacobian(mode: Any) -> None:
    x, w = normal(2, 3), normal(3, 2, seed=1)
    got = upl.jacobian(partial(layered, np), argnums=(0, 1), mode=mode)(x, w)
    same(got, whole.jacobian(partial(layered, jnp), argnums=(0, 1))(x, w))


# -- derivatives inside functions --------------------------------------------------------------------------------------


def test_gradient_of_a_gradient() -> None:
    f, g, case = pair("rosenbrock")
    x = case.args[0]

    def outer(grad: Any, h: Any, xp: Any) -> Any:
        return lambda x: xp.sum(xp.cos(grad(h)(x)) * x)

    same(upl.grad(outer(upl.grad, f, np))(x), whole.grad(outer(jax.grad, g, jnp))(x))
    same(upl.function(outer(upl.grad, f, np))(x), outer(jax.grad, g, jnp)(x))


def test_third_derivative() -> None:
    def cubed(d: Any, xp: Any) -> Any:
        return d(d(d(lambda x: xp.sin(x) * xp.exp(x / 2))))

    same(cubed(upl.grad, np)(0.4), cubed(jax.grad, jnp)(0.4))


def test_training_step_with_its_gradient_inside() -> None:
    f, g, case = pair("affine_layer")

    def steps(value_and_grad: Any, loss: Any) -> Any:
        def run(x: Any, w: Any, b: Any) -> Any:
            for _ in range(2):
                value, (dw, db) = value_and_grad(loss, argnums=(1, 2))(x, w, b)
                w, b = w - 0.1 * dw, b - 0.1 * db
            return value, w, b

        return run

    same(upl.function(steps(upl.value_and_grad, f))(*case.args), steps(jax.value_and_grad, g)(*case.args))


def test_vjp_and_jvp_inside() -> None:
    def outer(m: Any, xp: Any) -> Any:
        def inner(x: Any) -> Any:
            return xp.sin(x) * x[0]

        def run(x: Any) -> Any:
            value, back = m.vjp(inner, x)
            (d,) = back(value * x)  # the seed depends on x, and on the value
            _, t = m.jvp(inner, (x,), (d,))
            return xp.sum(t * value)

        return run

    x = normal(3)
    same(upl.value_and_grad(outer(upl, np))(x), whole.value_and_grad(outer(jax, jnp))(x))


def test_aux() -> None:
    def f(xp: Any, x: Any) -> Any:
        return xp.sum(x**3), {"sines": xp.sin(x)}

    x = normal(3)
    same(upl.grad(partial(f, np), has_aux=True)(x), whole.grad(partial(f, jnp), has_aux=True)(x))
    same(upl.value_and_grad(partial(f, np), has_aux=True)(x), whole.value_and_grad(partial(f, jnp), has_aux=True)(x))


def test_derivative_by_what_does_not_matter_is_zero() -> None:
    def f(xp: Any, x: Any, y: Any, z: Any) -> Any:
        return xp.sum(x**2) + 0 * xp.sum(xp.sign(z))

    args = normal(3), normal(2), normal(2)
    d = upl.grad(partial(f, np), argnums=(0, 1, 2))(*args)
    same(d, whole.grad(partial(f, jnp), argnums=(0, 1, 2))(*args))
    same(upl.grad(partial(f, np), argnums=1)(*args), np.zeros(2))
    same(upl.hessian(partial(f, np), argnums=(0, 1))(*args), whole.hessian(partial(f, jnp), argnums=(0, 1))(*args))


def test_ties_of_a_maximum_are_shared_as_in_jax() -> None:
    x = np.array([1.0, 3.0, 3.0, 3.0, 2.0])
    same(upl.grad(lambda x: np.max(x) ** 2)(x), whole.grad(lambda x: jnp.max(x) ** 2)(x))
    same(upl.grad(lambda x: np.sum(np.maximum(x, 3.0)))(x), whole.grad(lambda x: jnp.sum(jnp.maximum(x, 3.0)))(x))


def test_accuracy_near_zero() -> None:
    x = np.array([0.0, 1e-12, -1e-9, 1e-4, 0.0999, -0.0999, 0.1001, 3.0])
    for name in ("log1p", "expm1", "sinh", "arcsinh"):
        f, g = getattr(np, name), getattr(jnp, name)
        value, d = upl.value_and_grad(lambda x, f=f: np.sum(f(x) * 1e3))(x)
        np.testing.assert_allclose(upl.function(f)(x), f(x), rtol=3e-16 * 4)
        want, d_want = whole.value_and_grad(lambda x, g=g: jnp.sum(g(x) * 1e3))(x)
        np.testing.assert_allclose(value, want, rtol=1e-14)
        np.testing.assert_allclose(d, d_want, rtol=1e-13)


# -- loops that stay loops ----------------------------------------------------------------------------------------------


def heat(xp: Any, u: Any, rhs: Any) -> Any:
    """With numpy arrays that are written; JAX's has them as values."""
    if xp is np:
        for k in upl.range(1, 6):
            u[1:-1] = (u[:-2] + u[2:] + rhs[k - 1] * np.cos(u[1:-1])) / (k + 1)
        return np.sum(u * u)
    for k in range(1, 6):
        u = u.at[1:-1].set((u[:-2] + u[2:] + rhs[k - 1] * jnp.cos(u[1:-1])) / (k + 1))
    return jnp.sum(u * u)


def test_loop_as_recurrence() -> None:
    args = normal(6), normal(5, seed=1)
    f, g = partial(heat, np), partial(heat, jnp)
    same(upl.value_and_grad(f, argnums=(0, 1))(*args), whole.value_and_grad(g, argnums=(0, 1))(*args))
    same(upl.jvp(f, args, args), whole.jvp(g, args, args))
    same(upl.hessian(f)(*args), whole.hessian(g)(*args))
    small = len(list(upl.function(f).program(*args).op.body.block.ops))
    more = upl.function(f).program(args[0], normal(50)[:5])
    assert len(list(more.op.body.block.ops)) == small  # rounds do not add nodes


def scan(module: Any, xp: Any, weights: Any, xs: Any) -> Any:
    loop = upl.fori_loop if module is upl else jax.lax.fori_loop

    def body(k: Any, state: Any) -> Any:
        h, total = state
        new = xp.tanh(xs[k] @ weights["w"] + h @ weights["u"])
        return new, total + xp.sum(new * h)

    h, total = loop(0, 4, body, (xp.zeros(3), 0.0))
    return total + xp.sum(h)


def test_fori_loop() -> None:
    weights = {"w": normal(2, 3), "u": normal(3, 3, seed=1)}
    xs = normal(4, 2, seed=2)
    value, d = upl.value_and_grad(partial(scan, upl, np), argnums=(0, 1))(weights, xs)
    same((value, d), whole.value_and_grad(partial(scan, jax, jnp), argnums=(0, 1))(weights, xs))


def test_nested_loops_and_triangular_reads() -> None:
    def sweep(a: Any) -> Any:
        total = np.zeros_like(a[0])
        for i in upl.range(3):
            for j in upl.range(4):
                total[:] = np.sin(total) + a[i] * a[j + i] + i * j
            a[i + 1] = a[i + 1] + total
        return np.sum(total * a[0]) + np.sum(a)

    def unrolled(a: Any) -> Any:
        total = jnp.zeros_like(a[0])
        for i in range(3):
            for j in range(4):
                total = jnp.sin(total) + a[i] * a[j + i] + i * j
            a = a.at[i + 1].set(a[i + 1] + total)
        return jnp.sum(total * a[0]) + jnp.sum(a)

    x = normal(6, 2)
    same(upl.value_and_grad(sweep)(x), whole.value_and_grad(unrolled)(x))


def test_single_precision() -> None:
    f, g, case = pair("affine_layer")
    args = tuple(a.astype(np.float32) for a in case.args)
    value, d = upl.value_and_grad(f)(*args)
    assert value.dtype == d.dtype == np.float32
    same((value, d), whole.value_and_grad(g)(*args), 1e-4)
    assert "f32" in str(upl.grad(f).program(*args))
