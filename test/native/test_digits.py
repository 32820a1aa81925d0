"""`examples/digits.upl`, a whole training run as one program, against the same algorithm by numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import upl_mlir as upl

Array = NDArray[Any]
EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
ETA = 0.03


@pytest.fixture(scope="module")
def data() -> dict[str, Array]:
    with np.load(EXAMPLES / "data" / "digits.npz") as found:
        return {n: found[n] for n in found.files}


def train(x: Array, y: Array, w: Array, batch: int, epochs: int) -> tuple[Array, Array]:
    """The last epoch's probabilities, each before its batch's update, and the weights in their box."""
    w1, w2 = w[0].copy(), w[1, :32, :10].copy()
    out = np.zeros_like(y)
    for _ in range(epochs):
        for at in range(0, len(x), batch):
            some = slice(at, at + batch)
            hidden = np.tanh(x[some] @ w1)
            z = hidden @ w2
            e = np.exp(z - z.max(axis=1, keepdims=True))
            out[some] = e / e.sum(axis=1, keepdims=True)
            error = out[some] - y[some]
            back = error @ w2.T * (1 - hidden**2)
            w2 -= ETA * hidden.T @ error
            w1 -= ETA * x[some].T @ back
    box = np.zeros_like(w)
    box[0], box[1, :32, :10] = w1, w2
    return out, box


@pytest.mark.parametrize(("images", "batch", "epochs"), [(10, 4, 2), (6, 3, 1), (3, 8, 2)])
def test_the_interpreter_trains_as_numpy_does(data: dict[str, Array], images: int, batch: int, epochs: int) -> None:
    x, y, w = data["X"][:images], data["Y"][:images], data["W"]
    found = upl.compile(upl.load(EXAMPLES / "digits.upl", D=batch), E=epochs)(X=x, Y=y, W=w)
    probabilities, weights = train(x, y, w, batch, epochs)
    np.testing.assert_allclose(found["R"], probabilities, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found["W_out"], weights, rtol=1e-12, atol=1e-15)
    assert np.abs(weights - w).max() > 1e-3  # it did learn something


def test_every_obligation_is_proved() -> None:
    report = upl.load(EXAMPLES / "digits.upl").check()
    assert {o.status.name.lower() for o in report.obligations} == {"proved"}


def test_the_algorithm_reaches_97_percent_in_five_epochs(data: dict[str, Array]) -> None:
    probabilities, _ = train(data["X"], data["Y"], data["W"], batch=32, epochs=5)
    assert (probabilities.argmax(axis=1) == data["Y"].argmax(axis=1)).mean() >= 0.97
