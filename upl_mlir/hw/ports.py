"""Groups of ports that many components have: writes to a memory, and both ends of a queue."""

from __future__ import annotations

from typing import Any

from amaranth.lib.wiring import In, Out


def writes(name: str, address: Any, data: Any) -> dict[str, Any]:
    """What writes to a memory: `name`_en, `name`_address and `name`_data, of these shapes."""
    return {f"{name}_en": In(1), f"{name}_address": In(address), f"{name}_data": In(data)}


def queue_ends(width: int) -> dict[str, Any]:
    """w_*: tokens in; r_*: tokens out."""
    return {
        "w_valid": In(1), "w_ready": Out(1), "w_data": In(width), "r_valid": Out(1), "r_ready": In(1), "r_data": Out(width),
    }  # fmt: skip


def written(m: Any, memory: Any, unit: Any, name: str) -> None:
    """Connect a memory to what `writes` made of that name among the ports of a unit."""
    port = memory.write_port()
    enable, address, data = (getattr(unit, f"{name}_{part}") for part in ("en", "address", "data"))
    m.d.comb += [port.en.eq(enable), port.addr.eq(address), port.data.eq(data)]
