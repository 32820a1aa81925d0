"""Running the tools in this process: what they print, what they return, and small programs to run them on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from upl_mlir.tools.upl import main as upl_main
from upl_mlir.tools.upl_opt import main as upl_opt_main

SCALE = """\
program scale
param D >= 1
const c = 2.5
input X<i> in 1<=i<=D { -> M.x }
input n: int { ## -> M.n<*> }
output R<i>
output S
node M<i> { in x, n: int; v = n*x + c; v -> R; v #D -> Sum.s<> }
node Sum { in @(+) s[#]; s -> S<> }
"""


@dataclass(frozen=True)
class Done:
    """How a tool ended: exit status, standard output and standard error."""

    status: int
    out: str
    err: str


Tool = Callable[..., Done]


def _tool(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> Tool:
    def run(*args: object) -> Done:
        capsys.readouterr()
        status = main([str(a) for a in args])
        return Done(status, *capsys.readouterr())

    return run


@pytest.fixture
def upl(capsys: pytest.CaptureFixture[str]) -> Tool:
    """Run `upl` with the given arguments."""
    return _tool(upl_main, capsys)


@pytest.fixture
def upl_opt(capsys: pytest.CaptureFixture[str]) -> Tool:
    """Run `upl-opt` with the given arguments."""
    return _tool(upl_opt_main, capsys)


@pytest.fixture
def scale(tmp_path: Path) -> Path:
    """A program with a parameter, an `int` input, an array output and a number as output."""
    path = tmp_path / "scale.upl"
    path.write_text(SCALE, encoding="utf-8")
    return path
