"""Loops that add to elements which data choose: two parts advance together, so that additions seldom wait for each other.

    for e in lo..hi: Y[r[e]] += V[e]
    ->
    for e in 0..q: Y[r[lo+e]] += V[lo+e];  Y[r[lo+q+e]] += V[lo+q+e]      with q = (hi - lo) / 2
    for e in lo+2q..hi: Y[r[e]] += V[e]

Neighbours often add to the same element (the rows of a matrix by coordinates are sorted): the one then reads what the other
has just stored, and waits for it.  Summands half of the loop apart seldom do.

Only under `relaxed`: summands come in another order.
"""

from __future__ import annotations

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import IntegerAttr, i1
from xdsl.ir import Operation, SSAValue

from upl_mlir.engines.native.llvm import tails
from upl_mlir.engines.native.llvm.emitter import Emitter
from upl_mlir.engines.native.llvm.scalar_ops import flags
from upl_mlir.engines.native.llvm.text import llvm_type

PARTS = 2
"""Of a matrix by coordinates two parts took 0.92 of the time of one; four no less, as registers do not suffice for them."""
LEAST = 64
"""Of loops with fewer iterations there are no parts.  Chosen, not measured."""
_LOOPS = (scf.ForOp, scf.ParallelOp, scf.WhileOp, func.CallOp, memref.CopyOp, memref.AllocOp, memref.AllocaOp)


def ahead(e: Emitter, loop: scf.ForOp, lower: str, upper: str, step: str, first: list[str]) -> tuple[str, list[str]]:
    """Write the iterations of a loop that advance together; gives where the others begin, and what these are handed."""
    if e.ordered or step != "1" or not fits(loop):
        return lower, first
    c, args = e.code, loop.body.block.args
    size = c.let(f"sub nsw i64 {upper}, {lower}")
    part = c.let(f"select i1 {c.let(f'icmp sge i64 {size}, {LEAST}', 'c')}, i64 {c.let(f'sdiv i64 {size}, {PARTS}')}, i64 0")
    header, inside, done = (c.label(n) for n in ("parts", "part", "parted"))
    before = c.block
    c.jump(header)
    c.begin(header)
    counter, carried = c.phi("i64", "iv"), [c.phi(llvm_type(a.type)) for a in args[1:]]
    c.branch(c.let(f"icmp slt i64 {counter.name}, {part}", "c"), inside, done)
    c.begin(inside)
    given, at = [p.name for p in carried], c.add(counter.name, lower)
    for n in range(PARTS):
        e.values.update(zip(args, (at, *given), strict=True))
        given = e.body(loop.body.block)
        at = c.add(at, part) if n + 1 < PARTS else at
    counter.close(("0", before), (c.add(counter.name, "1"), c.block))
    for p, start, again in zip(carried, first, given, strict=True):
        p.close((start, before), (again, c.block))
    c.jump(header)
    c.begin(done)
    return c.add(lower, c.mul(part, str(PARTS))), [p.name for p in carried]


def fits(loop: scf.ForOp) -> bool:
    """Whether a loop adds to elements that data choose, and the order of its iterations makes no difference but to the order
    of summands."""
    if not isinstance(loop.parent_op(), func.FuncOp):
        return False
    inside = list(loop.body.walk())
    stores = [op for op in inside if isinstance(op, memref.StoreOp)]
    if not stores or any(isinstance(op, _LOOPS) for op in inside):
        return False
    changing = tails.moving(loop)
    added = {op: summed(op) for op in stores}
    taken = {load for load in added.values() if load is not None}
    sums = {op.memref for op, load in added.items() if load is not None}
    for op, load in added.items():
        if load is None and (op.memref in sums or not _own(op, loop, changing)):
            return False
    own = {op.memref: op.indices for op in stores if op.memref not in sums}
    for op in inside:
        if isinstance(op, memref.LoadOp):
            if op.memref in sums and op not in taken:
                return False
            if op.memref in own and tuple(op.indices) != tuple(own[op.memref]):
                return False
    handed = loop.body.block.last_op
    assert handed is not None
    if not all(_in_any_order(a, v) for a, v in zip(loop.body.block.args[1:], handed.operands, strict=True)):
        return False
    return any(load in taken for load in tails.chosen(loop, changing))


def summed(op: memref.StoreOp) -> memref.LoadOp | None:
    """The element that a store adds to, if it does, in any order of summands."""
    add = op.value.owner
    if not isinstance(add, arith.AddfOp) or "reassoc" not in flags(add):
        return None
    for v in add.operands:
        load = v.owner
        if not isinstance(load, memref.LoadOp) or load.memref is not op.memref or load.parent is not op.parent:
            continue
        if tuple(load.indices) == tuple(op.indices) and len(list(v.uses)) == 1:
            return load
    return None


def _own(op: memref.StoreOp, loop: scf.ForOp, changing: set[SSAValue]) -> bool:
    """Whether each iteration stores to an element of its own."""
    variable = loop.body.block.args[0]
    return variable in op.indices and all(i is variable or i not in changing for i in op.indices)


def _in_any_order(arg: SSAValue, handed: SSAValue) -> bool:
    """Whether what a loop carries is the same in any order of iterations: a sum of reals, or a bit that is set."""
    if arg.type != i1:
        add = handed.owner
        sums = isinstance(add, arith.AddfOp) and "reassoc" in flags(add) and arg in add.operands
        return handed is arg or (sums and len(list(arg.uses)) == 1)
    ways, used = {arg}, set[Operation]()
    if not _set(handed, ways, used):
        return False
    used.update(use.operation for use in handed.uses if isinstance(use.operation, scf.YieldOp))
    return all(use.operation in used for v in ways for use in v.uses)


def _set(v: SSAValue, ways: set[SSAValue], used: set[Operation]) -> bool:
    """Whether a bit is true, or what it was, or true if something else is; collects the values that it goes through."""
    if v in ways:
        return True
    op = v.owner
    match op:
        case arith.ConstantOp(value=IntegerAttr() as number):
            return number.value.data != 0
        case arith.OrIOp(lhs=lhs):
            if lhs not in ways and not _set(lhs, ways, used):
                return False
            used.add(op)
        case scf.IfOp():
            at = next(i for i, r in enumerate(op.results) if r is v)
            ends = [r.block.last_op for r in (op.true_region, op.false_region)]
            if not all(end is not None and _set(end.operands[at], ways, used) for end in ends):
                return False
            used.update(end for end in ends if end is not None)
        case _:
            return False
    ways.add(v)
    return True
