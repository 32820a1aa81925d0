"""`simplify`: fold constants, drop neutral elements, share equal subexpressions, erase what nobody uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import frexp

from xdsl.context import Context
from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, FloatAttr, IntegerAttr, ModuleOp, i1
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.traits import is_side_effect_free

from upl_mlir.dialects.upl import InputOp, LetOp, NodeOp, ProgramOp, SendOp
from upl_mlir.dialects.upl.query import program_of
from upl_mlir.passes.arrows import PRIMAL
from upl_mlir.passes.autodiff.eliminate_dead_derivatives import erase_unused


@dataclass(frozen=True)
class SimplifyPass(ModulePass):
    """Tidy the bodies that passes have written (adjoint nodes); what the author wrote stays as it is.

    Requires: a verified program.
    Establishes: adjoint nodes have no product by 1, no double negation, no select between equal arms, no two equal
    operations. Signs are outside of products and powers of two in front of them. ``c ? a : b`` replaces ``(c ? a : 0) +
    (c ? 0 : b)``.
    Source: under IEEE rules only the sign of a zero may change, where nothing over- or underflows. x*1, -(-x) and
    products by powers of two are exact, and so x+x is 2*x. 0*x and x+0 are left alone.

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


def share(block: Block) -> None:
    """Let equal operations of a body be one, and be called by the name that one of them has: one value, one derivative."""
    seen: dict[tuple[object, ...], SSAValue] = {}
    named: dict[SSAValue, SSAValue] = {}
    for op in list(block.ops):
        for i, o in enumerate(op.operands):
            if o in named:
                op.operands[i] = named[o]
        if isinstance(op, LetOp):
            named.setdefault(op.value, op.result)
        elif not isinstance(op, SendOp) and len(op.results) == 1 and is_side_effect_free(op):
            first = seen.setdefault(_key(op), op.results[0])
            if first is not op.results[0]:
                op.results[0].replace_all_uses_with(named.get(first, first))
                op.detach()
                op.erase()


def _key(op: Operation) -> tuple[object, ...]:
    """What tells apart operations with different results."""
    return (type(op), tuple(op.operands), tuple(sorted(op.properties.items())), op.results[0].type)


def _block(block: Block) -> None:
    changed = True
    while changed:
        changed = False
        erase_unused(block.ops)  # what is dead is no use
        seen: dict[tuple[object, ...], SSAValue] = {}
        for op in list(block.ops):
            if isinstance(op, SendOp) or len(op.results) != 1 or not is_side_effect_free(op):
                continue
            if _narrow(op):
                changed = True
                seen = {k: v for k, v in seen.items() if v not in op.operands}  # an arm is another value than it was
            new = _rewrite(op)
            if new is None:
                key = _key(op)
                if isinstance(op, LetOp) or key not in seen:
                    seen[key] = op.results[0]
                    continue
                new = seen[key]
            op.results[0].replace_all_uses_with(new)
            op.detach()
            op.erase()
            changed = True
    _signs_inside(block)


def _signs_inside(block: Block) -> None:
    """``-(a*b)`` as ``-a*b``, which is how it is written; products and quotients that nothing else reads."""
    for op in list(block.ops):
        if isinstance(op, arith.NegfOp):
            at: Operation = op
            while isinstance(inner := at.operands[0].owner, arith.MulfOp | arith.DivfOp) and inner.results[0].has_one_use():
                at = inner
            if at is not op:
                at.operands[0] = _new(at, arith.NegfOp(at.operands[0]))
                op.result.replace_all_uses_with(op.operand)
                op.detach()
                op.erase()


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
    """The value that an operation simplifies to; None if it stays."""
    rule = _RULES.get(type(op))
    return rule(op) if rule is not None else None


def _new(op: Operation, new: Operation) -> SSAValue:
    """Put an operation before another; its result."""
    block = op.parent_block()
    assert block is not None
    new.location = op.location
    block.insert_op_before(new, op)
    return new.results[0]


def _constant(v: SSAValue) -> float | None:
    """The number that a value is."""
    value = v.owner.value if isinstance(v.owner, arith.ConstantOp) else None
    return value.value.data if isinstance(value, FloatAttr | IntegerAttr) else None


def _is(v: SSAValue, number: float) -> bool:
    return _constant(v) == number


def _true(v: SSAValue) -> bool:
    return _constant(v) in (1, -1) and v.type == i1


def _power(v: SSAValue) -> float | None:
    """A real constant by which products are exact."""
    n = _constant(v) if isinstance(v.type, AnyFloat) else None
    return n if n and _exact(n) else None


def _exact(n: float) -> bool:
    """Whether products by a number are exact: a power of two, or minus one."""
    return abs(frexp(n)[0]) == 0.5


def _factor(v: SSAValue) -> tuple[float, SSAValue]:
    """A value as a power of two times the rest."""
    if isinstance(v.owner, arith.NegfOp):
        n, rest = _factor(v.owner.operand)
        return -n, rest
    if isinstance(v.owner, arith.MulfOp) and (n := _power(v.owner.lhs)) is not None:
        return n, v.owner.rhs
    return 1.0, v


