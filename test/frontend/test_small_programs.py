"""What a body has no statements for is written by nodes: folds, chains, loops that data end, choices; docs/rationale.md.

On every engine that takes them, bit for bit, and with derivatives that NumPy knows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "rationale.md").read_text(encoding="utf-8")
HORNER = next(block for block in re.findall(r"```upl\n(.*?)```", PAGE, re.DOTALL) if "program horner" in block)
FOLD = """program fold
const m = 4
param n >= 1
input X<i> in 0<=i<n { #m -> Term.x<i,*> }
input C<k> in 0<=k<m { #n -> Term.c<*,k> }
output Y<i>
node Term<i,k> in 0<=i<n, 0<=k<m { in x, c; c*sin(x*k) #m -> Sum.s<i> }
node Sum<i> in 0<=i<n { in @(+) s[#]; s -> Y<i> }
"""
ONE_BODY = """program one_body
param n >= 1
input X<i> in 0<=i<n { -> F.x<i> }
input C<k> in 0<=k<4 { if k==0: #n -> F.c0<*>; if k==1: #n -> F.c1<*>; if k==2: #n -> F.c2<*>; if k==3: #n -> F.c3<*> }
output Y<i>
node F<i> in 0<=i<n { in x, c0, c1, c2, c3; c0*sin(x*0) + c1*sin(x*1) + c2*sin(x*2) + c3*sin(x*3) -> Y<i> }
"""
CHOICE = """program choice
input X<i> in 0<=i<4 { -> Swap.x<i> }
input Z<i> in 0<=i<4 { -> Swap.z<i> }
output Y<i>
node Swap<i> in 0<=i<4 { in x, z; c: bool = x > z; a = c ? x : z; b = c ? sqrt(x - z) : z*x; a*b -> Y<i> }
"""


def run(text: str, engine: str, **arrays: Any) -> Any:
    """The output Y, in the order of sums that the text says."""
    return upl.compile(upl.load(text), engine=engine, gather="ordered")(**arrays)["Y"]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("engine", ["interp", "token", "native", "reference"])
def test_folds_and_chains(engine: str) -> None:
    """The page's program and a sum, against one body that has all of it written out: the same bits."""
    x, c = np.array([0.3, -1.2, 0.7]), np.array([0.5, -2.0, 1.5, 3.0])
    np.testing.assert_array_equal(run(FOLD, engine, X=x, C=c), run(ONE_BODY, engine, X=x, C=c))
    c = np.append(c, -1.0)
    want = np.zeros(3)
    for k in range(4, -1, -1):
        want = c[k] + x * want
    np.testing.assert_array_equal(run(HORNER, engine, X=x, C=c), want)


def test_they_have_derivatives() -> None:
    """Of the chain and of the sum, on native code; of a choice, where the side that is not taken has none."""
    x, c, w = np.array([0.3, -1.2, 0.7]), np.array([0.5, -2.0, 1.5, 3.0, -1.0]), np.array([1.0, -0.5, 2.0])
    out = upl.compile(upl.vjp(upl.load(HORNER), of="Y", wrt=["X", "C"]), engine="native")(X=x, C=c, d_Y=w)
    powers = x[:, None] ** np.arange(5)
    np.testing.assert_allclose(out["d_C"], w @ powers, rtol=1e-13)
    np.testing.assert_allclose(out["d_X"], w * (powers[:, :4] @ (c[1:] * np.arange(1, 5))), rtol=1e-13)
    x, z = np.array([1.0, -2.0, 3.0, 0.5]), np.array([0.5, 1.0, 3.0, -1.0])
    up, d = x > z, np.sqrt(np.abs(x - z))
    np.testing.assert_allclose(run(CHOICE, "native", X=x, Z=z), np.where(up, x * d, z * z * x), rtol=1e-15)
    out = upl.compile(upl.vjp(upl.load(CHOICE), of="Y", wrt="X"))(X=x, Z=z, d_Y=np.ones(4))
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(out["d_X"], np.where(up, d + x / (2 * d), z * z), rtol=1e-14)
