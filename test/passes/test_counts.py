"""The number of summands of a gather and the multiplicity of a token: one expression, one proof, on every engine."""

from __future__ import annotations

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.analysis.obligations import Kind, Status

HEAD = """program counts
param m >= 1
param n >= 1
const N[0:2] = [2, 3, 4]
"""
OUT = "node E { in @(+) s[COUNT]; s -> L }\noutput L\n"
TWO = """input A<i,j> in 0<=i<m, 0<=j<n { MULT -> E.s }
input B<i,j> in 0<=i<m-1, 0<=j<n-1 { MULT -> E.s }
"""
PART = """input A<i,j> in 0<=i<m, 0<=j<n { A MULT -> E.s; if i<m-1 && j<n-1: A MULT -> E.s }
"""
TABLE = """input A<i,j> in 0<=i<N[0], 0<=j<N[1] { MULT -> E.s }
input B<i,j> in 0<=i<N[1], 0<=j<N[2] { MULT -> E.s }
"""
SUM = "m*n + (m-1)*(n-1)"
CASES = [(TWO, SUM), (PART, SUM), (TABLE, "N[0]*N[1] + N[1]*N[2]")]


def _forms(body: str, count: str) -> dict[str, str]:
    whole = HEAD + body + OUT
    return {
        "count": whole.replace("MULT", "").replace("COUNT", count),
        "multiplicity": whole.replace("MULT", f"#{count}").replace("COUNT", "#"),
    }


@pytest.mark.parametrize(("body", "count"), CASES, ids=["two arrays", "a part twice", "table"])
@pytest.mark.parametrize("form", ["count", "multiplicity"])
def test_sums_of_products_are_proved_and_run_in_both_forms(body: str, count: str, form: str) -> None:
    text = _forms(body, count)[form]
    p = upl.load(text)
    assert {o.status for o in p.check().obligations} == {Status.PROVED}
    again = upl.load(p.to_mlir())
    assert {o.status for o in again.check().obligations} == {Status.PROVED}
    for m, n in ((3, 4), (1, 3)):
        rng = np.random.default_rng(m * n)
        given = {k: rng.integers(-4, 5, port.shape(m=m, n=n)) / 4 for k, port in p.inputs.items()}
        wanted = sum(v.sum() for v in given.values())
        wanted += given["A"][:-1, :-1].sum() if body is PART else 0.0
        for engine in ("interp", "token", "native"):
            for program in (p, again):
                found = upl.compile(program, engine=engine)(**given, m=m, n=n)
                assert np.array_equal(found["L"], wanted), engine


@pytest.mark.parametrize("form", ["count", "multiplicity"])
def test_a_wrong_sum_of_products_is_refuted_in_both_forms(form: str) -> None:
    found = upl.load(_forms(TWO, "m*n + (m-1)*(n-1) + 1")[form]).check()
    assert any(o.kind is Kind.GATHER and o.status is Status.REFUTED for o in found.obligations)


DATA = """program data
param m >= 2
input A<i> in 0<=i<m { -> G.s }
input C: int { #m -> G.c<*> }
node G<i> { in s, c: int; SEND }
"""
ENDS = [
    ("s #c+1 -> E.s<>", "node E { in @(+) s[#]; s -> L }\noutput L\n", Kind.GATHER),
    ("if i==0: s #c+1 -> E.s<*>", "input X<j> in 0<=j<m { -> E.x }\nnode E<j> { in s, x; s*x -> L<j> }\noutput L<j>\n",
     Kind.MULTIPLICITY),
]  # fmt: skip


@pytest.mark.parametrize(("send", "end", "kind"), ENDS, ids=["gather", "multicast"])
def test_a_multiplicity_that_is_data_is_open_and_runs(send: str, end: str, kind: Kind) -> None:
    p = upl.load(DATA.replace("SEND", send) + end)
    (o,) = [o for o in p.check().obligations if o.status is not Status.PROVED]
    assert (o.kind, o.status) == (kind, Status.UNPROVED) and "c+1 is data" in o.message.replace("`", "")
    a = np.array([1.5, 2.0, 3.0])
    given = {"A": a, "C": 2} | ({"X": a} if "input X" in end else {})
    wanted = a.sum() if kind is Kind.GATHER else a[0] * a
    for engine in ("interp", "token"):
        found = upl.compile(p, engine=engine)(**given)
        assert np.array_equal(found["L"], wanted), engine
