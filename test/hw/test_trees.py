"""The re-execution of recorded runs: the same bits on any data, and every kind of fault in a record is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.engines.rtl import run
from upl_mlir.engines.rtl.engine import RtlEngine
from upl_mlir.engines.rtl.observe.watch import Events
from upl_mlir.engines.rtl.trees import check_run
from upl_mlir.hw.machine import Machine, Matching, Organisation

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HASHED = Machine(matching=Matching(organisation=Organisation.HASHED, spill_capacity=1023))


def matmul(inner: int) -> tuple[RtlEngine, dict[str, np.ndarray]]:
    program = upl.load(EXAMPLES / "matmul.upl", m=3, n=2, r=inner)
    random = np.random.default_rng(inner)
    arrays = {name: random.standard_normal(v.shape()).astype(np.float32) for name, v in program.inputs.items()}
    return RtlEngine(program.infer_domains().module, {}, machine=HASHED), arrays


def test_sums_whose_bits_depend_on_the_order() -> None:
    """The audit passes where the order of the host's tokens changes the bits of the result."""
    engine, arrays = matmul(40)
    tokens = engine.inject(arrays)
    results = [engine.run_tokens(order).outputs["C"] for order in (tokens, tokens[::-1])]
    assert results[0].tobytes() != results[1].tobytes()
    np.testing.assert_allclose(results[0], arrays["A"] @ arrays["B"], rtol=1e-4)


def dropped(events: Events) -> Events:
    return Events(events.cycle[1:], events.core[1:], {n: c[1:] for n, c in events.columns.items()})


def doubled(events: Events) -> Events:
    twice = [0, *range(len(events.cycle))]
    return Events(events.cycle[twice], events.core[twice], {n: c[twice] for n, c in events.columns.items()})


def changed(column: str) -> Callable[[Events], Events]:
    def change(events: Events) -> Events:
        columns = {n: c.copy() for n, c in events.columns.items()}
        columns[column][3] ^= 1
        return replace(events, columns=columns)

    return change


@pytest.mark.parametrize(
    ("kind", "fault", "text"),
    [
        ("fired", dropped, "never came|not used|is not there|with . of . summands"),
        ("fired", doubled, "fires twice"),
        ("fired", changed("tag"), "fires twice|fires without a token"),
        ("added", dropped, "operand .* is not there|leave 2 values"),
        ("added", doubled, "operand .* is not there"),
        ("added", changed("left"), "operand .* is not there"),
        ("added", changed("tag"), "operand .* is not there|leave"),
    ],
)
def test_a_wrong_record_is_noticed(
    monkeypatch: pytest.MonkeyPatch, kind: str, fault: Callable[[Events], Events], text: str
) -> None:
    engine, arrays = matmul(6)

    def check(image: Any, program: Any, tokens: Any, outputs: Any, seen: dict[str, Events]) -> None:
        check_run(image, program, tokens, outputs, seen | {kind: fault(seen[kind])})

    monkeypatch.setattr(run, "check_run", check)
    with pytest.raises(UplError, match=f"UPL1709.*({text})"):
        engine.run(arrays)


def test_a_wrong_output_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, arrays = matmul(3)

    def check(image: Any, program: Any, tokens: Any, outputs: list[Any], seen: dict[str, Events]) -> None:
        value = np.nextafter(outputs[2].value, np.float32(np.inf))
        check_run(image, program, tokens, [*outputs[:2], outputs[2]._replace(value=value), *outputs[3:]], seen)

    monkeypatch.setattr(run, "check_run", check)
    with pytest.raises(UplError, match=r"UPL1709.*C<.*> is .*, computed again it is"):
        engine.run(arrays)
