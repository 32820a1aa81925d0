"""The order in which the host sends: what one gather sums up comes together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.engines.rtl.engine import RtlEngine
from upl_mlir.engines.rtl.host_order import field_order

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


def test_a_condition_that_is_negated_as_a_whole() -> None:
    text = "program p\ninput X<i,j> in 0<=i<3, 0<=j<3 { if !(i<2 && j<2): -> A.x; if i<2 && j<2: -> B.y }\noutput R<i,j>\n"
    text += "output Q<i,j>\nnode A<i,j> { in x; x -> R }\nnode B<i,j> { in y; y -> Q }\n"
    engine = RtlEngine(upl.load(text).expanded().infer_domains().module, {})
    sent = [(engine.image.nodes[t.node].name, t.index) for t in engine.inject({"X": np.ones((3, 3), np.float32)})]
    every = [(i, j) for i in range(3) for j in range(3)]
    assert sorted(sent) == sorted(("B" if max(x) < 2 else "A", x) for x in every)


def test_how_many_instances_a_token_serves() -> None:
    text = "program p\ninput X<i> in 0<=i<3 { #2 -> M.x<i,*> }\ninput W<i,j> in 0<=i<3, 0<=j<2 { -> M.w }\noutput R<i,j>\n"
    text += "node M<i,j> { in x, w; x*w -> R }\n"
    engine = RtlEngine(upl.load(text).expanded().infer_domains().module, {})
    sent = engine.inject({"X": np.ones(3, np.float32), "W": np.ones((3, 2), np.float32)})
    assert sorted((t.index, t.multiplicity) for t in sent if None not in t.index) == [
        ((i, j), 1) for i in range(3) for j in range(2)
    ]
    assert [(t.index, t.multiplicity) for t in sent if None in t.index] == [((i, None), 2) for i in range(3)]


@pytest.mark.parametrize(
    ("gather", "kind", "neutral"),
    [("+", "real", -0.0), ("max", "real", -np.inf), ("max", "int", -(2**31)), ("min", "int", 2**31 - 1), ("&&", "bool", 1)],
)
def test_a_number_of_summands_is_told_by_one_that_changes_nothing(gather: str, kind: str, neutral: float) -> None:
    text = f"program p\ninput N: int {{ -> D.n }}\ninput V<q>: {kind} in 0<=q<3 {{ -> D.s<> }}\noutput Y: {kind}\n"
    text += f"node D {{ in @({gather}) s[n]: {kind}, n: int; s -> Y }}\n"
    engine = RtlEngine(upl.load(text).expanded().infer_domains().module, {})
    given = {"N": np.array(3, np.int32), "V": engine.ports["V"].zeros()}
    (told,) = (t for t in engine.inject(given) if t.multiplicity is not None)
    assert (told.value, told.multiplicity) == (neutral, 4)
    assert np.signbit(float(told.value)) == np.signbit(float(neutral))
