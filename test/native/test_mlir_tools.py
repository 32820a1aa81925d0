"""MLIR's own tools take what `--lower-loops` and `--lower-linalg` write, and compute the bits of native code in ordered
mode.

They are Debian's package mlir-19-tools, or a newer one.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context

import upl_mlir as upl
from upl_mlir.passes.if_convert import IfConvertPass
from upl_mlir.tools.upl_opt import main as upl_opt

sys.path.insert(0, str(Path(__file__).parent))
import mlir_tools

sys.path.pop(0)
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = (
    "cholesky", "conv2d", "conv_strided", "diagonal", "digits", "fir", "floyd_warshall", "gmm", "hypergradient", "iris",
    "iris_batch", "jacobi1d", "jacobi2d", "lstm", "matmul", "mds", "perceptron", "reshape", "scalars", "softmax", "training",
    "triangular_solve", "upsample", "wave",
)  # fmt: skip
needs_tools = pytest.mark.skipif(
    mlir_tools.tool("mlir-opt") is None or mlir_tools.tool("mlir-translate") is None,
    reason="MLIR's tools are not installed: apt-get install mlir-19-tools",
)


def lowered(p: upl.Program, folder: Path, capsys: pytest.CaptureFixture[str], form: str = "loops") -> str:
    """What the command writes."""
    (folder / "p.upl").write_text(str(p), encoding="utf-8")
    assert not upl_opt([str(folder / "p.upl"), f"--lower-{form}=gather=ordered"])
    return capsys.readouterr().out


def converted(text: str, form: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[upl.Program, str]:
    """A program that data decide, with conditions in place of the decisions; and what the command writes of it."""
    decided = upl.load(text)
    IfConvertPass(compared=True, ordered=True).apply(Context(), decided.module)
    (folder / "p.upl").write_text(text, encoding="utf-8")
    options = "--if-convert=compared=true,ordered=true"
    assert not upl_opt([str(folder / "p.upl"), options, f"--lower-{form}=gather=ordered"])
    return decided, capsys.readouterr().out


@needs_tools
@pytest.mark.parametrize("form", ["loops", "linalg"])
@pytest.mark.parametrize("gradient", [False, True], ids=["value", "gradient"])
@pytest.mark.parametrize("name", NAMES)
def test_an_example(
    name: str, gradient: bool, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    p = upl.load(EXAMPLES / f"{name}.upl")
    if gradient:
        p = upl.vjp(p, of=next(iter(p.outputs)), wrt=[n for n, v in p.inputs.items() if v.dtype.kind == "f"])
    text = lowered(p, tmp_path, capsys, form)
    mlir_tools.verified(text)
    params = dict.fromkeys(p.params, 4)
    random: Any = np.random.default_rng(0)
    arrays = {
        n: random.random(v.shape(**params)) + 0.5 if v.dtype.kind == "f" else random.integers(0, 2, v.shape(**params))
        for n, v in p.inputs.items()
    }
    want = upl.compile(p, engine="native", gather="ordered", **params)(**arrays)
    got = mlir_tools.run(p, text, arrays, tmp_path, **params)
    for output, values in want.items():
        np.testing.assert_array_equal(got[output], values, err_msg=output)


BRANCHES = """program branches
param n >= 1
input X { -> F.x }
input Y<m> in 0<=m<n { -> B.y }
output R<m> in 0<=m<n
node F { in x; x*x #n -> B.x<*> }
node B<m> {
  in x, y
  if m mod 3 != 1: x -> R<m>
  if m mod 3 == 1: y - x -> R<m>
}
"""
CHAIN = """program chain
param n >= 1
input V<i> in 0<=i<n { -> E.v<i,0> }
output O<i> in 0<=i<n
node E<i,k> {
  in v
  w = v*0.5
  if w > 0.1 && k<6: w -> E.v<i,k+1>
  if w <= 0.1 || k==6: w -> O<i>
}
"""


@needs_tools
@pytest.mark.parametrize("form", ["loops", "linalg"])
def test_a_value_that_is_stored_under_a_condition(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is there outside of the condition, too, but not as what was stored."""
    p, arrays = upl.load(BRANCHES), {"X": np.array(0.3), "Y": np.linspace(0, 1, 7)}
    text = lowered(p, tmp_path, capsys, form)
    got = mlir_tools.run(p, text, arrays, tmp_path, n=7)
    np.testing.assert_array_equal(got["R"], upl.compile(p, gather="ordered")(**arrays)["R"])


@needs_tools
@pytest.mark.parametrize("form", ["loops", "linalg"])
def test_steps_that_data_end(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Loops stop where no step is left; functions on tensors compute all steps."""
    p, v = upl.load(CHAIN), np.array([0.1, 5.3, 1.0, -2.0, 1e9])
    decided, text = converted(CHAIN, form, tmp_path, capsys)
    got = mlir_tools.run(decided, text, {"V": v}, tmp_path, n=5)
    assert not got["fault"]
    np.testing.assert_array_equal(got["O"], upl.compile(p, gather="ordered")(V=v)["O"])


SCATTER = """program scatter
param n >= 1
param m >= 1
input K<e>: int in 0<=e<m { -> E.k<e> }
input V<e> in 0<=e<m { -> E.v<e> }
input Count<i>: int in 0<=i<n { -> S.count<i> }
output Y<i>
node E<e> in 0<=e<m { in k: int, v; exp(v) -> S.s<k> }
node S<i> in 0<=i<n { in count: int, @(+) s[count]; s -> Y }
"""


@pytest.mark.parametrize("form", ["loops", "linalg"])
def test_elements_that_data_choose(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are written one by one, also as tensors."""
    decided, text = converted(SCATTER, form, tmp_path, capsys)
    assert mlir_tools.on_tensors(text) == (form == "linalg") == ("tensor.insert" in text)
    if mlir_tools.tool("mlir-opt") is None or mlir_tools.tool("mlir-translate") is None:
        return
    k, v = np.array([2, 0, 2, 2, 4]), np.array([0.5, -1.0, 2.0, 0.25, 0.0])
    arrays = {"K": k, "V": v, "Count": np.bincount(k, minlength=6)}
    got = mlir_tools.run(decided, text, arrays, tmp_path, n=6, m=5)
    assert not got["fault"]
    np.testing.assert_allclose(got["Y"], np.bincount(k, np.exp(v), 6), rtol=1e-14)


@needs_tools
def test_a_time_loop_in_tiles(tmp_path: Path) -> None:
    """MLIR's tiles of the loop in docs/checked.md are wrong, without a word; ours of a time loop give the same bits."""
    (text,) = re.findall(r"```mlir\n(.*?)```", (EXAMPLES.parent / "docs" / "checked.md").read_text("utf-8"), re.S)
    name = mlir_tools.tool("mlir-opt")
    assert name is not None
    found: list[Any] = []
    for n, passes in enumerate(([], ["--affine-loop-tile=tile-size=8"])):
        lowered_text = mlir_tools.call([name, "--lower-affine"], mlir_tools.call([name, *passes], text))
        (tmp_path / str(n)).mkdir()
        u = np.zeros((21, 64))
        u[0] = np.random.default_rng(0).random(64)
        u[:, 0], u[:, -1] = u[0, 0], u[0, -1]
        f = mlir_tools.library(lowered_text, tmp_path / str(n))._mlir_ciface_jacobi
        f(mlir_tools.ctypes.byref(mlir_tools.descriptor(u)))
        found.append(u)
    plain = found[0][0].copy()
    for step in found[0][1:]:
        plain[1:-1] = (plain[:-2] + plain[1:-1] + plain[2:]) / 3
        np.testing.assert_allclose(step, plain, rtol=1e-13)
    assert np.abs(found[1] - found[0]).max() > 0.1
    p = upl.load(EXAMPLES / "jacobi2d.upl")
    a = np.random.default_rng(1).random((24, 20))
    want = upl.compile(p, engine="interp", gather="ordered", T=20)(A=a)
    for output, values in upl.compile(p, engine="native", gather="ordered", T=20)(A=a).items():
        np.testing.assert_array_equal(values, want[output])


def test_no_operation_of_ours_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The logistic function is written by others."""
    text = lowered(upl.load(EXAMPLES / "lstm.upl"), tmp_path, capsys)
    assert "math.exp" in text
    body = text[text.index("{", text.index("attributes")) :]
    assert "upl.sigmoid" not in body


def test_a_tensor_without_elements_is_given_no_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`tensor.empty` takes the sizes that its type leaves open; 0 is none of them."""
    text = "program none\nconst n = 0\ninput X<i> in 0<=i<n { 2*X -> R<i> }\noutput R<i> in 0<=i<n\n"
    found = lowered(upl.load(text), tmp_path, capsys, "linalg")
    assert "tensor.empty() : tensor<0xf64>" in found
