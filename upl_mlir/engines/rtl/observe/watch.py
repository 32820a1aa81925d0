"""What the cores of a machine did, cycle by cycle: the words of their ports `watch`, as arrays of events."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# Amaranth's layouts are untyped.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from amaranth.lib import data
from numpy.typing import NDArray

from upl_mlir.hw.core.code.encode import Encoded
from upl_mlir.hw.core.layouts import Dimensions, watch_layout
from upl_mlir.hw.image import ProgramImage
from upl_mlir.hw.results import HostToken

Words = NDArray[Any]


@dataclass(frozen=True)
class Events:
    """Events of one kind, in the order of cycles: `cycle`, `core`, and what is known of each by name."""

    cycle: Words
    core: Words
    columns: dict[str, Words]

    def rows(self, *names: str) -> list[tuple[int, ...]]:
        """Cycle, core and the columns of these names, event by event."""
        columns = [self.cycle, self.core, *(self.columns[name] for name in names)]
        return list(zip(*(cast("list[int]", c.tolist()) for c in columns), strict=True))


@dataclass(frozen=True)
class Recorded:
    """A run that was watched: the program as it ran, the host's tokens, and what the cores did."""

    image: ProgramImage
    program: Encoded
    tokens: Sequence[HostToken]
    dimensions: Dimensions
    seen: dict[str, Events]


def events(seen: NDArray[Any], d: Dimensions) -> dict[str, Events]:
    """What was seen (`Report.seen`), by what happened: `taken`, `fired`, `sent`, `added` (also in a store beside);
    and `used`: the records in a core's store, wherever it did something or their number changed."""
    words = np.ascontiguousarray(seen["words"]).astype(np.uint64)
    cycle, core = seen["cycle"], seen["core"]
    out = {"used": Events(cycle, core, {"records": seen["used"]})}
    for name, field in watch_layout(d):
        layout = cast("data.StructLayout", field.shape)
        here = _bits(words, field.offset + layout["valid"].offset, 1) != 0
        columns: dict[str, Words] = {}
        for column, offset, width in _columns(layout, field.offset):
            columns[column] = _bits(words[here], offset, width)
        out[name] = Events(cycle[here], core[here], columns)
    if "added_beside" in out:  # those of a gather are all in the one or in the other
        out["added"] = _joined(out["added"], out.pop("added_beside"))
    return out


def _joined(one: Events, other: Events) -> Events:
    """The events of both in the order of cycles."""
    cycle = np.concatenate([one.cycle, other.cycle])
    order = np.argsort(cycle, kind="stable")
    columns = {name: np.concatenate([c, other.columns[name]])[order] for name, c in one.columns.items()}
    return Events(cycle[order], np.concatenate([one.core, other.core])[order], columns)


def _columns(layout: data.StructLayout, base: int) -> list[tuple[str, int, int]]:
    """The fields of an event, those of a token within it included: name, first bit, width."""
    out: list[tuple[str, int, int]] = []
    for name, field in layout:
        if isinstance(field.shape, data.StructLayout):
            out += _columns(field.shape, base + field.offset)
        elif name != "valid":
            out.append((str(name), base + field.offset, field.width))
    return out


def _bits(words: Words, first: int, width: int) -> Words:
    """So many bits from a place on, of each row of 32-bit words; more than 64 come as Python's integers."""
    wide = width > 64
    total: Words = np.zeros(len(words), object if wide else np.uint64)
    for n in range(first // 32, (first + width - 1) // 32 + 1):
        shift = 32 * n - first
        word: Words = words[:, n].astype(object) if wide else words[:, n]
        total = total | (word << shift if shift >= 0 else word >> -shift)
    return total & ((1 << width) - 1)
