"""The two descriptions of the associative memory are equal: Amaranth's, and the Verilog that all tools get."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from amaranth.hdl import Assert, Module

sys.path.insert(0, str(Path(__file__).resolve().parent))
from prove import assume, drive, fails, holds

from upl_mlir.hw.matching_unit.cam import Cam, cam_verilog
from upl_mlir.hw.matching_unit.interface import Dimensions

DIM = Dimensions(capacity=4, tag_bits=1, max_fields=1, max_inputs=3, node_bits=1, multiplicity_bits=1)
"""Two levels; `BANK` of the proof makes two banks."""
BANK = 2
DEPTH = 7
"""Two entries are written, searched for, found one after the other, freed, and looked for anew."""


class _AsVerilog(Cam):
    """The same component, as the Verilog has it."""

    def elaborate(self, platform: object) -> Module:
        return self._instance(BANK)


def equal(m: Module) -> None:
    """Both get the same inputs, whatever they are, and answer the same in every cycle."""
    m.submodules.one = one = Cam(DIM)
    m.submodules.two = two = _AsVerilog(DIM)
    drive(m, *(getattr(one, name) for name in one.inputs))
    m.d.comb += [getattr(two, name).eq(getattr(one, name)) for name in one.inputs]
    assume(m, one.level < one.levels)
    assume(m, ~one.drop | one.pick)
    m.d.comb += [Assert(getattr(one, name) == getattr(two, name)) for name in one.outputs]


def test_both_descriptions_are_equal(tmp_path: Path) -> None:
    holds(tmp_path, equal, DEPTH, verilog=cam_verilog())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("& care[b*BANK+e] & ~key_wild", "& ~key_wild"),
        ("& care[b*BANK+e] & ~key_wild", "& care[b*BANK+e]"),
        ("picked & (picked - 1)", "picked"),
        ("end else if (drop)", "end if (drop)"),
        ("untried[n*BANKS+b] <= hits", "untried[b] <= hits"),
        ("if (b <= last)", "if (b < last)"),
        ("* 2 - 1", "- 1"),
        ("if (b == last)", "if (b == 0)"),
        ("(bank << BANK_BITS)", "bank"),
    ],
)
def test_a_defect_is_found(tmp_path: Path, old: str, new: str) -> None:
    assert cam_verilog().count(old) == 1
    fails(tmp_path, equal, DEPTH, verilog=cam_verilog().replace(old, new))
