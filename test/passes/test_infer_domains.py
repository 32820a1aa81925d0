"""Domains: the facts of the language definition, cycles and their limits, declared ones as claims."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.dialects.upl import FormulaAttr
from upl_mlir.dialects.upl.query import nodes
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.infer_domains import domains_known, infer_missing
from upl_mlir.poly.parse import parse_formula

INPUTS = Path(__file__).resolve().parents[1] / "Inputs"


def same(p: upl.Program, name: str, formula: str) -> bool:
    """Whether a domain is the set of a formula."""
    sets = ProgramSets(p.infer_domains().op, directives=True)
    domain = sets.domain(name)
    return domain.equals(sets.ctx.set(domain.dims, parse_formula(formula)))


def fails(text: str) -> upl.UplError:
    """The error of inference."""
    with pytest.raises(upl.UplError) as e:
        upl.load(text).infer_domains()
    return e.value


def test_the_perceptron(examples: Path):
    p = upl.load(examples / "perceptron.upl")
    for name in ("Sum", "AF_ReLU"):
        assert same(p, name, "1<=d<=D && 1<=k<K && 1<=i<=N[k]")
    assert same(p, "Link", "1<=d<=D && 1<=k<K && 1<=i<=N[k-1] && 1<=j<=N[k]")
    assert same(p, "R", "1<=d<=D && 1<=i<=N[K-1]")
    assert p.outputs["R"].shape(D=3) == (3, 3) and p.outputs["R"].origin(D=3) == (1, 1)


def test_the_perceptron_without_the_declared_domain(examples: Path):
    """Res is on the cycle Res -> Link -> Sum -> AF_ReLU; its length is a known constant, so the iteration ends."""
    text = (examples / "perceptron.upl").read_text().replace(" in 1<=d<=D, 1<=k<=K, 1<=i<=N[k-1] {", " {")
    p = upl.load(text, K=4, N=[2, 3, 1, 2])
    assert same(p, "Res", "1<=d<=D && 1<=k<=K && 1<=i<=N[k-1]")
    assert same(p, "Sum", "1<=d<=D && 1<=k<K && 1<=i<=N[k]")


def test_training_with_a_symbolic_number_of_examples(examples: Path):
    p = upl.load(examples / "training.upl")
    assert same(p, "Upd", "1<=d<=D && 1<=k<K && 1<=i<=N[k-1] && 1<=j<=N[k]")
    assert same(p, "Link", "1<=d<=D && 1<=k<K && 1<=i<=N[k-1] && 1<=j<=N[k]")
    assert same(p, "W_out", "1<=k<K && 1<=i<=N[k-1] && 1<=j<=N[k]")
    assert same(p, "Err", "1<=d<=D && 1<=i<=N[K-1]")


STENCIL = (INPUTS / "stencil.upl").read_text(encoding="utf-8")


def test_a_stencil_with_a_declared_domain():
    p = upl.load(STENCIL)
    assert same(p, "Upd", "1<=t<=T && 1<=i<=n-2") and same(p, "Y", "0<=i<n")


def test_a_stencil_of_known_size_needs_none():
    p = upl.load(STENCIL.replace(" in 0<=t<=T, 0<=i<n {", " {"), T=2, n=5)
    assert same(p, "U", "0<=t<=2 && 0<=i<5") and same(p, "Upd", "1<=t<=2 && 1<=i<=3")


def test_a_cycle_whose_limit_can_be_guessed():
    p = upl.load("""program chain
param n >= 1
input X { -> A.x<0> }
output Y
node A<i> { in x; if i<n: x -> B.x<i>; if i==n: x -> Y }
node B<i> { in x; 2*x -> A.x<i+1> }
""")
    assert same(p, "A", "0<=i<=n") and same(p, "B", "0<=i<n")
    assert p.check().ok


def test_a_cycle_that_cannot_be_guessed_is_named():
    e = fails("""program doubling
