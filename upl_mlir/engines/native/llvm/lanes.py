"""A builder of LLVM IR on one real or on a vector of them, so that a formula is written once for all widths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from upl_mlir.engines.native.llvm.text import Code, float_text


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: LLVM's names, and the constants that its bit patterns need.

    Adding `magic` (1.5 · 2**mantissa) to a small real rounds it to the nearest integer, which then stands in the low bits.
    """

    real: str
    integer: str
    suffix: str
    mantissa: int
    bias: int

    @property
    def magic(self) -> float:
        """The number whose unit in the last place is 1."""
        return 1.5 * 2.0**self.mantissa

    @property
    def magic_bits(self) -> int:
        """The bit pattern of `magic`."""
        return ((self.bias + self.mantissa) << self.mantissa) | (1 << (self.mantissa - 1))


F64 = Format("double", "i64", "f64", 52, 1023)
F32 = Format("float", "i32", "f32", 23, 127)
FORMATS = {"double": F64, "float": F32}


@dataclass
class Lanes:
    """Writes arithmetic on `width` numbers of a format at once (1: scalars); values are texts as in `Code`."""

    format: Format
    width: int = 1
    code: Code = field(default_factory=Code)

    @property
    def type(self) -> str:
        """The LLVM type of a value."""
        return self._wide(self.format.real)

    @property
    def int_type(self) -> str:
        """The LLVM type of as many integers of the same size."""
        return self._wide(self.format.integer)

    @property
    def suffix(self) -> str:
        """How the names of intrinsics end."""
        return self.format.suffix if self.width == 1 else f"v{self.width}{self.format.suffix}"

    def _wide(self, scalar: str) -> str:
        return scalar if self.width == 1 else f"<{self.width} x {scalar}>"

    def real(self, x: float | str) -> str:
        """A literal; texts pass."""
        if isinstance(x, str):
            return x
        text = float_text(x, self.format.real)
        return text if self.width == 1 else f"splat ({self.format.real} {text})"

    def whole(self, n: int | str) -> str:
        """An integer literal; texts pass."""
        if isinstance(n, str):
            return n
        return str(n) if self.width == 1 else f"splat ({self.format.integer} {n})"

    # -- reals ---------------------------------------------------------------------------------------------------
    def _binary(self, name: str, a: float | str, b: float | str) -> str:
        return self.code.let(f"{name} {self.type} {self.real(a)}, {self.real(b)}")

    def add(self, a: float | str, b: float | str) -> str:
        """a + b"""
        return self._binary("fadd", a, b)

    def sub(self, a: float | str, b: float | str) -> str:
        """a - b"""
        return self._binary("fsub", a, b)

    def mul(self, a: float | str, b: float | str) -> str:
        """a * b"""
        return self._binary("fmul", a, b)

    def div(self, a: float | str, b: float | str) -> str:
        """a / b"""
        return self._binary("fdiv", a, b)

    def muladd(self, a: float | str, b: float | str, c: float | str) -> str:
        """a * b + c, with one rounding where the machine has the instruction."""
        t = self.type
        args = f"{t} {self.real(a)}, {t} {self.real(b)}, {t} {self.real(c)}"
        return self.code.let(f"call {t} @llvm.fmuladd.{self.suffix}({args})")

    def fma(self, a: float | str, b: float | str, c: float | str) -> str:
        """a * b + c, rounded once."""
        t = self.type
        args = f"{t} {self.real(a)}, {t} {self.real(b)}, {t} {self.real(c)}"
        return self.code.let(f"call {t} @llvm.fma.{self.suffix}({args})")

    def sqrt(self, a: str) -> str:
        """The root of a."""
        return self.code.let(f"call {self.type} @llvm.sqrt.{self.suffix}({self.type} {a})")

    def abs(self, a: str) -> str:
        """|a|"""
        return self.code.let(f"call {self.type} @llvm.fabs.{self.suffix}({self.type} {a})")

    def negative(self, a: str) -> str:
        """-a"""
        return self.code.let(f"fneg {self.type} {a}")

    def copysign(self, a: str, b: str) -> str:
        """|a| with the sign of b."""
        t = self.type
        return self.code.let(f"call {t} @llvm.copysign.{self.suffix}({t} {a}, {t} {b})")

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """Σ coefficients[i] · x**i: two interleaved Horner chains in x², of half the latency of one."""
        if len(coefficients) < 4:
            return self._horner(x, coefficients)
        square = self.mul(x, x)
        even, odd = (self._horner(square, coefficients[i::2]) for i in (0, 1))
        return self.muladd(odd, x, even)

    def _horner(self, x: str, coefficients: Sequence[float]) -> str:
        total: float | str = coefficients[-1]
        for c in reversed(coefficients[:-1]):
            total = self.muladd(total, x, c)
        return self.real(total)

    # -- choice --------------------------------------------------------------------------------------------------
    def test(self, predicate: str, a: float | str, b: float | str) -> str:
        """A comparison of reals (`olt`, `uno`, …)."""
        return self.code.let(f"fcmp {predicate} {self.type} {self.real(a)}, {self.real(b)}", "c")

    def choose(self, condition: str, a: float | str, b: float | str) -> str:
        """a where the condition holds, else b."""
        return self.code.let(
            f"select {self._wide('i1')} {condition}, {self.type} {self.real(a)}, {self.type} {self.real(b)}"
        )

    def clamp(self, x: str, lower: float, upper: float) -> str:
        """x within bounds; NaN stays NaN."""
        x = self.choose(self.test("olt", x, lower), lower, x)
        return self.choose(self.test("ogt", x, upper), upper, x)

    def either(self, a: str, b: str) -> str:
        """Where one of two conditions holds."""
        return self.code.let(f"or {self._wide('i1')} {a}, {b}", "c")

    # -- bit patterns --------------------------------------------------------------------------------------------
    def bits(self, x: str) -> str:
        """The bit pattern of reals."""
        return self.code.let(f"bitcast {self.type} {x} to {self.int_type}")

    def from_bits(self, n: str) -> str:
        """The reals of a bit pattern."""
        return self.code.let(f"bitcast {self.int_type} {n} to {self.type}")

    def int_op(self, name: str, a: int | str, b: int | str) -> str:
        """An instruction on integers."""
        return self.code.let(f"{name} {self.int_type} {self.whole(a)}, {self.whole(b)}")

    def int_test(self, predicate: str, a: int | str, b: int | str) -> str:
        """A comparison of integers."""
        return self.code.let(f"icmp {predicate} {self.int_type} {self.whole(a)}, {self.whole(b)}", "c")

    def int_choose(self, condition: str, a: int | str, b: int | str) -> str:
        """A choice between integers."""
        return self.code.let(
            f"select {self._wide('i1')} {condition}, {self.int_type} {self.whole(a)}, {self.int_type} {self.whole(b)}"
        )

    def nearest(self, x: str) -> tuple[str, str]:
        """The nearest integer of a small real, as a real and as an integer."""
        shifted = self.add(x, self.format.magic)
        return self.sub(shifted, self.format.magic), self.int_op("sub", self.bits(shifted), self.format.magic_bits)

    def to_real(self, n: str) -> str:
        """A small integer as a real."""
        return self.sub(self.from_bits(self.int_op("add", n, self.format.magic_bits)), self.format.magic)

    def power_of_two(self, n: str) -> str:
        """2**n for n in the range of normal numbers."""
        return self.from_bits(self.int_op("shl", self.int_op("add", n, self.format.bias), self.format.mantissa))
