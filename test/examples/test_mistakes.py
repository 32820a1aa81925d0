"""Mistakes seeded in the examples: `check` refutes each with a witness, and a run at the witness shows that very error."""

from __future__ import annotations

import re

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.diagnostics import Diagnostic
from upl_mlir.dialects.upl import NodeOp
from upl_mlir.dialects.upl.query import arrows, endpoints, poly_context, source_of, span_of
from upl_mlir.passes.analysis.obligations import Kind, Status

SEEDS = 8  # of random arrival orders

# (example, right, wrong, what must be refuted, where)
MISTAKES = [
    # multiplicities
    ("matmul", "#n -> Mul.a", "#m -> Mul.a", Kind.MULTIPLICITY, "A -> Mul.a"),
    ("matmul", "#m -> Mul.b", "-> Mul.b", Kind.MULTIPLICITY, "B -> Mul.b"),
    ("wave", "#T-1 -> Step.c", "#T -> Step.c", Kind.MULTIPLICITY, "C -> Step.c"),
    ("lstm", "h #4*H -> MulH.h", "h #4 -> MulH.h", Kind.MULTIPLICITY, "Cell -> MulH.h"),
    ("lstm", "#T -> Gate.b", "#T-1 -> Gate.b", Kind.MULTIPLICITY, "B -> Gate.b"),
    ("cholesky", "l #n-i -> Mul.q", "l #n-i-1 -> Mul.q", Kind.MULTIPLICITY, "Low -> Mul.q"),
    ("cholesky", "l #n-1-j -> Low.d", "l #n-j -> Low.d", Kind.MULTIPLICITY, "Diag -> Low.d"),
    ("triangular_solve", "x #n-1-i ->", "x #n-i ->", Kind.MULTIPLICITY, "Row -> Mul.x"),
    ("conv2d", "#(H-max(a, -a))", "#(H-a)", Kind.MULTIPLICITY, "G -> Mul.g"),
    ("conv_strided", "{ #P*Q -> Mul.w", "{ #P*P -> Mul.w", Kind.MULTIPLICITY, "W -> Mul.w"),
    ("mds", "if i<n-1: #n-1-i -> Diff.a<i,*,k>", "#n-1-i -> Diff.a<i,*,k>", Kind.EXISTS, "X -> Diff.a"),
    ("gmm", "#D*K -> Comp.z", "#K -> Comp.z", Kind.MULTIPLICITY, "ASum -> Comp.z"),
    ("floyd_warshall", "d #n -> Via.to", "d #n-1 -> Via.to", Kind.MULTIPLICITY, "Dist -> Via.to"),
    ("mlp", "#N[k] -> Link.r", "#N[k-1] -> Link.r", Kind.MULTIPLICITY, "Res -> Link.r"),
    ("mlp", "z #N[K-1] -> Exp.m", "z #N[0] -> Exp.m", Kind.MULTIPLICITY, "Max -> Exp.m"),
    ("matrix_chain", "#N[0] -> Mul.a", "#N[1] -> Mul.a", Kind.MULTIPLICITY, "A -> Mul.a"),
    ("softmax", "log(s) #n -> Term.z", "log(s) -> Term.z", Kind.MULTIPLICITY, "Sum -> Term.z"),
    ("spmv", "#w -> Elem.count", "#w+1 -> Elem.count", Kind.MULTIPLICITY, "Count -> Elem.count"),
    # numbers of summands
    ("matmul", "s[r]", "s[r+1]", Kind.GATHER, "Acc.s"),
    ("softmax", "in @(max) x[n]", "in @(max) x[D]", Kind.GATHER, "Max.x"),
    ("softmax", "#D*n -> Total.s", "#n -> Total.s", Kind.GATHER, "Total.s"),
    ("conv_strided", "s[C*F*F]", "s[C*F]", Kind.GATHER, "Acc.s"),
    ("lstm", "s[E+H]", "s[E+E]", Kind.GATHER, "Gate.s"),
    ("triangular_solve", "s[i]", "s[i+1]", Kind.GATHER, "Row.s"),
    ("cholesky", "in a, d, @(+) s[j]", "in a, d, @(+) s[i]", Kind.GATHER, "Low.s"),
    ("mds", "s[n-1-i]", "s[n-i]", Kind.GATHER, "Row.s"),
    ("diagonal", "s[n-1]", "s[n]", Kind.GATHER, "Row.s"),
    ("floyd_warshall", "d #2 -> Dist", "d #1 -> Dist", Kind.GATHER, "Dist.d"),
    ("scan", "if k<K && i+P[k]<P[K]", "if k<K && i+P[k]<P[K]-1", Kind.GATHER, "S.s"),
    ("upsample", "#(1+a mod 2)", "#(2+a mod 2)", Kind.GATHER, "Pixel.s"),
    ("jacobi2d", "(a==0 || b==0) && ", "", Kind.GATHER, "Mean.s"),
    ("conv2d", "b in -R..R if", "b in -R..0 if", Kind.GATHER, "Acc.s"),
    # indices
    ("matmul", "Mul.b<*,j,k>", "Mul.b<*,k,j>", Kind.EXISTS, "B -> Mul.b"),
    ("jacobi1d", "Mean.right<t+1,i-1>", "Mean.right<t,i-1>", Kind.EXISTS, "U -> Mean.right"),
    ("wave", "Step.before<t+2,i>", "Step.before<t+1,i>", Kind.EXISTS, "U -> Step.before"),
    ("lstm", "MulH.h<1,*,j,*>", "MulH.h<2,*,j,*>", Kind.EXISTS, "Gate -> Cell.keep"),
    ("reshape", "(6*i+j) floordiv 4", "(6*i+j) floordiv 3", Kind.EXISTS, "A -> B.a"),
    ("reshape", "(6*i+j) mod 4", "(6*i+j) mod 3", Kind.UNIQUE, "B.a"),
    ("reshape", "-> Y<c,r>", "-> Y<c,c>", Kind.UNIQUE, "Y"),
    ("upsample", "Pixel.s<2*i+a", "Pixel.s<i+a", Kind.GATHER, "Pixel.s"),
    ("cholesky", "Mul.p<i,c,j>", "Mul.p<c,i,j>", Kind.MULTIPLICITY, "Low -> Mul.q"),
    ("matrix_chain", "Mul.p<k+1,i,j,*>", "Mul.p<k,i,j,*>", Kind.ACYCLIC, "Prod -> Mul -> Sum -> Prod"),
    ("newton", "It.e<i,1>", "It.e<i,0>", Kind.EXISTS, "e -> It.e"),
    # conditions
    ("wave", "if 1<=t<T && i>=2:", "if 1<=t<T && i>2:", Kind.EXISTS, "U -> Step.left"),
    ("wave", "if 1<=t<T && (i==0 || i==n-1)", "if t<T && (i==0 || i==n-1)", Kind.UNIQUE, "U.u"),
    ("jacobi1d", "if t<T && i<=n-3:", "if t<T && i<=n-2:", Kind.EXISTS, "U -> Mean.left"),
    ("jacobi1d", "if t==T: u -> B", "if t>=T-1: u -> B", Kind.UNIQUE, "B"),
    ("jacobi2d", "(i==0 || i==m-1 || j==0 || j==n-1)", "(i==0 || i==m-1 || j==0)", Kind.COVERAGE, "U.u"),
    ("jacobi2d", "if t==T-1 && 1<=i<=m-2", "if t==T-1 && 1<=i<=m-1", Kind.EXISTS, "U -> Diff.old"),
    ("conv_strided", "if 0<=p<P && 0<=q<Q", "if 0<=p<=P && 0<=q<Q", Kind.GATHER, "Acc.s"),
    ("diagonal", "if i!=j: -> Row", "if i<j: -> Row", Kind.GATHER, "Row.s"),
    ("diagonal", "if i==j: -> Scale.a<i>", "if i<=j: -> Scale.a<i>", Kind.UNIQUE, "Scale.a"),
    ("floyd_warshall", "if k<n && i==k:", "if k<n && i==k+1:", Kind.GATHER, "Dist.d"),
    ("scan", "if k<K && i<P[k]: ", "if k<K && i<=P[k]: ", Kind.GATHER, "S.s"),
    ("triangular_solve", "if j==i: -> Row.d", "if j>=i-1: -> Row.d", Kind.UNIQUE, "Row.d"),
    ("mlp", "if k==K: -> Pick.z<d,i>", "if k==1: -> Pick.z<d,i>", Kind.EXISTS, "Y -> Pick.y"),
    ("mlp", "if k==K: -> Pick.z<d,i>", "if k<K: -> Pick.z<d,i>", Kind.UNIQUE, "Pick.z"),  # found at small sizes
    # arrows that are missing
    ("wave", "  if t<=T-2 && 1<=i<=n-2: u -> Step.before<t+2,i>\n", "", Kind.EXISTS, "U -> Step.left"),
    ("lstm", "  if t<T:  c_next -> Cell.c<t+1,j>\n", "", Kind.COVERAGE, "Cell.c"),
    ("softmax", "e -> Prob.e; ", "", Kind.EXISTS, "Sum -> Prob.z"),
    ("cholesky", "  if i==j: p*q -> Diag.s<j>\n", "", Kind.GATHER, "Diag.s"),
    ("lstm", "  if g==3: sigmoid(z) -> Cell.show\n", "", Kind.COVERAGE, "Cell.show"),
    # instances that wait for themselves
    ("jacobi1d", "right)/3 -> U.u<t,i>", "right)/3 -> U.u<t-1,i>", Kind.ACYCLIC, "U -> Mean -> U"),
    ("floyd_warshall", "Via.to<k+1,i,*>", "Via.to<k,i,*>", Kind.ACYCLIC, "Dist -> Via -> Dist"),
    ("triangular_solve", "i<n-1: x #n-1-i -> Mul.x<*,i>", "i>0: x #i -> Mul.x<i,*>", Kind.ACYCLIC, "Row -> Mul -> Row"),
    # domains
    ("triangular_solve", "node Row<i> in 0<=i<n", "node Row<i> in 0<=i<=n", Kind.DOMAIN, "Row"),
    ("mds", "0<=i<j, j<n, 0<=k<K { in a", "0<=i<=j, j<n, 0<=k<K { in a", Kind.DOMAIN, "Diff"),
    ("matrix_chain", "1<=i<=N[0], 1<=j<=N[k] {", "1<=i<=N[0], 1<=j<=N[k-1] {", Kind.DOMAIN, "Prod"),
    ("cholesky", "node Low<i,j> in 0<=j<i, i<n", "node Low<i,j> in 0<=j<i-1, i<n", Kind.DOMAIN, "Low"),
    ("jacobi2d", "in 0<=t<=T, 0<=i<m", "in 0<=t<T, 0<=i<m", Kind.DOMAIN, "U"),
    ("wave", "in 1<=i<=n-2 { #T-1", "in 2<=i<=n-2 { #T-1", Kind.EXISTS, "U -> Step.left"),
    ("gmm", "A<k>   in 0<=k<K", "A<k>   in 0<=k<=K", Kind.GATHER, "AMax.a"),
]  # fmt: skip

