"""What programs, reports, callables, runs and pages show in a notebook; and the magic `%%upl` in IPython."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.observe.replay import record

EXAMPLES = Path(__file__).parents[2] / "examples"
WRONG = 'program p\ninput X<i> in 0<=i<3 { -> R; -> R }\noutput R<i>  // <b> & "\n'
BY_DATA = """program p
param n >= 1
input X<i> in 0<=i<n { -> F.x }
output R<i>
node F<i> in 0<=i<n { in x; if x>0: x -> R }
"""
ARRAYS: dict[str, Any] = {"A": np.ones((2, 2)), "B": np.eye(2)}


def words(shown: str) -> list[str]:
    """The texts of a piece of HTML, which has to be well formed."""
    return [t for t in (t.strip() for t in ElementTree.fromstring(f"<div>{shown}</div>").itertext()) if t]


@pytest.fixture(scope="module")
def matmul() -> upl.Program:
    return upl.load(EXAMPLES / "matmul.upl")


def test_a_program_is_its_picture_and_its_text(matmul: upl.Program) -> None:
    pytest.importorskip("py_mini_racer", reason="no Python package `mini-racer` here (extra `draw`)")
    shown = matmul._repr_html_()
    assert matmul._repr_svg_() in shown
    assert "node Mul<i,j,k> { in a, b; a*b -> Acc.s<i,j> }" in html.unescape(shown)
    assert "<details><summary>text</summary>" in shown


def test_a_program_without_the_extra_is_its_text(matmul: upl.Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upl_mlir.api.displays.shown", lambda _: None)
    assert "".join(words(matmul._repr_html_())) == str(matmul).strip()


def test_a_report_is_a_table_of_obligations(matmul: upl.Program) -> None:
    said = words(matmul.check()._repr_html_())
    assert said[0] == "18 proved" and "critical path: 2" in said
    assert said[said.index("Mul", said.index("firings and tokens")) :][:3] == ["Mul", "m*n*r", "m*r+n*r"]
    report = upl.load(WRONG).check()
    said = words(report._repr_html_())
    assert said[0] == "1 refuted" and "7 proved" in said
    assert any(re.match(r"R<0> gets a token from .* and another from ", text) for text in said)
    assert "<string>:2:30" in said


def test_a_count_that_data_decide_is_a_question_mark() -> None:
    said = words(upl.load(BY_DATA).check()._repr_html_())
    assert said[said.index("F", said.index("firings and tokens")) :] == ["F", "n", "n", "R", "?"]


def test_a_callable_says_what_goes_in_and_what_the_last_run_did(matmul: upl.Program) -> None:
    f = upl.compile(matmul, engine="token")
    said = words(f._repr_html_())
    assert said[0] == "matmul on the engine token" and "A<i,k>: real" in said and "C<i,j>: real" in said
    assert "the last run" not in said and repr(f) == "<matmul on the engine token>"
    f(**ARRAYS)
    said = words(f._repr_html_())
    assert said[said.index("tokens_sent") + 1] == "20"


def test_a_run_and_its_replay(matmul: upl.Program) -> None:
    pytest.importorskip("py_mini_racer", reason="no Python package `mini-racer` here (extra `draw`)")
    trace, _ = record(matmul, ARRAYS)
    said = words(trace._repr_html_())
    assert "run of matmul" in said
    assert said[said.index("Acc") - 1 :][:3] == ["fires", "Acc", "4"]
    page = upl.view(matmul, inputs=ARRAYS)
    frame = re.fullmatch(r'<iframe srcdoc="([^"]*)" style="[^"]*"></iframe>', page._repr_html_())
    assert frame is not None and html.unescape(frame[1]) == page.html
    assert page.html.startswith("<!DOCTYPE html>") and '"trace": null' not in page.html
    assert upl.view(matmul, trace=trace).html == page.html
    assert "autodiff" in upl.view(matmul, of="C", wrt="A").html


def test_a_page_can_be_saved(tmp_path: Path) -> None:
    from upl_mlir.observe.notebook import Page

    page = Page("δ", "<!DOCTYPE html>δ")
    page.save(tmp_path / "p.html")
    assert (tmp_path / "p.html").read_text(encoding="utf-8") == page.html and repr(page) == "<page of δ>"


# -- IPython -----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def shell() -> Any:
    interactive = pytest.importorskip(
        "IPython.core.interactiveshell", reason="no Python package `ipython` here (extra `notebooks`)"
    )
    found = interactive.InteractiveShell.instance()
    found.run_line_magic("load_ext", "upl_mlir")
    return found


def test_the_magic(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = (EXAMPLES / "matmul.upl").read_text(encoding="utf-8")
    shown = shell.run_cell_magic("upl", "product n=3", text)
    assert shell.user_ns["product"] is shown and shown.params == ("m", "r")
    shell.run_cell_magic("upl", "", text)
    assert shell.user_ns["matmul"].params == ("m", "n", "r")
    assert capsys.readouterr().out == ""
    for line, cell, code in (("wrong", WRONG, "UPL1303"), ("wrong", "program", "UPL1002"), ("n=", text, "UPL1802")):
        assert shell.run_cell_magic("upl", line, cell) is None
        said = capsys.readouterr().out
        assert code in said and "Traceback" not in said
    assert "wrong" not in shell.user_ns


def test_an_error_is_shown_without_a_traceback(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell("import upl_mlir as upl\nupl.load('program p\\nnode')")
    said = capsys.readouterr().out
    assert "error[UPL1002]" in said and " 2 | node" in said and "Traceback" not in said


def test_the_formatter_of_a_notebook_finds_it(shell: Any, matmul: upl.Program) -> None:
    data, _ = shell.display_formatter.format(matmul.check())
    assert data["text/html"] == matmul.check()._repr_html_()
