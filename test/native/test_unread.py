"""What nobody reads, what is computed twice, what is read side by side: the right elements, the same numbers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_schedules import compare, plan

import upl_mlir as upl
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.if_convert import IfConvertPass
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.transform import unread

# A sum for each pair, of which a condition behind it takes one half, or nearly all.
HALF = """program half
param n >= 1
input A<i,k> in 0<=i<n, 0<=k<n { #n -> P.a<i,*,k>; #n -> P.b<*,i,k> }
output R<i> in 0<=i<n
output Q<j> in 0<=j<n
node P<i,j,k> in 0<=i<n, 0<=j<n, 0<=k<n { in a, b; a*b -> S.s<i,j> }
node S<i,j> in 0<=i<n, 0<=j<n { in @(+) s[n]; CONDITION ? s/(s*s + 1) + exp(s) : 1 -> R_.r<i>; CONDITION ? s : 2 -> Q_.q<j> }
node R_<i> in 0<=i<n { in @(+) r[n]; r -> R }
node Q_<j> in 0<=j<n { in @(+) q[n]; q -> Q }
"""


def bounds(found: LoopProgram, array: str) -> list[str]:
    """The constraints under which an array's elements are."""
    return sorted(str(c.e) for cons, _ in found.system.equations[array].pieces for c in cons)


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
@pytest.mark.parametrize("condition", ["i > j", "i + j <= n", "i > j || i == 0", "i != j", "i == j"])
def test_sums_behind_a_condition(condition: str, gather: str) -> None:
    program = upl.load(HALF.replace("CONDITION", condition))
    for p in (program, upl.vjp(program, of="R", wrt=["A"])):
        for n in (1, 2, 5):
            compare(p, {"n": n}, gather)


def test_a_triangle_is_left_of_a_square() -> None:
    whole, half = (plan(upl.load(HALF.replace("CONDITION", c))) for c in ("i != j", "i > j"))
    assert "S.s" in whole.system.equations
    assert not any("i" in c and "j" in c for c in bounds(whole, "S.s")), "both halves are read"
    assert any("i" in c and "j" in c for c in bounds(half, "S.s"))


def test_borders_along_one_field_stay() -> None:
    """Loops with equal borders are fused: all pairs of rows have them, whether the first row is read or not."""
    assert bounds(plan(upl.load(HALF.replace("CONDITION", "i > 0"))), "S.s") == ["i", "j", "n-i-1", "n-j-1"]


def test_an_overflow_that_nobody_reads_is_told() -> None:
    text = HALF.replace("a*b", "int(a)*int(b)").replace("in @(+) s[n]", "in @(+) s[n]: int").replace("CONDITION", "i > j")
    text = text.replace("s/(s*s + 1) + exp(s)", "real(s)")
    a = np.array([[1.0, 0.0], [2.0**40, 2.0**40]])
    for engine in ("interp", "native"):
        with pytest.raises(upl.UplError, match="UPL1604"):
            upl.compile(upl.load(text), engine=engine)(A=a)


def test_indices_are_computed_once() -> None:
    jax = pytest.importorskip("jax")

    def f(w: Any, r: Any, at: Any) -> Any:
        for _ in range(5):
            r = 0.5 + jax.numpy.zeros(4).at[at].add(w * r[at])
        return r

    w, r, at = np.arange(6.0), np.arange(4.0), np.array([0, 3, 1, 1, 2, -1])
    traced = upl.from_jax(f, engine="native")
    np.testing.assert_allclose(traced(w, r, at), f(w, r, at), rtol=1e-6)
    program = traced.program(w, r, at)
    found = plan(program.derived(("test",), lambda: [IfConvertPass(compared=True)]).infer_domains())
    assert sum(eq.kind is Kind.INT and bool(eq.fields) for eq in found.system.equations.values()) == 1
    compiled = upl.compile(program, engine="native")
    with pytest.raises(upl.UplError, match="never came"):
        compiled(**{n: at + 9 if n == "at" else {"w": w, "r": r}[n] for n in compiled.program.inputs})


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
def test_pairs_are_joined_in_loops(gather: str) -> None:
    """Each level of a tree has an array; one term for all of it would have a function for each of its nodes."""

    def tree(x: Any) -> Any:
        while len(x) > 1:
            x = np.tanh(x[0::2] - 0.5 * x[1::2])
        return x[0]

    x = np.random.default_rng(0).standard_normal(64)
    program = upl.function(tree).program(x)
    compare(program, {}, gather)
    found = plan(program, gather=gather)
    assert sorted(int(a.axes[0].size.constant or 0) for a in found.arrays.values() if a.axes) == [2, 4, 8, 16, 32]
    assert all(len(eq.pieces) == 1 for eq in found.system.equations.values()), "even and odd places have one loop"


def test_a_recurrence_loses_no_more_and_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each element is read by the one before it where an entry of an array says so: what is read of those that are left is
    less each time, by one entry more."""
    text = """program p
param n >= 2
const N[-1:2] = [1, 1, 1, 2]
input X<j> in -1<=j<=2 { -> B<k,j,i> for k in -n..n, i in 0..N[j]-1 if !(-1<=j-1 && i<=N[j-1]-1) }
output R<j,k,i>
node B<k,j,i> in -1<=j<=2, -n<=k<=n, 0<=i<=N[j]-1 {
  in @(+) x[1]
  v = 0.25*x
  if j+1<=2 && i<=N[j+1]-1: v -> B.x<k,j+1,i>
  if i<1: v + 1 -> C.x<j,i,k>
}
node C<j,i,k> in -1<=j<=2, -n<=k<=n, 0<=i<=N[j]-1, i<1 { in x; x*x -> R<j,k,i> }
"""
    rounds: list[str] = []
    real = unread._narrowed

    def counted(*args: Any) -> Any:
        rounds.append("one")
        assert len(rounds) < 100, "without an end"
        return real(*args)

    monkeypatch.setattr(unread, "_narrowed", counted)
    compare(upl.load(text), {"n": 2}, "relaxed")
    assert rounds
