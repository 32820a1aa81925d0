"""The page of `upl view`: what it holds, and in a headless Chromium how it answers to mouse and keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.api.programs import Program
from upl_mlir.observe.replay import Firing, Sending, Trace, record
from upl_mlir.observe.viewing import view

STUCK = (Path(__file__).resolve().parents[1] / "Inputs" / "strands.upl").read_text(encoding="utf-8")


def _data(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found
    return json.loads(found[1])


@pytest.fixture(scope="module")
def perceptron(examples: Path) -> Program:
    return upl.load(examples / "perceptron.upl", K=3, N=[3, 4, 2])


@pytest.fixture(scope="module")
def trace(perceptron: Program) -> Trace:
    gradient = upl.vjp(perceptron, of="R", wrt=["W"])
    rng = np.random.default_rng(1)
    found, _ = record(gradient, {n: rng.normal(size=v.shape(D=2)) for n, v in gradient.inputs.items()})
    return found


@pytest.fixture(scope="module")
def html(perceptron: Program, trace: Trace) -> str:
    return view(perceptron, of="R", wrt=["W"], trace=trace)


# ------------------------------------------------------------------------------------------------------- what it holds


def test_the_page_needs_nothing_else(html: str) -> None:
    assert "default-src 'none'" in html
    for outside in ("src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest"):
        assert outside not in html, outside
    addresses = set(re.findall(r"https?://[^\s\"'<>\\]+", html))
    assert addresses <= {"http://www.w3.org/2000/svg"}, "the name of a vocabulary, which nothing opens"


def test_every_pass_is_a_step_with_picture_and_text(html: str) -> None:
    data = _data(html)
    names = [s["name"] for s in data["steps"]]
    assert names == ["program", "infer-domains", "autodiff", "eliminate-dead-derivatives", "simplify"]
    for step in data["steps"]:
        assert step["text"].startswith("program perceptron") and "upl.program @perceptron" in step["ir"]
        assert data["pictures"][step["picture"]].startswith("<svg")
    assert "DLink" not in data["steps"][1]["text"] and "DLink" in data["steps"][2]["text"]


def test_boxes_have_counts_and_proofs(html: str) -> None:
    boxes = _data(html)["boxes"]
    assert boxes["Link"]["firings"] == "20*D"
    assert {status for _, status, _ in boxes["Link"]["obligations"]} == {"proved"}
    assert set(boxes) >= {"X", "W", "R", "Res", "Link", "Sum", "AF_ReLU", "DLink", "d_W"}


def test_text_of_a_program_cannot_become_markup() -> None:
    program = upl.load("// </script><script>alert(1)</script>\nprogram p\ninput A { -> Y }\noutput Y\n")
    page = view(program)
    assert "alert(1)" in page and "<script>alert" not in page
    assert page.count("</script>") == 2, "of the data and of the code"
    assert any("alert(1)" in line for lines in _data(page)["sources"].values() for line in lines)


def test_forward_mode_and_directives(examples: Path, perceptron: Program) -> None:
    steps = _data(view(perceptron, of="R", wrt=["W"], mode="forward"))["steps"]
    assert [s["name"] for s in steps] == ["program", "infer-domains", "tangent"] and "t_W" in steps[-1]["text"]
    steps = _data(view(upl.load(examples / "training.upl")))["steps"]
    assert "adjoint of" in steps[0]["text"] and "adjoint of Err.r seed" not in steps[-1]["text"]


def test_a_run_of_the_program_beside_its_derivative(perceptron: Program) -> None:
    """What `upl run FILE --trace` records is replayed on the first half; a trace of another program is refused early."""
    rng = np.random.default_rng(1)
    primal, _ = record(perceptron, {n: rng.normal(size=v.shape(D=2)) for n, v in perceptron.inputs.items()})
    data = _data(view(perceptron, of="R", wrt=["W"], trace=primal))
    assert data["trace"]["nodes"] == primal.nodes and "DLink" not in primal.nodes
    assert "DLink" in data["boxes"]
    other = upl.load("program other\ninput A { -> Y }\noutput Y\n")
    with pytest.raises(upl.UplError, match="UPL1806"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("upl_mlir.observe.viewing.svg_of", lambda *_args, **_kwargs: pytest.fail("laid out"))
        view(other, trace=primal)


# ---------------------------------------------------------------------------------------------------- in a browser

@pytest.fixture
def opened(open_page: Any, html: str, tmp_path: Path) -> Iterator[Any]:
    path = tmp_path / "view.html"
    path.write_text(html, encoding="utf-8")
    found = open_page(path.as_uri())
    yield found
    assert found.asked == [path.as_uri()], "nothing but the file itself"


def _seek(opened: Any, event: int) -> None:
    """Move the slider."""
    opened.page.evaluate(
        "t => { const s = document.getElementById('time'); s.value = t; s.dispatchEvent(new Event('input')); }", event
    )
    _at(opened, event)


def _at(opened: Any, event: int) -> None:
    """Wait until the replay stands there."""
    opened.until(f"document.getElementById('event').value.startsWith('{event} / ')")


def test_the_picture_is_shown_whole(opened: Any) -> None:
    """When the page opens, with the replay under it, and when the window gets another size."""
    page = opened.page
    for width, height in ((1400, 900), (900, 600), (1400, 900)):
        page.set_viewport_size({"width": width, "height": height})
        opened.until(
            """(() => {
              const a = document.querySelector('#canvas svg').getBoundingClientRect();
              const b = document.getElementById('stage').getBoundingClientRect();
              return a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1
                && (a.width > .98 * b.width || a.height > .98 * b.height);
            })()"""
        )
    footer, plot = page.locator("#replay").bounding_box(), page.locator("#plot").bounding_box()
    assert footer["height"] < 140, "the interpreter has no lanes of cores, and no room for them"
    assert footer["y"] + footer["height"] <= 900 and plot["height"] == 40


def test_the_slider_steps_tokens(opened: Any, trace: Trace) -> None:
    page = opened.page
    _at(opened, 0)
    page.focus("#time")
    page.keyboard.press("ArrowRight")
    _at(opened, 1)
    first = trace.events[0]
    assert isinstance(first, Firing)
    assert f"{trace.nodes[first.node]}<{','.join(map(str, first.index))}> fires" in page.text_content("#event")
    assert page.locator(".u-box.active").first.get_attribute("data-name") == trace.nodes[first.node]
    page.keyboard.press("ArrowRight")
    _at(opened, 2)
    second = trace.events[1]
    assert isinstance(second, Sending) and second.value in page.text_content("#event")
    assert page.locator(".u-arrow.active").count() == 1
    assert second.value in (page.text_content(".u-chip-text") or "")
    page.keyboard.press("End")
    _at(opened, len(trace.events))
    assert page.locator(".u-badge").count() == 0, "nothing waits at the end"


def test_waiting_tokens_are_counted_at_their_inputs(opened: Any, trace: Trace) -> None:
    middle = len(trace.events) // 2
    waiting = [0] * len(trace.targets)
    for e in trace.events[:middle]:
        if isinstance(e, Firing):
            for _, target in e.ends:
                waiting[target] -= 1
        else:
            waiting[e.target] += 1
    inputs = len(trace.targets) - len(trace.outputs)
    _seek(opened, middle)
    shown = sorted(int(t) for t in opened.page.locator(".u-badge-text").all_text_contents())
    assert shown == sorted(n for n in waiting[:inputs] if n)


def test_play_runs_and_stops(opened: Any) -> None:
    page = opened.page
    page.select_option("#speed", "40")
    page.click("#play")
    opened.until("+document.getElementById('time').value > 20")
    page.click("#play")
    assert page.get_attribute("#play", "aria-pressed") == "false"


def test_search_finds_a_node(opened: Any) -> None:
    page = opened.page
    page.keyboard.press("/")
    page.keyboard.type("dlink")
    assert "found" in page.text_content("#hits") and page.locator(".u-box.found").count() == 1
    page.keyboard.press("Enter")
    assert "DLink" in (page.text_content("#detail h2") or "")
    detail = page.text_content("#detail") or ""
    assert "20*D" in detail and "proved" in detail
    page.fill("#search", "nothing has this name")
    assert page.text_content("#hits") == "0 found" and page.locator(".found").count() == 0


def test_an_arrow_of_the_derivative_lights_up_with_its_primal(opened: Any) -> None:
    page = opened.page
    page.locator('.u-arrow[data-rule="reversed arrow, gather to multicast"] .u-on-index').click()
    lit = page.locator(".u-arrow.lit")
    assert lit.count() == 2
    titles = [lit.nth(i).locator("title").text_content() for i in range(2)]
    assert any(t.startswith("Link: r*w #N[k-1] -> Sum.s") for t in titles)
    detail = page.text_content("#detail") or ""
    assert "reversed arrow, gather to multicast" in detail and "Link: r*w #N[k-1] -> Sum.s<d,k,j>" in detail
    page.keyboard.press("Escape")
    assert page.locator(".lit").count() == 0


def test_hover_says_what_is_known(opened: Any) -> None:
    opened.page.locator('.u-box[data-name="Sum"] .u-on-port').first.hover()
    detail = opened.page.text_content("#detail") or ""
    assert "inferred domain" in detail and "firings" in detail and "node Sum<d,k,i>" in detail


def test_steps_can_be_walked_through(opened: Any) -> None:
    page = opened.page
    steps = page.locator("#steps button")
    assert steps.count() == 5 and steps.nth(4).get_attribute("aria-current") == "step"
    steps.nth(0).click()
    assert page.locator('.u-box[data-name="DLink"]').count() == 0
    assert "DLink" not in (page.text_content("#text") or "")
    steps.nth(2).click()
    assert page.locator('.u-box[data-name="DLink"]').count() == 1
    assert any("DLink" in t for t in page.locator("#text .new").all_text_contents()), "what is new is marked"
    page.click('button[data-form="ir"]')
    assert "upl.program @perceptron" in (page.text_content("#text") or "")
    page.click('button[data-form="rules"]')
    assert page.locator("#text td").first.is_visible()


def test_zoom_pan_and_keys(opened: Any) -> None:
    page = opened.page
    before = page.evaluate("document.getElementById('canvas').style.transform")
    page.focus("#stage")
    for key in ("+", "ArrowLeft"):
        page.keyboard.press(key)
        after = page.evaluate("document.getElementById('canvas').style.transform")
        assert after != before, key
        before = after
    box = page.locator("#stage").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 120, box["y"] + 60)
    page.mouse.up()
    moved = page.evaluate("document.getElementById('canvas').style.transform")
    assert moved != before
    page.keyboard.press("0")
    page.focus("#stage")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator(".lit").count() >= 1, "a node or an arrow is chosen by Tab and Enter"
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") in ("dark", "light")


def test_text_of_the_page_has_contrast(opened: Any) -> None:
    """Every visible text outside the picture, in both themes; the picture's own colours have a test of their own."""
    for _ in range(2):
        low = opened.page.evaluate(
            """() => {
              const parse = c => c.match(/[\\d.]+/g).map(Number);
              const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
              const lum = c => c.slice(0, 3).map(v => linear(v / 255))
                .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
              const ground = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
                if (c.length < 4 || c[3] > .99) return c; } return [255, 255, 255]; };
              const bad = [];
              for (const e of document.querySelectorAll('header *, aside *, footer *:not(svg *)')) {
                const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
                if (!own || !e.offsetParent) continue;
                const [a, b] = [lum(parse(getComputedStyle(e).color)), lum(ground(e))].sort((x, y) => y - x);
                if ((a + .05) / (b + .05) < 4.5) bad.push(e.tagName + ' ' + e.textContent.slice(0, 30));
              }
              return bad;
            }"""
        )
        assert low == []
        opened.page.click("#theme")


