"""Proofs about what carries tokens: the token queue with its backing memory, and the networks between cores."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from amaranth.hdl import Assert, Cat, Module, Mux, Signal

sys.path.insert(0, str(Path(__file__).resolve().parent))
from prove import assume, drive, fails, fixed, holds, with_defect

from upl_mlir.hw.core import queue
from upl_mlir.hw.machine import Topology
from upl_mlir.hw.network import network, parts

Build = Callable[[Module], None]


def in_order(module: ModuleType, front: int, words: int, latency: int) -> Build:
    """The n-th token that goes in is the n-th that comes out, soon after it is first; `level` counts those inside; tokens
    are refused only when the backing memory is full."""

    def build(m: Module) -> None:
        m.submodules.unit = unit = module.TokenQueue(2, front, words, latency)
        drive(m, unit.w_valid, unit.w_data, unit.r_ready)
        number = fixed(m, 4, "number")
        came, went, token = Signal(5), Signal(5), Signal(2)
        comes, goes = unit.w_valid & unit.w_ready, unit.r_valid & unit.r_ready
        m.d.sync += [came.eq(came + comes), went.eq(went + goes)]
        with m.If(comes & (came == number)):
            m.d.sync += token.eq(unit.w_data)
        late = Signal(range(16))
        m.d.sync += late.eq(Mux(unit.r_valid | (came == went), 0, late + (late != 15)))
        inside = Signal(5)
        m.d.comb += inside.eq(came - went)
        m.d.comb += [
            Assert(~(goes & (went == number)) | (unit.r_data == token)),
            Assert(unit.level == inside),
            Assert(~unit.r_valid | (inside != 0)),
            Assert(late <= latency + 3),
            Assert(unit.w_ready | (inside >= words)),
        ]

    return build


def test_token_queue(tmp_path: Path) -> None:
    holds(tmp_path / "good", in_order(queue, 3, 3, 2), 12)
    for n, (old, new) in enumerate((
        ("direct.eq((held == 0) & (asked == 0) & fifo.w_rdy)", "direct.eq((held == 0) & fifo.w_rdy)"),  # overtakes
        ("room.eq(held + asked < self.used_words)", "room.eq(1)"),  # overwritten
        ("fifo.level + asked < self.front", "fifo.level < self.front"),  # more is read than there is room for
    )):  # fmt: skip
        fails(tmp_path / f"defect{n}", in_order(with_defect(queue, old, new), 3, 3, 2), 14)


def delivers(module: ModuleType, cores: int, topology: Topology, alone: bool = False) -> Build:
    """A marked token, any one among any others, arrives at its core and nowhere else, once, as it was sent; and it does
    so in time when cores take everything and send nothing more. `alone`: there are no others."""
    bits = module.CORE_BITS

    def build(m: Module) -> None:
        m.submodules.unit = unit = module.Network(2, cores, topology, 2, 1)
        sender, home, symbol = fixed(m, bits, "sender"), fixed(m, bits, "home"), fixed(m, 1, "symbol")
        sent, received = Signal(), Signal()
        goes, comes, quiet = [], [], []
        for n in range(cores):
            valid, ready, words = (getattr(unit, f"sent_{part}_{n}") for part in ("valid", "ready", "data"))
            out, take, token = (getattr(unit, f"token_{part}_{n}") for part in ("valid", "ready", "data"))
            drive(m, valid, words, take)
            target, mark = words[:bits], words[bits]
            assume(m, ~valid | ((target < cores) & (target != n)))
            assume(m, ~(valid & mark) | ((sender == n) & (home == target) & ~sent & (words[-1] == symbol)))
            assume(m, mark | ~valid if alone else 1)
            goes.append(valid & ready & mark)
            comes.append(out & take & token[0])
            quiet.append(take & ~valid)
            m.d.comb += Assert(~(out & token[0]) | (sent & ~received & (home == n) & (token[1] == symbol)))
        with m.If(Cat(*goes).any()):
            m.d.sync += sent.eq(1)
        with m.If(Cat(*comes).any()):
            m.d.sync += received.eq(1)
        late = Signal(range(16))
        m.d.sync += late.eq(Mux(Cat(*quiet).all() & (sent & ~received), late + (late != 15), 0))
        m.d.comb += Assert(late <= (3 if topology is Topology.CROSSBAR else 5))

    return build


@pytest.mark.parametrize(
    ("topology", "cores", "depth", "alone"),
    [(Topology.CROSSBAR, 3, 9, 6), (Topology.RING, 3, 6, 10), (Topology.MESH, 4, 5, 10)],
)
def test_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology: Topology, cores: int, depth: int, alone: int
) -> None:  # fmt: skip
    monkeypatch.setattr(network, "CORE_BITS", 2)
    holds(tmp_path / "alone", delivers(network, cores, topology, alone=True), alone)
    holds(tmp_path / "crowd", delivers(network, cores, topology), depth)
    # What was taken comes again; what is refused is lost, which needs others in the way.
    again, lost = ("source.taken.eq(Cat(*by).any())", "source.taken.eq(0)"), ("grants[k] & sink.ready", "grants[k]")
    monkeypatch.setattr(network, "switch", with_defect(parts, *again).switch)
    fails(tmp_path / "again", delivers(network, cores, topology, alone=True), alone)
    if topology is Topology.CROSSBAR:
        monkeypatch.setattr(network, "switch", with_defect(parts, *lost).switch)
        fails(tmp_path / "lost", delivers(network, cores, topology), depth)
