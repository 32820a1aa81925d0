"""Comparisons, choices, branches and loops in graphs: values, derivatives of both orders, and what data decide."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.frontend import graph as ad

X = np.array([[0.3, -1.2, 0.7], [1.1, 0.4, -0.5]])
Y = np.array([0.3, 0.4, -2.0])


def test_comparisons() -> None:
    """1 where they hold, else 0; with nodes and with numbers, broadcast."""
    x, y = ad.Variable("x"), ad.Variable("y")
    nodes = [x > y, x >= y, x < y, x <= y, ad.eq_op(x, y), ad.ne_op(x, y), x > 0.3, x >= 0.3, x < 0.3, x <= 0.3]
    nodes += [ad.eq_byconst_op(x, 0.3), ad.ne_byconst_op(x, 0.3)]
    nodes += [ad.and_op(x > 0, y), ad.or_op(x > 0, y > 0), ad.not_op(x > 0)]
    want = [X > Y, X >= Y, X < Y, X <= Y, X == Y, X != Y, X > 0.3, X >= 0.3, X < 0.3, X <= 0.3, X == 0.3, X != 0.3]
    want += [X > 0, (X > 0) | (Y > 0), X <= 0]
    for got, value in zip(ad.Executor(nodes).run({"x": X, "y": Y}), want, strict=True):
        np.testing.assert_array_equal(got, value.astype(float))
    assert x != y  # nodes are equal only to themselves
    with pytest.raises(upl.UplError, match=r"UPL1925.*`\(x>0\)` is not known(.|\n)*where_op"):
        bool(x > 0)


def test_where() -> None:
    """Native code; the derivative goes the way that was taken, also where the other one has none."""
    x = ad.Variable("x")
    y = ad.sum_op(ad.where_op(x > 0, ad.sqrt_op(x), x * x))
    value, d, b = ad.Executor([y, *ad.gradients(y, [x]), *ad.gradients(y, [x > 0])], engine="native").run({"x": X})
    assert value == pytest.approx(np.sum(np.where(X > 0, np.sqrt(np.abs(X)), X * X)))
    np.testing.assert_allclose(d, np.where(X > 0, 0.5 / np.sqrt(np.abs(X)), 2 * X), rtol=1e-14)
    np.testing.assert_array_equal(b, np.zeros_like(X))


def branch() -> tuple[Any, Any]:
    """exp(xy) or x², by whether x is above y."""
    x, y = ad.Variable("x"), ad.Variable("y")
    return [x, y], ad.cond_op(x > y, lambda a, b: ad.exp_op(a * b), lambda a, b: a * a, x, y)


@pytest.mark.parametrize("engine", ["interp", "token", "reference", "native"])
def test_a_branch(engine: str) -> None:
    """Values and first derivatives."""
    wrt, z = branch()
    e = ad.Executor([z, *ad.gradients(z, wrt)], engine=engine)
    value, dx, dy = e.run({"x": X, "y": Y})
    up = X > Y
    np.testing.assert_allclose(value, np.where(up, np.exp(X * Y), X * X), rtol=1e-14)
    np.testing.assert_allclose(dx, np.where(up, Y * np.exp(X * Y), 2 * X), rtol=1e-14)
    np.testing.assert_allclose(dy, np.where(up, X * np.exp(X * Y), 0).sum(0), rtol=1e-13, atol=1e-15)


def test_only_one_way_is_computed() -> None:
    """Data decide which node fires: as many firings of both together as there are elements."""
    _, z = branch()
    e = ad.Executor([z], engine="interp")
    p = e.program({"x": X, "y": Y})
    assert p.check().ok
    run = upl.compile(p)
    run(x=X, y=Y)
    fired = run.stats["firings"]
    up = int(np.sum(X > Y))
    assert (fired["cond_1_then"], fired["cond_1_else"]) == (up, X.size - up)


@pytest.mark.parametrize("engine", ["token", "native"])
def test_second_derivatives_of_a_branch(engine: str) -> None:
    """Reverse over reverse."""
    (x, y), z = branch()
    (d,) = ad.gradients(z, [x])
    dxx, dxy = ad.Executor(ad.gradients(d, [x, y]), engine=engine).run({"x": X, "y": Y})
    up = X > Y
    np.testing.assert_allclose(dxx, np.where(up, Y * Y * np.exp(X * Y), 2), rtol=1e-13)
    np.testing.assert_allclose(dxy, np.where(up, (1 + X * Y) * np.exp(X * Y), 0).sum(0), rtol=1e-13, atol=1e-14)


def test_a_branch_that_reads_nothing() -> None:
    """A number on one side; a condition that is data of its own; results used twice."""
    c, x = ad.Variable("c"), ad.Variable("x")
    z = ad.cond_op(c, lambda a: 2, lambda a: ad.sin_op(a) + 1, x)
    y = ad.sum_op(z * z)
    _, d = ad.Executor([y, *ad.gradients(y, [x])], engine="token").run({"c": [1.0, 0.0, -3.0], "x": Y})
    np.testing.assert_allclose(d, [0, 2 * (np.sin(Y[1]) + 1) * np.cos(Y[1]), 0], rtol=1e-14)


def kepler(m: float, e: float) -> float:
    """Kepler's equation by Newton's method."""
    u, step = m, 1.0
    while abs(step) > 1e-10:
        step = (u - e * math.sin(u) - m) / (1 - e * math.cos(u))
        u = u - step
    return u


M, E = np.array([0.1, 0.5, 2.5]), np.array([0.8, 0.3, 0.6])


def loop() -> tuple[Any, Any, Any]:
    """The same in a graph: four states, two of which stay as they are."""
    m, e = ad.Variable("m"), ad.Variable("e")

    def body(u: Any, step: Any, m: Any, e: Any) -> Any:
        step = (u - e * ad.sin_op(u) - m) / (1 - e * ad.cos_op(u))
        return u - step, step, m, e

    u, *_ = ad.while_op(lambda u, step, m, e: step * step > 1e-20, body, m, ad.oneslike_op(m), m, e)
    return m, e, u


@pytest.mark.parametrize("engine", ["interp", "token", "native"])
def test_a_loop(engine: str) -> None:
    """Each element in as many rounds as it takes; derivatives by the implicit function."""
    m, e, u = loop()
    value, dm, de = ad.Executor([u, *ad.gradients(u, [m, e])], engine=engine).run({"m": M, "e": E})
    np.testing.assert_allclose(value, [kepler(*p) for p in zip(M, E, strict=True)], rtol=1e-13)
    slope = 1 / (1 - E * np.cos(value))
    np.testing.assert_allclose(dm, slope, rtol=1e-8)
    np.testing.assert_allclose(de, np.sin(value) * slope, rtol=1e-8)


@pytest.mark.parametrize("engine", ["token", "native"])
def test_second_derivatives_of_a_loop(engine: str) -> None:
    """Reverse over reverse through a loop that data end (it stranded tokens)."""
    m, e, u = loop()
    (dm,) = ad.gradients(u, [m])
    value, dmm, dme = ad.Executor([u, *ad.gradients(dm, [m, e])], engine=engine).run({"m": M, "e": E})
    sine, slope = np.sin(value), 1 / (1 - E * np.cos(value))
    np.testing.assert_allclose(dmm, -E * sine * slope**3, rtol=1e-6)
    np.testing.assert_allclose(dme, slope**2 * (np.cos(value) - E * sine**2 * slope), rtol=1e-6)


def newton(where: Any, whilst: Any, sin: Any, cos: Any, x: Any, k: Any) -> Any:
    """A root by Newton's method, of one of two equations, on JAX's arrays or on nodes."""
    def off(u: Any, x: Any, k: Any) -> Any:
        return where(k > 0, u * u * u + k * u - x, u - x / 2 - sin(u) / 4)

    def body(u: Any, step: Any, x: Any, k: Any) -> Any:
        step = off(u, x, k) / where(k > 0, 3 * u * u + k, 1 - cos(u) / 4)
        return u - step, step, x, k

    return whilst(lambda u, step, x, k: step * step > 1e-24, body, x, x * 0 + 1, x, k)[0]


def test_against_jax() -> None:
    """Choices inside a loop that data end, natively: value, gradients, and their gradients.  JAX has no reverse mode of
    such loops; its forward mode, twice, is the reference."""
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    x, k = ad.Variable("x"), ad.Variable("k")
    u = newton(ad.where_op, ad.while_op, ad.sin_op, ad.cos_op, x, k)
    y = ad.sum_op(u * u * x)
    first = ad.gradients(y, [x, k])
    second = [*ad.gradients(first[0], [x, k]), *ad.gradients(first[1], [x, k])]
    given = np.array([0.4, 2.0, -1.3, 3.0]), np.array([2.0, -1.0, 0.5, -2.0])
    found = ad.Executor([u, *first, *second], engine="native").run(dict(zip((x, k), given, strict=True)))
    jnp = jax.numpy

    def whilst(holds: Any, body: Any, *states: Any) -> Any:
        return jax.lax.while_loop(lambda s: holds(*s), lambda s: body(*s), states)

    def root(x: Any, k: Any) -> Any:
        return newton(jnp.where, whilst, jnp.sin, jnp.cos, x, k)

    def one(x: Any, k: Any) -> Any:
        return root(x, k) ** 2 * x

    slopes = [jax.vmap(jax.jacfwd(one, n))(*given) for n in (0, 1)]
    curves = [jax.vmap(jax.jacfwd(jax.jacfwd(one, n), m))(*given) for n in (0, 1) for m in (0, 1)]
    for got, want in zip(found, [jax.vmap(root)(*given), *slopes, *curves], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("engine", ["interp", "native"])
def test_rounds_that_mix_elements(engine: str) -> None:
    """By a traced function: the derivative of the greatest eigenvalue, through the power iteration, and its derivative."""
    def power(a: Any, x: Any) -> Any:
        def body(s: Any) -> Any:
            y = a @ s[0]
            return y / np.linalg.norm(y), s[0]

        return upl.while_loop(lambda s: np.sum((s[0] - s[1]) ** 2) > 1e-24, body, (x, 0 * x))[0]

    a, x = ad.Variable("a"), ad.Variable("x")
    most = ad.call_op(lambda a, y: y @ a @ y, a, ad.call_op(power, a, x))
    (slope,) = ad.gradients(most, [a])
    (twice,) = ad.gradients(ad.sum_op(slope * slope * slope), [a])
    matrix = np.array([[2.0, 0.5], [0.5, 4.0]])
    found = ad.Executor([most, slope, twice], engine=engine).run({a: matrix, x: np.ones(2)})
    values, vectors = np.linalg.eigh(matrix)
    v, w = vectors[:, 1], vectors[:, 0]
    np.testing.assert_allclose(found[0], values[1], rtol=1e-14)
    np.testing.assert_allclose(found[1], np.outer(v, v), rtol=1e-9, atol=1e-12)
    turn = 3 * (np.outer(v, v) ** 2 * (np.outer(w, v) + np.outer(v, w))).sum() / (values[1] - values[0])
    np.testing.assert_allclose(found[2] + found[2].T, turn * (np.outer(w, v) + np.outer(v, w)), rtol=1e-7)


def test_a_loop_in_a_graph() -> None:
    """Between other operations; its rounds are counted by a state; a program for each shape."""
    x = ad.Variable("x")
    half, rounds = ad.while_op(lambda a, k: ad.and_op(a > 1, k < 5), lambda a, k: [a / 2, k + 1], x * x, ad.zeroslike_op(x))
    y = ad.sum_op(half * rounds)
    e = ad.Executor([y, rounds, *ad.gradients(y, [x])], engine="token")
    for v in (np.array([0.5, 3.0, 100.0]), np.array([[1.5, 2.5]])):
        k = np.clip(np.ceil(2 * np.log2(v)), 0, 5)
        value, count, d = e.run({"x": v})
        np.testing.assert_array_equal(count, k)
        assert value == pytest.approx(np.sum(v**2 / 2**k * k))
        np.testing.assert_allclose(d, 2 * v / 2**k * k, rtol=1e-13)
    assert len(e._stages[0].built) == 2


def test_what_is_refused() -> None:
    """With what to write instead."""
    x, y = ad.Variable("x"), ad.Variable("y")

    def wrong(make: Any) -> str:
        with pytest.raises(upl.UplError) as e:
            make()
        return str(e.value)

    assert "UPL1925]: cond: `y` comes from outside" in wrong(lambda: ad.cond_op(x, lambda a: a * y, lambda a: a, x))
    mixed = wrong(lambda: ad.while_op(lambda a: a > 1, lambda a: ad.sum_op(a) * a, x))
    assert "while: `Sum(x)` is no operation on elements (sum)" in mixed and "upl.while_loop" in mixed
    assert "`body` returned 1 nodes for 2 states" in wrong(lambda: ad.while_op(lambda a, b: a > b, lambda a, b: a, x, y))
    assert "at least one state" in wrong(lambda: ad.while_op(lambda: 1, lambda: 1))
    assert "UPL1923" in wrong(lambda: ad.cond_op(x, lambda a: "one", lambda a: a, x))
    assert "UPL1921" in wrong(lambda: ad.Executor([branch()[1]]).run({"x": X, "y": [1.0, 2.0]}))
