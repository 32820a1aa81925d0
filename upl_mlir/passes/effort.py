"""Bounding an analysis: a program whose sets are too complex gets an error, not a hang."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from upl_mlir.diagnostics import error, placed
from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.poly.quota import VARIABLE, TooComplex, limit, limited

P = ParamSpec("P")
R = TypeVar("R")


def bounded(what: str) -> Callable[[Callable[Concatenate[ProgramOp, P], R]], Callable[Concatenate[ProgramOp, P], R]]:
    """Limit isl's work inside an analysis of a program; beyond it the analysis raises UplError (UPL1205)."""

    def wrap(f: Callable[Concatenate[ProgramOp, P], R]) -> Callable[Concatenate[ProgramOp, P], R]:
        @wraps(f)
        def inside(program: ProgramOp, *args: P.args, **kwargs: P.kwargs) -> R:
            try:
                with placed(span_of(program)), limited():
                    return f(program, *args, **kwargs)
            except TooComplex:
                raise error(
                    "UPL1205",
                    f"too complex: {what} needs more than {limit()} operations on sets",
                    span_of(program),
                    help=f"simplify conditions with mod and floordiv, or allow more: {VARIABLE}={10 * limit()}",
                ) from None

        return inside

    return wrap
