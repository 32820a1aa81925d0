"""`upl.vmap` and `upl.check_grads` of Python functions: against loops over the examples, and against wrong derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

RNG = np.random.default_rng(4)
W, XS, YS = RNG.normal(size=(3, 2)), RNG.normal(size=(5, 3)), RNG.normal(size=(5, 2))


@upl.function
def loss(w: Any, x: Any, y: Any) -> Any:
    """One example's."""
    return np.sum((np.tanh(x @ w) - y) ** 2)


def expected(x: Any, y: Any) -> float:
    """The same in NumPy."""
    return float(np.sum((np.tanh(x @ W) - y) ** 2))


def test_shared_and_mapped_arguments() -> None:
    """What is shared comes in once: the program has one `w`."""
    f = upl.vmap(loss, in_axes=(None, 0, 0))
    np.testing.assert_allclose(f(W, XS, YS), [expected(x, y) for x, y in zip(XS, YS, strict=True)], rtol=1e-13)
    p = f.program(W, XS, YS)
    assert [len(v.fields) for v in p.inputs.values()] == [2, 2, 2]
    assert p.check().ok


def test_axes() -> None:
    """Examples along other axes, of arguments and of results; arguments by name; trees."""

    def f(d: Any, scale: Any) -> Any:
        return {"a": np.outer(d["x"], d["y"]) * scale, "b": d["x"] > 0}

    out = upl.vmap(f, in_axes=1, out_axes=-1)({"x": XS.T, "y": YS.T}, scale=np.arange(5.0))
    want = np.stack([np.outer(x, y) * s for s, (x, y) in enumerate(zip(XS, YS, strict=True))], axis=-1)
    np.testing.assert_allclose(out["a"], want, rtol=1e-14)
    np.testing.assert_array_equal(out["b"], (XS > 0).T)


def test_what_does_not_depend_on_the_examples() -> None:
    """It is computed once, and the same for all."""
    f = upl.vmap(lambda w, x: (np.sum(w), x * 2), in_axes=(None, 0))
    total, double = f(W, XS)
    np.testing.assert_allclose(total, np.full(5, W.sum()))
    np.testing.assert_array_equal(double, 2 * XS)
    alone = upl.vmap(lambda w, x: np.sum(w), in_axes=(None, 0), out_axes=None)(W, XS)
    assert alone == pytest.approx(W.sum())


def test_derivatives_of_each_example() -> None:
    """Mapped gradients, Hessians of a mapped function, and a map of a map."""
    each = upl.vmap(upl.grad(loss), in_axes=(None, 0, 0))(W, XS, YS)
    for d, x, y in zip(each, XS, YS, strict=True):
        np.testing.assert_allclose(d, upl.grad(loss)(W, x, y), rtol=1e-12)

    def whole(w: Any) -> Any:
        return np.mean(upl.vmap(loss, in_axes=(None, 0, 0))(w, XS, YS))

    np.testing.assert_allclose(upl.grad(whole)(W), each.mean(0), rtol=1e-12)
    pairs = upl.vmap(upl.vmap(lambda a, b: a @ b, in_axes=(None, 0)), in_axes=(0, None))(XS, XS)
    np.testing.assert_allclose(pairs, XS @ XS.T, rtol=1e-13)


def test_what_vmap_refuses() -> None:
    """With the numbers that do not fit."""
    with pytest.raises(upl.UplError, match=r"UPL1934.*have 3 and 5 examples"):
        upl.vmap(lambda a, b: a + b)(np.ones(5), np.ones(3))
    with pytest.raises(upl.UplError, match=r"UPL1934.*in_axes has 2 entries for 1 arguments"):
        upl.vmap(np.sin, in_axes=(0, 0))(XS)
    with pytest.raises(upl.UplError, match=r"UPL1934.*has 1 axes, and is mapped along axis 2"):
        upl.vmap(lambda a: a, in_axes=2)(np.ones(3))
    with pytest.raises(upl.UplError, match=r"UPL1934.*have nothing examples"):
        upl.vmap(lambda a: a, in_axes=None)(XS)
    with pytest.raises(upl.UplError, match=r"UPL1934.*out_axes=None, and a result depends"):
        upl.vmap(lambda a: a, out_axes=None)(XS)
    for f in (upl.vmap(lambda a: a, out_axes=2), upl.function(upl.vmap(lambda a: a, out_axes=2))):
        with pytest.raises(upl.UplError, match=r"UPL1934.*out_axes=2, and a result with its examples has 2 axes"):
            f(XS)
    with pytest.raises(upl.UplError, match=r"UPL1934.*has 0 axes, and is mapped along axis 0"):
        upl.function(lambda x: upl.vmap(lambda a, b: a * b)(x, np.sum(x)))(XS)
    with pytest.raises(upl.UplError, match=r"UPL1934.*argument 0 is static, and is mapped"):
        upl.vmap(upl.function(lambda n, x: n * x, static_argnums=0))(2, XS)
    with pytest.raises(upl.UplError, match=r"UPL1934.*argument 0 is static"):
        upl.grad(upl.function(lambda n, x: n * np.sum(x), static_argnums=0))(2.0, XS)


def test_static_arguments_of_a_mapped_function() -> None:
    f = upl.function(lambda n, x, y: n * x - y, static_argnums=0)
    square = np.arange(9.0).reshape(3, 3)
    np.testing.assert_array_equal(upl.vmap(f, in_axes=(None, 0, None))(2, square, np.ones(3)), 2 * square - 1)
    np.testing.assert_array_equal(upl.vmap(f, in_axes=(None, None, 0))(2, np.ones(3), square), 2 - square)


def test_check_grads() -> None:
    """Both modes and both orders, of all results; a wrong derivative is found, with the mode that has it."""
    upl.check_grads(loss, (W, XS[0], YS[0]), order=2)
    upl.check_grads(lambda x, y: (np.sin(x) * y, {"p": x @ y, "q": x > 0}), (XS[0], XS[1]), order=2)
    upl.check_grads(lambda x: np.exp(x).astype(np.float32), (XS[0].astype(np.float32),))
    with pytest.raises(upl.UplError, match=r"UPL1410.*forward mode"):
        upl.check_grads(lambda x: np.floor(3 * x) + x * 0.999, (np.array([1 / 3, 2 / 3]),))
    with pytest.raises(upl.UplError, match=r"UPL1934.*holds int64"):
        upl.check_grads(np.sin, (np.arange(3),))
    with pytest.raises(upl.UplError, match=r"UPL1934.*the arguments are a tuple"):
        upl.check_grads(np.sin, XS)
