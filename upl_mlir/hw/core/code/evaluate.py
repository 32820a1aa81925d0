"""Runs the sequences of `functions.py` on whole arrays, with the bits that the core's units give.

NumPy's `+ - * /` on binary32 round as the units do; NaNs are made canonical after every operation. The fused
multiply-add is exact: the product of two binary32 is a binary64, the sum is rounded to odd in binary64, which rounds to
the right binary32 (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from upl_mlir.hw.core.alu import Code
from upl_mlir.hw.core.code.functions import NAN, Bits, lines_of
from upl_mlir.hw.microcode import Op

Words = NDArray[np.uint32]
Reals = NDArray[np.float32]


def evaluate(op: Op, *arguments: Reals) -> Reals:
    """A function of binary32 arrays, bit for bit as the core computes it."""
    values: list[Words] = [_words(a) for a in arguments]

    def value(operand: int | Bits | None) -> Words:
        if operand is None:
            return values[0]  # not looked at
        return np.full_like(values[0], operand.bits) if isinstance(operand, Bits) else values[operand]

    with np.errstate(all="ignore"):
        for line in lines_of(op):
            values.append(_OPERATIONS[line.code](value(line.a), value(line.b), value(line.c)))
    return values[-1].view(np.float32)


def fma(a: Reals, b: Reals, c: Reals) -> Reals:
    """a * b + c, rounded once to binary32."""
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    # Rounded to odd: where something was lost and the last bit is 0, one step towards what was lost.
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    move = even & (error != 0) & np.isfinite(error)
    odd = np.where(move, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)
    return odd.astype(np.float32)


def _words(a: Reals) -> Words:
    """Bits, every NaN the canonical one."""
    a = np.ascontiguousarray(a, np.float32)
    return np.where(np.isnan(a), np.uint32(NAN), a.view(np.uint32))


def _f(a: Words) -> Reals:
    return a.view(np.float32)


def _i(a: Words) -> NDArray[np.int64]:
    return a.view(np.int32).astype(np.int64)


def _integer(a: NDArray[np.int64]) -> Words:
    assert bool(np.all((a >= -(1 << 31)) & (a < 1 << 31))), "a sequence overflows an integer"
    return a.astype(np.int32).view(np.uint32)


def _least(a: Words, b: Words) -> Words:
    """The unit's minimum: a NaN wins, -0 is less than +0."""
    x, y = _f(a), _f(b)
    first = (x < y) | ((x == y) & np.signbit(x))
    return np.where(np.isnan(x) | np.isnan(y), np.uint32(NAN), np.where(first, a, b))


def _greatest(a: Words, b: Words) -> Words:
    x, y = _f(a), _f(b)
    first = (x > y) | ((x == y) & ~np.signbit(x))
    return np.where(np.isnan(x) | np.isnan(y), np.uint32(NAN), np.where(first, a, b))


_OPERATIONS: dict[Code, Callable[[Words, Words, Words], Words]] = {
    Code.MOVE: lambda a, b, c: b,
    Code.ADD_F32: lambda a, b, c: _words(_f(a) + _f(b)),
    Code.SUB_F32: lambda a, b, c: _words(_f(a) - _f(b)),
    Code.MUL_F32: lambda a, b, c: _words(_f(a) * _f(b)),
    Code.DIV_F32: lambda a, b, c: _words(_f(a) / _f(b)),
    Code.FMA_F32: lambda a, b, c: _words(fma(_f(a), _f(b), _f(c))),
    Code.FMC_F32: lambda a, b, c: _words(fma(_f(a), _f(c), _f(b))),
    Code.ABS_F32: lambda a, b, c: _words(np.abs(_f(a))),
    Code.FLOOR_F32: lambda a, b, c: _words(np.floor(_f(a))),
    Code.MIN_F32: lambda a, b, c: _least(a, b),
    Code.MAX_F32: lambda a, b, c: _greatest(a, b),
    Code.LT_F32: lambda a, b, c: (_f(a) < _f(b)).astype(np.uint32),
    Code.LE_F32: lambda a, b, c: (_f(a) <= _f(b)).astype(np.uint32),
    Code.EQ_F32: lambda a, b, c: (_f(a) == _f(b)).astype(np.uint32),
    Code.NE_F32: lambda a, b, c: (_f(a) != _f(b)).astype(np.uint32),
    Code.ADD_I32: lambda a, b, c: _integer(_i(a) + _i(b)),
    Code.SUB_I32: lambda a, b, c: _integer(_i(a) - _i(b)),
    Code.SHL_I32: lambda a, b, c: a << (b & np.uint32(31)),
    Code.SHR_I32: lambda a, b, c: (a.view(np.int32) >> (b & np.uint32(31)).view(np.int32)).view(np.uint32),
    Code.AND_BOOL: lambda a, b, c: a & b,
    Code.OR_BOOL: lambda a, b, c: a | b,
    Code.XOR_BOOL: lambda a, b, c: a ^ b,
    Code.SELECT: lambda a, b, c: np.where(a & np.uint32(1), b, c),
    Code.I32_TO_F32: lambda a, b, c: _i(a).astype(np.float32).view(np.uint32),
}
