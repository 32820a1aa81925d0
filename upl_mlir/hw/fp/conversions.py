"""Comparison, and conversion from and to integers of 32 bits, at high clocks: an operation a cycle.

    comparer        compare | choose
    from integer    size | zeros | zeros | shift | shift | round
    to integer      distance | shift | shift | sign

Absolute value and negation are wires.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from typing import Literal

from amaranth.hdl import Cat, Const, Mux

from upl_mlir.hw.fp.model import Format
from upl_mlir.hw.fp.pipe import PASSED, Pipe, Pipelined, Step, picked, powers_of_shift

INTEGER = 32  # bits of an integer


class Comparer(Pipelined):
    """Whether a is `less` than b, `equal` to it, or one of them is a NaN (`unordered`); the `least` and the `greatest` of
    both, where -0 is below +0, and a NaN is both."""

    @classmethod
    def steps(cls, f: Format) -> int:
        """As listed above."""
        return 2

    @classmethod
    def results(cls, f: Format) -> dict[str, int]:
        """Five."""
        return {"less": 1, "equal": 1, "unordered": 1, "least": f.bits, "greatest": f.bits}

    def _steps(self, pipe: Pipe) -> Step:
        f = self.format
        s = self._classes(pipe, below=self.a[:-1] < self.b[:-1], same=self.a[:-1] == self.b[:-1])
        a, b = s["a"], s["b"]
        unordered, zeros = self._nan(s, "a") | self._nan(s, "b"), s["same"] & self._zero(s, "a")
        before = pipe.named(Mux(a[-1] ^ b[-1], a[-1], Mux(a[-1], ~s["below"] & ~s["same"], s["below"])), "before")
        least, greatest = (Mux(unordered, f.nan, Mux(before, x, y))[: f.bits] for x, y in ((a, b), (b, a)))
        return pipe.cut(
            p=s[PASSED], less=before & ~zeros & ~unordered, equal=(s["same"] & (a[-1] == b[-1]) | zeros) & ~unordered,
            unordered=unordered, least=least, greatest=greatest,
        )  # fmt: skip


class Conversion(Pipelined):
    """Of integers and numbers; the exponents of a format must reach all integers."""

    def __init__(
        self, f: Format, latency: int | None = None, passed: int = 1, target: Literal["generic", "ecp5"] = "generic"
    ):
        _wide_enough(f)
        super().__init__(f, latency, passed, target)


class FromInteger(Conversion):
    """The number that is nearest to an integer a with sign."""

    @classmethod
    def steps(cls, f: Format) -> int:
        """As listed above."""
        return 6

    @classmethod
    def operands(cls, f: Format) -> dict[str, int]:
        """One."""
        return {"a": INTEGER}

    def _steps(self, pipe: Pipe) -> Step:
        f = self.format
        sign = self.a[-1]
        s = pipe.cut(p=self.pass_in, sign=sign, size=((self.a ^ sign.replicate(INTEGER)) + sign)[:INTEGER])
        s = self._normalise(pipe, s, "size")
        field = Mux(s["size"][-1], (f.bias + INTEGER - 1 - s["size_zeros"])[: f.exponent], 0)
        size = pipe.named(s["size"], "size")
        lost = max(0, INTEGER - f.mantissa - 3)  # bits that only the sticky bit has
        kept = Cat(size[:lost].any(), Const(0, max(0, f.mantissa + 3 - INTEGER)), size[lost:])
        s = pipe.cut(p=s[PASSED], sign=s["sign"], x=kept, field=field)
        return pipe.cut(p=s[PASSED], result=Cat(self._rounded(s["x"], s["field"]), s["sign"]))


class ToInteger(Conversion):
    """a without its fraction, as an integer with sign; `failed`: there is none of 32 bits."""

    @classmethod
    def steps(cls, f: Format) -> int:
        """As listed above."""
        return 4

    @classmethod
    def operands(cls, f: Format) -> dict[str, int]:
        """One."""
        return {"a": f.bits}

    @classmethod
    def results(cls, f: Format) -> dict[str, int]:
        """The integer, and whether there is one."""
        return {"result": INTEGER, "failed": 1}

    def _steps(self, pipe: Pipe) -> Step:
        """The significand begins with its highest bit in the sign's place, and goes to the right."""
        f = self.format
        fraction, field, sign = self.a[: f.mantissa], self.a[f.mantissa : -1], self.a[-1]
        top = f.bias + INTEGER - 1
        s = pipe.cut(p=self.pass_in, sign=sign, fraction=fraction, distance=(top - field)[:5], small=field < f.bias,
                     great=field > top, most=field == top, more=fraction.any())  # fmt: skip
        # One bit more below: a shift keeps there what it loses.
        x = Cat(Const(0, INTEGER - f.mantissa), s["fraction"], Const(1, 1))
        first, last = powers_of_shift(INTEGER)
        failed = s["great"] | s["most"] & (s["more"] | ~s["sign"])
        s = pipe.cut(p=s[PASSED], sign=s["sign"], x=pipe.right(x, picked(s["distance"], first), first, "whole"),
                     small=s["small"], failed=failed, rest=picked(s["distance"], last))  # fmt: skip
        x = pipe.right(s["x"], s["rest"], last, "whole")
        s = pipe.cut(s, ("rest", "small"), x=Mux(s["small"], 0, x[1:])[:INTEGER])
        sign = s["sign"]
        return pipe.cut(p=s[PASSED], failed=s["failed"], result=((s["x"] ^ sign.replicate(INTEGER)) + sign)[:INTEGER])


def _wide_enough(f: Format) -> None:
    if f.bias <= INTEGER or f.mantissa >= INTEGER:
        raise ValueError(f"{f}: expected a bias above {INTEGER}, and a mantissa below {INTEGER} bits")
