"""Fields along which programs stream: tokens go forward only, and no way leads back."""

from __future__ import annotations

from pathlib import Path

import pytest

import upl_mlir as upl
from upl_mlir.dialects.upl.query import program_of
from upl_mlir.passes.analysis.streams import streams

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def found(program: upl.Program) -> dict[str, dict[str, int]]:
    return streams(program_of(program.infer_domains().module))


def test_the_perceptron_streams_along_examples_and_layers() -> None:
    of = found(upl.load(EXAMPLES / "perceptron.upl", D=3))
    assert set(of) == {"d", "k"}
    assert of["d"] == {"Res": 0, "Link": 0, "Sum": 0, "AF_ReLU": 0}
    assert of["k"]["Link"] == 1


def test_its_derivative_goes_back_through_the_layers() -> None:
    of = found(upl.vjp(upl.load(EXAMPLES / "perceptron.upl", D=3), of="R", wrt=["W"]))
    assert "d" in of
    assert "k" not in of


FORWARD = """
input X<i> in 0<=i<4 { -> A.x<i,0> }
node A<i,t> in 0<=i<4, 0<=t<3 { in x; if t<2: x -> A.x<i,t+1>; if t==2: x -> Y<i> }
"""
BACKWARD = """
input X<i> in 0<=i<4 { -> A.x<i,2> }
node A<i,t> in 0<=i<4, 0<=t<3 { in x; if t>0: x -> A.x<i,t-1>; if t==0: x -> Y<i> }
"""
THROUGH_B = """
input X<i> in 0<=i<4 { -> A.x<i,1> }
node A<i,t> in 0<=i<4, 1<=t<=2 { in x; if t==1: x -> B.x<i>; if t==2: x -> Y<i> }
node B<i> { in x; x -> A.x<i,2> }
"""


@pytest.mark.parametrize(("text", "expected"), [(FORWARD, {"i", "t"}), (BACKWARD, {"i"}), (THROUGH_B, {"i"})])
def test_ways_back(text: str, expected: set[str]) -> None:
    program = upl.load(f"program p\noutput Y<i>{text}")
    assert set(found(program)) == expected


def test_what_data_decide_does_not_stream() -> None:
    text = """
input X<i> in 0<=i<4 { -> A.x<i> }
output Y<i>
node A<i> { in x; b: bool = x > 0; %s x -> Y<i>; %s 0-x -> Y<i> }
"""
    assert found(upl.load(f"program p{text % ('if b:', 'if !b:')}")) == {}
    assert set(found(upl.load(f"program p{text.replace('; %s 0-x -> Y<i>', '') % 'if i>=0:'}"))) == {"i"}
