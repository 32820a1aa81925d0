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
