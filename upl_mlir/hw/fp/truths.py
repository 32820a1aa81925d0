"""Units with truth values, of one bit, among their operands: the product of one with a real, logic, and choices.

    mask        classes | product
    combined    all in one step
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.fp.model import Format
from upl_mlir.hw.fp.pipe import PASSED, Pipe, Pipelined, Step


class Mask(Pipelined):
    """a * b, where b is a truth value: 0 keeps the sign of a number, and makes a NaN of an infinity."""

    @classmethod
    def steps(cls, f: Format) -> int:
        """As listed above."""
        return 2

    @classmethod
    def operands(cls, f: Format) -> dict[str, int]:
        """A real and a truth value."""
        return {"a": f.bits, "b": 1}

    def _steps(self, pipe: Pipe) -> Step:
        f = self.format
        fraction, field = self.a[: f.mantissa], self.a[f.mantissa : -1]
        s = pipe.cut(p=self.pass_in, a=self.a, b=self.b, ones=field.all(), low=fraction.any())
        nan = s["ones"] & (s["low"] | ~s["b"])
        number = Cat(s["a"][: f.mantissa] & (s["b"] & ~s["ones"]).replicate(f.mantissa),
                     s["a"][f.mantissa : -1] & (s["b"] | s["ones"]).replicate(f.exponent))  # fmt: skip
        return pipe.cut(p=s[PASSED], result=self._special(number, s["a"][-1], nan))


class Combined(wiring.Component):
    """`compute` of a, b, … (in, so many bits each); result (out, `width` bits, else as wide as the last operand) after
    `latency` cycles. enable (in, 1): 0 holds everything. No reset."""

    def __init__(self, widths: Sequence[int], compute: Callable[..., Any], latency: int, width: int | None = None):
        self.names, self.compute, self.latency = "abc"[: len(widths)], compute, latency
        ports = {name: In(width) for name, width in zip(self.names, widths, strict=True)}
        super().__init__({**ports, "result": Out(widths[-1] if width is None else width), "enable": In(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        """The function, and registers behind it."""
        m = Module()
        value = self.compute(*(getattr(self, name) for name in self.names))
        for n in range(self.latency):
            register = Signal(len(self.result), name=f"result_{n}", reset_less=True)
            with m.If(self.enable):
                m.d.sync += register.eq(value)
            value = register
        m.d.comb += self.result.eq(value)
        return m
