"""Elements that depend on each other in a circle: the order in which native code makes them, and what it refuses.

The circles here have no field that goes along plainly in all their arrays; results are those of the interpreter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.schedule import schedule
from upl_mlir.tools.upl import main

LAYERS = """program layers
param n >= 1
param T >= 1
input X<i> in 0<=i<n { -> A.x<0,i> }
output R<i>
node A<t,i> in 0<=t<=T, 0<=i<n {
  in x
  if t<T: 0.5*x -> S.s<PLACE,j> for j in 0..n-1
  if t==T: x -> R<i>
}
node S<FIELDS,j> in DOMAIN, 0<=j<n {
  in @(+) s[n]
  s+1.0 -> A.x<BACK,j>
}
"""
PLACES = {
    "by twos": ("2*t+1", "r", "0<=r<2*T, r mod 2==1", "(r-1) floordiv 2+1"),
    "backwards": ("-3*t", "r", "0<=-r<3*T, r mod 3==0", "-(r floordiv 3)+1"),
    "from a size on": ("t+n", "r", "0<=r-n<T", "r-n+1"),
    "by threes from a size on": ("3*t+n", "r", "0<=r-n<3*T, (r-n) mod 3==0", "(r-n) floordiv 3+1"),
    "a sum": ("t+2*j", "r", "0<=r-2*j<T", "r-2*j+1"),
    "digits": ("t mod 3,t floordiv 3", "k,m", "0<=k<3, 0<=3*m+k<T", "3*m+k+1"),
}
SPIRAL = """program spiral
param n >= 1
param T >= 1
input X<i> in 0<=i<n { -> A.x<T,i> }
output R<i>
node A<t,i> in 0<=t<=2*T, 0<=i<n {
  in x
  if T<=t && t<2*T: x+1.0 -> A.x<2*T-t-1,i>
  if t<T: 0.5*x -> A.x<2*T-t,i>
  if t==2*T: x -> R<i>
}
"""
ENTERED = """program entered
param n >= 1
param T >= 1
input X<i> in 0<=i<n { -> B.x<0,i> }
output R<i>
node B<t,i> in 0<=t<=T, 0<=i<n { in x; 2.0*x -> A.x<t,i> }
node A<t,i> in 0<=t<=T, 0<=i<n { in x; if t<T: x -> B.x<t+1,i>; if t==T: x -> R }
"""
CIRCLES = {"a spiral": SPIRAL, "entered before the node it is left at": ENTERED}
for name, texts in PLACES.items():
    CIRCLES[name] = LAYERS
    for blank, text in zip(("PLACE", "FIELDS", "DOMAIN", "BACK"), texts, strict=True):
        CIRCLES[name] = CIRCLES[name].replace(blank, text)


@pytest.mark.parametrize("text", CIRCLES.values(), ids=CIRCLES)
def test_a_circle_without_a_plain_field_is_ordered(text: str) -> None:
    p = upl.load(text)
    f = upl.compile(p, engine="native", gather="ordered")
    for n, steps in ((3, 4), (2, 7), (1, 1)):
        x = np.random.default_rng(n).standard_normal(n)
        expected = upl.compile(p, gather="ordered")(X=x, T=steps)["R"]
        assert np.isfinite(expected).all() and np.all(expected != x)
        np.testing.assert_array_equal(f(X=x, T=steps)["R"], expected)


def test_a_result_has_its_own_coordinates() -> None:
    """All elements of a circle are an output: they stay where the caller looks for them."""
    text = SPIRAL.replace("output R<i>", "output R<t,i>").replace("if t==2*T: x -> R<i>", "x -> R<t,i>")
    x = np.random.default_rng(1).standard_normal(2)
    expected, found = (upl.compile(upl.load(text), e, gather="ordered")(X=x, T=3)["R"] for e in ("interp", "native"))  # pyright: ignore
    assert len({*expected[:, 0]}) > 3
    np.testing.assert_array_equal(found, expected)


def test_a_circle_with_other_coordinates_keeps_its_gradient() -> None:
    p = upl.vjp(upl.load(CIRCLES["by twos"].replace("0.5*x", "sin(x)")), of="R", wrt="X")
    x, d = np.random.default_rng(1).standard_normal((2, 3))
    expected = upl.compile(p)(X=x, d_R=d, T=4)["d_X"]
    assert np.all(expected)
    np.testing.assert_allclose(upl.compile(p, engine="native")(X=x, d_R=d, T=4)["d_X"], expected, rtol=1e-12)


def test_an_order_that_no_loop_has_is_refused() -> None:
    """0, 3, 6, 2, 5, 1, 4: neither up nor down, with whatever shifts.  The interpreter runs it."""
    text = """program sevenths
