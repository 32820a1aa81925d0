"""Conditions over the counters of a loop nest: ranges, boxes, and half-planes for triangles and the like.

A condition is given by two arrays over the counters, where it holds and where it does not; elsewhere it may be anything.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import gcd
from operator import and_, or_
from typing import Any

import numpy as np
from amaranth.hdl import Const, Module, Signal, Value

from upl_mlir.passes.circuit.nest import Bools, Box, boxes

MOST_BOXES = 24
"""Boxes of a condition: each is a few comparisons."""
MOST_PLANES = 8
"""Half-planes of a condition: each is an addition and a comparison."""
MOST_AXES = 3
"""Counters that a half-plane adds."""


@dataclass(frozen=True)
class Plane:
    """Where ``sum(by * counters) <= limit``."""

    by: tuple[int, ...]
    limit: int


class Conditions:
    """Conditions over the counters of a nest, each a register, two slots after the counters; equal ones are made once.

    `scales`: by how much the value of a field changes when its counter goes on.
    """

    LATENCY = 2

    def __init__(
        self, m: Module, counters: Sequence[Value], extents: Sequence[int], enable: Value, scales: Sequence[int] = ()
    ):
        self.m, self.counters, self.extents, self.enable = m, counters, extents, enable
        self.scales = tuple(scales) or (1,) * len(extents)
        self._made: dict[object, Signal] = {}

    def of(self, yes: Bools, no: Bools) -> Any:
        """A bit that is 1 where `yes` holds and 0 where `no` holds; arrays over the counters.  None if it is no small
        one."""
        if not no.any():
            return Const(1)
        if not yes.any():
            return Const(0)
        found = _along_one(yes, no)
        if found is None:
            found = boxes(yes)
        if len(found) <= MOST_BOXES:
            return self._any(found)
        for one, other in ((yes, no), (no, yes)):
            planes = half_planes(one, other, self.scales)
            if planes is not None:
                bit = self._all(planes)
                return bit if one is yes else ~bit
        return None

    def _any(self, found: Sequence[Box]) -> Signal:
        key = tuple(found)
        if key not in self._made:
            self._made[key] = self._register(reduce(or_, [self._box(b) for b in found]))
        return self._made[key]

    def _box(self, box: Box) -> Signal:
        if box not in self._made:
            ranges = zip(self.counters, self.extents, box, strict=True)
            self._made[box] = self._register(reduce(and_, [_between(c, n, *span) for c, n, span in ranges], Const(1)))
        return self._made[box]

    def _all(self, planes: Sequence[Plane]) -> Signal:
        key = tuple(planes)
        if key not in self._made:
            self._made[key] = self._register(reduce(and_, [self._plane(p) for p in planes]))
        return self._made[key]

    def _plane(self, p: Plane) -> Signal:
        if p not in self._made:
            total = sum((c * k for c, k in zip(self.counters, p.by, strict=True) if k), Const(0))
            self._made[p] = self._register(total <= p.limit)
        return self._made[p]

    def _register(self, value: Value) -> Signal:
        out = Signal(name=f"condition_{len(self._made)}")
        with self.m.If(self.enable):
            self.m.d.sync += out.eq(value)
        return out


def half_planes(yes: Bools, no: Bools, scales: Sequence[int]) -> list[Plane] | None:
    """Half-planes in which all of `yes` lies, and none of `no`; None if there are no few ones.

    Only directions are looked at in which fields have factors up to 2.
    """
    axes = _needed(yes, no)
    if len(axes) > MOST_AXES:
        return None
    others = tuple(a for a in range(yes.ndim) if a not in axes)
    inside, left = np.argwhere(yes.any(axis=others)), np.argwhere(no.any(axis=others))
    found: list[tuple[np.ndarray[Any, Any], int]] = []
    for by in product(range(-2, 3), repeat=len(axes)):
        way = np.array([k * scales[a] for k, a in zip(by, axes, strict=True)])
        if gcd(*by) == 1:
            found.append((way, int((inside @ way).max())))
    planes: list[Plane] = []
    while len(left):
        if len(planes) == MOST_PLANES:
            return None
        way, limit = max(found, key=lambda f: int((left @ f[0] > f[1]).sum()))
        out = left @ way > limit
        if not out.any():
            return None
        left = left[~out]
        by = [0] * yes.ndim
        for a, k in zip(axes, way.tolist(), strict=True):
            by[a] = k
        planes.append(Plane(tuple(by), limit))
    return planes


def _needed(yes: Bools, no: Bools) -> list[int]:
    """Axes that decide together."""
    axes = list(range(yes.ndim))
    for a in range(yes.ndim):
        others = tuple(x for x in range(yes.ndim) if x == a or x not in axes)
        if not (yes.any(axis=others) & no.any(axis=others)).any():
            axes.remove(a)
    return axes


def _between(counter: Value, extent: int, low: int, high: int) -> Any:
    if low == high and extent > 1:
        return counter == low
    above = Const(1) if low <= 0 else counter >= low
    return above if high >= extent - 1 else above & (counter <= high)


def _along_one(yes: Any, no: Any) -> list[Box] | None:
    """Ranges of one counter that decide, with the others free; None if one alone does not."""
    for axis in range(yes.ndim):
        others = tuple(a for a in range(yes.ndim) if a != axis)
        wanted, banned = yes.any(axis=others), no.any(axis=others)
        if (wanted & banned).any():
            continue
        spans: list[list[int]] = []
        for n in np.flatnonzero(wanted).tolist():
            if spans and not banned[spans[-1][1] : n].any():
                spans[-1][1] = n
            else:
                spans.append([n, n])
        full = [(0, e - 1) for e in yes.shape]
        return [tuple((low, high) if a == axis else f for a, f in enumerate(full)) for low, high in spans]
    return None
