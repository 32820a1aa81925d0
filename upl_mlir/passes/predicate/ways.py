"""Arrows into inputs, with what data decide of them, and inputs that get their tokens alike."""

from __future__ import annotations

from dataclasses import dataclass

from upl_mlir.dialects.upl import Port, Special
from upl_mlir.dialects.upl.query import Endpoint
from upl_mlir.passes.analysis.relations import Arrow
from upl_mlir.passes.predicate.certain import counted_by


@dataclass(eq=False)
class Coming:
    """An arrow into an input, with what it depends on besides indices."""

    arrow: Arrow
    go: tuple[bool, int | None]
    """Whether the source surely fires, and the number of the condition; None for none."""
    chosen: bool = False
    """Whether data choose where its token goes."""

    @property
    def certain(self) -> bool:
        """Whether its token always comes."""
        return self.go == (True, None) and not self.chosen


@dataclass(eq=False)
class Group:
    """Inputs of one node, or outputs, that get their tokens by arrows of the same conditions and indices."""

    ports: list[tuple[Endpoint, Port, list[Coming]]]

    @property
    def ways(self) -> list[Coming]:
        """Those of the first one: the others' are alike."""
        return self.ports[0][2]

    @property
    def gather(self) -> bool:
        """Whether it is a gather."""
        return self.ports[0][1].gather is not None

    @property
    def certain(self) -> bool:
        """Whether its tokens always come."""
        op, port, ways = self.ports[0]
        return all(w.certain for w in ways) and not counted_by(op, port) and not port.open

    @property
    def open(self) -> bool:
        """Whether it is a gather that takes what comes."""
        return self.ports[0][1].open

    @property
    def loose(self) -> bool:
        """Whether its tokens may be left over (`##`)."""
        return any(w.arrow.send.multiplicity is Special.UNBOUNDED for w in self.ways)
