"""MLIR's own tools take what `--lower-loops` writes, and compute the same bits as native code in ordered mode.

They are Debian's package mlir-19-tools, or a newer one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
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


def lowered(p: upl.Program, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command writes."""
    (folder / "p.upl").write_text(str(p), encoding="utf-8")
    assert not upl_opt([str(folder / "p.upl"), "--lower-loops=gather=ordered"])
    return capsys.readouterr().out


@needs_tools
@pytest.mark.parametrize("gradient", [False, True], ids=["value", "gradient"])
@pytest.mark.parametrize("name", NAMES)
def test_an_example(name: str, gradient: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    p = upl.load(EXAMPLES / f"{name}.upl")
    if gradient:
        p = upl.vjp(p, of=next(iter(p.outputs)), wrt=[n for n, v in p.inputs.items() if v.dtype.kind == "f"])
    text = lowered(p, tmp_path, capsys)
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


def test_no_operation_of_ours_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The logistic function is written by others."""
    text = lowered(upl.load(EXAMPLES / "lstm.upl"), tmp_path, capsys)
    assert "math.exp" in text
    body = text[text.index("{", text.index("attributes")) :]
    assert "upl.sigmoid" not in body
