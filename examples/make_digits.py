"""Makes `data/digits.npz` for `digits.upl` from the handwritten digits that scikit-learn ships (an extra: `bench`).

X: 1797 x 64, 8 x 8 pixels between 0 and 1; pixel 1, blank in every image, is set to 1 (the bias).  Y: 1797 x 10, one-hot.
W: 2 x 64 x 32, the initial weights of a 64-32-10 perceptron in the bounding box of the ragged layers.
Source of the images: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998 (CC BY 4.0).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"


def digits() -> dict[str, np.ndarray]:
    """The arrays by input name."""
    from sklearn.datasets import load_digits

    found = load_digits()
    x = found.data / 16.0
    assert not x[:, 0].any()
    x[:, 0] = 1.0
    w = np.zeros((2, 64, 32))
    random = np.random.default_rng(1998)
    w[0] = random.normal(0.0, 0.2, (64, 32))
    w[1, :32, :10] = random.normal(0.0, 0.2, (32, 10))
    return {"X": x, "Y": np.eye(10)[found.target], "W": w}


if __name__ == "__main__":
    try:
        np.savez_compressed(DATA / "digits.npz", **digits())
    except ModuleNotFoundError as e:
        raise SystemExit(f"{e}: pip install -e '.[bench]'") from None
