"""Programs of which data decide conditions, indices and numbers of summands, with data that leave nothing over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from circuit.circuits import EXAMPLES

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Decided:
    """A program, its sizes by a number, and data for them."""

    text: str
    sizes: Callable[[int], dict[str, int]]
    data: Callable[[np.random.Generator, dict[str, int]], Arrays]


def one(n: int) -> dict[str, int]:
    return {"n": n}


def reals(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers that every type of reals has, zeros of both signs among them."""
    return np.where(rng.random(shape) < 0.2, -0.0, rng.integers(-8, 9, shape) / 4).astype(np.float32)


def bodies(rng: np.random.Generator, s: dict[str, int]) -> Arrays:
    return {"M": 3 * rng.random(s["n"]).astype(np.float32), "e": rng.random(s["n"]).astype(np.float32)}


def sparse(rng: np.random.Generator, s: dict[str, int]) -> Arrays:
    rows, columns, places = s["m"], s["n"], s["w"]
    return {
        "V": reals(rng, rows, places), "Col": rng.integers(0, columns, (rows, places)),
        "Count": rng.integers(0, places + 1, rows), "X": reals(rng, columns),
    }  # fmt: skip


def newton(most: int) -> str:
    """The example with polynomials in place of its functions, whose last bit is each engine's own, and fewer steps."""
    text = (EXAMPLES / "newton.upl").read_text(encoding="utf-8").replace("most = 30", f"most = {most}")
    for old, new in (("sin(E)", "(E - E*E*E*0.15)"), ("cos(E)", "(1 - 0.45*E*E)"), ("1e-10", "1e-3")):
        assert old in text
        text = text.replace(old, new)
    return text


def spmv_sizes(n: int) -> dict[str, int]:
    return {"m": n, "n": n + 1, "w": max(1, n - 1)}


HALVES = """program halves
param n >= 1
const most = 5
input A<i> in 0<=i<n { -> S.a<i,0> }
output O<i> in 0<=i<n
output Steps<i>: int in 0<=i<n
node S<i,k> {
  in a
  more: bool = abs(a) > 0.5
  if more && k<most: a*0.5 -> S.a<i,k+1>
  if !more || k==most: a -> O<i>
  if !more || k==most: k -> Steps<i>
}
"""
BRANCH = """program branch
param n >= 1
input A<i> in 0<=i<n { -> S.a }
output O<i>
node S<i> { in a; c: bool = a > 0; if c: a -> J.x<i>; if !c: a*2 -> J.x<i> }
node J<i> { in x; x + 1 -> O<i> }
"""
HISTOGRAM = """program histogram
param n >= 1
param b >= 1
input K<i>: int in 0<=i<n { -> S.k }
input A<i> in 0<=i<n { -> S.a }
input C<j>: int in 0<=j<b { -> H.c }
output O<j>
node S<i> { in k: int, a; a -> H.s<k> }
node H<j> in 0<=j<b { in c: int, @(+) s[c]; s -> O }
"""
ROUTING = """program routing
param n >= 1
input K<i>: int in 0<=i<n { -> S.k }
input A<i> in 0<=i<n { -> S.a }
output O<j> in 0<=j<n
node S<i> { in k: int, a; a*2 -> T.x<k> }
node T<j> in 0<=j<n { in x; x+1 -> O<n-1-j> }
"""
SCATTERED = """program scattered
param n >= 1
input K<i>: int in 0<=i<n { -> S.k }
input A<i> in 0<=i<n { -> S.a }
output O<j> in 0<=j<=n
output M<j> in 0<=j<=n
node S<i> { in k: int, a; if a > 0: a*2 -> H.s<k>; a -> H.m<k> }
node H<j> in 0<=j<=n { in @(+) s[##], @(max) m[##]; s -> O; m -> M }
"""
WINDOW = """program window
param n >= 1
input K<i>: int in 0<=i<n { -> S.k }
input A<i> in 0<=i<n { -> S.a }
input C<j>: int in 0<=j<n+2 { -> T.c }
output O<j> in 0<=j<n+2
node S<i> { in k: int, a; a -> T.s<k+d> for d in 0..2 }
node T<j> in 0<=j<n+2 { in c: int, @(max) s[c]; if c>0: s -> O<j>; if !(c>0): 0.0 -> O<j> }
"""
INPUTS = """program inputs
param n >= 1
input A<i> in 0<=i<n { if A > 0: -> T.x<i>; if !(A > 0): -1.0 -> T.x<i> }
output O<i>
node T<i> { in x; x*x -> O }
"""
DEEP = """program deep
param n >= 1
input A<i> in 0<=i<n { -> S.a }
output O<i> in 0<=i<n
node S<i> { in a; if a > 0: a -> U.x<i>; if !(a > 0): a -> V.x<i> }
node U<i> { in x; if x > 1: x*2 -> W.x<i>; if !(x > 1): x -> O<i> }
node V<i> { in x; -x -> O<i> }
node W<i> { in x; x+3 -> O<i> }
"""
TRUTHS = """program truths
param n >= 1
input A<i> in 0<=i<n { -> S.a }
input B<i>: bool in 0<=i<n { -> S.b }
output O<i>: bool in 0<=i<n
output Q: bool
node S<i> { in a, b: bool; if b: a > 0 -> T.x<i>; if !b: b -> T.x<i> }
node T<i> { in x: bool; -> O; -> Any.s<> }
node Any { in @(||) s[n]: bool; -> Q<> }
"""
LARGEST = """program largest
param n >= 1
input A<i> in 0<=i<n { -> S.a }
input C: int { -> G.c<> }
output O
node S<i> { in a; if a > 0: a -> G.s<> }
node G { in c: int, @(max) s[c]; s -> O<> }
"""
CARRIED = """program carried
param n >= 1
input A<i> in 0<=i<n { -> S.a<i,0>; -> S.a<i,1> }
output O<i> in 0<=i<n
node S<i,j> { in a; if a > 0: j > 0 ? a + 1 : a #2 -> G.s<i>; if !(a > 0) && j == 0: a -> O<i> }
node G<i> { in @(*) s[#]; s -> O<i> }
"""


