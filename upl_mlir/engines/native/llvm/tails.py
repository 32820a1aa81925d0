"""What LLVM is told of innermost loops: which run their last iterations as a vector with lanes masked off, not one by one,
and which are not to be written out.

Where a loop's bounds change with the loop outside (a triangle), what is left over of the vectors is left over in each row;
if an iteration is costly, that is a good part of the time.  (Not so in a row of ten numbers: what masked vectors have
written is not at hand when it is read back at once.)  Loops of a few vectors LLVM would write out one by one, and then make
vectors of the loop outside, whose elements lie apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects import arith, func, math, memref, scf
from xdsl.dialects.builtin import Float64Type, IndexType, IntegerAttr, i1, i64
from xdsl.ir import Block, Operation, SSAValue

_MEMORY = (memref.AllocOp, memref.AllocaOp)
_FUNCTIONS = (math.ExpOp, math.LogOp, math.TanhOp)
_COSTLY = (arith.DivfOp, math.SqrtOp, *_FUNCTIONS)
_SHIFTS = (arith.AddiOp, arith.SubiOp)
_MASKED = ', !{!"llvm.loop.vectorize.predicate.enable", i1 true}'
A_LOOP = ', !{!"llvm.loop.unroll.disable"}'
"""Metadata of a loop that is not to be written out."""
_TWO_BY_TWO = ', !{!"llvm.loop.vectorize.width", i32 1}, !{!"llvm.loop.interleave.count", i32 2}'
"""Metadata of a loop of scalars in which two sums grow in turn."""
_WIDE = frozenset((Float64Type(), IndexType(), i64, i1))
"""Types of which a vector has as many numbers as it has 64 bits."""
_ROWS = range(16, 64)
"""Iterations that fill vectors, and are few enough for LLVM to write them out."""


def metadata(loop: scf.ForOp | scf.ParallelOp) -> str:
    """More parts of a loop's metadata, each behind a comma.

    No iterations are left over in an innermost loop in a triangle, costly, that reads and writes neighbouring elements
    (masked vectors of others would be gathered); one of a few iterations, their number known, is not written out.
    """
    block = loop.body.block
    bounds = (loop.lb, loop.ub) if isinstance(loop, scf.ForOp) else (*loop.lowerBound, *loop.upperBound)
    ops = list(block.ops)
    if len(block.args) > 1 and chooses(loop):
        return _TWO_BY_TWO
    if len(block.args) != 1 or any(op.regions or isinstance(op, _MEMORY) for op in ops):
        return ""
    n = _iterations(bounds)
    in_rows = n is not None and n in _ROWS
    if not in_rows and not (any(isinstance(op, _COSTLY) for op in ops) and any(_varies(v) for v in bounds)):
        return ""
    moving: set[SSAValue] = {block.args[0]}
    for op in ops:
        if isinstance(op, memref.LoadOp | memref.StoreOp):
            if any(i in moving for i in list(op.indices)[:-1]):
                return ""
        elif isinstance(op, _SHIFTS):
            if any(o in moving for o in op.operands):
                moving.add(op.results[0])
        elif any(o in moving for o in op.operands):
            return ""
    return A_LOOP if in_rows else _MASKED


def is_row(loop: scf.ParallelOp) -> bool:
    """Whether a loop is a row of `_ROWS` neighbouring elements of 64 bits."""
    types = {r.type for op in loop.body.block.ops for r in op.results}
    return types <= _WIDE and metadata(loop) == A_LOOP


def is_short(loop: scf.ParallelOp) -> bool:
    """Whether a loop computes functions in few iterations, their number known, of elements that lie apart: LLVM leaves these
    as they are, unless they fill vectors."""
    ops = list(loop.body.block.ops)
    if any(op.regions or isinstance(op, _MEMORY) for op in ops) or not {r.type for op in ops for r in op.results} <= _WIDE:
        return False
    n = _iterations((loop.lowerBound[-1], loop.upperBound[-1]))
    if n is None or not 1 < n < _ROWS.start or not any(isinstance(op, _FUNCTIONS) for op in ops):
        return False
    variable = loop.body.block.args[-1]
    loads = [op for op in ops if isinstance(op, memref.LoadOp)]
    return any(i is variable for op in loads for i in list(op.indices)[:-1])


def chooses(loop: scf.ForOp | scf.ParallelOp) -> bool:
    """Whether an innermost loop reads elements at indices that it has read before, and computes little with them.

    An index that is the same in all iterations is none of these: LLVM asks before the loop whether it is within bounds, and
    makes vectors of neighbouring elements.
    """
    inside = list(loop.body.walk())
    if any(isinstance(op, scf.ForOp | scf.ParallelOp | scf.WhileOp | memref.StoreOp | func.CallOp) for op in inside):
        return False
    if any(isinstance(op, _COSTLY) or op.dialect_name() == "math" for op in inside):
        return False
    return bool(chosen(loop, moving(loop)))


def moving(loop: scf.ForOp | scf.ParallelOp) -> set[SSAValue]:
    """The values of an innermost loop that need not be the same in all iterations."""
    found = set[SSAValue](loop.body.block.args)
    for op in loop.body.walk():
        if any(o in found for x in op.walk() for o in x.operands):
            found.update(op.results)
    return found


def chosen(loop: scf.ForOp | scf.ParallelOp, changing: set[SSAValue]) -> list[memref.LoadOp]:
    """The elements that an innermost loop, of which these values change, reads at indices that it has read before."""
    read, found = set[SSAValue](), list[memref.LoadOp]()
    for op in loop.body.walk():
        load = isinstance(op, memref.LoadOp)
        if load and any(i in read for i in op.indices):
            found.append(op)
        table = load and isinstance(op.memref.owner, memref.GetGlobalOp)
        moves = load and any(i in changing for i in op.indices)
        if not table and (moves or any(o in read for o in op.operands)):
            read.update(op.results)
    return found


def _iterations(bounds: Sequence[SSAValue]) -> int | None:
    """The number of iterations of a loop where that is known."""
    ends = [v.owner.value.value.data for v in bounds
            if isinstance(v.owner, arith.ConstantOp) and isinstance(v.owner.value, IntegerAttr)]  # fmt: skip
    return ends[1] - ends[0] if len(ends) == len(bounds) == 2 else None


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
