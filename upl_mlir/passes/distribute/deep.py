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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from upl_mlir.passes.distribute.exchanges import Deep
from upl_mlir.passes.loops.program import Block, LoopProgram
from upl_mlir.passes.loops.statements import Statement, statement
from upl_mlir.passes.loops.transform.wavefront import wavefront
from upl_mlir.passes.loops.tree import Box, Exchange, Guard, Leaf, Loop, Tree, leaves, replaced, subtrees
from upl_mlir.passes.storage import inverse
from upl_mlir.poly.expr import IndexExpr, divide, extremum
from upl_mlir.poly.linear import Con, Linear
from upl_mlir.poly.operators import DivKind, Extremum


def deepen(p: LoopProgram, steps: int, *, tiled: bool) -> list[Deep]:
    """Give the loops of a program's tree deep halos where that is possible; changes the program.

    With `tiled` the steps of a block are tiled, where that is possible.
    """
    out: list[Deep] = []
    for at, t in enumerate(p.scheduled):
        if isinstance(t, Loop) and not t.parallel and len(t.lows) == 1 and (spread := _spread(p, t)) is not None:
            found = _blocked(p, t, spread, steps, tiled=tiled)
            if found is not None:
                p.scheduled[at] = found.loop
                out.append(found)
    return out


@dataclass(frozen=True)
class _Spread:
    """How far the values of one step reach in those of the next: `step` indices beside the block on both sides.

    In one step, what the part number `n` of the loop's body computes is needed `ahead[n]` indices beside of what the step's
    last statements compute, as later statements read it there.  `halo` is what a step reads of earlier ones."""

    block: Block
    step: int
    ahead: Sequence[int]
    halo: int


def _spread(p: LoopProgram, loop: Loop) -> _Spread | None:
    """The spread of a loop over time, all of which is cut by one block; None if there is none, or none is known."""
    inside = list(leaves([loop]))
    cuts = [p.cuts.get(leaf.stmt.array) for leaf, _ in inside]
    block = cuts[0].block if cuts and cuts[0] is not None else None
    if block is None or any(c is None or c.block != block for c in cuts):
        return None
    if any(isinstance(t, Box) for t in subtrees([loop])) or any(p.system.equations[x.stmt.array].output for x, _ in inside):
        return None
    part = _parts(loop)
    reads = _reads(p, loop, part)
    if reads is None or not any(reach for *_, reach in reads):
        return None
    ahead = [0] * len(loop.body)
    for _ in range(len(ahead) + 1):  # Bellman and Ford
        new = list(ahead)
        for writer, reader, apart, reach in reads:
            if apart == 0:
                new[writer] = max(new[writer], new[reader] + reach)
        if new == ahead:
            break
        ahead = new
    else:
        return None
    later = [(ahead[reader] + reach, ahead[writer], apart) for writer, reader, apart, reach in reads if apart > 0]
    step = max([1, *(-((own - far) // apart) for far, own, apart in later)])
    return _Spread(block, step, [ahead[n] for n in part], max((far for far, *_ in later), default=0))


def _parts(loop: Loop) -> list[int]:
    """For each part of a body the number of the first one with which it shares arrays, directly or by others."""
    arrays = [{leaf.stmt.array for leaf, _ in leaves([t])} for t in loop.body]
    out = list(range(len(arrays)))
    for n, mine in enumerate(arrays):
        for m in range(n):
            if mine & arrays[m]:
                out = [out[m] if x == out[n] else x for x in out]
    return out


def _reads(p: LoopProgram, loop: Loop, part: Sequence[int]) -> list[tuple[int, int, int, int]] | None:
    """What is read in a loop of what is written in it: the writer's part, the reader's, how many steps later at least, and
    how far beside the reader's own index.  None if one of these is not known."""
    lin, out = p.system.lin, list[tuple[int, int, int, int]]()
    blocks = {n for c in p.cuts.values() for n in (c.block.first, c.block.last)}
    ends = {n: IndexExpr.of(f"{n} of another rank") for n in blocks}
    there = [(n, leaf) for n, t in zip(part, loop.body, strict=True) for leaf, _ in leaves([t])]
    for reader, r in there:
        own = IndexExpr.of(p.cuts[r.stmt.array].field)
        for read in r.stmt.reads:
            for writer, w in there:
                if w.stmt.array != read.array:
                    continue
                fields = w.stmt.fields
                index = dict(zip(fields, read.index, strict=True))
                cons = (*read.cons, *(Con(lin.plain(c.e.substitute(ends).substitute(index)), c.eq) for c in w.stmt.cons))
                if not lin.feasible(cons):
                    continue
                written, now = inverse(w, loop.var), inverse(r, loop.var)
                if written is None or now is None:
                    return None
                apart, _ = lin.bounds(cons, lin.plain(now - written.substitute(index)))
                reach = lin.bounds(cons, lin.plain(index[p.cuts[read.array].field] - own))
                if apart is None or apart < 0 or reach[0] is None or reach[1] is None:
                    return None
                out.append((writer, reader, apart, max(0, -reach[0], reach[1])))
    return out


def _blocked(p: LoopProgram, loop: Loop, spread: _Spread, steps: int, *, tiled: bool) -> Deep | None:
    """The loop over blocks of steps."""
    begin, block = loop.lows[0], spread.block
    names = {n: {e: f"{e} beside {n}" for e in (block.first, block.last)} for n in {*spread.ahead} - {0}}
    known = tuple(name for new in names.values() for name in new.values())
    ctx = p.system.lin.ctx
    lin = Linear(replace(ctx, params=(*ctx.params, *known), facts_cache={}), one_by_one=p.system.lin.one_by_one)
    body = [
        _renamed(lin, t, {e: IndexExpr.of(x) for e, x in names[n].items()}) if n else t
        for n, t in zip(spread.ahead, loop.body, strict=True)
    ]  # fmt: skip
    loop = replace(loop, body=body)
    tiles = wavefront(lin, [loop], p.kept, p.dependences(), steps=steps) if tiled else None
    outer = tiles[0] if tiles else loop
    var = f"{loop.var}b"
    first = begin + IndexExpr.of(var) * steps
    if outer is loop or not isinstance(outer, Loop):
        last = extremum(
            Extremum.MIN, [divide(DivKind.FLOORDIV, h - begin, IndexExpr.of(steps)) for h in loop.highs]
        )  # fmt: skip
        inner = Loop(loop.var, (first,), (*loop.highs, first + (steps - 1)), False, loop.body)
        outer = Loop(var, (IndexExpr(),), (last,), False, [inner], tiled=True)
    left, most = first + (steps - 1) - IndexExpr.of(loop.var), max(spread.ahead)
    near, far = _wider(block, left * spread.step), _wider(block, IndexExpr.of((steps - 1) * spread.step + most))
    for n, new in names.items():
        wider = _wider(block, left * spread.step + n)
        near |= {new[e]: wider[e] for e in new}
        far |= {new[e]: far[e] for e in new}
    new = _changed(p.system.lin, p, outer, loop.var, near, far)
    reach = (steps - 1) * spread.step
    return None if new is None else Deep(new, loop.var, first, reach + most, reach + max(spread.halo, most))


def _renamed(lin: Linear, t: Tree, names: Mapping[str, IndexExpr]) -> Tree:
    """The tree with other names for the ends of the block."""
    new = replaced(lin, t, names)
    assert new is not None  # names say nothing that could not hold
    return new


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

