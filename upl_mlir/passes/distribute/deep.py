"""Deep halos: ranks exchange once for several steps of a stencil, and compute some rows of their neighbours in between.

    for t { exchange U in <t-1, first-1..last+1>; for i in first..last { U<t,i> = f(U<t-1,i-1>, U<t-1,i+1>) } }
    ->
    for b { exchange U in <8*b, first-8..last+8>
            for t in 8*b+1..min(T, 8*b+8) { for i in first-(8*b+8-t)..last+(8*b+8-t) { ... } } }

The steps of a block are tiled as native code tiles them (`tile-time`).  A loop becomes one with deep halos if each of its
exchanges is a shift, of what an earlier step has written.

Source: overlapped tiling (Krishnamoorthy et al. 2007); ghost zones, as in Ding and He 2001.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from upl_mlir.passes.distribute.exchanges import Deep, Need
from upl_mlir.passes.loops.program import Block, LoopProgram
from upl_mlir.passes.loops.statements import Statement, statement
from upl_mlir.passes.loops.transform.wavefront import wavefront
from upl_mlir.passes.loops.tree import Box, Exchange, Guard, Leaf, Loop, Tree, leaves, replaced, subtrees
from upl_mlir.poly.expr import IndexExpr, divide, extremum
from upl_mlir.poly.linear import Linear
from upl_mlir.poly.operators import DivKind, Extremum


def deepen(p: LoopProgram, needs: Sequence[Need], steps: int) -> list[Deep]:
    """Give the loops of a program's tree deep halos where that is possible; changes the program."""
    out: list[Deep] = []
    for at, t in enumerate(p.scheduled):
        if not isinstance(t, Loop) or t.parallel or len(t.lows) != 1:
            continue
        mine = [n for n in needs if n.site.path[0][1] == at]
        width = _width(p, t, mine)
        if width is None:
            continue
        block, w = width
        found = _blocked(p, t, block, w, steps)
        if found is not None:
            p.scheduled[at] = found.loop
            out.append(found)
    return out


def _width(p: LoopProgram, loop: Loop, needs: Sequence[Need]) -> tuple[Block, int] | None:
    """The block by which all of a loop is cut, and how far a step reads beside it; None if the halo cannot be deep."""
    inside = list(leaves([loop]))
    cuts = [p.cuts.get(leaf.stmt.array) for leaf, _ in inside]
    if any(c is None or c.block != cuts[0].block for c in cuts if cuts[0] is not None) or cuts[0] is None:
        return None
    if any(isinstance(t, Box) for t in subtrees([loop])) or any(p.system.equations[x.stmt.array].output for x, _ in inside):
        return None
    block, w = cuts[0].block, 0
    written = {leaf.stmt.array for leaf, _ in inside}
    for n in needs:
        if n.depth == 0 and n.read.array not in written:
            continue  # of what was there before: it is asked for again
        if n.depth != 1 or n.place != 0 or n.kind != "shift" or n.when:
            return None
        at = p.system.equations[n.read.array].fields.index(p.cuts[n.read.array].field)
        r = n.ranges[at]
        for bounds, name, sign in ((r.lows, block.first, 1), (r.highs, block.last, -1)):
            near = [((IndexExpr.of(name) - e) * sign).constant for e in bounds if name in e.names]
            if len(near) != 1 or near[0] is None:
                return None
            w = max(w, near[0])
    return (block, w) if w else None


def _blocked(p: LoopProgram, loop: Loop, block: Block, w: int, steps: int) -> Deep | None:
    """The loop over blocks of steps."""
    lin = p.system.lin
    begin = loop.lows[0]
    tiled = wavefront(lin, [loop], p.kept, p.dependences(), steps=steps)
    outer = tiled[0] if tiled else loop
    var = f"{loop.var}b"
    first = begin + IndexExpr.of(var) * steps
    if outer is loop or not isinstance(outer, Loop):
        last = extremum(
            Extremum.MIN, [divide(DivKind.FLOORDIV, h - begin, IndexExpr.of(steps)) for h in loop.highs]
        )  # fmt: skip
        inner = Loop(loop.var, (first,), (*loop.highs, first + (steps - 1)), False, loop.body)
        outer = Loop(var, (IndexExpr(),), (last,), False, [inner], tiled=True)
    left = first + (steps - 1) - IndexExpr.of(loop.var)
    near, far = _wider(block, left * w), _wider(block, IndexExpr.of((steps - 1) * w))
    new = _changed(lin, p, outer, loop.var, near, far)
    return None if new is None else Deep(new, loop.var, first, (steps - 1) * w, steps * w)


def _wider(block: Block, by: IndexExpr) -> dict[str, IndexExpr]:
    """The ends of a block that is wider on both sides."""
    return {block.first: IndexExpr.of(block.first) - by, block.last: IndexExpr.of(block.last) + by}


def _changed(
    lin: Linear, p: LoopProgram, t: Loop, time: str, near: dict[str, IndexExpr], far: dict[str, IndexExpr]
) -> Loop | None:
    """The loops round the loop over time for the widest block, what is inside of it for that of the step."""
    whole: dict[Statement, Statement] = {}
    if t.var == time:
        body = [new for b in t.body if (new := replaced(lin, b, near)) is not None]
        body = [_with_whole(p, b, whole) for b in body]
    else:
        inner = [_changed(lin, p, b, time, near, far) for b in t.body if isinstance(b, Loop)]
        if len(inner) != len(t.body) or any(b is None for b in inner):
            return None
        body = list[Tree](b for b in inner if b is not None)

    def bound(e: IndexExpr) -> IndexExpr:
        return lin.plain(e.substitute(far))

    return replace(t, lows=tuple(map(bound, t.lows)), highs=tuple(map(bound, t.highs)), body=body)


def _with_whole(p: LoopProgram, t: Tree, known: dict[Statement, Statement]) -> Tree:
    """The tree with statements that hold on every rank, not on the one that owns the element."""
    match t:
        case Leaf(stmt, env):
            if stmt not in known:
                known[stmt] = _whole(p, stmt)
            return Leaf(known[stmt], env)
        case Loop():
            return replace(t, body=[_with_whole(p, b, known) for b in t.body])
        case Guard(cons, body, other):
            return Guard(cons, *([_with_whole(p, b, known) for b in x] for x in (body, other)))
        case Box() | Exchange():
            return t


def _whole(p: LoopProgram, s: Statement) -> Statement:
    """A statement without the constraint that the rank owns its element."""
    blocks = {n for c in p.cuts.values() for n in (c.block.first, c.block.last)}
    cons = tuple(c for c in s.cons if not c.e.names & blocks)
    return statement(p.system, s.at, p.system.equations[s.array], cons, s.term)

