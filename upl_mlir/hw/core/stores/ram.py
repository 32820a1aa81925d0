"""Memories for records: read in a cycle, written at its end, the write seen by the read; with parity if the core has it."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# Amaranth's values are untyped.

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Module, Shape, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory

from upl_mlir.hw.core.layouts import Dimensions


@dataclass(frozen=True)
class Ram:
    """The ends of one memory. To drive: `address` of the next read and `reads` (1 if nothing drives it), `place` and
    `written` of the write and whether it is done (`writes`). To read: the word `found`, and whether its parity is wrong
    (`corrupt`)."""

    address: Any
    reads: Any
    found: Any
    corrupt: Any
    place: Any
    written: Any
    writes: Any


def ram(m: Module, d: Dimensions, name: str, shape: Any, depth: int) -> Ram:
    """A memory of `depth` words of a layout or a width, as a submodule of that name."""
    bits = Shape.cast(shape).width
    memory = Memory(shape=bits + d.parity, depth=depth, init=[])
    m.submodules[name] = memory
    write = memory.write_port()
    read = memory.read_port(transparent_for=(write,))
    written = Signal(shape, name=f"{name}_written")
    raw = Value.cast(written)
    m.d.comb += write.data.eq(Cat(raw, raw.xor()) if d.parity else raw)
    word = read.data[:bits]
    found = data.View(shape, word) if isinstance(shape, data.Layout) else word
    return Ram(read.addr, read.en, found, read.data.xor() if d.parity else Const(0, 1), write.addr, written, write.en)
