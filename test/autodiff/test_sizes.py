"""What differentiation writes about sizes: entries of constant arrays near their ends, multiplicities that nothing counts.

Numbers are compared with central differences of the same functions in NumPy.
"""

from __future__ import annotations

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.arrows import covered
from upl_mlir.passes.autodiff.inside_arrays import inside_arrays
from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.parse import parse_formula, parse_index
from upl_mlir.poly.sets import PolyContext

NARROWING = """program narrowing
const K = 3
const N[1:3] = [3, 2, 2]
input X<c> in 1<=c<=N[1] { -> B.x<1,c> }
output R<k,c>
node B<k,c> in 1<=k<=K, 1<=c<=N[k] {
  in x
  if k<K && c<=N[k+1]: x*x -> B.x<k+1,c>
  x -> R
}
"""


def narrowing(X):
    rows = [X]
    for n in (2, 2):
        rows.append(rows[-1][:n] ** 2)
    return np.array([[*r, *[0.0] * (3 - len(r))] for r in rows])


GROWING = """program growing
const K = 3
const N[1:3] = [2, 3, 3]
input X<k,c> in 1<=k<=K, 0<=c<N[k], k==1 || c>=N[k-1] { -> B.x }
output R<k,c>
node B<k,c> in 1<=k<=K, 0<=c<N[k] {
  in x
  if k<K && c<N[k+1]: x*x -> B.x<k+1,c>
  x -> R
}
"""


def growing(X):
    out = np.zeros((3, 3))
    for k, n in enumerate((2, 3, 3)):
        for c in range(n):
            out[k, c] = X[k, c] if k == 0 or c >= (2, 3, 3)[k - 1] else out[k - 1, c] ** 2
    return out


LAYERS = """program layers
const K = 2
const N[0:2] = [2, 3, 2]
input X<i> in 1<=i<=N[0] { -> V.v<0,i> }
input W<k,i,j> in 1<=k<=K, 1<=i<=N[k-1], 1<=j<=N[k] { -> L.w }
output R<k,i>
node V<k,i> in 0<=k<=K, 1<=i<=N[k] {
  in v
  if k<K: v #N[k+1] -> L.x<k+1,i,*>
  if k==K || i==N[k+1]: v -> Q
}
node Q<k,i> { in y; y*y -> R }
node L<k,i,j> in 1<=k<=K, 1<=i<=N[k-1], 1<=j<=N[k] { in x, w; x*w -> S.s<k,j> }
node S<k,j> in 1<=k<=K, 1<=j<=N[k] { in @(+) s[N[k-1]]; s*s -> V.v<k,j> }
"""


def layers(X, W):
    out, sizes, v = np.zeros((3, 3)), (2, 3, 2), X
    for k, n in enumerate(sizes):
        for i in range(n):
            if k == 2 or i + 1 == sizes[k + 1]:
                out[k, i] = v[i] ** 2
        if k < 2:
            v = (v @ W[k, :n, : sizes[k + 1]]) ** 2
    return out


LAST_ROW = """program last_row
const K = 2
const N[0:2] = [2, 3, 2]
input X<k,i> in 0<=k<=K, 0<=i<4 { -> V.v }
output R<k,i>
node V<k,i> in 0<=k<=K, 0<=i<4 {
  in v
  v -> Z.y
  if k<K && i<N[k+1] || k==K && i==1: v*v -> Z.z
}
node Z<k,i> in 0<=k<=K, 0<=i<4 {
  in y, @(+) z[(k<K && i<N[k+1] || k==K && i==1 ? 1 : 0)]
  sin(y)+z -> R
}
"""


def last_row(X):
    squares = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 1, 0, 0]])
    return np.sin(X) + squares * X**2


