"""Every run on RTL in these tests is computed a second time, from its record, and compared bit for bit."""

from __future__ import annotations

import pytest

from upl_mlir.engines.rtl import run


@pytest.fixture(autouse=True)
def audited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(run.run_machine.__kwdefaults__, "audit", True)
