# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (islpy ships no usable types)
"""Whether the dependences themselves keep the instances of a space apart in time along one of its dimensions.

Points fire after all points that they depend on. What is asked: may a token for a point be sent before the points `by` and
more before it, along one dimension, have fired? If never, `by` of them at a time is enough room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import islpy as isl

from upl_mlir.poly.sets import DIM, PSet
from upl_mlir.poly.tools import as_map

MAX_STEPS = 12  # of a chain of dependences that is looked for
MAX_PIECES = 200  # of a relation that is followed


@dataclass(frozen=True)
class Step:
    """Points of space `source` send to points of space `target`; `sure`: exactly these tokens are sent."""

    source: int
    target: int
    tokens: isl.Map
    sure: bool


def explicit(s: PSet) -> isl.Set:
    """A set without parameters of the program as a set of numbers."""
    empty = isl.Set.empty(s.isl.get_space()).project_out_all_params()
    parts = [part.numeric().isl.project_out_all_params() for part in s.slices()]
    return reduce(lambda a, b: a.union(b), parts, empty).coalesce()


def step(source: int, target: int, relation: PSet, n_source: int, *, sure: bool) -> Step:
    """A step from a relation over the dimensions of the source, then of the target."""
    return Step(source, target, as_map(explicit(relation), n_source), sure)


class Windows:
    """Spaces, given by their points, and the steps between them."""

    def __init__(self, points: Sequence[isl.Set], steps: Sequence[Step]):
        self.points = list(points)
        self.steps = [s for s in steps if not s.tokens.is_empty()]
        self._after: dict[int, dict[int, isl.Map]] = {}

    def apart(self, space: int, classes: Sequence[tuple[Sequence[Step], Sequence[int]]], along: int, by: int) -> bool:
        """Whether every token for a point comes after all points `by` before it along a dimension have fired.

        A class is the steps that send the tokens of one input, with the dimensions that its tokens have, `along` among them:
        its tokens are the same place's if they agree in the others.
        """
        return all(self._class_apart(space, steps, dims, along, by) for steps, dims in classes)

    def _class_apart(self, space: int, steps: Sequence[Step], dims: Sequence[int], along: int, by: int) -> bool:
        points = self.points[space]
        same = [n for n in dims if n != along]
        near = _shift(points, same, along, by, exact=True)
        far = _shift(points, same, along, 2 * by, exact=False, multiple=by)
        if not far.range().is_subset(near.range()):
            return False  # a hole between: what is further back is not kept apart by what is near
        for s in steps:
            if s.tokens.is_empty():
                continue
            wanted = near.apply_range(s.tokens.reverse())
            if not wanted.is_empty() and not self._reaches(space, s.source, wanted):
                return False
        return True

    def _reaches(self, start: int, end: int, wanted: isl.Map) -> bool:
        """Whether all wanted pairs are a point of `start` and one of `end` that depends on it, or is it."""
        identity = isl.Map.identity(self.points[start].get_space().map_from_set()).intersect_domain(self.points[start])
        missing = wanted.subtract(identity) if end == start else wanted
        frontier = {start: identity}
        seen = {start: identity}
        for _ in range(MAX_STEPS):
            if missing.is_empty():
                return True
            new: dict[int, isl.Map] = {}
            for s in self.steps:
                if s.sure and s.source in frontier:
                    image = frontier[s.source].apply_range(s.tokens)
                    new[s.target] = new[s.target].union(image) if s.target in new else image
            frontier = {}
            for target, found in new.items():
                fresh = (found.subtract(seen[target]) if target in seen else found).coalesce()
                if fresh.is_empty():
                    continue
                if fresh.n_basic_map() > MAX_PIECES:
                    return False
                frontier[target] = fresh
                seen[target] = (seen[target].union(fresh) if target in seen else fresh).coalesce()
            if end in frontier:
                missing = missing.subtract(frontier[end])
            if not frontier:
                break
        return bool(missing.is_empty())


def _shift(
    points: isl.Set, same: Sequence[int], along: int, by: int, *, exact: bool, multiple: int = 1
) -> isl.Map:
    """Pairs of points that agree in some dimensions, the second one `by` (or a greater multiple) further along another."""
    n = points.dim(DIM)
    a, b = [f"a{i}" for i in range(n)], [f"b{i}" for i in range(n)]
    conditions = [f"a{i} = b{i}" for i in same]
    if exact:
        conditions.append(f"b{along} = a{along} + {by}")
    else:
        conditions.append(f"exists (e : b{along} = a{along} + {multiple}*e and {multiple}*e >= {by})")
    text = f"{{ [{','.join(a)}] -> [{','.join(b)}] : {' and '.join(conditions)} }}"
    return isl.Map.read_from_str(isl.DEFAULT_CONTEXT, text).intersect_domain(points).intersect_range(points)
