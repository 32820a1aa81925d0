"""Where and when the instances of a process are: lanes along one field, a loop nest in time.

A *slot* is a cycle in which the process goes on.  Every lane runs the loop nest once a run, `skew` slots after the
lane before it; an iteration takes a slot, and after the last iteration of an inner loop some slots may pass idle
(`every`).  Sizes are numbers here, so that questions are answered by looking at every instance: the answers are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.poly.counts.dense import Evaluator
from upl_mlir.poly.expr import Formula, IndexExpr

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Dim:
    """A field of a process: `extent` values from `low` on."""

    name: str
    low: int
    extent: int

    def __str__(self) -> str:
        return f"{self.name} in {self.low}..{self.low + self.extent - 1}"


@dataclass(frozen=True)
class Nest:
    """The instances over `dims` in space and time.

    Lane number ``(x - low) mod lanes`` has the value x of the field `along`; `order` are the loops, outermost first,
    that of
    `along` over blocks of `lanes` values; one iteration of loop number n takes `every[n]` slots.  The first iteration
    begins `start` slots after the circuit's first one; a run of the circuit takes `slots`.  The loops of the fields `down`
    run from the greatest value to the least.
    """

    dims: tuple[Dim, ...]
    along: str
    lanes: int
    order: tuple[str, ...]
    every: tuple[int, ...]
    skew: int
    slots: int
    start: int = 0
    down: tuple[str, ...] = ()

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """Iterations of the loops, by `order`."""
        by_name = {d.name: d for d in self.dims}
        return tuple(-(-by_name[f].extent // self.lanes) if f == self.along else by_name[f].extent for f in self.order)

    @property
    def busy(self) -> int:
        """Slots from the first iteration of a lane to its last one."""
        return sum((n - 1) * every for n, every in zip(self.extents, self.every, strict=True)) + 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of arrays over all instances: loops by `order`, then lanes."""
        return (*self.extents, self.lanes)

    @cached_property
    def block(self) -> int:
        """The loop over blocks of lanes, by number."""
        return self.order.index(self.along)

    @cached_property
    def grid(self) -> dict[str, Ints]:
        """The value of each field at each instance; arrays that broadcast to `shape`."""
        out: dict[str, Ints] = {}
        axes = len(self.shape)
        for d in self.dims:
            at = self.order.index(d.name)
            counts = np.arange(self.extents[at], dtype=np.int64).reshape([-1 if n == at else 1 for n in range(axes)])
            if d.name == self.along:
                lane = np.arange(self.lanes, dtype=np.int64).reshape([*[1] * (axes - 1), self.lanes])
                counts = counts * self.lanes + lane
            out[d.name] = self.count(d, counts) + d.low if d.name in self.down else counts + d.low
        return out

    def count(self, d: Dim, x: Any) -> Any:
        """The number, in its loop, of a value of a field that is given from its least one on; and back."""
        return d.extent - 1 - x if d.name in self.down else x

    @cached_property
    def slot(self) -> Ints:
        """The slot of each iteration of the first lane, from the circuit's first slot on; without the axis of lanes."""
        total = np.full((1,) * len(self.extents), self.start, dtype=np.int64)
        for at, (n, every) in enumerate(zip(self.extents, self.every, strict=True)):
            shape = [-1 if k == at else 1 for k in range(len(self.extents))]
            total = total + every * np.arange(n, dtype=np.int64).reshape(shape)
        return total

    @cached_property
    def inside(self) -> Bools:
        """Which instances are within the extents: a last block of lanes may have fewer."""
        dim = next(d for d in self.dims if d.name == self.along)
        return np.asarray(self.grid[self.along] < dim.low + dim.extent)

    def place(self, values: Mapping[str, Any]) -> tuple[Any, Any]:
        """Lane, and slot from the circuit's first one on, of instances given by the values of their fields."""
        slot: Any = self.start
        lane: Any = 0
        for d in self.dims:
            x = self.count(d, values[d.name] - d.low)
            if d.name == self.along:
                lane, x = x % self.lanes, x // self.lanes
            slot = slot + x * self.every[self.order.index(d.name)]
        return lane, slot + self.skew * lane

    def everywhere(self, value: Any) -> Any:
        """A value at every instance, of shape `shape`."""
        return np.broadcast_to(value, self.shape)

    def evaluate(self, e: IndexExpr, sizes: Evaluator) -> Any:
        """An index expression at every instance."""
        return sizes.given(self.grid).expr(e)

    def mask(self, f: Formula, sizes: Evaluator) -> Bools:
        """Where a formula over the fields holds, among the instances inside."""
        return self.everywhere(np.logical_and(sizes.given(self.grid).formula(f), self.inside))

    @cached_property
    def begins(self) -> Ints:
        """The slot of each instance, lanes included."""
        return np.broadcast_to(self.slot[..., None] + self.skew * np.arange(self.lanes), self.shape)

    @property
    def instances(self) -> int:
        """The number of instances, those outside of a last block included."""
        return prod(self.shape)


def tight(extents: Sequence[int], idle: Sequence[int]) -> tuple[int, ...]:
    """How many slots an iteration of each loop takes, if so many slots pass idle after the loops inside it."""
    every: list[int] = []
    inner = 1
    for n, more in zip(reversed(extents), reversed(idle), strict=True):
        every.append(inner + more)
        inner = n * every[-1]
    return tuple(reversed(every))


Box = tuple[tuple[int, int], ...]
"""A range of values, both ends included, for each axis."""


def boxes(mask: Bools) -> list[Box]:
    """Disjoint boxes that are the mask: runs of equal slices along the first axis, each cut alike."""
    if not mask.ndim:
        return [()] if mask else []
    flat = mask.reshape(mask.shape[0], -1)
    changes = np.flatnonzero((flat[1:] != flat[:-1]).any(axis=1)) + 1
    starts = [0, *changes.tolist()]
    ends = [*changes.tolist(), mask.shape[0]]
    return [
        ((first, last - 1), *rest) for first, last in zip(starts, ends, strict=True) for rest in boxes(mask[first])
    ]