MENTION = re.compile(r"(\w+)(?:\.\w+)?`?<([-\d,*]*)>")


CODES = {
    Kind.COVERAGE: {"UPL1601", "UPL1603"},  # its partners are left over, or results never came
    Kind.EXISTS: {"UPL1601", "UPL1603", "UPL1604"},
    Kind.UNIQUE: {"UPL1601", "UPL1602"},
    Kind.MULTIPLICITY: {"UPL1601", "UPL1604"},
    Kind.GATHER: {"UPL1601", "UPL1605"},
    Kind.ACYCLIC: {"UPL1601", "UPL1603"},
}
"""What a run may say of each mistake; of a false claim about a domain (LANGUAGE 3.9) it need not say anything."""

Place = tuple[str, tuple[int | None, ...]]


def places(p: upl.Program, o) -> list[Place]:
    """The instances that an obligation is refuted at: of the node or output; of an arrow's source and target."""
    if o.kind not in (Kind.EXISTS, Kind.MULTIPLICITY):
        name = re.split(r"[. ]", o.where)[0] if o.kind is not Kind.ACYCLIC else o.message.partition("<")[0]
        return [(name, tuple(o.witness[f] for f in endpoints(p.op)[name].fields))]
    (send,) = [s for s in arrows(p.op) if span_of(s) == o.span]
    source = source_of(send)
    assert o.where.startswith(f"{source.symbol} -> {send.target_name}")
    env = {**poly_context(p.op).constants, **o.witness}
    index = tuple(e if e is None else e.evaluate(env, lambda a, i: o.witness[f"{a}[{i}]"]) for e in send.index.data)
    return [(send.target_name, index), (source.symbol, tuple(o.witness[f] for f in source.fields))]


