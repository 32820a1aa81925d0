"""Circuits shown: times against the simulation, the picture against the plan, the page's replay against the schedule."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from circuit.circuits import EXAMPLES, Case, data
from circuit.networks import NETS

from upl_mlir.engines.circuit.engine import run
from upl_mlir.engines.circuit.simulation import Simulation
from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.passes.circuit.channels.orders import number
from upl_mlir.passes.circuit.ir import process_name, stream_name, units
from upl_mlir.passes.circuit.plan import Plan, due, lanes_of, leaves
from upl_mlir.passes.circuit.times import arrives
from upl_mlir.picture.circuit import channel_texts, svg_of_circuit
from upl_mlir.picture.circuit_page import circuit_page, replay
from upl_mlir.picture.text import width as width_of
from upl_mlir.tools.upl import main

NETWORKS = {f"{name}-{lanes}": next(n for n in NETS if str(n) == name).planned(lanes)[1]
            for name, lanes in (("chain-4", 2), ("transposed-4-6", 2), ("centred-4-6", 4), ("products-4", 4))}  # fmt: skip
"""Several processes: delays of fixed and of varying length, streams, a buffer."""
PLANS = {
    "taps": Case("fir", (("K", 3), ("n", 5))).planned(2)[1],
    "turns": Case("wave", (("T", 3), ("n", 7))).planned(4)[1],
    "blocks": Case("matmul", (("m", 5), ("n", 7), ("r", 3))).planned(2)[1],
    **NETWORKS,
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_words_leave_when_the_plan_says(plan: Plan) -> None:
    """Every word of an output is at its port in the clock that the plan gives."""
    _, streamed = run(Simulation(Circuit(plan)), [data(plan, 1)])
    for o in plan.outputs:
        assert len(leaves(plan, o)) == o.words
        np.testing.assert_array_equal(streamed.clocks[o.name], arrives(plan, o))
    assert all(len(due(plan, i)) == i.words for i in plan.inputs)


def script(page: str) -> str:
    """The functions of the page that need no document, and its data."""
    found = re.search(r'id="data">(.*?)</script>', page, re.S)
    code = re.search(r"(const last = .*?)function show", page, re.S)
    assert found is not None
    assert code is not None
    return f"const data = {found[1]};\n{code[1]}"


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_replay_of_the_page(plan: Plan) -> None:
    racer = pytest.importorskip("py_mini_racer", reason="no Python package `mini-racer` here (extra `draw`)")
    js = racer.MiniRacer()
    js.eval(script(circuit_page(plan, "x")))
    for k, part in enumerate(plan.parts):
        nest, p = part.nest, part.process
        wanted: dict[tuple[int, int], str] = {}
        for at in np.argwhere(part.mask(p.domain)):
            index = tuple(at.tolist())
            fields = [f"{d.name}={int(np.broadcast_to(nest.grid[d.name], nest.shape)[index])}" for d in p.dims]
            wanted[index[-1], int(nest.begins[index])] = f"{p.name}&lt;{', '.join(fields)}&gt;"
        shown = json.loads(js.eval(
            f"JSON.stringify([...Array(data.processes[{k}].lanes).keys()].map("
            f"n => [...Array(data.last + 1).keys()].map(s => instance(data.processes[{k}], n, s))))"
        ))  # fmt: skip
        found = {(n, s): text for n, row in enumerate(shown) for s, (text, kind) in enumerate(row) if kind == "on"}
        assert found == wanted
        assert replay(plan, {})["last"] >= max(s for _, s in wanted)
    inner = [(stream_name(plan, s), s.sent) for s in plan.streams]
    ports = [*((i.name, i) for i in plan.inputs), *inner, *((o.name, o) for o in plan.outputs)]
    assert [q["name"] for q in replay(plan, {})["ports"]] == [name for name, _ in ports]
    for k, (name, port) in enumerate(ports):
        for at in np.ndindex(*(d.extent for d in port.dims)):
            here = {d.name: v + d.low for d, v in zip(port.dims, at, strict=True)}
            n = number(port.dims, port.order, lanes_of(port), here)
            text = ", ".join(f"{f}={v}" for f, v in here.items())
            assert js.eval(f"element(data.ports[{k}], {n})") == f"{name}&lt;{text}&gt;"


def test_the_page_has_a_row_for_each_lane() -> None:
    """What `show` writes: the processes, their lanes, ports and streams."""
    racer = pytest.importorskip("py_mini_racer", reason="no Python package `mini-racer` here (extra `draw`)")
    plan = NETWORKS["transposed-4-6-2"]
    js = racer.MiniRacer()
    page = circuit_page(plan, "x")
    js.eval("const found = {}; const by = (id) => found[id] ??= {};" + script(page))
    js.eval(re.search(r"(function show.*?)</script>", page, re.S)[1])  # type: ignore[index]
    nest = plan.parts[1].nest
    js.eval(f"show({nest.start + nest.every[nest.order.index('i')]})")  # the second iteration of C's inner loop
    rows = re.findall(r"<tr>(.*?)</tr>", js.eval("found.lanes.innerHTML"))
    cells = [re.findall(r">([^<]*)<", row) for row in rows]
    assert [c[0:1] + c[2:3] for c in cells] == [["process", "lane"], ["S.s", "0"], ["", "1"], ["C", "0"], ["", "1"]]
    assert f"C&lt;j=0, i={nest.lanes if nest.along == 'i' else 1}&gt;" in rows[3]
    assert not plan.streams
    streamed = next(n for n in NETS if str(n) == "products-4").planned(4)[1]
    assert [stream_name(streamed, s) for s in streamed.streams] == ["P.s.to.E"]
    js = racer.MiniRacer()
    page = circuit_page(streamed, "x")
    js.eval("const found = {}; const by = (id) => found[id] ??= {};" + script(page))
    js.eval(re.search(r"(function show.*?)</script>", page, re.S)[1])  # type: ignore[index]
    js.eval("show(0)")
    assert "P.s.to.E" in js.eval("found.ports.innerHTML")


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_picture_says_what_the_plan_has(plan: Plan) -> None:
    svg = ET.fromstring(svg_of_circuit(plan))
    texts = {t.text for t in svg.iter("{http://www.w3.org/2000/svg}text")}
    for name, depth in channel_texts(plan).values():
        assert {name, depth} <= texts
    for name, part, node in units(plan):
        assert f"{name}: {part.at.end(node) - part.at.start[node]}" in texts
    assert {port.name for port in (*plan.inputs, *plan.outputs)} | {stream_name(plan, s) for s in plan.streams} <= texts
    for part in plan.parts:
        lanes = f"×{part.nest.lanes} along {part.nest.along}" if part.nest.lanes > 1 else "one lane"
        (title,) = [t or "" for t in texts if (t or "").startswith(f"{process_name(part)}  ")]
        assert lanes in title
        assert (f"from slot {part.nest.start} on" in title) == (len(plan.parts) > 1)
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    for r in svg.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(r.get("x", "0")) + float(r.attrib["width"]) <= width
        assert float(r.get("y", "0")) + float(r.attrib["height"]) <= height


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_nothing_in_the_picture_is_over_something_else(plan: Plan) -> None:
    """Boxes of ports, streams and processes lie apart, units within theirs; no text is over another one or cut."""
    svg = ET.fromstring(svg_of_circuit(plan))
    whole = float(svg.attrib["width"])
    rects = list(svg.iter("{http://www.w3.org/2000/svg}rect"))
    by_class = {r.attrib["class"]: [rectangle(q) for q in rects if q.attrib["class"] == r.attrib["class"]] for r in rects}
    processes = [rectangle(r) for r in rects if r.attrib["class"] == "u-node" and len(r)]  # those behind have no title
    assert len(processes) == len(plan.parts)
    apart([*by_class["u-host"], *by_class["u-constants"], *processes])
    apart(by_class["u-value"])
    assert all(any(inside(u, b) for b in processes) for u in by_class["u-value"])
    words: list[Box] = []
    for t in svg.iter("{http://www.w3.org/2000/svg}text"):
        size, x, y = float(t.attrib["font-size"]), float(t.attrib["x"]), float(t.attrib["y"])
        wide = width_of(t.text or "", size)
        x -= {"start": 0.0, "middle": wide / 2, "end": wide}[t.attrib["text-anchor"]]
        words.append((x, y - 0.7 * size, x + wide, y + 0.1 * size))
    assert all(x >= 0 and end <= whole for x, _, end, _ in words)
    apart(words)


Box = tuple[float, float, float, float]


def rectangle(r: ET.Element) -> Box:
    x, y, w, h = (float(r.get(n, "0")) for n in ("x", "y", "width", "height"))
    return x, y, x + w, y + h


def inside(a: Box, b: Box) -> bool:
    return a[0] >= b[0] and a[1] >= b[1] and a[2] <= b[2] and a[3] <= b[3]


def apart(found: list[Box]) -> None:
    """No two of them have a point in common."""
    for a, b in combinations(found, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (a, b)


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
