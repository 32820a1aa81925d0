"""Malformed inputs of every kind: some hundred by seed, known holes of parsers by name, saved ones for ever.

`make soak` goes on with as many as one likes.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from agreement.campaign import Tally

import upl_mlir as upl
from malformed import inputs
from malformed.inputs import Answer, Input
from upl_mlir.api.mlir_text import read_module
from upl_mlir.pipeline import new_context

SEEDS = 300


def test_random_inputs() -> None:
    tally = Tally()
    first = int(os.environ.get("UPL_MALFORMED_SEED", "0"))
    for seed in range(first, first + SEEDS):
        inputs.examine(seed, tally, None)
    print("\n".join(tally.lines()))
    assert not tally.failures, "\n\n".join(map(str, tally.failures))
    kinds = {key.partition(":")[0] for key in tally.reached}
    assert {k.kind for k in map(inputs.input_of, range(first, first + SEEDS))} <= kinds
    refused = sum(n for what, n in tally.reached.items() if "refused" in what)
    with_position = sum(n for what, n in tally.reached.items() if "with a position" in what)
    assert refused > 0.6 * SEEDS
    assert with_position > 0.85 * refused


@pytest.mark.parametrize("path", inputs.saved(), ids=lambda p: p.stem)
def test_saved(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert inputs.answer(inputs.read(path), tmp_path).fault() is None


# -- holes that are known ---------------------------------------------------------------------------------------------
DEEP = 5000
HOLES = {
    "width of an integer type": (
        b"builtin.module { func.func @f(%a: i999999999999) { func.return } }\n",
        "UPL1002",
        "1:35",
    ),
    "width beyond C's integers": (b'"test.op"() {a = 1 : i99999999999999999999} : () -> ()\n', "UPL1002", "1:22"),
    "nested regions": (b"builtin.module {" * DEEP + b"}" * DEEP, "UPL1009", f"1:{16 * DEEP}"),
    "nested attributes": (
        b"builtin.module attributes {x = " + b"[" * DEEP + b"]" * DEEP + b"} {}",
        "UPL1009",
        f"1:{DEEP + 31}",
    ),
    "nested affine expressions": (
        b"builtin.module attributes {x = affine_map<(d0) -> (" + b"(" * DEEP + b"d0" + b")" * DEEP + b")>} {}",
        "UPL1009",
        "1:50",
    ),
    "not UTF-8": (b"builtin.module {\n  \xff\xfe }\n", "UPL1001", "2:3"),
    "half a surrogate": (b"builtin.module {\n  \xed\xa0\x80 }\n", "UPL1001", "2:3"),
    "a number of thousands of digits": (
        b"builtin.module attributes {x = " + b"9" * 5000 + b" : index} {}",
        "UPL1002",
        "1:32",
    ),
    "a splat over more than memory": (
        b"builtin.module attributes {x = dense<1> : tensor<999999999x999999999xi32>} {}",
        "UPL1002",
        "1:50",
    ),
    "a string that does not end": (b'builtin.module attributes {x = "' + b"a" * 200 + b"\n} {}", "UPL1002", "1:32"),
    "results without number": (b'%a:999999999999 = "builtin.module"() : () -> (i32)', "UPL1002", "1:1"),
    "an expression in UPL": (
        b"program p\noutput R\nnode A { in x; " + b"(" * DEEP + b"x" + b")" * DEEP + b" -> R<> }\n",
        "UPL1009",
        "3:",
    ),
    "comments in UPL": (b"/*" * DEEP, "UPL10", "1:"),
    "a huge array in UPL": (b"program p\nconst a[0:1000000000000] = [1]\n", "UPL11", "2:"),
    "a power of powers": (b"program p\nconst a = 2**2**2**2**2**2\n", "UPL1", "2:"),
}


def limited() -> None:
    """In the child: as much CPU time and memory as an answer may take, with Python's start."""
    resource.setrlimit(resource.RLIMIT_CPU, (4, 4))
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))


