"""The interpreter's own tests, run on the token engine: matching, gathers, errors with their words, the perceptron.

The tests are those of `test/interp`, loaded a second time with `Engine` replaced.  What concerns the interpreter's Python
source or its traces is left out, and the tables of single operations, which `test_values.py` of this folder has at once.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from upl_mlir.engines.token.engine import TokenEngine

FOLDER = Path(__file__).resolve().parents[1] / "interp"
LEFT_OUT = {
    "test_trace_tells_every_firing_and_token", "test_no_text_of_the_program_is_in_the_source",
    "test_functions_of_one_real", "test_functions_of_two_reals", "test_functions_of_two_integers",
    "test_comparisons_of_reals", "test_every_row_of_the_table_is_tested",
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("quick_compiler")


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"token_interp_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _tests() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("test_errors", "test_gathers", "test_matching", "test_perceptron", "test_values"):
        module = _load(name)
        assert hasattr(module, "Engine")
        module.Engine = TokenEngine  # pyright: ignore[reportAttributeAccessIssue]
        found |= {f"{k}_in_{name}": f for k, f in vars(module).items() if k.startswith("test_") and k not in LEFT_OUT}
    return found


_fixtures = _load("conftest")
ir, rng = _fixtures.ir, _fixtures.rng
globals().update(_tests())


def test_they_are_all_there():
    assert len(_tests()) > 50
