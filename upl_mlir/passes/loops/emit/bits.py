# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Bits that say whether an index was outside, set where the loop asks that anyway.

    for p { x = if c {X[j]} else {-inf};  …;  bit = bit | !c }
    ->
    for p { x, bit = if c {X[j], bit} else {-inf, true};  … }

The element is read under the same condition, and nearly always: so the bit costs nothing where all is well.

Source: partial redundancy elimination of a test, the second one being known on both ways of the first.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import IntegerAttr, i1
from xdsl.ir import Block, Operation, SSAValue

BELOW = 6
"""The predicate `ult` of `arith.cmpi`: what is below the bounds is a great number."""


def guards_an_element(op: scf.IfOp) -> bool:
    """Whether a condition asks if an index lies within bounds, as it nearly always does, and an element is read then."""
    asks = op.cond.owner
    within = isinstance(asks, arith.CmpiOp) and asks.predicate.value.data == BELOW
    return within and any(isinstance(x, memref.LoadOp) for x in op.true_region.block.ops)


def set_where_asked(block: Block) -> None:
    """Change the loops in a block that hand on such a bit, and write no arrays."""
    for loop in [op for op in block.walk() if isinstance(op, scf.ForOp)]:
        inside = list(loop.body.walk())
        if not any(isinstance(op, memref.StoreOp | memref.CopyOp | func.CallOp) for op in inside):
            _change(loop.body.block)


def _change(block: Block) -> None:
    last = block.last_op
    assert last is not None
    for bit, handed in zip(block.args[1:], last.operands, strict=True):
        join = handed.owner
        if bit.type != i1 or not isinstance(join, arith.OrIOp) or join.lhs is not bit or len(list(bit.uses)) != 1:
            continue
        now: SSAValue = bit
        left: list[SSAValue] = []
        for wrong in _joined(join.rhs):
            asked = _negated(wrong)
            found = None if asked is None else _asking(block, asked, now, left)
            if found is None:
                left.append(wrong)
            else:
                now = _with_bit(found, now)
        if now is bit:
            continue
        for wrong in left:
            more = arith.OrIOp(now, wrong)
            block.insert_op_before(more, join)
            now = more.result
        join.result.replace_all_uses_with(now)
        join.detach()
        join.erase()


def _joined(v: SSAValue) -> Iterator[SSAValue]:
    """The bits of which one is the disjunction, in their order."""
    if isinstance(v.owner, arith.OrIOp):
        yield from _joined(v.owner.lhs)
        yield from _joined(v.owner.rhs)
    else:
        yield v


def _negated(v: SSAValue) -> SSAValue | None:
    """What a bit is the opposite of."""
    op = v.owner
    if isinstance(op, arith.XOrIOp) and isinstance(op.rhs.owner, arith.ConstantOp):
        one = op.rhs.owner.value
        return op.lhs if isinstance(one, IntegerAttr) and one.value.data != 0 else None
    return None


def _asking(block: Block, asked: SSAValue, now: SSAValue, left: list[SSAValue]) -> scf.IfOp | None:
    """The operation of a block that asks a condition and reads an element where it holds, and that the bit so far is known
    to."""
    behind = isinstance(now.owner, Block)
    for op in block.ops:
        if op is now.owner:
            behind = True
        elif behind and isinstance(op, scf.IfOp) and guards_an_element(op) and same(op.cond, asked):
            return op
    return None


def _with_bit(op: scf.IfOp, bit: SSAValue) -> SSAValue:
    """The operation hands on the bit, too, which is true on its second way."""
    one = arith.ConstantOp.from_int_and_width(1, i1)
    block = op.false_region.block
    end = block.last_op
    assert end is not None
    block.insert_op_before(one, end)
    for region, value in ((op.true_region, bit), (op.false_region, one.result)):
        end = region.block.last_op
        assert end is not None
        region.block.insert_op_before(new := scf.YieldOp(*end.operands, value), end)
        end.detach()
        end.erase()
        assert region.block.last_op is new
    regions = [op.detach_region(r) for r in (op.true_region, op.false_region)]
    wider = scf.IfOp(op.cond, [*(r.type for r in op.results), i1], *regions)
    around = op.parent_block()
    assert around is not None
    around.insert_op_before(wider, op)
    for old, result in zip(op.results, wider.results, strict=False):
        old.replace_all_uses_with(result)
    op.detach()
    op.erase()
    return wider.results[-1]


def same(a: SSAValue, b: SSAValue) -> bool:
    """Whether two values are computed alike, in a place where no array is written."""
    if a is b:
        return True
    x, y = a.owner, b.owner
    if not isinstance(x, Operation) or not isinstance(y, Operation) or type(x) is not type(y) or x.regions:
        return False
    if not (isinstance(x, memref.LoadOp) or x.dialect_name() == "arith"):
        return False
    alike = x.properties == y.properties and x.attributes == y.attributes and a.type == b.type
    return alike and len(x.operands) == len(y.operands) and all(map(same, x.operands, y.operands))
