"""What a notebook of marimo shows in a browser: a picture, a table of proofs, and the page of a run, which plays."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("marimo", reason="marimo is not installed (extra `notebooks`)")
TEXT = "program squares\nparam n >= 1\ninput A<i> in 0<=i<n { -> S }\noutput Y<i>\nnode S<i> { in a; a*a -> Y }\n"
NOTEBOOK = f'''
import marimo

app = marimo.App()


@app.cell
def _():
    import upl_mlir as upl

    p = upl.load({TEXT!r})
    p
    return p, upl


@app.cell
def _(p):
    p.check()
    return


@app.cell
def _(p, upl):
    upl.view(p, of="Y", wrt="A", inputs={{"A": [1.0, 2.0, 3.0]}})
    return
'''


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A notebook, served by marimo."""
    path = tmp_path / "notebook.py"
    path.write_text(NOTEBOOK, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    options = ["run", str(path), "--headless", "--no-token", "--host", "127.0.0.1", "--port", port]
    command = [sys.executable, "-m", "marimo", "-q", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", int(port)), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGINT)


def test_a_program_its_proofs_and_its_page(browser: Any, address: str) -> None:
    page = browser.new_page(viewport={"width": 1300, "height": 1500})
    page.goto(address)
    frame = page.frame_locator("iframe")
    frame.locator("#next").click(timeout=120_000)
    assert page.locator("svg.upl-picture .u-box").count() == 3
    assert "10 proved" in page.inner_text("body")
    frame.locator(".u-box.active").first.wait_for(state="attached")
    assert "A<0> fires" in (frame.locator("#event").text_content() or "")
    picture, stage = frame.locator("#canvas svg").bounding_box(), frame.locator("#stage").bounding_box()
    assert picture["y"] >= stage["y"] - 1 and picture["y"] + picture["height"] <= stage["y"] + stage["height"] + 1
    page.close()
