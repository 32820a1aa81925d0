"""The associative memory's C++ (`upl_cam.h`) does what Amaranth's description does, in small banks, on random inputs."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Fragment, Module, Mux, unsigned

sys.path.insert(0, str(Path(__file__).resolve().parent))
import circuits
from circuits import Circuit

from upl_mlir.hw.matching_unit.cam import VERILOG, Cam
from upl_mlir.hw.matching_unit.interface import Dimensions
from upl_mlir.hw.sim import build

pytestmark = pytest.mark.skipif(not build.available(), reason="no C++ compiler")
CYCLES = 600


class SmallBanks(Cam):
    """The same, in banks of fewer entries where it is Verilog."""

    def __init__(self, dim: Dimensions, bank: int):
        self.bank = bank
        super().__init__(dim)

    def elaborate(self, platform: object) -> Module:
        return self._instance(self.bank) if platform is VERILOG else super().elaborate(platform)


def memory(capacity: int, bank: int) -> Circuit:
    """Inputs as they come in a machine: levels and last entries that there are, nothing dropped that is not picked."""
    dim = Dimensions(capacity=capacity, tag_bits=3, max_fields=1, max_inputs=3, node_bits=1, multiplicity_bits=1)
    ports = Cam(dim)
    Fragment.get(ports, None)  # Amaranth warns of a component that nobody elaborates

    def made(m: Module, inputs: list[Any]) -> list[Any]:
        cam = SmallBanks(dim, bank)
        m.submodules.cam = cam
        given = dict(zip(ports.inputs, inputs, strict=True))
        given["level"] = Mux(given["level"] < cam.levels, given["level"], 0)
        given["last_entry"] = Mux(given["last_entry"] < capacity, given["last_entry"], capacity - 1)
        given["drop"] &= given["pick"]
        m.d.comb += [getattr(cam, name).eq(value) for name, value in given.items()]
        return [getattr(cam, name) for name in cam.outputs]

    return Circuit([unsigned(bits) for bits in ports.inputs.values()], made)


SIZES = {"one": (5, 64), "even": (8, 2), "many": (130, 2), "words": (128, 64)}
"""Names, entries, entries of a bank; one bank, several, more than a word has bits, banks of a word."""


def complaints(folder: Path) -> list[str]:
    """Where each of these memories differs first."""
    made = {name: memory(*size) for name, size in SIZES.items()}
    inputs = {name: circuits.stimuli(c.shapes, CYCLES, n) for n, (name, c) in enumerate(made.items())}
    ours = circuits.by_us(folder, made, inputs)
    wrong: list[str] = []
    for name, circuit in made.items():
        theirs = circuits.by_amaranth(circuit, inputs[name])
        assert all(len({row[n] for row in theirs}) > 1 for n in range(5))
        wrong += [f"{name} in cycle {n}" for n in range(CYCLES) if ours[name][n] != theirs[n]][:1]
    return wrong


def test_it_is_what_amaranth_describes(tmp_path: Path) -> None:
    assert not complaints(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (" & b.care[n]", ""),
        ("~key_wild & (", "(~0ull) & ("),
        ("entries &= entries - 1", "entries &= entries"),
        ("some[level].put(b, entries)", "some[level].put(b, true)"),
        ("found >> 1 <= last_entry", "found >> 1 < last_entry"),
        ("used.put(b, occupied)", "used.put(b, true), used.put(0, false)"),
        ("spare.put(b, occupied != ALL)", "spare.put(b, true)"),
        ("b << BANK_BITS | unsigned", "b | unsigned"),
        ("n * 64 + unsigned", "unsigned"),
        ("else if (level < LEVELS && pick", "if (level < LEVELS && pick"),
    ],
)
def test_a_defect_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    text = build.source("hw/matching_unit/upl_cam.h")
    assert text.count(old) == 1
    source = build.source
    monkeypatch.setattr(build, "source", lambda path: source(path).replace(old, new))
    assert complaints(tmp_path)
