"""Models of netlists against Amaranth's simulator, in every cycle: cells of all kinds, registers, memories."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import circuits
from circuits import Circuit

from upl_mlir.hw.sim import build
from upl_mlir.hw.verilog import netlist
from upl_mlir.netsim import classes

pytestmark = pytest.mark.skipif(not build.available(), reason="no C++ compiler")
CYCLES = 200


def complaints(
    folder: Path, made: dict[str, Circuit], lanes: int = 1, flags: Sequence[str] = build.QUICK
) -> list[str]:
    """The first output of each circuit that differs, and when."""
    inputs = {name: circuits.stimuli(c.shapes, CYCLES, n) for n, (name, c) in enumerate(made.items())}
    ours = circuits.by_us(folder, made, inputs, lanes, flags)
    wrong: list[str] = []
    different = 0
    for name, circuit in made.items():
        share = CYCLES // lanes
        shares = [inputs[name][n * share : (n + 1) * share] for n in range(lanes)]
        rows = [row for some in shares for row in circuits.by_amaranth(circuit, some)]
        different += len({tuple(row) for row in rows})
        pairs = [(n, k) for n in range(CYCLES) for k in range(len(circuit.sizes)) if ours[name][n][k] != rows[n][k]]
        wrong += [f"{name}: o{k} in cycle {n}: {ours[name][n][k]:x} is not {rows[n][k]:x}" for n, k in pairs[:1]]
    assert different > CYCLES * len(made) / 4
    return wrong


def test_every_kind_of_cell(tmp_path: Path) -> None:
    assert not complaints(tmp_path, {"cells": circuits.cells()}, flags=build.FLAGS)


def test_random_circuits(tmp_path: Path) -> None:
    assert not complaints(tmp_path, {f"random{n}": circuits.random_circuit(n, 60) for n in range(4)})


@pytest.mark.parametrize("lanes", sorted({1, build.lanes_for(2)}))
def test_members_in_several_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: int) -> None:
    monkeypatch.setattr(classes, "PART", 7)
    assert not complaints(tmp_path, {"random": circuits.random_circuit(3, 40)}, lanes)
    text = (tmp_path / "random.h").read_text("utf-8")
    assert "struct Random_1 : Random_0 {" in text


@pytest.mark.skipif(build.lanes_for(2) == 1, reason="no AVX-512")
@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_lanes(tmp_path: Path, lanes: int) -> None:
    """Several at once, with vectors."""
    made = {f"random{n}": circuits.random_circuit(n, 60) for n in range(10 + lanes, 12 + lanes)}
    assert not complaints(tmp_path, {"cells": circuits.cells(), **made}, lanes)


@pytest.mark.skipif(build.lanes_for(2) == 1 or shutil.which("clang++") is None, reason="no AVX-512, or no clang++")
def test_lanes_with_another_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """g++ comes first where both are: clang++ is what others may have."""
    monkeypatch.setenv("CXX", "clang++")
    assert not complaints(tmp_path, {"cells": circuits.cells()}, 4)


@pytest.mark.parametrize("first", range(100, 150, 10))
def test_more_random_circuits(tmp_path: Path, first: int) -> None:
    assert not complaints(tmp_path, {f"random{n}": circuits.random_circuit(n, 80) for n in range(first, first + 10)})


def test_what_models_do_not_have_is_refused(tmp_path: Path) -> None:
    """No wrong result, but an error: 130 bits multiplied, and a divider."""
    shapes = [circuits.unsigned(130), circuits.unsigned(130)]
    for made in (lambda m, i: [i[0] * i[1]], lambda m, i: [i[0][:20] // i[1][:20]]):
        with pytest.raises(ValueError, match=r"bits|cell"):
            build.model(tmp_path, netlist(Circuit(shapes, made), "top"), "top")


def _cell(kind: str, other: str) -> Callable[[Any], None]:
    """A cell of one kind becomes one of another."""

    def change(net: Any) -> None:
        cells = [c for c in net.cells if c.type == kind]
        assert cells
        cells[len(cells) // 2].type = other

    return change


def _sign(net: Any) -> None:
    signed = [c for c in net.cells if c.signed and c.type in ("lt", "gt", "mul")]
    signed[len(signed) // 2].signed = False


def _initial(net: Any) -> None:
    net.registers[len(net.registers) // 2].initial ^= 1


def _transparency(net: Any) -> None:
    ports = [port for m in net.memories for port in m.reads if port.clocked]
    assert len({port.transparent for port in ports}) == 2
    for port in ports:
        port.transparent = not port.transparent


def _rows(net: Any) -> None:
    for m in net.memories:
        m.initial = 0


def _enables(net: Any) -> None:
    for m in net.memories:
        m.enable = tuple(reversed(m.enable))


KINDS = {"add": "sub", "xor": "or", "sshr": "shl", "le": "lt", "reduce_and": "reduce_or"}
CELLS = [*(_cell(*pair) for pair in KINDS.items()), _sign]
STATE = [_initial, _transparency, _rows, _enables]


@pytest.mark.parametrize("change", [*CELLS, *STATE])
def test_a_defect_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], None]) -> None:
    """A netlist with one thing in it that is another."""
    read = build.read

    def changed(text: str, top: str, units: Any) -> Any:
        net = read(text, top, units)
        change(net)
        return net

    monkeypatch.setattr(build, "read", changed)
    assert complaints(tmp_path, {"defect": circuits.cells() if change in CELLS else circuits.random_circuit(5, 150)})


def test_a_change_that_is_missed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Now and then nobody is told that something has changed, and what reads it is not evaluated."""
    emit = build.emit

    def changed(*args: Any) -> tuple[str, str]:
        header, source = emit(*args)
        parts = re.split(r"(m\.due\[\d+\] \|= \w+;)", source)
        assert len(parts) > 40
        parts[1::20] = [""] * len(parts[1::20])
        return header, "".join(parts)

    monkeypatch.setattr(build, "emit", changed)
    assert complaints(tmp_path, {"defect": circuits.random_circuit(5, 150)})


@pytest.mark.skipif(build.lanes_for(2) == 1, reason="no AVX-512")
def test_a_defect_of_vectors_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the negations is left out."""
    emit = build.emit_lanes

    def changed(*args: Any) -> tuple[str, str]:
        header, source = emit(*args)
        parts = source.split("inv(")
        assert len(parts) > 4
        half = len(parts) // 2
        return header, "Mask(".join(["inv(".join(parts[:half]), "inv(".join(parts[half:])])

    monkeypatch.setattr(build, "emit_lanes", changed)
    assert complaints(tmp_path, {"defect": circuits.cells()}, 4)
