"""The command line as people meet it in a shell: examples in the help, completion, several files, pipes, quiet, progress."""

from __future__ import annotations

import argparse
import io
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from upl_mlir.tools.terminal import progress
from upl_mlir.tools.terminal.examples import EXAMPLES
from upl_mlir.tools.upl import _parser

if TYPE_CHECKING:
    from test.tools.conftest import Tool

ROOT = Path(__file__).parents[2]
MATMUL, FIR = ROOT / "examples" / "matmul.upl", ROOT / "examples" / "fir.upl"
WRONG = "program p\ninput X<i> in 0<=i<3 { -> R; -> R }\noutput R<i>\n"


def commands() -> dict[str, argparse.ArgumentParser]:
    (found,) = (a.choices for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(found)


# -- help ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", commands())
def test_examples_of_a_command(name: str, upl: Tool) -> None:
    """They are in its help, each on its line; they are command lines; the files that they name are there."""
    shown = upl(name, "--help").out.partition("examples:\n")[2]
    assert shown == "".join(f"  {line}\n" for line in EXAMPLES[name])
    assert any(f"upl {name}" in line for line in EXAMPLES[name])
    for line in EXAMPLES[name]:
        for part in line.partition(" >")[0].split(" | "):
            words = shlex.split(part)
            assert words[0] == "upl"
            _parser().parse_args(words[1:])
            assert all((ROOT / w).exists() for w in words if w.startswith("examples/")), line


# -- several files, pipes, quiet ---------------------------------------------------------------------------------------
def given(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a text on the standard input."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))


def test_several_files_and_the_standard_input(upl: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given(WRONG, monkeypatch)
    done = upl("check", MATMUL, tmp_path / "none.upl", "-", FIR)
    assert done.status == 1
    assert [line for line in done.out.splitlines() if "proved" in line] == [
        f"{MATMUL}: 18 proved", "<stdin>: 7 proved, 1 refuted", f"{FIR}: 21 proved",
    ]  # fmt: skip
    assert "none.upl: error[UPL1001]: there is no such file" in done.err
    assert "<stdin>:2:30: error[UPL1303]" in done.err and " 2 | input X<i>" in done.err
    assert upl("check", MATMUL, FIR).status == 0
    assert upl("check", MATMUL, FIR, "--json").status == 2


def test_a_program_through_a_pipe(upl: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = upl("grad", MATMUL, "--of", "C", "--wrt", "A").out
    given(gradient, monkeypatch)
    assert re.search(r"<stdin>: \d+ proved\n", upl("check", "-").out)
    given(MATMUL.read_text(), monkeypatch)
    assert upl("grad", "-", "--of", "C", "--wrt", "A").out == gradient
    given("module", monkeypatch)
    assert "<stdin>:1:1: error[UPL1002]" in upl("check", "-").err


def test_quiet_and_verbose(upl: Tool, tmp_path: Path) -> None:
    (tmp_path / "wrong.upl").write_text(WRONG)
    assert upl("check", MATMUL, "-q") == upl("check", "--quiet", MATMUL)
    assert (upl("check", MATMUL, "-q").out, upl("check", MATMUL, "-q").status) == ("", 0)
    done = upl("check", tmp_path / "wrong.upl", "-q")
    assert done.out == "" and "UPL1303" in done.err and done.status == 1
    lines = upl("check", MATMUL, "-v").out.splitlines()
    assert len([line for line in lines if ": proved: " in line]) == 18
    assert f"{MATMUL}:12:1: proved: every instance gets a token, Mul.b" in lines


def test_training_tells_the_last_epoch(upl: Tool) -> None:
    args = ("train", ROOT / "examples/iris.upl", "--data", ROOT / "examples/data/iris.npz", "--carry", "W_out=W")
    said = upl(*args, "--epochs", "2", "--engine", "token").out.splitlines()
    assert upl(*args, "--epochs", "2", "--engine", "token", "-q").out.splitlines() == said[-1:]


def test_a_page_that_is_opened(upl: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("py_mini_racer", reason="no Python package `mini-racer` here (extra `draw`)")
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = upl("view", MATMUL, "--open")
    written = Path(done.out.strip())
    assert done.status == 0 and opened == [written.as_uri()]
    assert written.is_relative_to(tmp_path) and written.name == "matmul.html"
    assert written.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    assert "open the page yourself" in upl("view", MATMUL, "--open", "-o", tmp_path / "m.html").err
    assert upl("view", MATMUL).status == 2


# -- progress ----------------------------------------------------------------------------------------------------------
class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_takes_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a terminal, after a moment, with the time so far; and nothing of it is left."""
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    for err, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", err)
        with progress.waiting("proving"):
            end = time.monotonic() + 10
            while shown and "proving: 0 s" not in err.getvalue() and time.monotonic() < end:
                time.sleep(0.01)
        assert err.getvalue().endswith("\r\x1b[K") if shown else err.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.waiting("proving", quiet=True):
        time.sleep(0.05)
    assert sys.stderr.getvalue() == ""  # pyright: ignore[reportAttributeAccessIssue]


# -- completion --------------------------------------------------------------------------------------------------------
BASH = """source {script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE="{words}"; COMP_POINT=${{#COMP_LINE}}
_shtab_upl
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """cp {script} {folder}/_upl
fpath=({folder} $fpath); autoload -U compinit; compinit -u -d {folder}/dump
print ${{_comps[upl]}}; autoload +X _upl && whence -w _upl
"""
FISH = """source {script}
complete -C "{words}" | string replace -r '\\t.*' ''
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The scripts, by shell."""
    pytest.importorskip("shtab", reason="no Python package `shtab` here (extra `completion`)")
    folder, found = tmp_path_factory.mktemp("completion"), dict[str, Path]()
    for shell in ("bash", "zsh", "fish"):
        found[shell] = folder / f"upl.{shell}"
        made = subprocess.run([sys.executable, "-m", "upl_mlir", "completion", shell], capture_output=True, check=True)
        found[shell].write_bytes(made.stdout)
    return found


@pytest.mark.parametrize(
    ("shell", "how", "words", "wanted"),
    [
        ("bash", BASH, "upl ch", {"check"}),
        ("bash", BASH, "upl run --eng", {"--engine"}),
        ("bash", BASH, "upl run --engine na", {"native"}),
        ("fish", FISH, "upl ch", {"check"}),
        ("fish", FISH, "upl run --engine na", {"native"}),
        ("zsh", ZSH, "", {"_upl", "_upl: function"}),  # it is found, and can be read
    ],
)
def test_completion(shell: str, how: str, words: str, wanted: set[str], script: dict[str, Path], tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no shell `{shell}` on this system")
    code = how.format(script=script[shell], words=words, folder=tmp_path)
    done = subprocess.run([shell, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert set(done.stdout.split("\n")) - {""} == wanted


def test_completion_knows_files(script: dict[str, Path], tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("there is no shell `bash` on this system")
    (tmp_path / "program.upl").touch()
    code = BASH.format(script=script["bash"], words="upl check prog")
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.split() == ["program.upl"]
