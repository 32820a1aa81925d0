"""What a Jacobian costs in each mode: instances of derivative nodes, as polynomials in the sizes.

One seed makes every node between `wrt` and `of` fire again, at the instances that lie between them.  Reverse mode takes a
seed for each element of `of`, forward mode one for each element of `wrt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TypeVar

from upl_mlir.dialects.upl import InputOp, NodeOp
from upl_mlir.dialects.upl.query import Endpoint
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.autodiff.activity import Activity, PortKey, analyse
from upl_mlir.passes.autodiff.dynamic import Dynamics
from upl_mlir.poly.counts.counting import count
from upl_mlir.poly.expr import Formula, IndexExpr, Var
from upl_mlir.poly.sets import PSet, union

BEYOND_LEAST = 9
"""By how much sizes exceed their least values where costs are compared at sizes.  Chosen, not measured: sizes are seldom
near their least, and where 10 decides otherwise than 1000 the note at the result says that it was 10."""


def sum_of(counts: Iterable[IndexExpr | None]) -> IndexExpr | None:
    """The sum; None if a part of it is not known."""
    known = list(counts)
    return None if None in known else reduce(IndexExpr.__add__, [n for n in known if n is not None], IndexExpr())


def elements(sets: ProgramSets, keys: Sequence[PortKey]) -> IndexExpr | None:
    """The number of elements of some ports."""
    return sum_of(count(sets.domain(name)) for name, _ in keys)


class Costs:
    """The costs of the modes in one program, in which no derivative passes arrows into `cut`."""

    def __init__(self, sets: ProgramSets, cut: frozenset[PortKey]):
        self.sets, self.cut = sets, cut
        self._found: dict[tuple[PortKey, tuple[PortKey, ...], bool], Activity] = {}

    def _activity(self, of: PortKey, wrts: tuple[PortKey, ...], *, adjoint: bool) -> Activity:
        """What lies between; an adjoint node stays whole where data decide what fires."""
        whole = adjoint and bool(self.sets.dynamic_nodes)
        key = of, wrts, whole
        if key not in self._found:
            asked = (Dynamics(self.sets).whole,) if whole else ()
            self._found[key] = analyse(self.sets, of, wrts, self.cut, *asked)
        return self._found[key]

    def _sources(self) -> list[InputOp | NodeOp]:
        return [op for op in self.sets.ends.values() if isinstance(op, InputOp | NodeOp)]

    def reverse(
        self, ofs: Sequence[PortKey], wrts: Sequence[PortKey], seeds: IndexExpr | None = None
    ) -> IndexExpr | None:
        """Instances of adjoint nodes for a seed at each element of `of`, or for so many `seeds`; None if not known."""
        found: list[IndexExpr | None] = []
        for of in ofs:
            activity = self._activity(of, tuple(wrts), adjoint=True)
            nodes = [activity.instances(op) for op in self._sources() if _has_adjoint(activity, op)]
            adjoints = sum_of(count(s) for s in nodes if s is not None)
            found.append(_times(seeds or elements(self.sets, [of]), adjoints))
        return sum_of(found)

    def forward(
        self, ofs: Sequence[PortKey], wrts: Sequence[PortKey], seeds: IndexExpr | None = None
    ) -> IndexExpr | None:
        """Instances of nodes with a tangent that reaches one of `of`, for a seed at each element of `wrt`, or for so many
        `seeds`; None if not known."""
        found: list[IndexExpr | None] = []
        for wrt in wrts:
            activities = [self._activity(of, (wrt,), adjoint=False) for of in ofs]
            moved = [instances(self.sets, [a.reached for a in activities])]
            if any(_computes(a, self.sets.ends[wrt[0]]) for a in activities):
                moved.append(elements(self.sets, [wrt]))
            found.append(_times(seeds or elements(self.sets, [wrt]), sum_of(moved)))
        return sum_of(found)


def _has_adjoint(activity: Activity, op: InputOp | NodeOp) -> bool:
    """Whether adjoint nodes stand for a node or host input; not where one derivative comes for each element, as it went."""
    if isinstance(op, NodeOp):
        return True
    arrows = [a for a in activity.sets.out_of(op.symbol) if activity.carries(a)]
    return len(arrows) != 1 or arrows[0].send.value is not op.value or not (
        arrows[0].send.when.is_true and arrows[0].exact and not arrows[0].loops and not arrows[0].stars
    )  # fmt: skip


def _computes(activity: Activity, op: Endpoint) -> bool:
    """Whether the arrows of a host input send more than its elements: a node has their tangents then."""
    return isinstance(op, InputOp) and any(
        a.send.value is not op.value for a in activity.sets.out_of(op.symbol) if activity.carries(a)
    )


def instances(sets: ProgramSets, reached: Iterable[Mapping[PortKey, PSet]]) -> IndexExpr | None:
    """The number of instances of nodes of which some input is reached; None if not known."""
    moved: dict[str, list[PSet]] = {}
    for found in reached:
        for (name, _), s in found.items():
            if isinstance(sets.ends[name], NodeOp) and not s.is_empty():
                moved.setdefault(name, []).append(s)
    return sum_of(count(union(parts).coalesce()) for parts in moved.values())


def _times(a: IndexExpr | None, b: IndexExpr | None) -> IndexExpr | None:
    return None if a is None or b is None else a * b


def fewer(sets: ProgramSets, a: IndexExpr | None, b: IndexExpr | None) -> tuple[bool, str]:
    """Whether `a` is less than `b`, and at what sizes that was decided (empty: it holds for all, or is open)."""
    if a is None or b is None:
        return a is not None, ""
    difference = a - b
    least = {p: _least(sets, p) for p in sets.ctx.params}
    moved = difference.substitute({p: IndexExpr.of(p) + v for p, v in least.items()})  # now every parameter is >= 0
    if all(isinstance(x, Var) for m, _ in moved.terms for x in m):
        if all(c >= 0 for _, c in moved.terms):
            return False, ""
        if all(c <= 0 for _, c in moved.terms):
            return True, ""
    sizes = {p: v + BEYOND_LEAST for p, v in least.items()}
    value = difference.evaluate({**sets.ctx.constants, **sizes}, sets.ctx.read)
    return value < 0, ", ".join(f"{p}={v}" for p, v in sizes.items())


def _least(sets: ProgramSets, param: str) -> int:
    low, _ = sets.ctx.set(("size",), sets.ctx.param_condition & Formula.compare("size", "==", param)).extent("size")
    return low if low is not None else 1


K = TypeVar("K")


def cheapest(sets: ProgramSets, costs: Mapping[K, IndexExpr | None]) -> tuple[K, str]:
    """The key with the least cost, the first of several, and at what sizes that was decided."""
    chosen, *others = costs
    at: dict[str, None] = {}
    for other in others:
        less, where = fewer(sets, costs[other], costs[chosen])
        at |= {where: None} if where else {}
        chosen = other if less else chosen
    return chosen, "".join(f" (compared at {where})" for where in at)
