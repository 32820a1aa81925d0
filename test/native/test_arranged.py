"""Summands of elements that data choose, put in order before a loop over steps: which loops, and the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects import memref

import upl_mlir as upl
from upl_mlir.engines.native import arranged
from upl_mlir.passes.if_convert import IfConvertPass
from upl_mlir.passes.lower_to_loops import lower_to_loops

SPREAD = """program spread
output Y<v>
node Edge<e> { in src: int, dst: int, w; w -> Msg.w<t,src,e> for t in 0..T-1; dst -> Msg.dst<t,src,e> for t in 0..T-1 }
node R<t,v> in 0<=t<=T, 0<=v<n { in r; if t<T: r ## -> Msg.r<t,v,*>; if t==T: r -> Y<v> }
node Msg<t,v,e> { in r, w, dst: int; r*w -> Sum.s<t,dst> }
node Sum<t,v> in 0<=t<T, 0<=v<n { in @(+) s[##]; 0.5*s -> R.r<t+1,v> }
input R0<v> in 0<=v<n { -> R.r<0,v> }
input To<e>: int in 0<=e<m { -> Edge.dst }
input From<e>: int in 0<=e<m { -> Edge.src }
input W<e> in 0<=e<m { -> Edge.w }
param T >= 0
param m >= 1
param n >= 1
"""


def loops(text: str | upl.Program) -> tuple[int, int]:
    """How many arrays a function has before summands are put in order, and after."""
    p = upl.load(text) if isinstance(text, str) else text
    converted = p.derived(("test",), lambda: [IfConvertPass(compared=True)]).infer_domains()
    module = lower_to_loops(converted.op).module
    before = sum(isinstance(op, memref.AllocOp) for op in module.walk())
    arranged.arrange(module)
    module.verify()
    return before, sum(isinstance(op, memref.AllocOp) for op in module.walk())


def graph(n: int, m: int) -> dict[str, Any]:
    """Edges, and numbers of few digits."""
    rng = np.random.default_rng(n + m)
    return {
        "To": rng.integers(0, n, m), "From": rng.integers(0, n, m), "W": rng.integers(-2, 3, m) / 1.0,
        "R0": rng.integers(-8, 8, n) / 8,
    }  # fmt: skip


def by_numpy(given: dict[str, Any], steps: int) -> Any:
    """The results, summed in the order of the edges."""
    r = given["R0"]
    for _ in range(steps):
        s = np.zeros(len(r))
        np.add.at(s, given["To"], r[given["From"]] * given["W"])
        r = 0.5 * s
    return r


def test_which_loops() -> None:
    """Three arrays of the edges, and the counts of the blocks; backwards as well."""
    before, after = loops(SPREAD)
    assert after - before == 4
    before, after = loops(upl.vjp(upl.load(SPREAD), of="Y", wrt=["R0"]))
    assert after - before == 8


def test_what_the_number_of_an_edge_decides() -> None:
    """An edge whose number is needed itself stays where it is."""
    before, after = loops(SPREAD.replace("r*w -> Sum", "r*w*e -> Sum"))
    assert before == after


def test_what_changes_with_the_steps() -> None:
    """Weights that each step has its own of are not put in order once for all."""
    own = SPREAD.replace("w; w -> Msg.w<t,src,e> for t in 0..T-1;", "src -> Step.src<t,e> for t in 0..T-1;")
    own = own.replace("dst: int, src ->", "dst: int; src ->").replace("input W<e> in 0<=e<m { -> Edge.w }", "")
    own += "node Step<t,e> { in src: int, w; w -> Msg.w<t,src,e> }\ninput W<t,e> in 0<=t<T, 0<=e<m { -> Step.w<t,e> }\n"
    before, after = loops(own)
    assert before == after


def test_one_step_is_as_it_was() -> None:
    """There is no loop over steps around the edges."""
    before, after = loops(SPREAD.replace("param T >= 0", "const T = 1"))
    assert before == after


def test_results_have_the_same_bits() -> None:
    """Three steps do not pay for the order, six do: three and three again give the same bits as six, of any numbers."""
    n, m = 5000, 9000
    given = graph(n, m)
    rng = np.random.default_rng(0)
    given |= {"R0": rng.normal(size=n), "W": rng.normal(size=m)}
    f = upl.compile(upl.load(SPREAD), engine="native")
    assert arranged.STEPS == 4 and n > arranged.NEAR
    half = f(**given, T=3)["Y"]
    assert f(**given, T=6)["Y"].tobytes() == f(**given | {"R0": half}, T=3)["Y"].tobytes()
    np.testing.assert_allclose(f(**given, T=6)["Y"], by_numpy(given, 6), rtol=1e-9, atol=1e-12)
    wrong = given["To"].copy()
    wrong[777] = n
    with pytest.raises(upl.UplError, match=f"<{n}>"):
        f(**given | {"To": wrong}, T=4)


@pytest.mark.parametrize(("n", "m"), [(1, 5), (7, 60), (700, 900), (3000, 1)])
@pytest.mark.parametrize("narrow", [False, True])
def test_blocks_of_any_size(n: int, m: int, narrow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays, as if they were not near: blocks of one element, and of several where there would be too many."""
    for name, value in (("NEAR", 0), ("STEPS", 1), ("LEAST_SHIFT", 0), ("RUN", 10**6)):
        monkeypatch.setattr(arranged, name, value)
    given = graph(n, m)
    if narrow:
        given |= {name: given[name].astype(np.int32) for name in ("To", "From")}
    p = upl.load(SPREAD.replace("program spread", "program spread_far"))  # not to be found in the cache
    f = upl.compile(p, engine="native")
    for steps in (0, 1, 3):
        assert f(**given, T=steps)["Y"].tolist() == by_numpy(given, steps).tolist()
    g = upl.compile(upl.vjp(p, of="Y", wrt=["R0"]), engine="native")
    back = given | {"From": given["To"], "To": given["From"], "R0": (np.arange(n) % 5 - 2) / 4}
    found = g(**given, d_Y=back["R0"], T=3)
    assert found["Y"].tolist() == by_numpy(given, 3).tolist()
    assert found["d_R0"].tolist() == by_numpy(back, 3).tolist()


def test_a_wrong_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("NEAR", 0), ("STEPS", 1), ("LEAST_SHIFT", 0), ("RUN", 10**6)):
        monkeypatch.setattr(arranged, name, value)
    given = graph(7, 60)
    p = upl.load(SPREAD.replace("program spread", "program spread_far"))
    f, slow = upl.compile(p, engine="native"), upl.compile(p)
    for port, wrong in (("To", -1), ("To", 7), ("From", 7), ("From", -3)):
        ends = given[port].copy()
        ends[31] = wrong
        with pytest.raises(upl.UplError) as expected:
            slow(**given | {port: ends}, T=2)
        with pytest.raises(upl.UplError) as found:
            f(**given | {port: ends}, T=2)
        assert [str(d) for d in found.value.diagnostics] == [str(d) for d in expected.value.diagnostics]
