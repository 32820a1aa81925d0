"""The least fixpoint backward along arrows: the instances from which given ones are reached.

Cycles are taken one after the other, each after all that it leads to: what lies on none is exact at once.  Where a cycle
does not settle (a time loop of symbolic length), the whole domain is taken instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from upl_mlir.passes.components import components
from upl_mlir.passes.relations import Arrow, ProgramSets
from upl_mlir.poly.sets import PSet

MAX_ROUNDS = 200
MAX_PIECES = 32  # of a set during the fixpoint; more means that it grows with a symbolic size
GROWTHS = 6  # of one set in a cycle, where sizes are open
GROWTHS_UNKNOWN = 2  # where entries of symbolic arrays make each step costly

K = TypeVar("K")


@dataclass(frozen=True)
class Step(Generic[K]):
    """Whoever is reached at `goal` by the arrow is reached at each of `sources`, at the index that sent."""

    arrow: Arrow
    goal: K
    sources: Sequence[K]


def reaching(
    sets: ProgramSets,
    found: dict[K, PSet],
    steps: Sequence[Step[K]],
    domain: Callable[[K], PSet],
    whole: Callable[[K], bool] = lambda _: False,
) -> None:
    """Add to `found`, which has a set for every key, all instances from which those in it are reached.

    `domain` tells all instances of a key; `whole` says that a key is to be taken whole if any instance of it is reached.
    """
    by_goal: dict[K, list[Step[K]]] = {}
    for s in steps:
        by_goal.setdefault(s.goal, []).append(s)
    groups = components(list(found), lambda k: [p for s in by_goal.get(k, ()) for p in s.sources])
    for group in reversed(groups):  # a component comes after those that it is reached from
        _settle(sets, found, group, by_goal, domain, whole)


def _settle(
    sets: ProgramSets, found: dict[K, PSet], group: Sequence[K], by_goal: dict[K, list[Step[K]]],
    domain: Callable[[K], PSet], whole: Callable[[K], bool],
) -> None:  # fmt: skip
    """One component, whose goals outside are known: its steps until nothing changes; then those that leave it, once."""
    here = set(group)

    def add(k: K, back: PSet, endless: bool) -> bool:
        if found[k].is_empty() and back.is_empty():
            return False
        all_ = domain(k)
        if found[k] is all_ or back <= found[k]:
            return False
        grown = all_ if whole(k) or endless else (found[k] | back).coalesce()
        if grown is not all_ and (grown.isl.n_basic_set() > MAX_PIECES or all_ <= grown):
            grown = all_
        found[k] = grown
        return True

    inner = [s for k in group for s in by_goal.get(k, ()) if here & set(s.sources)]
    grown_often: dict[K, int] = dict.fromkeys(group, 0)
    most = MAX_ROUNDS if not sets.ctx.params else GROWTHS_UNKNOWN if sets.ctx.unknown else GROWTHS
    stable: dict[int, PSet] = {}
    for _ in range(MAX_ROUNDS):
        changed = False
        for n, s in enumerate(inner):
            goal = found[s.goal]
            if stable.get(n) is goal or goal.is_empty():
                continue
            stable[n] = goal
            back = preimage(sets.relation(s.arrow), s.arrow, goal)
            for k in here.intersection(s.sources):
                if add(k, back, grown_often[k] >= most):
                    changed = True
                    grown_often[k] += 1
        if not changed:
            break
    else:
        for k in group:
            found[k] = domain(k)
    for k in group:
        for s in by_goal.get(k, ()) if not found[k].is_empty() else ():
            if (outside := [p for p in s.sources if p not in here]):
                back = preimage(sets.relation(s.arrow), s.arrow, found[k])
                for p in outside:
                    add(p, back, False)


def preimage(relation: PSet, arrow: Arrow, target: PSet) -> PSet:
    """The source instances whose tokens reach `target` (a set over the target's fields)."""
    inside = target.rename(dict(zip(arrow.target.fields, arrow.dst, strict=True))).extend(arrow.dims)
    return (relation & inside).project(arrow.src)
