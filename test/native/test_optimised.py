"""What LLVM makes of a module is verified, too."""

from __future__ import annotations

from pathlib import Path

import pytest

import upl_mlir as upl
from upl_mlir.engines.native import backend, target
from upl_mlir.engines.native.llvm.entry import emit_module
from upl_mlir.engines.native.llvm.values import EmittedModule
from upl_mlir.passes.lower_to_loops import lower_to_loops

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
IR = (Path(__file__).parent.parent / "Inputs" / "vector_before_its_parts.ll").read_text(encoding="utf-8")


@pytest.mark.parametrize("effort", target.Effort)
def test_a_module_that_llvm_breaks(effort: target.Effort) -> None:
    """LLVM 22.1 ended the process here: its vectoriser of straight-line code had used a vector before it was made."""
    assert target.compile_object(IR, target.host(), effort)


def test_a_module_that_is_wrong_from_the_start() -> None:
    wrong = "define double @f(double %x) {\n  %y = fadd double %z, %x\n  %z = fadd double %x, %x\n  ret double %y\n}\n"
    with pytest.raises(RuntimeError, match="dominate"):
        target.compile_object(wrong, target.host())


def emitted(text: str) -> EmittedModule:
    return emit_module(lower_to_loops(upl.load(text).expanded().infer_domains().op).module, target.host(), 1)


def test_registers_that_count_addresses() -> None:
    """LLVM looks for fewer of them where indices are data; and how one module is compiled says nothing of the next."""
    stencil = emitted((EXAMPLES / "jacobi2d.upl").read_text(encoding="utf-8"))
    head = "program p\nparam n >= 1\ninput K<i>: int in 0<=i<n { -> F.k }\noutput Y<i>\n"
    taken = emitted(f"{head}node F<i> {{ in k: int; 2*k -> Y }}\n")
    assert not backend._strength(stencil) and backend._strength(taken)
    with_it, without, again = (
        target.compile_object(stencil.ir, target.host(), strength=strength) for strength in (True, False, True)
    )
    assert with_it == again != without
