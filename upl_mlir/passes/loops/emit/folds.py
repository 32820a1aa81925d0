# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""Folds of neighbouring statements over the same values in one loop: where data decide, a value, how many summands there
are and whether something went wrong are folds over the same elements, which are then read once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.emit.split import Body, in_parts
from upl_mlir.passes.loops.emit.values import Env, Values, neutral
from upl_mlir.passes.loops.terms import Fold, Get, Part, arguments, inner_first, made_of
from upl_mlir.passes.loops.tree import Leaf, Tree
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Con

Ends = tuple[tuple[IndexExpr, ...], tuple[IndexExpr, ...]]


@dataclass(frozen=True, eq=False)
class Single:
    """A part of a fold with one loop, at the indices `env`; `outside` are those of the statement, if it has more."""

    fold: Fold
    part: Part
    env: Env
    outside: Env | None = None


def fold_together(values: Values, trees: Sequence[Tree]) -> None:
    """Write the loops that several statements among neighbours share; what they make is known to `values` then."""
    run: list[Leaf] = []
    for t in trees:
        if not isinstance(t, Leaf):
            break
        run.append(t)
    if len(run) < 2:
        return
    written = {leaf.stmt.array for leaf in run}
    groups: dict[Ends, list[Single]] = {}
    for leaf in run:
        for ends, one in singles(values, leaf, written):
            groups.setdefault(ends, []).append(one)
    for ends, group in groups.items():
        if len({id(one.env) for one in group}) > 1:
            share(values, group[0].part.dims[0], ends, group)


def singles(values: Values, leaf: Leaf, written: Collection[str]) -> Iterator[tuple[Ends, Single]]:
    """The parts of a statement's folds that may share a loop which writes some arrays, with its bounds."""
    for t in inner_first(leaf.stmt.term, arguments):
        if isinstance(t, Fold):
            for part in t.parts:
                ends = _ends(values, t, part, leaf.env)
                if ends is not None and not _reads(part, written):
                    yield ends, Single(t, part, leaf.env)


def _reads(part: Part, arrays: Collection[str]) -> bool:
    return any(isinstance(t, Get) and t.array in arrays for t in inner_first(part.body, made_of))


def _ends(values: Values, t: Fold, part: Part, env: Env) -> Ends | None:
    """The bounds of a part's only loop, if they are all that its summands ask for; None if it may not share it."""
    if len(part.dims) != 1 or part.guards or values.matched(t, part)[1]:
        return None
    if part is not t.parts[0] and t.gather.rounds and t.kind is not Kind.INT and values.f.flags is None:
        return None  # its summands come one by one behind those before
    cons = values.at(part.cons, env)
    lows, highs = values.f.limits(cons, part.dims)
    x = IndexExpr.of(part.dims[0])
    inside = (*values.code.scope.context, *(Con(x - b) for b in lows), *(Con(b - x) for b in highs))
    return (tuple(lows), tuple(highs)) if all(values.lin.implies(inside, c) for c in cons) else None


def share(values: Values, var: str, ends: Ends, group: Sequence[Single], also: Callable[[], object] = lambda: None) -> None:
    """One loop for parts of folds, which `values` knows then; `also` writes what else is done in it, first."""
    code, (lows, highs) = values.code, ends
    starts = [neutral(code, one.fold) for one in group]

    def write(accs: Sequence[SSAValue]) -> Sequence[SSAValue]:
        also()
        at = code.index(IndexExpr.of(var))
        out: list[SSAValue] = []
        for one, acc in zip(group, accs, strict=True):
            x = IndexExpr.of(one.part.dims[0])
            with code.taken_for(x, at, lows, highs):
                out.append(values.summand(one.fold, one.part, one.env, acc))
        return out

    bodies = [Body(one.part.dims[0], one.part.body, one.env) for one in group]
    for one, found in zip(group, in_parts(values, var, lows, highs, starts, bodies, write), strict=True):
        values.know(one.part, one.env, found)
