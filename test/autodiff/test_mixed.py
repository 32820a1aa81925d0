"""Jacobians in mixed mode: equal to those by reverse mode and by complex steps, chosen where they need fewer instances."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.jacobian.relay import RelayPass

Arrays = dict[str, Any]
INPUTS = Path(__file__).resolve().parents[1] / "Inputs"

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
HIDDEN = (INPUTS / "hidden.upl").read_text(encoding="utf-8")

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
    "hidden layer": (HIDDEN, {"n": 9, "h": 2, "m": 8}, hidden, ("Y",), ("X",), "`H.s` (2 values)"),
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


OWN = ("Seed_", "Cut", "Gather")
"""How nodes begin that are new, and no derivatives: seeds, relays."""


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
        said[mode] = sum(v for n, v in fired.items() if n not in own.stats["firings"] and not n.startswith(OWN))
        assert q.notes[-1].partition(": ")[2].startswith(f"{said[mode]} instances of derivative nodes")
    assert said["mixed"] < min(said["reverse"], said["forward"])


def mode_of(p: upl.Program, of: str = "Y", wrt: str = "X", mode: Any = "mixed", **options: Any) -> str:
    """The first words of what is said of the choice."""
    return upl.jacobian(p, of=of, wrt=wrt, mode=mode, **options).notes[-1].split(":")[0].split(",")[0]


def test_mixed_only_where_it_needs_fewer() -> None:
    """Monotone widths have their narrowest place at an end; a wide middle does not help; "auto" decides the same."""
    widths = {(6, 4, 3): "reverse mode", (3, 4, 6): "forward mode", (4, 9, 4): "reverse mode", (6, 2, 6): "mixed mode"}
    for n, expected in widths.items():
        p = upl.load(NET, K=len(n), N=list(n))
        assert mode_of(p) == mode_of(p, mode="auto") == expected
    assert mode_of(upl.load(NET), mode="reverse") == "reverse mode"


@pytest.mark.parametrize(
    ("widths", "join"), [((8, 2, 8), "reverse from there"), ((8, 2, 10), "product of both sides")]
)
def test_the_join_with_fewest_instances(widths, join) -> None:
    """At the layer itself, where the sums before it would need another relay, for their gathers."""
    p = upl.load(NET, K=len(widths), N=list(widths))
    note = upl.jacobian(p, of="Y", wrt="X", mode="mixed").notes[-1]
    assert note.startswith(f"mixed mode, cut at `Res.r` at k=2 (2 values), {join}: ")


def test_sizes_that_are_open() -> None:
    """Widths are compared as polynomials where these decide."""
    text = HIDDEN.replace("param h >= 1", "const h = 2").replace("n >= 1", "n >= 9").replace("m >= 1", "m >= 9")
    p = upl.load(text)
    note = upl.jacobian(p, of="Y", wrt="X").notes[-1]
    assert note == (
        "mixed mode, cut at `H.s` (2 values), reverse from there: 3*m*n+10*m+8 instances of derivative nodes, "
        "3*m*m+3*m*n+2*m in reverse mode, 3*m*n+2*n*n+2*n in forward mode (compared at n=18, m=18)"
    )


SKIP = NET.replace("{ -> Res.r<1,i> }", "{ -> Res.r<1,i>; #N[K-1] -> Past.x<*,i> }").replace(
    "if k==K: -> Y<i> }", "if k==K: #N[0] -> Past.r<i,*> }\n"
    "node Past<i,j> in 1<=i<=N[K-1], 1<=j<=N[0] { in x, r; x*r #N[0] -> Out.s<i> }\nnode Out<i> { in @(+) s[#]; -> Y }",
)


def test_what_goes_around_the_narrow_place_is_seen(tools, rng) -> None:
    """A second way from X to Y leaves no place that all pass but `Out.s`, which is as wide as Y."""
    p = upl.load(SKIP)
    q = upl.jacobian(p, of="Y", wrt="X", mode="mixed")
    assert not q.notes[-1].startswith("mixed")
    inputs = data(p, rng)
    f = lambda v: {"Y": net(v)["Y"] * v["X"].sum()}  # noqa: E731
    np.testing.assert_allclose(upl.compile(q)(**inputs)["J_Y_X"], complex_step(f, inputs, "Y", "X"), rtol=1e-12)


def test_by_node_inputs_before_and_behind_the_cut(rng) -> None:
    """By inputs before the cut in mixed mode, total or not; with one behind it, which no derivative may pass, in no cut."""
    p = upl.load(NET)
    inputs = data(p, rng)
    for wrt, total in (("Sum.s", False), ("Sum.s", True), ("Link.w", True)):
        found = [upl.compile(upl.jacobian(p, of="Y", wrt=wrt, mode=m, total=total))(**inputs) for m in ("mixed", "reverse")]
        name = f"J_Y_{wrt.replace('.', '_')}"
        np.testing.assert_allclose(found[0][name], found[1][name], rtol=1e-12, atol=1e-15)


def test_the_result_is_a_program_like_any_other(rng) -> None:
    """It is differentiated once more: the Jacobian's derivative by X and by the weights, against differences."""
    for text in (HIDDEN, NET):
        p = upl.load(text, **({"n": 4, "h": 1, "m": 3} if text is HIDDEN else {"K": 3, "N": [3, 1, 3]}))
        q = upl.load(str(upl.jacobian(p, of="Y", wrt="X", mode="mixed")))
        upl.check_grads(q, of="J_Y_X", wrt=list(p.inputs), inputs=data(p, rng), rtol=1e-5)


