"""JAX functions as UPL programs: models and single primitives against JAX, positions, and what is refused."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

jax = pytest.importorskip("jax", reason="JAX, the oracle, is not installed: pip install 'upl-mlir[oracle]'")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy
sys.path.insert(0, str(Path(__file__).parent))
FUNCTIONS = importlib.import_module("jax_functions").FUNCTIONS
MODELS = importlib.import_module("jax_models").MODELS
sys.path.pop(0)


def near(got: Any, want: Any, part: float) -> None:
    """Up to a part of the greatest element; what is no number, and the infinite, in the same places."""
    got, want = np.asarray(got, float), np.asarray(want, float)
    assert got.shape == want.shape
    most = np.max(np.abs(want[np.isfinite(want)]), initial=1e-3)
    np.testing.assert_allclose(got, want, rtol=0, atol=part * most)


def gradient(name: str) -> None:
    f, args, wrt = MODELS[name]
    value, found = upl.value_and_grad(upl.from_jax(f), wrt)(*args)
    want, derivative = jax.value_and_grad(f, wrt)(*map(jnp.asarray, args))
    near(value, want, 1e-14)
    for a, b in zip(found, derivative, strict=True):
        near(a, b, 1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    """Value and gradient, as one proved program."""
    gradient(name)
    f, args, _ = MODELS[name]
    assert upl.from_jax(f).program(*args).check().ok


@pytest.mark.parametrize("name", ["mlp", "physics", "autoencoder"])
def test_second_derivatives(name: str) -> None:
    """The Hessian by the first argument times a vector."""
    f, args, _ = MODELS[name]
    v = np.random.default_rng(1).normal(size=args[0].shape)
    g = upl.from_jax(f)
    got = upl.jvp(upl.grad(g, 0), args, (v, *(np.zeros_like(a) for a in args[1:])))[1]
    want = jax.jvp(lambda x: jax.grad(f)(x, *map(jnp.asarray, args[1:])), (jnp.asarray(args[0]),), (jnp.asarray(v),))[1]
    near(got, want, 1e-10)


@pytest.mark.parametrize("name", ["mlp", "jacobi", "attention"])
def test_models_on_the_machine(name: str) -> None:
    """In simulated hardware, in f32."""
    f, args, _ = MODELS[name]
    got = upl.from_jax(f, engine="rtl")(*args)
    near(got, f(*map(jnp.asarray, args)), 1e-4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    """Value, and where it is real the derivative of a number made of it by all real arguments."""
    f, args = FUNCTIONS[name]
    given = [jnp.asarray(a) for a in args]
    want = np.asarray(f(*given))
    wrt = tuple(n for n, a in enumerate(given) if a.dtype.kind == "f")
    if not wrt or want.dtype.kind != "f":
        near(upl.from_jax(f)(*args), want, 1e-13)
        return

    def number(*a: Any) -> Any:
        y = f(*a)
        return jnp.sum(jnp.sin(y)), y

    (_, got), found = upl.value_and_grad(upl.from_jax(number), wrt, has_aux=True)(*args)
    near(got, want, 1e-13)
    for a, b in zip(found, jax.grad(number, wrt, has_aux=True)(*given)[0], strict=True):
        near(a, b, 1e-11)


def test_rounds_that_data_decide() -> None:
    """Newton's method for a root, until it is near: value, forward and reverse mode, which JAX has for a fixed number."""

    def root(a: Any) -> Any:
        def off(s: Any) -> Any:
            return jnp.abs(s[0] * s[0] - a) > 1e-13 * a

        return jax.lax.while_loop(off, lambda s: (0.5 * (s[0] + a / s[0]), s[1] + 1), (a, 0))

    f = upl.from_jax(root)
    for a in (0.3, 2.0, 81.0):
        (got, rounds), (want, count) = f(a), root(a)
        near(got, want, 1e-15)
        assert rounds == count
        near(upl.grad(upl.from_jax(lambda a: root(a)[0]))(a), 0.5 / np.sqrt(a), 1e-8)


