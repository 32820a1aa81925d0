"""Proofs about circuits on a bus, for every behaviour of the bus and of the circuit: each word goes where it belongs, and
bursts keep the rules of Wishbone; each proof is also seen to fail on a defect."""

# pyright: reportUnknownVariableType=false
# Amaranth's assertions are untyped.

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from amaranth.hdl import Array, Assert, Module, Mux, Signal

sys.path.insert(0, str(Path(__file__).resolve().parent))
import prove
from prove import assume, drive, fixed, with_defect

from upl_mlir.hw.circuit.bus import bursts, master, port
from upl_mlir.hw.circuit.bus.layout import Walk

Build = Callable[[Module], None]


def walks(module: ModuleType, walk: Walk) -> Build:
    """The bursts are those of the walk, in each of several runs at any base."""

    def build(m: Module) -> None:
        m.submodules.unit = unit = module.Bursts(walk, 6)
        drive(m, unit.start, unit.take)
        base = fixed(m, 6, "base")
        m.d.comb += unit.base.eq(base)
        table = [*walk.bursts()]
        under_way, at = Signal(), Signal(range(len(table)))
        with m.If(under_way & unit.take):
            m.d.sync += [at.eq(Mux(at == len(table) - 1, 0, at + 1)), under_way.eq(at != len(table) - 1)]
        with m.Elif(~under_way):
            m.d.sync += under_way.eq(unit.start)
        m.d.comb += [
            Assert(unit.valid == under_way),
            Assert(~under_way | (unit.address == (base + Array(first for first, _ in table)[at])[:6])),
            Assert(~under_way | (unit.length == Array(length for _, length in table)[at])),
        ]  # fmt: skip

    return build


WALKS = [
    Walk(0, (), 3, 3), Walk(3, ((3, 4),), 1, 1), Walk(1, ((2, 10), (3, 2)), 2, 1), Walk(0, ((2, 1), (2, 7), (2, 3)), 1, 1)
]  # fmt: skip


def clocks(walk: Walk) -> int:
    """Two runs if they are short, or one with the beginning of the next."""
    n = len([*walk.bursts()])
    return n + 4 + min(n, 4)


@pytest.mark.parametrize("walk", WALKS, ids=str)
def test_bursts_walk_over_an_array(tmp_path: Path, walk: Walk) -> None:
    prove.holds(tmp_path, walks(bursts, walk), clocks(walk))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("inner += (n - 1) * stride", "inner = (n - 1) * stride"),  # loops further inside have added something, too
        ("nest.carry[len(loops) - 1], self", "nest.carry[0], self"),
        ("self.start & ~self.valid", "self.start"),  # a run is begun by the last one's end
    ],
)
def test_bursts_with_a_defect_do_not(tmp_path: Path, old: str, new: str) -> None:
    walk = WALKS[3] if "inner" in old else WALKS[2]
    prove.fails(tmp_path, walks(with_defect(bursts, old, new), walk), clocks(walk))


