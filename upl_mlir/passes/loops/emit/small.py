# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""Numbers of small types (docs/numbers.md) as operations on f64: what `numbers/rounding.py` computes, for its reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import f64, i64
from xdsl.ir import Operation, SSAValue

from upl_mlir.numbers.formats import FixedFormat, FloatFormat, Format
from upl_mlir.passes.loops.emit.code import Code

_CHOICES = (
    arith.MinimumfOp, arith.MaximumfOp, arith.MinnumfOp, arith.MaxnumfOp, arith.SelectOp,
)  # fmt: skip
_EXACT = (
    *_CHOICES, arith.NegfOp, math.AbsFOp, math.CopySignOp, math.FloorOp, math.CeilOp, math.TruncOp, math.RoundOp,
    math.RoundEvenOp,
)  # fmt: skip
"""Operations whose f64 result is a number of the operands' type: the choices are of every type, all of f16 and bf16."""
KEPT = 52
"""Bits behind the point of an f64's significand."""


class Small:
    """Writes arithmetic of a small type."""

    def __init__(self, code: Code, f: Format):
        self.code, self.format = code, f

    def apply(self, op: Operation, args: Sequence[SSAValue]) -> SSAValue:
        """An operation on reals whose result is of the type."""
        f, wide = self.format, isinstance(self.format, FixedFormat) and self.format.wide
        match op:
            case arith.MulfOp():
                return self.product(args[0], args[1])
            case arith.DivfOp() if wide:
                return self._quotient(args[0], args[1])
            case math.SqrtOp() if wide:
                return self._root(args[0])
            case math.PowFOp() | math.FPowIOp():
                return self._power(op, args)
            case arith.SIToFPOp():
                return self.rounded(self._from_integer(self._odd(args[0])))
            case _:
                pass
        made = type(op).create(operands=list(args), result_types=[f64], properties=dict(op.properties))
        value = self.code.add(made)
        exact = _EXACT if isinstance(f, FloatFormat) else _CHOICES
        return value if isinstance(op, exact) else self.rounded(value)

    def rounded(self, x: SSAValue) -> SSAValue:
        """The nearest number of the type to an f64, of two the even one."""
        return self._fixed(x) if isinstance(self.format, FixedFormat) else self._float(x, self.format)

    # -- pieces ---------------------------------------------------------------------------------------------------------
    def product(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """a * b."""
        if isinstance(self.format, FixedFormat) and self.format.wide:
            return self._product(a, b)
        return self.rounded(self._real(arith.MulfOp, a, b))

    def _from_integer(self, n: SSAValue) -> SSAValue:
        return self.code.add(arith.SIToFPOp(n, f64))

    def _to_integer(self, x: SSAValue) -> SSAValue:
        return self.code.add(arith.FPToSIOp(x, i64))

    def _real(self, make: Callable[[SSAValue, SSAValue], Operation], a: SSAValue, b: SSAValue | float) -> SSAValue:
        return self.code.add(make(a, b if isinstance(b, SSAValue) else self.code.constant(b, f64)))

    def _whole(self, make: Callable[[SSAValue, SSAValue], Operation], a: SSAValue, b: SSAValue | int) -> SSAValue:
        return self.code.add(make(a, b if isinstance(b, SSAValue) else self.code.constant(b, i64)))

    def _where(self, condition: SSAValue, yes: SSAValue | float, no: SSAValue) -> SSAValue:
        taken = yes if isinstance(yes, SSAValue) else self.code.constant(yes, no.type)
        return self.code.add(arith.SelectOp(condition, taken, no))

    def _test(self, a: SSAValue, predicate: str, b: SSAValue | float) -> SSAValue:
        other = b if isinstance(b, SSAValue) else self.code.constant(b, f64)
        return self.code.add(arith.CmpfOp(a, other, predicate))

    def _tests(self, a: SSAValue, predicate: str, b: SSAValue | int) -> SSAValue:
        other = b if isinstance(b, SSAValue) else self.code.constant(b, i64)
        return self.code.add(arith.CmpiOp(a, other, predicate))

    # -- f16, bf16 ------------------------------------------------------------------------------------------------------
    def _float(self, x: SSAValue, f: FloatFormat) -> SSAValue:
        """A normal result by its bits, where a carry goes into the exponent; a subnormal one by a sum that leaves no place
        for what is dropped."""
        drop = KEPT + 1 - f.precision
        bits = self.code.add(arith.BitcastOp(x, i64))
        odd = self._whole(arith.AndIOp, self._whole(arith.ShRSIOp, bits, drop), 1)
        up = self._whole(arith.AddiOp, self._whole(arith.AddiOp, bits, odd), (1 << drop - 1) - 1)
        normal = self.code.add(arith.BitcastOp(self._whole(arith.AndIOp, up, -(1 << drop)), f64))
        size = self.code.add(math.AbsFOp(x))
        infinite = self.code.add(math.CopySignOp(self.code.constant(float("inf"), f64), x))
        normal = self._where(self._test(self.code.add(math.AbsFOp(normal)), "ogt", f.greatest), infinite, normal)
        shift = 1.5 * 2.0 ** (KEPT + f.least_place)
        tiny = self._real(arith.SubfOp, self._real(arith.AddfOp, x, shift), shift)
        tiny = self.code.add(math.CopySignOp(tiny, x))
        least = 2.0 ** (1 - f.greatest_exponent)
        number = self._where(self._test(size, "olt", least), tiny, normal)
        return self._where(self._test(x, "uno", x), x, number)

    # -- fixed point ----------------------------------------------------------------------------------------------------
    @property
    def _q(self) -> FixedFormat:
        assert isinstance(self.format, FixedFormat)
        return self.format

    def _fixed(self, x: SSAValue) -> SSAValue:
        """Steps rounded and held in range; what is added last makes 0 of -0."""
        f = self._q
        steps = self.code.add(math.RoundEvenOp(self._real(arith.MulfOp, x, float(f.scale))))
        steps = self._where(self._test(steps, "oge", float(f.greatest_step)), float(f.greatest_step), steps)
        steps = self._where(self._test(steps, "ole", float(f.least_step)), float(f.least_step), steps)
        steps = self._where(self._test(steps, "uno", steps), 0.0, steps)
        return self._real(arith.AddfOp, self._real(arith.MulfOp, steps, 1.0 / f.scale), 0.0)

    def _steps(self, x: SSAValue) -> SSAValue:
        return self._to_integer(self._real(arith.MulfOp, x, float(self._q.scale)))

    def _held(self, steps: SSAValue) -> SSAValue:
        """The number of so many steps, held in range."""
        f = self._q
        steps = self._where(self._tests(steps, "sgt", f.greatest_step), f.greatest_step, steps)
        steps = self._where(self._tests(steps, "slt", f.least_step), f.least_step, steps)
        return self._real(arith.MulfOp, self._from_integer(steps), 1.0 / f.scale)

    def _product(self, a: SSAValue, b: SSAValue) -> SSAValue:
        f = self._q
        product = self._whole(arith.MuliOp, self._steps(a), self._steps(b))
        if f.fraction:
            odd = self._whole(arith.AndIOp, self._whole(arith.ShRSIOp, product, f.fraction), 1)
            up = self._whole(arith.AddiOp, self._whole(arith.AddiOp, product, odd), f.scale // 2 - 1)
            product = self._whole(arith.ShRSIOp, up, f.fraction)
        return self._held(product)

    def _quotient(self, a: SSAValue, b: SSAValue) -> SSAValue:
        code = self.code
        num, den = self._whole(arith.MuliOp, self._steps(a), self._q.scale), self._steps(b)
        none, below = self._tests(den, "eq", 0), self._tests(den, "slt", 0)
        den = self._where(none, 1, den)
        zero = code.constant(0, i64)
        num = self._where(below, code.add(arith.SubiOp(zero, num)), num)
        den = self._where(below, code.add(arith.SubiOp(zero, den)), den)
        q = self._whole(arith.FloorDivSIOp, num, den)
        rest = self._whole(arith.MuliOp, self._whole(arith.SubiOp, num, self._whole(arith.MuliOp, q, den)), 2)
        tie = self._whole(arith.AndIOp, self._tests(rest, "eq", den), self._tests(self._whole(arith.AndIOp, q, 1), "eq", 1))
        up = self._whole(arith.OrIOp, self._tests(rest, "sgt", den), tie)
        number = self._held(self._where(up, self._whole(arith.AddiOp, q, 1), q))
        return self._where(none, self._fixed(self._real(arith.DivfOp, a, b)), number)

    def _root(self, a: SSAValue) -> SSAValue:
        """k is the nearest integer to the root of m if k*k - k < m <= k*k + k; the f64 root is off by 1 at most."""
        square = self._whole(arith.MuliOp, self._steps(a), self._q.scale)
        square = self._where(self._tests(square, "slt", 0), 0, square)
        k = self._to_integer(self.code.add(math.RoundEvenOp(self.code.add(math.SqrtOp(self._from_integer(square))))))
        k2 = self._whole(arith.MuliOp, k, k)
        more = self._tests(square, "sgt", self._whole(arith.AddiOp, k2, k))
        less = self._tests(square, "sle", self._whole(arith.SubiOp, k2, k))
        found = self._where(more, self._whole(arith.AddiOp, k, 1), self._where(less, self._whole(arith.SubiOp, k, 1), k))
        return self._held(self._where(self._tests(square, "eq", 0), 0, found))

    # -- powers and integers --------------------------------------------------------------------------------------------
    def _power(self, op: Operation, args: Sequence[SSAValue]) -> SSAValue:
        """The f64 power rounded; the product for a square."""
        square = self.product(args[0], args[0])
        known = args[1].owner
        if isinstance(known, arith.ConstantOp) and known.value.value.data == 2:  # pyright: ignore
            return square
        made = type(op).create(operands=list(args), result_types=[f64], properties=dict(op.properties))
        power = self.rounded(self.code.add(made))
        two = self._tests(args[1], "eq", 2) if args[1].type == i64 else self._test(args[1], "oeq", 2.0)
        return self._where(two, square, power)

    def _odd(self, n: SSAValue) -> SSAValue:
        """An integer cut to 53 bits, so that rounding it again is rounding once."""
        if n.type != i64:
            return n
        low = self._whole(arith.AndIOp, n, 0x7FF)
        sticky = self._where(self._tests(low, "ne", 0), 0x400, self.code.constant(0, i64))
        cut = self._whole(arith.OrIOp, self._whole(arith.AndIOp, n, ~0x7FF), sticky)
        inside = self._whole(arith.AndIOp, self._tests(n, "sge", -(1 << 53)), self._tests(n, "sle", 1 << 53))
        return self._where(inside, n, cut)

