"""The arithmetic of the execution unit: what is done within a cycle, and the pipeline that all results leave by."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

import enum

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.inplace import f32_less, f32_nan
from upl_mlir.hw.core.layouts import Failure, Guard
from upl_mlir.hw.fp.model import BINARY32
from upl_mlir.hw.fp.parts import leading_zeros, round_normal


class Code(enum.IntEnum):
    """Operations, by the numbers that instructions hold; a, b, c are operands."""

    MOVE = 0  # b
    FIELD = 1  # a field of the index: `a` says where it begins, `b` how wide it is, the immediate is added
    LOAD = 2  # table at a: see `Execution`
    BRANCH = 3  # if not a: go to the immediate
    JUMP = 4  # go to the immediate
    SEND = 5  # the send descriptor of the immediate
    ADD_F32 = 8
    SUB_F32 = 9
    MUL_F32 = 10
    DIV_F32 = 11
    SQRT_F32 = 12
    FLOORDIV_I32 = 13
    CEILDIV_I32 = 14
    MOD_I32 = 15
    NEG_F32 = 16
    ABS_F32 = 17
    FLOOR_F32 = 18
    MIN_F32 = 19
    MAX_F32 = 20
    FMA_F32 = 21  # a * b + c, rounded once
    FMC_F32 = 22  # a * c + b, rounded once
    ADD_I32 = 24
    SUB_I32 = 25
    MUL_I32 = 26
    NEG_I32 = 27
    ABS_I32 = 28
    MIN_I32 = 29
    MAX_I32 = 30
    LT_F32 = 32
    LE_F32 = 33
    EQ_F32 = 34
    NE_F32 = 35
    LT_I32 = 36
    LE_I32 = 37
    EQ_I32 = 38
    NE_I32 = 39
    AND_BOOL = 40
    OR_BOOL = 41
    XOR_BOOL = 42
    NOT_BOOL = 43
    SELECT = 44  # b if a else c
    I32_TO_F32 = 45
    F32_TO_I32 = 46
    SHL_I32 = 47  # bits; the amount is b mod 32
    SHR_I32 = 48  # the sign comes after


ITERATIVE = (Code.DIV_F32, Code.SQRT_F32, Code.FLOORDIV_I32, Code.CEILDIV_I32, Code.MOD_I32)
"""Operations of the units that take one at a time."""


class Alu(wiring.Component):
    """code (in): the operation; a, b, c (in): operands; result, failure (out). Combinational; for `FIELD`, tag (in) is the
    activation's index, and `place`, `width`, `constant` (in) say which field."""

    def __init__(self, tag_bits: int):
        self.tag_bits = tag_bits
        super().__init__(
            {
                "code": In(Code),
                "a": In(32),
                "b": In(32),
                "c": In(32),
                "tag": In(tag_bits),
                "place": In(6),
                "width": In(6),
                "constant": In(32),
                "result": Out(32),
                "failure": Out(Failure),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Every operation that needs neither pipeline nor iteration."""
        m = Module()
        a, b = self.a, self.b
        sa, sb = a.as_signed(), b.as_signed()
        wide = Signal(signed(33))
        total, product = Signal(signed(33)), Signal(signed(64))
        m.d.comb += product.eq(sa * sb)
        unordered = f32_nan(a) | f32_nan(b)
        less, less_f, zeros = Signal(), Signal(), Signal()
        m.d.comb += [
            less.eq(sa < sb),
            less_f.eq(f32_less(a, b)),
            zeros.eq((a[:31] == 0) & (b[:31] == 0)),
        ]
        before = ~unordered & less_f & ~zeros
        same = ~unordered & ((a == b) | zeros)

        def integer(value: Value) -> None:
            m.d.comb += [wide.eq(value), self.result.eq(wide)]
            with m.If(wide[32] != wide[31]):
                m.d.comb += self.failure.eq(Failure.OVERFLOW)

        with m.Switch(self.code):
            with m.Case(Code.MOVE):
                m.d.comb += self.result.eq(b)
            with m.Case(Code.FIELD):
                m.d.comb += self.result.eq(field_of(self.tag, self.place, self.width) + self.constant)
            with m.Case(Code.NEG_F32):
                m.d.comb += self.result.eq(Mux(f32_nan(a), BINARY32.nan, a ^ BINARY32.sign))
            with m.Case(Code.ABS_F32):
                m.d.comb += self.result.eq(Mux(f32_nan(a), BINARY32.nan, a[:31]))
            with m.Case(Code.FLOOR_F32):
                m.d.comb += self.result.eq(self._floor(m))
            with m.Case(Code.MIN_F32):
                m.d.comb += self.result.eq(Mux(unordered, BINARY32.nan, Mux(less_f, a, b)))
            with m.Case(Code.MAX_F32):
                m.d.comb += self.result.eq(Mux(unordered, BINARY32.nan, Mux(less_f, b, a)))
            with m.Case(Code.ADD_I32):
                m.d.comb += total.eq(sa + sb)
                integer(total)
            with m.Case(Code.SUB_I32):
                m.d.comb += total.eq(sa - sb)
                integer(total)
            with m.Case(Code.NEG_I32):
                m.d.comb += total.eq(-sa)
                integer(total)
            with m.Case(Code.ABS_I32):
                m.d.comb += total.eq(Mux(a[-1], -sa, sa))
                integer(total)
            with m.Case(Code.MUL_I32):
                m.d.comb += self.result.eq(product)
                with m.If((product >> 31 != 0) & (product >> 31 != -1)):
                    m.d.comb += self.failure.eq(Failure.OVERFLOW)
            with m.Case(Code.MIN_I32):
                m.d.comb += self.result.eq(Mux(less, a, b))
            with m.Case(Code.MAX_I32):
                m.d.comb += self.result.eq(Mux(less, b, a))
            with m.Case(Code.LT_F32):
                m.d.comb += self.result.eq(before)
            with m.Case(Code.LE_F32):
                m.d.comb += self.result.eq(before | same)
            with m.Case(Code.EQ_F32):
                m.d.comb += self.result.eq(same)
            with m.Case(Code.NE_F32):
                m.d.comb += self.result.eq(~same)
            with m.Case(Code.LT_I32):
                m.d.comb += self.result.eq(less)
            with m.Case(Code.LE_I32):
                m.d.comb += self.result.eq(less | (a == b))
            with m.Case(Code.EQ_I32):
                m.d.comb += self.result.eq(a == b)
            with m.Case(Code.NE_I32):
                m.d.comb += self.result.eq(a != b)
            with m.Case(Code.AND_BOOL):
                m.d.comb += self.result.eq(a & b)
            with m.Case(Code.OR_BOOL):
                m.d.comb += self.result.eq(a | b)
            with m.Case(Code.XOR_BOOL):
                m.d.comb += self.result.eq(a ^ b)
            with m.Case(Code.NOT_BOOL):
                m.d.comb += self.result.eq(a ^ 1)
            with m.Case(Code.SELECT):
                m.d.comb += self.result.eq(Mux(a[0], b, self.c))
            with m.Case(Code.I32_TO_F32):
                m.d.comb += self.result.eq(self._to_real(m))
            with m.Case(Code.F32_TO_I32):
                self._to_integer(m)
            with m.Case(Code.SHL_I32):
                m.d.comb += self.result.eq((a << b[:5])[:32])
            with m.Case(Code.SHR_I32):
                m.d.comb += self.result.eq(sa >> b[:5])
        return m

    def _magnitude(self, m: Module) -> Value:
        """The whole part of |a| below 2**32, as an integer of 32 bits, by one shift."""
        whole = Signal(32, name="whole")
        exponent = self.a[23:31]
        significand = Cat(self.a[:23], Const(1, 1))
        out = Signal(64, name="whole_wide")
        m.d.comb += out.eq(significand << (exponent - 127)[:5])
        m.d.comb += whole.eq(Mux(exponent < 127, 0, out >> 23))
        return whole

    def _to_real(self, m: Module) -> Value:
        """a as an integer, rounded to binary32."""
        size = Signal(32, name="size")
        m.d.comb += size.eq(Mux(self.a[-1], -self.a.as_signed(), self.a))
        zeros = leading_zeros(m, size, "size_zeros")
        high, exponent = Signal(32, name="high"), Signal(signed(10), name="size_exponent")
        m.d.comb += [high.eq(size << zeros), exponent.eq(31 - zeros)]
        return Mux(size == 0, 0, round_normal(m, BINARY32, self.a[-1], exponent, high, "real"))

    def _to_integer(self, m: Module) -> None:
        """a as a real, cut off towards zero."""
        whole = self._magnitude(m)
        exponent, negative = self.a[23:31], self.a[-1]
        m.d.comb += self.result.eq(Mux(negative, -whole, whole))
        lowest = negative & (exponent == 127 + 31) & (self.a[:23] == 0)
        with m.If((exponent >= 127 + 31) & ~lowest):
            m.d.comb += self.failure.eq(Failure.CONVERSION)

    def _floor(self, m: Module) -> Value:
        """The greatest whole number not above a: mask away the fraction, one step down if that was negative."""
        exponent, negative = self.a[23:31], self.a[-1]
        mask = Signal(31, name="fraction")
        m.d.comb += mask.eq(Const((1 << 23) - 1, 23) >> (exponent - 127)[:5])
        cut, down = Signal(31, name="cut"), Signal(31, name="down")
        inexact = (self.a[:31] & mask) != 0
        m.d.comb += [cut.eq(self.a[:31] & ~mask), down.eq((self.a[:31] | mask) + 1)]
        big = exponent >= 127 + 23
        one = 0x3F800000
        below = Mux(negative & (self.a[:31] != 0), one | BINARY32.sign, Cat(Const(0, 31), negative))
        near = Cat(Mux(negative & inexact, down, cut), negative)
        return Mux(f32_nan(self.a), BINARY32.nan, Mux(big, self.a, Mux(exponent < 127, below, near)))


def field_of(tag: Value, place: Value, width: Value) -> Value:
    """The `width` bits of a tag from `place` on."""
    mask = (Const(1, 33) << width) - 1
    return (tag >> place) & mask[:33]


def compares(relation: Value, left: Value, right: Value) -> Value:
    """Whether the comparison that a `Guard` names holds between numbers without sign; those that are none always hold."""
    return Mux(
        relation == Guard.EQUAL, left == right,
        Mux(relation == Guard.UNEQUAL, left != right,
            Mux(relation == Guard.LESS, left < right, Mux(relation == Guard.NOT_LESS, left >= right, 1))),
    )  # fmt: skip
