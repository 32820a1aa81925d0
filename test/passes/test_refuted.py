"""What `check` refutes is not lowered to loops; marks of derivatives in a text prove nothing."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.tools.upl_opt import main as opt

MEAN = """builtin.module {
  upl.program @mean {
    upl.input @X <"i"> "real" in <"0<=i<4"> {
    ^bb0(%i: i64, %X: f64):
      upl.send %X -> @Half::@x <"i"> : f64
    }
    upl.output @R <""> "real"
    upl.node @Half <"i"> <"x"> in <"0<=i<4"> {
    ^bb0(%i: i64, %x: f64):
      %h = arith.addf %x, %x : f64
      upl.send %h -> @All::@s <""> count <"5"> rule "reversed arrow" : f64
    }
    upl.node @All <""> <"@(+) s[#]"> {
    ^bb0(%s: f64):
      upl.send %s -> @R <""> : f64
    } {upl.primal = "Half"}
  }
}
"""
"""Four summands that say they are five, at a node that claims to be an adjoint."""

CLAIM = """program claim
input A { #2 -> M.a<*> }
output R<k>
node M<k> in 0<=k<2 { in a; a+k -> R<k> }
"""
"""Nothing gives `k` a value: a declared domain is a claim, no filter."""

SQUARES = """program squares
param n >= 1
input X<i> in 0<=i<n { -> Sq }
output R
node Sq<i> { in x; x*x #n -> Sum.s<> }
node Sum { in @(+) s[#]; s -> R }
"""


@pytest.mark.parametrize("engine", ["interp", "token", "native"])
@pytest.mark.parametrize(("text", "given"), [(MEAN, {"X": np.ones(4)}), (CLAIM, {"A": 1.0})])
def test_no_engine_answers(engine: str, text: str, given: dict[str, object]) -> None:
    with pytest.raises(upl.UplError, match=r"UPL1305|UPL1306|UPL1601"):
        upl.compile(upl.load(text), engine=engine)(**given)


@pytest.mark.parametrize("lowering", ["--schedule", "--lower-loops", "-t=c"])
@pytest.mark.parametrize(("name", "text", "code"), [("p.mlir", MEAN, "UPL1305"), ("p.upl", CLAIM, "UPL1306")])
def test_no_lowering_to_loops(lowering: str, name: str, text: str, code: str, tmp_path: Path, capsys) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert opt([str(file), "--infer-domains", lowering]) == 1
    assert f"error[{code}]" in capsys.readouterr().err


@pytest.mark.parametrize("passes", ["--simplify", "--eliminate-dead-derivatives", "--autodiff=of=R,wrt=X"])
def test_passes_on_derivatives_do_not_make_a_forgery_right(passes: str, tmp_path: Path, capsys) -> None:
    file = tmp_path / "p.mlir"
    file.write_text(MEAN)
    assert opt([str(file), "--infer-domains", passes, "--lower-loops"]) == 1
    assert "error[UPL1305]" in capsys.readouterr().err


def test_a_derivative_that_was_changed_in_its_text_is_refuted() -> None:
    """Each count of the derivative's text, one too high, is refuted natively."""
    text = upl.grad(upl.load(SQUARES), of="R", wrt="X").to_mlir()
    assert upl.compile(upl.load(text), "native")(X=np.array([1.0, 2.0]))["d_X"].tolist() == [2, 4]
    places = [m.end() for m in re.finditer('count <"', text)]
    assert len(places) == 2  # the summands', and the way back's
    for at in places:
        with pytest.raises(upl.UplError, match="UPL13"):
            upl.compile(upl.load(f"{text[:at]}1+{text[at:]}"), "native")
