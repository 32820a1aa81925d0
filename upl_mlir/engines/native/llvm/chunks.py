"""A long function written as several: LLVM's passes take time that grows with the square of a function's length.

The loops at the top of a kernel are grouped in their order, and each group becomes a function with a parameter for each
value from outside, as the parts for threads do (`parallel.py`).  No group is ended while a value made in it is used later.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Block, Operation, SSAValue

from upl_mlir.engines.native.llvm.emitter import Emitter
from upl_mlir.engines.native.llvm.parallel import Capture, captured
from upl_mlir.engines.native.llvm.scalar_ops import ROWS
from upl_mlir.engines.native.llvm.scratch import ScratchPlan

LONG = 60
"""Loops of a function that is divided."""
LOOPS = 20
"""Loops of a group.  With 20 nodes in a function LLVM takes some 10 ms for each, with 200 nodes 30 ms."""
_PURE = (
    *ROWS, arith.ConstantOp, memref.DimOp, memref.AllocOp, memref.AllocaOp, memref.SubviewOp, memref.CastOp,
    memref.CollapseShapeOp, memref.GetGlobalOp,
)  # fmt: skip


def write(e: Emitter, block: Block) -> None:
    """The operations of a function's block, but for its terminator, which has no operands."""
    ops = [op for op in block.ops if op is not block.last_op]
    weights = [_loops(op) for op in ops]
    if sum(weights) <= LONG:
        e.body(block)
        return
    last = _last_uses(ops)
    group: list[Operation] = []
    weight = open_until = 0
    for at, (op, loops) in enumerate(zip(ops, weights, strict=True)):
        if isinstance(op, _PURE) and all(v in e.values for v in op.operands):
            e.run([op])  # of no effect: it may go before the group
            continue
        group.append(op)
        weight += loops
        open_until = max(open_until, last[at])
        if weight >= LOOPS and open_until <= at:
            _outlined(e, group)
            group, weight = [], 0
    if group:
        _outlined(e, group)
    e.release()


def _loops(op: Operation) -> int:
    """The loops of an operation."""
    found = 0
    for o in op.walk():
        match o:
            case scf.ForOp() | scf.WhileOp():
                found += 1
            case scf.ParallelOp():
                found += len(o.lowerBound)
            case GenericOp():
                found += 3
            case _:
                pass
    return found


def _last_uses(ops: Sequence[Operation]) -> list[int]:
    """The place of the last operation that uses what each one makes; -1 where nothing does."""
    last = [-1] * len(ops)
    made: dict[SSAValue, int] = {value: at for at, op in enumerate(ops) for value in op.results}
    for at, op in enumerate(ops):
        for o in op.walk():
            for v in o.operands:
                if v in made:
                    last[made[v]] = at
    return last


def _outlined(e: Emitter, ops: Sequence[Operation]) -> None:
    """Write operations as a function, and a call of it."""
    capture = Capture()
    inner = type(e)(e.library, ScratchPlan(), parallel=e.parallel)
    inner.values.update(captured(e, ops, capture))
    inside = {o for op in ops for o in op.walk()}
    plan = inner.scratch
    for o, place in e.scratch.places.items():
        if o in inside:
            plan.places[o] = _scratch(e, capture, plan, place)
    if any(isinstance(o, GenericOp) for o in inside):
        plan.panels = _scratch(e, capture, plan, e.scratch.panels)
    inner.run(ops)
    inner.release()
    name = f"@group{sum(key.startswith('@group') for key in e.library.functions)}"
    formal = ["ptr %fork", "i64 %pool", *(f"{t} {capture.attributes.get(x, '')}{x}" for t, x in capture.names.values())]
    actual = ["ptr %fork", "i64 %pool", *(f"{t} {outer}" for outer, (t, _) in capture.names.items())]
    head = f"define internal void {name}({', '.join(formal)}) #2 {{"
    e.library.functions[name] = f"{head}\nstart:\n{inner.code.text}\n  ret void\n}}\n"
    e.code.do(f"call void {name}({', '.join(actual)})")


def _scratch(e: Emitter, capture: Capture, plan: ScratchPlan, place: str) -> str:
    """A scratch array's address inside, with the step from one thread's to the next one's."""
    base = capture.scalar(place, "ptr")
    capture.attributes[base] = "noalias "
    if place in e.scratch.strides:
        plan.strides[base] = capture.scalar(e.scratch.strides[place], "i64")
    return base
