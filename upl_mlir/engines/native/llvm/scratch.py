"""Scratch arrays laid out in one workspace that is kept between calls.

An allocation moves to the start of the kernel if its size follows from the arguments by pure operations; then the public
function computes all sizes before anything runs.  Others (sizes read from memory inside loops) come from the heap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from xdsl.dialects import func, memref, scf
from xdsl.ir import BlockArgument, Operation, SSAValue

from upl_mlir.engines.native.llvm.scalar_ops import ROWS
from upl_mlir.engines.native.llvm.text import byte_size

Allocation = memref.AllocOp | memref.AllocaOp

ALIGN = 64
"""Alignment of scratch arrays: a cache line, and the widest vector."""
STACK_WORDS = 256
"""Arrays of a known size of at most so many 64-bit words lie on the stack: LLVM keeps in registers what it can of them.
Chosen, not measured: 2 KiB."""


@dataclass(frozen=True)
class Scratch:
    """One scratch array: of an allocation, or (`op` None) the packed panels of contractions, of a fixed size.

    `shared` is False where each thread needs its own.
    """

    op: Allocation | None
    bytes: int
    shared: bool


@dataclass
class ScratchPlan:
    """Where scratch lies while a function is written: the text of each array's address."""

    places: dict[Operation, str] = field(default_factory=dict[Operation, str])
    panels: str = "null"
    strides: dict[str, str] = field(default_factory=dict[str, str])
    """For arrays that each thread has its own of: bytes from one thread's to the next one's, by address."""


def scratch_of(function: func.FuncOp) -> list[Scratch]:
    """The allocations of a function that move to its start, in text order."""
    return [
        Scratch(op, 0, enclosing_parallel(op) is None)
        for op in function.walk()
        if isinstance(op, Allocation) and not stack_words(op) and all(_at_start(v, function) for v in op.dynamic_sizes)
    ]


def stack_words(op: Allocation) -> int:
    """How many words an array takes on the stack; 0 if it lies elsewhere."""
    t = op.memref.type
    if op.dynamic_sizes or enclosing_parallel(op) is not None:  # what is in a loop of several threads each has its own of
        return 0
    words = (math.prod(t.get_shape()) * byte_size(t.element_type) + 7) // 8
    return words if words <= STACK_WORDS else 0


def enclosing_parallel(op: Operation) -> scf.ParallelOp | None:
    """The outermost parallel loop around an operation."""
    found = None
    for parent in _parents(op):
        if isinstance(parent, scf.ParallelOp):
            found = parent
    return found


def _parents(op: Operation) -> Iterator[Operation]:
    parent = op.parent_op()
    while parent is not None:
        yield parent
        parent = parent.parent_op()


def _at_start(value: SSAValue, function: func.FuncOp) -> bool:
    """Whether a value follows from the function's arguments by pure operations."""
    if isinstance(value, BlockArgument):
        return value.block is function.body.block
    op = value.owner
    assert isinstance(op, Operation)
    if isinstance(op, memref.DimOp):
        return _at_start(op.index, function) and _shape_at_start(op.source, function)
    return type(op) in ROWS and all(_at_start(v, function) for v in op.operands)


def _shape_at_start(value: SSAValue, function: func.FuncOp) -> bool:
    if isinstance(value, BlockArgument):
        return value.block is function.body.block
    return isinstance(value.owner, Allocation) and all(_at_start(v, function) for v in value.owner.dynamic_sizes)
