"""How the lanes of a process read a stream: by windows with the last words, at addresses that follow the loops.

If all lanes read the same word in an iteration, one window serves them all, and each lane passes the word on.  Else each
lane has a window of its own, with all words, or with its turn of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from upl_mlir.passes.circuit.channels.orders import Order, number
from upl_mlir.passes.circuit.nest import Bools, Dim, Ints, Nest
from upl_mlir.passes.circuit.placed import LEAD, Placed
from upl_mlir.passes.circuit.stages import Site


@dataclass(frozen=True, eq=False)
class Steps:
    """Numbers along a nest: ``first + sum(steps * loops) + lane_step * lane``, by loop of the nest, where they matter."""

    first: int
    steps: tuple[int, ...]
    lane_step: int

    def along(self, nest: Nest) -> Ints:
        """The number at each instance."""
        out = self.first + self.lane_step * np.arange(nest.lanes)
        for axis, k in enumerate(self.steps):
            shape = [-1 if a == axis else 1 for a in range(len(nest.shape))]
            out = out + k * np.arange(nest.extents[axis]).reshape(shape)
        return np.broadcast_to(out, nest.shape)


@dataclass(frozen=True, eq=False)
class Read:
    """A site that reads a stream in these lanes: the number of its word, of the lane's own ones if they are dealt."""

    site: Site
    lanes: tuple[int, ...]
    at: Steps


@dataclass(frozen=True, eq=False)
class Feed:
    """How process number `part` reads a stream.

    `shared`: at each iteration all lanes read the same word, which goes from lane to lane; else each lane has a window of
    its own, with all words or, if they are `dealt`, each lane with its turn of them.
    """

    part: int
    shared: bool
    dealt: bool
    reads: tuple[Read, ...]


class Words(NamedTuple):
    """Of a site, by instance: the number of the word in the stream, and whether one is read."""

    site: Site
    word: Ints
    read: Bools


def words_of(part: Placed, dims: tuple[Dim, ...], order: Order, lanes: int, sites: Sequence[Site]) -> list[Words]:
    """What sites read of a stream; `lanes` are those of its order."""
    nest = part.nest
    exprs = part.process.sizes.given(nest.grid)
    out: list[Words] = []
    for s in sites:
        values = {d.name: exprs.expr(e) for d, e in zip(dims, s.index, strict=True)}
        out.append(Words(s, nest.everywhere(number(dims, order, lanes, values)), part.mask(s.when)))
    return out


def feed(number_: int, part: Placed, words: Sequence[Words], total: int, deal: bool) -> Feed | None:
    """The feed of a process, whose words may be dealt to the lanes or not; None if a word's number does not follow the
    loops."""
    nest = part.nest
    shared = all(_same(w.word, w.read) for w in words)
    deal = deal and not shared and nest.lanes > 1 and total % nest.lanes == 0
    dealt = deal and all(_turns(w.word, w.read, nest.lanes) for w in words)
    reads: list[Read] = []
    for w in words:
        steps = affine(w.word // nest.lanes if dealt else w.word, w.read)
        if steps is None:
            return None
        lanes = tuple(n for n in range(nest.lanes) if w.read[..., n].any())
        reads.append(Read(w.site, lanes, steps))
    return Feed(number_, shared, dealt, tuple(reads))


def late(nest: Nest, shared: bool, sites: Sequence[Site]) -> int:
    """Slots after which what a group has read is free: until its last lane has read it at its last stage."""
    return LEAD + max((s.stage for s in sites), default=0) + (0 if shared else nest.skew * (nest.lanes - 1)) + 2


def late_of(part: Placed, f: Feed) -> int:
    """The same of a feed."""
    return late(part.nest, f.shared, [r.site for r in f.reads])


def _same(w: Ints, m: Bools) -> bool:
    """Whether all lanes that read at an iteration read the same word."""
    low = np.where(m, w, np.iinfo(np.int64).max).min(axis=-1)
    high = np.where(m, w, -1).max(axis=-1)
    return bool((~m.any(axis=-1) | (low == high)).all())


def _turns(w: Ints, m: Bools, lanes: int) -> bool:
    return bool((~m | (w % lanes == np.arange(lanes))).all())


def affine(w: Ints, m: Bools) -> Steps | None:
    """An affine array over a nest, lanes last; None if it is none where it matters."""
    if not m.any():
        return Steps(0, (0,) * (w.ndim - 1), 0)
    steps: list[int] = []
    for axis, n in enumerate(w.shape):
        d = np.diff(w, axis=axis)
        both = np.logical_and(m.take(range(n - 1), axis), m.take(range(1, n), axis)) if n > 1 else np.zeros(0, dtype=bool)
        found = np.unique(d[both]) if both.any() else np.zeros(1, dtype=np.int64)
        if len(found) > 1:
            return None
        steps.append(int(found[0]))
    rest: Ints = w
    for axis, (k, n) in enumerate(zip(steps, w.shape, strict=True)):
        shape = [-1 if a == axis else 1 for a in range(w.ndim)]
        rest = np.subtract(rest, k * np.arange(n, dtype=np.int64).reshape(shape))
    rest = np.unique(rest[m])
    return Steps(int(rest[0]), tuple(steps[:-1]), steps[-1]) if len(rest) == 1 else None
