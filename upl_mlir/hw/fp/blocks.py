"""The multiplier block of ECP5, `MULT18X18D`, as the units use it, beside its behavioural twin.

yosys moves no registers into these blocks, so the units name them. Amaranth's simulator and compiled simulation have the
twin (`target="generic"`). Tools that read Verilog get `mult18x18d.v`, a model of the block as used here. The tests prove
that this model and the twin are equal (`test/hw/formal/test_dsp.py`).
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportMissingParameterType=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false, reportInconsistentConstructor=false, reportUnknownMemberType=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from importlib import resources
from typing import Literal

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

WIDTH = 18  # bits of the factors of a block, as the device has them


def block_verilog() -> str:
    """The text of the module `MULT18X18D`, for simulation of Verilog; synthesis has its own."""
    return resources.files("upl_mlir.hw.fp").joinpath("mult18x18d.v").read_text(encoding="utf-8")


class Block(wiring.Component):
    """a, b (in, at most 18 bits each; without sign, or both `signed`); product (out), a cycle later for each of the
    `registers`: that of the operands, that of the product. x, y (out): the operands that are multiplied. enable (in, 1): 0
    holds everything. No reset."""

    def __init__(
        self, a_bits: int, b_bits: int, target: Literal["generic", "ecp5"] = "generic",
        registers: tuple[bool, bool] = (True, True), *, signed: bool = False,
    ):  # fmt: skip
        if not (1 <= a_bits <= WIDTH and 1 <= b_bits <= WIDTH):
            raise ValueError(f"{a_bits} by {b_bits} bits: expected at most {WIDTH} each")
        self.target, self.registers, self.signed = target, registers, signed
        super().__init__(
            {
                "a": In(a_bits),
                "b": In(b_bits),
                "x": Out(a_bits),
                "y": Out(b_bits),
                "product": Out(a_bits + b_bits),
                "enable": In(1, init=1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The twin, or the block."""
        m = Module()
        if self.target == "ecp5":
            self._instance(m)
            return m
        first, last = self.registers
        m.d.comb += [self.x.eq(self._behind(m, first, self.a)), self.y.eq(self._behind(m, first, self.b))]
        if self.signed:
            x, y = (Cat(v, v[-1].replicate(WIDTH - len(v))) for v in (self.x, self.y))
            m.d.comb += self.product.eq(self._behind(m, last, x.as_signed() * y.as_signed()))
            return m
        x, y = (Cat(value, Const(0, WIDTH - len(value))) for value in (self.x, self.y))  # as wide as the block's
        m.d.comb += self.product.eq(self._behind(m, last, x * y))
        return m

    def _behind(self, m: Module, register: bool, value: Value) -> Value:
        if not register:
            return value
        out = Signal(value.shape(), reset_less=True)
        with m.If(self.enable):
            m.d.sync += out.eq(value)
        return out

    def _instance(self, m: Module) -> None:
        """The block.  Its unused clocks, enables and resets are not connected: blocks lie in groups of four, and a group has
        four signals of each kind.  A constant would be one of them, and leave enables for three blocks only."""
        ends = {end: Signal(WIDTH, name=f"whole_{end}") for end in "abxy"}
        product = Signal(2 * WIDTH)
        signs = Const(int(self.signed))
        a, b = (self.a.as_signed(), self.b.as_signed()) if self.signed else (self.a, self.b)
        m.d.comb += [ends["a"].eq(a), ends["b"].eq(b), self.x.eq(ends["x"]), self.y.eq(ends["y"])]
        m.d.comb += self.product.eq(product)
        held = {"INPUTA": self.registers[0], "INPUTB": self.registers[0], "OUTPUT": self.registers[1]}
        clocked = {f"p_REG_{name}_CLK": "CLK0" if register else "NONE" for name, register in held.items()}
        clocked |= {f"p_REG_{name}_{what}": f"{what}0" for name in held for what in ("CE", "RST")}
        m.submodules.block = Instance(
            "MULT18X18D", **clocked, p_REG_INPUTC_CLK="NONE", p_REG_PIPELINE_CLK="NONE", p_GSR="DISABLED",
            p_SOURCEB_MODE="B_SHIFT", i_SIGNEDA=signs, i_SIGNEDB=signs, i_SOURCEA=Const(0), i_SOURCEB=Const(0),
            i_CLK0=ClockSignal(), i_CE0=self.enable, i_RST0=Const(0),
            **{f"i_{port}{n}": ends[port.lower()][n] for port in "AB" for n in range(WIDTH)},
            **{f"i_C{n}": Const(0) for n in range(WIDTH)},
            **{f"o_RO{port}{n}": ends[end][n] for port, end in (("A", "x"), ("B", "y")) for n in range(WIDTH)},
            **{f"o_P{n}": product[n] for n in range(2 * WIDTH)},
        )  # fmt: skip
