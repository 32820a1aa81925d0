"""What can be set without building a core anew: how much of its store, of its backing memories and of their latency is used.

Of a core that is synthesised the settings are constants. A core for simulation has them in a register that the host
loads, and is built with room for what many machines need: one library serves a sweep. Both are the same hardware, and take
the same cycles (a test compares them).
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false
# Amaranth's layouts are untyped.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from amaranth.lib import data
from amaranth.utils import bits_for

from upl_mlir.hw.core.layouts import Dimensions, limits_layout
from upl_mlir.hw.machine import Organisation

ROOM: Mapping[str, tuple[int, ...]] = {
    "sets": (256, 4096),
    "entries": (256, 1024, 4096),
    "ways": (4, 8),
    "spill_words": (4096,),
    "queue_words": (4096,),
    "backing_cycles": (32, 256),
}
"""How much cores for simulation are built with: the least of these that is enough, or exactly what is needed; `entries` are
the sets of an associative memory."""


def adjustable(d: Dimensions) -> Dimensions:
    """The core for simulation that serves machines with cores of these dimensions, when it is set to them.  Stores without
    search have no such limits: those are built as they are."""
    if d.organisation is Organisation.DIRECT:
        return d

    def enough(name: str, need: int) -> int:
        return min([size for size in ROOM[name] if size >= need], default=need)

    room = {name: enough(name, getattr(d, name)) for name in ("queue_words", "backing_cycles")}
    if d.organisation is Organisation.CAM:
        return replace(d, **cast(Any, room), sets=enough("entries", d.sets), adjustable=True)
    room |= {name: enough(name, getattr(d, name)) for name in ("sets", "ways", "spill_words")}
    gathers = enough("sets", d.gather_sets) if d.gather_sets else 0
    return replace(d, **cast(Any, room), gather_sets=gathers, adjustable=True)


def settings_layout(d: Dimensions) -> data.StructLayout:
    """`limits` of the matching unit; the words of the token queue's backing memory that are used."""
    return data.StructLayout({"limits": limits_layout(d), "queue_words": bits_for(d.queue_words)})


def settings(d: Dimensions) -> dict[str, Any]:
    """The settings with which a core of these dimensions is used as a whole."""
    return {"limits": d.limits, "queue_words": d.queue_words}
