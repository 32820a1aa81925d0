"""The execution unit's behaviour: runs a node's microcode on one activation and gives the tokens it sends.

Reals are binary32: `+ - * /`, `sqrt`, comparisons and conversions are exactly IEEE's, with round to nearest even and
without traps; the other functions are the sequences of instructions that the core runs for them (`core/code/functions.py`).
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# NumPy's scalar types are generic in ways that strict checking cannot follow.

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from upl_mlir.diagnostics import UplError, error
from upl_mlir.hw import microcode
from upl_mlir.hw.core.code.evaluate import evaluate
from upl_mlir.hw.core.code.functions import FUNCTIONS
from upl_mlir.hw.image import Node, ProgramImage, Table
from upl_mlir.hw.microcode import Op, ValueType

Scalar = np.float32 | int | bool
"""What a register holds: an f32, an i32 or a bool."""

_I32_MIN, _I32_MAX = -(1 << 31), (1 << 31) - 1
_CANONICAL_NAN = 0x7FC00000
"""The one NaN, as bits of binary32, that the units of the machine make."""


@dataclass(frozen=True)
class Sent:
    """A token that the execution unit sends; `multiplicity` None is unbounded, None in `index` is `*`; `present`: as in
    `microcode.Send`."""

    target: microcode.ToNode | microcode.ToHost
    index: tuple[int | None, ...]
    value: Scalar
    multiplicity: int | None
    present: bool = False


def to_bits(value: Scalar | float, kind: ValueType) -> int:
    """A value as the 32 bits that travel; every NaN becomes the canonical one."""
    if kind is ValueType.F32:
        with np.errstate(over="ignore"):
            real = np.float32(value)
        return _CANONICAL_NAN if np.isnan(real) else int(real.view(np.uint32))
    return int(value) & 0xFFFFFFFF


def is_value(value: object, kind: ValueType) -> bool:
    """Whether a value from outside may become one of the type: any number an f32, never a real an i32."""
    if isinstance(value, (bool, np.bool_)):
        return True
    if isinstance(value, (int, np.integer)):
        low, high = {ValueType.BOOL: (0, 1), ValueType.I32: (_I32_MIN, _I32_MAX)}.get(kind, (-(1 << 127), 1 << 127))
        return low <= int(value) <= high
    return kind is ValueType.F32 and isinstance(value, (float, np.floating))


def from_bits(bits: int, kind: ValueType) -> Scalar:
    """The value that 32 bits mean."""
    if kind is ValueType.F32:
        return np.uint32(bits).view(np.float32)
    if kind is ValueType.BOOL:
        return bool(bits)
    return bits - (1 << 32) if bits >> 31 else bits


def run_activation(image: ProgramImage, node: Node, index: Sequence[int], values: Sequence[Scalar]) -> list[Sent]:
    """Run a node's program for the activation at `index` with one value per input; the tokens in order of sending.

    Raises `UplError` UPL1706: integer overflow or division by 0, a real that no integer can hold, an index outside of
    a constant array, a multiplicity below 1.
    """
    run = _Run(image, node, tuple(index), tuple(values))
    with np.errstate(all="ignore"):
        registers: dict[int, Scalar] = {}
        run.code(node.body, registers)
        return [token for send in node.sends for token in run.send(send, registers)]


@dataclass(frozen=True)
class _Run:
    image: ProgramImage
    node: Node
    index: tuple[int, ...]
    values: tuple[Scalar, ...]

    def fail(self, what: str) -> UplError:
        place = ",".join(map(str, self.index))
        return error("UPL1706", f"{self.node.name}<{place}>: {what}")

    def code(self, code: Sequence[microcode.Instruction], registers: dict[int, Scalar]) -> None:
        """Run instructions in order; results go into `registers`."""
        for step in code:
            registers[step.result] = self.step(step, [registers[r] for r in step.operands])

    def step(self, step: microcode.Instruction, operands: list[Scalar]) -> Scalar:
        """The result of one instruction."""
        op, immediate = step.op, step.immediate
        function = _FUNCTIONS.get(op)
        if function is not None:
            return function(*operands)
        integer = _INTEGER.get(op)
        if integer is not None:
            return self.integer(integer, [int(v) for v in operands])
        assert immediate is not None or op is Op.F32_TO_I32
        match op:
            case Op.CONST_F32:
                return np.float32(immediate)
            case Op.CONST_I32:
                return int(immediate or 0)
            case Op.CONST_BOOL:
                return bool(immediate)
            case Op.FIELD:
                return self.index[int(immediate or 0)]
            case Op.INPUT:
                return self.values[int(immediate or 0)]
            case Op.LDTAB:
                return self.load(self.image.tables[int(immediate or 0)], [int(v) for v in operands])
            case Op.F32_TO_I32:
                return self.to_integer(float(operands[0]))
            case _:
                raise NotImplementedError(op)

    def integer(self, function: Callable[..., int], operands: list[int]) -> int:
        """An operation on integers, which must not overflow."""
        try:
            result = function(*operands)
        except ZeroDivisionError:
            raise self.fail("integer division by 0") from None
        if not _I32_MIN <= result <= _I32_MAX:
            raise self.fail(f"{result} overflows a 32-bit integer")
        return result

    def to_integer(self, real: float) -> int:
        """A real, rounded towards zero."""
        if math.isnan(real) or not _I32_MIN - 1 < real < _I32_MAX + 1:
            raise self.fail(f"{real} has no 32-bit integer")
        return int(real)

    def load(self, table: Table, index: list[int]) -> Scalar:
        """An element of a constant array."""
        place = 0
        for i, low, extent in zip(index, table.lower, table.shape, strict=True):
            if not low <= i < low + extent:
                raise self.fail(f"{table.name}{index} is outside of the array")
            place = place * extent + i - low
        value = table.values[place]
        match table.type:
            case ValueType.F32:
                return np.float32(value)
            case ValueType.I32:
                return int(value)
            case ValueType.BOOL:
                return bool(value)

    def send(self, send: microcode.Send, body: Mapping[int, Scalar]) -> Iterator[Sent]:
        """The tokens of one send descriptor."""
        if send.guard is not None and not body[send.guard]:
            return
        for registers in self.points(send.loops, dict(body)):
            self.code(send.condition_code, registers)
            if send.predicate is not None and not registers[send.predicate]:
                continue
            self.code(send.code, registers)
            index = tuple(None if r is None else int(registers[r]) for r in send.index)
            times = self.multiplicity(send.multiplicity, registers)
            yield Sent(send.target, index, registers[send.value], times, send.present)

    def points(self, loops: Sequence[microcode.Loop], registers: dict[int, Scalar]) -> Iterator[dict[int, Scalar]]:
        """The registers at every point of a nest of loops."""
        if not loops:
            yield dict(registers)
            return
        first, rest = loops[0], loops[1:]
        self.code(first.code, registers)
        for point in range(int(registers[first.lower]), int(registers[first.upper]) + 1):
            yield from self.points(rest, {**registers, first.iterator: point})

    def multiplicity(self, multiplicity: microcode.Multiplicity, registers: Mapping[int, Scalar]) -> int | None:
        """How often a token is used; for a summand, how many summands there are."""
        match multiplicity:
            case microcode.Constant(value):
                return value
            case microcode.FromRegister(register):
                value = int(registers[register])
                if value < 1:
                    raise self.fail(f"sends a token with multiplicity {value}, which must be 1 or more")
                return value
            case _:
                return None


def _minimum(a: np.float32, b: np.float32) -> np.float32:
    """IEEE's minimum: a NaN wins, and -0 is less than +0."""
    if np.isnan(a) or np.isnan(b):
        return np.float32(np.nan)
    return a if a < b or (a == b and np.signbit(a)) else b


