"""The matching unit as Verilog, for synthesis and for other simulators."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# Amaranth's back ends are untyped.

from __future__ import annotations

import os

from upl_mlir.hw.machine import Machine, require_built
from upl_mlir.hw.matching_unit.interface import Dimensions
from upl_mlir.hw.matching_unit.unit import MatchingUnit


def to_verilog(machine: Machine) -> str:
    """Verilog text of the machine's matching unit, module `matching_unit`; the program is not part of it.

    Raises `UplError` UPL1723 for a machine that is not built yet.
    """
    require_built(machine)
    # A yosys found on the PATH may be of another version than the one that Amaranth was tested with.
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    from amaranth.back import verilog

    return verilog.convert(MatchingUnit(Dimensions.of(machine)), name="matching_unit", emit_src=False)
