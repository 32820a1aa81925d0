"""The native engine computes what the interpreter computes: examples whose arrows follow from the index, gradients."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))

NAMES = [
    "cholesky", "conv2d", "conv_strided", "diagonal", "floyd_warshall", "gmm", "iris", "jacobi1d", "jacobi2d", "lstm",
    "matmul", "mds", "perceptron", "reshape", "scalars", "softmax", "training", "triangular_solve", "upsample", "wave",
]  # fmt: skip


def close(a, b):
    for name, wanted in a.items():
        np.testing.assert_allclose(b[name], wanted, rtol=1e-11, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
@pytest.mark.parametrize("name", NAMES)
def test_an_example(name, gather):
    import data

    d = data.generate(name)
    p = upl.load(EXAMPLES / f"{name}.upl")
    wanted = upl.compile(p, gather=gather)(**d.inputs, **d.params)
    close(wanted, upl.compile(p, engine="native", gather=gather)(**d.inputs, **d.params))


@pytest.mark.parametrize(
    ("name", "of", "wrt"),
    [
        ("matmul", "C", "A B"), ("wave", "Y", "U0 C"), ("perceptron", "R", "X W"), ("jacobi1d", "B", "A"),
        ("mds", "Stress", "X"),
    ],
)
def test_a_gradient(name, of, wrt):
    import data

    d = data.generate(name)
    g = upl.vjp(upl.load(EXAMPLES / f"{name}.upl"), of=of, wrt=wrt.split())
    given = dict(d.inputs)
    for n, port in g.inputs.items():
        if n not in given:
            given[n] = np.random.default_rng(1).standard_normal(port.shape(**d.params))
    close(upl.compile(g)(**given, **d.params), upl.compile(g, engine="native")(**given, **d.params))


def test_what_data_decide_is_refused():
    with pytest.raises(upl.UplError, match="UPL1821"):
        upl.compile(upl.load(EXAMPLES / "newton.upl"), engine="native")
