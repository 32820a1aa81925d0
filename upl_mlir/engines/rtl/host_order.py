"""The order of the host's tokens: `##` tokens first; of an input, summands of one gather one after the other.

Tokens that are never used up (`##`) wait in any case.  Where they are there first, each partner looks for one record; where
they come last, each of them tries all indices that it covers.

The first gather that the tokens reach has some of their fields in its own index and sums over the others. If the others vary
fastest, gathers are whole one by one, and what follows them is computed while more tokens come; else all of them would be
whole at the end only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from upl_mlir.hw.core.code.index_values import IndexValues
from upl_mlir.hw.image import Node, ProgramImage
from upl_mlir.hw.microcode import ToNode, Unbounded

_Fields = tuple[int | None, ...]
"""For each field of a node which field of the host input it is, plus a constant; None for others."""


def inputs_in_order(hosts: Iterable[tuple[str, Node]]) -> list[tuple[str, Node]]:
    """Host inputs by name: those whose tokens all go by `##` first, else as they are."""
    return sorted(hosts, key=lambda host: not all(isinstance(s.multiplicity, Unbounded) for s in host[1].sends))


def field_order(image: ProgramImage, host: Node) -> list[int]:
    """The fields of a host input, the one that varies most slowly first."""
    kept = _kept(image, host)
    return sorted(range(len(host.fields)), key=lambda f: (f not in kept, f))


def _kept(image: ProgramImage, host: Node) -> set[int]:
    """The fields that are in the index of the first gathers; none if there are no gathers."""
    level: dict[int, _Fields] = {}
    now: Sequence[tuple[Node, _Fields]] = [(host, tuple(range(len(host.fields))))]
    while now:
        gathers: list[_Fields] = []
        following: list[tuple[Node, _Fields]] = []
        for node, fields in now:
            values = IndexValues(node)
            for send in node.sends:
                if not isinstance(send.target, ToNode):
                    continue
                bases = [None if r is None else values.place(r).base_field for r in send.index]
                index = tuple(None if base is None else fields[base] for base in bases)
                target = image.nodes[send.target.node]
                if target.inputs[send.target.input].gather is not None:
                    gathers.append(index)
                elif send.target.node not in level:
                    level[send.target.node] = index
                    following.append((target, index))
        if gathers:
            return {f for index in gathers for f in index if f is not None}
        now = following
    return set()
