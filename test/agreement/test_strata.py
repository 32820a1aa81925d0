"""Ranks of open gathers: what is found, and that in runs they rise along every way from an open gather to an open gather."""

from __future__ import annotations

from typing import Any

import pytest

import upl_mlir as upl
from agreement.ways import ways
from upl_mlir.dialects.upl import NodeOp
from upl_mlir.dialects.upl.query import nodes, poly_context
from upl_mlir.engines.interp.engine import Engine, Event
from upl_mlir.host.arrays import bind_arrays

HEAD = "program p\nparam n >= 2\nparam T >= 2\n"
FOUND = {
    "one": ("""
input X<i> in 0<=i<n { -> S.s<0> }
output Y
node S<i> in i==0 { in @(+) s[##]; s -> Y }
""", {"S": "0"}),
    "one after the other": ("""
input X<i> in 0<=i<n { -> A.s<i> }
output Y<i>
node A<i> in 0<=i<n { in @(+) s[##]; s -> B.s<i> }
node B<i> in 0<=i<n { in @(max) s[##]; s -> Y }
""", {"A": "0", "B": "1"}),
    "beside each other": ("""
input X<i> in 0<=i<n { -> A.s<i>; -> B.s<i> }
output Y<i>
node C<i> { in a, b; a+b -> Y }
node A<i> in 0<=i<n { in @(+) s[##]; s -> C.a }
node B<i> in 0<=i<n { in @(+) s[##]; s -> C.b }
""", {"A": "0", "B": "0"}),
    "steps": ("""
input X<i> in 0<=i<n { -> S.s<0,i> }
output Y<i>
node S<t,i> in 0<=t<=T, 0<=i<n { in @(+) s[##]; if t<T: s -> S.s<t+1,i>; if t==T: s -> Y<i> }
""", {"S": "t"}),
    "steps backward": ("""
input X<i> in 0<=i<n { -> S.s<T,i> }
output Y<i>
node S<t,i> in 0<=t<=T, 0<=i<n { in @(+) s[##]; if t>0: s -> S.s<t-1,i>; if t==0: s -> Y<i> }
""", {"S": "-t"}),
    "two in a step": ("""
input X<i> in 0<=i<n { -> A.s<0,i> }
output Y<i>
node A<t,i> in 0<=t<T, 0<=i<n { in @(+) s[##]; s -> B.s<t,i> }
node B<t,i> in 0<=t<T, 0<=i<n { in @(+) s[##]; if t<T-1: s -> A.s<t+1,i>; if t==T-1: s -> Y<i> }
""", {"A": "t, 0", "B": "t, 1"}),
    "steps in rounds": ("""
input X { -> S.s<0,0> }
output Y
node S<r,t> in 0<=r<n, 0<=t<T {
  in @(+) s[##]
  if t<T-1: s -> S.s<r,t+1>
  if t==T-1 && r<n-1: s -> S.s<r+1,0>
  if t==T-1 && r==n-1: s -> Y
}
""", {"S": "r, t"}),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_is_found(name: str) -> None:
    text, want = FOUND[name]
    p = upl.load(HEAD + text)
    assert p.check().ok, p.check().diagnostics()
    found = {op.symbol: ", ".join(map(str, op.rank.data)) for op in nodes(p.op) if op.rank is not None}
    assert found == want


def rises(p: upl.Program, arrays: dict[str, Any]) -> int:
    """Run a program and look at every way in it; how many open gathers ended after another one that led to them."""
    p = p.expanded().infer_domains()
    ranks = {op.symbol: op for op in nodes(p.op) if op.rank is not None}
    ctx = poly_context(p.op, {})
    sent: dict[tuple[str, tuple[int | None, ...]], list[tuple[str, tuple[int, ...]]]] = {}
    before: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}
    now: list[Any] = [None]
    seen = 0

    def rank(op: NodeOp, x: tuple[int, ...]) -> tuple[int, ...]:
        assert op.rank is not None
        env = {**ctx.constants, **dict(zip(op.fields, x, strict=True))}
        return tuple(e.evaluate(env, ctx.read) for e in op.rank.data)

    def follow(event: Event, name: str, index: tuple[int | None, ...], value: Any) -> None:
        nonlocal seen
        if event is Event.SEND:
            sent.setdefault((name.partition(".")[0], index), []).append(now[0])
            return
        x = tuple(i for i in index if i is not None)
        sources = [s for (node, at), found in sent.items() if node == name for s in found
                   if len(at) == len(x) and all(a in (None, b) for a, b in zip(at, x, strict=True))]  # fmt: skip
        greatest = max((before[s] for s in sources if s in before), default=())
        if name in ranks:
            mine = rank(ranks[name], x)
            assert mine > greatest, (name, x, mine, greatest)
            seen += greatest != ()
            greatest = mine
        now[0] = (name, x)
        before[now[0]] = greatest

    engine = Engine(p.op, {}, trace=follow)
    engine.run(bind_arrays(p.op, engine.ports, arrays))
    return seen


def test_ranks_rise_along_every_way_of_a_run() -> None:
    """Of programs whose ways data decide, and of their gradients: from tokens sent to instances fired."""
    pytest.importorskip("jax", reason="JAX, by which these programs are made, is not installed")
    seen = 0
    for seed in range(16):
        w = ways(seed)
        p = upl.load(w.text)
        seen += rises(p, w.arrays)
        size = len(w.value(*[w.arrays[n] for n in w.wrt]))
        seen += rises(upl.vjp(p, of="Y", wrt=list(w.wrt)), {**w.arrays, "d_Y": [1.0] * size})
    assert seen > 50
