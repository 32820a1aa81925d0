"""Microcode of the execution unit: operations on registers, and the descriptors of the tokens that a node sends.

A program is a list of `Instruction`s in single assignment: each writes a register that no other one writes, and reads
registers written before.  Registers are numbered from 0 and hold a `ValueType` each, which the operation determines.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

Register = int
"""Number of a register."""


class ValueType(Enum):
    """What a 32-bit value means."""

    F32 = "f32"
    I32 = "i32"
    BOOL = "bool"


class Op(Enum):
    """An operation.  Operands are registers; what an `immediate` means is said where there is one."""

    CONST_F32 = "const.f32"  # immediate: float
    CONST_I32 = "const.i32"  # immediate: int
    CONST_BOOL = "const.bool"  # immediate: bool
    FIELD = "field"  # immediate: number of an index field of the node → i32, without the bias
    INPUT = "input"  # immediate: number of an input of the node → its type
    LDTAB = "ldtab"  # immediate: number of a table; operands: one index (i32) per dimension → the table's type

    ADD_F32 = "add.f32"
    SUB_F32 = "sub.f32"
    MUL_F32 = "mul.f32"
    DIV_F32 = "div.f32"
    NEG_F32 = "neg.f32"
    SQRT_F32 = "sqrt.f32"
    EXP_F32 = "exp.f32"
    LOG_F32 = "log.f32"
    SIN_F32 = "sin.f32"
    COS_F32 = "cos.f32"
    TAN_F32 = "tan.f32"
    TANH_F32 = "tanh.f32"
    ERF_F32 = "erf.f32"
    SIGMOID_F32 = "sigmoid.f32"
    ATAN2_F32 = "atan2.f32"
    POW_F32 = "pow.f32"
    ABS_F32 = "abs.f32"
    FLOOR_F32 = "floor.f32"
    MIN_F32 = "min.f32"
    MAX_F32 = "max.f32"

    ADD_I32 = "add.i32"
    SUB_I32 = "sub.i32"
    MUL_I32 = "mul.i32"
    FLOORDIV_I32 = "floordiv.i32"
    CEILDIV_I32 = "ceildiv.i32"
    MOD_I32 = "mod.i32"  # as MLIR's affine mod: the result has the sign of the divisor
    NEG_I32 = "neg.i32"
    ABS_I32 = "abs.i32"
    MIN_I32 = "min.i32"
    MAX_I32 = "max.i32"

    LT_F32 = "lt.f32"
    LE_F32 = "le.f32"
    GT_F32 = "gt.f32"
    GE_F32 = "ge.f32"
    EQ_F32 = "eq.f32"
    NE_F32 = "ne.f32"
    LT_I32 = "lt.i32"
    LE_I32 = "le.i32"
    GT_I32 = "gt.i32"
    GE_I32 = "ge.i32"
    EQ_I32 = "eq.i32"
    NE_I32 = "ne.i32"

    AND_BOOL = "and.bool"
    OR_BOOL = "or.bool"
    XOR_BOOL = "xor.bool"
    NOT_BOOL = "not.bool"
    SELECT = "select"  # operands: bool, value if true, value if false

    I32_TO_F32 = "i32.to.f32"  # rounds to nearest, ties to even
    F32_TO_I32 = "f32.to.i32"  # towards zero; a NaN or a value out of range is an error
    BOOL_TO_I32 = "bool.to.i32"
    BOOL_TO_F32 = "bool.to.f32"


@dataclass(frozen=True)
class Instruction:
    """`result` := `op` of `operands`; `immediate` as the operation says."""

    result: Register
    op: Op
    operands: tuple[Register, ...] = ()
    immediate: float | int | bool | None = None


@dataclass(frozen=True)
class Constant:
    """A multiplicity known to the compiler, at least 1."""

    value: int


@dataclass(frozen=True)
class FromRegister:
    """A multiplicity computed by the program (i32)."""

    register: Register


@dataclass(frozen=True)
class Unbounded:
    """`##`: never counted."""


Multiplicity = Constant | FromRegister | Unbounded


@dataclass(frozen=True)
class ToNode:
    """A token's place: number of the node in the image and of the input in the node."""

    node: int
    input: int


@dataclass(frozen=True)
class ToHost:
    """A token that leaves the machine: number of the host output in the image."""

    output: int


@dataclass(frozen=True)
class Loop:
    """One iterator of a `for`: `code` computes the registers `lower` and `upper` (i32, both ends included) and may use
    the iterators outside of this one; then `iterator` takes each value.
    """

    iterator: Register
    lower: Register
    upper: Register
    code: tuple[Instruction, ...] = ()


@dataclass(frozen=True)
class Send:
    """One arrow.  It is run in this order:

    1. if the bool `guard` (a register of the body) is false, nothing is sent;
    2. for each point of the nest `loops`, outermost first:
    3. `condition_code` is run; if the bool `predicate` is false, this point sends nothing;
    4. `code` is run; a token goes to `target` with `value`, `multiplicity`, and `index`: for each field of the target
       a register (i32), or None for `*`.

    Code of one step may use the registers of the earlier ones; the registers of a point are gone at the next point.
    `present`: the token is no summand; it says that an open gather exists, and its value without summands.
    """

    target: ToNode | ToHost
    value: Register
    index: tuple[Register | None, ...]
    multiplicity: Multiplicity = Constant(1)
    guard: Register | None = None
    loops: tuple[Loop, ...] = ()
    condition_code: tuple[Instruction, ...] = ()
    predicate: Register | None = None
    code: tuple[Instruction, ...] = ()
    present: bool = False
