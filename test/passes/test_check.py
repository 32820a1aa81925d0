"""`check`: proofs of the examples, counts against runs, and that every seeded mistake is refuted and shows in a run."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.passes.analysis.obligations import Kind, Status
from upl_mlir.poly.expr import IndexExpr

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
INPUTS = Path(__file__).resolve().parents[1] / "Inputs"

STENCIL = (INPUTS / "stencil.upl").read_text(encoding="utf-8")
CONVOLUTION = (INPUTS / "convolution.upl").read_text(encoding="utf-8")
COUNTED = """program counted
param n >= 2
input X<i> in 0<=i<n { X -> Below.x<k> for k in i+1..n-1 }
output Y<k>
node Below<k> in 0<=k<n { in @(+) x[k]; -> Y }
"""
RESHAPE = """program reshape
input A<i,j> in 0<=i<6, 0<=j<4 { -> B.b<(4*i+j) floordiv 8, (4*i+j) mod 8> }
input W<r,c> in 0<=r<3, 0<=c<8 { -> B.w }
output Y<c,r>
node B<r,c> { in b, w; b*w*b -> Y<c,r> }
"""
NEWTON = (INPUTS / "newton.upl").read_text(encoding="utf-8")


@cache
def text_of(name: str) -> str:
    """The text of a program: an example or one of those above."""
    here = {"stencil": STENCIL, "convolution": CONVOLUTION, "counted": COUNTED, "reshape": RESHAPE, "newton": NEWTON}
    return here[name] if name in here else (EXAMPLES / f"{name}.upl").read_text()


PROGRAMS = ["perceptron", "training", "iris", "iris_batch", "stencil", "convolution", "counted", "reshape"]


@cache
def report_of(name: str):
    """The report on a program."""
    return upl.load(text_of(name)).check()


def refuted(report):
    """The refuted obligations."""
    return [o for o in report.obligations if o.status is Status.REFUTED]


@pytest.mark.parametrize("name", PROGRAMS)
def test_everything_is_proved(name):
    report = report_of(name)
    assert report.ok and not report.diagnostics()
    assert {o.status for o in report.obligations} == {Status.PROVED}
    assert {Kind.COVERAGE, Kind.UNIQUE, Kind.EXISTS, Kind.AFFINE} <= {o.kind for o in report.obligations}


def test_what_depends_on_data_is_listed_and_never_refuted():
    report = report_of("newton")
    assert report.ok and report.counts()[Status.UNPROVED] > 0
    open_ = [o for o in report.obligations if o.status is Status.UNPROVED]
    assert all("data" in o.message for o in open_)
    assert report.firings["It"] is None and report.tokens["It"] is None and report.tokens.total is None


def test_nothing_is_proved_of_what_stands_far_behind_a_choice_of_data():
    """`B` and `C` send always; but data decide whether `B` fires, and so whether `C` does, and what `Y` gets."""
    p = upl.load("""program far
