"""The editor in a headless Chromium: with the mouse, and with the keyboard alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from upl_mlir.tools.editor.server import Server
from upl_mlir.tools.upl import main

TEXT = """// Squares of a vector.
program squares
param n >= 1
input A<i> in 0<=i<n { -> Square }   // as it comes
output Y<i>
node Square<i> {
  in a
  a*a -> Y      // one square
}
"""
COMMENTS = ("// Squares of a vector.", "// as it comes", "// one square")
FOCUS = "document.activeElement"


class Editor:
    """The page and the file behind it."""

    def __init__(self, open_page: Any, server: Server, path: Path, **context: Any):
        self.path, self.opened = path, open_page(server.address, **context)
        self.page, self.until = self.opened.page, self.opened.until

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def proved(self, words: str = "nothing is refuted") -> None:
        """Wait until the status has words."""
        self.until(f"document.getElementById('status').value.includes({words!r})")

    def within(self, selector: str) -> None:
        """Wait until the focus is on or in an element."""
        self.until(f"{FOCUS} !== null && {FOCUS}.closest({selector!r}) !== null")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)


@pytest.fixture
def editor(open_page: Any, serve: Callable[[Path], Server], tmp_path: Path) -> Editor:
    path = tmp_path / "squares.upl"
    path.write_text(TEXT, encoding="utf-8")
    return Editor(open_page, serve(path), path)


def _accepted(editor: Editor, capsys: pytest.CaptureFixture[str]) -> None:
    """What `upl check` and `upl fmt` say of the file; the author's comments are in it."""
    text = editor.text
    assert all(text.count(c) == 1 for c in COMMENTS)
    assert main(["check", "-q", str(editor.path)]) == 0, capsys.readouterr()
    assert main(["fmt", str(editor.path)]) == 0
    assert all(editor.text.count(c) == 1 for c in COMMENTS)


def _middle(editor: Editor, selector: str) -> tuple[float, float]:
    box = editor.page.locator(selector).first.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_with_the_mouse(editor: Editor, capsys: pytest.CaptureFixture[str]) -> None:
    page = editor.page
    editor.proved()
    page.click("text=Node")
    page.fill("#adding input[name=name]", "Half")
    page.fill("#adding input[name=fields]", "i")
    page.fill("#adding input[name=inputs]", "s")
    page.click("#adding button[type=submit]")
    editor.until("document.querySelector('.u-box[data-name=Half]') !== null")
    assert editor.text == TEXT + "node Half<i> { in s }\n"

    page.locator('.u-box[data-name="Square"] .u-text').first.hover()
    page.mouse.move(*_middle(editor, ".u-handle"))
    page.mouse.down()
    page.mouse.move(*_middle(editor, '.u-box[data-name="Half"] ellipse'), steps=5)
    page.mouse.up()
    editor.within(".own")
    assert "  a*a -> Y      // one square\n  -> Half.s\n" in editor.text
    page.fill(".own textarea", "a*a -> Half.s")
    page.click(".own >> text=Apply")
    editor.until("document.querySelector('.own') === null")
    assert "  a*a -> Half.s\n" in editor.text

    arrow = next(
        i for i in range(page.locator(".u-arrow").count())
        if (page.locator(".u-arrow title").nth(i).text_content() or "").startswith("Square: a*a -> Y")
    )  # fmt: skip
    page.locator(".u-arrow").nth(arrow).locator(".u-on-index").dblclick()
    editor.within(".own")
    assert page.input_value(".own textarea") == "a*a -> Y"
    page.keyboard.press("Escape")
    page.click("text=Delete")
    editor.until("!document.getElementById('code').value.includes('-> Y')")
    assert "  in a\n  // one square\n  a*a -> Half.s\n" in editor.text

    page.locator('.u-box[data-name="Half"] .u-on-port').first.dblclick()
    editor.within(".own")
    assert page.input_value(".own textarea") == "node Half<i> { in s }"
    page.fill(".own textarea", "node Half<i> { in s; s/2 -> Y }")
    page.keyboard.press("Control+Enter")
    editor.proved()
    assert page.locator(".wrong").count() == 0
    _accepted(editor, capsys)


