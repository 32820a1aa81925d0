"""RELIABILITY.md is what the ledger says, and says what is open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agreement import reliability
from agreement.ledger import FIRST, Ledger
from agreement.soak import CAMPAIGNS


def test_the_page_is_that_of_the_ledger() -> None:
    assert reliability.PAGE.read_text(encoding="utf-8") == reliability.page(), "run `make reliability`"


def test_nothing_is_open() -> None:
    assert Ledger.load().open() == []


def test_a_ledger_adds_up(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.json")
    ledger.add("engines", "a", FIRST + 10, 3.0, {"x": 1, "y": 2})
    ledger.add("engines", "a", FIRST + 15, 4.0, {"x": 1})
    ledger.add("engines", "b", FIRST + 20, 5.0, {"x": 5})
    ledger.add("engines", "b", FIRST + 20, 5.0, {"x": 5})  # nothing new
    ledger.store()
    again = Ledger.load(ledger.path)
    assert again.next("engines") == FIRST + 20
    assert again.reached("engines") == {"x": 7, "y": 2}
    assert again.commits("engines") == ["a", "b"]
    assert again.seconds("engines") == 12
    assert [r["seeds"] for r in again.campaigns["engines"]["runs"]] == [[FIRST, FIRST + 15], [FIRST + 15, FIRST + 20]]


def test_a_failure_is_shown_until_its_replay_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agreement import soak

    place, page = tmp_path / "ledger.json", tmp_path / "RELIABILITY.md"
    ledger = Ledger(place)
    ledger.add("engines", "a", FIRST + 10, 3.0, {"engines: native: equal bit for bit": 9, "engines: FAILED": 1})
    for _ in range(2):
        ledger.fail("engines", "a", FIRST + 3, "native: R: 1 and 2 | 3", None)
    ledger.store()
    monkeypatch.setattr(reliability, "PLACE", place)
    monkeypatch.setattr(reliability, "PAGE", page)
    answers = [["still wrong"], []]
    monkeypatch.setattr(soak, "replay", lambda *_: answers.pop(0))
    assert reliability.main() == 1
    text = page.read_text(encoding="utf-8")
    assert "| failures found by the soaks | 1 | 1 open |" in text
    assert f"| engines | {FIRST + 3} | native: R: 1 and 2 \\| 3 | **open** |" in text
    assert "| random programs: reference = native | 9 | 9 equal bit for bit, 0 within rounding |" in text
    assert reliability.main() == 0
    assert "**open**" not in page.read_text(encoding="utf-8")
    assert json.loads(place.read_text())["failures"][0]["closed"].startswith("at ")


def test_every_campaign_is_described() -> None:
    assert CAMPAIGNS.keys() == reliability.ABOUT.keys()
    assert sum(c.share for c in CAMPAIGNS.values()) == pytest.approx(1.0)
