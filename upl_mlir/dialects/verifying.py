"""Verifying a module: what xDSL finds wrong becomes an error with the position of the operation that it concerns."""

from __future__ import annotations

import os

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.utils.exceptions import DiagnosticException

from upl_mlir.diagnostics import Diagnostic, Span, UplError
from upl_mlir.dialects.upl.query import span_of


def verify(module: ModuleOp) -> None:
    """Verify the IR; a fault is a UplError (UPL1100) at the operation it concerns."""
    try:
        module.verify()
    except DiagnosticException as e:
        raise UplError(Diagnostic("UPL1100", _first_line(e), _culprit_span(e) or _find_culprit(module))) from e


def verify_made(module: ModuleOp) -> None:
    """Verify what our own passes made, if the environment variable `UPL_VERIFY` is set, as our tests do.

    A fault there is a bug of the compiler.  The look takes a twentieth of a first gradient; `upl-opt` always takes it.
    """
    if os.environ.get("UPL_VERIFY"):
        verify(module)


def _culprit_span(e: BaseException) -> Span | None:
    """The position of the operation that a verifier complained about, where it is known."""
    op = getattr(e, "culprit", None)
    return span_of(op) if op is not None else None


def _find_culprit(module: ModuleOp) -> Span | None:
    """The position of the innermost operation that does not verify: xDSL's own checks do not say which one it was."""
    found = [op for op in module.walk() if _is_faulty(op)]
    return span_of(found[-1]) if found else None


def _is_faulty(op: Operation) -> bool:
    try:
        op.verify(verify_nested_ops=False)
    except Exception:  # a verifier may stumble over what is wrong inside: then that is found first
        return True
    return False


def _first_line(e: BaseException) -> str:
    """The message without the IR that xDSL prints round it; a heading is joined with the line that it announces."""
    marker = "Operation does not verify: "
    lines = str(e).strip().rpartition(marker)[2].splitlines() or [type(e).__name__]
    return " ".join(line.strip() for line in lines[:2]) if lines[0].endswith(":") else lines[0]
