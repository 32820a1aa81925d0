"""The floating-point units on an ECP5, routed: the table in docs/fp.md.

make fp-table                                      # all units, three placements each; finished ones are in the cache
.venv/bin/python bench/fp_units.py --only Adder    # prints the row of one unit, writes nothing
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from upl_mlir.hw.fp.angles import Cosine, Sine
from upl_mlir.hw.fp.conversions import Comparer, FromInteger, ToInteger
from upl_mlir.hw.fp.digits import Divider, SquareRoot
from upl_mlir.hw.fp.fma import FusedMultiplyAdd
from upl_mlir.hw.fp.functions import Exponential, HyperbolicTangent, Logarithm, Logistic
from upl_mlir.hw.fp.model import BINARY32
from upl_mlir.hw.fp.pipelined import Adder, Multiplier
from upl_mlir.hw.fp.truths import Mask
from upl_mlir.hw.synth.ecp5 import DEVICE, Clock, area, timing
from upl_mlir.hw.synth.tools import NEXTPNR, YOSYS

PLACE = Path(__file__).resolve().parent.parent / "docs" / "fp.md"
TABLE = re.compile(r"(?<=<!-- made by `make fp-table` -->\n).*?(?=<!-- end -->)", re.DOTALL)
SEEDS = (1, 2, 3)
WANTED_MHZ = 200
"""What the tools try to reach: more than there is, so that they do not stop."""
HEAD = ["unit", "computes", "registers", "LUT sites", "flip-flops", "multipliers", "MHz", "of seeds"]

UNITS: dict[str, tuple[str, Callable[[], Any]]] = {
    "Adder": ("a + b", lambda: Adder(BINARY32)),
    "Multiplier": ("a * b", lambda: Multiplier(BINARY32, target="ecp5")),
    "Divider": ("a / b", lambda: Divider(BINARY32)),
    "SquareRoot": ("square root", lambda: SquareRoot(BINARY32)),
    "Comparer": ("<, =, least, greatest", lambda: Comparer(BINARY32)),
    "FromInteger": ("i32 to binary32", lambda: FromInteger(BINARY32)),
    "ToInteger": ("binary32 to i32", lambda: ToInteger(BINARY32)),
    "Mask": ("a * b, b 0 or 1", lambda: Mask(BINARY32)),
    "Exponential": ("exp(a)", lambda: Exponential(target="ecp5")),
    "Logarithm": ("log(a)", lambda: Logarithm(target="ecp5")),
    "HyperbolicTangent": ("tanh(a)", lambda: HyperbolicTangent(target="ecp5")),
    "Logistic": ("1 / (1 + exp(-a))", lambda: Logistic(target="ecp5")),
    "Sine": ("sin(a)", lambda: Sine(target="ecp5")),
    "Cosine": ("cos(a)", lambda: Cosine(target="ecp5")),
    "Adder-4": ("a + b, in the core", lambda: Adder(BINARY32, 4)),
    "Multiplier-4": ("a * b, in the core", lambda: Multiplier(BINARY32, 4)),
    "FusedMultiplyAdd-4": ("a * b + c, in the core", lambda: FusedMultiplyAdd(BINARY32, 4)),
}


class Frame(wiring.Component):
    """A unit behind registers for its inputs, so that its first step has a clock to keep; its last step ends with one."""

    def __init__(self, unit: Any):
        self.unit = unit
        super().__init__(unit.signature)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = self.unit
        for name, member in self.unit.signature.members.items():
            outer, inner = getattr(self, name), getattr(self.unit, name)
            if member.flow == In:
                held = Signal.like(outer, reset_less=True)
                m.d.sync += held.eq(outer)
                m.d.comb += inner.eq(held)
            else:
                m.d.comb += outer.eq(inner)
        return m


def row(name: str) -> list[str]:
    """The cells of a unit's row; flip-flops without those of the frame."""
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    from amaranth.back import rtlil

    def say(what: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{name}: {what:.60}\033[K", end="", file=sys.stderr, flush=True)

    what, make = UNITS[name]
    unit = make()
    frame = sum(len(getattr(unit, port)) for port, member in unit.signature.members.items() if member.flow == In)
    text = rtlil.convert(cast(Any, Frame(unit)), name="top", emit_src=False)
    cost = area(text, "top", say)
    routed = [timing(text, "top", WANTED_MHZ, Clock.ROUTED, say, seed) for seed in SEEDS]
    sites = max(t.used["TRELLIS_COMB"] for t in routed)
    clocks = [t.fmax_mhz for t in routed]
    return [f"`{name}`", what, str(unit.latency), f"{sites:,}", f"{cost.ff - frame:,}", str(cost.dsp), f"{min(clocks):.0f}",
            ", ".join(f"{c:.0f}" for c in clocks)]  # fmt: skip


def main() -> int:
    """Write the table into the page, or print some rows."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", choices=list(UNITS), nargs="+", help="print the rows of these")
    args = p.parse_args()
    rows: list[list[str]] = []
    for name in args.only or UNITS:
        rows.append(row(name))
        print(" | ".join(rows[-1]), flush=True)
    if not args.only:
        lines = [f"| {' | '.join(HEAD)} |", "|" + "---|" * len(HEAD), *(f"| {' | '.join(cells)} |" for cells in rows)]
        said = f"\n{DEVICE}, speed 6; {YOSYS.version()}, {NEXTPNR.version()}.\n\n" + "\n".join(lines) + "\n\n"
        text, count = TABLE.subn(lambda _: said, PLACE.read_text(encoding="utf-8"))
        assert count == 1, f"no place for the table in {PLACE}"
        PLACE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
