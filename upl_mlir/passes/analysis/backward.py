"""The least fixpoint backward along arrows: the instances from which given ones are reached.

Cycles are taken one after the other, each after all that it leads to: what lies on none is exact at once.  Where a cycle
does not settle (a time loop of symbolic length), or conditions on it are not affine, the whole domain is taken instead.
More instances than needed are right for everyone who asks: a derivative of 0 is sent where none was needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from upl_mlir.passes.analysis.components import components
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.poly.expr import Formula
from upl_mlir.poly.sets import PSet

MAX_ROUNDS = 200
"""Rounds of the fixpoint after which a set is taken to have no end. Chosen, not measured."""
MAX_PIECES = 12  # of a set, or of its complement, during the fixpoint; more means that it grows with a size
SOON = 2  # rounds
DESCENTS = 4  # rounds from all instances downward, before those upward go on
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
) -> bool:
    """Add to `found`, which has a set for every key, all instances from which those in it are reached; whether no others.

    `domain` tells all instances of a key; `whole` says that a key is to be taken whole if any instance of it is reached.
    """
    by_goal: dict[K, list[Step[K]]] = {}
    for s in steps:
        by_goal.setdefault(s.goal, []).append(s)
    groups = components(list(found), lambda k: [p for s in by_goal.get(k, ()) for p in s.sources])
    reached = _Reached(sets, found, domain, whole)
    for group in reversed(groups):  # a component comes after those that it is reached from
        _settle(reached, group, by_goal)
    for k, s in found.items():
        found[k] = _ranges(s, domain(k))
    return reached.exact


def _ranges(s: PSet, whole: PSet) -> PSet:
    """The set without cases, where it is a part of `whole` that ranges of single dimensions cut out: of a network whose
    layers differ in width, ``2<=k<=4`` for three layers that were found one by one."""
    if s.isl.n_basic_set() < 2 or not s.exact or not whole.exact:
        return s
    around = whole
    for d in s.dims:
        low, high = s.extent(d)
        if low is not None and high is not None:
            inside = around.constrain(Formula.compare(low, "<=", d) & Formula.compare(d, "<=", high))
            if not around <= inside:
                around = inside
                if around <= s:
                    return around
    return s


@dataclass
class _Reached(Generic[K]):
    """What is found so far, and of each set that was asked for what its key has beside it."""

    sets: ProgramSets
    found: dict[K, PSet]
    domain: Callable[[K], PSet]
    whole: Callable[[K], bool]
    rest: dict[K, PSet] = field(default_factory=dict[K, PSet])
    exact: bool = True

    def back(self, s: Step[K], goal: PSet) -> PSet:
        """The instances that reach `goal` by a step; of a hull all that it has."""
        found = preimage(self.sets.relation(s.arrow), s.arrow, goal)
        self.exact = self.exact and found.exact
        return found.as_meant()

    def add(self, k: K, back: PSet, endless: bool = False) -> PSet | None:
        """Add instances of a key, or all if it is `endless`; what is new, None if nothing is."""
        if k not in self.rest:
            self.rest[k] = self.domain(k) - self.found[k]
        new = back & self.rest[k]
        if new.is_empty():
            return None
        rest = (self.rest[k] - back).coalesce()
        if rest.is_empty():
            return self.fill(k, True)
        if not (endless or self.whole(k)):
            grown = (self.found[k] | back).coalesce()
            if max(grown.isl.n_basic_set(), rest.isl.n_basic_set()) <= MAX_PIECES:
                self.found[k], self.rest[k] = grown, rest
                return min(back, new.coalesce(), key=lambda s: s.isl.n_basic_set())
        return self.fill(k)

    def whole_or_nothing(self, keys: Iterable[K]) -> bool:
        """Whether of each key all instances are found, or none."""
        return all(self.found[k] is self.domain(k) or self.found[k].is_empty() for k in keys)

    def fill(self, k: K, exact: bool = False) -> PSet:
        """Take all instances of a key."""
        self.exact = self.exact and exact
        self.found[k] = all_ = self.domain(k)
        self.rest[k] = self.sets.ctx.empty(all_.dims)
        return all_


def _settle(reached: _Reached[K], group: Sequence[K], by_goal: dict[K, list[Step[K]]]) -> None:
    """One component, whose goals outside are known: its steps until nothing changes; then those that leave it, once."""
    found = reached.found
    here = set(group)
    inner = [s for k in group for s in by_goal.get(k, ()) if here & set(s.sources)]
    new = {n: found[s.goal] for n, s in enumerate(inner) if not found[s.goal].is_empty()}
    if not _rounds(reached, here, inner, new, dict.fromkeys(group, 0)):
        for k in group:
            reached.fill(k)
    for k in group:
        for s in by_goal.get(k, ()) if not found[k].is_empty() else ():
            if (outside := [p for p in s.sources if p not in here]):
                back = reached.back(s, found[k])
                for p in outside:
                    reached.add(p, back)


def _rounds(
    reached: _Reached[K], here: set[K], steps: Sequence[Step[K]], new: dict[int, PSet], grown_often: dict[K, int],
    only_new: bool = False,
) -> bool:  # fmt: skip
    """Take each step of a component until nothing is new; whether that came to an end.

    `new` has for the steps that are to be taken what came to their goals since the last time.  To carry `only_new` parts
    (semi-naive evaluation) is much cheaper where sets grow in each round, but says the same sets in more pieces.  So a cycle
    that has not settled soon is first tried that way: most often all of it is taken whole in the end, however it is said.
    """
    ctx = reached.sets.ctx
    most = MAX_ROUNDS if not ctx.params else GROWTHS_UNKNOWN if ctx.unknown else GROWTHS
    for n_round in range(MAX_ROUNDS):
        if n_round == SOON and not ctx.params and _descend(reached, here, steps):
            return True
        if n_round == SOON and ctx.params and not only_new:
            trial = replace(reached, found=dict(reached.found), rest=dict(reached.rest))
            if _rounds(trial, here, steps, dict(new), dict(grown_often), True) and trial.whole_or_nothing(here):
                reached.found.update(trial.found)
                reached.rest.update(trial.rest)
                reached.exact = trial.exact
                return True
        for n, s in enumerate(steps):
            if n not in new:
                continue
            part = new.pop(n)
            back = reached.back(s, part if only_new else reached.found[s.goal])
            for k in here.intersection(s.sources):
                more = reached.add(k, back, grown_often[k] >= most or back.doubts() is not None)
                if more is None:
                    continue
                grown_often[k] += 1
                for m, t in enumerate(steps):
                    if t.goal == k:
                        new[m] = new[m] | more if m in new and more is not reached.found[k] else more
        if not new:
            return True
    return False


def _descend(reached: _Reached[K], here: set[K], steps: Sequence[Step[K]]) -> bool:
    """Take a component from above: all its instances but those that lead neither to what is found nor to others that stay.

    Instances do not wait for each other in a ring, and there are finitely many.  So each way ends, at what is found, and the
    greatest fixpoint is the least one (Tarski 1955: both exist; here there is one).  A time loop takes as many rounds from
    below as it has steps, from above a few.  False, with nothing changed, if these do not suffice or a set is not exact.
    Only for known sizes: with open ones, ends of time loops would be told apart, which keeps loops from being fused.
    """
    above = {k: reached.domain(k) for k in here}
    if not all(s.exact and s.isl.is_bounded() for s in above.values()):
        return False
    into: dict[K, list[Step[K]]] = {k: [s for s in steps if k in s.sources] for k in here}
    backs: dict[int, PSet] = {}
    for _ in range(DESCENTS):
        gone: dict[K, PSet] = {}
        for k, s in above.items():
            left = s - reached.found[k]
            for step in into[k]:
                if id(step) not in backs:
                    backs[id(step)] = preimage(reached.sets.relation(step.arrow), step.arrow, above[step.goal])
                back = backs[id(step)]
                if not back.exact or back.doubts() is not None:
                    return False
                left = left - back
            if not left.is_empty() and (not reached.whole(k) or s <= left):
                gone[k] = left
        if not gone:
            break
        for k, left in gone.items():
            above[k] = (above[k] - left).coalesce()
            if above[k].isl.n_basic_set() > MAX_PIECES:
                return False
        backs = {id(s): backs[id(s)] for s in steps if id(s) in backs and s.goal not in gone}
    else:
        return False
    certain = all(s.arrow.send.predicate is None for s in steps)  # else rings may be made of arrows that never go together
    for k, s in above.items():
        if s is reached.domain(k):
            reached.fill(k, certain)
        else:
            reached.found[k], reached.rest[k] = s, (reached.domain(k) - s).coalesce()
            reached.exact = reached.exact and certain
    return True


def preimage(relation: PSet, arrow: Arrow, target: PSet) -> PSet:
    """The source instances whose tokens reach `target` (a set over the target's fields)."""
    inside = target.rename(dict(zip(arrow.target.fields, arrow.dst, strict=True))).extend(arrow.dims)
    return (relation & inside).project(arrow.src)
