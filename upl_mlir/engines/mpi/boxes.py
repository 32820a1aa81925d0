"""The blocks of ranks, and the boxes of elements that they exchange, as numbers: for the sizes of one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from upl_mlir.dialects.loops.attributes import Axis
from upl_mlir.engines.mpi.plan import Moved
from upl_mlir.passes.loops.program import Block
from upl_mlir.poly.expr import IndexExpr

Box = tuple[tuple[int, int], ...]
"""The least and the greatest index of each field."""
Lookup = Callable[[str, int], int]


def block_of(low: int, high: int, rank: int, ranks: int) -> tuple[int, int]:
    """The first and the last index of a rank's block of ``low..high``: blocks differ by one index at most."""
    n = max(0, high - low + 1)
    return low + n * rank // ranks, low + n * (rank + 1) // ranks - 1


class Blocks:
    """The parameters of every rank: those of the program, and the ends of its blocks."""

    def __init__(
        self, blocks: Sequence[Block], params: Mapping[str, int], ranks: int, read: Lookup,
        starts: Mapping[Block, Sequence[int]] | None = None,
    ):  # fmt: skip
        """`starts` say of some blocks where those of the ranks begin; others differ by one index at most."""
        self.read = read
        self.of: list[dict[str, int]] = []
        ends = {b: (b.low.evaluate(params, read), b.high.evaluate(params, read)) for b in blocks}
        for rank in range(ranks):
            own = dict(params)
            for b, (low, high) in ends.items():
                found = None if starts is None else starts.get(b)
                if found is None:
                    own[b.first], own[b.last] = block_of(low, high, rank, ranks)
                    continue
                after = found[rank + 1] if rank + 1 < ranks else high + 1
                own[b.first] = low if rank == 0 else min(max(found[rank], low), high + 1)
                own[b.last] = min(max(after, low), high + 1) - 1
            self.of.append(own)

    def owned(self, rank: int, b: Block) -> tuple[int, int]:
        """The first and the last index of a rank's block."""
        return self.of[rank][b.first], self.of[rank][b.last]


@dataclass(frozen=True)
class Message:
    """What goes from this rank to another one, or comes from there."""

    rank: int
    box: Box

    @property
    def elements(self) -> int:
        """How many."""
        return size_of(self.box)


def size_of(box: Box) -> int:
    """The number of elements of a box."""
    out = 1
    for lo, hi in box:
        out *= max(0, hi - lo + 1)
    return out


class Boxes:
    """An exchange at the sizes of a run: who needs what, by the loops' variables."""

    def __init__(self, moved: Moved, blocks: Blocks):
        self.moved, self.blocks = moved, blocks
        self._ranges = [
            [(self._bounds(r.lows, own), self._bounds(r.highs, own)) for r in moved.ranges] for own in blocks.of
        ]

    def _bounds(self, bounds: Sequence[IndexExpr], own: Mapping[str, int]) -> list[int | IndexExpr]:
        """Bounds as numbers, as far as they do not depend on the loops' variables."""
        variables = set(self.moved.variables)
        return [
            e.substitute({n: IndexExpr.of(own[n]) for n in e.names - variables if n in own})
            if e.names & variables else e.evaluate(own, self.blocks.read)
            for e in bounds
        ]  # fmt: skip

    def needed(self, values: tuple[int, ...]) -> list[Box]:
        """The box that each rank needs, at values of the loops' variables."""
        env = dict(zip(self.moved.variables, values, strict=True))

        def number(e: int | IndexExpr) -> int:
            return e if isinstance(e, int) else e.evaluate(env, self.blocks.read)

        return [
            tuple((max(map(number, lows)), min(map(number, highs))) for lows, highs in ranges) for ranges in self._ranges
        ]

    def messages(self, rank: int, values: tuple[int, ...]) -> tuple[list[Message], list[Message]]:
        """What a rank sends and what it receives."""
        needed, at, block = self.needed(values), self.moved.at, self.moved.block
        assert block is not None
        ranks = range(len(needed))

        def part(of: int, owner: int) -> Message:
            first, last = self.blocks.owned(owner, block)
            box = list(needed[of])
            box[at] = (max(box[at][0], first), min(box[at][1], last))
            return Message(owner if of == rank else of, tuple(box))

        sent = [part(of, rank) for of in ranks if of != rank]
        received = [part(rank, owner) for owner in ranks if owner != rank]
        return [m for m in sent if m.elements], [m for m in received if m.elements]


class Memory:
    """Where the elements of an array lie, for a rank."""

    def __init__(self, axes: Sequence[Axis], own: Mapping[str, int], read: Lookup):
        self.axes = axes
        self.shape = tuple(max(0, a.size.evaluate(own, read)) for a in axes)
        self.origins = [a.origin.evaluate(own, read) for a in axes]

    def index(self, box: Box) -> tuple[slice, ...] | tuple[np.ndarray, ...]:
        """The index, in numpy's manner, of the elements of a box."""
        slices: list[slice] = []
        for a, origin in zip(self.axes, self.origins, strict=True):
            lo, hi = box[a.at]
            if a.modulus is None:
                slices.append(slice(lo - origin, hi - origin + 1))
            elif lo == hi:
                place = (lo - origin) % a.modulus
                slices.append(slice(place, place + 1))
            else:
                return self._places(box)
        return tuple(slices)

    def offset(self, index: tuple[slice, ...] | tuple[np.ndarray, ...]) -> int | None:
        """The number of elements before those of an index; None if they do not lie side by side."""
        out, together = 0, True  # whether all further axes have one index only
        for at, n in reversed([*zip(index, self.shape, strict=True)]):
            if not isinstance(at, slice):
                return None
            if not together and at.stop - at.start != 1:
                return None
            together = together and at.stop - at.start == n
        for at, n in zip(index, self.shape, strict=True):
            assert isinstance(at, slice)
            out = out * n + at.start
        return out

    def _places(self, box: Box) -> tuple[np.ndarray, ...]:
        places = [
            [(v - o) % a.modulus if a.modulus else v - o for v in range(box[a.at][0], box[a.at][1] + 1)]
            for a, o in zip(self.axes, self.origins, strict=True)
        ]
        return np.ix_(*places)
