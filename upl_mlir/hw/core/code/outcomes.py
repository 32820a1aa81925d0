"""Code for each outcome of a comparison of a node's index: what only the other outcome needs is neither computed nor sent.

Most conditions of programs compare a field with a constant (the last layer, the border of a grid). The table of entries
compares while the activation is taken, and the code begins where the outcome is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from upl_mlir.hw.core.code.index_values import FieldGuard, IndexValues
from upl_mlir.hw.image import Node
from upl_mlir.hw.microcode import FromRegister, Instruction, Op, Send

MOST_TRIED = 8
"""Comparisons of a node that are tried."""


def comparisons(node: Node) -> list[FieldGuard]:
    """The comparisons of fields with constants on which the code of a node depends, each once."""
    values = IndexValues(node)
    found = (values.field_guard(register) for register in values.definitions)
    return list(dict.fromkeys(guard for guard in found if guard is not None))[:MOST_TRIED]


def given(node: Node, guard: FieldGuard, *, holds: bool) -> Node:
    """The node for activations for which the outcome of a comparison is known: the same firings and tokens."""
    values = IndexValues(node)
    rest = _Rest()
    for register in values.definitions:
        other = values.field_guard(register)
        outcome = other.follows(guard, holds=holds) if other is not None else None
        if outcome is not None:
            rest.known[register] = outcome
    body = rest.code(node.body)
    sends = [new for send in node.sends for new in rest.send(send)]
    return replace(node, body=body, sends=tuple(sends))


@dataclass
class _Rest:
    """What remains of code where some bools are known."""

    known: dict[int, bool] = field(default_factory=dict[int, bool])
    same: dict[int, int] = field(default_factory=dict[int, int])
    """Registers that have the value of another one."""

    def _now(self, register: int) -> int:
        return self.same.get(register, register)

    def code(self, steps: Iterable[Instruction]) -> tuple[Instruction, ...]:
        """The instructions that remain."""
        out: list[Instruction] = []
        for step in steps:
            operands = tuple(self._now(r) for r in step.operands)
            step = replace(step, operands=operands)
            known = [self.known.get(r) for r in operands]
            if step.op is Op.NOT_BOOL and known[0] is not None:
                self.known[step.result] = not known[0]
            elif step.op is Op.SELECT and known[0] is not None:
                self._alias(step.result, operands[1 if known[0] else 2])
                continue
            elif step.op in (Op.AND_BOOL, Op.OR_BOOL) and known != [None, None]:
                decides = step.op is Op.OR_BOOL
                if decides in known:
                    self.known[step.result] = decides
                else:
                    self._alias(step.result, operands[0 if known[1] is not None else 1])
                    continue
            if step.result in self.known:
                step = Instruction(step.result, Op.CONST_BOOL, (), self.known[step.result])
            out.append(step)
        return tuple(out)

    def _alias(self, register: int, other: int) -> None:
        self.same[register] = other
        if other in self.known:
            self.known[register] = self.known[other]

    def send(self, send: Send) -> list[Send]:
        """The arrow as it remains, or nothing."""
        guard = None if send.guard is None else self._now(send.guard)
        outcome = None if guard is None else self.known.get(guard)
        if outcome is False:
            return []
        loops = tuple(
            replace(loop, code=self.code(loop.code), lower=self._now(loop.lower), upper=self._now(loop.upper))
            for loop in send.loops
        )
        condition = self.code(send.condition_code)
        predicate = None if send.predicate is None else self._now(send.predicate)
        inside = None if predicate is None else self.known.get(predicate)
        if inside is False:
            return []
        code = self.code(send.code)
        times = send.multiplicity
        return [
            replace(
                send,
                guard=None if outcome else guard,
                loops=loops,
                condition_code=() if inside else condition,
                predicate=None if inside else predicate,
                code=(*condition, *code) if inside else code,
                value=self._now(send.value),
                index=tuple(None if r is None else self._now(r) for r in send.index),
                multiplicity=FromRegister(self._now(times.register)) if isinstance(times, FromRegister) else times,
            )
        ]
