"""Open gathers `@(op) s[##]`: when they end, with what, and what is said where they cannot (LANGUAGE 3.3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.dialects.upl import RankAttr
from upl_mlir.dialects.upl.query import nodes
from upl_mlir.poly.expr import IndexExpr

ENGINES = ("interp", "token", "native", "reference")
SCATTER = """program scatter
param n >= 1
input K<e>: int in 0<=e<4 { -> S.k }
input V<e> in 0<=e<4 { -> S.v }
output Y<i>
node S<e> { in k: int, v; v -> Sum.s<k> }
node Sum<i> in 0<=i<n { in @(OP) s[##]; s -> Y }
"""
STEPS = """program steps
const T = 3
input K<i>: int in 0<=i<4 { -> Next.k<t,i> for t in 1..T }
input X<i> in 0<=i<4 { -> At.x<0,i> }
output Y<i>
node At<t,i> in 0<=t<=T, 0<=i<4 { in x; if t<T: x -> Next.x<t+1,i>; if t==T: x -> Y<i> }
node Next<t,i> { in x, k: int; 2*x -> Sum.s<t,k> }
node Sum<t,i> in 1<=t<=T, 0<=i<4 { in @(+) s[##]; s + 1 -> At.x }
"""


def run(text: str, engine: str = "interp", order: str = "fifo", **given: Any) -> Any:
    params = {n: given.pop(n) for n in ("n",) if n in given}
    return upl.compile(upl.load(text), engine=engine, order=order, **params)(**given)


@pytest.mark.parametrize("order", ["fifo", "random"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("op", "want"),
    [("+", [1, 0, 9]), ("*", [1, 1, 24]), ("max", [1, -np.inf, 4]), ("min", [1, np.inf, 2])],
)  # fmt: skip
def test_a_place_gets_what_data_send_there(op: str, want: list[float], engine: str, order: str) -> None:
    """Nothing is sent to place 1: it gets the operator's identity, as it is declared."""
    out = run(SCATTER.replace("OP", op), engine, order, n=3, K=[0, 2, 2, 2], V=[1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(out["Y"], want)


@pytest.mark.parametrize("order", ["fifo", "random"])
@pytest.mark.parametrize("engine", ENGINES)
def test_step_by_step(engine: str, order: str) -> None:
    """A step's sums end before the next step begins, whatever arrives first."""
    k, x = np.array([1, 1, 3, 0]), np.array([1.0, 2.0, 3.0, 4.0])
    want = x
    for _ in range(3):
        want = 1 + np.bincount(k, 2 * want, 4)
    np.testing.assert_array_equal(run(STEPS, engine, order, K=k, X=x)["Y"], want)


@pytest.mark.parametrize("engine", ENGINES)
def test_several_open_gathers_and_another_input(engine: str) -> None:
    """Undeclared, a node has an instance where a token of another input comes; both gathers end there together."""
    text = """program two
input K<e>: int in 0<=e<3 { -> S.k }
input W<i>: int in 2<=i<=4 { -> N.w }
output Y<i>
node S<e> { in k: int; 1 -> N.a<k>; if e>0: 10 -> N.b<k> }
node N<i> { in @(+) a[##]: int, @(+) b[##]: int, w: int; a + b + 100*w -> Y<i> }
"""
    np.testing.assert_array_equal(run(text, engine, K=[2, 2, 3], W=[2, 3, 4])["Y"], [212, 311, 400])


def test_the_rank_is_part_of_the_program() -> None:
    p = upl.load(STEPS).infer_domains()
    (rank,) = (op.rank for op in nodes(p.op) if op.rank is not None)
    assert [str(e) for e in rank.data] == ["t"]
    assert "@(+) s[##]" in str(p) and 'rank <"t">' in str(p.op)


def test_a_ring_without_a_rank_is_refuted() -> None:
    """Data decide which sum is next: nothing tells which of them ends first."""
    text = """program ring
input X<i> in 0<=i<3 { -> N.s<i> }
output Y<i>
node N<i> in 0<=i<3 { in @(+) s[##]; k = int(s) mod 3; if s<5: s+1 -> N.s<k>; s -> Y }
"""
    report = upl.load(text).check()
    (found,) = (d for d in report.diagnostics() if d.code == "UPL1309")
    assert "round N -> N no index field always goes on" in found.message and "N.s[##]" in found.message
    for engine in ENGINES:
        with pytest.raises(upl.UplError, match=r"UPL1309.*no rank tells when `N.s\[##\]` ends"):
            run(text, engine, X=[1.0, 2.0, 3.0])


@pytest.mark.parametrize("engine", [e for e in ENGINES if e != "native"])  # whose loops need no ranks
def test_a_summand_that_comes_too_late(engine: str) -> None:
    """With a wrong rank a step ends before the one that it waits for; the summand that comes then is an error."""
    p = upl.load(STEPS).infer_domains()
    (op,) = (op for op in nodes(p.op) if op.rank is not None)
    op.rank = RankAttr((IndexExpr.of(0),))
    with pytest.raises(upl.UplError, match=r"UPL1610.*a summand comes to `Sum.s<2,\d>`, which has ended"):
        upl.compile(p, engine=engine)(K=[1, 1, 3, 0], X=[1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize("engine", ENGINES)
def test_what_strands_is_said(engine: str) -> None:
    """A summand where no other input comes: its gather ends, and waits for nothing."""
    text = """program p
input K: int { -> S.k }
input W<i> in 0<=i<2 { -> N.w }
output Y<i>
node S { in k: int; 1.0 -> N.s<k> }
node N<i> { in @(+) s[##], w; s*w -> Y }
"""
    with pytest.raises(upl.UplError, match=r"UPL1601.*N.s<5>") as e:
        run(text, engine, K=5, W=[1.0, 2.0])
    assert any("`w` never came" in n.message for n in e.value.diagnostics[0].notes)


def test_a_node_of_open_gathers_alone_declares_its_domain() -> None:
    with pytest.raises(upl.UplError, match=r"UPL1203.*`Sum` has no bound in `i`") as e:
        upl.load(SCATTER.replace("OP", "+").replace("node Sum<i> in 0<=i<n", "node Sum<i>")).check()
    assert "declare it" in (e.value.diagnostics[0].help or "")


def test_on_a_circuit() -> None:
    """A circuit has them, but not where data decide whether the instance fires."""
    given = {"K": [0, 2, 2, 2], "V": [1.0, 2.0, 3.0, 4.0]}
    text = SCATTER.replace("OP", "+")
    np.testing.assert_array_equal(run(text, "circuit", n=3, **given)["Y"], run(text, "interp", n=3, **given)["Y"])
    fires = text.replace("s[##]", "s[##], f") + "input F<i> in 0<=i<n { if F > 0: -> Sum.f }\n"
    with pytest.raises(upl.UplError, match="UPL1821") as e:
        run(fires, "circuit", n=3, F=[1.0, 1.0, 1.0], **given)
    assert e.value.diagnostics[0].span is not None


def test_static_summands() -> None:
    """Nothing needs to be counted where the index tells all; `check` proves it whole."""
    text = """program rows
param n >= 1
input A<i,j> in 0<=i<n, 0<=j<=i { -> Row.s<i> }
output Y<i>
node Row<i> in 0<=i<n { in @(+) s[##]; s -> Y }
"""
    p = upl.load(text)
    assert all(o.status.name == "PROVED" for o in p.check().obligations)
    a = {(i, j): float(i + j) for i in range(3) for j in range(i + 1)}
    g = upl.compile(upl.vjp(p, of="Y", wrt="A"), engine="interp", n=3)(A=a, d_Y=[1.0, 2.0, 3.0])
    np.testing.assert_array_equal(g["Y"], [0, 3, 9])
    np.testing.assert_array_equal(g["d_A"], [[1, 0, 0], [2, 2, 0], [3, 3, 3]])
