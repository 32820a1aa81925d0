"""What `check` refutes is not lowered to loops; marks of derivatives in a text prove nothing."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.analysis import proved
from upl_mlir.passes.arrows import PRIMAL
from upl_mlir.tools.upl import main as upl_main
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

SPREAD = """builtin.module {
  upl.program @spread {
    upl.input @X <"i"> "real" in <"0<=i<4"> {
    ^bb0(%i: i64, %X: f64):
      upl.send %X -> @Copy::@x <"i"> rule "stash" {upl.why = "the derivative reads it"} : f64
    } {upl.comment = "adjoint of X"}
    upl.input @Y <"i,j"> "real" in <"0<=i<4 && 0<=j<3"> {
    ^bb0(%i: i64, %j: i64, %Y: f64):
      upl.send %Y -> @Mul::@y <"i,j"> : f64
    }
    upl.output @R <"i"> "real" domain <"0<=i<4">
    upl.node @Copy <"i"> <"x"> domain <"0<=i<4"> {
    ^bb0(%i: i64, %x: f64):
      upl.send %x -> @Mul::@x <"i,*"> count <"2"> rule "reversed arrow, gather to multicast" : f64
    } {upl.primal = "X", upl.hull = ["i"]}
    upl.node @Mul <"i,j"> <"x, y"> domain <"0<=i<4 && 0<=j<2"> {
    ^bb0(%i: i64, %j: i64, %x: f64, %y: f64):
      %p = arith.mulf %x, %y : f64
      upl.send %p -> @Sum::@s <"i"> count <"3"> rule "reversed arrow, multicast to gather" : f64
    } {upl.primal = "Copy", upl.comment = "adjoint of Copy"}
    upl.node @Sum <"i"> <"@(+) s[#]"> {
    ^bb0(%i: i64, %s: f64):
      upl.send %s -> @R <"i"> rule "reversed arrow" : f64
    } {upl.primal = "Sum"}
  } {upl.assumed = ["Mul.x", "Mul.y", "Sum.s", "R"], upl.notes = ["proved"]}
}
"""
"""Every attribute that passes write on derivatives, each of them false: two copies are sent where three partners wait."""

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


FORGED = {"a count of summands": (MEAN, 11), "copies, and every mark": (SPREAD, 14)}
"""With the line at fault."""
GIVEN = ("--input", "X=[1,2,3,4]")
WAYS = (
    ("upl-opt", "--check"), ("upl-opt", "--schedule"), ("upl-opt", "--lower-loops"), ("upl-opt", "-t", "c"),
    ("upl-opt", "--lower-hw"),
    *(("upl", "run", *GIVEN, "--engine", e) for e in ("native", "interp", "token", "rtl", "reference")),
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
@pytest.mark.parametrize("forgery", FORGED)
def test_every_way_refutes_a_forgery_where_it_stands(forgery: str, way: tuple[str, ...], tmp_path: Path, capsys) -> None:
    text, line = FORGED[forgery]
    file = tmp_path / "forged.mlir"
    file.write_text(text)
    tool, *options = way
    command = [options[0], str(file), *options[1:]] if tool == "upl" else [str(file), *options]
    assert (upl_main if tool == "upl" else opt)(command) == 1
    said = capsys.readouterr()
    assert re.match(rf"{re.escape(str(file))}:{line}:\d+: error\[UPL130\d\]: ", said.err), said.err
    assert not said.out


@pytest.mark.parametrize("forgery", FORGED)
def test_a_mark_that_is_trusted_lets_them_through(forgery: str, tmp_path: Path, capsys, monkeypatch) -> None:
    """A compiler that trusts the mark in a text writes C that reads what nobody sent."""
    monkeypatch.setattr(proved, "is_made", lambda op: PRIMAL in op.attributes)
    file = tmp_path / "forged.mlir"
    file.write_text(FORGED[forgery][0])
    assert opt([str(file), "-t", "c"]) == 0, capsys.readouterr().err


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
