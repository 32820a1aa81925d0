"""IREE compiles what `--lower-linalg` writes for given sizes, and its code agrees with native code."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.tools.upl_opt import main as upl_opt

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
VALUES = (
    "cholesky", "conv2d", "conv_strided", "diagonal", "fir", "floyd_warshall", "gmm", "hypergradient", "iris", "iris_batch",
    "jacobi1d", "jacobi2d", "lstm", "matmul", "mds", "perceptron", "reshape", "scalars", "softmax",
    "triangular_solve", "upsample", "wave",
)  # fmt: skip
GRADIENTS = tuple(n for n in VALUES if n != "cholesky")
"""Those that IREE takes: docs/native.md says what becomes of the others."""
FLAGS = ["--iree-llvmcpu-target-cpu=generic"]
needs_iree = pytest.mark.skipif(
    importlib.util.find_spec("iree") is None, reason="IREE is not installed: pip install 'upl-mlir[iree]'"
)


def lowered(p: upl.Program, params: dict[str, int], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command writes."""
    (folder / "p.upl").write_text(str(p), encoding="utf-8")
    sizes = [a for n, v in params.items() for a in ("-D", f"{n}={v}")]
    assert not upl_opt([str(folder / "p.upl"), *sizes, "--lower-linalg=gather=ordered,real=f32"])
    return capsys.readouterr().out


def run(text: str, inputs: list[np.ndarray[Any, Any]]) -> list[Any]:
    """The results of the function of a text, compiled and run by IREE."""
    from iree import compiler, runtime

    made = compiler.compile_str(text, target_backends=["llvm-cpu"], extra_args=FLAGS)
    config = runtime.Config("local-sync")
    vm = runtime.VmModule.copy_buffer(config.vm_instance, made)
    (name,) = re.findall(r"func\.func @(\w+)", text)
    found = runtime.load_vm_module(vm, config)[name](*inputs)
    return [np.asarray(a) for a in (found if isinstance(found, tuple) else (found,))]


@needs_iree
@pytest.mark.parametrize(
    ("name", "gradient"), [*((n, False) for n in VALUES), *((n, True) for n in GRADIENTS)],
    ids=[*(f"{n}-value" for n in VALUES), *(f"{n}-gradient" for n in GRADIENTS)],
)  # fmt: skip
def test_an_example(name: str, gradient: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    p = upl.load(EXAMPLES / f"{name}.upl")
    if gradient:
        p = upl.vjp(p, of=next(iter(p.outputs)), wrt=[n for n, v in p.inputs.items() if v.dtype.kind == "f"])
    params = dict.fromkeys(p.params, 4)
    text = lowered(p, params, tmp_path, capsys)
    random: Any = np.random.default_rng(0)
    arrays = {
        n: random.random(v.shape(**params)) + 0.5 if v.dtype.kind == "f" else random.integers(0, 2, v.shape(**params))
        for n, v in p.inputs.items()
    }
    want = upl.compile(p, engine="native", gather="ordered", real="f32", **params)(**arrays)
    order = re.findall(r'"([^"]*)"', re.search(r"upl\.inputs = \[(.*?)\]", text)[1])  # pyright: ignore[reportOptionalSubscript]
    results = re.findall(r'"([^"]*)"', re.search(r"upl\.outputs = \[(.*?)\]", text)[1])  # pyright: ignore[reportOptionalSubscript]
    given = [arrays[n].astype(np.float32) if arrays[n].dtype.kind == "f" else arrays[n] for n in order]
    got = dict(zip(results, run(text, given), strict=False))
    for output, values in want.items():
        np.testing.assert_allclose(got[output], values, rtol=2e-4, atol=2e-5, err_msg=output)
