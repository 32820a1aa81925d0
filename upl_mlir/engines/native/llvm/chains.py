"""Loops of scalars that read elements which data choose, as two chains of sums that grow in turn.

    for p in lo..hi: s += V[p] * X[j[p]]
    ->
    for p in lo..hi-1 step 2: s += V[p] * X[j[p]];  r += V[p+1] * X[j[p+1]]
    s += r;  if an iteration is left: s += …

So an addition need not wait for the one before.  LLVM's vectoriser does the same where the loop has no ways apart; here an
element is read if its index is within bounds.  Other values that the loop carries go through both iterations.

In `relaxed` code.
"""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.ir import SSAValue

from upl_mlir.engines.native.llvm import gathers, tails
from upl_mlir.engines.native.llvm.emitter import Emitter
from upl_mlir.engines.native.llvm.gathers import NOTHING, Plan
from upl_mlir.engines.native.llvm.scalar_ops import flags
from upl_mlir.engines.native.llvm.text import llvm_type


def emitted(e: Emitter, loop: scf.ForOp, lower: str, upper: str, step: str) -> list[str] | None:
    """Write a loop from `lower` to below `upper`; gives what it hands on, None if not of the kind."""
    if e.ordered or step != "1" or not tails.chooses(loop):
        return None
    block = loop.body.block
    sums = [_sum(arg, handed) for arg, handed in zip(block.args[1:], block.last_op.operands, strict=True)]  # type: ignore[union-attr]
    if not any(sums):
        return None
    c, types, first = e.code, [llvm_type(a.type) for a in block.args[1:]], e.texts(loop.iter_args)

    def iteration(at: str, given: list[str]) -> list[str]:
        e.values.update(zip(block.args, (at, *given), strict=True))
        return e.body(block)

    plan = Plan(block, sums)
    if e.library.vector_bytes == gathers.WIDTH and plan.fits():
        lower, first = gathers.emitted(e, plan, lower, upper, first, iteration)
    header, inside, done, one, end = (c.label(n) for n in ("pairs", "pair", "paired", "one", "end"))
    before = c.block
    c.jump(header)
    c.begin(header)
    counter = c.phi("i64", "iv")
    own, other = ([c.phi(t) for t in types] for _ in range(2))
    second = c.add(counter.name, "1")
    c.branch(c.let(f"icmp slt i64 {second}, {upper}", "c"), inside, done)
    c.begin(inside)
    here = iteration(counter.name, [p.name for p in own])
    there = iteration(second, [(o if s else h) for o, s, h in zip((p.name for p in other), sums, here, strict=True)])
    following = c.add(counter.name, "2")
    counter.close((lower, before), (following, c.block))
    for p, q, s, start, a, b in zip(own, other, sums, first, here, there, strict=True):
        p.close((start, before), (a if s else b, c.block))
        q.close((NOTHING if s else start, before), (b, c.block))
    c.do(f"br label %{header}{e.library.known(tails.A_LOOP)}")
    c.begin(done)
    found = [
        c.let(f"fadd{flags(s)} {t} {p.name}, {q.name}") if s else p.name
        for p, q, s, t in zip(own, other, sums, types, strict=True)
    ]
    c.branch(c.let(f"icmp slt i64 {counter.name}, {upper}", "c"), one, end)
    before = c.block
    c.begin(one)
    last = iteration(counter.name, found)
    after = c.block
    c.jump(end)
    c.begin(end)
    out = [c.phi(t) for t in types]
    for p, a, b in zip(out, found, last, strict=True):
        p.close((a, before), (b, after))
    return [p.name for p in out]


def _sum(arg: SSAValue, handed: SSAValue) -> arith.AddfOp | None:
    """The addition by which a sum in any order grows."""
    op = handed.owner
    if not isinstance(op, arith.AddfOp) or arg not in op.operands or len(list(arg.uses)) != 1:
        return None
    return op if "reassoc" in flags(op) else None
