"""Bits that flip in live records of the store: with parity none is silent; without it some are, so the campaign can tell."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.faults import engine
from upl_mlir.hw.faults import PARTS, Campaign, Fault, table


def run(parity: bool, count: int, parts: Sequence[str] = PARTS) -> list[Fault]:
    made, arrays = engine(parity, 2)
    return Campaign(made, arrays, seed=1).run(count, parts=parts)


def test_with_parity_nothing_is_silent() -> None:
    found = run(True, 10)
    outcomes = Counter(f.outcome for f in found)
    assert outcomes["silent"] == 0
    assert outcomes["parity"] > 0
    assert {f.part for f in found} == set(PARTS)


def test_without_parity_wrong_results_are_seen_as_such() -> None:
    outcomes = Counter(f.outcome for f in run(False, 8, ("value", "tag")))
    assert outcomes["parity"] == 0
    assert outcomes["silent"] > 0
    assert outcomes["end check"] > 0


def test_the_table() -> None:
    faults = [Fault(1, "tag", 2, "masked"), Fault(1, "tag", 2, "silent"), Fault(1, "valid", 0, "parity")]
    assert "| tag | 2 | 50 % | 0 % | 0 % | 50 % |" in table(faults)
    assert "| all | 3 | 33 % | 33 % | 0 % | 33 % |" in table(faults)


