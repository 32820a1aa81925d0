"""What the tests of layers share: they run on the interpreter, which needs no compilation, unless they are
about another engine."""

from __future__ import annotations

import pytest

from upl_mlir.frontend.trace import program


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine that functions choose by themselves: the one that a test asks for by this fixture, else the interpreter."""
    name: str = getattr(request, "param", "interp")
    monkeypatch.setattr(program, "ENGINE", name)
    return name
