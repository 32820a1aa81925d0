"""What a node's code makes of its index: which registers are constants, fields plus constants, comparisons of fields.

The send engine and the table of entries can do these by themselves, so that no instruction is needed for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upl_mlir.hw.core.layouts import Guard
from upl_mlir.hw.execute import to_bits
from upl_mlir.hw.image import Node
from upl_mlir.hw.microcode import Instruction, Op, Send, ValueType

_COMPARISONS = {
    Op.EQ_I32: (Guard.EQUAL, 0), Op.NE_I32: (Guard.UNEQUAL, 0), Op.LT_I32: (Guard.LESS, 0), Op.LE_I32: (Guard.LESS, 1),
    Op.GE_I32: (Guard.NOT_LESS, 0), Op.GT_I32: (Guard.NOT_LESS, 1),
}  # fmt: skip
"""The comparison of a field with a constant, and what is added to the constant."""
_MIRRORED = {
    Op.EQ_I32: Op.EQ_I32, Op.NE_I32: Op.NE_I32, Op.LT_I32: Op.GT_I32, Op.LE_I32: Op.GE_I32, Op.GE_I32: Op.LE_I32,
    Op.GT_I32: Op.LT_I32,
}  # fmt: skip
CONSTANTS = {Op.CONST_F32: ValueType.F32, Op.CONST_I32: ValueType.I32, Op.CONST_BOOL: ValueType.BOOL}


@dataclass(frozen=True)
class InputOperand:
    """A value of the activation."""

    number: int


@dataclass(frozen=True)
class Place:
    """An index value: a field of the sender's index, or an operand, or nothing, plus a constant."""

    base_field: int | None
    operand: int | InputOperand | None
    constant: int

    def beyond(self, bias: int) -> int:
        """The constant less the bias of a field, in 32 bits; where it has more, no value fits the field's 31 bits, nor does
        one with the least constant."""
        constant = self.constant - bias
        return constant if -(1 << 31) <= constant < 1 << 31 else -(1 << 31)


@dataclass(frozen=True)
class FieldGuard:
    """Whether a field of the sender's index, without its bias, compares with a constant."""

    relation: Guard
    number: int
    constant: int

    def runs(self, *, holds: bool) -> list[tuple[int, float]]:
        """The values of the field for which it is true, or those for which it is not: runs, both ends included."""
        c, end = self.constant, float("inf")
        apart = [(0, c - 1.0), (c + 1, end)]
        true, false = {
            Guard.EQUAL: ([(c, float(c))], apart), Guard.UNEQUAL: (apart, [(c, float(c))]),
            Guard.LESS: ([(0, c - 1.0)], [(c, end)]), Guard.NOT_LESS: ([(c, end)], [(0, c - 1.0)]),
        }[self.relation]  # fmt: skip
        return true if holds else false

    def follows(self, known: FieldGuard, *, holds: bool) -> bool | None:
        """The outcome where that of another one is known; None if it may be either."""
        if known.number != self.number:
            return None
        given = [run for run in known.runs(holds=holds) if run[0] <= run[1]]
        for outcome in (True, False):
            if all(any(a <= low and high <= b for a, b in self.runs(holds=outcome)) for low, high in given):
                return outcome
        return None


class IndexValues:
    """The registers of a node that are known beforehand; `definitions` says how each one is computed."""

    def __init__(self, node: Node):
        self.node = node
        code = [node.body, *(c for send in node.sends for c in code_of(send))]
        self.definitions = {step.result: step for steps in code for step in steps}

    def constant(self, register: int) -> int | None:
        """The value of an i32 or other constant as the number it is, None if it is computed."""
        step = self.definitions.get(register)
        if step is None or step.op not in CONSTANTS:
            return None
        assert step.immediate is not None
        return int(step.immediate) if step.op is Op.CONST_I32 else to_bits(step.immediate, CONSTANTS[step.op])

    def place(self, register: int) -> Place:
        """An index value as field or operand plus a constant."""
        step = self.definitions.get(register)
        if step is None:
            return Place(None, register, 0)
        match step.op:
            case Op.CONST_I32:
                assert step.immediate is not None
                return Place(None, None, int(step.immediate))
            case Op.FIELD:
                assert step.immediate is not None
                number = int(step.immediate)
                return Place(number, None, self.node.fields[number].bias)
            case Op.INPUT:
                assert step.immediate is not None
                return Place(None, InputOperand(int(step.immediate)), 0)
            case Op.ADD_I32 | Op.SUB_I32:
                sign = 1 if step.op is Op.ADD_I32 else -1
                left, right = step.operands
                amount = self.constant(right)
                if amount is None and sign == 1:
                    left, amount = right, self.constant(left)
                if amount is not None:
                    inner = self.place(left)
                    total = inner.constant + sign * amount
                    if -(1 << 31) <= total < 1 << 31:
                        return Place(inner.base_field, inner.operand, total)
            case _:
                pass
        return Place(None, register, 0)

    def table(self, register: int) -> tuple[int, Place] | None:
        """A word of a constant array at a field plus a constant, if the register is one."""
        step = self.definitions.get(register)
        if step is None or step.op is not Op.LDTAB or len(step.operands) != 1:
            return None
        place = self.place(step.operands[0])
        assert step.immediate is not None
        return None if place.operand is not None or place.base_field is None else (int(step.immediate), place)

    def field_guard(self, register: int) -> FieldGuard | None:
        """A comparison of a field plus a constant with a constant, if the register is one."""
        step = self.definitions.get(register)
        if step is None or step.op not in _COMPARISONS:
            return None
        relation, more = _COMPARISONS[step.op]
        left, right = (self.place(r) for r in step.operands)
        if left.base_field is None and left.operand is None:
            left, right, (relation, more) = right, left, _COMPARISONS[_MIRRORED[step.op]]
        if left.base_field is None or right.base_field is not None or right.operand is not None:
            return None
        place = self.node.fields[left.base_field]
        constant = right.constant - left.constant + more
        if not 0 <= constant < 1 << place.bits:
            # Beyond what the field can be: the outcome is always the same.
            if relation in (Guard.EQUAL, Guard.UNEQUAL):
                relation, constant = (Guard.LESS if relation is Guard.EQUAL else Guard.NOT_LESS), 0
            constant = max(0, min(constant, 1 << place.bits))
        return FieldGuard(relation, left.base_field, constant) if place.bits < 32 else None


def code_of(send: Send) -> list[Sequence[Instruction]]:
    """All code of a send, in the order in which it runs."""
    return [*(loop.code for loop in send.loops), send.condition_code, send.code]
