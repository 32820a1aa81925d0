"""The Python names that have no other test: programs from text of the dialect, ragged outputs as a user asks for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture
def gradient() -> upl.Program:
    return upl.vjp(upl.load(EXAMPLES / "perceptron.upl", K=3, N=[3, 2, 4]), of="R", wrt="W")


def test_a_ragged_output_is_what_a_ragged_input_was(gradient):
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal((5, 3, 2)), rng.standard_normal((5, 2, 4))]  # along k, each over its own box
    x, d = rng.standard_normal((5, 3)), rng.standard_normal((5, 4))
    got = upl.compile(gradient)(X=x, W=weights, d_R=d)["d_W"]
    slices = upl.ragged(got, gradient.outputs["d_W"], "k")
    hidden = np.einsum("di,dij->dj", x, weights[0])
    kept = np.maximum(hidden, 0)
    last = np.einsum("dj,djr->dr", kept, weights[1])
    d2 = d * (last > 0)
    d1 = np.einsum("dr,djr->dj", d2, weights[1]) * (hidden > 0)
    assert [a.shape for a in slices] == [w.shape for w in weights]
    np.testing.assert_allclose(slices[1], np.einsum("dj,dr->djr", kept, d2), rtol=1e-13)
    np.testing.assert_allclose(slices[0], np.einsum("di,dj->dij", x, d1), rtol=1e-13)


def test_a_ragged_output_of_another_shape_is_refused(gradient):
    with pytest.raises(upl.UplError, match="gives `d_W` the extents of the array given"):
        upl.ragged(np.zeros((5, 2, 2, 4)), gradient.outputs["d_W"], "k")
    with pytest.raises(upl.UplError, match="has no field `z`"):
        upl.ragged(np.zeros((5, 2, 3, 4)), gradient.outputs["d_W"], "z")


@pytest.mark.parametrize("before", ["", "// a comment\n\n  "])
def test_text_of_the_dialect_loads_as_its_file_does(gradient, before, tmp_path):
    path = tmp_path / "g.mlir"
    path.write_text(gradient.to_mlir())
    assert str(upl.load(before + gradient.to_mlir())) == str(upl.load(path)) == str(gradient)


def test_wrong_text_of_the_dialect_has_a_position():
    with pytest.raises(upl.UplError, match="<string>:1:"):
        upl.load("builtin.module { upl.program }")


def test_programs_and_ports_tell_what_they_are():
    p = upl.load("program p\ninput X<i> in 1<=i<=3 { -> F.x<i> }\noutput Y<i>\nnode F<i> in 1<=i<=3 { in x; x*x -> Y<i> }")
    assert repr(p) == "<program p(X<i>: real) -> (Y<i>: real)>"
    assert repr(p.inputs["X"]) == "X<i>: real"


@pytest.mark.parametrize("engine", ["interp", "token", "native", "rtl"])
def test_no_engine_takes_a_declared_domain_for_tokens(engine):
    """`*` reaches the instances that there are; here only the claim says which."""
    p = upl.load("""program claim
param n >= 1
input c { #n -> Scaled.c<*> }
output Y<k>
node Scaled<k> in 0<=k<n { in c; c*k -> Y<k> }
""")
    with pytest.raises(upl.UplError, match=r"UPL1306.*nothing determines `k` of `Scaled`"):
        upl.compile(p, engine=engine)(c=2.0, n=3)