def test_with_the_keyboard_alone(editor: Editor, capsys: pytest.CaptureFixture[str]) -> None:
    page = editor.page
    editor.proved()
    page.focus("#stage")
    editor.press("Tab")
    editor.within('.u-arrow, .u-box')
    editor.press("n")
    editor.within("#adding")
    page.keyboard.type("Half")
    editor.press("Tab")
    page.keyboard.type("i")
    editor.press("Tab")
    page.keyboard.type("s")
    editor.press("Enter")
    editor.within('.u-box[data-name="Half"]')

    editor.press("ArrowDown", "ArrowUp")
    editor.within('.u-box[data-name="Half"]')
    editor.press("a")
    editor.within("#drawing")
    assert page.input_value("#drawing select[name=source]") == "Half"
    page.keyboard.type("Y")
    editor.press("Enter")
    editor.within(".own")
    page.keyboard.type("s/2 -> Y")
    editor.press("Enter")
    editor.within(".u-arrow")
    assert "node Half<i> { in s; s/2 -> Y }" in editor.text

    editor.press("/")
    page.keyboard.type("Square")
    editor.press("Enter", "Escape")
    editor.until("document.querySelector('.u-box.found') !== null")
    page.focus('.u-box[data-name="Square"]')
    editor.press("ArrowRight")
    editor.within(".u-arrow")
    editor.press("e")
    editor.within(".own")
    page.keyboard.type("a*a -> Half")
    editor.press("Enter")
    editor.within(".u-arrow")
    editor.proved()

    editor.press("e")
    editor.within(".own")
    page.keyboard.type("a*b -> Half")
    editor.press("Enter")
    editor.until("document.querySelector('.u-arrow.wrong') !== null")
    wrong = page.locator(".u-arrow.wrong")
    assert wrong.count() == 1 and "error: " in wrong.get_attribute("aria-label")
    assert "`b`" in page.text_content("#errors") and "error" in page.text_content("#status")
    editor.press("Control+z")
    editor.until("document.querySelector('.wrong') === null")
    editor.proved()

    page.focus('.u-box[data-name="Half"]')
    editor.press("r")
    editor.within("#renaming")
    page.keyboard.type("Scaled")
    editor.press("Enter")
    editor.within('.u-box[data-name="Scaled"]')
    assert "a*a -> Scaled" in editor.text and "node Scaled<i>" in editor.text
    editor.press("?")
    editor.within("#help")
    assert "undo, redo" in page.text_content("#help")
    editor.press("Escape")
    editor.proved()
    _accepted(editor, capsys)


def test_a_mistake_that_is_refuted_is_shown_on_its_arrow(editor: Editor) -> None:
    page = editor.page
    editor.proved()
    page.focus('.u-arrow[data-port="a"]')
    editor.press("e")
    page.keyboard.type("#2 -> Square")
    editor.press("Enter")
    editor.until("document.querySelector('.wrong') !== null")
    assert "UPL13" in page.text_content("#errors")
    page.click("#errors button")
    assert page.locator(".u-box.lit, .u-arrow.lit").count() >= 1
    page.focus("#stage")
    editor.press("Control+z")
    editor.proved()
    assert page.locator(".wrong").count() == 0 and editor.text == TEXT
    editor.press("Control+Shift+z")
    editor.until("document.querySelector('.wrong') !== null")


def test_an_error_is_mended_as_its_help_says(editor: Editor) -> None:
    page = editor.page
    page.locator("#code").fill(TEXT.replace("-> Square", "-> Squar"))
    editor.until("document.querySelector('#errors .mend') !== null")
    page.click("#errors .mend")
    editor.proved()
    assert editor.text == TEXT


def test_a_text_that_cannot_be_read_keeps_the_picture(editor: Editor) -> None:
    page = editor.page
    editor.proved()
    code = page.locator("#code")
    code.fill(TEXT.replace("a*a ->", "a* ->"))
    editor.until("document.querySelector('.u-arrow.wrong') !== null")
    assert page.locator(".u-box").count() == 3 and page.locator("#canvas.stale").count() == 1
    assert "a* ->" in editor.text and page.locator("#shade mark.wrong").count() == 1
    page.focus('.u-box[data-name="Square"]')
    editor.press("Delete")
    editor.proved("cannot be read")
    assert "a* ->" in editor.text and "node Square" in editor.text
    code.fill(TEXT)
    editor.proved()
    assert page.locator(".stale, .wrong").count() == 0 and editor.text == TEXT


