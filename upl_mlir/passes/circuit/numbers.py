"""The numbers of a circuit: their type, the width of a word, the registers of its units, and which operations have one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil, frexp

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.numbers.formats import FixedFormat, FloatFormat

FLOAT = {
    "add": 12, "sub": 12, "mul": 14, "div": 15, "by": 4, "up": 6, "down": 5, "select": 1, "neg": 0, "abs": 0, "min": 2,
    "max": 2, "compare": 2, "and": 1, "or": 1, "xor": 1, "not": 0, "real": 0, "mask": 2, "choose": 1, "sqrt": 8,
}  # fmt: skip
"""Registers of floating-point units at their highest clock (`hw/fp`); "by": division by a small integer; "up", "down":
multiplication by a power of two; "mask": a real times a truth value; "choose": one of two values by a truth value.  To those
of "div" and "sqrt" a register is added for each bit of the fraction, to "by" one for each six bits."""
FUNCTIONS = {"exp": 22, "log": 27, "tanh": 24, "sigmoid": 42, "sin": 36, "cos": 36}
"""Those of the functions that binary32 has."""
FIXED = {
    "add": 1, "sub": 1, "up": 1, "down": 1, "select": 1, "neg": 1, "abs": 1, "min": 1, "max": 1, "compare": 1, "and": 1,
    "or": 1, "xor": 1, "not": 0, "real": 0, "mask": 1, "choose": 1, "sum": 1,
}  # fmt: skip
"""Registers of fixed-point units; "sum": a step of a running sum. Those of products and quotients follow from the width
(`hw/fp/saturating.py`)."""
INTEGERS = {"int_add": 1, "int_sub": 1, "int_mul": 1, "int_min": 1, "int_max": 1, "int_compare": 1, "int": 0}
"""Those of integers; "int_mul": by a constant; "int": a truth value as 0 or 1."""
GREATEST_ODD = 15
"""The odd part of a small integer is not greater (`hw/fp/by_constant.py`)."""
BLOCK = 18
"""Bits of a factor that one multiplier block takes."""


@dataclass(frozen=True)
class Numbers:
    """The reals of a circuit are of the type `kind`: f32, or a small one."""

    kind: Kind

    @property
    def fixed(self) -> FixedFormat | None:
        """The format, if it is fixed point."""
        return self.kind.format if isinstance(self.kind.format, FixedFormat) else None

    @property
    def width(self) -> int:
        """The bits of a word."""
        return 32 if self.kind.format is None else self.kind.format.bits

    @property
    def precision(self) -> int:
        """The significant bits of a floating-point number."""
        return self.kind.format.precision if isinstance(self.kind.format, FloatFormat) else 24

    @cached_property
    def latency(self) -> Mapping[str, int]:
        """The registers of each unit, by operation; what is not there has no unit."""
        f = self.fixed
        if f is not None:
            quotient = f.bits + 5
            product = 3 if f.bits <= BLOCK else 6
            return INTEGERS | FIXED | {"product": product, "mul": product + 1, "div": quotient, "by": quotient}
        fraction = self.precision - 1
        more = {"div": fraction, "sqrt": fraction, "by": ceil(ceil((fraction + 3) / 2) / 3)}
        found = INTEGERS | {name: n + more.get(name, 0) for name, n in FLOAT.items()}
        return found | FUNCTIONS if self.kind.format is None else found

    def constant(self, kind: str, number: float) -> str | None:
        """The operation of its own by which a product or quotient (`kind` "mul", "div") by a constant is taken: "" for none
        but perhaps a sign, None if there is none."""
        fraction, exponent = frexp(number)
        if not fraction or number - number != 0:
            return None
        most = self.width if self.fixed is not None else self.precision
        if abs(fraction) == 0.5 and abs(exponent) <= most:
            places = exponent - 1 if kind == "mul" else 1 - exponent
            return f"up {places}" if places > 0 else f"down {-places}" if places else ""
        if kind == "mul":
            return None
        if self.fixed is not None:
            return f"by {int(number) if number.is_integer() else number!r}"
        if number.is_integer() and abs(number) < 1 << most:
            n = abs(int(number))
            if n // (n & -n) <= GREATEST_ODD:
                return f"by {int(number)}"
        return None


F32 = Numbers(Kind.F32)
