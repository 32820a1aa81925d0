"""The tests of this folder for another engine: loaded a second time, with `Engine` replaced."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any


def load(name: str, prefix: str) -> ModuleType:
    """A module of this folder, once more."""
    path = Path(__file__).resolve().with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"{prefix}_interp_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tests(engine: type, names: Iterable[str], left_out: Collection[str]) -> dict[str, Any]:
    """The tests of some modules, and the fixtures that they need, by name."""
    fixtures = load("conftest", engine.__name__)
    found: dict[str, Any] = {"ir": fixtures.ir, "rng": fixtures.rng}
    for name in names:
        module: Any = load(name, engine.__name__)
        assert hasattr(module, "Engine")
        module.Engine = engine
        found |= {f"{k}_in_{name}": f for k, f in vars(module).items() if k.startswith("test_") and k not in left_out}
    return found