input X { -> A.x<0> }
output R
node A<i> in 0<=i<7 {
  in x
  if i!=4: 2.0*x -> A.x<(i+3) mod 7>
  if i==4: x -> R
}
"""
    p = upl.load(text)
    assert upl.compile(p)(X=1.0)["R"] == 64
    with pytest.raises(upl.UplError) as caught:
        upl.compile(p, engine="native")
    said = str(caught.value)
    assert ":4:1: error[UPL1824]: no order of loops found for the elements of `A.x`, which depend on each other" in said
    assert 'help: use engine="interp" or "token"' in said


RING = """program ring
const n = 3
input X<i> in 0<=i<n { -> A.y<i> }
output R<i>
node A<i> in 0<=i<n {
  in x, y
  x+y -> B.x<i>
}
node B<i> in 0<=i<n {
  in x
  x -> A.x<NEXT>
  x -> R<i>
}
"""


@pytest.mark.parametrize("following", ["n-1-i", "(i+1) mod n"])
def test_a_ring_without_an_entry_is_refused(following: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each input gets one token, so counting refutes nothing; but none ever comes.  Exit status 1, where, what to do."""
    file = tmp_path / "ring.upl"
    file.write_text(RING.replace("NEXT", following))
    assert main(["run", str(file), "--engine", "native", "--input", "X=[1, 2, 3]"]) == 1
    said = capsys.readouterr().err
    assert "ring.upl:9:1: error[UPL1823]: `B.x` waits for itself" in said
    assert "help: run `upl check`, which shows the ring" in said
    assert "Traceback" not in said
    assert main(["check", str(file)]) == 1
    assert "error[UPL1307]" in capsys.readouterr().err


def test_an_input_without_a_token_is_named() -> None:
    """A program that nothing has proved: the equations find out themselves, and say where."""
    text = """program hole
input X<i> in 0<=i<3 { -> A.x<i+3> }
output R<i>
node A<i> in 0<=i<3 {
  in x
  x -> R<i>
}
"""
    with pytest.raises(upl.UplError) as caught:
        schedule(upl.load(text).infer_domains().read())
    said = str(caught.value)
    assert said.splitlines()[0].endswith(":4:1: error[UPL1823]: nothing arrives at `A.x` for some of its instances")
    assert "help: run `upl check`, which shows the instances" in said


def test_cases_that_only_the_entries_of_arrays_rule_out() -> None:
    """R's domain has a case where d is beyond N[k]: there is no such d, as N[0] and N[1] are 3 and 2."""
    text = """program entries
const N[-1:1] = [1, 3, 2]
const M[-1:1] = [2, 1, 2]
input X<k,d,i> in -1<=k<=1, 0<=d<=N[k]-1, 0<=i<=M[k]-1 {
  if (0>d-1 || 0>i-1 || d-1<k) && d>=k: -> A.x<d,k,i>
  if 0>i-1 && i==2: -> C.x<i,d,k>
  if 0>i-1 && i!=2: X -> C.x<i,d,k>
}
output R<i,k,d>
node A<d,k,i> {
  in x
  x+x -> R<i,k,d>
}
node C<i,d,k> in -1<=k<=1, 0<=d<=N[k]-1, 0<=i<=M[k]-1 {
  in @(max) x[1]
  v = x-2.0
  if d+1<=N[k]-1 && i+1<=M[k]-1 && d+1>=k && d>=k: -> A<d+1,k,i+1>
  if i+1<=M[k]-1: v*v -> C<i+1,d,k>
}
"""
    p = upl.load(text)
    x = np.random.default_rng(2).standard_normal(p.inputs["X"].shape())
    expected = upl.compile(p)(X=x)["R"]
    assert np.any(expected)
    np.testing.assert_array_equal(upl.compile(p, engine="native")(X=x)["R"], expected)


@pytest.mark.parametrize("rounds", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("by", [1, 2, 3])
def test_places_of_what_was_there_before_the_loop(by: int, rounds: int) -> None:
    """Rows of which the last two steps are kept: a wave of several steps must not give the place of a row of the first step
    to another one before the rows at the end have read it."""
    x = np.random.default_rng(1).standard_normal((10, 6))

    def turned(x: Any) -> Any:
        def step(rows: Any, _: Any) -> Any:
            new = np.concatenate([rows[by:], rows[:by] * 0.5])
            return new, new

        return upl.scan(step, x, None, length=rounds)[1]

    np.testing.assert_array_equal(upl.function(turned, engine="native")(x), turned(x))
