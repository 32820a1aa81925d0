"""The picture of instances: every instance once, in its place, with the time, core and waiting that the run says."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.api.programs import Program
from upl_mlir.hw.sim.compiled import available
from upl_mlir.observe.machine_trace import machine_trace, record_machine
from upl_mlir.observe.replay import record
from upl_mlir.observe.unroll import unrolled
from upl_mlir.picture.style import Theme
from upl_mlir.picture.unrolled import COLOURS, Unrolled, page_of_unrolled, svg_of_unrolled
from upl_mlir.tools.upl import main

SVG = "{http://www.w3.org/2000/svg}"
CHAIN = """program chain
const n = 4
input x { -> F.x<0> }
input y<i> in 0<=i<n { -> F.y<i> }
output R
node F<i> in 0<=i<n { in x, y; x + y; if i<n-1: -> F.x<i+1>; if i==n-1: -> R<> }
"""
"""The y of instance i waits i steps."""


@pytest.fixture(scope="module")
def perceptron(examples: Path) -> Program:
    return upl.load(examples / "perceptron.upl", K=3, N=[3, 4, 2], D=2)


def given(p: Program) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {n: rng.normal(size=v.shape()) for n, v in p.inputs.items()}


def named(u: Unrolled) -> dict[int, str]:
    return {
        n: f"{g.name}<{','.join(map(str, p))}>" for g in u.grids for n, p in enumerate(g.points, g.first)
    }  # fmt: skip


def cells(svg: str) -> dict[str, tuple[float, float, str]]:
    """Position and colour of each instance, by its name, as the tooltips say."""
    out: dict[str, tuple[float, float, str]] = {}
    for rect in ET.fromstring(svg).iter(f"{SVG}rect"):
        if "u-cell" in rect.get("class", ""):
            title = rect.find(f"{SVG}title")
            assert title is not None
            name = (title.text or "").partition(":")[0]
            assert name not in out
            out[name] = float(rect.get("x", "")), float(rect.get("y", "")), rect.get("fill", "")
    return out


def test_steps_arrows_and_waiting_of_a_chain() -> None:
    u = unrolled(upl.load(CHAIN))
    assert [(g.name, g.points) for g in u.grids] == [("F", ((0,), (1,), (2,), (3,)))]
    assert list(u.time) == [1, 2, 3, 4]
    assert u.arrows == ((0, 1), (1, 2), (2, 3))
    assert list(u.store) == [0, 1, 2, 3]
    assert list(u.slack) == [0, 0, 0, 0]
    assert u.chain == (0, 1, 2, 3)


def test_every_instance_has_a_cell_of_its_own(perceptron: Program) -> None:
    u = unrolled(perceptron)
    firings = perceptron.check().firings
    assert {g.name: len(g.points) for g in u.grids} == dict(firings)
    found = cells(svg_of_unrolled(u))
    assert set(found) == set(named(u).values())
    assert len({(x, y) for x, y, _ in found.values()}) == len(found)


def test_a_grid_goes_by_fields(perceptron: Program) -> None:
    """The last field to the right, the one before it downwards, the next one to the right again."""
    found = cells(svg_of_unrolled(unrolled(perceptron)))
    (x, y, _), right, down, block = (found[f"Res<{i}>"] for i in ("1,1,1", "1,1,2", "1,2,1", "2,1,1"))
    assert right[0] > x and right[1] == y
    assert down[1] > y and down[0] == x
    assert block[0] > max(px for name, (px, _, _) in found.items() if name.startswith("Res<1,")) and block[1] == y


def test_steps_and_a_run_agree_on_what_depends_on_what(perceptron: Program) -> None:
    """The arrows that follow from the program are those that a run took, and the longest chain is the critical path."""
    trace, _ = record(perceptron, given(perceptron), order="random", seed=4)
    by_program, by_run = unrolled(perceptron), unrolled(perceptron, trace)
    pairs = [{(named(u)[a], named(u)[b]) for a, b in u.arrows} for u in (by_program, by_run)]
    assert pairs[0] == pairs[1]
    steps = max(t or 0 for t in by_program.time)
    assert len(by_program.chain) == len(by_run.chain) == steps == perceptron.check().critical_path
    assert by_run.unit == "event"
    assert all((by_run.time[a] or 0) < (by_run.time[b] or 0) for a, b in by_run.arrows)


@pytest.mark.skipif(not available(), reason="no C++ compiler")
def test_a_machine_says_cores_and_cycles(perceptron: Program, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text("cores = 2\n")
    run, _ = record_machine(perceptron, given(perceptron), str(tmp_path / "m.toml"))
    trace = machine_trace(perceptron, run)
    u = unrolled(perceptron, trace)
    assert u.unit == "cycle" and u.core is not None and set(u.core) == {0, 1}
    fired = {trace.places[at][1] for at, e in enumerate(trace.events) if hasattr(e, "ends") and trace.places[at][0] >= 0}
    assert {t for t in u.time if t is not None} <= fired
    colours = {colour for _, _, colour in cells(svg_of_unrolled(u, "core")).values()}
    assert len(colours) == 2


def test_colours_follow_the_figures() -> None:
    u = unrolled(upl.load(CHAIN))
    for colour in ("time", "store"):
        found = cells(svg_of_unrolled(u, colour))
        assert len({c for _, _, c in found.values()}) == 4
    assert len({c for _, _, c in cells(svg_of_unrolled(u, "critical")).values()}) == 1
    assert svg_of_unrolled(u, "critical").count("u-flow u-chain") == 3


def test_the_page_replays_each_time(perceptron: Program) -> None:
    u = unrolled(perceptron)
    html = page_of_unrolled(u)
    times = re.search(r'id="data">(.*?)</script>', html)
    assert times is not None and times[1] == str(sorted({t for t in u.time if t is not None}))
    assert html.count('class="u-cell') == u.instances == html.count("<title>") - 2
    assert "{{" not in html


DOCUMENT = """
const found = {}, part = () => ({textContent: "", dataset: {theme: "light"}});
const cell = (t) => ({dataset: {t}, classList: {contains: () => true, toggle(name, on) { this[name] = on; }}});
const drawn = TIMES.map((t) => cell(String(t)));
const document = {getElementById: (id) => found[id] ??= part(), documentElement: part(), querySelectorAll: () => drawn};
let tick = null;
const setInterval = (f) => { tick = f; return 1; }, clearInterval = () => { tick = null; };
document.getElementById("data").textContent = JSON.stringify(TIMES);
"""


def test_the_page_shows_each_step_and_stops_after_the_last() -> None:
    """Its scripts, in a document that has only what they ask for: an instance of `CHAIN` fires at each time."""
    racer = pytest.importorskip("py_mini_racer", reason="no Python package `mini-racer` here (extra `draw`)")
    u = unrolled(upl.load(CHAIN))
    code = "".join(re.findall(r"<script>(.*?)</script>", page_of_unrolled(u), re.S)).replace('"use strict";', "")
    times = sorted({t for t in u.time if t is not None})
    js = racer.MiniRacer()
    js.eval(DOCUMENT.replace("TIMES", str(times)) + code)
    assert js.eval("found.told.textContent").endswith(f"{len(times)} of {len(times)} have fired")
    js.eval("found.play.onclick()")  # from the beginning, as it stood at the end
    for n in range(len(times)):
        assert f" {times[n]}: {n + 1} of {len(times)} " in js.eval("found.told.textContent")
        assert js.eval("drawn.filter((d) => d.classList.later).length") == len(times) - n - 1
        js.eval("tick()")
    assert js.eval("tick === null && found.play.textContent") == "play"


@pytest.mark.parametrize("theme", Theme)
def test_every_theme_is_a_document(theme: Theme) -> None:
    ET.fromstring(svg_of_unrolled(unrolled(upl.load(CHAIN)), "time", theme))


@pytest.mark.parametrize("suffix", ["svg", "png", "html"])
@pytest.mark.parametrize("colour", [c for c in COLOURS if c != "core"])
def test_the_command(tmp_path: Path, examples: Path, suffix: str, colour: str) -> None:
    out = tmp_path / f"u.{suffix}"
    assert not main(["draw", str(examples / "matmul.upl"), "--unroll", "-D", "n=3", "-D", "m=2", "-D", "r=2", "-o", str(out),
                     "--colour", colour])  # fmt: skip
    assert out.stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("matmul.upl", "--unroll"), "error[UPL15"),
        (("matmul.upl", "--unroll", "-D", "n=20", "-D", "m=20", "-D", "r=20"), "there are more than 2000 instances"),
        (("newton.upl", "--unroll", "-D", "n=2"), "error[UPL1807]: data decide which instances of `It` fire"),
        (("perceptron.upl", "--unroll", "-D", "D=1", "--colour", "core"), "UPL1807]: cores are known of a machine's run"),
        (("perceptron.upl", "--unroll", "-D", "D=1", "-o", "x.dot"), "error[UPL1805]"),
        (("perceptron.upl", "--trace", "t.json"), "--trace goes with --unroll"),
    ],
)
def test_errors(examples: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str) -> None:
    assert main(["draw", str(examples / arguments[0]), *arguments[1:]])
    assert message in capsys.readouterr().err
