"""Bits that flip in live records of the store: with parity none is silent; without it some are, so the campaign can tell."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.faults import engine
from upl_mlir.engines.rtl.observe.faults import PARTS, Campaign, Fault, table
from upl_mlir.hw.machine import Organisation

BOTH = pytest.mark.parametrize("organisation", [Organisation.HASHED, Organisation.DIRECT])


def run(organisation: Organisation, parity: bool, count: int, parts: Sequence[str] = PARTS) -> list[Fault]:
    made, arrays = engine(parity, 2, organisation)
    return Campaign(made, arrays, seed=1).run(count, parts=parts)


@BOTH
def test_with_parity_nothing_is_silent(organisation: Organisation) -> None:
    found = run(organisation, True, 10)
    outcomes = Counter(f.outcome for f in found)
    assert outcomes["silent"] == 0
    assert outcomes["parity"] > 0
    assert {f.part for f in found} == set(PARTS)


@BOTH
def test_without_parity_wrong_results_are_seen_as_such(organisation: Organisation) -> None:
    outcomes = Counter(f.outcome for f in run(organisation, False, 9, ("value", "tag", "count")))
    assert outcomes["parity"] == 0
    assert outcomes["silent"] > 0
    assert outcomes["end check"] > 0


def test_the_table() -> None:
    faults = [Fault(1, "tag", 2, "masked"), Fault(1, "tag", 2, "silent"), Fault(1, "valid", 0, "parity")]
    assert "| tag | 2 | 50 % | 0 % | 0 % | 50 % |" in table(faults)
    assert "| all | 3 | 33 % | 33 % | 0 % | 33 % |" in table(faults)