def passes(of_master: ModuleType, of_port: ModuleType) -> Build:
    """A master with a port that reads and one that writes, in a run each.  Each word of memory is its address, and each
    word of the circuit its number."""
    reads, writes, most = Walk(1, ((3, 2),), 2, 2), Walk(3, (), 2, 2), 2

    def build(m: Module) -> None:
        m.submodules.master = bus = of_master.Master(1, 1, most)
        m.submodules.source = source = of_port.Port(reads, False, 3, most)
        m.submodules.sink = sink = of_port.Port(writes, True, 3, most)
        begun, reading, writing = Signal(), Signal(), Signal()  # bursts taken over in the clock before
        m.d.sync += [begun.eq(1), reading.eq(bus.begin_0), writing.eq(bus.begin_1)]
        drive(m, bus.ack, source.ready, sink.valid)
        asked = bus.cyc & bus.stb
        assume(m, ~bus.ack | asked)
        m.d.comb += [bus.dat_r.eq(bus.adr), source.word.eq(bus.dat_r), bus.word_1.eq(sink.word)]
        for n, p in enumerate((source, sink)):
            m.d.comb += [
                p.start.eq(~begun), getattr(bus, f"request_{n}").eq(p.request), getattr(bus, f"address_{n}").eq(p.address),
                getattr(bus, f"length_{n}").eq(p.length), p.begin.eq(getattr(bus, f"begin_{n}")),
                p.passes.eq(getattr(bus, f"pass_{n}")),
            ]  # fmt: skip
        # The stream that the circuit gets, and what is written.
        places = {name: [a + i for a, n in w.bursts() for i in range(n)] for name, w in (("in", reads), ("out", writes))}
        got, given, written, fetched = (Signal(3, name=name) for name in ("got", "given", "written", "fetched"))
        late = Signal(2)  # clocks in which the circuit is not offered what was fetched
        passed = asked & bus.ack
        m.d.sync += [
            got.eq(got + (source.valid & source.ready)), given.eq(given + (sink.valid & sink.ready)),
            written.eq(written + (passed & bus.we)), fetched.eq(fetched + (passed & ~bus.we)),
            late.eq(Mux((fetched == got) | source.valid, 0, late + (late != 2))),
        ]  # fmt: skip
        m.d.comb += [
            sink.data.eq(given), Assert(late < 2),
            Assert(~source.valid | (got < len(places["in"])) & (source.data == Array(places["in"])[got])),
            Assert(~(asked & bus.we) | (written < len(places["out"])) & (bus.adr == Array(places["out"])[written])),
            Assert(~(asked & bus.we) | (written < given) & (bus.dat_w == written)),
            Assert(~reading | asked & ~bus.we), Assert(~writing | asked & bus.we),
        ]  # fmt: skip
        rules(m, bus)

    return build


def rules(m: Module, bus: object) -> None:
    """Of Wishbone, with registered feedback."""
    asked, last = bus.cyc & bus.stb, Signal(3)
    before = {n: Signal.like(getattr(bus, n), name=f"{n}_before") for n in ("adr", "we", "cti", "dat_w", "sel")}
    m.d.sync += [one.eq(getattr(bus, n)) for n, one in before.items()]
    waits, follows, ends = last[0], last[1], last[2]
    m.d.sync += [
        waits.eq(asked & ~bus.ack), follows.eq(asked & bus.ack & (bus.cti == 2)),
        ends.eq(asked & bus.ack & (bus.cti != 2)),
    ]  # fmt: skip
    m.d.comb += [
        Assert(bus.cyc == bus.stb),
        *(Assert(~waits | asked & (getattr(bus, n) == one) | (~bus.we & (n == "dat_w"))) for n, one in before.items()),
        Assert(~follows | asked & (bus.adr == before["adr"] + 1) & (bus.we == before["we"]) & (bus.cti != 0)),
        Assert(~ends | ~bus.cyc), Assert(~asked | (bus.cti == 0) | (bus.cti == 2) | (bus.cti == 7)),
        Assert(~(asked & (last == 0)) | (bus.cti != 7)),
    ]  # fmt: skip


DEPTH = 17
"""Clocks in which both runs end, if little waits."""


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses and words of a few bits."""
    for module in (master, port):
        monkeypatch.setattr(module, "ADDRESS", 3)
        monkeypatch.setattr(module, "WORD", 3)


@pytest.mark.usefixtures("narrow")
def test_words_pass_in_their_order(tmp_path: Path) -> None:
    prove.holds(tmp_path, passes(master, port), DEPTH, registers=True)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        (port, "queue.w_level <= self.burst", "queue.w_level <= self.burst + 1"),  # a word has no room
        (port, "queue.r_level >= bursts.length", "queue.r_level != 0"),  # a word is not there
        (master, "m.d.comb += self.cti.eq(Cycle.LAST)", "m.d.comb += self.cti.eq(Cycle.GOES_ON)"),
        (master, "last.eq(left == 0)", "last.eq(left <= 1)"),
        (master, "free &= ~request", "free &= 1"),  # two bursts begin at once
    ],
)
def test_words_with_a_defect_do_not(tmp_path: Path, module: ModuleType, old: str, new: str) -> None:
    copy = with_defect(module, old, new)
    copy.ADDRESS, copy.WORD = module.ADDRESS, module.WORD
    build = passes(copy, port) if module is master else passes(master, copy)
    prove.fails(tmp_path, build, DEPTH, registers=True)