input X<i> in 0<=i<3 { if X>0: -> B.x }
output Y<i> in 0<=i<3
node B<i> in 0<=i<3 { in x; -> C.x }
node C<i> in 0<=i<3 { in x; -> Y }
""")
    report = p.check()
    open_ = {o.where for o in report.obligations if o.status is Status.UNPROVED and o.kind is Kind.COVERAGE}
    assert open_ == {"B.x", "C.x", "Y"}
    assert report.firings == {"B": None, "C": None} and report.tokens["Y"] is None


def test_numbers_of_the_perceptron():
    report = report_of("perceptron")
    assert str(report.tokens.total) == "305*D"
    assert {n: str(f) for n, f in report.tokens.items()} == {
        "Res": "29*D",
        "Link": "137*D",
        "Sum": "111*D",
        "AF_ReLU": "25*D",
        "R": "3*D",
    }
    assert report.tokens.at(D=3)["Link"] == 411
    assert {n: str(f) for n, f in report.firings.items()} == {
        "Res": "29*D", "Link": "111*D", "Sum": "25*D", "AF_ReLU": "25*D",
    }  # fmt: skip
    assert report.field_bits["Link"] == {"d": None, "k": 3, "i": 3, "j": 3}


def inputs_for(p: upl.Program, **params: int):
    """Inputs of the right shapes, full of random numbers."""
    rng = np.random.default_rng(5)
    return {n: rng.uniform(0.5, 1.5, v.shape(**params)) for n, v in p.inputs.items()}


def value(n: IndexExpr | int | None, params: dict[str, int]) -> int:
    """A count for given parameters."""
    assert n is not None
    return n if isinstance(n, int) else n.evaluate(params, lambda *_: 0)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("perceptron", [{"D": d} for d in (1, 2, 3)]),
        ("iris", [{"D": d} for d in (1, 2, 3)]),
        ("iris_batch", [{"D": d} for d in (1, 2, 3)]),
        ("stencil", [{"T": t, "n": n} for t, n in ((1, 3), (2, 4), (3, 7))]),
        ("convolution", [{}]),
        ("reshape", [{}]),
    ],
)
def test_polynomials_are_what_a_run_counts(name, sizes):
    p = upl.load(text_of(name)).expanded().infer_domains()
    report = p.check()
    run = upl.compile(p, order="random", seed=2)
    for params in sizes:
        run(**inputs_for(p, **params), **params)
        assert report.firings.at(**params) == run.stats["firings"]
        assert report.tokens.at(**params) == run.stats["tokens"]
        total = sum(report.tokens.at(**params).values())
        assert run.stats["tokens_sent"] == total == value(report.tokens.total, params)
        assert run.stats["peak_waiting"] <= value(report.waiting_bound, params)


# -- the refuted examples of the language definition ---------------------------------------------------------------
STRANDS = """program strands
param n >= 2
input A<i> in 0<=i<n { if i>0: #i -> M.a<i,*> }
input B<j> in 0<=j<n { if j<n-1: #n-1-j -> M.b<*,j> }
output Y<i,j>
node M<i,j> in 0<=j<i, i<n { in a, b; a*b -> Y }
"""


def runs_wrong(p: upl.Program, params, seeds=range(8)) -> set[str]:
    """The codes of the errors that some arrival orders bring (empty: every order runs through)."""
    codes: set[str] = set()
    for order, seed in (("fifo", 0), *(("random", s) for s in seeds)):
        try:
            run = upl.compile(p, order=order, seed=seed, **params)
            run(**inputs_for(p, **params))
        except upl.UplError as e:
            codes |= {d.code for d in e.diagnostics}
    return codes


def test_two_stars_that_meet_too_often():
    """It runs right in FIFO order by luck and strands tokens in random order; `check` does not need the luck."""
    p = upl.load(STRANDS)
    found = refuted(p.check())
    assert found and all(o.witness for o in found)
    upl.compile(p)(**inputs_for(p, n=4), n=4)
    assert "UPL1601" in runs_wrong(p, {"n": 4})


COPY = "input X<i> in 0<=i<5 { -> A.x }\noutput Y<i>\n"
RINGS = {
    "modulo": "input X { -> Y }\noutput Y\nnode A<i> in 0<=i<3 { in y; y -> A.y<(i+1) mod 3> }\n",
    "itself": "param D >= 1\ninput X { -> Y }\noutput Y\nnode A<i> in 0<=i<D { in x; x -> A.x<i> }\n",
    "two nodes": "input X { -> Y }\noutput Y\nnode A<i> in 0<=i<4 { in x; -> B.x }\nnode B<i> { in x; -> A.x }\n",
    "one input of two": COPY + "node A<i> in 0<=i<5 { in x, b; x+b -> Y; b -> B.a }\nnode B<i> { in a; a -> A.b }\n",
    "mirror": COPY + "node A<i> in 0<=i<5 { in x, b; x+b -> Y; b -> A.b<4-i> }\n",
}


@pytest.mark.parametrize("text", ["program p\n" + text for text in RINGS.values()], ids=list(RINGS))
def test_a_ring_without_entry_waits_for_itself(text):
    report = upl.load(text).check()
    found = [o for o in refuted(report) if o.kind is Kind.ACYCLIC]
    assert len(found) == 1 and "waits for itself" in found[0].message and found[0].witness
    assert found[0].message.startswith("A<") and 0 <= found[0].witness["i"] < 5
    assert any(d.code == "UPL1307" for d in report.diagnostics())


def test_a_ring_that_data_decide_is_not_refuted():
    """`V` waits for itself if data say so: it was refuted, though the program is right for these data."""
    text = "program data\nparam n >= 1\ninput X<i> in 0<=i<n { -> V.x }\n"
    text += "input K<i>: int in 1<=i<n { -> Q.k<i,K> }\noutput R<i>\n"
    text += "node V<i> in 0<=i<n { in x, @(+) p[(i>=1 ? 1 : 0)]; x+p -> R; x+p ## -> Q.v<*,i> }\n"
    text += "node Q<i,c> { in v, k: int; v -> V.p<i> }\n"
    p = upl.load(text)
    (ring,) = [o for o in p.check().obligations if o.kind is Kind.ACYCLIC]
    assert ring.status is Status.UNPROVED and "may wait for itself" in ring.message
    x, k = np.arange(1.0, 5.0), np.array([0, 0, 0, 2])[1:]
    for engine in ("interp", "native"):
        assert upl.compile(p, engine=engine)(X=x, K=k)["R"].tolist() == [1, 3, 4, 8]


def test_a_chain_through_a_table_is_no_cycle():
    p = upl.load("""program table
const N[0:3] = [2, 3, 1, 9]
input X { -> A.x<0> }
output Y
node A<i> { in x; if i!=3: x -> A.x<N[i]>; if i==3: x -> Y }
""")
    assert p.check().ok and upl.compile(p)(X=3.0)["Y"] == 3.0


# -- seeded mistakes -----------------------------------------------------------------------------------------------
# (program, right, wrong, a kind of obligation that must be refuted, whether a run must go wrong)
MISTAKES = [
    ("perceptron", "#N[k] -> Link.r", "#N[k-1] -> Link.r", Kind.MULTIPLICITY, True),
    ("perceptron", "#N[k] -> Link.r", "#N[k]+1 -> Link.r", Kind.MULTIPLICITY, True),
    ("perceptron", "#N[k] -> Link.r", "-> Link.r", Kind.MULTIPLICITY, True),
    ("perceptron", "r*w #N[k-1]", "r*w #N[k]", Kind.GATHER, True),
    ("perceptron", "if k<K:  #N", "if k<K-1:  #N", Kind.COVERAGE, True),
    ("perceptron", "Res.r<d,k+1,i>", "Res.r<d,k,i>", Kind.COVERAGE, True),
    ("perceptron", "Res.r<d,k+1,i>", "Res.r<d,k+2,i>", Kind.EXISTS, True),
    ("perceptron", "if k==K: -> R", "if k>=K-1: -> R", Kind.UNIQUE, True),
    ("perceptron", "-> Res.r<d,1,i>", "-> Res.r<d,2,i>", Kind.COVERAGE, True),
    ("perceptron", "1<=i<=N[k-1] {", "1<=i<=N[k] {", Kind.DOMAIN, True),
    ("perceptron", "1<=k<=K, 1<=i", "0<=k<=K, 1<=i", Kind.DOMAIN, False),
    ("perceptron", "Link.w<d,k,i,j>", "Link.w<d,k,j,i>", Kind.COVERAGE, True),
    ("perceptron", "1<=k<K, 1<=i<=N[k-1], 1<=j<=N[k] ", "1<=k<K, 1<=i<=N[k-1], 1<=j<N[k] ", Kind.MULTIPLICITY, True),
    ("stencil", "if t<T && i>=2: u -> Upd.r<t+1,i-1>\n", "", Kind.COVERAGE, True),
    ("stencil", "i<=n-3", "i<=n-2", Kind.EXISTS, True),
    ("stencil", "(i==0 || i==n-1)", "(i<=1 || i==n-1)", Kind.UNIQUE, True),
    ("stencil", "i==0 || i==n-1", "i==0", Kind.COVERAGE, True),
    ("stencil", "Upd.c<t+1,i>", "Upd.c<t,i>", Kind.COVERAGE, True),
    ("stencil", "-> U.u<t,i> }", "-> U.u<t-1,i> }", Kind.ACYCLIC, True),
    ("stencil", "if t==T: -> Y", "if t>=T-1: -> Y", Kind.UNIQUE, True),
    ("convolution", "#F*F ->", "#F*F-1 ->", Kind.GATHER, True),
    ("convolution", "#O*O ->", "#O*F ->", Kind.MULTIPLICITY, True),
    ("convolution", "a in 0..F-1,", "a in 0..F-2,", Kind.GATHER, True),
    ("counted", "x[k]", "x[k+1]", Kind.GATHER, True),
    ("counted", "for k in i+1..n-1", "for k in i..n-1", Kind.GATHER, True),
    ("counted", "in 0<=k<n {", "in 0<=k<n-1 {", Kind.DOMAIN, True),
    ("reshape", "floordiv 8,", "floordiv 6,", Kind.EXISTS, True),
    ("reshape", "0<=c<8", "0<=c<7", Kind.EXISTS, True),
    ("reshape", "mod 8> }", "mod 4> }", Kind.UNIQUE, True),
    ("reshape", "-> Y<c,r>", "-> Y<c,c>", Kind.UNIQUE, True),
    ("iris_batch", "#D -> Link.w", "#D+1 -> Link.w", Kind.MULTIPLICITY, True),
    ("iris", "if d<D:  v -> Link.w<d+1", "if d<=D:  v -> Link.w<d+1", Kind.EXISTS, True),
]  # fmt: skip


IDS = [f"{m[0]}: {m[1]} | {m[2]}".replace("\n", "") for m in MISTAKES]


@pytest.mark.parametrize(("name", "right", "wrong", "kind", "shows"), MISTAKES, ids=IDS)
def test_a_mistake_is_refuted_with_a_witness_and_shows_in_a_run(name, right, wrong, kind, shows):
    text = text_of(name)
    assert text.count(right) >= 1
    p = upl.load(text.replace(right, wrong, 1))
    report = p.check()
    assert not report.ok
    found = refuted(report)
    assert kind in {o.kind for o in found}, [o.message for o in found]
    for o in found:
        assert o.witness is not None and o.span is not None, o.message
        assert all(f"{v}" in o.message for v in o.witness.values())
    assert len(report.diagnostics()) == len(found)
    if not shows:
        return
    params = {q: max([o.witness.get(q, 1) for o in found] + [{"n": 3}.get(q, 1)]) for q in p.params}
    codes = runs_wrong(p.expanded(), params)
    assert codes and all(c.startswith("UPL16") for c in codes), codes
