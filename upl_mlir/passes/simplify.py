"""`simplify`: fold constants, drop neutral elements, share equal subexpressions, erase what nobody uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.traits import is_side_effect_free

from upl_mlir.dialects.upl import InputOp, LetOp, NodeOp, ProgramOp, SendOp
from upl_mlir.dialects.upl.query import program_of
from upl_mlir.passes.arrows import PRIMAL
from upl_mlir.passes.eliminate_dead_derivatives import erase_unused


@dataclass(frozen=True)
class SimplifyPass(ModulePass):
    """Tidy the bodies that passes have written (adjoint nodes); what the author wrote stays as it is.

    Requires: a verified program.
    Establishes: in adjoint nodes no product by 1, no sum with 0, no double negation, no select between equal arms, no
    two equal operations.
    Source: none of these changes a result under IEEE rules: x*1, x+(-0), -(-x) are exact; 0*x and x+0 are left alone.

        %1 = arith.mulf %d, %one : f64      ->      %d
    """

    name = "simplify"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        simplify(program_of(op))


def simplify(program: ProgramOp) -> None:
    """Simplify in place."""
    for op in program.body.block.ops:
        if isinstance(op, NodeOp | InputOp) and PRIMAL in op.attributes:
            _block(op.block)


def _block(block: Block) -> None:
    changed = True
    while changed:
        changed = False
        seen: dict[tuple[object, ...], SSAValue] = {}
        for op in list(block.ops):
            if isinstance(op, SendOp) or len(op.results) != 1 or not is_side_effect_free(op):
                continue
            changed = _narrow(op) or changed
            new = _rewrite(op)
            if new is None:
                key = (type(op), tuple(op.operands), tuple(sorted(op.properties.items())), op.results[0].type)
                if isinstance(op, LetOp) or key not in seen:
                    seen[key] = op.results[0]
                    continue
                new = seen[key]
            op.results[0].replace_all_uses_with(new)
            op.detach()
            op.erase()
            changed = True
    erase_unused(block.ops)


def _narrow(op: Operation) -> bool:
    """In an arm of ``c ? e : z`` that nothing else reads, ``c ? a : b`` is `a` (or `b`); whether one was found."""
    if not isinstance(op, arith.SelectOp):
        return False
    found = False
    for arm, value in ((1, op.lhs), (2, op.rhs)):
        inner = value.owner
        if not isinstance(inner, Operation) or not value.has_one_use():
            continue
        for i, o in enumerate(inner.operands):
            if isinstance(o.owner, arith.SelectOp) and o.owner.cond is op.cond:
                inner.operands[i] = o.owner.operands[arm]
                found = True
    return found


def _rewrite(op: Operation) -> SSAValue | None:
    """The value that an operation simplifies to, exactly; None if it stays."""
    rule = _RULES.get(type(op))
    return rule(op) if rule is not None else None


def _is(v: SSAValue, number: float) -> bool:
    owner = v.owner
    if not isinstance(owner, arith.ConstantOp):
        return False
    value = owner.value
    return isinstance(value, FloatAttr | IntegerAttr) and value.value.data == number


def _mul(op: Operation) -> SSAValue | None:
    a, b = op.operands
    if _is(a, 1.0):
        return b
    return a if _is(b, 1.0) else None


def _neg(op: Operation) -> SSAValue | None:
    inner = op.operands[0].owner
    return inner.operand if isinstance(inner, arith.NegfOp) else None


def _select(op: Operation) -> SSAValue | None:
    cond, a, b = op.operands
    if a is b or _is(cond, 1):
        return a
    return b if _is(cond, 0) else None


def _add(op: Operation) -> SSAValue | None:
    """``x + (-y)`` is ``x - y``, exactly."""
    a, b = op.operands
    if not isinstance(b.owner, arith.NegfOp):
        return None
    new = arith.SubfOp(a, b.owner.operand)
    new.location = op.location
    assert op.parent_block() is not None
    op.parent_block().insert_op_before(new, op)  # pyright: ignore[reportOptionalMemberAccess]
    return new.result


def _or(op: Operation) -> SSAValue | None:
    """``a || a``, and ``a || b || b``."""
    a, b = op.operands
    if a is b or (isinstance(a.owner, type(op)) and b in a.owner.operands):
        return a
    return None


_RULES: dict[type[Operation], Callable[[Operation], SSAValue | None]] = {
    arith.AddfOp: _add,
    arith.AndIOp: _or,
    arith.OrIOp: _or,
    arith.MulfOp: _mul,
    arith.MuliOp: _mul,
    arith.DivfOp: lambda op: op.operands[0] if _is(op.operands[1], 1.0) else None,
    arith.NegfOp: _neg,
    arith.SelectOp: _select,
}
