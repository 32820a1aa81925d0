"""Places for the blocks of lanes: each block has a site of its own, and lanes that are beside each other lie so."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from circuit.test_share import SMALL

from upl_mlir.hw.circuit.circuit import lanes_by_module
from upl_mlir.hw.synth.ecp5 import Clock, timing
from upl_mlir.hw.synth.floorplan import KINDS, floorplan
from upl_mlir.hw.synth.tools import YOSYS, Tool

MULT, RAM = "MULT18X18D", "DP16KD"


def cells(lanes: int, multipliers: int, rams: int) -> dict[str, str]:
    """A netlist of lanes with so many blocks each, and something beside them."""
    mine = [(f"lane_{n}.{kind}.{k}", kind) for n in range(lanes) for kind, count in ((MULT, multipliers), (RAM, rams))
            for k in range(count)]  # fmt: skip
    return dict([*mine, *[(f"lane_{n}.x", "LUT4") for n in range(lanes)], ("head.window", RAM)])


def lane_of(cell: str) -> int | None:
    found = re.match(r"lane_(\d+)\.", cell)
    return int(found[1]) if found else None


def place(site: str) -> tuple[int, int]:
    found = re.match(r"X(\d+)/Y(\d+)/", site)
    assert found
    return int(found[1]), int(found[2])


@pytest.mark.parametrize(
    ("lanes", "multipliers", "rams"), [(128, 1, 1), (16, 3, 11), (40, 3, 2), (9, 13, 22), (1, 130, 3)]
)
def test_lanes_along_a_snake(lanes: int, multipliers: int, rams: int) -> None:
    """Most of the device is taken: the shares of lanes are as small as its rows allow."""
    kinds = cells(lanes, multipliers, rams)
    sites = floorplan(kinds, lane_of)
    assert set(sites) == {c for c, kind in kinds.items() if kind in KINDS and lane_of(c) is not None}
    assert len(set(sites.values())) == len(sites)
    everywhere = {kind: set(KINDS[kind].sites(0, 1000)) for kind in KINDS}
    assert {kind: len(s) for kind, s in everywhere.items()} == {MULT: 156, RAM: 208}
    assert all(site in everywhere[kinds[c]] for c, site in sites.items())
    where = [[place(s) for c, s in sites.items() if lane_of(c) == n] for n in range(lanes)]
    middles = [(sum(x for x, _ in w) / len(w), sum(y for _, y in w) / len(w)) for w in where]
    wide = 124 * 3 / lanes
    assert all(max(x for x, _ in w) - min(x for x, _ in w) <= wide + 9 for w in where)
    assert all(abs(a[0] - b[0]) <= wide + 9 and abs(a[1] - b[1]) <= 48 for a, b in pairwise(middles))


@pytest.mark.parametrize(("lanes", "multipliers", "rams"), [(16, 3, 2), (100, 1, 1), (160, 1, 0), (20, 1, 11)])
def test_no_places_where_most_is_free_or_too_little_there(lanes: int, multipliers: int, rams: int) -> None:
    assert floorplan(cells(lanes, multipliers, rams), lane_of) == {}


def test_modules_of_lanes() -> None:
    """Those of processes with one lane are none, and so are units that such processes share."""
    _, plan = SMALL.planned(4)
    found = lanes_by_module(plan)
    several = [k for k, p in enumerate(plan.parts) if p.nest.lanes > 1]
    assert 0 < len(several) < len(plan.parts)
    assert {m for m in found if m.endswith("_1")} >= {*(f"process_{k}_lane_1" for k in several), "mul_0_1", "add_0_1"}
    assert all(m.endswith(f"_{n}") for m, n in found.items())
    alone = [f"process_{k}_lane_0" for k in range(len(plan.parts)) if k not in several]
    assert not {*alone, "tanh_0_0", "sub_0_0", "mul_1_0"} & set(found)


def package(tool: Tool) -> str:
    return tool.package


def test_sites_go_to_place_and_route(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the netlist; a clock without them is another one."""
    monkeypatch.setenv("UPL_CACHE_DIR", str(tmp_path / "cache"))
    netlist = {"modules": {"top": {"cells": {c: {"type": kind} for c, kind in cells(128, 1, 0).items()}}}}
    given: list[dict[str, str]] = []

    def run(self: Tool, _: object, folder: Path, made: str, *__: object) -> Path:
        if self is YOSYS:
            (folder / made).write_text(json.dumps(netlist), encoding="utf-8")
            return folder / made
        whole = json.loads((folder / "net.json").read_text(encoding="utf-8"))
        found = whole["modules"]["top"]["cells"]
        given.append({c: x["attributes"]["BEL"] for c, x in found.items() if "attributes" in x})
        (folder / made).write_text(json.dumps({"fmax": {"clk": {"achieved": 50.0 + len(given)}}}), encoding="utf-8")
        return folder / made

    monkeypatch.setattr(Tool, "run", run)
    monkeypatch.setattr(Tool, "version", package)
    clocks = [timing("", "top", 100.0, Clock.ROUTED, print, lane_of=f).fmax_mhz for f in (lane_of, None, lane_of, None)]
    assert clocks == [51.0, 52.0, 51.0, 52.0]
    assert given == [floorplan(cells(128, 1, 0), lane_of), {}]