def keys(rng: np.random.Generator, s: dict[str, int]) -> Arrays:
    k = rng.integers(0, s["b"], s["n"])
    return {"K": k, "A": reals(rng, s["n"]), "C": np.bincount(k, minlength=s["b"])}


def windows(rng: np.random.Generator, s: dict[str, int]) -> Arrays:
    k = rng.integers(0, s["n"], s["n"])
    return {"K": k, "A": reals(rng, s["n"]), "C": sum(np.bincount(k + d, minlength=s["n"] + 2) for d in range(3))}


def positive(rng: np.random.Generator, s: dict[str, int]) -> Arrays:
    a = np.abs(reals(rng, s["n"])) * rng.integers(-1, 2, s["n"])
    a[0] = 1
    return {"A": a, "C": int((a > 0).sum())}


PROGRAMS: dict[str, Decided] = {
    "newton": Decided(newton(4), one, bodies),
    "spmv": Decided((EXAMPLES / "spmv.upl").read_text(encoding="utf-8"), spmv_sizes, sparse),
    "halves": Decided(HALVES, one, lambda rng, s: {"A": reals(rng, s["n"])}),
    "branch": Decided(BRANCH, one, lambda rng, s: {"A": reals(rng, s["n"])}),
    "histogram": Decided(HISTOGRAM, lambda n: {"n": n, "b": 3}, keys),
    "routing": Decided(ROUTING, one, lambda rng, s: {"A": reals(rng, s["n"]), "K": rng.permutation(s["n"])}),
    "scattered": Decided(
        SCATTERED, one, lambda rng, s: {"A": reals(rng, s["n"]), "K": rng.integers(0, s["n"] + 1, s["n"])}
    ),
    "window": Decided(WINDOW, one, windows),
    "inputs": Decided(INPUTS, one, lambda rng, s: {"A": reals(rng, s["n"])}),
    "deep": Decided(DEEP, one, lambda rng, s: {"A": reals(rng, s["n"])}),
    "truths": Decided(TRUTHS, one, lambda rng, s: {"A": reals(rng, s["n"]), "B": rng.random(s["n"]) < 0.5}),
    "largest": Decided(LARGEST, one, positive),
    "carried": Decided(CARRIED, one, lambda rng, s: {"A": reals(rng, s["n"])}),
}
