"""A file that is edited as a picture: versions, the disk, and where errors are shown."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from upl_mlir.diagnostics import UplError
from upl_mlir.tools.editor import acts
from upl_mlir.tools.editor.session import Session, block, require_editable

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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "squares.upl"
    found.write_text(TEXT, encoding="utf-8")
    return found


@pytest.fixture
def open_session() -> Iterator[Callable[[Path], Session]]:
    opened: list[Session] = []

    def open_(path: Path) -> Session:
        opened.append(Session(path))
        return opened[-1]

    yield open_
    for found in opened:
        found.close()


@pytest.fixture
def session(path: Path, open_session: Callable[[Path], Session]) -> Session:
    return open_session(path)


def _proved(session: Session) -> dict[str, Any]:
    """The state when the proofs of the text have ended."""
    state = session.state()
    for _ in range(60):
        if not state["proving"]:
            return state
        state = session.wait(state["number"], 20)
    raise AssertionError("the proof never ended")


def _typed(session: Session, text: str) -> dict[str, Any]:
    return session.change(session.version, lambda d: acts.type_text(d, text), typed=True)


def test_every_act_is_in_the_file_and_undone_to_the_byte(session: Session, path: Path) -> None:
    texts = [TEXT]
    for act in (
        lambda d: acts.add(d, "output", "Z", fields="i"), lambda d: acts.draw(d, "Square", "Z", None),
        lambda d: acts.rename_to(d, ("Square", "a"), "x"), lambda d: acts.delete(d, "Z"),
    ):  # fmt: skip
        state = session.change(session.version, act)
        texts.append(state["text"])
        assert path.read_text(encoding="utf-8") == texts[-1] != texts[-2] and state["undo"] and not state["redo"]
    for text in texts[-2::-1]:
        session.undo(session.version)
        assert path.read_text(encoding="utf-8") == text
    assert path.read_bytes() == TEXT.encode()
    for text in texts[1:]:
        session.undo(session.version, again=True)
        assert path.read_text(encoding="utf-8") == text
    with pytest.raises(UplError, match="nothing to redo"):
        session.undo(session.version, again=True)


def test_an_arrow_that_is_drawn_says_where_it_begins(session: Session) -> None:
    state = session.change(0, lambda d: acts.draw(d, "Square", "Square", "a"))
    assert state["text"][state["made"] :].startswith("-> Square.a")
    assert [state["made"]] == [a for a, _ in state["places"]["arrows"].values() if a == state["made"]]


def test_what_is_refuted_is_shown_on_its_arrow(session: Session) -> None:
    assert _proved(session)["errors"] == []
    session.change(0, lambda d: acts.draw(d, "A", "Square", "a"))
    state = _proved(session)
    (error,) = state["errors"]
    (arrow,) = [name for name, (start, _) in state["places"]["arrows"].items() if start == error["range"][0]]
    assert error["code"] == "UPL1303" and error["on"] == {"arrow": arrow}
    session.undo(session.version)
    state = _proved(session)
    assert state["errors"] == [] and state["boxes"]["Square"]["firings"] == "n"


def test_an_error_of_names_is_shown_on_the_picture_before(session: Session) -> None:
    """There is no picture of a text with such an error; the last one is kept, and its places move with the text."""
    picture = session.state()["picture"]
    arrow = next(n for n, (a, _) in session.state()["places"]["arrows"].items() if TEXT[a:].startswith("a*a"))
    state = session.change(0, lambda d: acts.rewrite(d, d.arrow(session.arrow(arrow))[1].span, "a*b -> Y"))
    assert state["picture"] == picture and not state["current"]
    (error,) = state["errors"]
    assert error["on"] == {"arrow": arrow} and "`b`" in error["message"]
    state = _typed(session, "// a new line\n" + state["text"])
    assert state["errors"][0]["on"] == {"arrow": arrow}
    state = session.change(session.version, lambda d: acts.rewrite(d, d.arrow(session.arrow(arrow))[1].span, "a*a -> Y"))
    assert state["errors"] == [] and state["current"]


def test_a_text_that_cannot_be_read_keeps_the_picture(session: Session, path: Path) -> None:
    picture = session.state()["picture"]
    wrong = TEXT.replace("a*a ->", "a* ->")
    state = _typed(session, wrong)
    assert path.read_text(encoding="utf-8") == wrong and state["picture"] == picture and not state["current"]
    (error,) = state["errors"]
    assert error["line"] == 8 and error["on"] == {"arrow": "a1"} and error["code"].startswith("UPL10")
    with pytest.raises(UplError, match="cannot be read") as caught:
        session.change(session.version, lambda d: acts.delete(d, "Square"))
    assert caught.value.diagnostics[0].code == "UPL1813"
    assert session.undo(session.version)["errors"] == []


def test_an_act_may_not_break_the_text(session: Session, path: Path) -> None:
    for text in ("a* -> Y", "a -> Y }", "a -> Y /*"):
        with pytest.raises(UplError) as caught:
            session.change(0, lambda d: acts.rewrite(d, d.arrow(session.arrow("a1"))[1].span, text))  # noqa: B023
        assert caught.value.diagnostics[0].code.startswith(("UPL10", "UPL11"))
    with pytest.raises(UplError, match="UPL10"):
        session.change(0, lambda d: acts.add(d, "node", "B", inputs="a -> b"))
    assert path.read_text(encoding="utf-8") == TEXT and session.version == 0


def test_an_act_on_an_older_text_is_refused(session: Session) -> None:
    session.change(0, lambda d: acts.add(d, "output", "Z"))
    with pytest.raises(UplError, match="changed meanwhile"):
        session.change(0, lambda d: acts.add(d, "output", "Q"))


def test_what_another_program_writes_is_a_version(session: Session, path: Path) -> None:
    ours = session.change(0, lambda d: acts.add(d, "output", "Z"))["text"]
    theirs = TEXT.replace("Squares of", "All squares of")
    _write(path, theirs)
    with pytest.raises(UplError, match=r"another program has changed squares\.upl") as caught:
        session.change(session.version, lambda d: acts.add(d, "output", "Q"))
    assert caught.value.diagnostics[0].code == "UPL1813"
    assert path.read_text(encoding="utf-8") == theirs, "nothing of theirs is lost"
    assert session.state()["text"] == theirs
    assert session.undo(session.version)["text"] == ours, "and nothing of ours"
    assert session.undo(session.version, again=True)["text"] == theirs


def test_a_waiting_page_hears_of_what_another_program_writes(session: Session, path: Path) -> None:
    number = _proved(session)["number"]
    _write(path, TEXT + "// more\n")
    assert session.wait(number, 10)["text"].endswith("// more\n")


def test_a_file_that_is_no_text_meanwhile_is_not_overwritten(session: Session, path: Path) -> None:
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UplError, match="UPL1813"):
        session.change(0, lambda d: acts.add(d, "output", "Z"))
    assert path.read_bytes() == b"\xff\xfe"
    _write(path, TEXT)
    assert "output Z" in session.change(session.version, lambda d: acts.add(d, "output", "Z"))["text"]


def test_a_file_that_is_gone_is_written_again(session: Session, path: Path) -> None:
    path.unlink()
    session.change(0, lambda d: acts.add(d, "output", "Z"))
    assert "output Z" in path.read_text(encoding="utf-8")


def test_each_block_of_a_glued_node(path: Path, open_session: Callable[[Path], Session]) -> None:
    """A block is known by its number; an error stands on the node whichever block it is in."""
    text = TEXT.replace("  in a\n", "  in a\n}\nnode Square { // again\n")
    path.write_text(text, encoding="utf-8")
    session = open_session(path)
    state = session.state()
    assert [text[a:b].partition("\n")[0] for a, b in state["places"]["boxes"]["Square"]] == [
        "node Square<i> {", "node Square { // again",
    ]  # fmt: skip
    state = session.change(0, lambda d: acts.rewrite(d, block(d, "Square", 1).span, "node Square { b = a*c; b -> Y }"))
    assert state["text"].endswith("}\nnode Square { b = a*c; b -> Y }\n")
    assert state["errors"][0]["on"] == {"box": "Square"}
    with pytest.raises(UplError, match="no block 3"):
        session.change(session.version, lambda d: block(d, "Square", 2))


def test_line_ends_and_letters(path: Path, open_session: Callable[[Path], Session]) -> None:
    """A browser's lines end in one character, and it counts a letter beyond the first plane as two."""
    text = TEXT.replace("Squares", "𝛿 squares").replace("\n", "\r\n")
    path.write_bytes(text.encode())
    session = open_session(path)
    state = session.state()
    shown = state["text"].encode("utf-16-le")
    pieces = {n: shown[2 * a : 2 * b].decode("utf-16-le") for n, (a, b) in state["places"]["arrows"].items()}
    assert pieces == {"a0": "-> Square", "a1": "a*a -> Y"}
    _typed(session, state["text"].replace("one square", "its square"))
    assert path.read_bytes() == text.replace("one square", "its square").encode()


