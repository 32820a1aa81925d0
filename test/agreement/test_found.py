"""What the random programs found in the compiler: each as the smallest program that shows it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from xdsl.parser import Parser

import upl_mlir as upl
from upl_mlir.passes.analysis.obligations import Kind, Status
from upl_mlir.pipeline import new_context


def obligations(text: str, kind: Kind, where: str | None = None) -> set[Status]:
    """The outcomes of one kind of obligation."""
    report = upl.load(text).check()
    return {o.status for o in report.obligations if o.kind is kind and where in (None, o.where)}


def all_proved(text: str) -> None:
    """Every obligation is proved."""
    report = upl.load(text).check()
    assert [o.message for o in report.obligations if o.status is not Status.PROVED] == []


TWO_STRIPS = """program strips
param n >= 1
input A<i> in 0<=i<2 {{ #{count} -> M.a<i,*> }}
input B<i,j> in 0<=i<2, 0<=j<n || 2*n<=j<3*n {{ -> M.b }}
output Y<i,j>
node M<i,j> {{ in a, b; a*b -> Y }}
"""


def test_pieces_of_what_a_token_covers_are_added_up():
    """Each piece has n instances: `#n` was proved, and `#2*n` refuted."""
    all_proved(TWO_STRIPS.format(count="2*n"))
    assert obligations(TWO_STRIPS.format(count="n"), Kind.MULTIPLICITY, "A -> M.a") == {Status.REFUTED}


STRIDE = """program stride
param n >= 3
input Z<c> in 0<=c<2 { Z #n -> C.y<c,*> }
input A<c,d> in 0<=c<2, 0<=d<n { if d==n-1: -> C.x<c,2*d+1>; if d!=n-1: A -> C.x<c,2*d+1> }
output R<c,d>
node C<c,o> { in x, y; x*y -> R<c,o floordiv 2> }
"""


def test_a_strided_fibre_in_two_pieces():
    """Its last point is a piece of its own; the count of that piece alone was compared with n."""
    all_proved(STRIDE)


@pytest.mark.parametrize(
    ("domain", "count"),
    [
        ("0<=f-k<=n-1, 0<=k<=1", "2*n"),  # a parallelogram
        ("f mod 3==1, 0<=f<=3*n, 0<=k<2", "2*n"),  # a stride
        ("0<=k<3, 0<=3*f+k<=n-1", "n"),  # quotient and remainder: the last row is not full
        ("0<=k<2, -1<=2*f+k<=0", "2"),  # numbers
        ("0<=k<n, f==2*k+5", "n"),  # one field follows from the other
    ],
)
def test_fibres_that_are_no_boxes_are_counted(domain, count):
    text = "program fibre\nparam n >= 2\ninput X {{ #{count} -> M.x<*,*>; #{count} -> M.z }}\n"
    text += "input Y<f,k> in {domain} {{ -> M.y; -> S.s<> }}\noutput R<f,k>\noutput T\n"
    text += "node M<f,k> {{ in x, y, z; x*y*z -> R }}\nnode S {{ in @(+) s[{count}]; -> T }}\n"
    all_proved(text.format(domain=domain, count=count))
    for wrong in (f"{count}+1", f"{count}-1"):
        report = upl.load(text.format(domain=domain, count=wrong)).check()
        kinds = {o.kind for o in report.obligations if o.status is Status.REFUTED}
        assert kinds == {Kind.MULTIPLICITY, Kind.GATHER}


def test_a_gather_of_a_product_of_sizes():
    """`n*m <= 0` is not affine, but the signs of its factors are."""
    text = "program matrix\nparam n >= 1\nparam m >= 0\ninput X<i,j> in 0<=i<n, 0<=j<m { -> S.s<>; -> Q.s<i> }\n"
    text += "output R\noutput Q1<i>\nnode S { in @(+) s[n*m]; -> R }\n"
    text += "node Q<i> in 0<=i<n { in @(+) s[m*(n-i)-m*(n-i)+m]; -> Q1 }\n"
    all_proved(text)
    out = upl.compile(upl.load(text))(X=np.ones((2, 3)), n=2, m=3)
    assert out["R"] == 6 and out["Q1"].tolist() == [3, 3]


def test_a_witness_obeys_the_conditions_of_all_parameters():
    """The token goes astray for every n; the witness said n=0."""
    text = "program astray\nparam n >= 4\ninput W { -> C.x<0> }\ninput X<m> in 1<=m<=n { -> C.x; -> C.y }\n"
    text += "node C<m> in 1<=m<=n { in x, y; z = x*y }\n"
    found = [o for o in upl.load(text).check().obligations if o.status is Status.REFUTED]
    assert found and all((o.witness or {}).get("n", 4) >= 4 for o in found)


SOMETIMES = """program sometimes
param n >= 1
input X<i> in 0<=i<n { if i==n-2: -> R }
output R
"""


def test_an_output_without_fields_is_always_asked_for():
    """For n=1 no token comes: that was proved, and the run gave 0."""
    assert obligations(SOMETIMES, Kind.COVERAGE, "R") == {Status.REFUTED}
    p = upl.load(SOMETIMES)
    assert upl.compile(p)(X=np.array([2.0, 3.0]))["R"] == 2.0
    with pytest.raises(upl.UplError, match="UPL1603"):
        upl.compile(p)(X=np.array([2.0]))


def test_polynomials_that_differ_are_refuted():
    """A product of sizes against twice that: no affine question, so a small witness is looked for."""
    text = "program square\nparam n >= 1\ninput X { #2*n*n -> B.y<*,*> }\ninput Y<i,j> in 0<=i<n, 0<=j<n { -> B.x }\n"
    text += "output R<i,j>\nnode B<i,j> { in x, y; x*y -> R }\n"
    (o,) = [o for o in upl.load(text).check().obligations if o.status is Status.REFUTED]
    assert o.kind is Kind.MULTIPLICITY and o.witness == {"n": 1}
    all_proved(text.replace("#2*n*n", "#n*n"))


MIXED = """program mixed
input X: f32 { -> A.x; X #2 -> P.s<> }
input Y { -> A.y; Y #2 -> P.s<> }
output R
output S: f32
node A { in x: f32, y: f32; x*y -> R }
node P { in @(*) s[#]: f32; -> S }
"""


@pytest.mark.parametrize("wrt", ["X", "Y"])
def test_tangents_through_f32(wrt):
    """The tangent of a real, or of an f32, into an input of the other type: the twin arrow converts as the arrow does."""
    p = upl.load(MIXED)
    for of in ("R", "S"):
        out = upl.compile(upl.jvp(p, of=of, wrt=[wrt]))(X=3.0, Y=5.0, **{f"t_{wrt}": 2.0})
        assert out[f"t_{of}"] == (10.0 if wrt == "X" else 6.0)
    g = upl.jvp(p, of="A.x", wrt=["X"])
    assert upl.compile(g)(X=3.0, Y=5.0, t_X=2.0)["t_A_x"] == 2.0
    g = upl.jvp(p, of="R", wrt=["A.x"])
    assert upl.compile(g)(X=3.0, Y=5.0, t_A_x=2.0)["t_R"] == 10.0


def test_a_gather_count_with_cases_reads_back_from_mlir():
    text = "program cases\nparam n >= 2\ninput X<i> in 0<=i<n { -> S.s<0>; if i>0: X -> S.s<1> }\noutput R<k>\n"
    text += "node S<k> in 0<=k<=1 { in @(+) s[(k==0 ? n : n-1)]: f32, @(+) t[(k==0 ? 0 : 0)]; s+t -> R }\n"
    p = upl.load(text)
    again = Parser(new_context(), p.to_mlir()).parse_module()
    assert p.module.is_structurally_equivalent(again)


def test_an_arrow_into_an_extremum_that_never_sends():
    text = "program never\ninput X<i> in 0<=i<3 { #3 -> M.v<>; if i>5: X*X #3 -> M.v<> }\noutput L\n"
    text += "node M { in @(max) v[#]; v -> L }\n"
    out = upl.compile(upl.grad(upl.load(text), of="L", wrt="X"))(X=np.array([1.0, 4.0, 2.0]))
    assert out["L"] == 4 and out["d_X"].tolist() == [0, 1, 0]


def test_an_arrow_that_never_sends_gets_nothing_back():
    """Its reversed arrow was `if false: d_x #0 -> …`, which does not read: no multiplicity is 0."""
    text = "program never\ninput X<i> in 0<=i<3 { -> C; if i mod 2==0 && i==1: -> C }\noutput R<i>\n"
    text += "node C<i> { in @(+) x[1]; x -> R }\n"
    g = upl.vjp(upl.load(text), of="R", wrt="X")
    assert "#0" not in str(g) and upl.load(str(g)).check().ok
    assert upl.compile(g)(X=np.ones(3), d_R=np.array([1.0, 2.0, 3.0]))["d_X"].tolist() == [1, 2, 3]


def test_equal_choices_in_different_arms_stay_apart():
    """What is known in one arm (`c ? … : 0`) was used in the other as well: the derivative of x was 0."""
    text = "program arms\ninput X<i> in 0<=i<2 { -> D }\noutput R<i>\n"
    text += "node D<i> { in x; v = x<=0.5 ? sin(x) : (x<=0.5 ? x : x); v -> R }\n"
    out = upl.compile(upl.vjp(upl.load(text), of="R", wrt="X"))(X=np.array([0.0, 2.0]), d_R=np.array([3.0, 5.0]))
    assert out["d_X"].tolist() == [3, 5]


def test_a_variable_that_is_another_name_of_an_input():
    """x is kept under the name `v`; then `v = x` was written again in the adjoint node."""
    text = "program alias\ninput X { -> A }\noutput R\nnode A { in x; v = x; v*x -> R }\n"
    g = upl.grad(upl.load(text), of="R", wrt="X")
    assert upl.compile(g)(X=3.0)["d_X"] == 6.0


def test_an_entry_that_is_not_read_decides_nothing():
    """`r<1 || l>N[r-1]`: at r=0 there is no N[-1], nor a need for it; its tokens were lost from the image."""
    text = "program guarded\nconst N[0:1] = [5, 5]\n"
    text += "input X<r,l> in 0<=r<=1, 0<=l<=1 { if r<1 || l>N[r-1]: X #2 -> A.x<l,*> }\n"
    text += "input Y<l,j> in 0<=l<=1, 0<=j<2 { -> A.y }\noutput R<l,j>\nnode A<l,j> { in x, y; x*y -> R }\n"
    all_proved(text)
    out = upl.compile(upl.load(text))(X=np.array([[2.0, 3.0], [9.0, 9.0]]), Y=np.ones((2, 2)))
    assert out["R"].tolist() == [[2, 2], [3, 3]]


OUTSIDE = [
    ("input X<i,e> in 0<=i<=3, 0<=e<N[i] { -> A.x }", "UPL1207"),
    ("input X<i> in 0<=i<=3 { -> A.x<i,e> for e in 0..N[i]-1 }", "UPL1308"),
    ("input X<i,e> in 0<=i<=3, 0<=e<1 { if N[i]>0: -> A.x }", "UPL1308"),
    ("input X<i> in 0<=i<=3 { -> A.x<i,N[i]> }", "UPL1308"),
]


@pytest.mark.parametrize(("source", "code"), OUTSIDE)
def test_an_entry_that_does_not_exist_is_refuted(source, code):
    """All of this was proved, or ended with an internal error."""
    text = f"program outside\nconst N[0:2] = [1, 2, 3]\n{source}\noutput R<i,e>\nnode A<i,e> {{ in x; x*x -> R }}\n"
    with pytest.raises(upl.UplError) as e:
        p = upl.load(text)
        raise upl.UplError(*p.check().diagnostics())
    assert [d.code for d in e.value.diagnostics] == [code]
    assert "N[3], which does not exist" in e.value.diagnostics[0].message
    all_proved(text.replace("i<=3", "i<=2"))


@pytest.mark.parametrize("engine", ["interp", "token"])
def test_a_token_used_up_is_found_by_no_index(engine):
    """Two tokens that agree in k with one that is for one of them only: the other strands.  Found by a seeded bug."""
    text = "program gone\ninput A { A #1 -> M.a<0,0,*> }\ninput B<j> in 0<=j<2 { -> M.b<*,0,j> }\noutput R<i,k,j>\n"
    text += "node M<i,k,j> { in a, b; a*b -> R }\n"
    p = upl.load(text)
    for seed in range(4):
        with pytest.raises(upl.UplError, match=r"UPL160[13]"):
            upl.compile(p, engine=engine, order="random" if seed else "fifo", seed=seed)(A=2.0, B=np.array([1.0, 3.0]))


CHOSEN_IN_PART = """program part
const K = 2
input X<k,j> in 0<=k<=K-1, k<=j<=k+2 {
  -> A<k floordiv 2,k mod 2,j> for it in 0..(j<k+1 ? j : k+1)-1
}
output R<e,k,g>
node A<f,e,j> in 0<=e<2, 0<=2*f+e<=K-1, 2*f+e<=j<=2*f+e+2 {
  in @(+) x[(j<2*f+e+1 ? j : 2*f+e+1)]
  if j mod (2*f+e+1)<=0: x -> B.x<2*f+e,j>
  if !(j mod (2*f+e+1)<=0): 1.5 -> C.x<2*f+e,j+1>
}
node B<k,j> {
  in x
  if x>0.5: -> D.x<k+2*j,j>
  if !(x>0.5): -> D.x<k+2*j,j>
}
node C<k,r> { in x; -> D.x<k+2*r-2,r-1> }
node D<p,j> { in x; -> R<j mod 2,p-2*j,j floordiv 2> }
"""


def test_one_of_many_that_a_remainder_chooses():
    """The greatest of values at the k with `j mod (k+1) != 0` was taken for all k: k was dropped with its condition."""
    p = upl.load(CHOSEN_IN_PART)
    x = np.array([[1.75, -2.0, 2.0, -0.5], [3.0, -3.0, 2.0, -3.0]])
    wanted, found = (upl.compile(p, engine=engine, gather="ordered")(X=x)["R"] for engine in ("interp", "native"))
    np.testing.assert_array_equal(found, wanted)


OUTPUT_READ = """program kept
param n >= 2
const K = 3
const N[0:2] = [3, 2, 2]
input Xs<d,k,f> in 1<=d<=n, 1<=k<=K, 1<=f<=N[k-1], k==1 { Xs -> Res.x<d,k,f> }
input Ws<d,k,i,j> in 1<=d<=n, 1<=k<=K-1, 1<=i<=N[k-1], 1<=j<=N[k] { Ws -> Link.w<d,k,i,j> }
node Link<d,k,i,j> { in x, w; x*w #N[k-1] -> Sum.s<d,k,d+j> }
node Sum<d,k,e> {
  in @(+) s[#]
  a = tanh(s)
  if a <= 0.5: a -> Res.x<d,k+1,e-d>
  if !(a <= 0.5): a -> Res.x<d,k+1,e-d>
}
node Res<d,k,i> in 1<=d<=n, 1<=k<=K, 1<=i<=N[k-1] {
  in x
  if k!=K: x -> Link.x<d,k,i,j> for j in 1..N[k]
  if k==K: x -> Rs<d,i>
  x -> R1<d,k,i>
}
output R1<d,k,i>
output Rs<d,i>
"""


@pytest.mark.parametrize("gather", ["ordered", "relaxed"])
def test_an_output_that_products_read_is_written(gather):
    """Copies of an input that only products read are left out; one of them was an output."""
    p, rng = upl.load(OUTPUT_READ), np.random.default_rng(1)
    given = {"Xs": rng.normal(size=(2, 1, 3)), "Ws": rng.normal(size=(2, 2, 3, 2)), "n": 2}
    wanted, found = (upl.compile(p, engine=engine, gather=gather)(**given)["R1"] for engine in ("interp", "native"))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_whole_numbers_given_as_f16():
    """2^63 has no f16: the comparison with it warned."""
    p = upl.load("program whole\ninput X<i>: int in 0<=i<2 { -> R }\noutput R<i>: int\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert upl.compile(p)(X=np.array([1, -2], dtype=np.float16))["R"].tolist() == [1, -2]


LARGE = """program large
param n >= 1
param q
input X<i> in 0<=i<n { if CONDITION: -> A }
output R<i>
node A<i> in 0<=i<n { in @(+) x[##]; x -> R }
"""


def test_a_factor_that_64_bits_may_not_hold():
    """Native code found another remainder: 2 * 2^62 is 0 in 64 bits, and nothing said so; tokens say it."""
    p, x = upl.load(LARGE.replace("CONDITION", f"(i*{2**62}) mod 7 == 1")), np.ones(6)
    assert upl.compile(p, engine="interp")(X=x, q=1)["R"].tolist() == [i * 2**62 % 7 == 1 for i in range(6)]
    with pytest.raises(upl.UplError, match=r"UPL1608.*64 bits"):
        upl.compile(p, engine="native")(X=x, q=1)


def test_a_parameter_of_more_than_64_bits():
    """Native code ended with a traceback."""
    p = upl.load(LARGE.replace("CONDITION", "i < q"))
    for engine in ("interp", "native"):
        with pytest.raises(upl.UplError, match=r"UPL1505.*64 bits"):
            upl.compile(p, engine=engine)(X=np.ones(2), q=2**70)
