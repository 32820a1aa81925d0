"""A pytest plugin for `covered`: records which tests come to the places of a sample, and how long each takes.

    python -m pytest -p mutation.recorder …        with UPL_RECORD=FOLDER, which has `places.json`

Each process of tests writes a file: a test's seconds and the numbers of the places.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from mutation.marked import install

FOLDER = Path(os.environ["UPL_RECORD"])


class Recorder:
    """Notes the places that tests come to."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.tests: dict[str, tuple[float, list[int]]] = {}
        install([(file, n) for file, n in json.loads((FOLDER / "places.json").read_text(encoding="utf-8"))], self.seen.add)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """One test, with its set-up."""
        self.seen.clear()
        start = sum(os.times()[:4])  # with processes that it starts and waits for
        outcome = yield
        self.tests[item.nodeid] = (sum(os.times()[:4]) - start, sorted(self.seen))
        return outcome

    def pytest_sessionfinish(self) -> None:
        """Write what was found."""
        if self.tests:  # not by the process that only hands tests out
            place = FOLDER / f"by_{os.environ.get('PYTEST_XDIST_WORKER', 'all')}.json"
            place.write_text(json.dumps(self.tests), encoding="utf-8")


RECORDER = Recorder()
"""Made now: `test/conftest.py` loads the package."""


def pytest_configure(config: pytest.Config) -> None:
    """Take part in the run."""
    config.pluginmanager.register(RECORDER, "recorder")