def test_files_that_cannot_be_edited(tmp_path: Path, path: Path) -> None:
    def refused(what: str, file: Path, code: str = "UPL1812") -> None:
        with pytest.raises(UplError, match=what) as caught:
            Session(file)
        assert caught.value.diagnostics[0].code == code

    (tmp_path / "p.mlir").write_text("")
    refused("only `.upl` text", tmp_path / "p.mlir")
    refused("there is no such file", tmp_path / "none.upl", "UPL1001")
    path.chmod(stat.S_IREAD)
    refused("this file is read-only", path)


def test_a_file_that_becomes_read_only(session: Session, path: Path) -> None:
    path.chmod(stat.S_IREAD)
    with pytest.raises(UplError, match="this file is read-only"):
        session.change(0, lambda d: acts.add(d, "output", "Z"))
    assert path.read_text(encoding="utf-8") == TEXT == session.state()["text"]
    path.chmod(stat.S_IREAD | stat.S_IWRITE)
    require_editable(path)
    session.change(0, lambda d: acts.add(d, "output", "Z"))


def test_a_text_that_nobody_could_read_so_far(path: Path, open_session: Callable[[Path], Session]) -> None:
    path.write_text("program\n", encoding="utf-8")
    session = open_session(path)
    state = session.state()
    assert state["errors"] and state["errors"][0]["on"] is None and "<svg" in state["picture"]
    assert _typed(session, TEXT)["current"]


def _write(path: Path, text: str) -> None:
    """As another program does, at another time than the last change."""
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(path.stat().st_mtime_ns + 10**9,) * 2)
