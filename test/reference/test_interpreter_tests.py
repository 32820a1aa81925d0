"""The interpreter's own tests, run on the reference: matching, gathers, errors with their codes, the perceptron, values.

The tests are those of `test/interp`, loaded a second time with `Engine` replaced.  What concerns the interpreter's Python
source or its traces is left out.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from upl_mlir.engines.reference import Evaluator

FOLDER = Path(__file__).resolve().parents[1] / "interp"
LEFT_OUT = {"test_trace_tells_every_firing_and_token", "test_no_text_of_the_program_is_in_the_source"}


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"reference_interp_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _tests() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("test_errors", "test_gathers", "test_matching", "test_perceptron", "test_values", "test_empty_gathers"):
        module = _load(name)
        if not hasattr(module, "Engine"):
            continue
        module.Engine = Evaluator  # pyright: ignore[reportAttributeAccessIssue]
        found |= {f"{k}_in_{name}": f for k, f in vars(module).items() if k.startswith("test_") and k not in LEFT_OUT}
    return found


_fixtures = _load("conftest")
ir, rng = _fixtures.ir, _fixtures.rng
globals().update(_tests())


def test_they_are_all_there():
    assert len(_tests()) > 50
