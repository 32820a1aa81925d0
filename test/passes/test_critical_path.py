"""The critical path: closed forms, and for all sizes the same as a walk through the program at some."""

from __future__ import annotations

from pathlib import Path

import pytest

import upl_mlir as upl
from upl_mlir.passes.analysis import critical_path as module
from upl_mlir.poly.expr import IndexExpr

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
INPUTS = Path(__file__).resolve().parents[1] / "Inputs"

STENCIL = (INPUTS / "stencil.upl").read_text(encoding="utf-8")

WAVEFRONT = """program wavefront
param n >= 2
param m >= 2
input L<i> in 0<=i<n { -> A.l<i,0> }
input T<j> in 0<=j<m { -> A.t<0,j> }
output Y<i>
node A<i,j> in 0<=i<n, 0<=j<m {
  in l, t
  v = l+t
  if j<m-1: v -> A.l<i,j+1>
  if i<n-1: v -> A.t<i+1,j>
  if j==m-1: v -> Y<i>
}
"""

SOLVE = """program solve
param n >= 1
input B<i> in 0<=i<n { -> X.b }
input L<i,j> in 0<=j<i, i<n { -> P.l }
output Y<i>
node X<i> in 0<=i<n { in b, @(+) s[i]; x = b - s; x -> Y; x -> P.x<k,i> for k in i+1..n-1 }
node P<i,j> { in l, x; l*x -> X.s<i> }
"""

LARGE = """program large
const n = 100000
input X { -> S.x<0> }
output Y
node S<k> in 0<=k<n { in x; if k<n-1: x*x -> S.x<k+1>; if k==n-1: x -> Y }
"""

SQUARE = """program square
param n >= 1
input X<i> in 0<=i<n { -> R.x<i,0> }
output Y<i>
node R<i,j> in 0<=i<n, 0<=j<=i { in x; if j<i: x+1 -> R.x<i,j+1>; if j==i: x -> Y<i> }
"""


def path(text: str | Path, **overrides):
    return upl.load(text, **overrides).expanded().check().critical_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [(STENCIL, "2*T+1"), (WAVEFRONT, "m+n-1"), (SOLVE, "2*n-1"), (LARGE, "100000"), (SQUARE, "n")],
    ids=["stencil", "wavefront", "triangular solve", "a large constant", "triangle"],
)
def test_closed_forms(text, expected):
    assert str(path(text)) == expected


@pytest.mark.parametrize(
    ("source", "sizes"),
    [
        (STENCIL, [{"T": 1, "n": 3}, {"T": 4, "n": 7}]),
        (WAVEFRONT, [{"n": 2, "m": 5}, {"n": 6, "m": 3}]),
        (SOLVE, [{"n": 1}, {"n": 7}]),
        ("perceptron", [{"D": 1}, {"D": 3}]),
        ("training", [{"D": 1}, {"D": 3}]),
        ("iris", [{"D": 2}]),
    ],
)
def test_for_all_sizes_is_as_at_some(source, sizes):
    """A program without open sizes is walked through: an independent way to the same number."""
    text = source if "{" in source else EXAMPLES / f"{source}.upl"
    symbolic = path(text)
    assert symbolic is not None
    for s in sizes:
        value = symbolic.evaluate(s, lambda a, i: 0) if isinstance(symbolic, IndexExpr) else symbolic
        assert path(text, **s) == value


@pytest.mark.parametrize("off", [-1, 1])
def test_a_wrong_guess_is_not_believed(off, monkeypatch):
    right = module.affine_through

    def wrong(points, names):
        f = right(points, names)
        return f + off if f is not None and f.names else f

    monkeypatch.setattr(module, "affine_through", wrong)
    assert path(STENCIL) is None


def test_unknown_where_data_decide():
    text = "program p\ninput X<i> in 0<=i<3 { if X>0: X -> Y<i>; if !(X>0): X*X -> N.x<i> }\noutput Y<i> in 0<=i<3\n"
    text += "node N<i> in 0<=i<3 { in x; x -> Y<i> }\n"
    assert path(text) is None


