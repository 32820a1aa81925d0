"""What the passes on netlists make of a circuit, and that it still shows what Amaranth's simulator does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib.memory import Memory

sys.path.insert(0, str(Path(__file__).resolve().parent))
import circuits
from circuits import Circuit

from upl_mlir.hw.sim import build
from upl_mlir.hw.verilog import netlist
from upl_mlir.netsim import expression, lower, vector
from upl_mlir.netsim import read as reader
from upl_mlir.netsim.linear import join_parities, tables
from upl_mlir.netsim.read import Netlist, width
from upl_mlir.netsim.simplify import simplify
from upl_mlir.netsim.split import split

pytestmark = pytest.mark.skipif(not build.available(), reason="no C++ compiler")
CYCLES = 100
MASKS = [0x9E3779B97F4A7 >> n & (1 << 48) - 1 for n in range(5)]


def hashed(key: Any) -> Any:
    """A key of 48 bits, hashed to 5."""
    return Cat((key & mask).xor() for mask in MASKS)


def hashes(m: Module, inputs: list[Any]) -> list[Any]:
    """One of two keys that are constant in different places is chosen after both are hashed."""
    a, b, choice = inputs
    kept = Signal(5)
    m.d.sync += kept.eq(Mux(choice[0], hashed(Cat(a, Const(5, 8))), Mux(choice[1], hashed(Cat(Const(9, 8), b)), 0)))
    return [kept]


def twins(m: Module, inputs: list[Any]) -> list[Any]:
    """Two memories in which the same is written, two registers that are one, one that is constant, one that nobody sees."""
    row, data, write = inputs
    read: list[Any] = []
    for name in ("left", "right"):
        m.submodules[name] = memory = Memory(shape=unsigned(70), depth=16, init=[3, 1 << 69])
        port = memory.write_port()
        m.d.comb += [port.addr.eq(row), port.data.eq(data), port.en.eq(write)]
        read.append(memory.read_port(domain="comb"))
    m.d.comb += [read[0].addr.eq(row), read[1].addr.eq(row ^ 1)]
    a, b, none, unseen = (Signal(9, name=name) for name in ("a", "b", "none", "unseen"))
    m.d.sync += [a.eq(data[:9] + row), b.eq(data[:9] + row), none.eq(a ^ b), unseen.eq(unseen ^ row)]
    return [read[0].data, read[1].data, a, b, none]


def passed(circuit: Circuit) -> Netlist:
    """The netlist after all passes."""
    net = reader.read(netlist(circuit, "circuit"), "circuit", {})
    join_parities(net)
    split(net)
    simplify(net)
    return net


def agrees(folder: Path, circuit: Circuit) -> bool:
    """Whether the outputs are the same in all cycles, and not always the same."""
    inputs = circuits.stimuli(circuit.shapes, CYCLES, 1)
    rows = circuits.by_amaranth(circuit, inputs)
    assert len({tuple(row) for row in rows}) > 10
    return circuits.by_us(folder, {"circuit": circuit}, {"circuit": inputs})["circuit"] == rows


def test_the_chosen_key_is_hashed_once(tmp_path: Path) -> None:
    circuit = Circuit([unsigned(40), unsigned(40), unsigned(2)], hashes)
    kinds = [cell.type for cell in passed(circuit).cells]
    assert kinds.count("linear") == 1
    assert "reduce_xor" not in kinds
    assert agrees(tmp_path, circuit)


def test_a_wrong_table_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(maps: tuple[int, ...], wide: int) -> list[list[int]]:
        (first, *rest) = tables(maps, wide)
        return [[row ^ (n & 1) for n, row in enumerate(first)], *rest]

    monkeypatch.setattr(lower, "tables", changed)
    assert not agrees(tmp_path, Circuit([unsigned(40), unsigned(40), unsigned(2)], hashes))


def test_what_is_the_same_is_there_once(tmp_path: Path) -> None:
    circuit = Circuit([unsigned(4), unsigned(70), unsigned(1)], twins)
    net = passed(circuit)
    assert len(net.memories) == 1
    assert [r.word.width for r in net.registers] == [9]
    assert agrees(tmp_path, circuit)


def test_fields_of_long_words_are_words() -> None:
    """A record that is chosen and kept is worked on field by field, as many together as fit a machine word."""

    def record(m: Module, inputs: list[Any]) -> list[Any]:
        kept = Signal(150)
        m.d.sync += kept.eq(Mux(inputs[1], inputs[0], kept))
        return [kept[:40], kept[40:90], kept[90:]]

    net = passed(Circuit([unsigned(150), unsigned(1)], record))
    assert sorted(r.word.width for r in net.registers) == [40, 50, 60]
    assert sorted(width(cell.inputs["A"]) for cell in net.cells if cell.type == "mux") == [40, 50, 60]


def test_the_mask_of_a_number_is_its_lowest_bit() -> None:
    assert [vector.mask(expression.number(n)) for n in range(4)] == ["NONE", "ALL", "NONE", "ALL"]
