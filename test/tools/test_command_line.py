"""What a command line that is not right is answered, and in which colours."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from upl_mlir.tools.terminal.colour import coloured, wanted

if TYPE_CHECKING:
    from test.tools.conftest import Tool

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
MATMUL = EXAMPLES / "matmul.upl"
ARRAYS = ("--input", "A=[[1,2]]", "--input", "B=[[1],[2]]")


@pytest.mark.parametrize(
    ("args", "near"),
    [
        (("chek", MATMUL), "check"),
        (("run", MATMUL, "--inptu", "A=1"), "--input"),
        (("run", MATMUL, "--engine", "nativ"), "native"),
        (("fmt", MATMUL, "--chek"), "--check"),
        (("check", MATMUL, "--jsn"), "--json"),
    ],
)
def test_the_nearest_name(upl: Tool, args: tuple[object, ...], near: str) -> None:
    done = upl(*args)
    assert done.status == 2
    assert done.err.endswith(f"help: did you mean `{near}`?\n")
    assert "usage" not in done.err


def test_what_is_like_nothing(upl: Tool) -> None:
    done = upl("run", MATMUL, "two", "three")
    assert done.status == 2
    assert "unrecognized arguments: two three" in done.err
    assert "`upl run --help`" in done.err


@pytest.mark.parametrize(
    ("args", "help"),
    [
        (("run", MATMUL, *ARRAYS, "--input", "Z=1"), "one of `A`, `B`"),
        (("grad", MATMUL, "--of", "Q", "--wrt", "A"), "one of `C`, `Mul`, `Acc`"),
        (("grad", MATMUL, "--of", "C", "--wrt", "Q"), "one of `A`, `B`, `Mul`, `Acc`"),
        (("run", MATMUL, *ARRAYS, "--why", "Q<1,1>"), "one of `C`, `Mul`, `Acc`"),
        (("run", MATMUL, *ARRAYS, "--break", "Acc.x"), "there is only `s`"),
        (("quantize", MATMUL, *ARRAYS, "--range", "Q=-1..1"), "one of `A`, `B`"),
    ],
)
def test_a_name_of_the_program_that_is_like_none(upl: Tool, args: tuple[object, ...], help: str) -> None:
    """The names that may stand there are listed: those of outputs and nodes, or of inputs."""
    done = upl(*args)
    assert done.status == 1
    assert done.err.endswith(f"  help: {help}\n")


@pytest.mark.parametrize(
    "args",
    [
        ("check", "none.upl"), ("run", "none.mlir"), ("run", MATMUL, "--input", "none.npz"), ("explore", "none.toml"),
        ("view", MATMUL, "--trace", "none.json", "-o", "none.html"), ("einsum", "none.json"),
    ],
)  # fmt: skip
def test_a_file_that_is_missing(upl: Tool, args: tuple[object, ...]) -> None:
    """Every command says it in the same words."""
    done = upl(*args)
    assert done.status == 1
    assert re.fullmatch(r"none\.\w+: error\[UPL1\d{3}\]: there is no such file\n", done.err)


def test_options_of_upl_opt_are_not_abbreviated(upl_opt: Tool) -> None:
    """Else a new pass would change what an old command means, and an option might be taken for a pass."""
    done = upl_opt("--autodif=of=C,wrt=A", MATMUL)
    assert done.status == 2
    assert "did you mean `--autodiff`?" in done.err


def test_as_a_module() -> None:
    out = subprocess.run(
        [sys.executable, "-m", "upl_mlir", "check", MATMUL], capture_output=True, text=True, check=True
    )
    assert "proved" in out.stdout


@pytest.mark.parametrize(
    ("option", "owner"),
    [
        (("--machine", "m.toml"), "rtl"), (("--simulator", "amaranth"), "rtl"), (("--threads", "2"), "native"),
        (("--lanes", "4"), "circuit"), (("--along", "i"), "circuit"), (("--share",), "circuit"),
        (("--bench", "b"), "circuit"),
    ],
)  # fmt: skip
def test_an_option_of_another_engine(upl: Tool, option: tuple[str, ...], owner: str) -> None:
    """It would do nothing, silently."""
    done = upl("run", MATMUL, *ARRAYS, *option)
    assert done.status == 1
    assert f"the engine `interp` has no option `{option[0][2:]}`" in done.err
    assert f"`{owner}` has it" in done.err


def test_a_name_for_outputs_that_is_neither(upl: Tool, tmp_path: Path) -> None:
    """`C.txt` became a folder."""
    done = upl("run", MATMUL, *ARRAYS, "--output", tmp_path / "C.txt")
    assert done.status == 2
    assert ".npz, or a folder" in done.err
    assert not (tmp_path / "C.txt").exists()
    assert upl("run", MATMUL, *ARRAYS, "--output", tmp_path / "out").status == 0


def test_explain_without_a_derivative(upl: Tool) -> None:
    done = upl("explain", MATMUL)
    assert done.status == 1
    assert "matmul.upl:3:9: error[UPL1401]" in done.err
    assert "--of and --wrt" in done.err


def test_run_says_which_arrays_it_needs(upl: Tool) -> None:
    done = upl("run", MATMUL, "--input", "A=[[1,2]]")
    assert done.status == 1
    assert "give arrays for B<k,j>; on the command line by --input B=FILE.npy" in done.err
    assert "A<i,k>, B<k,j>" in upl("run", MATMUL).err


# -- colour ----------------------------------------------------------------------------------------------------------
class Terminal(io.StringIO):
    """What says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "terminal", "pipe"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"TERM": "dumb"}, False, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
    ],
)
def test_who_gets_colours(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], terminal: bool, pipe: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert wanted(Terminal()) is terminal
    assert wanted(io.StringIO()) is pipe


def test_colours_add_nothing_else(upl: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = upl("run", MATMUL).err
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    bright = upl("run", MATMUL).err
    assert "\x1b[1;31merror[UPL1501]:\x1b[0m" in bright
    assert "\x1b[32mhelp:\x1b[0m" in bright
    assert re.sub(r"\x1b\[[0-9;]*m", "", bright) == plain


def test_source_lines_are_left_alone() -> None:
    line = " 8 | error: x // help: y"
    assert coloured(line) == line


# -- the literal fix -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("input X<i,> in 0<=i<3 { -> R }\noutput R<i>", "leave out the comma before it"),
        ("input X<i> in 0<=i<3 { -> A.x }\nnode A<i> { in x, ; x -> R }\noutput R<i>", "leave out the comma before it"),
        ("input X<i> in 0<=i<3 { => R }\noutput R<i>", "an arrow is written `->`"),
        ("input X<i> in 0<=i<3 { -> A.x }\nnode A<i> { in x; y = x; y => R }\noutput R<i>", "an arrow is written `->`"),
        ("input X<i> in 0<=i<3 { -> R }", "declare it: `output R`"),
        ("input X<i> in 0<=i<3 { -> S.s<> }\nnode S { in s; s -> R }\noutput R", "gathers them: `in @(+) s[#]`"),
    ],
)
def test_the_literal_fix(upl: Tool, tmp_path: Path, text: str, fix: str) -> None:
    (tmp_path / "p.upl").write_text(f"program p\n{text}\n", encoding="utf-8")
    done = upl("check", tmp_path / "p.upl")
    assert done.status == 1
    assert fix in done.err


def test_a_server_without_its_package(upl: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "upl_mlir.tools.lsp.server", raising=False)
    monkeypatch.setitem(sys.modules, "lsprotocol", None)
    done = upl("lsp")
    assert done.status == 1
    assert "UPL1804" in done.err and "pip install 'upl-mlir[lsp]'" in done.err
