"""The reference by the API and the command line; what it refuses; what it says of a program that no other engine shares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.engines.reference import Evaluator
from upl_mlir.tools.upl import main

INPUTS = Path(__file__).resolve().parents[1] / "Inputs"

PERCEPTRON = (INPUTS / "network.upl").read_text(encoding="utf-8")
PERCEPTRON = PERCEPTRON.replace("param K >= 2\nparam N[0:K-1] >= 1", "const K = 3\nconst N[0:K-1] = [3, 2, 2]")
TWO_EMPTY_GATHERS = """program two
input A<i> in 0<=i<2 { #3 -> M.a<i,*> }
input B<i,j> in 0<=i<2, 0<=j<3 { if j==1: -> M.g<i,j>; if j!=1: -> M.h<i,j> }
output R<i,j>
node M<i,j> in 0<=i<2, 0<=j<3 { in a, @(+) g[j*(2-j)], @(+) h[1-j*(2-j)]; a + 10*g + 100*h -> R<i,j> }
"""


def test_a_network_is_what_numpy_says():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 3))
    w = [rng.normal(size=(2, 3, 2)), rng.normal(size=(2, 2, 2))]
    run = upl.compile(upl.load(PERCEPTRON), engine="reference")
    found = run(X=x, W=_boxed(w))["R"]
    hidden = np.maximum(np.einsum("di,dij->dj", x, w[0]), 0)
    assert np.allclose(found, np.maximum(np.einsum("di,dij->dj", hidden, w[1]), 0), rtol=1e-12)
    assert run.stats["engine"] == "reference"
    assert run.stats["firings"] == {"Res": 2 * 7, "Link": 2 * 10, "Sum": 2 * 4, "AF": 2 * 4}


def _boxed(w):
    """Weights of two layers in the box of the port: d, k, i, j."""
    out = np.zeros((2, 2, 3, 2))
    for k, layer in enumerate(w):
        out[:, k, : layer.shape[1], : layer.shape[2]] = layer
    return out


def test_directives_are_expanded_before():
    p = upl.load("program p\ninput X { -> A.x }\noutput G\nnode A { in x; y = x**3; y -> L.y }\nnode L { in y }\n"
                 "node S { in g; g -> G }\nadjoint of L.y wrt A.x -> S.g\n")  # fmt: skip
    assert upl.compile(p, engine="reference")(X=2.0)["G"] == 12.0
    with pytest.raises(upl.UplError, match=r"UPL1410.*not expanded"):
        Evaluator(p.infer_domains().op)


def test_two_gathers_of_which_one_waits_for_nothing():
    """A token with `*` comes last: no stored token of the gather that waits for nothing says which instance is meant."""
    p = upl.load(TWO_EMPTY_GATHERS)
    for seed in range(12):
        f = upl.compile(p, engine="reference", order="random", seed=seed)
        out = f(A=np.array([1.0, 2.0]), B=np.arange(6.0).reshape(2, 3))["R"]
        assert out.tolist() == [[1, 11, 201], [302, 42, 502]]


@pytest.mark.parametrize("engine", ["interp", "token"])
def test_gathers_that_wait_for_nothing_hide_no_instance(engine: str):
    """Whichever of two gathers has a token leads to the instance, in any order of arrival."""
    p = upl.load(TWO_EMPTY_GATHERS)
    for seed in range(12):
        f = upl.compile(p, engine=engine, order="random", seed=seed)
        out = f(A=np.array([1.0, 2.0]), B=np.arange(6.0).reshape(2, 3))["R"]
        assert out.tolist() == [[1, 11, 201], [302, 42, 502]]


def test_errors_name_the_place():
    wrong = "program p\ninput X<i> in 0<=i<3 { if i>0: -> A.x<i> }\noutput R<i> in 0<=i<3\nnode A<i> { in x; -> R }\n"
    with pytest.raises(upl.UplError, match=r"1 of 3 elements of the host output `R` never came: R<0>") as e:
        upl.compile(upl.load(wrong), engine="reference")(X=np.ones(3))
    assert [d.code for d in e.value.diagnostics] == ["UPL1603"] and e.value.diagnostics[0].span is not None
    few = "program p\nparam n\ninput X { #n -> A.x<> }\noutput R\nnode A { in x; -> R }\n"
    with pytest.raises(upl.UplError, match=r"UPL1604.*multiplicity 0"):
        upl.compile(upl.load(few), engine="reference")(X=1.0, n=0)
    ends = "program p\ninput X { -> A.x<0> }\noutput R\nnode A<i> { in x; if x>=0: -> A.x<i+1>; if x<0: x -> R }\n"
    op = upl.load(ends).op
    with pytest.raises(upl.UplError, match=r"UPL1606.*stopped after 51 firings"):
        Evaluator(op, max_firings=50).run({"X": np.array(1.0)})


def test_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "p.upl"
    path.write_text("program p\ninput X<i> in 0<=i<3 { -> A.x }\noutput R\nnode A<i> { in x; x*x -> S.s }\n"
                    "node S { in @(+) s[3]; -> R }\n")  # fmt: skip
    assert main(["run", str(path), "--engine", "reference", "--input", "X=[1, 2, 3]"]) == 0
    assert "14" in capsys.readouterr().out
