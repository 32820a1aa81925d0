"""`examples/digits.upl`, a whole training run as one program, against the same algorithm by numpy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import upl_mlir as upl

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.native.cases.digits import by_hand, named

Array = NDArray[Any]
EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


@pytest.fixture(scope="module")
def data() -> dict[str, Array]:
    with np.load(EXAMPLES / "data" / "digits.npz") as found:
        return {n: found[n] for n in found.files}


@pytest.mark.parametrize(("images", "batch", "epochs"), [(10, 4, 2), (6, 3, 1), (3, 8, 2)])
def test_the_interpreter_trains_as_numpy_does(data: dict[str, Array], images: int, batch: int, epochs: int) -> None:
    x, y, w = data["X"][:images], data["Y"][:images], data["W"]
    found = upl.compile(upl.load(EXAMPLES / "digits.upl", D=batch), E=epochs)(X=x, Y=y, W=w)
    trained = named(by_hand(x, y, w, epochs, batch))
    probabilities, weights = trained["R"], trained["W_out"]
    np.testing.assert_allclose(found["R"], probabilities, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found["W_out"], weights, rtol=1e-12, atol=1e-15)
    assert np.abs(weights - w).max() > 1e-3  # it did learn something


def test_the_algorithm_reaches_97_percent_in_five_epochs(data: dict[str, Array]) -> None:
    probabilities, *_ = by_hand(data["X"], data["Y"], data["W"], epochs=5)
    assert (probabilities.argmax(axis=1) == data["Y"].argmax(axis=1)).mean() >= 0.97
