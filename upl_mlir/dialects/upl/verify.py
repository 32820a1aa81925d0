"""Structural rules of a program that one operation alone cannot see (names, arities, targets)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from upl_mlir.dialects.upl.ops import ProgramOp


def verify_program(program: ProgramOp) -> None:
    """Raise VerifyException on the first broken rule."""
