"""Which open gathers have not ended, by rank (LANGUAGE 3.3): those of least rank end first.

    waiting = Strata()
    waiting.add((0, 3), 2, (3, 1))          # instance <3,1> of node 2 has the rank (0, 3)
    waiting.pop(None)                       # [(2, (3, 1))]: all instances of the least rank, and they are no longer in it
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

Key = tuple[int, ...]
"""The index of an instance."""


@dataclass
class Strata:
    """Instances whose open gathers have not ended, as (number of the node, index)."""

    by_rank: dict[Key, dict[tuple[int, Key], None]] = field(default_factory=dict[Key, dict[tuple[int, Key], None]])
    ranks: list[Key] = field(default_factory=list[Key])  # a heap

    def add(self, rank: Key, node: int, index: Key) -> None:
        """An instance whose gathers are to end; it may be there already."""
        if rank not in self.by_rank:
            self.by_rank[rank] = {}
            heapq.heappush(self.ranks, rank)
        self.by_rank[rank][node, index] = None

    def pop(self, choose: Callable[[], float] | None) -> list[tuple[int, Key]]:
        """Take out the instances of least rank: in the order of nodes and indices, or as `choose` (random numbers below 1)
        shuffles them."""
        out = sorted(self.by_rank.pop(heapq.heappop(self.ranks)))
        if choose is not None:
            for i in range(len(out) - 1, 0, -1):
                j = int(choose() * (i + 1))
                out[i], out[j] = out[j], out[i]
        return out
