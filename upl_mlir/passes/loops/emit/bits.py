# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Bits that say whether an index was outside, set where the loop asks that anyway.

    for p { x = if c {X[j]} else {-inf};  …;  bit = bit | !c }
    ->
    for p { x, bit = if c {X[j], bit} else {-inf, true};  … }

The element is read under the same condition, and nearly always: so the bit costs nothing where all is well.  Of two tests
one may stand inside the other: where the first says no, the second's answer makes no difference to the bit.

Source: partial redundancy elimination of a test, the second one being known on both ways of the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import IntegerAttr, i1
from xdsl.ir import Block, Operation, Region, SSAValue

BELOW = 6
"""The predicate `ult` of `arith.cmpi`: what is below the bounds is a great number."""


def guards_an_element(op: scf.IfOp) -> bool:
    """Whether a condition asks if an index lies within bounds, as it nearly always does, and an element is read then."""
    asks = op.cond.owner
    within = isinstance(asks, arith.CmpiOp) and asks.predicate.value.data == BELOW
    return within and any(isinstance(x, memref.LoadOp) for x in op.true_region.block.ops)


def set_where_asked(block: Block) -> None:
    """Change the loops in a block that hand on such a bit."""
    for loop in [op for op in block.walk() if isinstance(op, scf.ForOp)]:
        inside = list(loop.body.walk())
        if not any(isinstance(op, memref.CopyOp | func.CallOp | scf.ForOp | scf.WhileOp) for op in inside):
            _change(loop.body.block, {op.memref for op in inside if isinstance(op, memref.StoreOp)})


def _change(block: Block, written: Collection[SSAValue]) -> None:
    last = block.last_op
    assert last is not None
    for bit, handed in zip(block.args[1:], last.operands, strict=True):
        join = handed.owner
        if bit.type != i1 or not isinstance(join, arith.OrIOp) or join.lhs is not bit or len(list(bit.uses)) != 1:
            continue
        asked = {wrong: _negated(wrong) for wrong in _joined(join.rhs)}
        left = {wrong: right for wrong, right in asked.items() if right is not None}
        now = _threaded(block, bit, left, written)
        if now is bit:
            continue
        for wrong, right in asked.items():
            if right is None or wrong in left:
                more = arith.OrIOp(now, wrong)
                block.insert_op_before(more, join)
                now = more.result
        join.result.replace_all_uses_with(now)
        join.detach()
        join.erase()


def _threaded(block: Block, bit: SSAValue, left: dict[SSAValue, SSAValue], written: Collection[SSAValue]) -> SSAValue:
    """The bit behind the tests of a block, and those inside where they say yes; what they ask is `left` no more."""
    for op in list(block.ops):
        if not isinstance(op, scf.IfOp) or not guards_an_element(op):
            continue
        wrong = next((w for w, right in left.items() if same(op.cond, right, written)), None)
        if wrong is not None:
            del left[wrong]
            bit = _with_bit(op, bit, _threaded(op.true_region.block, bit, left, written))
    return bit


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


def _with_bit(op: scf.IfOp, bit: SSAValue, behind: SSAValue) -> SSAValue:
    """The operation hands on the bit, too: as it is `behind` what its first way does; on the second it is true."""
    if not op.false_region.blocks:
        op.false_region.add_block(Block([scf.YieldOp()]))
    one = arith.ConstantOp.from_int_and_width(1, i1)
    op.false_region.block.insert_op_before(one, _end(op.false_region))
    for region, value in ((op.true_region, behind), (op.false_region, one.result)):
        end = _end(region)
        region.block.insert_op_before(scf.YieldOp(*end.operands, value), end)
        end.detach()
        end.erase()
    yes, no = op.true_region, op.false_region
    op.detach_region(yes)
    op.detach_region(no)
    wider = scf.IfOp(op.cond, [*(r.type for r in op.results), bit.type], yes, no)
    around = op.parent_block()
    assert around is not None
    around.insert_op_before(wider, op)
    for old, result in zip(op.results, wider.results, strict=False):
        old.replace_all_uses_with(result)
    op.detach()
    op.erase()
    return wider.results[-1]


def _end(region: Region) -> Operation:
    last = region.block.last_op
    assert last is not None
    return last


def same(a: SSAValue, b: SSAValue, written: Collection[SSAValue]) -> bool:
    """Whether two values are computed alike, of arrays that are not among those `written`."""
    if a is b:
        return True
    x, y = a.owner, b.owner
    if not isinstance(x, Operation) or not isinstance(y, Operation) or type(x) is not type(y) or x.regions:
        return False
    if not (x.dialect_name() == "arith" or (isinstance(x, memref.LoadOp) and x.memref not in written)):
        return False
    alike = x.properties == y.properties and x.attributes == y.attributes and a.type == b.type
    pairs = zip(x.operands, y.operands, strict=False)
    return alike and len(x.operands) == len(y.operands) and all(same(v, w, written) for v, w in pairs)
