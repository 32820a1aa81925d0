"""The multiplier block of ECP5 and its behavioural twin are equal: the block as `mult18x18d.v` has it.

Multiplication itself is abstracted: in both, the product is replaced by the pair of its operands. If the pairs are equal in
every cycle, so is any function of them; and both have the operator of their language for numbers without sign, of 18 by 18
bits, there. (To a solver two such multiplications, bit by bit, are too hard.) `test_pipelined.py` runs both with products.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from amaranth.hdl import Assert, Module

sys.path.insert(0, str(Path(__file__).resolve().parent))
from prove import drive, fails, holds, with_defect

from upl_mlir.hw.fp import blocks

DEPTH = 4
TWIN = with_defect(blocks, "x * y))", "Cat(x, y)))")
SIGNED_TWIN = with_defect(blocks, "x.as_signed() * y.as_signed()", "Cat(x, y)")
BOTH = (True, True)


def verilog() -> str:
    """The model of the block, without multiplication."""
    text = blocks.block_verilog()
    for product in ("= x * y;", "= $signed(x) * $signed(y);"):
        assert text.count(product) == 1
        text = text.replace(product, "= {y, x};")
    return text


def equal(a: int, b: int, registers: tuple[bool, bool], signed: bool = False) -> Callable[[Module], None]:
    """Both get the same inputs, whatever they are, and have the same operands and the same product in every cycle."""

    twin = SIGNED_TWIN if signed else TWIN

    def build(m: Module) -> None:
        m.submodules.one = one = twin.Block(a, b, "generic", registers, signed=signed)
        m.submodules.two = two = twin.Block(a, b, "ecp5", registers, signed=signed)
        drive(m, one.a, one.b, one.enable)
        m.d.comb += [getattr(two, name).eq(getattr(one, name)) for name in ("a", "b", "enable")]
        m.d.comb += [Assert(getattr(one, name) == getattr(two, name)) for name in ("x", "y", "product")]

    return build


@pytest.mark.parametrize(
    ("a", "b", "registers"),
    [(18, 18, BOTH), (18, 18, (True, False)), (18, 18, (False, True)), (18, 18, (False, False)), (18, 6, BOTH)],
)
def test_block_and_twin_are_equal(tmp_path: Path, a: int, b: int, registers: tuple[bool, bool]) -> None:
    holds(tmp_path, equal(a, b, registers), DEPTH, "prove", verilog=verilog())


@pytest.mark.parametrize(("a", "b", "registers"), [(18, 18, BOTH), (16, 9, BOTH), (18, 5, (False, False))])
def test_block_and_twin_are_equal_with_signs(tmp_path: Path, a: int, b: int, registers: tuple[bool, bool]) -> None:
    """The pair of operands of fewer bits, with their signs repeated; from the first clock on, as an induction could begin
    with a block that holds other signs."""
    holds(tmp_path, equal(a, b, registers, signed=True), DEPTH, "prove" if a == 18 else "bmc", verilog=verilog())


def test_signs_that_are_not_repeated_are_found(tmp_path: Path) -> None:
    wrong = with_defect(blocks, "self.a.as_signed(), self.b.as_signed()", "self.a, self.b")

    def build(m: Module) -> None:
        m.submodules.one = one = SIGNED_TWIN.Block(9, 9, "generic", BOTH, signed=True)
        m.submodules.two = two = wrong.Block(9, 9, "ecp5", BOTH, signed=True)
        drive(m, one.a, one.b, one.enable)
        m.d.comb += [getattr(two, name).eq(getattr(one, name)) for name in ("a", "b", "enable")]
        m.d.comb += Assert(one.product == two.product)

    fails(tmp_path, build, DEPTH, verilog=verilog())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("else if (CE0)", "else"),
        ("a_held <= a;", "a_held <= b;"),
        ("plain = {y, x};", "plain = {x, y};"),
        ("? product :", "? product_held :"),
    ],
)
def test_a_defect_is_found(tmp_path: Path, old: str, new: str) -> None:
    assert verilog().count(old) == 1
    registers = (True, False) if "product_held" in new else BOTH
    fails(tmp_path, equal(18, 18, registers), DEPTH, verilog=verilog().replace(old, new))
