"""However words are split into variables, models show the same."""

# pyright: reportUnknownVariableType=false
# Amaranth's values are untyped.

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Cat, Const, Module, Signal, unsigned

sys.path.insert(0, str(Path(__file__).resolve().parent))
import circuits
from circuits import Circuit
from test_netlist import complaints

from upl_mlir.hw.sim import build
from upl_mlir.hw.verilog import netlist
from upl_mlir.netsim import split, variables
from upl_mlir.netsim.read import WORD, Word

pytestmark = pytest.mark.skipif(not build.available(), reason="no C++ compiler")
Spans = Callable[[Word, int], list[tuple[int, int]]]


def pieces(ends: list[int]) -> list[tuple[int, int]]:
    """First bits and widths of pieces that end there, or sooner if they are too long."""
    out: list[tuple[int, int]] = []
    first = 0
    for end in ends:
        out += [(low, min(WORD, end - low)) for low in range(first, end, WORD)]
        first = max(first, end)
    return out


def every_cut(word: Word, bits: int) -> list[tuple[int, int]]:
    """Fields are not joined."""
    return pieces([*sorted(x for x in word.cuts if x < bits), bits])


def at_random(seed: int) -> Spans:
    rng = np.random.default_rng(seed)

    def spans(_: Word, bits: int) -> list[tuple[int, int]]:
        return pieces([*sorted(int(rng.integers(1, bits + 1)) for _ in range(int(rng.choice([0, 0, 1, 3])))), bits])

    return spans


def every(wide: int) -> Spans:
    return lambda _, bits: pieces([*range(wide, bits, wide), bits])


def records(m: Module, inputs: list[Any]) -> list[Any]:
    """Outputs of several pieces, short and long."""
    kept = Signal(30)
    m.d.sync += kept.eq(kept + inputs[0])
    return [Cat(inputs[0][:9], kept[3:20], inputs[1]), Cat(kept, inputs[1], kept[:7], inputs[0])]


def _with(monkeypatch: pytest.MonkeyPatch, spans: Spans) -> None:
    for module in (split, variables):
        monkeypatch.setattr(module, "spans", spans)


@pytest.mark.parametrize(
    ("spans", "lanes"), [(every_cut, 1), (at_random(1), build.lanes_for(2))], ids=["cuts", "random"]
)
def test_any_split_shows_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spans: Spans, lanes: int) -> None:
    _with(monkeypatch, spans)
    made = {"records": Circuit([unsigned(20), unsigned(33)], records), "random": circuits.random_circuit(2, 30)}
    assert not complaints(tmp_path, made, lanes)


@pytest.mark.parametrize("spans", [every_cut, every(1), every(13), at_random(2)])
def test_more_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spans: Spans) -> None:
    """Of more circuits, and of every kind of cell."""
    _with(monkeypatch, spans)
    assert not complaints(tmp_path, {"cells": circuits.cells(), "random": circuits.random_circuit(1, 60)})


def parities(key: Any, count: int) -> Any:
    return Cat((key & (0x9E3779B97F4A7C15F39CC0605CEDC834 >> n)).xor() for n in range(count))


def hidden(m: Module, inputs: list[Any]) -> list[Any]:
    """The last parity of a hash matters only where two registers differ that never do."""
    key, data, write = inputs
    left: Any = Signal(9, name="left")
    right: Any = Signal(9, name="right")
    m.d.sync += [left.eq(data), right.eq(data)]
    hashed = parities(key, 5)
    return [Cat(hashed[:4], write), hashed[4] & (left[0] ^ right[0])]


def many(m: Module, inputs: list[Any]) -> list[Any]:
    """More parities of a key than a machine word has bits."""
    kept = Signal(90)
    m.d.sync += kept.eq(kept + parities(inputs[0], 90))
    return [kept]


def whole(m: Module, inputs: list[Any]) -> list[Any]:
    """Parities as they are."""
    kept = Signal(5)
    m.d.sync += kept.eq(parities(inputs[0], 5))
    return [kept]


@pytest.mark.parametrize(
    ("lanes", "matrices"), [(1, True), *((build.lanes_for(2), x) for x in (True, False) if build.vectors())]
)
def test_hashes_of_which_some_bits_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: int, matrices: bool
) -> None:
    """`matrices`: with the instruction for them, where the processor has it."""
    if not matrices:
        monkeypatch.setattr(build, "vectors", lambda: build.VECTORS)
    made = {
        "hidden": Circuit([unsigned(48), unsigned(9), unsigned(1)], hidden),
        "many": Circuit([unsigned(100)], many),
        "whole": Circuit([unsigned(48)], whole),
    }
    assert not complaints(tmp_path, made, lanes)


@pytest.mark.parametrize("zeros", [0, 129])
def test_a_shift_by_a_long_number_is_refused(tmp_path: Path, zeros: int) -> None:
    """It would be by the lowest bits of it only. `zeros`: what is shifted has so many below."""
    circuit = Circuit([unsigned(60), unsigned(70)], lambda m, i: [Cat(Const(0, zeros), i[0]) >> i[1]])
    with pytest.raises(ValueError, match="70 bits"):
        build.model(tmp_path, netlist(circuit, "top"), "top")
