"""Makes `data/iris.npz` from `data/iris.csv`: what `upl train` reads.

X: 150 x 5, four standardised features and the constant 1 (the bias); Y: 150 x 3, one-hot species; W: 2 x 8 x 8, the
initial weights of a 5-8-3 perceptron in the bounding box of the ragged layers (entries outside a layer are ignored).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"


def iris() -> dict[str, np.ndarray]:
    """The arrays by input name."""
    rows = np.genfromtxt(DATA / "iris.csv", delimiter=",", skip_header=1)
    features, species = rows[:, :4], rows[:, 4].astype(int)
    x = np.ones((len(rows), 5))
    x[:, :4] = (features - features.mean(axis=0)) / features.std(axis=0)
    w = np.zeros((2, 8, 8))
    random = np.random.default_rng(1936)
    w[0, :5, :8] = random.normal(0.0, 0.4, (5, 8))
    w[1, :8, :3] = random.normal(0.0, 0.4, (8, 3))
    return {"X": x, "Y": np.eye(3)[species], "W": w}


if __name__ == "__main__":
    np.savez(DATA / "iris.npz", **iris())
