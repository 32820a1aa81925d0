"""How often loops run, where constants and the bounds of the loops outside tell: what LLVM's effort is chosen by."""

from __future__ import annotations

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import BlockArgument, Operation, SSAValue

SHORT = 8
"""Rounds.  Of a Kalman filter with matrices of 3 by 3, code made with little effort is as fast."""
_LOOPS = (scf.ForOp, scf.ParallelOp, scf.WhileOp, GenericOp)
Interval = tuple[int, int]


def only_short_loops(function: func.FuncOp) -> bool:
    """Whether all loops without others inside are known to have few rounds: unrolled or as vectors they gain little."""
    loops = [op for op in function.walk() if isinstance(op, _LOOPS)]
    outer = set[Operation]()
    for op in loops:
        around = op.parent_op()
        while around is not None and around not in outer:
            outer.add(around)
            around = around.parent_op()
    known: dict[SSAValue, Interval | None] = {}
    return all(op in outer or _is_short(op, known) for op in loops)


def _is_short(op: Operation, known: dict[SSAValue, Interval | None]) -> bool:
    match op:
        case scf.ForOp():
            bounds = op.lb, op.ub
        case scf.ParallelOp():
            bounds = op.lowerBound[-1], op.upperBound[-1]
        case _:
            return False
    first, end = (_interval(v, known) for v in bounds)
    return first is not None and end is not None and end[1] - first[0] <= SHORT


def _interval(value: SSAValue, known: dict[SSAValue, Interval | None]) -> Interval | None:
    """Two numbers between which an index lies; None if they are not found."""
    if value not in known:
        known[value] = _found(value, known)
    return known[value]


def _found(value: SSAValue, known: dict[SSAValue, Interval | None]) -> Interval | None:
    op = value.owner
    match op:
        case arith.ConstantOp(value=IntegerAttr() as found):
            return found.value.data, found.value.data
        case arith.AddiOp() | arith.SubiOp() | arith.MinSIOp() | arith.MaxSIOp():
            a, b = _interval(op.lhs, known), _interval(op.rhs, known)
            if a is None or b is None:
                return None
            match op:
                case arith.AddiOp():
                    return a[0] + b[0], a[1] + b[1]
                case arith.SubiOp():
                    return a[0] - b[1], a[1] - b[0]
                case arith.MinSIOp():
                    return min(a[0], b[0]), min(a[1], b[1])
                case _:
                    return max(a[0], b[0]), max(a[1], b[1])
        case _:
            pass
    if not isinstance(value, BlockArgument):
        return None
    loop, at = value.block.parent_op(), value.index
    match loop:
        case scf.ForOp() if at == 0:
            bounds = loop.lb, loop.ub
        case scf.ParallelOp() if at < len(loop.lowerBound):
            bounds = loop.lowerBound[at], loop.upperBound[at]
        case _:
            return None
    first, end = (_interval(v, known) for v in bounds)
    return None if first is None or end is None else (first[0], end[1] - 1)
