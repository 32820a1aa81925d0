"""Traced Python functions as operations of a graph, layers of `upl_mlir.nn` among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir import nn
from upl_mlir.frontend import graph as ad

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(3, 4))
TABLE = RANDOM.normal(size=4)


def run(nodes: list[ad.Node], feed: dict[Any, Any]) -> list[np.ndarray]:
    return ad.Executor(nodes, engine="interp").run(feed)


def writing(x: Any) -> Any:
    x[1:] = x[:-1] * TABLE
    return x


def test_a_function_does_not_change_its_operand() -> None:
    x = ad.Variable("x")
    y = ad.call_op(writing, x * 1)
    z = ad.sum_op(y * y) + ad.sum_op(x)
    (d,) = ad.gradients(z, [x])
    wanted = X.copy()
    wanted[1:] = X[:-1] * TABLE
    found = run([y, x, z, d], {x: X})
    np.testing.assert_allclose(found[0], wanted)
    np.testing.assert_allclose(found[1], X)
    np.testing.assert_allclose(found[2], (wanted**2).sum() + X.sum())
    slope = np.ones_like(X)
    slope[0] += 2 * X[0]
    slope[:-1] += 2 * X[:-1] * TABLE**2
    np.testing.assert_allclose(found[3], slope)


def test_the_operand_itself_stays() -> None:
    x = ad.Variable("x")
    y = ad.call_op(writing, x)
    first, same, second = run([y, x + 0, ad.call_op(writing, y)], {x: X})
    np.testing.assert_allclose(same, X)
    np.testing.assert_allclose(second[1:], first[:-1] * TABLE)


def test_layers_and_an_optimiser_in_a_graph() -> None:
    """A training step in a graph has the numbers of the traced one."""
    model = nn.chain(nn.conv(2, 2), nn.relu, nn.flatten, nn.dense(3))
    params, state = model.init(0, (1, 3, 4))
    images, labels = RANDOM.normal(size=(2, 1, 3, 4)), np.array([2.0, 0.0])
    adam = nn.adam(0.1)
    moments = adam.init(params)

    def loss(params: Any, x: Any, y: Any) -> Any:
        return nn.cross_entropy(model(params, state, x)[0], y)

    nodes, old = (nn.map_tree(lambda _: ad.Variable("p"), t) for t in (params, moments))
    x, y = ad.Variable("x"), ad.Variable("y")
    value = ad.call_op(loss, nodes, x, y)
    slopes = iter(ad.gradients(value, [n for n, _ in paired(nodes, params)]))
    gradients = nn.map_tree(lambda _: next(slopes), nodes)
    updated = ad.call_op(lambda g, s, p: adam.update(g, s, p)[0], gradients, old, nodes, results=4)
    feed = {n: v for one, two in ((nodes, params), (old, moments)) for n, v in paired(one, two)} | {x: images, y: labels}
    found = run([value, *updated], feed)
    wanted, d = upl.value_and_grad(loss)(params, images, labels)
    new, _ = adam.update(d, moments, params)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-12)
    for f, (_, w) in zip(found[1:], paired(params, new), strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-9)


def paired(one: Any, two: Any) -> list[tuple[Any, Any]]:
    out: list[tuple[Any, Any]] = []
    nn.map_tree(lambda a, b: out.append((a, b)), one, two)
    return out


def test_loops_and_derivatives_inside() -> None:
    def descent(w: Any, x: Any) -> Any:
        return upl.scan(lambda w, row: (w - 0.1 * upl.grad(lambda w: np.tanh(w @ row) ** 2)(w), w @ row), w, x)

    w, x = ad.Variable("w"), ad.Variable("x")
    last, seen = ad.call_op(descent, w * 2, x, results=2)
    (d,) = ad.gradients(ad.sum_op(last * last) + ad.sum_op(seen), [w])
    start = RANDOM.normal(size=4)
    found = run([last, seen, d], {w: start, x: X})
    np.testing.assert_allclose(found[0], descent(2 * start, X)[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], descent(2 * start, X)[1], rtol=1e-12)

    def objective(w: Any) -> Any:
        last, seen = descent(2 * w, X + 0 * w)
        return np.sum(last**2) + np.sum(seen)

    np.testing.assert_allclose(found[2], upl.grad(objective)(start), rtol=1e-10)


@pytest.mark.parametrize(
    ("make", "code", "text"),
    [
        (lambda x: ad.call_op(np.sum, 3.0), "UPL1923", "expected a node"),
        (lambda x: ad.call_op(lambda a: (a, a), x), "UPL1924", "returns 2 arrays, 1 expected"),
        (lambda x: ad.call_op(lambda a: a @ a, x), "UPL1931", "a @ a"),
        (lambda x: ad.call_op(lambda a: a if a[0, 0] > 0 else -a, x), "UPL1933", "np.where"),
    ],
)
def test_what_cannot_be_called(make: Any, code: str, text: str) -> None:
    x = ad.Variable("x")
    with pytest.raises(upl.UplError, match=code) as found:
        run([make(x)], {x: X})
    assert text in str(found.value)
