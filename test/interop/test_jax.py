"""Programs as functions of JAX: values, gradients, transformations, against JAX's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'upl-mlir[jax]'")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy

from upl_mlir.interop.jax import jax_function  # noqa: E402

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def matmul():
    return jax_function(upl.load(EXAMPLES / "matmul.upl"), "C")


def operands(t=np.float64):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.standard_normal((3, 4)), t), jnp.asarray(rng.standard_normal((4, 2)), t)


@pytest.mark.parametrize("t", [np.float64, np.float32])
def test_value_and_gradient(matmul, t):
    a, b = operands(t)
    near = 1e-12 if t == np.float64 else 1e-5
    value = jax.jit(matmul)(a, b)
    assert value.dtype == t
    np.testing.assert_allclose(value, a @ b, rtol=near, atol=near)
    found = jax.jit(jax.grad(lambda *x: jnp.sin(matmul(*x)).sum(), argnums=(0, 1)))(a, b)
    wanted = jax.grad(lambda a, b: jnp.sin(a @ b).sum(), argnums=(0, 1))(a, b)
    for x, y in zip(found, wanted, strict=True):
        assert x.dtype == t
        np.testing.assert_allclose(x, y, rtol=near, atol=near)


def test_under_vmap(matmul):
    a, b = operands()
    many = jnp.stack([a, 2 * a, -a])
    found = jax.vmap(jax.grad(lambda x: (matmul(x, b) ** 2).sum()))(many)
    np.testing.assert_allclose(found, jax.vmap(jax.grad(lambda x: ((x @ b) ** 2).sum()))(many), rtol=1e-12)


def test_one_number_and_some_inputs_only():
    f = jax_function(upl.load(EXAMPLES / "scalars.upl"), "Y", wrt="w2")
    y, pull = jax.vjp(f, 1.7, 0.6)
    assert y == pytest.approx(upl.compile(upl.load(EXAMPLES / "scalars.upl")).scalar(1.7, 0.6)[0])
    by_w1, by_w2 = pull(3.0)
    assert by_w1 == 0
    assert by_w2 == pytest.approx(3 * jax.grad(lambda w: w * jnp.log(1.7) + jnp.sqrt(w * jnp.log(1.7)))(0.6))


def test_parameters_that_shapes_do_not_tell():
    f = jax_function(upl.load(EXAMPLES / "wave.upl"), "Y", T=5)
    rng = np.random.default_rng(1)
    p = upl.load(EXAMPLES / "wave.upl")
    given = {n: rng.standard_normal(v.shape(T=5, n=7)) for n, v in p.inputs.items()}
    np.testing.assert_allclose(f(*given.values()), upl.compile(p)(**given, T=5)["Y"], rtol=1e-12)


KINDS = """param n >= 1
input A<i> in 0<=i<n { -> M.a<i> }
input K<i>: int in 0<=i<n { -> M.k<i> }
output Y<i>
output Z<i>: f64
output S<i>: int
node M<i> in 0<=i<n { in a, k: int; a*a*k -> Y<i>; a*a*k -> Z<i>; k*1000 -> S<i> }
"""


def test_without_types_of_64_bits():
    """Outputs that are `int` or `f64`, and arguments of which none is real, have JAX's types of 32 bits."""
    p = upl.load(KINDS)
    k = np.array([1, 2, 3])
    with jax.enable_x64(False):
        for name, wanted in {"Y": k**3, "Z": k**3, "S": 1000 * k}.items():
            for a in (k, k.astype(np.float32)):
                found = jax_function(p, name)(a, k)
                assert found.dtype == (np.int32 if name == "S" else np.float32)
                np.testing.assert_array_equal(found, wanted)
        with pytest.raises(jax.errors.JaxRuntimeError, match="does not fit JAX's int32"):
            jax_function(p, "S")(k, k * 10**6 * 3)
        by_a = jax.grad(lambda a: jax_function(p, "Z")(a, k).sum())(k.astype(np.float32))
        np.testing.assert_array_equal(by_a, 2 * k * k)


def test_bf16():
    f = jax_function(upl.load(KINDS), "Y")
    a, k = jnp.arange(1, 4, dtype=jnp.bfloat16), np.array([1, 2, 3])
    found = f(a, k)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, k**3)
    by_a = jax.grad(lambda a: f(a, k).sum())(a)
    assert by_a.dtype == jnp.bfloat16
    np.testing.assert_array_equal(by_a.astype(float), 2 * k * k)


def test_an_input_named_twice(matmul):
    f = jax_function(upl.load(EXAMPLES / "matmul.upl"), "C", wrt=["A", "A"])
    a, b = operands()
    found, wanted = (jax.grad(lambda a, g=g: g(a, b).sum())(a) for g in (f, matmul))
    np.testing.assert_array_equal(found, wanted)


def test_what_is_wrong_is_said(matmul):
    for wrt, why in (("Q", "is not an input of the program"), ("K", "is not of real numbers")):
        with pytest.raises(upl.UplError, match=rf"UPL1502.*`{wrt}`.*{why}"):
            jax_function(upl.load(KINDS), "Y", wrt=wrt)
    with pytest.raises(upl.UplError, match=r"UPL1501.*1 arguments are given for the inputs A, B"):
        matmul(np.zeros((2, 3)))
    with pytest.raises(upl.UplError, match=r"UPL1503.*`K`: expected shape \(3,\)"):
        jax_function(upl.load(KINDS), "Y", n=3)(np.zeros(3), np.zeros(4))
    with pytest.raises(upl.UplError, match=r"UPL1502.*there is no output `D`"):
        jax_function(upl.load(EXAMPLES / "matmul.upl"), "D")
    with pytest.raises(upl.UplError, match="UPL1505"):
        matmul(np.zeros((2, 3)), np.zeros((4, 2)))