def test_trees_static_arguments_and_single_precision() -> None:
    def f(p: Any, n: int, x: Any) -> Any:
        return {"y": x @ p["w"] + p["b"], "n": (x**n).sum()}

    p, x = {"w": np.ones((3, 2)), "b": np.zeros(2)}, np.arange(6.0).reshape(2, 3)
    got = upl.from_jax(f, static_argnums=1)(p, 2, x)
    want = f({k: jnp.asarray(v) for k, v in p.items()}, 2, jnp.asarray(x))
    assert set(got) == {"y", "n"}
    near(got["y"], want["y"], 1e-15)
    near(got["n"], want["n"], 1e-15)
    single = upl.from_jax(lambda x: jnp.sin(x).sum())(x.astype(np.float32))
    assert single.dtype == np.float32
    near(single, np.sin(x).sum(), 1e-6)


def test_whole_numbers_are_told_from_real_ones() -> None:
    """The same function with an index and with a number."""
    f = upl.from_jax(lambda x, k: x // k)
    assert f(np.array(7), np.array(2)) == 3
    assert f(np.array(7.5), np.array(2.5)) == 3.0
    assert f(np.array(-7), np.array(2)) == -4


def test_numbers_that_are_drawn_in_the_function_are_constants() -> None:
    """Where the key is no argument."""

    def f(x: Any) -> Any:
        return x + jax.random.normal(jax.random.key(3), (4,))

    near(upl.from_jax(f)(np.ones(4)), f(jnp.ones(4)), 1e-15)


@jax.custom_vjp
def straight_through(x: Any) -> Any:
    return jnp.floor(x)


straight_through.defvjp(lambda x: (straight_through(x), None), lambda _, g: (g,))


def test_derivative_rules_of_the_users_own() -> None:
    """They are not passed over in silence.  At 0, relu has the derivative that JAX says."""
    x = np.array([-1.5, 0.0, 2.5])

    def f(x: Any) -> Any:
        return straight_through(x).sum()

    with pytest.raises(upl.UplError, match=r"`straight_through` has a derivative rule of its own"):
        upl.from_jax(f)(x)
    assert upl.from_jax(f, inline_custom=True)(x) == f(x)
    near(upl.grad(upl.from_jax(lambda x: jax.nn.relu(x).sum()))(x), [0, 0, 1], 0)


SMOOTH = {
    "softplus": (jax.nn.softplus, [0.0, 0.5]),
    "log_sigmoid": (jax.nn.log_sigmoid, [0.0, -1.0]),
    "logaddexp": (lambda x: jnp.logaddexp(x, x[::-1]), [1.0, 1.0]),
    "logaddexp2": (lambda x: jnp.logaddexp2(x, 1.0), [1.0, 2.0]),
    "sinc": (jnp.sinc, [0.0, 0.5]),
    "xlogy": (lambda x: jax.scipy.special.xlogy(x, 2 + x), [0.0, 0.5]),
    "xlog1py": (lambda x: jax.scipy.special.xlog1py(x, 2 + x), [0.0, 0.5]),
    "log_ndtr": (jax.scipy.special.log_ndtr, [0.0, -9.0]),
    "erfc": (jax.scipy.special.erfc, [0.0, 5.0]),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_rules_of_jax_for_functions_of_elements(name: str) -> None:
    """They are taken over: what is inside has kinks, and cases of its own, where the function has none."""
    f, at = SMOOTH[name]
    x = np.array(at)
    got = upl.hessian(upl.from_jax(lambda x: jnp.sum(f(x) * f(x))))(x)
    near(got, jax.hessian(lambda x: jnp.sum(f(x) * f(x)))(jnp.asarray(x)), 1e-11)


def test_a_rule_that_goes_on_without_end() -> None:
    """`sinc` names its next derivative by itself: after so many, none is known, and none is made up."""
    f = upl.from_jax(jnp.sinc)
    d = [f]
    for _ in range(5):
        d.append(upl.grad(d[-1]))
    assert [float(g(np.array(0.0))) for g in d[:3]] == pytest.approx([1, 0, -(np.pi**2) / 3])
    with pytest.raises(upl.UplError, match="no derivative is known"):
        d[5](np.array(0.0))


def root(a: Any) -> Any:
    """By bisection, whose derivative is 0."""

    def bisect(f: Any, start: Any) -> Any:
        def step(s: Any) -> Any:
            middle, n = (s[0] + s[1]) / 2, s[2] + 1
            return jnp.where(f(middle) < 0, middle, s[0]), jnp.where(f(middle) < 0, s[1], middle), n

        return jax.lax.while_loop(lambda s: s[2] < 60, step, (0 * start, 10 + 0 * start, 0))[0]

    start = jnp.ones_like(a)
    slope = lambda g, y: y / g(start)  # noqa: E731  (of a function of elements)
    return jax.lax.custom_root(lambda x: x * x - a, start, bisect, slope)


def test_a_rule_of_jax_that_would_be_lost() -> None:
    """Is refused, with what it means to go on without it; of numbers alone it is taken over."""
    near(upl.grad(upl.from_jax(root))(np.array(2.0)), 1 / np.sqrt(8), 1e-14)
    with pytest.raises(upl.UplError, match=r"`_custom_root` of JAX has a derivative rule of its own"):
        upl.from_jax(root)(np.array([2.0, 3.0]))
    near(upl.from_jax(root, inline_custom=True)(np.array([2.0, 3.0])), np.sqrt([2, 3]), 1e-14)


@pytest.mark.parametrize("f", [jax.nn.softmax, jnp.linalg.pinv, lambda a: jnp.linalg.det(a) * a])
def test_rules_of_jax_for_whole_arrays(f: Any) -> None:
    """Results that have the operand's shape are not made element by element."""
    a = np.array([[1.0, 2.0], [-0.5, 3.0]])
    got = upl.jacobian(upl.from_jax(f))(a)
    near(got, jax.jacobian(f)(jnp.asarray(a)), 1e-12)


@pytest.mark.parametrize("name", ["erfc", "ndtr"])
def test_tails(name: str) -> None:
    """Far from 0 they are small, not 0: relative to themselves."""
    f = getattr(jax.scipy.special, name)
    x = np.linspace(-6, 26, 65) * (1 if name == "erfc" else -1)
    np.testing.assert_allclose(upl.from_jax(f)(x), f(jnp.asarray(x)), rtol=1e-12)


def test_positions_are_those_of_the_function() -> None:
    program = upl.from_jax(MODELS["mlp"][0]).program(*MODELS["mlp"][1])
    assert Path(program.check().obligations[0].span.file).name == "jax_models.py"  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize(
    ("f", "args", "told"),
    [
        (lambda x: jnp.fft.rfft(x).real, (np.ones(4),), r"complex numbers \(the JAX primitive `fft`\)"),
        (lambda x: jnp.abs(jnp.linalg.eigvals(x)), (np.eye(2),), "complex128"),
        (lambda x: jax.lax.approx_max_k(x, 2)[0], (np.ones(4),), r"use jax\.lax\.top_k"),
        (lambda x: jax.lax.linalg.householder_product(x, x[0]), (np.eye(2),), r"use jnp\.linalg\.qr"),
        (lambda x: jnp.abs(jnp.fft.fft(x)), (np.ones(4),), "complex128"),
        (lambda x: jnp.linalg.svd(x)[1], (np.ones((3, 2)),), "square factors"),
        (lambda x: jax.lax.erf_inv(x) + 1, (np.ones(2),), "`erf_inv` has no meaning"),
        (lambda k: jax.random.normal(jax.random.wrap_key_data(k), (3,)), (np.array([1, 2], np.uint32),), "random"),
        (lambda x: x.astype(jnp.bfloat16) + 1, (np.ones(2),), "bfloat16"),
        (lambda x: jax.lax.reduce_precision(x, 5, 10), (np.ones(2),), "fewer bits"),
        (lambda k: k ^ 3, (np.array([1, 2]),), "bits"),
        (lambda k: jax.lax.reduce(k, np.int64(-1), jax.lax.bitwise_and, (0,)), (np.array([6, 3]),), "bits"),
        (lambda x: x.at[1].apply(jnp.sin), (np.ones(3),), "applied to some elements"),
        (lambda k: -k, (np.array([1, 2], np.uint32),), "arithmetic of uint32"),
        (lambda a, b: a - b, (np.array([1], np.uint64), np.array([2], np.uint64)), "arithmetic of uint64"),
        (lambda k: k.astype(jnp.uint8) * 2, (np.array([1, 2]),), "a conversion of int64 to uint8 wraps round"),
        (lambda k: k + 250, (np.array([1, 10], np.uint8),), "arithmetic of uint8"),
    ],
)
def test_what_is_refused(f: Any, args: Any, told: str) -> None:
    """With the line."""
    with pytest.raises(upl.UplError, match=told) as caught:
        upl.from_jax(f)(*args)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "UPL1936" and diagnostic.span is not None
    assert Path(diagnostic.span.file).name == "test_from_jax.py"


@pytest.mark.parametrize("engine", ["interp", "native"])
def test_indices_out_of_bounds(engine: Any) -> None:
    """Known ones are left out where JAX does that, and clipped where it is told to; data out of bounds are an error."""
    x, v = np.arange(12.0).reshape(3, 4), np.array([1.0, 10.0, 100.0])
    i, j, below = np.array([0, 2, 1]), np.array([5, 1, -1]), [-1, 2, 3]

    def same(f: Any, *args: Any) -> None:
        given = tuple(map(jnp.asarray, args))
        np.testing.assert_array_equal(upl.from_jax(f, engine=engine)(*args), f(*given))
        change = upl.grad(upl.from_jax(lambda *a: jnp.sum(f(*a) ** 2), engine=engine))(*args)
        np.testing.assert_allclose(change, jax.grad(lambda *a: jnp.sum(f(*a) ** 2))(*given))

    same(lambda v: jax.ops.segment_sum(v, jnp.array(below), 3), v)
    same(lambda x: x.at[jnp.array([0, 7]), jnp.array([1, 2])].add(5.0), x)
    same(lambda x: x.at[jnp.array([0, -7, 2])].add(x[:3, :4] * 2), x)
    same(lambda x: x.at[jnp.array([0, 7]), jnp.array([1, 2])].set(5.0), x)
    same(lambda x, i, j: x.at[i, j].get(mode="clip"), x, i, j)
    same(lambda x, i, j: x.at[i, j].add(x[0, 1:]), x, i, j % 4)
    for f in (lambda x, i, j: x[i, j], lambda x, i, j: x.at[i, j].get(mode="fill"), lambda x, i, j: x[j],
              lambda x, i, j: jnp.take(x, j, axis=1), lambda x, i, j: x[:, j - 5], lambda x, i, j: x.at[i, j].add(1.0),
              lambda x, i, j: jax.ops.segment_sum(x, i - 1, 3), lambda x, i, j: x.at[j - 5].add(1.0)):  # fmt: skip
        with pytest.raises(upl.UplError, match="UPL16"):
            upl.from_jax(f, engine=engine)(x, i, j)


def test_equal_computations_are_made_once() -> None:
    """Three times the same function of the same array, as XLA sees it; a cheap one may be made again."""

    def f(x: Any) -> Any:
        return jnp.sum(jnp.tanh(x * 2) * (jnp.roll(jnp.tanh(x * 2), 1) + jnp.tanh(2 * x)))

    x = np.linspace(-1.0, 1.0, 9)
    traced = upl.from_jax(f)
    assert abs(float(traced(x)) - float(f(jnp.asarray(x)))) < 1e-14
    assert str(traced.program(x)).count("tanh(") == 2  # `2 * x` is another equation than `x * 2`
