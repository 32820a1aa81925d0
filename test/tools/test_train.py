"""`upl train`: epochs on the iris data, carried weights, results; what it refuses; and Ctrl-C."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Tool = Callable[..., Any]

LINE = """\
program line
param D >= 1
input X<d> in 1<=d<=D { -> Mul.x<d> }
input Y<d> in 1<=d<=D { -> Err.y<d> }
input W { -> Hold.w<> }
output R<d>
output W_out
node Hold { in w; #D -> Mul.w<*>; w -> Upd.w<> }
node Mul<d> { in x, w; w*x -> Err.r }
node Err<d> { in r, y; e = r - y; r -> R }
node Upd { in w, dw; v = w - 0.1*dw; v -> W_out<> }
adjoint of Err.r seed Err.e wrt Hold.w -> Upd.dw
"""


@pytest.fixture
def line(tmp_path: Path) -> tuple[Path, Path]:
    """A program that fits a line through the origin, and data on a line of slope 3."""
    path, data = tmp_path / "line.upl", tmp_path / "line.npz"
    path.write_text(LINE, encoding="utf-8")
    x = np.linspace(-1, 1, 8)
    np.savez(data, X=x, Y=3 * x)
    return path, data


def test_iris(upl: Tool, examples: Path, tmp_path: Path) -> None:
    """Two epochs: a line for each, the loss falls, and the carried weights are those of a run by hand."""
    to = tmp_path / "w.npz"
    data = examples / "data" / "iris.npz"
    done = upl("train", examples / "iris_batch.upl", "--data", data, "--carry", "W_out=W", "--epochs", 2, "--batch", 50,
               "--seed", 4, "-o", to)  # fmt: skip
    assert done.status == 0
    assert re.fullmatch(r"2 epochs in [\d.e+-]+ s: [\d.e+-]+ epochs/s\n", done.err)
    found = [re.fullmatch(r"epoch +(\d+)   loss (\d\.\d{6})   accuracy +(\d+\.\d) %", s) for s in done.out.splitlines()]
    assert [m and m[1] for m in found] == ["1", "2"]
    losses = [float(m[2]) for m in found if m]
    assert losses[1] < losses[0]
    with np.load(to) as got, np.load(data) as given:
        assert got.files == ["W"]
        assert got["W"].shape == given["W"].shape == (2, 8, 8)
        assert not np.array_equal(got["W"], given["W"])
    again = upl("train", examples / "iris_batch.upl", "--data", data, "--carry", "W_out=W", "--epochs", 2, "--batch", 50,
                "--seed", 4)  # fmt: skip
    assert again.out == done.out


@pytest.mark.parametrize("engine", ["native", "token"])
def test_other_engines(upl: Tool, examples: Path, engine: str) -> None:
    """The same lines as from the interpreter."""
    args = ("train", examples / "iris.upl", "--data", examples / "data" / "iris.npz", "--carry", "W_out=W", "--epochs", 1)
    done = upl(*args, "--engine", engine)
    assert done.status == 0
    assert done.out == upl(*args).out


def test_digits_by_machine_code(upl: Tool, examples: Path) -> None:
    """At least 97 % of the handwritten digits after five epochs, 1,797 images each."""
    done = upl("train", examples / "digits.upl", "--data", examples / "data" / "digits.npz", "--carry", "W_out=W",
               "--engine", "native", "-D", "E=1", "--epochs", 6)  # fmt: skip
    assert done.status == 0
    last = re.search(r"epoch +6 .* accuracy +(\d+\.\d) %", done.out)
    assert last and float(last[1]) >= 97.0
    assert "epochs/s" in done.err


def test_carry(upl: Tool, line: tuple[Path, Path], tmp_path: Path) -> None:
    """Weights that the data do not give begin at random; each call's result is the next call's input."""
    program, data = line
    to = tmp_path / "w.npz"
    done = upl("train", program, "--data", data, "--carry", "W_out=W", "--epochs", 40, "-o", to)
    assert done.status == 0
    assert len(done.out.splitlines()) == 40
    assert "accuracy" not in done.out  # one number for each example is no choice between classes
    np.testing.assert_allclose(np.load(to)["W"], 3, atol=1e-6)


PLANE = """\
program plane
param D >= 1
param n >= 1
param H >= 1
input X<d,i> in 1<=d<=D, 1<=i<=n { #H -> Mul.x<d,i,*> }
input Y<d,h> in 1<=d<=D, 1<=h<=H { -> Err.y<d,h> }
input W<i,h> in 1<=i<=n, 1<=h<=H { -> Hold.w<i,h> }
output R<d,h>
output W_out<i,h>
node Hold<i,h> { in w; #D -> Mul.w<*,i,h>; w -> Upd.w<i,h> }
node Mul<d,i,h> { in x, w; w*x #n -> Sum.s<d,h> }
node Sum<d,h> { in @(+) s[#]; s -> Err.r }
node Err<d,h> { in r, y; e = r - y; r -> R }
node Upd<i,h> { in w, dw; v = w - 0.05*dw; v -> W_out<i,h> }
adjoint of Err.r seed Err.e wrt Hold.w -> Upd.dw
"""


def test_shapes_of_weights_that_the_data_do_not_give(upl: Tool, tmp_path: Path) -> None:
    """They follow from the data, of one batch, and from `-D`; a parameter that neither tells is asked for."""
    (tmp_path / "plane.upl").write_text(PLANE, encoding="utf-8")
    x = np.random.default_rng(0).normal(size=(8, 3))
    np.savez(tmp_path / "d.npz", X=x, Y=x @ np.ones((3, 2)))
    to = tmp_path / "w.npz"
    args = ("train", tmp_path / "plane.upl", "--data", tmp_path / "d.npz", "--carry", "W_out=W", "--batch", 4)
    done = upl(*args, "--epochs", 200, "--engine", "native", "-o", to)
    assert done.status == 0, done.err
    np.testing.assert_allclose(np.load(to)["W"], np.ones((3, 2)), atol=1e-3)
    (tmp_path / "plane.upl").write_text(PLANE.replace("Y<d,h> in 1<=d<=D, 1<=h<=H { -> Err.y<d,h> }",
        "Y<d> in 1<=d<=D { #H -> Err.y<d,*> }"), encoding="utf-8")  # fmt: skip
    np.savez(tmp_path / "d.npz", X=x, Y=x @ np.ones(3))
    done = upl(*args, "--epochs", 1)
    assert done.status == 1 and "error[UPL1505]: the parameter `H` does not follow" in done.err


def test_gradient_step(upl: Tool, line: tuple[Path, Path], tmp_path: Path) -> None:
    """One epoch is one step of gradient descent on the summed squares."""
    program, data = line
    x = np.load(data)["X"]
    np.savez(tmp_path / "d.npz", X=x, Y=3 * x, W=1.0)
    done = upl("train", program, "--data", tmp_path / "d.npz", "--carry", "W_out=W", "--epochs", 1, "-o",
               tmp_path / "w.npz")  # fmt: skip
    assert done.status == 0
    np.testing.assert_allclose(np.load(tmp_path / "w.npz")["W"], 1 - 0.1 * np.sum((x - 3 * x) * x), rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("--carry", "W_out"), 2, "error[UPL1801]: --carry W_out: expected OUTPUT=INPUT"),
        (("--carry", "W_outt=W"), 1, "error[UPL1502]: --carry W_outt=W: there is no output `W_outt`"),
        (("--carry", "W_out=V"), 1, "error[UPL1502]: --carry W_out=V: there is no input `V`"),
        (("--carry", "W_out=W", "--targets", "Z"), 1, "error[UPL1501]: the data hold no `Z`"),
        (("--carry", "W_out=W", "--outputs", "Q"), 1, "error[UPL1502]: there is no output `Q`"),
        (("--carry", "R=Y"), 1, "error[UPL1502]: `Y` is not an input of the program that gets its values from the data"),
        (("--carry", "W_out=W", "--batch", "9"), 1, "error[UPL1505]: a batch of 9 examples: there are 8"),
        (("--carry", "W_out=W", "--epochs", "-1"), 2, "error[UPL1801]: --epochs -1"),
        (("--carry", "W_out=W", "--outputs", "W_out"), 1, "error[UPL1503]: `W_out` has shape (), but `Y` (8,)"),
    ],
)
def test_refuses(
    upl: Tool, line: tuple[Path, Path], tmp_path: Path, options: tuple[str, ...], status: int, message: str
) -> None:
    """What is wrong is said; nothing is written."""
    program, data = line
    done = upl("train", program, "--data", data, *options, "-o", tmp_path / "w.npz")
    assert (done.status, done.out) == (status, "")
    assert message in done.err
    assert not (tmp_path / "w.npz").exists()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.zeros(0), "Y": np.zeros(0)}, "error[UPL1503]: the data hold no examples: `Y` has shape (0,)"),
        ({"X": np.zeros(3), "Y": np.float64(1)}, "error[UPL1503]: the data hold no examples: `Y` has shape ()"),
        ({"X": np.zeros(3), "Y": np.zeros(2)}, "error[UPL1503]: `X` has shape (3,): expected 2 rows, as `Y` has"),
        ({"Y": np.zeros(2)}, "error[UPL1501]: the data hold nothing for the input `X`"),
        (None, "error[UPL1504]: {path} holds one array: expected an .npz file"),
    ],
)
def test_refuses_data(
    upl: Tool, line: tuple[Path, Path], tmp_path: Path, arrays: dict[str, Any] | None, message: str
) -> None:
    """Data without examples, of unequal lengths, or of the wrong kind."""
    path = tmp_path / ("d.npz" if arrays is not None else "d.npy")
    if arrays is None:
        np.save(path, np.zeros(3))
    else:
        np.savez(path, **arrays)
    done = upl("train", line[0], "--data", path, "--carry", "W_out=W")
    assert (done.status, done.out) == (1, "")
    assert message.format(path=path) in done.err


def test_interrupt(line: tuple[Path, Path], tmp_path: Path) -> None:
    """Ctrl-C in the middle of a long training: status 130, one word, no traceback, no half-written output."""
    program, data = line
    to = tmp_path / "out" / "w.npz"
    to.parent.mkdir()
    tool = Path(sys.executable).parent / "upl"
    command = [tool, "train", program, "--data", data, "--carry", "W_out=W", "--epochs", "1000000", "-o", to]
    # A background job of a shell ignores SIGINT, and hands that down: give the child the terminal's behaviour.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline().startswith("epoch   1 ")
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=20)
        finally:
            child.kill()
    assert child.returncode == 130
    assert err == "interrupted\n"
    assert not list(to.parent.iterdir())


def test_a_circuit(upl: Tool, line: tuple[Path, Path], tmp_path: Path) -> None:
    """The same lines and weights as by the reference in f32, bit for bit; a field that is none is refused."""
    path, data = line
    command = ["train", path, "--data", data, "--carry", "W_out=W", "--epochs", 2, "--batch", 4, "--real", "f32"]
    lines: list[str] = []
    for engine in (["circuit", "--lanes", 2, "--share"], ["reference"]):
        done = upl(*command, "-o", tmp_path / f"{engine[0]}.npz", "--engine", *engine)
        assert done.status == 0
        lines.append(done.out)
    assert lines[0] == lines[1]
    with np.load(tmp_path / "circuit.npz") as circuit, np.load(tmp_path / "reference.npz") as reference:
        assert circuit["W"].tobytes() == reference["W"].tobytes()
    done = upl(*command, "--engine", "circuit", "--along", "q")
    assert done.status == 1
    assert "q" in done.err and "error[UPL20" in done.err