def _scaled(op: Operation, n: float, v: SSAValue) -> SSAValue:
    """``n*v``; the number goes to the front of a product that nothing else reads."""
    if n == 1:
        return v
    if n == -1:
        return _new(op, arith.NegfOp(v))
    product = isinstance(v.owner, arith.MulfOp) and not v.has_more_than_one_use() and _power(v.owner.lhs) is None
    assert isinstance(v.type, AnyFloat)
    if isinstance(v.owner, arith.MulfOp) and product and _exact(n):
        c = _constant(v.owner.lhs)
        first = _scaled(op, n, v.owner.lhs) if c is None else _new(op, arith.ConstantOp(FloatAttr(n * c, v.type)))
        return _new(op, arith.MulfOp(first, v.owner.rhs))
    return _new(op, arith.MulfOp(_new(op, arith.ConstantOp(FloatAttr(n, v.type))), v))


def _mul(op: Operation) -> SSAValue | None:
    a, b = op.operands
    if _is(a, 1.0):
        return b
    if _is(b, 1.0):
        return a
    if not isinstance(a.type, AnyFloat):
        return None
    if _constant(b) is not None and _constant(a) is None:
        return _new(op, arith.MulfOp(b, a))
    if (n := _power(a)) is not None:
        m, rest = _factor(b)
        product = isinstance(b.owner, arith.MulfOp) and not b.has_more_than_one_use()
        return _scaled(op, n * m, rest) if m != 1 or product or n == -1 else None
    for v, other in ((a, b), (b, a)):
        if isinstance(v.owner, arith.NegfOp):
            x, y = (v.owner.operand, other) if v is a else (other, v.owner.operand)
            return _new(op, arith.NegfOp(_new(op, arith.MulfOp(x, y))))
    m, rest = _factor(b)
    if m != 1 and not b.has_more_than_one_use():  # x*(c*y) is c*x*y
        return _scaled(op, m, _new(op, arith.MulfOp(a, rest)))
    return None


def _div(op: Operation) -> SSAValue | None:
    a, b = op.operands
    if _is(b, 1.0):
        return a
    for v, other in ((a, b), (b, a)):
        if isinstance(v.owner, arith.NegfOp):
            new = arith.DivfOp(v.owner.operand, other) if v is a else arith.DivfOp(other, v.owner.operand)
            return _new(op, arith.NegfOp(_new(op, new)))
    return None


def _neg(op: Operation) -> SSAValue | None:
    (v,) = op.operands
    if isinstance(v.owner, arith.NegfOp):
        return v.owner.operand
    if isinstance(v.owner, arith.MulfOp) and (n := _power(v.owner.lhs)) is not None:
        return _scaled(op, -n, v.owner.rhs)
    if isinstance(v.owner, arith.SubfOp) and not v.has_more_than_one_use():
        return _new(op, arith.SubfOp(v.owner.rhs, v.owner.lhs))
    return None


def _add(op: Operation) -> SSAValue | None:
    """``x + x``, multiples of one value, differences, and both arms of a choice."""
    a, b = op.operands
    (n, x), (m, y) = _factor(a), _factor(b)
    if x is y and n + m:
        return _scaled(op, n + m, x)
    if isinstance(b.owner, arith.NegfOp):
        return _new(op, arith.SubfOp(a, b.owner.operand))
    if isinstance(a.owner, arith.NegfOp):
        return _new(op, arith.SubfOp(b, a.owner.operand))
    return _arms(op, a, b) or _arms(op, b, a)


def _arms(op: Operation, a: SSAValue, b: SSAValue) -> SSAValue | None:
    """``(c ? x : 0) + (c ? 0 : y)``."""
    one, other = a.owner, b.owner
    if not (isinstance(one, arith.SelectOp) and isinstance(other, arith.SelectOp) and one.cond is other.cond):
        return None
    zeros = _is(one.rhs, 0) and _is(other.lhs, 0)
    return _new(op, arith.SelectOp(one.cond, one.lhs, other.rhs)) if zeros else None


def _sub(op: Operation) -> SSAValue | None:
    a, b = op.operands
    (n, x), (m, y) = _factor(a), _factor(b)
    if x is y and n != m:
        return _scaled(op, n - m, x)
    return _new(op, arith.AddfOp(a, b.owner.operand)) if isinstance(b.owner, arith.NegfOp) else None


def _select(op: Operation) -> SSAValue | None:
    cond, a, b = op.operands
    if a is b or _true(cond):
        return a
    if _is(cond, 0):
        return b
    if isinstance(cond.owner, arith.XOrIOp) and _true(cond.owner.rhs):  # `!c`
        return _new(op, arith.SelectOp(cond.owner.lhs, b, a))
    return None


def _or(op: Operation) -> SSAValue | None:
    """``a || a``, and ``a || b || b``."""
    a, b = op.operands
    if a is b or (isinstance(a.owner, type(op)) and b in a.owner.operands):
        return a
    return None


_RULES: dict[type[Operation], Callable[[Operation], SSAValue | None]] = {
    arith.AddfOp: _add,
    arith.SubfOp: _sub,
    arith.AndIOp: _or,
    arith.OrIOp: _or,
    arith.MulfOp: _mul,
    arith.MuliOp: _mul,
    arith.DivfOp: _div,
    arith.NegfOp: _neg,
    arith.SelectOp: _select,
}
