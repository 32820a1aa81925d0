"""Waveforms of a window of cycles (VCD): a signal for each unit of each core that says in words what it did."""

# pyright: reportUnknownVariableType=false
# The library's variables are generic in what they hold.

from __future__ import annotations

from pathlib import Path

from vcd import VCDWriter

from upl_mlir.engines.rtl.observe.names import UNITS, named
from upl_mlir.engines.rtl.observe.watch import Recorded


def write_waves(run: Recorded, path: str | Path, first: int = 0, last: int | None = None) -> None:
    """Write what the cores did in the cycles from `first` to `last` (included; None: the end). A cycle takes 1 ns."""
    done = sorted((d for d in named(run) if d.cycle >= first and (last is None or d.cycle <= last)), key=lambda d: d.cycle)
    with Path(path).open("w", encoding="utf-8") as file, VCDWriter(file, timescale="1 ns", init_timestamp=first) as writer:
        signals = {
            (core, unit): writer.register_var(f"core{core}", name.replace(" ", "_"), "string", init="-")
            for core in sorted({d.core for d in done} | {0})
            for unit, name in UNITS.items()
        }
        changes = {(d.cycle, d.core, d.unit): d for d in done}
        after = {(d.cycle + 1, d.core, d.unit): None for d in done}  # back to nothing
        for (cycle, core, unit), what in sorted((after | changes).items(), key=lambda item: item[0]):
            facts = "" if what is None else "".join(f"_{name}={value}" for name, value in what.facts.items())
            writer.change(signals[core, unit], cycle, "-" if what is None else f"{what.text}{facts}")