def test_stuck_tokens_are_marked(open_page: Any, tmp_path: Path) -> None:
    program = upl.load(STUCK)
    failed, _ = record(program, {"A": np.ones(4), "B": np.ones(3)})
    path = tmp_path / "stuck.html"
    path.write_text(view(program, trace=failed), encoding="utf-8")
    found = open_page(path.as_uri())
    found.page.click("#last")
    _at(found, len(failed.events))
    badge = found.page.locator(".u-badge.stuck")
    assert badge.count() == 1
    assert found.page.locator(".u-badge-text").all_text_contents() == ["1!"], "not by colour alone"
    assert badge.evaluate("e => getComputedStyle(e).fill") in ("rgb(179, 20, 15)", "rgb(255, 157, 148)")
    assert "UPL1601" in found.page.text_content("#event")
    found.page.fill("#search", "M")
    found.page.press("#search", "Enter")
    assert "<0> = 1  stuck" in (found.page.text_content("#detail") or "")


def test_a_long_trace_is_read_window_by_window(open_page: Any, tmp_path: Path) -> None:
    program = upl.load(
        "program long\nparam n >= 1\ninput A<i> in 0<=i<n { -> M.a }\noutput Y<i>\nnode M<i> { in a; 2*a -> Y<i> }\n"
    )
    long, _ = record(program, {"A": np.arange(15_000.0)})
    assert len(long.events) == 60_000
    html = view(program, trace=long)
    assert len(_data(html)["trace"]["chunks"]) == 12
    path = tmp_path / "long.html"
    path.write_text(html, encoding="utf-8")
    found = open_page(path.as_uri())
    for event in (60_000, 30_001, 1):
        _seek(found, event)