@pytest.mark.parametrize(("data", "code", "place"), HOLES.values(), ids=HOLES)
def test_known_holes(data: bytes, code: str, place: str, tmp_path: Path) -> None:
    """As a command, in the time and memory that there is, with the place."""
    path = tmp_path / ("f.mlir" if b"builtin" in data or b"test.op" in data else "f.upl")
    path.write_bytes(data)
    tool = Path(sys.executable).with_name("upl-opt")
    done = subprocess.run([tool, path], capture_output=True, text=True, timeout=60, check=False, preexec_fn=limited)
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith(f"{path}:{place}"), done.stderr[:300]
    assert f"error[{code}" in done.stderr


def test_the_workbench_reads_by_the_same_guard(tmp_path: Path) -> None:
    path = tmp_path / "f.mlir"
    path.write_bytes(HOLES["width of an integer type"][0])
    got = inputs.answer(Input("mlir", ".mlir", path.read_bytes(), ("upl", "check", "FILE")), tmp_path)
    assert got.status == 1 and "f.mlir:1:35: error[UPL1002]" in got.err


@pytest.mark.parametrize("text", ["builtin.module {\x1b}", "\x1b\nbuiltin.module {}", "builtin.module {} {"])
def test_all_that_comes_out_of_a_reader_are_our_errors(text: str) -> None:
    """Also where the first token is none, and from Python."""
    with pytest.raises(upl.UplError, match=r"UPL100[23]"):
        upl.load(text if text.startswith("b") else f"{text}{{")
    with pytest.raises(upl.UplError, match=r"f.mlir:1:\d+: error\[UPL1002\]"):
        read_module(text, "f.mlir", new_context())


# -- crashes ----------------------------------------------------------------------------------------------------------
def crashing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on the checker fails, and reproducers go to a folder."""
    from upl_mlir.api import programs as api

    def fail(_: object) -> None:
        raise ZeroDivisionError("as an example")

    monkeypatch.setattr(api.Program, "check", fail)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(sys, "argv", ["upl"])


def test_a_crash_writes_what_reproduces_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashing(monkeypatch, tmp_path)
    got = inputs.answer(Input("upl", ".upl", inputs.PROGRAM.encode(), ("upl", "check", "FILE", "-D", "D=3")), tmp_path)
    assert got.status == 1
    assert "error[UPL1000]: internal error: ZeroDivisionError: as an example" in got.err
    assert "Traceback" not in got.err
    (folder,) = tmp_path.glob("upl-crash-*")
    assert str(folder) in got.err
    assert (folder / "1-f.upl").read_text() == inputs.PROGRAM
    script = (folder / "run.sh").read_text()
    assert "upl check 1-f.upl -D D=3 --debug" in script
    assert "ZeroDivisionError" in (folder / "traceback.txt").read_text()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    again = subprocess.run(
        ["sh", folder / "run.sh"], capture_output=True, check=False, env={**os.environ, "PATH": path}
    )
    assert again.returncode == 0, "here nothing is broken: the command runs"


def test_debug_shows_the_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashing(monkeypatch, tmp_path)
    got = inputs.answer(Input("upl", ".upl", inputs.PROGRAM.encode(), ("upl", "check", "FILE", "--debug")), tmp_path)
    assert got.crash == "ZeroDivisionError: as an example"
    assert not list(tmp_path.glob("upl-crash-*"))


def test_what_is_judged_wrong() -> None:
    """The judgement can fail: each part of it."""
    right = Answer(1, "", "f.upl:1:2: error[UPL1002]: no", 0.1, 0)
    assert right.fault() is None and right.outcome == "refused with a position"
    for wrong in (
        Answer(None, "", "", 20.0, 0),
        Answer(3, "", "", 0.1, 0),
        Answer(1, "", "", 0.1, 0),
        Answer(1, "", "error[UPL1000]: internal error", 0.1, 0),
        Answer(1, "", right.err, 3.0, 0),
        Answer(1, "", right.err, 0.1, 1 << 30),
        Answer(0, "", "Traceback (most recent call last)", 0.1, 0),
        Answer(None, "", "", 0.1, 0, "KeyError: 1"),
    ):
        assert wrong.fault() is not None
