"""Circuits shown: times against the simulation, the picture against the plan, the page's replay against the schedule."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from circuit.circuits import EXAMPLES, Case, data

from upl_mlir.engines.circuit.engine import run
from upl_mlir.engines.circuit.simulation import Simulation
from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.passes.circuit.ir import units
from upl_mlir.passes.circuit.plan import Plan, leaves
from upl_mlir.passes.circuit.ports import elements, number
from upl_mlir.passes.circuit.times import arrives, begins, due, leave
from upl_mlir.picture.circuit import channel_texts, svg_of_circuit
from upl_mlir.picture.circuit_page import circuit_page, replay
from upl_mlir.tools.upl import main

PLANS = {
    "taps": Case("fir", (("K", 3), ("n", 5))).planned(2)[1],
    "turns": Case("wave", (("T", 3), ("n", 7))).planned(4)[1],
    "blocks": Case("matmul", (("m", 5), ("n", 7), ("r", 3))).planned(2)[1],
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_words_leave_when_the_plan_says(plan: Plan) -> None:
    """Every word of an output is at its port in the clock that the plan gives."""
    _, streamed = run(Simulation(Circuit(plan)), [data(plan, 1)])
    for o in plan.outputs:
        times = leave(plan, o)
        assert len(times) == o.words
        assert times.max() == leaves(plan, o)
        np.testing.assert_array_equal(streamed.clocks[o.host.name], arrives(plan, o))
    assert all(len(due(plan, i)) == i.words for i in plan.inputs)


def script(page: str) -> str:
    """The functions of the page that need no document, and its data."""
    found = re.search(r'id="data">(.*?)</script>', page, re.S)
    code = re.search(r"<script>(.*)function show", page, re.S)
    assert found is not None
    assert code is not None
    body = re.sub(r"const data = .*?;\n", "", code[1].replace('"use strict";', ""), count=1)
    return f"const data = {found[1]};\n{body}"


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_replay_of_the_page(plan: Plan) -> None:
    racer = pytest.importorskip("py_mini_racer", reason="no Python package `mini-racer` here (extra `draw`)")
    js = racer.MiniRacer()
    js.eval(script(circuit_page(plan, "x")))
    nest, p = plan.nest, plan.process
    mask = nest.mask(p.domain, p.sizes)
    wanted: dict[tuple[int, int], str] = {}
    for at in np.argwhere(mask):
        index = tuple(at.tolist())
        fields = [f"{d.name}={int(np.broadcast_to(nest.grid[d.name], nest.shape)[index])}" for d in p.dims]
        wanted[index[-1], int(begins(plan)[index])] = f"{p.name}&lt;{', '.join(fields)}&gt;"
    last = replay(plan, {})["last"]
    shown = json.loads(js.eval(
        "JSON.stringify([...Array(data.lanes).keys()].map(n => [...Array(data.last + 1).keys()].map(s => instance(n, s))))"
    ))  # fmt: skip
    found = {(n, s): text for n, row in enumerate(shown) for s, (text, kind) in enumerate(row) if kind == "on"}
    assert found == wanted
    assert last >= max(s for _, s in wanted)
    for k, port in enumerate([*plan.inputs, *plan.outputs]):
        dims = elements(p, port.host)
        grid = np.indices([d.extent for d in dims]).reshape(len(dims), -1)
        for values in grid.T.tolist():
            here = {d.name: v + d.low for d, v in zip(dims, values, strict=True)}
            n = number(dims, port.order, nest.lanes, here)
            text = ", ".join(f"{f}={v}" for f, v in here.items())
            assert js.eval(f"element(data.ports[{k}], {n})") == f"{port.host.name}&lt;{text}&gt;"


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_picture_says_what_the_plan_has(plan: Plan) -> None:
    svg = ET.fromstring(svg_of_circuit(plan))
    texts = {t.text for t in svg.iter("{http://www.w3.org/2000/svg}text")}
    for name, depth in channel_texts(plan).values():
        assert {name, depth} <= texts
    for name, node in units(plan):
        assert f"{name}: {plan.at.end(node) - plan.at.start[node]}" in texts
    assert {i.host.name for i in plan.inputs} | {o.host.name for o in plan.outputs} <= texts
    assert any(f"×{plan.nest.lanes} along {plan.nest.along}" in (t or "") for t in texts)
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    for r in svg.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(r.get("x", "0")) + float(r.attrib["width"]) <= width
        assert float(r.get("y", "0")) + float(r.attrib["height"]) <= height


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["-D", "K=3", "-D", "n=5"]
    program = str(EXAMPLES / "fir.upl")
    assert main(["draw", program, "--circuit", "--lanes", "2", *sizes, "-o", str(tmp_path / "c.png")]) == 0
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert main(["draw", program, "--circuit", *sizes, "-o", str(tmp_path / "c.svg"), "--theme", "dark"]) == 0
    assert main(["view", program, "--circuit", "--lanes", "2", *sizes, "-o", str(tmp_path / "c.html")]) == 0
    assert "<svg" in (tmp_path / "c.html").read_text(encoding="utf-8")
    assert main(["draw", program, "--circuit", *sizes, "-o", str(tmp_path / "c.dot")]) == 1
    assert "UPL1805" in capsys.readouterr().err
    assert main(["view", program, "--circuit", "-o", str(tmp_path / "none.html")]) == 1
    assert not (tmp_path / "none.html").exists()
