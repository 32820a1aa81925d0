"""Whatever is thrown at the tools: an exit status of 0, 1 or 2, a message, never a traceback, never an internal error."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Tool = Callable[..., Any]
EXAMPLES = ("perceptron", "training", "iris", "iris_batch")
PIECES = (
    b"{", b"}", b"<", b">", b"[", b"]", b"(", b")", b"*", b"#", b"##", b"->", b"..", b",", b";", b":", b"\n", b"0", b"-1",
    b"K", b"N[K]", b"99999999999999999999", b"1e999", b"/*", b"//", b"@", b"@(max)", b"for", b"if", b"in", b"adjoint of",
    b"node", b"int", b"\xff", b"\x00", "δ".encode(), b'"', b"?", b"mod 0", b"floordiv 0", b"**", b"&&", b"==", b"",
)  # fmt: skip


def mutated(text: bytes, rng: random.Random) -> bytes:
    """The text with one to three pieces cut out, doubled, or replaced."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text))
        end = min(len(text), at + rng.choice((0, 1, 1, 2, 5, 30)))
        middle = rng.choice((rng.choice(PIECES), text[at:end] * 2, b""))
        text = text[:at] + middle + text[end:]
    return text


def sane(done: Any, what: object) -> None:
    """The outcome is success without complaint, or a message without output."""
    assert done.status in (0, 1, 2), what
    assert "Traceback" not in done.out + done.err, what
    assert "UPL1000" not in done.err, (what, done.err)
    if done.status:
        assert done.out == "", what
        assert "error" in done.err, what


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("example", EXAMPLES)
def test_mutated_text(upl_opt: Tool, examples: Path, tmp_path: Path, example: str, seed: int) -> None:
    """Mutations of the examples, through parsing, checking of types, and printing."""
    rng = random.Random(f"{example} {seed}")
    original = (examples / f"{example}.upl").read_bytes()
    path = tmp_path / "f.upl"
    for _ in range(12):
        text = mutated(original, rng)
        path.write_bytes(text)
        sane(upl_opt(path, "-t", "upl"), text)


@pytest.mark.parametrize("seed", range(3))
def test_mutated_programs_in_passes(upl_opt: Tool, examples: Path, tmp_path: Path, seed: int) -> None:
    """What parses all the same goes through the passes."""
    rng = random.Random(seed)
    original = (examples / "perceptron.upl").read_bytes()
    path = tmp_path / "f.upl"
    for old, new in (
        (b"K", b"k"), (b"k-1", b"k"), (b"k+1", b"k"), (b"<d,k,i>", b"<d,i,k>"), (b"<=", b"<"), (b"N[k]", b"2"),
    ):  # fmt: skip
        places = [i for i in range(len(original)) if original.startswith(old, i)]
        at = rng.choice(places)
        text = original[:at] + new + original[at + len(old) :]
        path.write_bytes(text)
        for passes in ("check", 'autodiff{of="R" wrt="W"},eliminate-dead-derivatives,simplify'):
            sane(upl_opt(path, "-p", passes, "-t", "upl"), text)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_mlir(upl_opt: Tool, tmp_path: Path, seed: int) -> None:
    """The same for MLIR text, which only the verifier guards."""
    rng = random.Random(seed)
    source, path = tmp_path / "p.upl", tmp_path / "f.mlir"
    source.write_text(
        "program p\nparam D >= 1\ninput X<d> in 1<=d<=D { -> A.x }\noutput R<d>\nnode A<d> { in x; b = x>0; b*x -> R }\n"
    )
    original = upl_opt(source).out.encode()
    for _ in range(12):
        text = mutated(original, rng)
        path.write_bytes(text)
        sane(upl_opt(path, "--check", "-t", "upl"), text)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"\n", b"program", b"program p", b"\xef\xbb\xbfprogram p\n", b"program p\r\noutput R\r\n", b"\x00", b"\xff\xfe",
        b"program p\noutput R\nnode A { in x; " + b"(" * 5000 + b"x" + b")" * 5000 + b" -> R<> }\n",
        b"program p\noutput R\nnode A { in x; " + b"-" * 5000 + b"x -> R<> }\n",
        b"program p\noutput R\nnode A { in x; x" + b"+x" * 3000 + b" -> R<> }\n",
        b"program p\nconst a = " + b"9" * 6000 + b"\n",
        b"program p\nconst a = 2**2**2**2**2**2\n",
        b"program p\nconst a = 1 mod 0\n",
        b"program p\nconst a[0:1000000000000] = [1]\n",
        b"/*" * 4000,
    ],
    ids=range(16),
)  # fmt: skip
def test_extremes(upl_opt: Tool, tmp_path: Path, text: bytes) -> None:
    """Empty, cut off, deeply nested, huge."""
    path = tmp_path / "f.upl"
    path.write_bytes(text)
    sane(upl_opt(path, "-t", "upl"), text[:80])


@pytest.mark.parametrize(
    "text", [b"", b"{", b"builtin.module {\n}\n", b"\xff", b"upl.program @p {", b"(" * 4000, b"#x", b'"a"()']
)
@pytest.mark.parametrize("kind", ["upl", "mlir"])
def test_upl_on_garbage(upl: Tool, tmp_path: Path, text: bytes, kind: str) -> None:
    """The workbench too."""
    path = tmp_path / f"f.{kind}"
    path.write_bytes(text)
    for args in (("check",), ("run",), ("grad", "--of", "R", "--wrt", "X")):
        done = upl(args[0], path, *args[1:])
        assert done.status == 1
        sane(done, (text, args))


def test_reader_goes_away(examples: Path) -> None:
    """A closed pipe is no reason for a traceback."""
    tool = Path(sys.executable).parent / "upl-opt"
    with subprocess.Popen([tool, examples / "perceptron.upl"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        err = child.stderr.read()
    assert child.returncode == 1
    assert err == b""
