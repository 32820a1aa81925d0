"""`batch`: each value of the new field gives what the program gives for it alone; what does not depend is computed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl

INPUTS = Path(__file__).resolve().parents[1] / "Inputs"

MATVEC = """program matvec
param n >= 1
param m >= 1
input X<j> in 0<=j<n { #m -> Mul.x<*,j> }
input W<i,j> in 0<=i<m, 0<=j<n { -> Mul.w }
output Y<i>
output Z<j>
node Mul<i,j> { in x, w; x*w #n -> Sum.s<i>; if i==0: w*w -> Z<j> }
node Sum<i> { in @(+) s[#]; tanh(s) -> Y }
"""

CONVOLUTION = (INPUTS / "convolution.upl").read_text(encoding="utf-8").replace("H = 7", "H = 5").replace("F = 3", "F = 2")

# Some instances of one input come from what is batched, the others do not; a gather takes both.
MIXED = """program mixed
param n >= 2
input X<i> in 0<=i<n { if i>0: -> A.u<i>; X #2 -> G.s<i> }
input V { V -> A.u<0> }
input C<i> in 0<=i<n { C #2 -> G.s<i>; C -> A.c<i> }
output Y<i>
output Z<i>
node A<i> in 0<=i<n { in u, c; u*c -> Y }
node G<i> { in @(max) s[#]; s*s -> Z }
"""

# No token of the batched part comes at i = 0, and none into some gathers: only a `for` can bring the field there.
LATE = """program late
const n = 4
input X<i> in 1<=i<n { X -> A.s<i> for a in 1..i; X -> B.u<i> }
input V<i> in 0<=i<n { -> A.v<i> }
input C { C -> B.u<0>; #n -> B.w<*> }
output Y<i>
output Z<i>
node A<i> in 0<=i<n { in @(+) s[i], v; s*v -> Y }
node B<i> in 0<=i<n { in u, w; u*w -> Z }
"""

ROWS = (INPUTS / "rows.upl").read_text(encoding="utf-8")

NEWTON = (INPUTS / "newton.upl").read_text(encoding="utf-8").replace("1e-9", "1e-12").replace("Nmax = 20", "Nmax = 30")

HEAT = (INPUTS / "stencil.upl").read_text(encoding="utf-8")
HEAT = HEAT.replace("output Y", "input K { #T*(n-2) -> Upd.k<*,*> }\noutput Y")
HEAT = HEAT.replace("in l, c, r; (l+c*c+r)/3", "in l, c, r, k; c + k*(l - 2*c*c + r)")

PERCEPTRON = "perceptron"


def _arrays(p: upl.Program, rng: np.random.Generator, **sizes: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for n, v in p.inputs.items():
        whole = np.issubdtype(v.dtype, np.integer)
        out[n] = rng.integers(0, 3, v.shape(**sizes)) if whole else np.abs(rng.normal(size=v.shape(**sizes))) + 0.1
    return out


CASES = [
    (MATVEC, {}, ["X"], {"n": 3, "m": 2}, True),
    (MATVEC, {}, ["W"], {"n": 3, "m": 2}, True),
    (MATVEC, {}, ["X", "W"], {"n": 3, "m": 2}, True),
    (CONVOLUTION, {}, ["X"], {}, True),
    (CONVOLUTION, {}, ["W"], {}, True),
    (MIXED, {}, ["X"], {"n": 3}, True),
    (MIXED, {}, ["V"], {"n": 3}, True),
    (MIXED, {}, ["C"], {"n": 3}, True),
    (LATE, {}, ["X"], {}, True),
    (LATE, {}, ["C"], {}, True),
    (LATE, {}, ["V"], {}, True),
    (ROWS, {}, ["X"], {"R": 2, "m": 3}, False),
    (ROWS, {}, ["cnt"], {"R": 2, "m": 3}, False),
    (NEWTON, {}, ["A"], {}, False),
    (NEWTON, {}, ["X0"], {}, False),
    (HEAT, {}, ["U0"], {"T": 2, "n": 5}, True),
    (HEAT, {}, ["K"], {"T": 2, "n": 5}, True),
    (PERCEPTRON, {"K": 3, "N": (3, 4, 2)}, ["W"], {"D": 2}, True),
    (PERCEPTRON, {"K": 3, "N": (3, 4, 2)}, ["X"], {"D": 2}, True),
]


@pytest.mark.parametrize(("text", "constants", "ports", "sizes", "proved"), CASES)
def test_each_value_is_the_program_alone(tools, rng, text, constants, ports, sizes, proved) -> None:
    """Outputs that depend are stacked along the new field, the others are what they were; checked, printed, reordered."""
    p = tools.load(text, **constants)
    q = upl.batch(p, ports, "q")
    runs = [_arrays(p, rng, **sizes) for _ in range(3)]
    inputs = {n: np.stack([r[n] for r in runs]) if n in ports else runs[0][n] for n in runs[0]}
    found = tools.consistent(q, {**inputs, **sizes}, proved=proved)
    alone = [upl.compile(p, gather="ordered")(**{n: v[i] if n in ports else v for n, v in inputs.items()}, **sizes)
             for i in range(3)]  # fmt: skip
    for name, value in found.items():
        if "q" in q.outputs[name].fields:
            assert q.outputs[name].fields == ("q", *p.outputs[name].fields)
            np.testing.assert_array_equal(value, np.stack([a[name] for a in alone]))
        else:
            for a in alone:
                np.testing.assert_array_equal(value, a[name])


def test_what_does_not_depend_is_computed_once(tools) -> None:
    """A node is divided: its part that does not depend keeps its name and its number of firings."""
    q = upl.batch(tools.load(MATVEC), "X", "q")
    assert q.outputs["Z"].fields == ("j",)
    assert q.outputs["Y"].fields == ("q", "i")
    firings = q.check().firings
    assert str(firings["Mul"]) == "m*n"
    assert str(firings["BMul"]) == "B*m*n"
    tangents = upl.batch(upl.jvp(tools.load("perceptron", K=3, N=(3, 4, 2)), of="R", wrt="W"), "t_W", "q")
    assert tangents.outputs["R"].fields == ("d", "i")
    assert tangents.outputs["t_R"].fields == ("q", "d", "i")
    firings = tangents.check().firings.at(D=2, B=5)
    assert (firings["Link"], firings["BLink"]) == (40, 200)


def test_a_gather_goes_with_its_count(tools) -> None:
    """Only the count is batched: the gather that it counts cannot stay behind in the part that has no count."""
    p = upl.load("program p\ninput n: int { -> S.n<> }\ninput X<i> in 0<=i<2 { -> S.s<> }\ninput C { -> S.c<> }\noutput Y\n"
                 "output Z\nnode S { in @(+) s[n], n: int, c; s*n -> Y; c*c -> Z }\n")  # fmt: skip
    q = upl.batch(p, "n", "q")
    assert q.outputs["Z"].fields == ()
    out = tools.consistent(q, {"n": np.array([2, 2]), "X": np.array([1.0, 3.0]), "C": 3.0}, proved=False)
    np.testing.assert_array_equal(out["Y"], [8.0, 8.0])
    assert float(out["Z"]) == 9.0


def test_a_node_whose_index_the_rest_does_not_determine_stays_whole(tools) -> None:
    """X comes with a `*`: without W nobody knows i, so all of Mul gets the field."""
    q = upl.batch(tools.load(MATVEC.replace("w*w -> Z", "x*x -> Z")), "W", "q")
    assert "BMul" not in str(q)
    assert q.outputs["Z"].fields == ("q", "j")


def test_stars_and_loops(tools) -> None:
    """One token with `*` where another determines the field; a `for` into a gather, and where none else does."""
    text = str(upl.batch(tools.load(MIXED), "V", "q"))
    assert "C #B -> A.c<*,i>" in text
    assert "if i>0: X -> A.u<q,i> for q in 0..B-1" in text  # C's token alone would not tell q
    assert "C #2 -> G.s<q,i> for q in 0..B-1" in str(upl.batch(tools.load(MIXED), "X", "q"))
    text = str(upl.batch(tools.load(LATE), "X", "q"))
    assert "if i==0: V -> A.v<q,i> for q in 0..B_2-1" in text
    assert "if i>0: V #B_2 -> A.v<*,i>" in text
    assert "C -> B.u<q,0> for q in 0..B_2-1" in text
    assert "C #B_2*n -> B.w<*,*>" in text


def test_bounds(tools, rng) -> None:
    """A number, a name, both ends; several fields one after the other."""
    p = tools.load(HEAT)
    assert upl.batch(p, "K", "q", 3).inputs["K"].shape(T=1, n=3) == (3,)
    assert upl.batch(p, "K", "q", "n").inputs["K"].shape(T=1, n=5) == (5,)
    ends = upl.batch(p, "K", "q", (2, "T+3"))
    assert (ends.inputs["K"].shape(T=4, n=5), ends.inputs["K"].origin(T=4, n=5)) == ((6,), (2,))
    assert ends.check().ok
    twice = upl.batch(upl.batch(p, "K", "q"), "U0", "s")
    assert twice.params == ("B_2", "B", "T", "n")
    k, u = rng.random(2), rng.normal(size=(3, 5))
    both = tools.consistent(twice, {"K": k, "U0": u, "T": 2})["Y"]
    one = upl.compile(p, gather="ordered")
    np.testing.assert_array_equal(both, [[one(K=a, U0=b, T=2)["Y"] for a in k] for b in u])


def test_a_batched_program_differentiates(tools, rng) -> None:
    """Reverse mode of the batch is the batch of reverse mode; forward mode agrees with it."""
    p = tools.load(CONVOLUTION)
    x, w = rng.normal(size=(3, 5, 5)), rng.normal(size=(2, 2))
    d = rng.normal(size=(3, 4, 4))
    g = upl.vjp(upl.batch(p, "X", "q"), of="Y", wrt=["X", "W"])
    found = tools.consistent(g, {"X": x, "W": w, "d_Y": d}, proved=False)  # by X, not even without the batch
    alone = [upl.compile(upl.vjp(p, of="Y", wrt=["X", "W"]))(X=a, W=w, d_Y=b) for a, b in zip(x, d, strict=True)]
    np.testing.assert_allclose(found["d_X"], [a["d_X"] for a in alone], rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(found["d_W"], sum(a["d_W"] for a in alone), rtol=1e-13)  # W serves all values
    both = upl.batch(upl.vjp(p, of="Y", wrt="X"), ["X", "d_Y"], "q")
    np.testing.assert_allclose(upl.compile(both)(X=x, W=w, d_Y=d)["d_X"], found["d_X"], rtol=1e-13, atol=1e-14)
    upl.check_grads(upl.batch(p, "X", "q"), of="Y", wrt=["X", "W"], inputs={"X": x, "W": w}, order=2, rtol=1e-4)


def test_by_a_node_input(tools, rng) -> None:
    """From the node on, everything is done for each value."""
    p = tools.load(HEAT)
    q = upl.batch(p, "Upd.k", "q", 2)
    assert q.inputs["K"].fields == ()
    u = rng.normal(size=5)
    out = tools.consistent(q, {"U0": u, "K": 0.1, "T": 2})
    np.testing.assert_array_equal(out["Y"][0], out["Y"][1])
    np.testing.assert_array_equal(out["Y"][0], upl.compile(p, gather="ordered")(U0=u, K=0.1, T=2)["Y"])


@pytest.mark.parametrize(
    ("ports", "field", "bounds", "message"),
    [
        ("Ks", "q", None, "no port or node `Ks`"),
        ("Y", "q", None, "`Y` is not a host input"),
        ("Upd", "q", None, "`Upd` is not a host input or a node input"),
        ("Upd.z", "q", None, "`Upd` has no input `z`"),
        ("K", "i", None, "already has something called `i`"),
        ("K", "1q", None, "no name for an index field"),
        ("K", "q", "M", "`M` in the bound"),
        ("K", "q", "2*", "is no index expression"),
        ("K", "q", 0, "may leave no value"),
        ("K", "q", "T-1", "may leave no value"),
    ],
)
def test_what_cannot_be_batched(tools, ports, field, bounds, message) -> None:
    """Each refusal says why."""
    with pytest.raises(upl.UplError, match="UPL1420") as e:
        upl.batch(tools.load(HEAT), ports, field, bounds)
    assert message in str(e.value)