@pytest.mark.parametrize(
    ("text", "function", "first", "shapes", "shown"),
    [
        # the number of derivatives that arrive, and the same condition in the body, where all its parts are computed
        (
            NARROWING,
            narrowing,
            (1, 1),
            {"X": (3,)},
            ["d_x[(k<K && c<=N[min(3,k+1)] ? 1 : 0)]", "c <= N[min(3, k + 1)] ?"],
        ),
        # the conditions of reversed arrows
        (GROWING, growing, (1, 0), {"X": (2, 3)}, ["c<N[max(1,k-1)]", "c>=N[max(1,k-1)] || k==1"]),
        # how many derivatives arrive where this one goes
        (LAYERS, layers, (0, 1), {"X": (2,), "W": (2, 3, 3)}, ["#(k<=1 ? N[min(2,k+1)]+1 : 1)"]),
        # a number that hangs on the entry in each of its cases
        (LAST_ROW, last_row, (0, 0), {"X": (3, 4)}, ["d_z[(k<=1 && i<N[min(2,k+1)] || k==K && i==1 ? 1 : 0)]"]),
    ],
    ids=["count and body", "condition", "multiplicity", "count in the last row"],
)
def test_no_entry_behind_an_arrays_end_is_read(tools, rng, text, function, first, shapes, shown):
    """All adjoint nodes have instances at which `k+1` or `k-1` is outside of the array: there the entry decides nothing."""
    g = tools.vjp(text, "R", " ".join(shapes))
    assert all(s in str(g) for s in shown)
    given = {n: rng.integers(-6, 7, shape) / 8 for n, shape in shapes.items()}
    weights = rng.integers(1, 8, function(**given).shape) / 4
    port = g.inputs["d_R"]  # an array of the outputs that there are; `first` is the index of the function's first one
    part = tuple(slice(o - f, o - f + n) for o, f, n in zip(port.origin(), first, port.shape(), strict=True))
    assert all(o.status.name == "PROVED" for o in g.check().obligations)
    for engine in ("interp", "native"):
        found = upl.compile(g, engine=engine)(**given, d_R=weights[part])
        for name in shapes:
            expected = tools.slopes(lambda x: float((function(**x) * weights).sum()), given, name)
            np.testing.assert_allclose(found[f"d_{name}"], expected, atol=1e-9, err_msg=f"{name} by {engine}")


@pytest.mark.parametrize(
    ("domain", "entry", "expected"),
    [
        ("1<=k<=3", "N[k]", "N[k]"),
        ("1<=k<=3", "N[k+1]", "N[min(3,k+1)]"),
        ("1<=k<=3", "N[k-1]", "N[max(1,k-1)]"),
        ("0<=k<=4", "2*N[k]+k", "2*N[min(3,max(1,k))]+k"),
        ("2<=k<=3", "N[k-1]", "N[k-1]"),
        ("1<=k && k<=n && n<=2", "N[k+1]", "N[k+1]"),
        ("1<=k && k<=n", "N[k+1]", "N[min(3,k+1)]"),
        ("1<=k<=3 && k mod 2==1", "N[2*k-3]", "N[max(1,2*k-3)]"),
        ("1<=k<=3", "N[j]", "N[j]"),  # not a name of the domain: nothing is known of it
    ],
)
def test_an_index_is_kept_inside_where_the_domain_leaves_the_array(domain, entry, expected):
    s = PolyContext(("n",), parse_formula("n>=1"), {}, {"N": Table(1, (2, 3, 3))}).set(("k",), parse_formula(domain))
    kept = parse_index(entry).rewrite(inside_arrays(s))
    assert kept == parse_index(expected)


UNCOUNTED = """program part
param n >= 1
input W<i,j> in 0<=i, 0<=j, 11*i+13*j<=n { -> M.w }
input Z<i,j> in 0<=i<=n, 0<=j<=n, 11*i+13*j>n { -> M.w }
output R
node M<i,j> in 0<=i<=n, 0<=j<=n { in w; w*w #(n+1)*(n+1) -> S.s<> }
node S { in @(+) s[#]; s*s -> R }
"""


