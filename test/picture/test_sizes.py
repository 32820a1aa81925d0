"""The page on a phone, a laptop and a large screen, light and dark: nothing is cut, and on a phone two fingers zoom."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.observe.replay import record
from upl_mlir.observe.viewing import view

SIZES = {"phone": (390, 844), "laptop": (1440, 900), "large": (2560, 1440)}
@pytest.fixture(scope="module")
def address(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with all that there is: passes, derivative, proofs, replay."""
    program = upl.load(examples / "perceptron.upl", K=3, N=[3, 4, 2])
    gradient = upl.vjp(program, of="R", wrt=["W"])
    rng = np.random.default_rng(1)
    trace, _ = record(gradient, {n: rng.normal(size=v.shape(D=2)) for n, v in gradient.inputs.items()})
    path = tmp_path_factory.mktemp("page") / "view.html"
    path.write_text(view(program, of="R", wrt=["W"], trace=trace), encoding="utf-8")
    return path.as_uri()


PLACEHOLDER_FITS = """field => {
  const style = getComputedStyle(field), pen = document.createElement("canvas").getContext("2d");
  pen.font = style.font;
  const room = field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return pen.measureText(field.placeholder).width + 20 <= room;  // 20: the button that clears the field keeps its place
}"""


def _tabs(found: Any) -> list[str]:
    return ["picture", "detail", "text"] if found.page.locator("#tabs").is_visible() else ["picture"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", list(SIZES))
def test_nothing_is_cut(open_page: Callable[..., Any], address: str, size: str, scheme: str) -> None:
    width, height = SIZES[size]
    found = open_page(address, viewport={"width": width, "height": height}, color_scheme=scheme)
    page = found.page
    assert page.get_attribute("html", "data-theme") == scheme
    assert (len(_tabs(found)) == 3) is (size == "phone")
    assert page.eval_on_selector("#search", PLACEHOLDER_FITS)
    page.fill("#search", "Link")
    page.press("#search", "Enter")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("End")
    found.until("/fires|=/.test(document.getElementById('event').value)")
    for tab in _tabs(found):
        if size == "phone":
            page.click(f'[data-tab="{tab}"]')
        for form in ("text", "ir", "rules") if tab == "text" or size != "phone" else ():
            page.click(f'button[data-form="{form}"]')
            assert found.cut() == [], (tab, form)
        page.click("#fit")
        found.until("document.getAnimations().length === 0")
        assert found.cut() == [], tab
    page.evaluate("document.querySelector('header').style.width = '5000px'")
    assert found.cut() != [], "the measure sees what is cut"


def test_two_fingers_zoom_and_one_moves(open_page: Callable[..., Any], address: str) -> None:
    found = open_page(address, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = found.page
    devtools = page.context.new_cdp_session(page)
    box = page.locator("#stage").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def touch(kind: str, *points: tuple[float, float]) -> None:
        devtools.send("Input.dispatchTouchEvent", {
            "type": kind, "touchPoints": [{"x": px, "y": py, "id": i} for i, (px, py) in enumerate(points)],
        })  # fmt: skip

    def at() -> tuple[float, float, float]:
        m = page.evaluate("new DOMMatrix(getComputedStyle(document.getElementById('canvas')).transform).toJSON()")
        return m["a"], m["e"], m["f"]

    scale, left, top = at()
    touch("touchStart", (x - 30, y), (x + 30, y))
    for apart in (40, 60, 90):
        touch("touchMove", (x - apart, y), (x + apart, y))
    touch("touchEnd")
    zoomed, zoomed_left, _ = at()
    assert zoomed == pytest.approx(3 * scale, rel=0.05)
    middle = box["width"] / 2  # what was between the fingers still is
    assert (middle - zoomed_left) / zoomed == pytest.approx((middle - left) / scale, rel=0.05)
    touch("touchStart", (x, y))
    touch("touchMove", (x + 20, y + 10))
    touch("touchMove", (x + 50, y + 10))
    touch("touchEnd")
    assert at()[0] == zoomed and at()[1] == pytest.approx(zoomed_left + 50, abs=25) and at()[2] != top
