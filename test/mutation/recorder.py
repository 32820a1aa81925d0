"""A pytest plugin for `covered`: records by coverage.py which lines of the package each test executes, and its time.

    python -m pytest -p mutation.recorder …        with UPL_RECORD=FILE, a JSON file that is written at the end
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

PLACE = Path(os.environ["UPL_RECORD"])


class Recorder:
    """Names what is executed after the test that executes it."""

    def __init__(self) -> None:
        import coverage

        parts = ["upl_mlir.passes", "upl_mlir.poly", "upl_mlir.hw.matching_unit"]
        self.coverage = coverage.Coverage(data_file=None, source_pkgs=parts, config_file=False)
        self.seconds: dict[str, float] = {}
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """One test, with its set-up."""
        self.coverage.switch_context(item.nodeid)
        start = sum(os.times()[:4])  # with processes that it starts and waits for
        outcome = yield
        self.seconds[item.nodeid] = sum(os.times()[:4]) - start
        return outcome

    def pytest_sessionfinish(self) -> None:
        """Write what was found: seconds by test; for each file the tests by line, as numbers in the order of `seconds`."""
        self.coverage.stop()
        data = self.coverage.get_data()
        number = {test: n for n, test in enumerate(self.seconds)}
        lines = {
            file: {line: [number[c] for c in tests if c in number] for line, tests in data.contexts_by_lineno(file).items()}
            for file in data.measured_files()
        }
        PLACE.write_text(json.dumps({"seconds": self.seconds, "lines": lines}), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Begin before the package is loaded, so that its lines outside of functions are nobody's."""
    config.pluginmanager.register(Recorder(), "recorder")
