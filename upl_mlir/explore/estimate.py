"""Area and clock of a circuit from its plan, in seconds: no synthesis.

Memories and multipliers are counted exactly. LUT sites and flip-flops are sums over what the netlist has, with coefficients
that `bench/circuit_model.py` fits to what was synthesised (docs/circuit_model.md). The clock is a rough estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

import msgspec

from upl_mlir.diagnostics import error
from upl_mlir.hw.circuit.contents import REST, Contents, contents
from upl_mlir.hw.synth.circuits import ASKED_MHZ
from upl_mlir.hw.synth.ecp5 import DEVICE
from upl_mlir.passes.circuit.plan import Plan

LUT_RAM_SITES = 6
"""LUT sites of a RAM of 16x4 bits (`hw/synth/ecp5.py`)."""
LUTS: Mapping[str, float] = {
    "arithmetic": 0.026, "equal": 0.154, "logic": 0.154, "choice": 1.09, "table": 0.105, "shift": 0.119,
}  # fmt: skip
"""LUT sites for a bit of each kind of `Contents`, fitted."""
LUT_FACTORS: Mapping[str, float] = {
    "add": 0.962, "by": 0.561, "compare": 1.058, "div": 1.832, "down": 0.433, "exp": 0.831, "fixed add": 1.178,
    "fixed by": 0.695, "fixed compare": 23.342, "fixed div": 1.562, "fixed mask": 6.489, "fixed min": 7.171,
    "fixed mul": 2.478, "log": 0.85, "mask": 1.251, "min": 1.058, "mul": 0.998, "sqrt": 2.013, "tanh": 0.567,
}  # fmt: skip
"""What the LUT sites of units by `LUTS` are multiplied by, by operation: fitted to units alone.  Synthesis makes less of
bits that are constant, as in a division by a constant."""
FF_FACTORS: Mapping[str, float] = {
    REST: 0.878, "add": 0.99, "by": 0.879, "compare": 0.993, "div": 0.995, "down": 0.905, "exp": 0.907,
    "fixed add": 1.0, "fixed by": 0.656, "fixed compare": 1.0, "fixed div": 0.861, "fixed mask": 1.0,
    "fixed min": 1.0, "fixed mul": 1.0, "log": 0.939, "mask": 1.0, "min": 0.993, "mul": 0.996, "sqrt": 0.948,
    "tanh": 0.879,
}  # fmt: skip
"""Flip-flops left of a bit of register in the netlist, in the same way: synthesis removes those that are equal or
constant."""
PERIOD_NS: Mapping[str, float] = {"fixed": 3.65, "float": 5.35}
PERIOD_ROOT_BLOCK = 0.298
"""Nanoseconds of the clock of floating and fixed point, and how many more with the root of the number of multipliers and
block RAMs: these lie in columns, so wires lead across the side of the area that has so many.  Fitted to routed circuits."""
THERE = {"LUT sites": 83_640, "block RAMs": 208, "multipliers": 156}
"""What the device has."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a circuit costs on an ECP5-85F, names as in `hw/synth`: `dsp` and `block_ram` are exact, `luts` and `ff`
    estimated, `fmax_mhz` roughly."""

    luts: int
    ff: int
    dsp: int
    block_ram: int
    fmax_mhz: float

    def require_room(self) -> None:
        """Raise `UplError` UPL1745 if the device is too small."""
        for (what, most), wanted in zip(THERE.items(), (self.luts, self.block_ram, self.dsp), strict=True):
            if wanted > most:
                raise error("UPL1745", f"the circuit needs {wanted:,} {what}; an {DEVICE} has {most:,}",
                            help="fewer lanes, or a smaller type of reals")  # fmt: skip


def estimate(plan: Plan) -> Estimate:
    """Of the circuit of a plan."""
    return of_contents(contents(plan))


def of_contents(found: Mapping[str, Contents]) -> Estimate:
    """Of a circuit with these contents, by operation."""
    luts = LUT_RAM_SITES * sum(c["lut_ram"] for c in found.values())
    luts += sum(LUT_FACTORS.get(op, 1.0) * bits(c) for op, c in found.items())
    ff = sum(FF_FACTORS.get(op, FF_FACTORS[REST]) * c["ff"] for op, c in found.items())
    dsp, block_ram = (sum(c[what] for c in found.values()) for what in ("dsp", "block_ram"))
    period = PERIOD_NS[numbers(found)] + PERIOD_ROOT_BLOCK * sqrt(dsp + block_ram)
    fmax_mhz = min(ASKED_MHZ, round(1000 / period, 1))
    return Estimate(luts=round(luts), ff=round(ff), dsp=dsp, block_ram=block_ram, fmax_mhz=fmax_mhz)


def bits(c: Contents) -> float:
    """LUT sites by kind, without memories, before the factor of the operation."""
    return sum(k * c[what] for what, k in LUTS.items())


def numbers(found: Mapping[str, Contents]) -> str:
    """The kind of its numbers, as `PERIOD_NS` has it."""
    return "fixed" if any(op.startswith("fixed") for op in found) else "float"
