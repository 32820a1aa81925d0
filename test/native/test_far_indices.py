"""Indices that would pass 64 bits: a call is an error, or goes to the tokens, never a wrong result."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native.test_c_source import COMPILERS, STRICT
from support.mpi import MPI
from xdsl.context import Context

import upl_mlir as upl
from upl_mlir.engines.native.c.c_source import emit_one_file
from upl_mlir.passes.layouts import Term
from upl_mlir.passes.lower_to_loops import LowerLoopsPass, lower_to_loops
from upl_mlir.poly.counts.dense import Box, mask
from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.parse import parse_formula
from upl_mlir.poly.sets import PolyContext

TEXT = """program far
param q >= 1
input X<i> in 0<=i<4 {{ if {0}: X -> S.x; if !({0}): 2*X -> S.x }}
node S<i> in 0<=i<4 {{ in x; x+1 -> Y }}
output Y<i>
"""
X = np.arange(4.0)
FAR = [
    ("i*q*q < q*q", 2**33, r"`3\*q\*q` at q=8589934592"),
    ("i*q*q < q*q", 2**31, r"`3\*q\*q` at q="),
    ("i mod (q*q) == i", 2**32, r"`q\*q` at q=4294967296"),  # q*q was 0 in 64 bits: the process ended
    ("(i*q) floordiv q == i", 2**62, r"`3\*q`"),
    ("i*q*q*q < q+1", 2**21, r"`3\*q\*q\*q`"),
]
NEAR = [
    ("i*q*q < q*q", 2**30), ("i*3+q < q+4", 2**62), ("i+q < 2*q", 2**62 - 1), ("i*q*q*q < q+1", 2**20),
    ("i mod (q*q) == i", 2**31 - 1),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "q", "said"), FAR)
@pytest.mark.parametrize("engine", ["native", MPI])
def test_what_may_not_fit(engine: Any, condition: str, q: int, said: str) -> None:
    f = upl.compile(upl.load(TEXT.format(condition)), engine=engine)
    with pytest.raises(upl.UplError, match=rf"UPL1826.*some may reach {said}"):
        f(X=X, q=q)
    assert f(X=X, q=2)["Y"].shape == (4,)  # the next call is served


@pytest.mark.parametrize(("condition", "q"), NEAR)
def test_what_fits(condition: str, q: int) -> None:
    p = upl.load(TEXT.format(condition))
    one, two = (upl.compile(p, engine=e)(X=X, q=q)["Y"] for e in ("native", "interp"))
    np.testing.assert_array_equal(one, two)


def test_tokens_where_data_decide() -> None:
    """Loops would compute the product for all i; the tokens do where it is asked."""
    text = TEXT.format("i<2 && i*q*q < q*q").replace("x+1 -> Y", "if x>3: x -> Y; if !(x>3): 0-x -> Y")
    f, g = (upl.compile(upl.load(text), engine=e) for e in ("native", "interp"))
    for q in (2, 2**31, 2):
        np.testing.assert_array_equal(f(X=X, q=q)["Y"], g(X=X, q=q)["Y"])


def test_bounds_of_loops_say_how_far() -> None:
    text = """program nest
param n >= 1
param q >= 1
input X<i> in 0<=i<n {{
  if {0}: X -> S.x<i,j> for j in 0..n-1
  if !({0}): 2*X -> S.x<i,j> for j in 0..n-1
}}
node S<i,j> in 0<=i<n, 0<=j<n {{ in x; x #n -> T.s<j> }}
node T<j> in 0<=j<n {{ in @(+) s[#]; -> Y }}
output Y<j>
""".format("i*q mod 7 < 3")
    p = upl.load(text)
    reach = lower_to_loops(p.infer_domains().read()).reach
    assert {t.names for t in reach} >= {("n", "q"), ("q",)} and not any(len(t.names) > 2 for t in reach)
    f = upl.compile(p, engine="native")
    with pytest.raises(upl.UplError, match=r"UPL1826.*n\*q"):
        f(X=X, q=2**62)
    one, two = (upl.compile(p, engine=e)(X=X, q=2**60)["Y"] for e in ("native", "interp"))
    np.testing.assert_array_equal(one, two)


def test_values_that_a_program_is_compiled_for() -> None:
    """They are constants of the code."""
    f = upl.compile(upl.load(TEXT.format("i*q*q < q*q")), engine="native", q=5)
    assert f(X=X)["Y"].tolist() == f(X=X, q=2**20)["Y"].tolist() == [1, 3, 5, 7]
    with pytest.raises(upl.UplError, match=r"UPL1826.*some may reach"):
        f(X=X, q=2**33)


@pytest.mark.parametrize("text", ["3*q*q", "q", "n*q", "12"])
def test_terms_are_read_as_written(text: str) -> None:
    assert str(Term.of(text)) == text


def test_c_asks_before_it_begins(tmp_path: Path) -> None:
    module = upl.load(TEXT.format("i*q*q < q*q")).infer_domains().module.clone()
    LowerLoopsPass().apply(Context(), module)
    (tmp_path / "p.c").write_text(emit_one_file(module))
    subprocess.run([COMPILERS[0], *STRICT, "-shared", "-fPIC", "p.c", "-o", "p.so", "-lm"], cwd=tmp_path, check=True)
    function = ctypes.CDLL(str(tmp_path / "p.so")).far
    for q, wanted, y_wanted in ((2**20, 0, [1, 3, 5, 7]), (2**33, 6, [0, 0, 0, 0])):
        y, status = np.zeros(4), np.zeros((), np.int64)
        function(ctypes.c_int64(q), *(ctypes.c_void_p(a.ctypes.data) for a in (X, y, status)))
        assert status == wanted and y.tolist() == y_wanted


@pytest.mark.parametrize(
    "text", ["i*q*q < q*q", "(i*q*q) mod (q+i) > 3 && i != 2", "min(i*q*q, q) > 4", "N[i*q*q-q*q] == 5", "i*q > 3"]
)
def test_masks_of_domains_are_exact(text: str) -> None:
    """They were computed in 64 bits."""
    q = 2**33
    ctx = PolyContext((), constants={"q": q}, arrays={"N": Table(0, (5, 6))})
    f = parse_formula(text)
    found = mask(ctx, ("i",), f, Box((-2,), (6,)))
    wanted = [f.evaluate({"i": i, "q": q}, lambda a, at: 5 if at == 0 else 0) for i in range(-2, 4)]
    assert found.tolist() == wanted
