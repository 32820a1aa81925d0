"""Code for each outcome of a comparison: the same tokens as the whole code, for every index; and what it saves."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.engines.rtl.engine import RtlEngine
from upl_mlir.hw.core.code.encode_node import compile_node, compile_outcomes
from upl_mlir.hw.core.code.index_values import FieldGuard
from upl_mlir.hw.core.code.outcomes import comparisons, given
from upl_mlir.hw.core.layouts import Guard
from upl_mlir.hw.execute import run_activation
from upl_mlir.hw.image import HostOutput, Input, Node, ProgramImage, layout_fields
from upl_mlir.hw.microcode import FromRegister, Instruction, Loop, Op, Send, ToHost, ValueType

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
UNBOUNDED = 65535
HOLDS: dict[Guard, Callable[[int, int], bool]] = {
    Guard.EQUAL: operator.eq, Guard.UNEQUAL: operator.ne, Guard.LESS: operator.lt, Guard.NOT_LESS: operator.ge,
}  # fmt: skip


def step(result: int, op: Op, *operands: int, immediate: float | None = None) -> Instruction:
    return Instruction(result, op, operands, immediate)


def everything() -> ProgramImage:
    """A node <n, m> with guards, predicates in loops, selections of values, bools and multiplicities that depend on n."""
    body = (
        step(0, Op.INPUT, immediate=0), step(1, Op.FIELD, immediate=0), step(2, Op.FIELD, immediate=1),
        step(3, Op.CONST_I32, immediate=2), step(4, Op.LT_I32, 1, 3), step(5, Op.EQ_I32, 1, 3), step(6, Op.GE_I32, 2, 3),
        step(7, Op.NOT_BOOL, 4), step(8, Op.AND_BOOL, 4, 6), step(9, Op.OR_BOOL, 6, 7), step(10, Op.MUL_F32, 0, 0),
        step(11, Op.SELECT, 4, 10, 0), step(12, Op.SELECT, 7, 6, 5), step(13, Op.SELECT, 12, 11, 0),
        step(14, Op.BOOL_TO_I32, 8), step(15, Op.BOOL_TO_F32, 9), step(16, Op.CONST_I32, immediate=1),
        step(17, Op.SELECT, 5, 3, 16), step(18, Op.I32_TO_F32, 14),
    )  # fmt: skip
    loop = Send(
        ToHost(2), value=21, index=(1, 19), guard=9, loops=(Loop(19, 16, 17),),
        condition_code=(step(20, Op.OR_BOOL, 5, 4),), predicate=20,
        code=(step(21, Op.SELECT, 4, 13, 15),),
    )  # fmt: skip
    sends = (
        Send(ToHost(0), value=13, index=(1, 2), guard=4, multiplicity=FromRegister(17)),
        Send(ToHost(1), value=15, index=(17, 2), guard=7), loop,
        Send(ToHost(3), value=18, index=(1, 2), guard=12), Send(ToHost(4), value=11, index=(2, 1), guard=8),
    )  # fmt: skip
    node = Node("N", layout_fields([("n", -1, 6), ("m", 0, 3)]), (Input("a", ValueType.F32),), body, sends)
    outputs = tuple(HostOutput(f"Y{n}", ("n", "m"), ValueType.F32) for n in range(5))
    return ProgramImage("everything", (node,), outputs)


def test_both_outcomes_send_what_the_node_sends() -> None:
    image = everything()
    (node,) = image.nodes
    found = comparisons(node)
    assert {guard.number for guard in found} == {0, 1} and len(found) == 3
    sent = 0
    for guard in found:
        field = node.fields[guard.number]
        for n in range(-1, 7):
            for m in range(4):
                value = (n, m)[guard.number] - field.bias
                holds = any(low <= value <= high for low, high in guard.runs(holds=True))
                assert holds != any(low <= value <= high for low, high in guard.runs(holds=False))
                whole = run_activation(image, node, (n, m), [np.float32(1.5)])
                assert run_activation(image, given(node, guard, holds=holds), (n, m), [np.float32(1.5)]) == whole
                sent += len(whole)
    assert sent > 150


@pytest.mark.parametrize("relation", list(HOLDS))
def test_what_follows_from_an_outcome(relation: Guard) -> None:
    """An outcome is said to follow exactly if all values agree on it; 8 values of the field stand for any number."""
    for known_relation, is_known in HOLDS.items():
        for c in range(4):
            for k in range(4):
                one, known = FieldGuard(relation, 0, c), FieldGuard(known_relation, 0, k)
                for outcome in (True, False):
                    seen = {HOLDS[relation](v, c) for v in range(8) if is_known(v, k) == outcome}
                    if seen:
                        assert one.follows(known, holds=outcome) == (seen.pop() if len(seen) == 1 else None)
    assert FieldGuard(relation, 0, 1).follows(FieldGuard(relation, 1, 1), holds=True) is None


def test_the_adjoint_of_the_first_layer_is_one_instruction() -> None:
    """Only later layers hand a derivative on, so the first one need not compute it."""
    module = upl.load(EXAMPLES / "iris_batch.upl", D=2).expanded().infer_domains().module
    image = RtlEngine(module, {}).image
    node = image.nodes[image.node("DLink")]
    whole = compile_node(node, UNBOUNDED)
    outcomes = compile_outcomes(node, UNBOUNDED, whole)
    assert outcomes is not None
    assert sorted(len(code.steps) for code in outcomes.codes) == [1, 2]
    assert sorted(code.descriptors for code in outcomes.codes) == [1, 2]
    plain = image.nodes[image.node("Sum")]
    assert compile_outcomes(plain, UNBOUNDED, compile_node(plain, UNBOUNDED)) is None
