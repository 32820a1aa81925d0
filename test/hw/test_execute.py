"""The execution unit's arithmetic: IEEE's special cases, integers that must not overflow, errors with their place."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from upl_mlir.diagnostics import UplError
from upl_mlir.hw.execute import Scalar, from_bits, run_activation, to_bits
from upl_mlir.hw.image import HostOutput, Input, Node, ProgramImage, Table, layout_fields
from upl_mlir.hw.microcode import FromRegister, Instruction, Op, Send, ToHost, ValueType

F32, I32, BOOL = ValueType.F32, ValueType.I32, ValueType.BOOL
INF, NAN = math.inf, math.nan


def result(op: Op, *operands: float | int | bool, kind: ValueType = F32) -> Scalar:
    """What one operation makes of its operands."""
    const = {float: Op.CONST_F32, bool: Op.CONST_BOOL, int: Op.CONST_I32}
    body = [Instruction(n, const[type(v)], immediate=v) for n, v in enumerate(operands)]
    body.append(Instruction(len(body), op, tuple(range(len(operands)))))
    send = Send(ToHost(0), value=len(operands), index=())
    node = Node("N", layout_fields([("i", 0, 7)]), (Input("x", F32),), tuple(body), (send,))
    image = ProgramImage("p", (node,), (HostOutput("O", (), kind),))
    (token,) = run_activation(image, node, (3,), (np.float32(0),))
    return token.value


@pytest.mark.parametrize(
    ("op", "operands", "expected"),
    [
        (Op.DIV_F32, (1.0, 0.0), INF),
        (Op.DIV_F32, (-1.0, 0.0), -INF),
        (Op.DIV_F32, (0.0, 0.0), NAN),
        (Op.SUB_F32, (INF, INF), NAN),
        (Op.MUL_F32, (1e30, 1e30), INF),
        (Op.ADD_F32, (16777216.0, 1.0), 16777216.0),
        (Op.SQRT_F32, (-1.0,), NAN),
        (Op.LOG_F32, (0.0,), -INF),
        (Op.EXP_F32, (200.0,), INF),
        (Op.NEG_F32, (0.0,), -0.0),
        (Op.ABS_F32, (-2.5,), 2.5),
        (Op.FLOOR_F32, (-2.5,), -3.0),
        (Op.MIN_F32, (0.0, -0.0), -0.0),
        (Op.MAX_F32, (-0.0, 0.0), 0.0),
        (Op.MIN_F32, (1.0, NAN), NAN),
        (Op.MAX_F32, (1.0, 2.0), 2.0),
        (Op.POW_F32, (2.0, 10.0), 1024.0),
        (Op.ATAN2_F32, (0.0, -1.0), np.float32(math.pi)),
        (Op.ERF_F32, (0.5,), np.float32(math.erf(0.5))),
        (Op.SIGMOID_F32, (0.0,), 0.5),
        (Op.SIGMOID_F32, (-1000.0,), 0.0),
        (Op.TANH_F32, (100.0,), 1.0),
        (Op.I32_TO_F32, (16777217,), 16777216.0),
        (Op.BOOL_TO_F32, (True,), 1.0),
    ],
)
def test_reals(op: Op, operands: tuple[float, ...], expected: float) -> None:
    value = result(op, *operands)
    assert isinstance(value, np.float32)
    assert to_bits(value, F32) == to_bits(np.float32(expected), F32)


@pytest.mark.parametrize(
    ("op", "operands", "expected"),
    [
        (Op.FLOORDIV_I32, (-7, 2), -4),
        (Op.CEILDIV_I32, (-7, 2), -3),
        (Op.CEILDIV_I32, (7, 2), 4),
        (Op.MOD_I32, (-7, 3), 2),
        (Op.MIN_I32, (3, -4), -4),
        (Op.ABS_I32, (-4,), 4),
        (Op.NEG_I32, (4,), -4),
        (Op.F32_TO_I32, (-2.9,), -2),
        (Op.F32_TO_I32, (-2147483648.0,), -(2**31)),
        (Op.BOOL_TO_I32, (True,), 1),
        (Op.SELECT, (False, 1, 2), 2),
    ],
)
def test_integers(op: Op, operands: tuple[int, ...], expected: int) -> None:
    assert result(op, *operands, kind=I32) == expected


def test_comparisons_and_logic() -> None:
    for name, same in (("LT", False), ("LE", True), ("GT", False), ("GE", True), ("EQ", True), ("NE", False)):
        assert result(Op[f"{name}_F32"], 1.0, 1.0) is same
        assert result(Op[f"{name}_I32"], 1, 1) is same
        assert result(Op[f"{name}_F32"], NAN, 1.0) is (name == "NE")
        assert result(Op[f"{name}_I32"], -1, 1) is (name in ("LT", "LE", "NE"))
    for a, b in itertools.product([False, True], repeat=2):
        assert result(Op.AND_BOOL, a, b) is (a and b)
        assert result(Op.OR_BOOL, a, b) is (a or b)
        assert result(Op.XOR_BOOL, a, b) is (a != b)
        assert result(Op.NOT_BOOL, a) is (not a)


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (Op.ADD_I32, (2**31 - 1, 1), "2147483648 overflows a 32-bit integer"),
        (Op.MUL_I32, (65536, -65536), "overflows"),
        (Op.FLOORDIV_I32, (1, 0), "integer division by 0"),
        (Op.MOD_I32, (1, 0), "integer division by 0"),
        (Op.F32_TO_I32, (NAN,), "nan has no 32-bit integer"),
        (Op.F32_TO_I32, (2147483648.0,), "has no 32-bit integer"),
    ],
)
def test_arithmetic_errors_name_the_instance(op: Op, operands: tuple[int, ...], message: str) -> None:
    with pytest.raises(UplError) as caught:
        result(op, *operands)
    assert "error[UPL1706]: N<3>: " in str(caught.value)
    assert message in str(caught.value)


def test_tables_and_multiplicities() -> None:
    body = (
        Instruction(0, Op.FIELD, immediate=0),
        Instruction(1, Op.CONST_I32, immediate=1),
        Instruction(2, Op.LDTAB, (0, 1), immediate=0),
    )
    send = Send(ToHost(0), value=2, index=(0,), multiplicity=FromRegister(0))
    node = Node("N", layout_fields([("i", 0, 7)]), (Input("x", F32),), body, (send,))
    table = Table("T", F32, (-1, 0), (4, 2), (0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5))
    image = ProgramImage("p", (node,), (HostOutput("O", ("i",), F32),), (table,))
    (token,) = run_activation(image, node, (2,), (np.float32(0),))
    assert (token.index, token.value, token.multiplicity) == ((2,), 7.5, 2)
    with pytest.raises(UplError, match=r"N<3>: T\[3, 1\] is outside of the array"):
        run_activation(image, node, (3,), (np.float32(0),))
    with pytest.raises(UplError, match="N<0>: sends a token with multiplicity 0"):
        run_activation(image, node, (0,), (np.float32(0),))


def test_a_false_guard_evaluates_nothing_else() -> None:
    body = (
        Instruction(0, Op.FIELD, immediate=0),
        Instruction(1, Op.CONST_I32, immediate=0),
        Instruction(2, Op.GT_I32, (0, 1)),
    )
    # Without the guard the multiplicity at i = 0 would be an error, and so would the division.
    send = Send(
        ToHost(0),
        value=3,
        index=(0,),
        multiplicity=FromRegister(0),
        guard=2,
        code=(Instruction(3, Op.FLOORDIV_I32, (0, 0)),),
    )
    node = Node("N", layout_fields([("i", 0, 7)]), (Input("x", F32),), body, (send,))
    image = ProgramImage("p", (node,), (HostOutput("O", ("i",), I32),))
    assert [t.value for t in run_activation(image, node, (5,), (np.float32(0),))] == [1]
    assert run_activation(image, node, (0,), (np.float32(0),)) == []


@pytest.mark.parametrize(
    ("value", "kind", "bits"),
    [(np.float32(-0.0), F32, 0x80000000), (-1, I32, 0xFFFFFFFF), (True, BOOL, 1), (np.float32(1), F32, 0x3F800000)],
)
def test_bits(value: Scalar, kind: ValueType, bits: int) -> None:
    assert to_bits(value, kind) == bits
    assert from_bits(bits, kind) == value


def test_every_nan_is_the_canonical_one() -> None:
    assert to_bits(np.uint32(0xFFC12345).view(np.float32), F32) == 0x7FC00000
