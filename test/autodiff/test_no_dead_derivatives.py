"""No adjoint firing is in vain: a NaN in what any one of them sends shows in some derivative (AUTODIFF rule 10).

Each adjoint node gets parameters that choose one of its instances, whose values become NaN; every instance is chosen once.
Time loops of symbolic length are excepted (docs/autodiff.md, rule 10); here lengths are fixed.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects import arith

import upl_mlir as upl
from upl_mlir.api.programs import reverse
from upl_mlir.dialects.upl import ParamOp
from upl_mlir.dialects.upl.query import nodes
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.arrows import PRIMAL
from upl_mlir.passes.build import condition
from upl_mlir.poly.expr import Formula

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"

JACOBI = """program jacobi
const T = 3
const n = 6
input A<i> in 0<=i<n { -> U.u<0,i> }
output B<i>
node U<t,i> in 0<=t<=T, 0<=i<n {
  in u
  if t<T && i<=n-3: u -> M.l<t+1,i+1>
  if t<T && 1<=i<=n-2: u -> M.c<t+1,i>
  if t<T && i>=2: u -> M.r<t+1,i-1>
  if t<T && (i==0 || i==n-1): u -> U.u<t+1,i>
  if t==T: u -> B<i>
}
node M<t,i> { in l, c, r; l*r + c*c -> U.u<t,i> }
"""

LATE = """program late
const T = 4
input X<t> in 1<=t<=T { -> S.x }
input W { #T -> S.w<*> }
output Y
node S<t> in 1<=t<=T { in x, w, s; v = s + w*x; if t<T: v -> S.s<t+1>; if t==3: v*v -> Y }
input Start { -> S.s<1> }
"""

CASES = [
    ("perceptron", "R", "W", {"D": 1, "K": 3, "N": [2, 3, 2]}),
    ("perceptron", "R", "X W", {"D": 2, "K": 3, "N": [2, 1, 2]}),
    ("conv2d", "Y", "G", {"H": 3, "W": 3}),
    ("matmul", "C", "A", {"m": 2, "n": 2, "r": 2}),
    ("matmul", "C", "A B", {"m": 2, "n": 1, "r": 2}),
    ("triangular_solve", "X", "L", {"n": 3}),
    ("lstm", "Y", "V", {"T": 2, "E": 1, "H": 2}),
    ("lstm", "C", "X", {"T": 2, "E": 1, "H": 2}),
    (JACOBI, "B", "A", {}),
    (LATE, "Y", "W", {}),
]


@pytest.mark.parametrize(("source", "of", "wrt", "sizes"), CASES, ids=[c[0].split()[-1][:12] + ": " + c[2] for c in CASES])
def test_every_adjoint_instance_matters(source, of, wrt, sizes):
    p = upl.load(source if "{" in source else EXAMPLES / f"{source}.upl", **sizes)
    g = reverse(p, of=of, wrt=wrt.split()).infer_domains()
    rng = np.random.default_rng(5)
    given = {n: np.abs(rng.standard_normal(v.shape())) + 0.5 for n, v in g.inputs.items()}
    clean = upl.compile(g)(**given)
    results = [f"d_{w}" for w in wrt.split()]
    assert not any(np.isnan(clean[r]).any() for r in results)
    tried = 0
    for node in nodes(g.op):
        if PRIMAL not in node.attributes:
            continue
        poisoned = poison(g, node.symbol)
        for at in ProgramSets(g.op).domain(node.symbol).points():
            tried += 1
            run = upl.compile(poisoned, **{f"at_{i}": v for i, v in enumerate(at)})
            out = run(**given)
            assert any(np.isnan(out[r]).any() for r in results), f"{node.symbol}<{','.join(map(str, at))}> serves nobody"
    assert tried


def poison(g: upl.Program, name: str) -> upl.Program:
    """The program with parameters `at_0`, ... that choose the instance of a node that sends NaN."""
    out = g.clone()
    node = next(n for n in nodes(out.op) if n.symbol == name)
    for i in reversed(range(len(node.fields))):
        block = out.op.body.block
        block.insert_op_before(ParamOp(f"at_{i}"), next(iter(block.ops)))
    sends = list(node.sends)
    for s in sends:
        s.detach()
    body = Body(node.block, node.location)
    env = dict(zip(node.fields, node.block.args[: len(node.fields)], strict=True))
    chosen = condition(body, Formula.all(Formula.compare(f, "==", f"at_{i}") for i, f in enumerate(node.fields)), env)
    for s in sends:
        value = s.operands[0]
        if value.type == chosen.type:
            pass  # a bit has no NaN; the node's reals do
        elif str(value.type).startswith("f"):
            s.operands[0] = body.add(arith.SelectOp(chosen, body.constant(math.nan, value.type), value))
        node.block.add_op(s)
    return out


def test_a_dead_instance_is_found():
    """The check itself: without elimination, the adjoint of the last step of LATE serves nobody."""
    from upl_mlir.pipeline import run
    from upl_mlir.universe import PASSES

    p = upl.load(LATE)
    whole = p.clone()
    run(whole.module, [PASSES["autodiff"]()(of="Y", wrt=("X",))])
    pruned = reverse(p, of="Y", wrt="X")
    counts = [q.infer_domains().check().firings for q in (upl.Program(whole.module), pruned)]
    assert counts[0].total is not None and counts[1].total is not None and counts[0].total >= counts[1].total
    assert reverse(p, of="Y", wrt="W").check().firings["DS"] == 3, "the fourth step does not reach Y"
