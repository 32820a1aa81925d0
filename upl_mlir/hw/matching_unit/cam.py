"""The associative memory of organisation `cam`: registers and a ternary comparator per entry, and who of those hit is next.

It is written three times. Here the registers are kept bit by bit: one signal holds bit b of the tags of *all* entries, so
that Amaranth's simulator runs each statement as an operation on wide integers. Verilog made of that has vectors as wide
as there are entries, which tools that read it take badly; so all Verilog has `upl_cam.v` in its place, loops over arrays,
and compiled simulation `upl_cam.h`, the same in C++. The first two are proved to be equal on small instances
(`test/hw/formal/test_cam.py`); the last one is compared with the first on random inputs (`test/hw/sim/test_upl_cam.py`).
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from importlib import resources

from amaranth.hdl import Array, ClockSignal, Const, Instance, Module, Mux, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from upl_mlir.hw.matching_unit.interface import Dimensions

VERILOG = object()
"""The platform for which an associative memory is `upl_cam.v`: given to Amaranth where Verilog is made."""
BANK = 64
"""Entries whose bits are a word in `upl_cam.v`."""


def cam_verilog() -> str:
    """The text of the module `upl_cam`, which belongs to what is elaborated for the platform `VERILOG`."""
    return resources.files("upl_mlir.hw.matching_unit").joinpath("upl_cam.v").read_text(encoding="utf-8")


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

    Key: key_exact (in, `exact_bits`: is it a gather's record, node, input), key_tag (in, tag_bits), key_wild (in, tag_bits;
    1 = this bit of the tag matches anything).

    search (in, 1): at the clock edge the entries that the key hits become the untried ones of `level` (in, one for each
    partner of a token): occupied, equal in `key_exact`, and in the tag wherever neither has a wild bit.
    pick (in, 1): found (out, 1) says whether the level has untried entries, partner (out, entry_bits) is the lowest one;
    otherwise both are 0. drop (in, 1), while `pick`: at the clock edge it is no longer untried.
    seek (in, 1): vacant (out, 1) says whether an entry up to `last_entry` (in, entry_bits) is empty, vacancy (out,
    entry_bits) is the lowest one; otherwise both are 0.

    write (in, 1): at the clock edge occupy `entry` (in, entry_bits) with the key.  free (in, 1), if not `write`: empty it.
    look (in, entry_bits): looked (out, 1) says whether that entry is occupied.
    """

    def __init__(self, dim: Dimensions):
        self.dim = dim
        self.levels = max(1, dim.max_inputs - 1)
        self.exact_bits = 1 + dim.node_bits + dim.input_bits
        entry = dim.entry_bits
        self.inputs = {
            "key_exact": self.exact_bits, "key_tag": dim.tag_bits, "key_wild": dim.tag_bits,
            "level": bits_for(self.levels), "search": 1, "pick": 1, "drop": 1, "seek": 1, "last_entry": entry,
            "write": 1, "free": 1, "entry": entry, "look": entry,
        }  # fmt: skip
        self.outputs = {"found": 1, "partner": entry, "vacant": 1, "vacancy": entry, "looked": 1}
        super().__init__(
            {name: In(width) for name, width in self.inputs.items()}
            | {name: Out(width) for name, width in self.outputs.items()}
        )

    def elaborate(self, platform: object) -> Module:
        """A mismatch in any bit position clears an entry's hit."""
        if platform is VERILOG:
            return self._instance()
        m = Module()
        size = self.dim.capacity
        occupied = Signal(size)
        # What an entry that is not occupied holds does not matter, nor what is untried before a search.
        exact_columns = [Signal(size, name=f"exact{b}", reset_less=True) for b in range(self.exact_bits)]
        tag_columns = [Signal(size, name=f"tag{b}", reset_less=True) for b in range(self.dim.tag_bits)]
        care_columns = [Signal(size, name=f"care{b}", reset_less=True) for b in range(self.dim.tag_bits)]

        # Kept in two steps: the exact part changes less often than the tag.
        candidates, hits = Signal(size), Signal(size)
        same = occupied
        for b, column in enumerate(exact_columns):
            same = same & Mux(self.key_exact[b], column, ~column)
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
        m.d.comb += hits.eq(candidates & ~mismatch)

        untried = Array(Signal(size, name=f"untried{n}", reset_less=True) for n in range(self.levels))
        m.submodules.lowest_hit = hit = LowestBit(size)
        m.submodules.lowest_vacancy = vacancy = LowestBit(size)
        m.d.comb += [
            hit.bits.eq(Mux(self.pick, untried[self.level], 0)), self.found.eq(hit.found), self.partner.eq(hit.index),
            vacancy.bits.eq(Mux(self.seek, ~occupied & ((Const(2, 2) << self.last_entry) - 1), 0)),
            self.vacant.eq(vacancy.found), self.vacancy.eq(vacancy.index),
            self.looked.eq((occupied >> self.look) & 1),
        ]  # fmt: skip
        with m.If(self.search):
            m.d.sync += untried[self.level].eq(hits)
        with m.Elif(self.drop):
            m.d.sync += untried[self.level].eq(hit.bits & ~hit.onehot)

        place = Signal(size)
        m.d.comb += place.eq(Const(1, 1) << self.entry)
        with m.If(self.write):
            m.d.sync += occupied.eq(occupied | place)
            for b, column in enumerate(exact_columns):
                m.d.sync += column.eq((column & ~place) | Mux(self.key_exact[b], place, 0))
            for b in range(self.dim.tag_bits):
                tag, care = tag_columns[b], care_columns[b]
                m.d.sync += tag.eq((tag & ~place) | Mux(self.key_tag[b], place, 0))
                m.d.sync += care.eq((care & ~place) | Mux(self.key_wild[b], 0, place))
        with m.Elif(self.free):
            m.d.sync += occupied.eq(occupied & ~place)
        return m

    def _instance(self, bank: int = BANK) -> Module:
        """The module `upl_cam` in banks of so many entries."""
        m = Module()
        banks = -(-self.dim.capacity // bank)
        parameters = {
            "BANKS": banks, "BANK": bank if banks > 1 else self.dim.capacity,
            "BANK_BITS": bits_for(bank - 1) if banks > 1 else self.dim.entry_bits, "ENTRY_BITS": self.dim.entry_bits,
            "EXACT_BITS": self.exact_bits, "TAG_BITS": self.dim.tag_bits,
            "LEVELS": self.levels, "LEVEL_BITS": len(self.level),
        }  # fmt: skip
        m.submodules.entries = Instance(
            "upl_cam", i_clk=ClockSignal(), i_rst=ResetSignal(allow_reset_less=True),
            **{f"p_{name}": value for name, value in parameters.items()},
            **{f"i_{name}": getattr(self, name) for name in self.inputs},
            **{f"o_{name}": getattr(self, name) for name in self.outputs},
        )  # fmt: skip
        return m
