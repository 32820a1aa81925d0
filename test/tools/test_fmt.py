"""`upl fmt`: what it writes, what it prints, what it returns; and that a file with an error stays as it is."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from test.tools.conftest import Tool

UGLY = "program  p\nparam D>=1 // c\n"
NICE = "program p\nparam D >= 1  // c\n"
WRONG = "program p\nparam 1\n"


def write(path: Path, text: str) -> Path:
    """A file with this text."""
    path.write_text(text, encoding="utf-8")
    return path


def test_in_place(upl: Tool, tmp_path: Path) -> None:
    ugly, nice = write(tmp_path / "ugly.upl", UGLY), write(tmp_path / "nice.upl", NICE)
    before = nice.stat().st_mtime_ns
    done = upl("fmt", ugly, nice)
    assert (done.status, done.out, done.err) == (0, f"{ugly}\n", "")
    assert ugly.read_text(encoding="utf-8") == NICE
    assert nice.read_text(encoding="utf-8") == NICE and nice.stat().st_mtime_ns == before
    assert upl("fmt", ugly).out == ""


def test_check(upl: Tool, tmp_path: Path) -> None:
    ugly, nice = write(tmp_path / "ugly.upl", UGLY), write(tmp_path / "nice.upl", NICE)
    done = upl("fmt", "--check", nice, ugly)
    assert (done.status, done.out, done.err) == (1, f"{ugly}\n", "")
    assert ugly.read_text(encoding="utf-8") == UGLY
    assert upl("fmt", nice, "--check").status == 0


def test_stdout(upl: Tool, tmp_path: Path) -> None:
    ugly = write(tmp_path / "ugly.upl", UGLY)
    done = upl("fmt", "--stdout", ugly, ugly)
    assert (done.status, done.out, done.err) == (0, NICE * 2, "")
    assert ugly.read_text(encoding="utf-8") == UGLY


def test_standard_input(upl: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    def given(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    given(UGLY.encode())
    assert upl("fmt", "-").out == NICE
    given(UGLY.encode())
    done = upl("fmt", "--check", "-")
    assert (done.status, done.out) == (1, "-\n")
    given(b"\xff")
    done = upl("fmt", "-")
    assert done.status == 1 and "error[UPL1001]" in done.err


@pytest.mark.parametrize("option", [(), ("--check",), ("--stdout",)])
def test_errors_leave_the_file_and_not_the_others(upl: Tool, tmp_path: Path, option: tuple[str, ...]) -> None:
    wrong, ugly = write(tmp_path / "wrong.upl", WRONG), write(tmp_path / "ugly.upl", UGLY)
    done = upl("fmt", *option, wrong, tmp_path / "none.upl", ugly)
    assert done.status == 1
    assert f"{wrong}:2:7: error[UPL1002]" in done.err and "param 1" in done.err
    assert "none.upl: error[UPL1001]" in done.err
    assert wrong.read_text(encoding="utf-8") == WRONG
    assert ugly.read_text(encoding="utf-8") == (UGLY if option else NICE)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ugly.upl", "wrong.upl"]


def test_a_file_that_cannot_be_written(upl: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, text: str) -> None:
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr("upl_mlir.tools.fmt.write_whole", full)
    ugly = write(tmp_path / "ugly.upl", UGLY)
    done = upl("fmt", ugly)
    assert (done.status, done.out) == (1, "") and "No space left on device" in done.err
    assert ugly.read_text(encoding="utf-8") == UGLY


@pytest.mark.parametrize("args", [(), ("--check", "--stdout", "a.upl"), ("--what", "a.upl")])
def test_command_line(upl: Tool, args: tuple[str, ...]) -> None:
    assert upl("fmt", *args).status == 2
