"""Equations on known values, computed by numpy, have the bits that JAX gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

jax = pytest.importorskip("jax", reason="JAX, the oracle, is not installed: pip install 'upl-mlir[oracle]'")
folding = pytest.importorskip("upl_mlir.frontend.jaxpr.folding")
jnp = jax.numpy
jax.config.update("jax_enable_x64", True)

A: Any = np.array([[1.5, -0.0, np.nan], [np.inf, 3.0, -2.0]])
K: Any = np.array([[3, -4, 7], [2**62, 0, -(2**63)]])

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "iota": (lambda: jax.lax.broadcasted_iota(jnp.int64, (2, 3), 1), ()),
    "broadcast_in_dim": (lambda x: jax.lax.broadcast_in_dim(x, (3, 2, 3), (1, 2)), (A,)),
    "convert_element_type": (lambda x: jax.lax.convert_element_type(x, jnp.float32), (A,)),
    "transpose": (lambda x: jax.lax.transpose(x, (1, 0)), (A,)),
    "reshape": (lambda x: jax.lax.reshape(x, (3, 2)), (A,)),
    "squeeze": (lambda x: jax.lax.squeeze(x, (0,)), (A[:1],)),
    "concatenate": (lambda x, y: jax.lax.concatenate([x, y], 0), (A, A[:1])),
    "add": (jax.lax.add, (K, K)),
    "sub": (jax.lax.sub, (A, A)),
    "mul": (jax.lax.mul, (K, K)),
    "sqrt": (jax.lax.sqrt, (A,)),
    "eq": (jax.lax.eq, (A, A)),
    "ne": (jax.lax.ne, (A, A)),
    "lt": (jax.lax.lt, (A, A.T.reshape(2, 3))),
    "le": (jax.lax.le, (A, A.T.reshape(2, 3))),
    "gt": (jax.lax.gt, (K, K[::-1])),
    "ge": (jax.lax.ge, (K, K[::-1])),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, args = CASES[name]
    (eqn,) = jax.make_jaxpr(f)(*args).eqns
    assert eqn.primitive.name == name
    want = np.asarray(eqn.primitive.bind(*map(jnp.asarray, args), **eqn.params))
    monkeypatch.setattr(folding.jax.numpy, "asarray", lambda _: pytest.fail("JAX computed it"))
    (got,) = folding.folded(eqn, args)
    assert got.dtype == want.dtype
    assert got.tobytes() == want.tobytes()


def test_every_one_is_tested() -> None:
    assert CASES.keys() == folding.BY_NUMPY.keys()


def test_what_numpy_does_otherwise_is_left_to_jax() -> None:
    """A number beyond the type: JAX takes the nearest integer that there is."""
    (eqn,) = jax.make_jaxpr(lambda x: jax.lax.convert_element_type(x, jnp.int32))(A).eqns
    (got,) = folding.folded(eqn, (A,))
    assert got.tolist() == [[1, 0, 0], [2**31 - 1, 3, -2]]


def test_constants_of_a_function() -> None:
    """The identity matrix, a mask: no equation of theirs is left in the program."""

    def f(x: Any) -> Any:
        return jnp.sum(jnp.where(jnp.tri(3, dtype=bool), x @ jnp.eye(3), 0.0))

    x = np.arange(9.0).reshape(3, 3)
    assert upl.from_jax(f)(x) == np.tril(x).sum()