def test_data_that_decide_are_left_to_the_pure_modes(rng) -> None:
    """Where data decide what reaches the narrow place, it is no cut."""
    p = upl.load("""program sparse
const w = 2
input X<i> in 0<=i<5 { -> G.x }
input C<i>: int in 0<=i<5 { -> G.c }
output Y<k>
node G<i> in 0<=i<5 { in x, c: int; if c==0: x*x -> V.s<0>; if c!=0: sin(x) -> V.s<1> }
node V<j> in 0<=j<w { in @(+) s[j+2]; s -> O.v<j,k> for k in 0..5 }
node O<j,k> in 0<=j<w, 0<=k<6 { in v; v*(k+1) -> S.s<k> }
node S<k> in 0<=k<6 { in @(+) s[w]; exp(s/50) -> Y }
""")
    q = upl.jacobian(p, of="Y", wrt="X", mode="mixed")
    assert not q.notes[-1].startswith("mixed")
    x = rng.normal(size=5)
    found = upl.compile(q)(X=x, C=np.array([0, 0, 1, 1, 1]))["J_Y_X"]
    slope = np.array([*(2 * x[:2]), *np.cos(x[2:])])
    value = np.exp((sum(x[:2] ** 2) + sum(np.sin(x[2:]))) * np.arange(1, 7) / 50)
    np.testing.assert_allclose(found, np.outer(value * np.arange(1, 7) / 50, slope), rtol=1e-12)


def relayed(text: str, options: dict[str, Any]) -> upl.Program:
    p = upl.load(text)
    return p.derived(("relay", repr(options)), lambda: [RelayPass(**options)])


@pytest.mark.parametrize(
    "options", [{"port": "Res.r", "field": "k", "value": 3}, {"port": "Sum.s", "field": "k", "value": 2}, {"port": "Sum.s"}]
)
@pytest.mark.parametrize("text", [NET, GATHERS])
def test_a_relay_changes_no_value(tools, rng, text, options) -> None:
    """And all tokens are proved to meet."""
    if text is GATHERS and options["port"] == "Res.r":
        options = {"port": "Sum.s", "field": "k", "value": 4}
    p = relayed(text, options)
    inputs = data(p, rng)
    found = tools.consistent(p, inputs)
    np.testing.assert_array_equal(found["Y"], upl.compile(upl.load(text), gather="ordered")(**inputs)["Y"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": "Y"}, "`Y` is a host port"),
        ({"port": "Res.r", "field": "k"}, "`field` and `value` go together"),
        ({"port": "Res.r", "field": "q", "value": 1}, "`Res` has no field `q`"),
        ({"port": "Res.r", "field": "k", "value": 9}, "`Res.r` at k=9 has no instance"),
        ({"port": "Link.r"}, "`Res -> Link.r` sends one token to many instances"),
    ],
)
def test_relays_that_are_refused(options, message) -> None:
    with pytest.raises(upl.UplError, match="UPL1440") as caught:
        relayed(NET, options)
    assert message in str(caught.value)
