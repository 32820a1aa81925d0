"""Where a run can be saved and taken up again: at the beginning of each iteration of the outermost loops over steps.

    nest; for t in 1..T { body }; nest
    ->
    if restart <= 0 { nest }
    if restart <= 1 { for t in max(1, begin1)..T { save or load what is kept; body } }
    nest

`restart` is the number of the loop in which a run is taken up (0: it begins), `begin1` the iteration.  What stands before
that loop is left out.  The rank loads what it owns and what every rank has; what it had received before is not saved.  So a
loop is left out whose body, or what follows, reads elements that were received before it, of arrays that change later: their
owners may not have these any more.  Elements received inside of the loop are received in the iteration that reads them.

This goes on what is proved already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from upl_mlir.passes.distribute.schedule import Distributed
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.transform.wavefront import STEPS
from upl_mlir.passes.loops.tree import Guard, Loop, Tree, leaves
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Con, Linear

RESTART = "restart at"
"""The parameter that is the number of the loop in which a run is taken up."""


@dataclass(frozen=True)
class Saved:
    """A loop at whose iterations a run may be saved: its variable, the parameter `begin`, the steps of an iteration, and the
    arrays, whose calls are numbered from `first` on."""

    var: str
    begin: str
    steps: int
    arrays: tuple[str, ...]
    first: int


def restartable(d: Distributed) -> list[Saved]:
    """Change a distributed program so that it can be saved and taken up; returns the loops at which it can."""
    p = d.program
    found: dict[int, tuple[Loop, tuple[str, ...]]] = {}
    for at, t in enumerate(p.scheduled):
        if isinstance(t, Loop) and not t.parallel and not _from_before(d, at):
            arrays = _kept(p, at)
            if arrays:
                found[at] = (t, arrays)
    if not found:
        return []
    out: list[Saved] = []
    number = len(d.exchanges)
    for n, (loop, arrays) in enumerate(found.values(), start=1):
        out.append(Saved(loop.var, f"begin {n}", STEPS if loop.tiled else 1, arrays, number))
        number += len(arrays)
    tree: list[Tree] = []
    loops = iter(zip(range(1, len(out) + 1), out, strict=True))
    before = 0
    for at, t in enumerate(p.scheduled):
        if at in found:
            before, saved = next(loops)
            loop = found[at][0]
            loop.lows = (*loop.lows, IndexExpr.of(saved.begin))
        elif before == len(out):
            tree.append(t)
            continue
        tree.append(Guard((Con(IndexExpr.of(before) - IndexExpr.of(RESTART)),), [t]))
    p.tree = tree
    p.saved = {s.var: tuple(enumerate(s.arrays, start=s.first)) for s in out}
    lin = p.system.lin
    p.begun = (RESTART, *(s.begin for s in out))
    params = (*lin.ctx.params, *p.begun)
    p.system.lin = Linear(replace(lin.ctx, params=params, facts_cache={}), one_by_one=lin.one_by_one)
    return out


def _written(tree: Sequence[Tree]) -> set[str]:
    return {leaf.stmt.array for leaf, _ in leaves(tree)}


def _read(tree: Sequence[Tree]) -> set[str]:
    return {r.array for leaf, _ in leaves(tree) for r in leaf.stmt.reads}


def _kept(p: LoopProgram, at: int) -> tuple[str, ...]:
    """The arrays with elements that are written before an iteration of a loop ends, and that something later needs."""
    early, late = _written(p.scheduled[: at + 1]), _read(p.scheduled[at:])
    local = (a.name for a in p.kept.values() if a.private is None and a.name in early & late)
    return (*local, *(h.name for h in p.hosts if h.output and h.name in early))


def _from_before(d: Distributed, at: int) -> bool:
    """Whether a loop, or what follows, reads what was received before it of an array that is written in or after it."""
    tree = d.program.scheduled
    later, changed = {id(leaf) for leaf, _ in leaves(tree[at:])}, _written(tree[at:])
    return any(
        not x.outer and x.exchange.array in changed and any(id(n.site.leaf) in later for n in x.needs)
        for x in d.exchanges
        if not any(s is x.exchange for t in tree[at:] for s in _exchanges(t))
    )


def _exchanges(t: Tree) -> list[Tree]:
    match t:
        case Loop(body=body):
            return [x for b in body for x in _exchanges(b)]
        case Guard(body=body, other=other):
            return [x for b in (*body, *other) for x in _exchanges(b)]
        case _:
            return [t]