def test_unknown_where_it_is_one_expression_for_some_sizes_only():
    """Rows 0 to 3 as far as there are so many: 7 firings from n = 4 on, 2 for n = 1."""
    text = """program rows
param n >= 1
const N[0:3] = [2, 3, 1, 4]
input X { -> A.x<0,0> }
output R<k,i>
node A<k,i> in 0<=k<n, k<=3, 0<=i<N[k] {
  in x
  x -> R
  if i<N[k]-1: x -> A.x<k,i+1>
  if i==0 && k<n-1 && k<3: x -> A.x<k+1,0>
}
"""
    assert [path(text, n=n) for n in (1, 2, 4, 9)] == [2, 4, 7, 7]
    assert path(text) is None


def test_widths_of_layers_do_not_matter():
    assert path(EXAMPLES / "perceptron.upl", K=3, N=[64, 32, 10]) == 9
    assert path(EXAMPLES / "perceptron.upl", K=12, N=[5, 1, 7, 3, 2, 2, 9, 4, 4, 1, 6, 2]) == 45


@pytest.mark.parametrize(
    ("name", "closed", "sizes"),
    [
        ("mlp", "3*K+2", [{"D": 2, "K": 2, "N": [1, 3]}, {"D": 1, "K": 4, "N": [2, 1, 3, 2]}]),
        ("matrix_chain", "3*K-2", [{"K": 1, "N": [2, 3]}, {"K": 3, "N": [1, 2, 2, 1]}]),
        ("scan", "K+1", [{"K": 1, "P": [1, 2]}, {"K": 2, "P": [1, 2, 4]}]),
    ],
)
def test_the_entries_of_open_arrays_do_not_matter(name, closed, sizes):
    """The levels are guessed at made-up entries and verified for all; a walk at given ones counts the same."""
    text = (EXAMPLES / f"{name}.upl").read_text(encoding="utf-8")
    symbolic = path(text)
    assert str(symbolic) == closed
    for s in sizes:
        assert path(text, **s) == symbolic.evaluate({"K": s["K"]}, lambda array, i: 0)


def test_the_adjoint_of_a_stencil():
    """At the narrowest grid an instance is served in a way of its own, for every number of steps."""
    p = upl.load((EXAMPLES / "jacobi1d.upl").read_text(encoding="utf-8"))
    found = upl.vjp(p, of="B", wrt="A").check().critical_path
    assert str(found) == "2*T+1"
    for sizes in ({"T": 1, "n": 3}, {"T": 3, "n": 3}, {"T": 2, "n": 5}):
        assert upl.vjp(upl.load(str(p), **sizes), of="B", wrt="A").check().critical_path == 2 * sizes["T"] + 1


def test_an_open_array_alone():
    """No parameter, but an array without values: no size is fixed yet, so there is nothing to walk through."""
    text = """program p
param N[0:2] >= 1
input  X<k,i> in 0<=k<=2, 0<=i<N[k] { -> A.x }
node   A<k,i> { in x; x + 1 -> Y }
output Y<k,i>
"""
    assert path(text) is None
    assert path(text, N=[1, 2, 3]) == 1


HULL = """program hull
param n >= 1
input Y<j,l> in 0<=j<=n-1, 0<=l<=n-1 {
  if n*j>2: -> B.x<j-1,l>
  if !(n*j>2): -> C.x<l+1,j>
}
input Z { -> E.x<0> }
output R<l>
output S<l>
node B<h,l> { in x; x #n -> D.x<l+1> }
node C<q,j> { in x; x #n -> D.x<q> }
node D<e> { in @(+) x[#]; x -> R<e-1> }
node E<l> in 0<=l<=2 { in x; if l+1<=2: x -> E.x<l+1>; x -> S<l> }
"""


def test_a_program_whose_sets_are_known_by_hulls_is_checked() -> None:
    """Levels of the cycle are guessed from walks at small sizes, which need the points of all sets."""
    assert upl.load(HULL).check().critical_path is None
