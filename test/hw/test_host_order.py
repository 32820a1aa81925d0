"""The order in which the host sends: what one gather sums up comes together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.hw.engine import RtlEngine
from upl_mlir.hw.host_order import field_order

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize(
    ("program", "constants", "name", "order"),
    [
        ("iris_batch", {"D": 2}, "W", [0, 2, 1]),  # Sum.s<d,k,j> is over i
        ("iris_batch", {"D": 2}, "X", [0, 1]),
        ("matmul", {"m": 2, "n": 3, "r": 4}, "A", [0, 1]),
        ("matmul", {"m": 2, "n": 3, "r": 4}, "B", [1, 0]),  # a column of the product after the other
    ],
)
def test_the_field_that_is_summed_over_varies_fastest(
    program: str, constants: dict[str, int], name: str, order: list[int]
) -> None:
    loaded = upl.load(EXAMPLES / f"{program}.upl", **constants)
    engine = RtlEngine(loaded.expanded().infer_domains().module, {})
    assert field_order(engine.image, engine.hosts[name]) == order


def test_tokens_come_in_that_order() -> None:
    engine = RtlEngine(upl.load(EXAMPLES / "iris_batch.upl", D=1).expanded().infer_domains().module, {})
    inputs = {name: np.ones(engine.ports[name].shape, np.float32) for name in engine.hosts}
    weights = [t.index for t in engine.inject(inputs) if engine.image.nodes[t.node].name == "Weight"]
    assert weights == sorted(weights, key=lambda index: (index[0], index[2], index[1]))
    assert len(weights) == 5 * 8 + 8 * 3
