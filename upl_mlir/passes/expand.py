"""`expand`: what passes that read arrows begin with, so that none overlooks what an `adjoint of` directive stands for."""

from __future__ import annotations

from upl_mlir.dialects.upl import ProgramOp
from upl_mlir.dialects.upl.query import directives
from upl_mlir.passes.infer_domains import infer_missing


def expand(program: ProgramOp) -> None:
    """In place: all domains known, and instead of `adjoint of` directives the derivatives, without dead ones.

    `ProgramSets`, by which arrows are read, refuses a program with directives: a pass that forgets this call cannot go on.
    Raises UplError (UPL12xx, UPL14xx).
    """
    infer_missing(program)
    if directives(program):  # else none of this needs to be loaded
        from upl_mlir.passes.autodiff.directives import expand_directives
        from upl_mlir.passes.autodiff.eliminate_dead_derivatives import eliminate_dead_derivatives
        from upl_mlir.passes.simplify import simplify

        expand_directives(program)
        eliminate_dead_derivatives(program)
        simplify(program)
