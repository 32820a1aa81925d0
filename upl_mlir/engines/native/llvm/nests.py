"""Parallel loops as nests that one thread runs, the innermost one in vectors where that can be."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from xdsl.dialects import memref, scf
from xdsl.dialects.linalg.ops import FillOp, GenericOp

from upl_mlir.engines.native.llvm import tails, vector_loops
from upl_mlir.engines.native.llvm.emitter import Emitter


def nest(e: Emitter, op: scf.ParallelOp, depth: int = 0) -> None:
    """The loops of a parallel operation from `depth` inwards, one after the other."""
    if depth == len(op.lowerBound):
        e.body(op.body.block)
        return
    bounds = e.texts((op.lowerBound[depth], op.upperBound[depth], op.step[depth]))
    along(e, op, depth, *bounds)


def along(e: Emitter, op: scf.ParallelOp, depth: int, lower: str, upper: str, step: str) -> None:
    """The loops of a parallel operation from `depth` inwards, of which the first has these bounds."""
    if depth == len(op.lowerBound) - 1 and vector_loops.emitted(e, op, lower, upper, step) is not None:
        return
    with parallel_loop(e, op, depth, lower, upper, step) as iv:
        e.values[op.body.block.args[depth]] = iv
        nest(e, op, depth + 1)


@contextmanager
def parallel_loop(e: Emitter, op: scf.ParallelOp, depth: int, lower: str, upper: str, step: str) -> Generator[str]:
    """The loop of one dimension of a parallel operation; the innermost one is marked so that LLVM asks for no proof.

    Not if the body has loops of its own, or scratch, which all iterations share.  In a large program a loop with
    others inside stays a loop: LLVM would write out small nests whole, which takes it twice the time.
    """
    inside = [o for o in op.body.walk() if o.parent_op() is not None]
    plain = not any(
        isinstance(o, scf.ForOp | scf.WhileOp | scf.ParallelOp | GenericOp | FillOp | memref.AllocOp | memref.AllocaOp)
        for o in inside
    )
    if depth < len(op.lowerBound) - 1 or not plain:
        with e.code.loop(lower, upper, step, note=e.library.around(tails.A_LOOP)) as iv:
            yield iv
        return
    e.code.access, note = e.library.independent("" if e.ordered else tails.metadata(op))
    with e.code.loop(lower, upper, step, note=note) as iv:
        yield iv
    e.code.access = ""