def test_the_work_of_a_step_does_not_grow_with_the_run(open_page: Any, tmp_path: Path) -> None:
    """What is changed in the picture is bounded by what is seen there, what is read by two windows."""
    program = upl.load(
        "program long\nparam n >= 1\ninput A<i> in 0<=i<n { -> M.a; -> M.b }\noutput Y<i>\n"
        "node M<i> { in a, b; 2*a + b -> N.a }\nnode N<i> { in a; a -> Y }\n"
    )
    found_work: list[dict[str, int]] = []
    for n in (10, 5_000):
        ran, _ = record(program, {"A": np.arange(float(n))})
        path = tmp_path / f"{n}.html"
        path.write_text(view(program, trace=ran), encoding="utf-8")
        found = open_page(path.as_uri())
        _at(found, 0)
        _seek(found, len(ran.events) // 2)
        found.page.evaluate(
            """() => {
              window.work = {changed: 0, unpacked: 0};
              new MutationObserver(records => { work.changed += records.length; }).observe(
                document.querySelector('#canvas'), {subtree: true, childList: true, attributes: true, characterData: true});
              const Real = DecompressionStream;
              window.DecompressionStream = function(kind) { work.unpacked++; return new Real(kind); };
            }"""
        )
        for step in range(1, 21):
            _seek(found, len(ran.events) // 2 + step)
        found_work.append(found.page.evaluate("work"))
        assert found.page.locator(".u-box").count() == 4
    small, large = found_work
    assert large["unpacked"] <= 2
    assert 0 < large["changed"] <= 2 * small["changed"] and large["changed"] <= 20 * 30, found_work


def test_keys_and_curves_of_a_replay(opened: Any, trace: Trace) -> None:
    page = opened.page
    page.keyboard.press("End")
    _at(opened, len(trace.events))
    page.keyboard.press("Home")
    _at(opened, 0)
    firings = [i for i, e in enumerate(trace.events, 1) if isinstance(e, Firing) and trace.nodes[e.node] == "Sum"]
    page.fill("#search", "Sum")
    page.press("#search", "Enter")
    for event in firings[:2]:
        page.click("text=Next firing")
        _at(opened, event)
        assert "Sum<" in page.text_content("#event")
    box = page.locator("#plot").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 20)
    _at(opened, round(len(trace.events) / 2))


def test_a_machine_has_a_lane_for_each_core(open_page: Any, tmp_path: Path) -> None:
    program = upl.load(
        "program lanes\nparam n >= 1\ninput A<i> in 0<=i<n { -> M.a }\noutput Y<i>\nnode M<i> { in a; 2*a -> Y<i> }\n"
    )
    ran, _ = record(program, {"A": np.arange(8.0)})
    # As on two cores: the firings of M in turn, five cycles apart; what the host does has no core.
    places: list[list[int]] = []
    fired, host = 0, True
    for e in ran.events:
        if isinstance(e, Firing):
            host = ran.nodes[e.node] != "M"
            fired += not host
        places.append([-1 if host else fired % 2, 5 * fired])
    ran.places = places
    path = tmp_path / "lanes.html"
    path.write_text(view(program, trace=ran), encoding="utf-8")
    found = open_page(path.as_uri())
    lanes = found.page.locator("#lanes .lane")
    assert lanes.count() == 2
    assert [t.split(":")[1].split(" in")[0] for t in lanes.locator("title").all_text_contents()] == [" 4 firings"] * 2
    box = found.page.locator("#lanes").bounding_box()
    assert box is not None and box["height"] >= 20 and box["width"] > 1000
    lit = "[...document.querySelectorAll('#lanes .lane.active')].map(e => e.dataset.core).join()"
    for number, (core, cycle) in enumerate(places, 1):
        _seek(found, number)
        said = found.page.text_content("#event") or ""
        assert ("host" if core < 0 else f"core {core}, cycle {cycle}") in said
        assert found.page.evaluate(lit) == ("" if core < 0 else str(core))
