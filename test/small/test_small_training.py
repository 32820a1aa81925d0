"""Training in fixed point: what is learned is as right as in f64, within 1 % of the examples."""

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.api.training import Training


def test_iris() -> None:
    data = dict(np.load("examples/data/iris.npz"))
    found: dict[str, float] = {}
    for real in ("f64", "q4.12", "bf16"):
        run = Training(upl.load("examples/iris.upl"), data, {"W_out": "W"}, engine="native", seed=1, real=real)
        found[real] = [e.accuracy for e in run.epochs(30)][-1]
    assert found["f64"] > 0.95
    assert all(abs(found[real] - found["f64"]) <= 0.01 for real in found), found


@pytest.mark.parametrize("real", ["q6.10", "q6.12"])
def test_digits(real: str) -> None:
    """Images that were not trained with are recognised as well."""
    data = np.load("examples/data/digits.npz")
    x, y = data["X"], data["Y"]
    order = np.random.default_rng(0).permutation(len(x))
    train, others = order[:1437], order[1437:]
    p = upl.load("examples/digits.upl")

    def accuracy(real: str) -> float:
        w = upl.compile(p, "native", real=real)(X=x[train], Y=y[train], W=data["W"], E=4)["W_out"]
        hidden = np.tanh(x[others] @ w[0, :64, :32])
        return float(np.mean((hidden @ w[1, :32, :10]).argmax(1) == y[others].argmax(1)))

    exact = accuracy("f64")
    assert exact > 0.93
    assert abs(accuracy(real) - exact) <= 0.01
