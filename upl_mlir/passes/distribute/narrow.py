"""The equations of one rank: those of the whole program, each cut array as far as the rank's block goes (owner-computes).

    U<t,i> = f(U<t-1,i-1>)   where 1 <= i <= n-2     ->     ... where 1 <= i <= n-2 and first1 <= i <= last1

The loops that are made of these equations are those of every rank; `first1` and `last1` are parameters.
"""

from __future__ import annotations

from dataclasses import replace

from upl_mlir.dialects.upl.ops import ParamOp
from upl_mlir.passes.build import unused
from upl_mlir.passes.distribute.choice import Choice
from upl_mlir.passes.distribute.partial import Barrier, copies, divide
from upl_mlir.passes.loops.program import Block, Cut, LoopProgram
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.linear import Linear


def narrow(p: LoopProgram, choice: Choice, *, partial: bool) -> tuple[Linear, list[Barrier]]:
    """Cut the equations of a program that has no schedule yet; with `partial`, sums over cut fields are sums of parts.

    What the program knows then does not say that blocks lie inside of the whole: where its loops are widened (`deep.py`),
    their bounds must not rely on that.  What is returned says it; and what stands for the exchanges of partial arrays.
    """
    ctx = p.system.lin.ctx
    taken = {*ctx.params, *ctx.constants, *ctx.arrays, *ctx.unknown}
    for eq in p.system.equations.values():
        taken |= {*eq.fields, *(n for cons, _ in eq.pieces for c in cons for n in c.e.names)}
    blocks: dict[tuple[IndexExpr, IndexExpr], Block] = {}
    cuts: dict[str, Cut] = {}
    for name, f in choice.fields.items():
        found = choice.sets[name, f]
        ends = (found.low, found.high)
        if ends not in blocks:
            n = len(blocks) + 1
            first, last = (unused(f"{word}{n}", taken) for word in ("first", "last"))
            blocks[ends] = Block(first, last, *ends)
        cuts[name] = Cut(f, blocks[ends], tuple(p.system.equations[name].domain))
    barriers = divide(p, cuts, choice.serial, taken) if partial else []
    for name in [n for n in cuts if all(copies(term, p.partial) for _, term in p.system.equations[n].pieces)]:
        del cuts[name]  # every rank has it already
    p.cuts = cuts
    condition = weak = ctx.param_condition
    used = tuple(dict.fromkeys(c.block for c in cuts.values()))
    for b in used:
        known = block_facts(b)
        if len(p.system.lin.cases(known)) > 1:  # of a set of fields with different ends: elimination takes one case only
            known = Formula.compare(IndexExpr.of(b.first), "<=", IndexExpr.of(b.last) + 1)
        condition &= known
        weak &= Formula.compare(IndexExpr.of(b.first), "<=", IndexExpr.of(b.last) + 1)
        p.declarations = [*p.declarations, ParamOp(b.first), ParamOp(b.last, known)]
    names = tuple(n for b in used for n in (b.first, b.last))
    one_by_one = p.system.lin.one_by_one
    strong, weak_ = (
        Linear(replace(ctx, params=(*ctx.params, *names), param_condition=c, facts_cache={}), one_by_one=one_by_one)
        for c in (condition, weak)
    )  # fmt: skip
    p.system.lin = weak_
    for name, cut in cuts.items():
        eq = p.system.equations[name]
        own = cut.block.holds(IndexExpr.of(cut.field))
        lin = p.system.lin
        eq.domain = tuple((*c, *own) for c in eq.domain if lin.feasible((*c, *own)))
        eq.pieces = [((*c, *own), term) for c, term in eq.pieces if lin.feasible((*c, *own))]
    return strong, barriers


def block_facts(b: Block) -> Formula:
    """What is known of a block: it lies inside, and may be empty."""
    first, last = IndexExpr.of(b.first), IndexExpr.of(b.last)
    return (
        Formula.compare(b.low, "<=", first) & Formula.compare(first, "<=", last + 1) & Formula.compare(last, "<=", b.high)
    )