def test_a_refused_act_says_why_in_its_place(editor: Editor) -> None:
    page = editor.page
    page.focus('.u-box[data-name="Square"]')
    editor.press("r")
    page.keyboard.type("A")
    editor.press("Enter")
    editor.until("document.querySelector('#renaming .refusal').value.includes('is taken')")
    editor.press("Escape")
    page.focus('.u-arrow[data-port="a"]')
    editor.press("e")
    page.keyboard.type("-> ")
    editor.press("Enter")
    editor.until("document.querySelector('.own .refusal').value.includes('expected')")
    assert page.input_value(".own textarea") == "-> ", "what was typed is still there"
    editor.press("Escape")
    assert editor.text == TEXT


def test_what_another_program_writes_is_shown_and_nothing_is_lost(editor: Editor) -> None:
    page = editor.page
    editor.proved()
    editor.path.write_text(TEXT.replace("Squares of", "All squares of"), encoding="utf-8")
    editor.until("document.getElementById('code').value.includes('All squares')")
    page.route("**/state*", lambda route: None)  # the page hears of nothing
    editor.path.write_text(TEXT.replace("Squares of", "Nearly all squares of"), encoding="utf-8")
    page.locator("#code").press("Control+End")
    page.keyboard.type("// mine")
    editor.until("document.getElementById('errors').textContent.includes('not saved')")
    assert "Nearly all" in editor.text and page.input_value("#code").endswith("// mine")
    page.unroute("**/state*")
    page.click("text=Keep mine")
    editor.until("document.getElementById('errors').textContent === ''")
    assert editor.text.endswith("// mine") and "// All squares" in editor.text
    page.focus("#stage")
    editor.press("Control+z")
    editor.until("document.getElementById('code').value.includes('Nearly all')")


def test_names_that_a_screen_reader_says(editor: Editor) -> None:
    editor.proved()
    found = editor.page.locator("#canvas svg [role=button]")
    names = [found.nth(i).get_attribute("aria-label") or "" for i in range(found.count())]
    assert len(names) == 5 and all(names)
    assert any(n.startswith("host input A<i>") for n in names)
    assert any(n.startswith("arrow from Square: a*a -> Y") for n in names)
    unnamed = editor.page.evaluate(
        "[...document.querySelectorAll('button, input, select, textarea')].filter(e => !(e.textContent.trim()"
        " || e.getAttribute('aria-label') || e.labels && e.labels.length)).map(e => e.outerHTML)"
    )
    assert unnamed == []


@pytest.mark.parametrize(("width", "height"), [(390, 844), (2560, 1440)])
def test_nothing_is_cut(
    open_page: Any, serve: Callable[[Path], Server], tmp_path: Path, width: int, height: int
) -> None:
    """With an error, a dialog and a text in its place; on a phone a mistake can be mended, too."""
    path = tmp_path / "squares.upl"
    path.write_text(TEXT.replace("-> Square", "#2 -> Square"), encoding="utf-8")
    editor = Editor(open_page, serve(path), path, viewport={"width": width, "height": height}, color_scheme="dark")
    page = editor.page
    editor.proved("error")
    for tab in ("detail", "text", "picture") if width == 390 else ():
        page.click(f'[data-tab="{tab}"]')
        assert editor.opened.cut() == [], tab
    page.click("#fit")
    assert editor.opened.cut() == []
    inside = "(e => (r => r.left >= 0 && r.right <= innerWidth && r.bottom <= innerHeight)(e.getBoundingClientRect()))"
    for tool, selector in (("Node", "#adding"), ("Keys", "#help")):
        page.click(f"text={tool}")
        assert page.evaluate(f"{inside}(document.querySelector('{selector}'))"), tool
        editor.press("Escape")
    page.locator(".u-arrow.wrong").first.focus()
    page.click("text=Edit")
    assert page.evaluate(f"{inside}(document.querySelector('.own'))")
    page.fill(".own textarea", "-> Square")
    page.click(".own >> text=Apply")
    editor.proved()
    assert editor.text == TEXT
