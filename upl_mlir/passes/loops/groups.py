"""Groups of statements that share a loop, in their order: what may stand before what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from upl_mlir.passes.loops.statements import Edge, Statement
from upl_mlir.passes.loops.tree import Along


@dataclass(eq=False)
class Group:
    """Statements that stand in one loop, or one statement whose loops are still open (`along` is empty)."""

    members: list[Statement]
    along: dict[Statement, Along]
    inner: list[Edge]


def readers_first(groups: list[Group], before: Mapping[Statement, Sequence[Edge]]) -> list[Group]:
    """Neighbours that need nothing of each other so that old elements are read before new ones are written.

    Then the new ones can take their places.
    """
    out = list(groups)
    for _ in groups:
        earlier = list(out)
        for i in range(len(out) - 1):
            first, second = out[i : i + 2]
            mine = set(first.members)
            reads = [{r.array for s in g.members for r in s.reads} for g in (first, second)]
            writes = [{s.array for s in g.members} for g in (first, second)]
            free = not any(e.writer in mine for s in second.members for e in before[s])
            if free and reads[1] & writes[0] and not reads[0] & writes[1]:
                out[i : i + 2] = [second, first]
        if out == earlier:
            break
    return out


def parted(
    written: set[Statement], groups: Sequence[Group], before: Mapping[Statement, Sequence[Edge]]
) -> tuple[list[Group], list[Group]]:
    """The groups that need what some statements write, directly or not, and the others."""
    written = set(written)
    dependent: list[Group] = []
    free: list[Group] = []
    for h in groups:
        if any(e.writer in written for s in h.members for e in before[s]):
            dependent.append(h)
            written |= set(h.members)
        else:
            free.append(h)
    return dependent, free
