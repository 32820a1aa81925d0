"""Examples and their gradients: the token engine does what the interpreter does, token for token."""

from __future__ import annotations

from pathlib import Path

import pytest

import upl_mlir as upl
from upl_mlir.api.programs import reverse

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(p.stem for p in EXAMPLES.glob("*.upl"))


@pytest.mark.usefixtures("quick_compiler")
@pytest.mark.parametrize("name", NAMES)
def test_examples(agree, example_data, name):
    d = example_data.generate(name, 1)
    p = upl.load(EXAMPLES / f"{name}.upl", **d.params)
    agree(p, d.inputs)
    agree(p, d.inputs, order="random", seed=4)


@pytest.mark.parametrize("name", ["perceptron", "spmv"])
@pytest.mark.parametrize("options", [{"gather": "ordered"}, {"real": "f32"}, {"gather": "ordered", "real": "f32"}])
def test_options(agree, example_data, name, options):
    d = example_data.generate(name, 2, seed=3)
    agree(upl.load(EXAMPLES / f"{name}.upl", **d.params), d.inputs, order="random", **options)


@pytest.mark.parametrize("name", ["perceptron", "newton", "lstm", "cholesky", "conv2d", "scan"])
def test_gradients(agree, example_data, name):
    d = example_data.generate(name, 1)
    p = upl.load(EXAMPLES / f"{name}.upl", **d.params).expanded()
    of = next(n for n, v in p.outputs.items() if v.dtype.kind == "f")
    wrt = [n for n, v in p.inputs.items() if v.dtype.kind == "f"]
    g = reverse(p, of=of, wrt=wrt)
    seed = d.outputs.get(of)
    assert seed is not None
    given = {n: seed for n in g.inputs if n not in d.inputs}
    agree(g, {**d.inputs, **given}, gather="ordered")


def test_it_is_an_engine_of_the_api_and_of_the_command_line(example_data, tmp_path, capsys):
    import json

    import numpy as np

    from upl_mlir.tools.upl import main

    d = example_data.generate("spmv", 1)
    np.savez(tmp_path / "in.npz", **d.inputs)
    done = main(
        ["run", str(EXAMPLES / "spmv.upl"), "--engine", "token", "--input", str(tmp_path / "in.npz"),
         "--output", str(tmp_path / "out.npz"), "--stats", str(tmp_path / "s.json")]
    )  # fmt: skip
    assert done == 0, capsys.readouterr().err
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["Y"], d.outputs["Y"], rtol=1e-12)
    stats = json.loads((tmp_path / "s.json").read_text())
    assert stats["engine"] == "token" and stats["firings"]["Row"] == len(d.outputs["Y"])
