"""Jacobians in mixed mode: equal to those by reverse mode and by complex steps, chosen where they need fewer instances."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

Arrays = dict[str, Any]

# Layers of different widths, in which a value is one token.
NET = """program net
const K = 5
const N[0:K-1] = [6, 5, 2, 5, 6]
input X<i> in 1<=i<=N[0] { -> Res.r<1,i> }
input W<k,i,j> in 1<=k<K, 1<=i<=N[k-1], 1<=j<=N[k] { -> Link.w<k,i,j> }
output Y<i>
node Res<k,i> in 1<=k<=K, 1<=i<=N[k-1] { in r; if k<K: #N[k] -> Link.r<k,i,*>; if k==K: -> Y<i> }
node Link<k,i,j> { in r, w; r*w #N[k-1] -> Sum.s<k,j> }
node Sum<k,j> { in @(+) s[#]; tanh(s) -> Res.r<k+1,j> }
"""

# The same with a gather as the only place that is as narrow as a layer, and with its count at the gather.
GATHERS = """program gathers
const K = 5
const N[0:K-1] = [6, 5, 2, 5, 6]
input X<i> in 1<=i<=N[0] { #N[1] -> Link.r<1,i,*> }
input W<k,i,j> in 1<=k<K, 1<=i<=N[k-1], 1<=j<=N[k] { -> Link.w<k,i,j> }
output Y<i>
node Link<k,i,j> in 1<=k<K, 1<=i<=N[k-1], 1<=j<=N[k] { in r, w; r*w -> Sum.s<k,j> }
node Sum<k,j> in 1<=k<K, 1<=j<=N[k] {
  in @(+) s[N[k-1]]
  y = tanh(s)
  if k<K-1: y #N[k+1] -> Link.r<k+1,j,*>
  if k==K-1: y -> Y<j>
}
"""

# One hidden layer of symbolic width: no layers to choose from, but a port that all passes.
HIDDEN = """program hidden
param n >= 1
param h >= 1
param m >= 1
input X<i> in 0<=i<n { #h -> A.x<i,*> }
input U<i,j> in 0<=i<n, 0<=j<h { -> A.w<i,j> }
input V<j,k> in 0<=j<h, 0<=k<m { -> B.w<j,k> }
output Y<k>
node A<i,j> { in x, w; x*w #n -> H.s<j> }
node H<j> { in @(+) s[#]; y = tanh(s); y #m -> B.x<j,*> }
node B<j,k> { in x, w; x*w #h -> O.s<k> }
node O<k> { in @(+) s[#]; s + sin(s) -> Y }
"""

# A grid is made coarse by sums of four, smoothed by steps of a stencil, and made fine again.
COARSE = """program coarse
const T = 4
input X<i> in 0<=i<12 { sin(X) -> Pool.s<i floordiv 4> }
output Y<i>
node Pool<j> in 0<=j<3 { in @(+) s[4]; -> U.u<0,j> }
node U<t,j> in 0<=t<=T, 0<=j<3 {
  in u
  if t<T: u -> Step.here<t+1,j>
  if t<T: u -> Step.left<t+1,(j+1) mod 3>
  if t<T: u -> Step.right<t+1,(j+2) mod 3>
  if t==T: u -> Fine.u<a,j> for a in 0..3
}
node Step<t,j> in 1<=t<=T, 0<=j<3 { in here, left, right; u = here + 0.1*(left - 2*here + right)*here; u -> U.u<t,j> }
node Fine<a,j> in 0<=a<4, 0<=j<3 { in u; exp(u)*(a+1) -> Y<4*j+a> }
"""

# Two inputs and two outputs, all through a state of two values.
STATE = """program state
const T = 5
input A<i> in 0<=i<4 { #2 -> In.a<i,*> }
input B<i,j> in 0<=i<4, 0<=j<2 { -> In.b }
output P<k>
output Q<k,l>
node In<i,j> in 0<=i<4, 0<=j<2 { in a, b; a*b*b #4 -> First.s<j> }
node First<j> in 0<=j<2 { in @(+) s[#]; -> S.x<0,j> }
node S<t,j> in 0<=t<=T, 0<=j<2 {
  in x
  if t<T: x -> Next.x<t+1,j>
  if t<T: x -> Next.y<t+1,1-j>
  if t==T: x -> P1.x<j,k> for k in 0..6
  if t==T: x -> Q1.x<j,k,l> for k in 0..2, l in 0..2
}
node Next<t,j> in 1<=t<=T, 0<=j<2 { in x, y; x + 0.1*sin(x*y) -> S.x<t,j> }
node P1<j,k> in 0<=j<2, 0<=k<7 { in x; x**2*(k+1) #2 -> P2.s<k> }
node P2<k> { in @(+) s[#]; sin(s) -> P }
node Q1<j,k,l> in 0<=j<2, 0<=k<3, 0<=l<3 { in x; cos(x*(k+2*l+1)) #2 -> Q2.s<k,l> }
node Q2<k,l> { in @(+) s[#]; -> Q }
"""


def net(v: Arrays, widths: tuple[int, ...] = (6, 5, 2, 5, 6)) -> Arrays:
    x = v["X"]
    for k, (a, b) in enumerate(pairwise(widths)):
        x = np.tanh(x @ v["W"][k, :a, :b])
    return {"Y": x}


def hidden(v: Arrays) -> Arrays:
    s = np.tanh(v["X"] @ v["U"]) @ v["V"]
    return {"Y": s + np.sin(s)}


def coarse(v: Arrays) -> Arrays:
    u = np.sin(v["X"]).reshape(3, 4).sum(1)
    for _ in range(4):
        u = u + 0.1 * (np.roll(u, 1) - 2 * u + np.roll(u, -1)) * u
    return {"Y": np.outer(np.exp(u), np.arange(1, 5)).ravel()}


def state(v: Arrays) -> Arrays:
    x = v["A"] @ v["B"] ** 2
    for _ in range(5):
        x = x + 0.1 * np.sin(x * x[::-1])
    k, l = np.mgrid[:3, :3]
    return {"P": np.sin(np.outer(np.arange(1, 8), x**2).sum(1)), "Q": np.cos(x * (k + 2 * l + 1)[..., None]).sum(-1)}


Case = tuple[str, dict[str, Any], Callable[[Arrays], Arrays], tuple[str, ...], tuple[str, ...], str]
CASES: dict[str, Case] = {
    "layers": (NET, {}, net, ("Y",), ("X",), "`Res.r` at k=3 (2 values)"),
    "layers by gathers": (GATHERS, {}, net, ("Y",), ("X",), "`Sum.s` at k=2 (2 values)"),
    "hidden layer": (HIDDEN, {"n": 7, "h": 2, "m": 6}, hidden, ("Y",), ("X",), "`H.s` (2 values)"),
    "by weights": (HIDDEN, {"n": 4, "h": 2, "m": 6}, hidden, ("Y",), ("U", "X"), "`H.s` (2 values)"),
    "stencil": (COARSE, {}, coarse, ("Y",), ("X",), "(3 values)"),
    "state": (STATE, {}, state, ("P", "Q"), ("A", "B"), "(2 values)"),
}  # fmt: skip


def data(p: upl.Program, rng: np.random.Generator, **sizes: int) -> Arrays:
    return {n: rng.normal(0, 0.6, v.shape(**sizes)) for n, v in p.inputs.items()}


def complex_step(f: Callable[[Arrays], Arrays], inputs: Arrays, of: str, by: str) -> Any:
    """The Jacobian of an analytic function: `of`'s fields, then those of `by`."""
    x = inputs[by]
    columns: list[Any] = []
    for at in np.ndindex(*x.shape):
        moved = x.astype(complex)
        moved[at] += 1e-30j
        columns.append(np.imag(f({**inputs, by: moved})[of]) / 1e-30)
    return np.moveaxis(np.array(columns).reshape((*x.shape, *columns[0].shape)), range(x.ndim), range(-x.ndim, 0))


@pytest.mark.parametrize("name", CASES)
def test_equal_to_complex_steps_on_every_engine(tools, rng, name) -> None:
    """And proved, as far as the primal is; the printed program reads back; the program's own outputs stay as they were."""
    text, sizes, f, ofs, wrts, where = CASES[name]
    p = upl.load(text, **sizes)
    q = upl.jacobian(p, of=ofs, wrt=wrts, mode="mixed")
    assert q.notes[-1].startswith("mixed mode, cut at ") and where in q.notes[-1]
    assert {n: q.outputs[n].fields for n in p.outputs} == {n: v.fields for n, v in p.outputs.items()}
    inputs = data(p, rng)
    pure = upl.jacobian(p, of=ofs, wrt=wrts, mode="reverse")
    names = {f"J_{of}_{by}": complex_step(f, inputs, of, by) for of in ofs for by in wrts}
    found = [tools.consistent(q, inputs), *(upl.compile(q, engine=e)(**inputs) for e in ("token", "native"))]
    found.append(upl.compile(pure)(**inputs))
    for of in ofs:
        np.testing.assert_allclose(found[0][of], f(inputs)[of], rtol=1e-12, atol=1e-14)
    for j, expected in names.items():
        assert q.outputs[j].fields == pure.outputs[j].fields
        for out in found:
            np.testing.assert_allclose(out[j], expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_what_was_counted_is_what_fires(rng, name) -> None:
    """The instances that the note tells of each mode fire in a run of that mode's program; mixed mode has fewest."""
    text, sizes, _, ofs, wrts, _ = CASES[name]
    p = upl.load(text, **sizes)
    said: dict[str, int] = {}
    for mode in ("reverse", "forward", "mixed"):
        q = upl.jacobian(p, of=ofs, wrt=wrts, mode=mode)
        run = upl.compile(q)
        run(**data(p, rng))
        own = upl.compile(p)
        own(**data(p, rng))
        fired = run.stats["firings"]
        said[mode] = sum(v for n, v in fired.items() if n not in own.stats["firings"] and not n.startswith(("Seed_", "Cut")))
        assert q.notes[-1].partition(": ")[2].startswith(f"{said[mode]} instances of derivative nodes")
    assert said["mixed"] < min(said["reverse"], said["forward"])