def _maximum(a: np.float32, b: np.float32) -> np.float32:
    return -_minimum(-a, -b)


def _sequence(op: Op) -> Callable[..., Scalar]:
    """A function as the core computes it."""
    return lambda *operands: evaluate(op, *(np.array([v], np.float32) for v in operands))[0]


_FUNCTIONS: Mapping[Op, Callable[..., Scalar]] = {
    **{op: _sequence(op) for op in FUNCTIONS},
    Op.ADD_F32: lambda a, b: a + b,
    Op.SUB_F32: lambda a, b: a - b,
    Op.MUL_F32: lambda a, b: a * b,
    Op.DIV_F32: lambda a, b: a / b,
    Op.NEG_F32: lambda a: -a,
    Op.SQRT_F32: np.sqrt,
    Op.ABS_F32: np.abs,
    Op.FLOOR_F32: np.floor,
    Op.MIN_F32: _minimum,
    Op.MAX_F32: _maximum,
    **{op: lambda a, b: bool(a < b) for op in (Op.LT_F32, Op.LT_I32)},
    **{op: lambda a, b: bool(a <= b) for op in (Op.LE_F32, Op.LE_I32)},
    **{op: lambda a, b: bool(a > b) for op in (Op.GT_F32, Op.GT_I32)},
    **{op: lambda a, b: bool(a >= b) for op in (Op.GE_F32, Op.GE_I32)},
    **{op: lambda a, b: bool(a == b) for op in (Op.EQ_F32, Op.EQ_I32)},
    **{op: lambda a, b: bool(a != b) for op in (Op.NE_F32, Op.NE_I32)},
    Op.AND_BOOL: lambda a, b: a and b,
    Op.OR_BOOL: lambda a, b: a or b,
    Op.XOR_BOOL: lambda a, b: a != b,
    Op.NOT_BOOL: lambda a: not a,
    Op.SELECT: lambda c, a, b: a if c else b,
    Op.I32_TO_F32: np.float32,
    Op.BOOL_TO_I32: int,
    Op.BOOL_TO_F32: np.float32,
}


def _absolute(a: int) -> int:
    return abs(a)


_INTEGER: Mapping[Op, Callable[..., int]] = {  # of unbounded integers; the caller checks the range
    Op.ADD_I32: lambda a, b: a + b,
    Op.SUB_I32: lambda a, b: a - b,
    Op.MUL_I32: lambda a, b: a * b,
    Op.FLOORDIV_I32: lambda a, b: a // b,
    Op.CEILDIV_I32: lambda a, b: -(-a // b),
    Op.MOD_I32: lambda a, b: a % b,
    Op.NEG_I32: lambda a: -a,
    Op.ABS_I32: _absolute,
    Op.MIN_I32: min,
    Op.MAX_I32: max,
}

_OTHERS = (Op.CONST_F32, Op.CONST_I32, Op.CONST_BOOL, Op.FIELD, Op.INPUT, Op.LDTAB, Op.F32_TO_I32)
assert set(Op) == set(itertools.chain(_FUNCTIONS, _INTEGER, _OTHERS)), "an operation without a meaning"
