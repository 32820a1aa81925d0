"""What `check` says of a mistake: where it is, what else takes part in it, and what to write instead."""

from __future__ import annotations

import pytest

import upl_mlir as upl
from upl_mlir.passes.analysis.obligations import Kind, Status

MULTICAST = """program multicast
param n >= 1
input B { #n -> M.b<*> }
input X<i> in 0<=i<n { -> M.x }
output Y<i>
output T
node M<i> { in b, x; x*b -> Y; x #n -> S.s<> }
node S { in @(+) s[#]; s -> T }
"""
COUNTED = """program counted
param n >= 1
input X<i,j> in 0<=i<n, 0<=j<i { -> S.s<i> }
output R<i>
node S<i> in 0<=i<n { in @(+) s[i]; s -> R }
"""
WIDTHS = """program widths
const K = 3
const N[0:K-1] = [2, 3, 1]
input W<k,i> in 0<=k<K, 0<=i<N[k] { W #N[k] -> S.s<k> }
output R<k>
node S<k> { in @(+) s[#]; s -> R }
"""
OPEN = """program open
param K >= 2
param N[0:K-1] >= 1
input X<k,i> in 0<=k<K, 0<=i<N[k] { if k==K-1: -> A.x<i> }
output R<i>
node A<i> { in x; x -> R }
"""

RECTANGLE = """program rectangle
param n >= 1
param m >= 1
input X<k> in 0<=k<3 { #m*n -> P.x<*,*,k> }
input W<i,j,k> in 0<=i<n, 0<=j<m, 0<=k<3 { -> P.w }
output R<i,j,k>
node P<i,j,k> { in x, w; x*w -> R }
"""

STARRED = """program starred
param n >= 1
input A { #n -> Row.a<*> }
input X<i> in 0<=i<n { -> Row.x }
node Row<i> in 0<=i<n { in a, x; a*x -> Y<i> }
output Y<i> in 0<=i<n
"""

CASES = [
    (
        MULTICAST, "#n -> M.b<*>", "-> M.b<*>",
        "3:11: error[UPL1304]: multiplicity 1 of B<> (n=2), but its token covers 2 instances of M",
        "help: on an ordinary input the multiplicity is the number of instances that the token covers, here #n",
    ), (
        MULTICAST, "-> M.x }", "-> M.x; X -> M.x }",
        "4:32: error[UPL1303]: M<0> (n=1) gets a token from X -> M.x and another",
        "4:24: note: the other one is sent here",
    ), (
        MULTICAST, "-> M.x }", "if i<=n-2: -> M.x }",
        "6:1: error[UPL1301]: T<> (n=1) gets no token on `T`; none comes where n<=1", "note: S -> T serves n>1",
    ), (
        MULTICAST, "-> M.x }", "-> M.x<i+1> }", "", "",
    ), (
        MULTICAST, "x*b -> Y", "x*b -> Y<0>", "two tokens of M -> Y reach Y<0> (n=2): one from M<0>, another from M<1>", "",
    ), (
        MULTICAST, "x #n -> S.s", "x #n+1 -> S.s", "M<0> (n=1) says that S<> (n=1) gets n+1 = 2 summands, but 1 comes",
        "help: each summand carries how many there are: #n",
    ), (
        MULTICAST, "output T\n", "output T\noutput Q<i>\n", "7:1: error[UPL1208]: no arrow goes to the host output `Q`",
        "help: send it something, `… -> Q<i>`, or take it away",
    ), (
        MULTICAST, "node S {", "node Z<i> { in a; a*a -> Y }\nnode S {",
        "no arrow goes to the node `Z`: it never fires", "`… -> Z.a<i>`",
    ), (
        MULTICAST, "in b, x;", "in b, x, y;", "M never fires, as no token comes to its input `y`", "",
    ), (
        MULTICAST, "s[#]", "s[n+1]", "waits for n+1 = 2 summands on `S.s`, but 1 comes",
        "help: if these are all, write `@(+) s[n]`",
    ), (
        COUNTED, "s[i]", "s[i-1]", "5:1: error[UPL1305]: S<1> (n=2) waits for i-1 = 0 summands on `S.s`, but 1 comes",
        "3:34: note: X -> S.s sends some here",
    ), (
        COUNTED, " in 0<=i<n {", " {", "5:1: error[UPL1203]: the domain of the node `S` has no bound in `i`",
        "help: declare it",
    ), (
        COUNTED, "in 0<=i<n {", "in 0<=i<=n {", "S<1> (n=1) waits for i = 1 summands on `S.s`, but 0 come", "",
    ), (
        COUNTED, "s -> R", "if i>0: s -> R<i-1>; if i==0: s -> R<n>", "", "",
    ), (
        WIDTHS, "#N[k]", "#N[k-1]", "4:37: error[UPL1308]: W<0,0> reads N[-1], which does not exist", "",
    ), (
        STARRED, "-> Row.x }", "#n -> Row.x<*> }",
        "5:1: error[UPL1306]: nothing determines `i` of `Row`; an arrow must name it",
        "3:11: note: A -> Row.a reaches every index",
    ), (
        STARRED, "-> Row.x }", "if i>0: -> Row.x }", "error[UPL1306]: Row<0> (n=1) is declared but never served", "",
    ), (
        OPEN, "if k==K-1", "if k<K-1",
        "4:37: error[UPL1303]: two tokens of X -> A.x reach A<0>: one from X<0,0>, another from X<1,0>",
        "(with K=3, N=[1, 2, 1])",
    ), (
        RECTANGLE, "#m*n", "#n*n",
        "4:24: error[UPL1304]: multiplicity n*n of X<0> (n=1, m=2) is 1, but its token covers 2 instances of P", "",
    ),
]  # fmt: skip


@pytest.mark.parametrize("text", [MULTICAST, COUNTED, WIDTHS, OPEN, RECTANGLE, STARRED])
def test_the_right_programs_are_proved(text: str) -> None:
    assert {o.status for o in upl.load(text).check().obligations} == {Status.PROVED}


@pytest.mark.parametrize(("text", "right", "wrong", "said", "also"), CASES, ids=[f"{w} for {r}" for _, r, w, _, _ in CASES])
def test_a_mistake_is_explained(text: str, right: str, wrong: str, said: str, also: str) -> None:
    assert text.count(right) == 1
    p = None
    try:
        p = upl.load(text.replace(right, wrong))
        found = p.check().diagnostics()
        rendered = "\n".join(d.render(p.sources) for d in found)
    except upl.UplError as e:
        rendered = str(e)
    assert said in rendered and also in rendered, rendered
    assert (rendered == "") == (said == "")


def test_what_needs_the_values_of_an_array_is_open_or_refuted_at_small_ones() -> None:
    """A domain that needs them is an error with a position; a mistake that shows at small sizes is refuted there."""
    p = upl.load(OPEN.replace("if k==K-1", "if k<K-1"))
    (o,) = [o for o in p.check().obligations if o.kind is Kind.UNIQUE and o.where == "A.x"]
    assert o.witness == {"K": 3, "N[0]": 1, "N[1]": 2, "N[2]": 1, "i": 0}
    right = OPEN.replace("if k==K-1: -> A.x<i>", "if k<K-1: -> A.x<k,i>; if k==K-1: -> B.y<i>")
    right = right.replace("output R<i>", "output R")
    right = right.replace("node A<i> { in x; x -> R }", "node A<k,i> { in x; }\nnode B<i> { in y; y #N[K-1] -> C.s<> }\n")
    assert upl.load(right + "node C { in @(+) s[#]; s -> R }\n").check().ok
