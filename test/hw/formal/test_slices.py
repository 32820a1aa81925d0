"""Proofs about registers in streams: order, nothing lost, nothing twice, for ever (by induction)."""

# pyright: reportUnknownVariableType=false
# Amaranth's assertions are untyped.

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from amaranth.hdl import Assert, Module, Signal
from amaranth.lib import data

sys.path.insert(0, str(Path(__file__).resolve().parent))
from prove import assume, drive, fails, holds, with_defect

from upl_mlir.hw.core import slices

Build = Callable[[Module], None]
PAYLOAD = data.StructLayout({"n": 4})


def passes_on(module: ModuleType, name: str) -> Build:
    """The source gives 0, 1, 2, … modulo 16, and the target gets these; what it is offered stays until it is taken; there is
    never more than one on the way."""

    def build(m: Module) -> None:
        m.submodules.unit = unit = getattr(module, name)(PAYLOAD)
        source, target = unit.source, unit.target
        drive(m, source.valid, target.ready)
        given, taken = Signal(4), Signal(4)
        gives, takes = source.valid & source.ready, target.valid & target.ready
        m.d.comb += source.payload.n.eq(given)
        m.d.sync += [given.eq(given + gives), taken.eq(taken + takes)]
        # A source goes on offering what was not taken.
        offered = Signal()
        m.d.sync += offered.eq(source.valid & ~source.ready)
        assume(m, source.valid | ~offered)
        waited = Signal()
        m.d.sync += waited.eq(target.valid & ~target.ready)
        inside = Signal(4)
        m.d.comb += [
            inside.eq(given - taken),
            Assert(inside == (target.valid if name == "Forward" else ~source.ready)),
            Assert(~target.valid | (target.payload.n == taken)),
            Assert((inside == 0) | target.valid),
            Assert(~waited | target.valid),
            # One that waits keeps the source from giving another one, unless it can go at the same time.
            Assert(~gives | (inside == 0) | takes),
        ]

    return build


@pytest.mark.parametrize(
    ("name", "defects"),
    [
        ("Forward", [("~self.target.valid | self.target.ready", "1")]),
        ("Skid", [("~full), target.valid", "1), target.valid"), ("with m.If(~full):", "with m.If(full):")]),
    ],
)
def test_nothing_is_lost(tmp_path: Path, name: str, defects: list[tuple[str, str]]) -> None:
    holds(tmp_path / "good", passes_on(slices, name), 3, "prove")
    for n, (old, new) in enumerate(defects):
        fails(tmp_path / f"defect{n}", passes_on(with_defect(slices, old, new), name), 6)
