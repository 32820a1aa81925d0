"""Layers and losses: values against numpy's loops or formulas written anew, derivatives against differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir import nn

RANDOM = np.random.default_rng(18)
IMAGES = RANDOM.normal(size=(2, 3, 7, 6))
SEQUENCES = RANDOM.normal(size=(2, 5, 4))


def traced(layer: nn.Layer, x: np.ndarray, *, train: bool = False, seed: int = 3) -> tuple[Any, Any, Any, Any]:
    """Parameters, state, and what the traced layer makes of x; all derivatives are checked against differences."""
    params, state = layer.init(seed, x.shape[1:])
    params = nn.map_tree(lambda p: p + RANDOM.normal(size=p.shape) * 0.1, params)

    def run(params: Any, state: Any, x: Any) -> Any:
        return layer(params, state, x, train=train)

    y, new = upl.function(run)(params, state, x)
    weights = RANDOM.normal(size=y.shape)
    upl.check_grads(lambda p, x: np.sum(run(p, state, x)[0] * weights), (params, x), modes=["rev"])
    return params, new, y, state


def convolved(x: np.ndarray, w: np.ndarray, stride: tuple[int, int], pad: tuple[int, int]) -> np.ndarray:
    """By the definition, output by output."""
    x = np.pad(x, ((0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2))
    shape = [(n - k) // s + 1 for n, k, s in zip(x.shape[2:], w.shape[2:], stride, strict=True)]
    y = np.zeros((len(x), len(w), *shape))
    for i, j in np.ndindex(*shape):
        part = x[:, :, i * stride[0] :, j * stride[1] :][:, :, : w.shape[2], : w.shape[3]]
        y[:, :, i, j] = (part[:, None] * w).sum(axis=(2, 3, 4))
    return y


@pytest.mark.parametrize(
    ("size", "stride", "padding", "zeros"),
    [(3, 1, "valid", (0, 0)), (3, 1, "same", (1, 1)), ((2, 3), (3, 2), (0, 2), (0, 2)), (2, 2, 1, (1, 1))],
)
def test_convolution(size: Any, stride: Any, padding: Any, zeros: tuple[int, int]) -> None:
    p, _, y, _ = traced(nn.conv(2, size, stride=stride, padding=padding), IMAGES)
    steps = stride if isinstance(stride, tuple) else (stride, stride)
    np.testing.assert_allclose(y, convolved(IMAGES, p["w"], steps, zeros) + p["b"][:, None, None], rtol=1e-12, atol=1e-14)


def test_convolution_along_one_axis() -> None:
    p, _, y, _ = traced(nn.conv(2, 3, bias=False), IMAGES[..., 0])
    np.testing.assert_allclose(y, convolved(IMAGES[..., :1], p["w"][..., None], (1, 1), (0, 0))[..., 0], rtol=1e-12)


@pytest.mark.parametrize(("size", "stride"), [(2, None), (3, 1), ((2, 3), (3, 1))])
def test_pools(size: Any, stride: Any) -> None:
    for layer, fold in ((nn.max_pool(size, stride), np.max), (nn.mean_pool(size, stride), np.mean)):
        _, _, y, _ = traced(layer, IMAGES)
        k = size if isinstance(size, tuple) else (size, size)
        s = k if stride is None else stride if isinstance(stride, tuple) else (stride, stride)
        for i, j in np.ndindex(y.shape[2:]):
            window = IMAGES[:, :, i * s[0] :, j * s[1] :][:, :, : k[0], : k[1]]
            np.testing.assert_allclose(y[:, :, i, j], fold(window, axis=(2, 3)), rtol=1e-12)
        assert y.shape[2:] == tuple((n - a) // b + 1 for n, a, b in zip(IMAGES.shape[2:], k, s, strict=True))


def test_batch_norm() -> None:
    p, new, y, old = traced(nn.batch_norm(0.75), IMAGES, train=True)
    for c in range(3):
        x = IMAGES[:, c]
        wanted = (x - x.mean()) / math.sqrt(x.var() + 1e-5) * p["scale"][c] + p["shift"][c]
        np.testing.assert_allclose(y[:, c], wanted, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(new["mean"][c], 0.25 * x.mean(), rtol=1e-12)
        np.testing.assert_allclose(new["variance"][c], 0.75 + 0.25 * x.var(), rtol=1e-12)
    z, same = nn.batch_norm(0.75)(p, new, IMAGES)
    x = (IMAGES - new["mean"][:, None, None]) / np.sqrt(new["variance"] + 1e-5)[:, None, None]
    np.testing.assert_allclose(z, x * p["scale"][:, None, None] + p["shift"][:, None, None], rtol=1e-11)
    assert same is new and old["mean"].sum() == 0


def test_dense_and_layer_norm() -> None:
    p, _, y, _ = traced(nn.chain(nn.layer_norm(), nn.dense(3), nn.tanh), SEQUENCES)
    norm, dense, _ = p
    for x, found in zip(SEQUENCES.reshape(-1, 4), y.reshape(-1, 3), strict=True):
        x = (x - x.mean()) / math.sqrt(x.var() + 1e-5) * norm["scale"] + norm["shift"]
        np.testing.assert_allclose(found, np.tanh(x @ dense["w"] + dense["b"]), rtol=1e-11)


def test_gru() -> None:
    """PyTorch's formulas, step by step."""
    p, _, last, _ = traced(nn.gru(3), SEQUENCES)
    h, hs = np.zeros((2, 3)), []
    for t in range(5):
        r, z, n = np.split(SEQUENCES[:, t] @ p["w"] + p["b"], 3, axis=1)
        hr, hz, hn = np.split(h @ p["u"] + p["c"], 3, axis=1)
        r, z = 1 / (1 + np.exp(-r - hr)), 1 / (1 + np.exp(-z - hz))
        h = (1 - z) * np.tanh(n + r * hn) + z * h
        hs.append(h)
    np.testing.assert_allclose(last, h, rtol=1e-12)
    every = nn.gru(3, every=True)
    found = upl.function(lambda p, x: every(p, None, x)[0])(p, SEQUENCES)
    np.testing.assert_allclose(found, np.stack(hs, axis=1), rtol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    """One head and one place after the other."""
    p, _, y, _ = traced(nn.self_attention(2, causal=causal), SEQUENCES)
    wanted = np.zeros_like(SEQUENCES)
    for n, h, t in np.ndindex(2, 2, 5):
        seen = t + 1 if causal else 5
        q = SEQUENCES[n, t] @ p["q"][:, h]
        scores = np.array([q @ (SEQUENCES[n, s] @ p["k"][:, h]) / math.sqrt(2) for s in range(seen)])
        weights = np.exp(scores) / np.exp(scores).sum()
        wanted[n, t] += sum(weights[s] * (SEQUENCES[n, s] @ p["v"][:, h]) for s in range(seen)) @ p["o"][h]
    np.testing.assert_allclose(y, wanted, rtol=1e-11, atol=1e-13)


def test_a_mask_hides_places() -> None:
    q, mask = SEQUENCES[0], RANDOM.random((5, 5)) > 0.5
    mask |= np.eye(5, dtype=bool)
    found = upl.function(lambda q: nn.attention(q, q, q, mask=mask))(q)
    for t in range(5):
        seen = q[mask[t]]
        e = np.exp(seen @ q[t] / 2)
        np.testing.assert_allclose(found[t], e @ seen / e.sum(), rtol=1e-12)


def test_losses() -> None:
    z, labels = RANDOM.normal(size=(4, 3)) * 3, np.array([2, 0, 1, 1])
    wanted = np.mean([-math.log(math.exp(row[n]) / np.exp(row).sum()) for row, n in zip(z, labels, strict=True)])
    loss = upl.function(nn.cross_entropy)
    for given in (labels, np.eye(3)[labels]):
        np.testing.assert_allclose([loss(z, given), nn.cross_entropy(z, given)], wanted, rtol=1e-13)
    softmax = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(upl.grad(nn.cross_entropy)(z, labels), (softmax - np.eye(3)[labels]) / 4, rtol=1e-11)
    upl.check_grads(lambda z: nn.cross_entropy(z, labels), (z,), order=2)
    right = np.mean(z.argmax(axis=1) == labels)
    assert upl.function(nn.accuracy)(z, labels) == right == nn.accuracy(z, np.eye(3)[labels])
    assert upl.function(nn.mse)(z, z + 2) == 4


def test_losses_do_not_overflow() -> None:
    z = np.array([[1e4, -1e4], [-1e4, 1e4]])
    assert upl.function(nn.cross_entropy)(z, np.array([0, 1])) == 0
    assert upl.function(nn.cross_entropy)(z, np.array([1, 0])) == 2e4
    assert np.isfinite(upl.grad(nn.cross_entropy)(z, np.array([1, 0]))).all()


def test_initial_weights() -> None:
    rng = np.random.default_rng(1)
    for make, variance in ((nn.initial.glorot, 2 / 500), (nn.initial.he, 2 / 300), (nn.initial.lecun, 1 / 300)):
        w = make(rng, (300, 200))
        assert abs(w.var() / variance - 1) < 0.03 and abs(w.mean()) < 0.001
    assert nn.initial.he(rng, (50, 8, 5, 5)).var() == pytest.approx(2 / 200, rel=0.05)
    for shape in ((6, 4), (4, 6), (4, 2, 3)):
        w = nn.initial.orthogonal(rng, shape).reshape(shape[0], -1)
        small = w.T @ w if w.shape[0] > w.shape[1] else w @ w.T
        np.testing.assert_allclose(small, np.eye(len(small)), atol=1e-14)


@pytest.mark.parametrize(
    ("run", "code", "text"),
    [
        (lambda: nn.conv(2, 3).init(0, (7,)), "UPL1931", "expected [channels, *spatial]"),
        (lambda: nn.conv(2, 8).init(0, (3, 7, 6)), "UPL1931", "a window of (8, 8) does not fit"),
        (lambda: nn.conv(2, 2, padding="same").init(0, (3, 7, 6)), "UPL1934", "no padding 'same'"),
        (lambda: nn.conv(2, (2, 2, 2)).init(0, (3, 7, 6)), "UPL1934", "for 2 axes"),
        (lambda: nn.max_pool(0).init(0, (3, 7, 6)), "UPL1934", "the size of a window is 0"),
        (lambda: nn.convolution(IMAGES, np.ones((2, 4, 3, 3))), "UPL1931", "do not fit images"),
        (lambda: nn.self_attention(3).init(0, (5, 4)), "UPL1931", "4 features for 3 heads"),
        (lambda: nn.initial.he(np.random.default_rng(0), (3,)), "UPL1931", "(3,)"),
        (lambda: nn.mse(IMAGES, IMAGES[0]), "UPL1931", "differ"),
        (lambda: nn.cross_entropy(IMAGES, IMAGES[0]), "UPL1931", "do not fit logits"),
        (lambda: nn.sgd(0.1).init(()), "UPL1934", "no parameters"),
    ],
)
def test_what_does_not_fit(run: Any, code: str, text: str) -> None:
    with pytest.raises(upl.UplError, match=code) as found:
        run()
    (d,) = found.value.diagnostics
    assert text in d.message and d.help and d.span is not None and d.span.file == __file__


def test_an_error_inside_a_model_has_the_users_line() -> None:
    model = nn.chain(nn.flatten, nn.dense(2))
    params, state = model.init(0, (3, 2))

    def run(p: Any, x: Any) -> Any:
        return model(p, state, x)[0]  # the line

    with pytest.raises(upl.UplError, match=r"UPL1931(.|\n)*the line"):
        upl.function(run)(params, np.ones((4, 3, 3)))
