"""What LLVM makes of a module is verified, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from upl_mlir.engines.native import target

IR = (Path(__file__).parent.parent / "Inputs" / "vector_before_its_parts.ll").read_text(encoding="utf-8")


@pytest.mark.parametrize("effort", target.Effort)
def test_a_module_that_llvm_breaks(effort: target.Effort) -> None:
    """LLVM 22.1 ended the process here: its vectoriser of straight-line code had used a vector before it was made."""
    assert target.compile_object(IR, target.host(), effort)


def test_a_module_that_is_wrong_from_the_start() -> None:
    wrong = "define double @f(double %x) {\n  %y = fadd double %z, %x\n  %z = fadd double %x, %x\n  ret double %y\n}\n"
    with pytest.raises(RuntimeError, match="dominate"):
        target.compile_object(wrong, target.host())