def unobserved(p: upl.Program, o) -> bool:
    """Whether no error names the place itself: a node of one ordinary input fires at once, as often as it is told."""
    op = endpoints(p.op)[o.where.partition(".")[0]] if "." in o.where and " " not in o.where else None
    return isinstance(op, NodeOp) and len(op.ports) == 1 and op.ports[0].gather is None


def errors(p: upl.Program, inputs, order: str, seed: int) -> list[Diagnostic]:
    """What goes wrong in a run."""
    try:
        upl.compile(p, order=order, seed=seed)(**inputs)
    except upl.UplError as e:
        return list(e.diagnostics)
    return []


def mentioned(diagnostics: list[Diagnostic]) -> set[Place]:
    """Every instance that errors name, in a message or a note."""
    texts = [t for d in diagnostics for t in (d.message, *(n.message for n in d.notes))]
    found = {m for t in texts for m in MENTION.findall(t)}
    return {(n, tuple(None if i == "*" else int(i) for i in at.split(",")) if at else ()) for n, at in found}


def meet(a: Place, b: Place) -> bool:
    """Whether two places can be the same, `*` being anything."""
    return (
        a[0] == b[0]
        and len(a[1]) == len(b[1])
        and all(None in (x, y) or x == y for x, y in zip(a[1], b[1], strict=True))
    )


