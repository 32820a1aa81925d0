"""The associative memory of organisation `cam`: registers and a ternary comparator per entry.

The registers are kept bit by bit: one signal holds bit b of the tags of *all* entries.  Each statement then works on
all entries at once; that is the same netlist as a comparator per entry, and Amaranth's simulator runs it as a few
operations on wide integers.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from upl_mlir.hw.matching_unit.interface import Dimensions, Fault


class LowestBit(wiring.Component):
    """Finds the lowest 1 of a vector, combinationally.

    bits (in, `width`): the vector.  found (out, 1): some bit is 1.  onehot (out, `width`): only the lowest 1, or 0.
    index (out): its number, 0 if there is none.
    """

    def __init__(self, width: int):
        self.width = width
        super().__init__(
            {"bits": In(width), "found": Out(1), "onehot": Out(width), "index": Out(bits_for(width - 1))},
        )

    def elaborate(self, platform: object) -> Module:
        """x & -x leaves the lowest 1; bit k of its number is 1 if it lies in a place whose number has bit k."""
        m = Module()
        m.d.comb += self.onehot.eq(self.bits & (~self.bits + 1))
        m.d.comb += self.found.eq(self.bits != 0)
        for k in range(len(self.index)):
            places = sum(1 << place for place in range(self.width) if place >> k & 1)
            m.d.comb += self.index[k].eq((self.onehot & places) != 0)
        return m


class Cam(wiring.Component):
    """The match part of the store: which entries are occupied, and which of them a key matches.

    Key, held by the user while it reads `hits`: key_gather (in, 1), key_node (in, node_bits), key_input (in,
    input_bits), key_tag (in, tag_bits), key_wild (in, tag_bits; 1 = this bit of the tag matches anything).
    hits (out, capacity): one bit per entry, combinational from the key: occupied, same kind, node and input, and
    tags equal wherever neither has a wild bit.

    write (in, 1): at the clock edge occupy entry `write_entry` (in, entry_bits) with the key as it stands.
    free (in, 1): at the clock edge empty entry `free_entry` (in, entry_bits).
    occupied (out, capacity): one bit per entry.
    """

    def __init__(self, dim: Dimensions, fault: Fault | None = None):
        self.dim = dim
        self.fault = fault
        super().__init__(
            {
                "key_gather": In(1),
                "key_node": In(dim.node_bits),
                "key_input": In(dim.input_bits),
                "key_tag": In(dim.tag_bits),
                "key_wild": In(dim.tag_bits),
                "hits": Out(dim.capacity),
                "write": In(1),
                "write_entry": In(dim.entry_bits),
                "free": In(1),
                "free_entry": In(dim.entry_bits),
                "occupied": Out(dim.capacity),
            },
        )

    def elaborate(self, platform: object) -> Module:
        """A mismatch in any bit position clears an entry's hit."""
        m = Module()
        size = self.dim.capacity
        full = (1 << size) - 1
        exact = Cat(self.key_gather, self.key_node, self.key_input)
        key = Signal(len(exact))
        m.d.comb += key.eq(exact)
        exact_columns = [Signal(size, name=f"exact{b}") for b in range(len(key))]
        tag_columns = [Signal(size, name=f"tag{b}") for b in range(self.dim.tag_bits)]
        care_columns = [Signal(size, name=f"care{b}") for b in range(self.dim.tag_bits)]

        # Kept in two steps: the exact part changes less often than the tag.
        candidates = Signal(size)
        same = self.occupied
        for b, column in enumerate(exact_columns):
            same = same & Mux(key[b], column, ~column)
        m.d.comb += candidates.eq(same)
        groups = []
        for first in range(0, self.dim.tag_bits, 8):
            differs = Const(0, size)
            for b in range(first, min(first + 8, self.dim.tag_bits)):
                column = tag_columns[b]
                differs = differs | (Mux(self.key_wild[b], 0, Mux(self.key_tag[b], ~column, column)) & care_columns[b])
            group = Signal(size, name=f"differs{first}")
            m.d.comb += group.eq(differs)
            groups.append(group)
        mismatch = Const(0, size)
        for group in groups:
            mismatch = mismatch | group
        stuck = self.fault is Fault.MATCH_STUCK_AT_0
        m.d.comb += self.hits.eq(0 if stuck else candidates & ~mismatch)

        place = Signal(size)
        m.d.comb += place.eq(Const(1, 1) << self.write_entry)
        with m.If(self.write):
            for b, column in enumerate(exact_columns):
                m.d.sync += column.eq((column & ~place) | Mux(key[b], place, 0))
            for b in range(self.dim.tag_bits):
                tag, care = tag_columns[b], care_columns[b]
                m.d.sync += tag.eq((tag & ~place) | Mux(self.key_tag[b], place, 0))
                m.d.sync += care.eq((care & ~place) | Mux(self.key_wild[b], 0, place))
        with m.If(self.write | self.free):
            kept = self.occupied & ~Mux(self.free, Const(1, 1) << self.free_entry, 0)
            m.d.sync += self.occupied.eq((kept | Mux(self.write, place, 0)) & full)
        return m
