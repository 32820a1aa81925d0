"""Proofs about the building blocks of circuits, for every sequence of enables; each is also seen to fail on a defect."""

# pyright: reportUnknownVariableType=false
# Amaranth's assertions are untyped.

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from amaranth.hdl import Array, Assert, Module, Mux, Signal

sys.path.insert(0, str(Path(__file__).resolve().parent))
import prove
from prove import assume, drive, fixed, free, with_defect

from upl_mlir.hw.circuit import blocks, loops, ram, streams

Build = Callable[[Module], None]


def holds(folder: Path, build: Build, depth: int) -> None:
    """Nothing is violated in so many clocks."""
    prove.holds(folder, build, depth, registers=True)


def fails(folder: Path, build: Build, depth: int) -> None:
    """Something is, with a defect."""
    prove.fails(folder, build, depth, registers=True)


@pytest.fixture(autouse=True)
def small_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memories of more than two words are block RAM, from which a word that is being written is read as anything."""
    hazy = with_defect(
        ram, "registered(m, read.data,",
        "registered(m, read.data ^ AnySeq(self.width) * (self.registers == 2)"
        " * (self.write_enable & (self.write_address == self.read_address)),",
    )  # fmt: skip
    hazy.AnySeq, hazy.LUT_WORDS = free, 2
    monkeypatch.setattr(ram, "Ram", hazy.Ram)
    monkeypatch.setattr(ram, "LUT_WORDS", 2)
    for module in (blocks, streams):
        monkeypatch.setattr(module, "Ram", hazy.Ram)
    for name, value in {"LUT_WORDS": 2, "REGISTERS": 2, "BANK": 3, "BANKED": 6}.items():
        monkeypatch.setattr(blocks, name, value)


def changed(module: ModuleType, old: str, new: str) -> ModuleType:
    """A module of blocks with a defect, and with the small memories."""
    copy = with_defect(module, old, new)
    for name in ("LUT_WORDS", "REGISTERS", "BANK", "BANKED"):
        if hasattr(blocks, name) and hasattr(copy, name):
            setattr(copy, name, getattr(blocks, name))
    return copy


# ---------------------------------------------------------------------------------------------------------------- delays


def delays(module: ModuleType, length: int) -> Build:
    """What goes in in any slot comes out `length` slots later, and stays while the lane stands still."""

    def build(m: Module) -> None:
        m.submodules.unit = unit = module.Delay(1, length)
        drive(m, unit.data_in, unit.enable)
        slot, of, followed = Signal(6), fixed(m, 5, "a_slot"), Signal()
        with m.If(unit.enable):
            m.d.sync += slot.eq(slot + 1)
            with m.If(slot == of):
                m.d.sync += followed.eq(unit.data_in)
        m.d.comb += Assert((slot != of + length) | (unit.data_out == followed))

    return build


@pytest.mark.parametrize("length", [3, 5, 7])
def test_a_delay_counts_slots(tmp_path: Path, length: int) -> None:
    """A memory in LUTs, a bank and what is left, and block RAM."""
    holds(tmp_path, delays(blocks, length), 2 * length + 3)


@pytest.mark.parametrize(
    ("length", "old", "new"),
    [
        (7, "self.depth - 2)]", "self.depth - 3)]"),  # the counter ends too early
        (6, "unit.length - BANK, unit", "unit.length - BANK + 1, unit"),
        (7, "init=first == self.depth - 1", "init=first == 0"),
        (7, "self.ram.registers - 1, ", "0, "),  # it is read a slot late, and in the clock in which it is written
    ],
)
def test_a_delay_with_a_defect_is_not(tmp_path: Path, length: int, old: str, new: str) -> None:
    fails(tmp_path, delays(changed(blocks, old, new), length), 2 * length + 3)


# ----------------------------------------------------------------------------------------------------------------- lanes


def lanes(module: ModuleType, length: int, lag: int, linked: bool = True) -> Build:
    """Lanes 0 to `lag` of a process: each has its enable a clock after the one before.  In each slot lane 0 sends a word
    from lane to lane, and gets the word that the last lane had `length` slots before."""

    def build(m: Module) -> None:
        enables = [Signal(name=f"enable_{p}") for p in range(lag + 1)]
        start = Signal(init=1)
        m.d.sync += [start.eq(0), *(after.eq(before) for before, after in pairwise(enables))]
        drive(m, enables[0])
        assume(m, ~(start & enables[0]))
        m.submodules.unit = unit = module.Crossing(2, length, lag)
        # Any word, which stays while the lane stands still; that of one slot, any one, is followed.
        word, followed, of = Signal(2), Signal(2), fixed(m, 4, "a_slot")
        with m.If(enables[0]):
            m.d.sync += word.eq(free(2))
        value = word
        slots = [Signal(5, name=f"slot_{p}") for p in range(lag + 1)]
        with m.If(enables[0] & (slots[0] == of)):
            m.d.sync += followed.eq(word)
        for p, (enable, slot) in enumerate(zip(enables, slots, strict=True)):
            with m.If(enable):
                m.d.sync += slot.eq(slot + 1)
            if p:
                register = Signal(2, name=f"link_{p}")
                m.d.sync += register.eq(value)
                value = register if linked else value
                m.d.comb += Assert(~(enable & (slot == of)) | (value == followed))
        m.d.comb += [
            unit.data_in.eq(value), unit.write_enable.eq(enables[-1]), unit.read_enable.eq(enables[0]),
            Assert(~(enables[0] & (slots[0] == of + length)) | (unit.data_out == followed)),
        ]  # fmt: skip

    return build


@pytest.mark.parametrize(("length", "lag"), [(3, 1), (5, 1), (6, 3), (7, 1)])
def test_lanes_stay_in_step(tmp_path: Path, length: int, lag: int) -> None:
    holds(tmp_path, lanes(blocks, length, lag), 2 * length + 4)


@pytest.mark.parametrize(
    ("length", "lag", "old", "new"),
    [
        (2, 1, "lag + 2 if lag + 1", "lag + 1 if lag + 1"),
        (5, 3, "else lag + 3", "else lag + 2"),  # from block RAM
        (3, 1, "self._count(m, writes, 0,", "self._count(m, reads, 0,"),
    ],
)
def test_lanes_with_a_defect_do_not(tmp_path: Path, length: int, lag: int, old: str, new: str) -> None:
    fails(tmp_path, lanes(changed(blocks, old, new), length, lag), 2 * length + 4)


def test_lanes_without_registers_between_them_do_not(tmp_path: Path) -> None:
    fails(tmp_path, lanes(blocks, 4, 1, linked=False), 8)


# ----------------------------------------------------------------------------------------------------------------- loops


def nests(module: ModuleType, extents: list[int], idle: list[int]) -> Build:
    """The counters are those that the number of the slot, counted from the start, says in a table."""

    def slots(level: int) -> list[list[int] | None]:
        if level == len(extents):
            return [[]]
        return [one and [n, *one] if one else ([n] if one == [] else None) for n in range(extents[level])
                for one in slots(level + 1)] + [None] * idle[level]  # fmt: skip

    def build(m: Module) -> None:
        m.submodules.unit = unit = module.LoopNest(extents, idle)
        drive(m, unit.start, unit.enable)
        table = slots(0)
        active, slot = Signal(), Signal(range(len(table)))
        last = slot == len(table) - 1
        with m.If(unit.enable & active):
            m.d.sync += slot.eq(Mux(last, 0, slot + 1))
        with m.If(unit.enable & (~active | last)):
            m.d.sync += active.eq(unit.start)
        iterates = Array(int(one is not None) for one in table)[slot]
        m.d.comb += [Assert(unit.running == (active & iterates)), Assert(unit.last == (active & last))]
        for k, counter in enumerate(unit.counters):
            expected = Array(one[k] if one is not None else 0 for one in table)[slot]
            m.d.comb += Assert(~(active & iterates) | (counter == expected))

    return build


NESTS = [([2, 3], [2, 1]), ([2, 1, 2], [0, 1, 0]), ([3, 2], [0, 0])]


@pytest.mark.parametrize(("extents", "idle"), NESTS, ids=str)
def test_a_nest_goes_through_its_iterations(tmp_path: Path, extents: list[int], idle: list[int]) -> None:
    """Two runs, and whatever is between them."""
    holds(tmp_path, nests(loops, extents, idle), 2 * loops.LoopNest(extents, idle).slots + 5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("~full[0] | self.start", "~full[0]"),  # no run follows another one
        ("reversed(range(len(total)))", "range(len(total))"),  # the innermost wait
        ("inner & reduce", "reduce"),
        ("ends.eq(left == 1)", "ends.eq(left == 2)"),
    ],
)
def test_a_nest_with_a_defect_does_not(tmp_path: Path, old: str, new: str) -> None:
    fails(tmp_path, nests(with_defect(loops, old, new), [2, 3], [2, 1]), 25)


# --------------------------------------------------------------------------------------------------------------- streams


def takes_in(module: ModuleType) -> Build:
    """The source gives 0, 1, 2, … modulo 16, and the circuit gets these; there are never more than two on the way."""

    def build(m: Module) -> None:
        m.submodules.unit = unit = module.StreamIn(4)
        drive(m, unit.tvalid, unit.take)
        given, taken, inside = Signal(4), Signal(4), Signal(4)
        m.d.sync += [given.eq(given + (unit.tvalid & unit.tready)), taken.eq(taken + (unit.valid & unit.take))]
        m.d.comb += [
            unit.tdata.eq(given), inside.eq(given - taken),
            Assert(inside == unit.valid + ~unit.tready), Assert(unit.valid | unit.tready),
            Assert(~unit.valid | (unit.data == taken)),
        ]  # fmt: skip

    return build


def test_a_stream_comes_in_whole(tmp_path: Path) -> None:
    holds(tmp_path / "good", takes_in(streams), 12)
    for n, (old, new) in enumerate(
        [("with m.If(self.tready):", "with m.If(goes):"), ("goes | self.tready &", "goes |")]
    ):
        fails(tmp_path / f"defect{n}", takes_in(with_defect(streams, old, new)), 8)


def gives_out(module: ModuleType, depth: int, reserve: int) -> Build:
    """The words 0, 1, 2, … modulo 8 come out in order and stay until they are taken, whatever of its reserve the writer
    uses; there is room if and only if that many fit; and a word does not wait if the sink takes what it is offered."""

    def build(m: Module) -> None:
        m.submodules.unit = unit = module.StreamOut(3, depth, reserve)
        drive(m, unit.write, unit.tready)
        given, taken = Signal(3), Signal(3)
        inside, may, waited, late = Signal(range(depth + 5)), Signal(range(reserve + 1)), Signal(), Signal(3)
        takes = unit.tvalid & unit.tready
        allowed = Mux(unit.room, reserve, may)
        assume(m, ~unit.write | (allowed != 0))
        m.d.sync += [
            may.eq(allowed - unit.write), given.eq(given + unit.write), taken.eq(taken + takes),
            inside.eq(inside + unit.write - takes), waited.eq(unit.tvalid & ~unit.tready),
            late.eq(Mux((inside == 0) | unit.tvalid, 0, late + (late != 4))),
        ]  # fmt: skip
        m.d.comb += [
            unit.data.eq(given), unit.last.eq(given[0] ^ given[2]), Assert(inside <= depth + 4), Assert(late < 4),
            Assert(~waited | unit.tvalid), Assert(~unit.tvalid | (inside != 0)),
            Assert(~unit.tvalid | (unit.tdata == taken) & (unit.tlast == taken[0] ^ taken[2])),
            Assert(unit.room | (inside > depth - reserve)), Assert(~unit.room | (inside <= depth - reserve + 4)),
        ]  # fmt: skip

    return build


@pytest.mark.parametrize(("depth", "reserve"), [(2, 1), (4, 3)])
def test_a_stream_goes_out_whole(tmp_path: Path, depth: int, reserve: int) -> None:
    holds(tmp_path, gives_out(streams, depth, reserve), 12)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.reserve - self.depth - 1", "self.reserve - self.depth - 2"),  # there is room for one more than there is
        ("moves & ~more[-1]", "~more[-1]"),
        ("moves.eq(end.tready)", "moves.eq(1)"),  # words come though the end has no place
        ("coming.eq(reads)", "coming.eq(~more[-1] | self.write)"),  # a word is read before it is there
    ],
)
def test_a_stream_with_a_defect_does_not(tmp_path: Path, old: str, new: str) -> None:
    fails(tmp_path, gives_out(changed(streams, old, new), 4, 3), 10)
