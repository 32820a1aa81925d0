"""Which loops run their last iterations as a vector with lanes masked off, not one by one.

Where a loop's bounds change with the loop outside (a triangle), what is left over of the vectors is left over in each row;
if an iteration is costly, that is a good part of the time.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import arith, math, memref, scf
from xdsl.ir import Block, Operation, SSAValue

_MEMORY = (memref.AllocOp, memref.AllocaOp)
_COSTLY = (arith.DivfOp, math.SqrtOp, math.ExpOp, math.LogOp, math.TanhOp)
_SHIFTS = (arith.AddiOp, arith.SubiOp)
METADATA = '!{!"llvm.loop.vectorize.predicate.enable", i1 true}'


def masked(loop: scf.ForOp | scf.ParallelOp) -> bool:
    """Whether a loop is to have no iterations left over: an innermost one in a triangle, costly, that reads and writes
    neighbouring elements (masked vectors of others would be gathered)."""
    block = loop.body.block
    bounds = (loop.lb, loop.ub) if isinstance(loop, scf.ForOp) else (*loop.lowerBound, *loop.upperBound)
    ops = list(block.ops)
    if len(block.args) != 1 or any(op.regions or isinstance(op, _MEMORY) for op in ops):
        return False
    if not any(isinstance(op, _COSTLY) for op in ops) or not any(_varies(v) for v in bounds):
        return False
    moving: set[SSAValue] = {block.args[0]}
    for op in ops:
        if isinstance(op, memref.LoadOp | memref.StoreOp):
            if any(i in moving for i in list(op.indices)[:-1]):
                return False
        elif isinstance(op, _SHIFTS):
            if any(o in moving for o in op.operands):
                moving.add(op.results[0])
        elif any(o in moving for o in op.operands):
            return False
    return True


def _varies(v: SSAValue) -> bool:
    """Whether a value changes with a loop outside."""
    return any(isinstance(b.parent_op(), scf.ForOp | scf.ParallelOp) for b in _arguments(v))


def _arguments(v: SSAValue) -> Iterator[Block]:
    """The blocks whose arguments a value is computed from."""
    todo = [v]
    while todo:
        owner = todo.pop().owner
        if isinstance(owner, Operation):
            todo += owner.operands
        else:
            yield owner
