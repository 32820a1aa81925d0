"""Folds of few summands are written out, and domains cut at the borders: no inner loop is left, and bits stay."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_schedules import compare, plan

import upl_mlir as upl
from upl_mlir.passes.loops.show import schedule_lines

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# One arrow gathers what lies round a point, as far as it is inside.
STENCIL = """program stencil
param T >= 1
param m >= 1
param n >= 1
input A<i,j> in 0<=i<m, 0<=j<n { -> U.u<0,i,j> }
output B<i,j>
node U<t,i,j> in 0<=t<=T, 0<=i<m, 0<=j<n {
  in u
  if t<T: u*(1 + t) -> S.s<t+1,i+a,j+b> for a in -1..1, b in -2..2 if WHERE && 0<=i+a<m && 0<=j+b<n
  if t==T: u -> B<i,j>
}
node S<t,i,j> in 1<=t<=T, 0<=i<m, 0<=j<n { in @(OP) s[COUNT]; s*0.25 -> U.u<t,i,j> }
"""
ROWS, COLUMNS = "min(i+1,m-1)-max(i-1,0)+1", "min(j+REACH,n-1)-max(j-REACH,0)+1"
AROUND = {
    "box": ("-1<=b<=1", f"({ROWS})*({COLUMNS.replace('REACH', '1')})"),
    "cross": ("(a==0 && -1<=b<=1 || b==0)", f"{ROWS}+{COLUMNS.replace('REACH', '1')}-1"),
    "wide": ("a==0", COLUMNS.replace("REACH", "2")),
}


def stencil(around: str, op: str) -> upl.Program:
    where, count = AROUND[around]
    return upl.load(STENCIL.replace("WHERE", where).replace("COUNT", count).replace("OP", op))


def lines(program: upl.Program, gather: str) -> list[str]:
    found = plan(program, gather=gather)
    return schedule_lines(found.tree, found.arrays)


def with_iterators(found: list[str]) -> list[str]:
    """The statements with folds that have loops of their own."""
    return [line for line in found if re.search(r"\[.* for ", line)]


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
def test_a_stencil_and_its_adjoint_have_no_loop_inside(gather: str) -> None:
    program = upl.load(EXAMPLES / "jacobi2d.upl")
    for p in (program, upl.vjp(program, of="B", wrt=["A"])):
        found = lines(p, gather)
        assert [line.split(" = ")[0].strip() for line in with_iterators(found)] == ["Change<>"]
    assert sum("floordiv 16" in line for line in found) == 2, "both loops over time are tiled"


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
@pytest.mark.parametrize("shape", [(3, 3), (3, 4), (4, 3), (5, 6)])
def test_the_borders_of_small_grids(shape: tuple[int, int], gather: str) -> None:
    program = upl.load(EXAMPLES / "jacobi2d.upl")
    for p in (program, upl.vjp(program, of="B", wrt=["A"])):
        for steps in (1, 18):
            compare(p, {"m": shape[0], "n": shape[1], "T": steps}, gather)


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
@pytest.mark.parametrize(("around", "op"), [("box", "max"), ("cross", "+"), ("wide", "+")])
def test_other_stencils(around: str, op: str, gather: str) -> None:
    program = stencil(around, op)
    assert not with_iterators(lines(program, gather))
    for m, n in ((1, 1), (1, 5), (2, 2), (3, 4), (6, 7)):
        for p in (program, upl.vjp(program, of="B", wrt=["A"])) if op == "+" else (program,):
            compare(p, {"m": m, "n": n, "T": 3}, gather)


def test_taps_that_are_numbers_stay_one_product() -> None:
    found = lines(upl.load(EXAMPLES.parent / "bench" / "native" / "programs" / "convolution.upl"), "relaxed")
    assert any("contraction" in line for line in found)


# One arrow with two cases, each of many summands.
ENDS = """program ends
param n >= 100
input X<i> in 0<=i<n { if i<40 || i>=n-40: -> S.s<> }
output R
node S { in @(+) s[80]; s -> R }
"""


@pytest.mark.parametrize(("gather", "shown"), [
    ("ordered", "R<> = +[X<i_1> for i_1 in 0..n-1 if 39>=i_1 || i_1+40>=n]"),
    ("relaxed", "R<> = +[X<i_1> for i_1 in 0..39; X<i_1> for i_1 in n-40..n-1]"),
], ids=["ordered", "relaxed"])  # fmt: skip
def test_one_loop_keeps_the_order_of_two_cases(gather: str, shown: str) -> None:
    """Where the order does not matter, each case has a loop, which tests nothing."""
    program = upl.load(ENDS)
    assert lines(program, gather) == [shown]
    compare(program, {"n": 105}, gather)