@pytest.mark.parametrize("n", [1, 26])
def test_a_multicast_to_fewer_instances_that_no_expression_counts(tools, rng, n):
    """Of the (n+1)*(n+1) adjoint instances those with 11i+13j <= n live; the derivative of the sum kept its multiplicity,
    and tokens were left over.  It has none now."""
    g = tools.vjp(UNCOUNTED, "R", "W")
    assert "## -> DM.d_s<*,*>" in str(g)
    i, j = np.indices((n + 1, n + 1))
    m = rng.integers(-4, 5, (n + 1, n + 1)) / 4
    given = {"Z": np.where(11 * i + 13 * j > n, m, 0), "W": m[: n // 11 + 1, : n // 13 + 1], "n": n}
    found = tools.consistent(g, given)["d_W"]
    expected = np.where(11 * i + 13 * j <= n, 2 * (m**2).sum() * 2 * m, 0)[: n // 11 + 1, : n // 13 + 1]
    assert found.tolist() == expected.tolist()
    assert upl.compile(g, engine="native")(**given)["d_W"].tolist() == expected.tolist()
    with pytest.raises(upl.UplError, match=r"UPL1403.*how often a value of"):
        upl.vjp(g, of="d_W", wrt="W")


@pytest.mark.parametrize(("before", "after"), [("max(1,n-i)", "max(1,n-i)"), ("n", "n-i")])
def test_a_multiplicity_stays_as_it_was_written_where_it_fits(before, after):
    """The number of j with i+j < n."""
    r = PolyContext(("n",), parse_formula("n>=1")).set(("i", "j"), parse_formula("0<=i<n && 0<=j<n-i"))
    assert str(covered(r, ("j",), parse_index(before))) == after


def test_the_derivatives_that_come_back_are_counted_as_the_author_counts(tools):
    text = """program triangle
param n >= 1
input X<i> in 0<=i<n { X*X #max(1,n-i) -> M.a<i,*> }
input W<i,j> in 0<=i<n, 0<=j<n-i { -> M.w }
output R<i,j>
node M<i,j> in 0<=i<n, 0<=j<n-i { in a, w; a*w -> R }
"""
    assert "d_R*w #max(1,n-i) -> DX.d_a<i>" in str(tools.vjp(text, "R", "X"))


FANS = [
    ("t,i", "t in 0..n-1, i in 0..t", lambda n, x: [(t, i) for t in range(n) for i in range(t + 1)]),
    ("t,i", "t in 0..n-1, i in 0..t+x", lambda n, x: [(t, i) for t in range(n) for i in range(t + x + 1)]),
    (
        "t,i,j", "t in 0..n-1, i in 0..t, j in 0..i",
        lambda n, x: [(t, i, j) for t in range(n) for i in range(t + 1) for j in range(i + 1)],
    ),
    ("t,i", "t in 0..n-1, i in 0..t floordiv 2", lambda n, x: [(t, i) for t in range(n) for i in range(t // 2 + 1)]),
    ("t,i", "t in 0..x, i in 1..N[t]", lambda n, x: [(t, i) for t in range(x + 1) for i in range(1, (2, 1, 3)[t] + 1)]),
    (
        "t,i", "t in 0..n+1, i in max(0,t-n)..min(t,2)",
        lambda n, x: [(t, i) for t in range(n + 2) for i in range(max(0, t - n), min(t, 2) + 1)],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "loops", "points"), FANS, ids=[f[1] for f in FANS])
@pytest.mark.parametrize("n", [1, 4])
def test_a_value_that_a_nest_of_loops_sends(tools, rng, fields, loops, points, n):
    """As many derivatives come back as the loops have points."""
    weight = "+".join(f"{k + 2}*{f}" for k, f in enumerate(fields.split(",")))
    g = tools.vjp(f"""program fan
param n >= 1
const N[0:2] = [2, 1, 3]
input X<x> in 0<=x<=2 {{ -> Source.y }}
output L<x,{fields}>
node Source<x> in 0<=x<=2 {{ in y; sin(y) -> P.v<x,{fields}> for {loops} }}
node P<x,{fields}> {{ in v; v*v*({weight}) -> L }}
""", "L", "X")  # fmt: skip
    x, seed = rng.standard_normal(3), rng.standard_normal(g.inputs["d_L"].shape(n=n))
    low = [min(p[k] for at in range(3) for p in points(n, at)) for k in range(seed.ndim - 1)]
    expected = np.zeros(3)
    for at in range(3):
        for p in points(n, at):
            slope = np.sin(2 * x[at]) * sum((k + 2) * v for k, v in enumerate(p))
            expected[at] += slope * seed[(at, *np.subtract(p, low))]
    given = {"X": x, "d_L": seed, "n": n}
    np.testing.assert_allclose(tools.consistent(g, given)["d_X"], expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(upl.compile(g, engine="native")(**given)["d_X"], expected, rtol=1e-12, atol=1e-13)