IDS = [f"{m[0]}: {m[1]} | {m[2]}".replace("\n", "") for m in MISTAKES]


@pytest.mark.parametrize(("name", "right", "wrong", "kind", "where"), MISTAKES, ids=IDS)
def test_a_mistake_is_refuted_and_a_run_at_the_witness_shows_it(ex, name, right, wrong, kind, where):
    text = ex.text(name)
    assert right in text
    text = text.replace(right, wrong, 1)
    p = upl.load(text)
    found = [o for o in p.check().obligations if o.status is Status.REFUTED]
    assert found and all(o.witness is not None and o.span is not None for o in found)
    hits = [o for o in found if (o.kind, o.where) == (kind, where)]
    assert hits, [(o.kind, o.where) for o in found]
    for o in hits:
        assert all(str(v) in o.message for v in o.witness.values())
        if kind is not Kind.DOMAIN:
            shown_in_a_run(ex, p, upl.load(text, **ex.least(name, o.witness)), o)


def shown_in_a_run(ex, p, bound, o):
    """Some arrival order of random data at the witness's sizes ends with an error of that kind at that place."""
    said: list[Diagnostic] = []
    for order, seed in (("fifo", 0), *(("random", s) for s in range(SEEDS))):
        found = errors(bound, ex.random_inputs(bound, np.random.default_rng(seed)), order, seed)
        said += found
        if {d.code for d in found} & CODES[o.kind] and (
            unobserved(p, o) or any(meet(a, b) for a in places(p, o) for b in mentioned(found))
        ):
            return
    pytest.fail(f"{o.message}\n{places(p, o)}\n{[str(d) for d in said]}")


def test_enough_mistakes_of_every_kind():
    assert len(MISTAKES) >= 40 and {m[3] for m in MISTAKES} == {*CODES, Kind.DOMAIN}
