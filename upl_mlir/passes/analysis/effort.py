"""Bounding an analysis: a program whose sets are too complex gets an error, not a hang."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from xdsl.ir import Operation

from upl_mlir.diagnostics import error, placed
from upl_mlir.dialects.upl import ProgramOp, SendOp
from upl_mlir.dialects.upl.query import arrows, span_of
from upl_mlir.poly.counts.quota import VARIABLE, TooComplex, limit, limited

FEW = 40
"""Arrows.  Chosen: most programs have fewer, and an analysis of so many takes a tenth of the limit where sets are plain."""

Op = TypeVar("Op", bound=Operation)
P = ParamSpec("P")
R = TypeVar("R")


def bounded(what: str) -> Callable[[Callable[Concatenate[Op, P], R]], Callable[Concatenate[Op, P], R]]:
    """Limit isl's work inside an analysis of a program; beyond it the analysis raises UplError (UPL1205)."""

    def wrap(f: Callable[Concatenate[Op, P], R]) -> Callable[Concatenate[Op, P], R]:
        @wraps(f)
        def inside(program: Op, *args: P.args, **kwargs: P.kwargs) -> R:
            with bounded_work(what, program):
                return f(program, *args, **kwargs)

        return inside

    return wrap


@contextmanager
def bounded_work(what: str, program: Operation, share: int = 1) -> Generator[None]:
    """The same for a block; its errors without a position get the program's.

    The limit, `share` times the usual one, is for FEW arrows; longer programs have more in proportion, as they ask more
    questions.
    """
    sends = arrows(program) if isinstance(program, ProgramOp) else (op for op in program.walk() if isinstance(op, SendOp))
    times = share * max(1, -(-sum(1 for _ in sends) // FEW))
    try:
        with placed(span_of(program)), limited(times):
            yield
    except TooComplex:
        raise error(
            "UPL1205",
            f"too complex: {what} needs more than {times * limit()} operations on sets",
            span_of(program),
            help=f"simplify conditions with mod and floordiv, or allow more: {VARIABLE}={10 * limit()}",
        ) from None
