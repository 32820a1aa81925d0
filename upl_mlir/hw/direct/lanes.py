"""Index fields in lanes of the tag: a rank is then a sum of lanes times weights, and nothing has to be shifted.

A *digit* is what is counted as one number: a field in a lane of 8 bits, or in two lanes side by side, or several small
fields in one lane, where a node has more fields than there are lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from upl_mlir.hw.image import IndexField, Node, ProgramImage, layout_fields

LANE = 8
"""Bits of a lane."""
MAX_LANES = 2
"""Lanes of one field at most."""


@dataclass(frozen=True)
class Digit:
    """Fields of a node, by number, that lie in the same lanes; the first lane, and how many there are."""

    fields: tuple[int, ...]
    lane: int
    lanes: int


class NotRanked(Exception):
    """A node cannot be stored directly; the message says why."""


def lanes_of(tag_bits: int) -> int:
    """The number of lanes of a tag."""
    return tag_bits // LANE


def aligned(image: ProgramImage, tag_bits: int) -> ProgramImage:
    """The same program with the index fields of its nodes in lanes; a node whose fields do not fit stays as it is."""
    return replace(image, nodes=tuple(_aligned(n, lanes_of(tag_bits)) for n in image.nodes))


def packed(node: Node) -> Node:
    """The same node with its fields side by side, as a hashed store has them."""
    return replace(node, fields=layout_fields([(f.name, f.bias, f.bias + (1 << f.bits) - 1) for f in node.fields]))


def _aligned(node: Node, lanes: int) -> Node:
    groups: list[list[int]] = [[n] for n, f in enumerate(node.fields) if f.bits]

    def need(group: Sequence[int]) -> int:
        return -(-sum(node.fields[n].bits for n in group) // LANE)

    if any(need(g) > MAX_LANES for g in groups):
        return node
    while sum(map(need, groups)) > lanes:
        # The two smallest that go into a lane together.
        small = sorted(groups, key=lambda g: sum(node.fields[n].bits for n in g))[:2]
        if len(small) < 2 or need([*small[0], *small[1]]) > 1:
            return node
        groups.remove(small[0])
        groups.remove(small[1])
        groups.append(sorted([*small[0], *small[1]]))
    fields = list(node.fields)
    at = 0
    for group in sorted(groups):
        place = at * LANE
        for n in group:
            fields[n] = replace(fields[n], offset=place)
            place += fields[n].bits
        at += need(group)
    fields = [replace(f, offset=0) if not f.bits else f for f in fields]
    return replace(node, fields=tuple(fields))


def digits(fields: Sequence[IndexField], tag_bits: int) -> list[Digit]:
    """The digits of a node of an aligned image.  Raises NotRanked if its fields lie across lanes."""
    out: list[Digit] = []
    for n, f in sorted(enumerate(fields), key=lambda item: item[1].offset):
        if not f.bits:
            continue
        first, last = f.offset // LANE, (f.offset + f.bits - 1) // LANE
        if out and first < out[-1].lane + out[-1].lanes:
            if last >= out[-1].lane + out[-1].lanes:
                raise NotRanked(f"its {len(fields)} index fields do not fit in the {lanes_of(tag_bits)} lanes of the tag")
            out[-1] = replace(out[-1], fields=(*out[-1].fields, n))
        elif last - first >= MAX_LANES or last >= lanes_of(tag_bits):
            raise NotRanked(f"the {f.bits} bits of its field `{f.name}` do not fit in the lanes of the tag")
        else:
            out.append(Digit((n,), first, last - first + 1))
    return out