param n >= 1
input X { -> A.x<1> }
output Y
node A<i> { in x; if i<n: x -> B.x<i>; if n<=i<2*n: x -> Y }
node B<i> { in x; x -> A.x<2*i> }
""")
    (found,) = e.diagnostics
    assert found.code == "UPL1202" and "A -> B -> A" in found.message
    assert found.span.line == 5 and [n.span.line for n in found.notes] == [6]
    assert "declare one" in found.help


@pytest.mark.parametrize(
    ("text", "field", "line"),
    [
        ("program p\ninput X<i> in i>=0 { -> A.x }\noutput Y<i>\nnode A<i> { in x; -> Y }\n", "i", 2),
        ("program p\ninput X { -> A.x<*> ## }\noutput Y<i>\nnode A<i> { in x; -> Y }\n", "i", 4),  # not at Y
        (
            "program p\nparam n >= 1\ninput X<i> in 0<=i<n { -> A.x }\noutput Y<i,j>\nnode A<i,j> { in x; -> Y }\n",
            "j",
            5,
        ),
        ("program p\ninput X<i> in 0<=i<3 { -> A.x }\noutput Y<i> in i<=2\nnode A<i> { in x; -> Y }\n", "i", 3),
    ],
)
def test_an_unbounded_domain(text, field, line):
    e = fails(text.replace("-> A.x<*> ##", "## -> A.x<*>"))
    (found,) = e.diagnostics
    assert found.code == "UPL1203" and f"no bound in `{field}`" in found.message and found.span.line == line


def test_a_host_input_needs_a_domain():
    (found,) = fails("program p\ninput X<i> { -> Y }\noutput Y<i>\n").diagnostics
    assert found.code == "UPL1201"


def test_the_domain_of_an_input_may_be_any_condition():
    """Extents that are products of parameters, points below a hyperbola: the array is the box of the points."""
    p = upl.load("program p\nparam n >= 1\nparam q >= 1\ninput X<i> in 0<=i<n*q { -> Y }\noutput Y<i>\n")
    assert p.check().ok and p.inputs["X"].shape(n=2, q=3) == (6,)
    p = upl.load("program p\ninput X<i,j> in 0<=i*j<4, 1<=i<9, 0<=j<9 { -> Y }\noutput Y<i,j>\n")
    assert p.inputs["X"].shape() == (8, 4)
    x = np.arange(32.0).reshape(8, 4)
    wanted = np.where(np.outer(np.arange(1, 9), np.arange(4)) < 4, x, 0)
    for engine in ("interp", "token", "native"):
        np.testing.assert_array_equal(upl.compile(p, engine=engine)(X=x)["Y"], wanted)
    (found,) = fails("program p\ninput X<i> in 0<=i, i*i>4 { -> Y }\noutput Y<i>\n").diagnostics
    assert found.code == "UPL1203"


def test_a_node_that_nothing_reaches_has_an_empty_domain():
    p = upl.load("program p\ninput X<i> in 0<=i<3 { if i>5: -> A.x; -> Y }\noutput Y<i>\nnode A<i> { in x }\n")
    assert same(p, "A", "false") and p.check().ok
    assert upl.compile(upl.load(str(p)))(X=[1.0, 2.0, 3.0])["Y"].tolist() == [1, 2, 3]


def test_a_declared_domain_is_taken_as_it_is():
    """A claim, not a filter: inference believes it, `check` refutes it."""
    p = upl.load("program p\ninput X<i> in 0<=i<3 { -> A.x }\noutput Y<i>\nnode A<i> in 0<=i<2 { in x; -> Y }\n")
    assert same(p, "A", "0<=i<2") and same(p, "Y", "0<=i<2")
    assert not p.check().ok


def test_inference_again_changes_nothing(examples: Path):
    p = upl.load(examples / "perceptron.upl").infer_domains()
    again = upl.load(str(p)).infer_domains()
    for name in ("Sum", "Link", "Res", "R"):
        assert str(ProgramSets(p.op).domain(name).isl) == str(ProgramSets(again.op).domain(name).isl)


def test_domains_that_are_known_stay_as_they_are():
    """Passes that need domains do not infer them again: what a pass before them has made of one stays."""
    p = upl.load("program p\ninput X<i> in 0<=i<3 { -> A.x }\noutput Y<i>\nnode A<i> { in x; -> Y }\n")
    program = p.infer_domains().op
    assert domains_known(program)
    (node,) = nodes(program)
    node.domain = FormulaAttr(parse_formula("i>=0 && i<3 && i!=1"))
    infer_missing(program)
    assert str(node.domain.data) == "i>=0 && i<3 && i!=1"
    node.domain = None
    assert not domains_known(program)
    infer_missing(program)
    assert domains_known(program) and str(node.domain.data) == "0<=i<=2"


@pytest.mark.parametrize(
    ("declared", "how"),
    [(" in 0<=k<=3", "domains are declared for A, and reproduce themselves"), ("", "domains are the least fixpoint")],
)
def test_the_report_says_which_domains_a_cycle_has(declared, how):
    text = f"program p\ninput X {{ -> A.x<0> }}\noutput Y\nnode A<k>{declared} {{\n"
    text += "  in x\n  if k<3: x -> A.x<k+1>\n  if k==3: x -> Y<>\n}\n"
    (found,) = [o for o in upl.load(text).check().obligations if o.kind.name == "ACYCLIC"]
    assert found.status.name == "PROVED" and found.message.endswith(how)
