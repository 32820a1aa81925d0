"""From ranks to the words of the direct unit's two tables."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# Amaranth's layouts are untyped.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from upl_mlir.diagnostics import error
from upl_mlir.hw.core.layouts import WALK_LEVELS, Dimensions, Mode
from upl_mlir.hw.direct.home import Range
from upl_mlir.hw.direct.lanes import LANE, lanes_of
from upl_mlir.hw.direct.layouts import direct_node_layout, rank_layout
from upl_mlir.hw.direct.mixed import mixed_node_layout
from upl_mlir.hw.direct.ranks import NodeRanks, Ranks, Role, Row, Space, open_digits
from upl_mlir.hw.image import ProgramImage


def direct_rows(
    image: ProgramImage, roles: Sequence[Sequence[Role]], ranks: Ranks, d: Dimensions
) -> tuple[list[int], list[int]]:
    """The rows of the node table (0 of nodes that are left to a store beside) and those of the ranks, as numbers.

    Raises `UplError` UPL1715: a node without ranks, and there is no store beside.
    """
    nodes: list[int] = []
    rows: list[int] = []
    for node, of, found in zip(image.nodes, roles, ranks.nodes, strict=True):
        if found is None and d.beside is None:
            raise error(
                "UPL1715", f"tokens of node `{node.name}` cannot be given places of their own: {ranks.reasons[node.name]}",
                help="set matching.beside in the machine description: the records of a hashed store for such nodes; "
                'or use [matching] organisation = "hashed"',
            )  # fmt: skip
        if found is None:
            nodes.append(0)
            continue
        nodes.append(direct_node_layout(d).const(_node(found, of, len(rows), d)).as_bits())
        rows += [rank_layout(d).const(_row(found, row, d)).as_bits() for row in found.rows]
    return nodes, rows


def mixed_row(d: Dimensions, direct: int, hashed: int | None) -> int:
    """A row of the node table where there is a store beside; `hashed`: the row there, if the node is left to it."""
    layout = mixed_node_layout(d)
    if hashed is None:
        return direct << layout["direct"].offset
    return 1 << layout["beside"].offset | hashed << layout["hashed"].offset


def _node(of: NodeRanks, roles: Sequence[Role], first: int, d: Dimensions) -> dict[str, Any]:
    lanes = lanes_of(d.tag_bits)
    table = None if of.table is None else of.digits[of.table].lane
    find = {
        "first": first,
        "lane": lanes if table is None else table,
        "limit": 0 if table is None else len(of.rows) - 1,
        "joined": sum(1 << digit.lane for digit in of.digits if digit.lanes == 2),
    }
    none = {"any": 0, "lane": 0, "wide": 0}
    walks: list[list[Mapping[str, int]]] = []
    for n in range(d.max_inputs):
        wild = open_digits(of.digits, roles[n]) if n < len(roles) else []
        levels = [{"any": 1, "lane": digit.lane, "wide": int(digit.lanes == 2)} for digit in wild]
        walks.append([*levels, *[none] * (WALK_LEVELS - len(levels))])
    inputs = (1 << len(roles)) - 1
    modes = [int(role.mode) for role in roles] + [int(Mode.PLAIN)] * (d.max_inputs - len(roles))
    window = {"any": 0, "lane": 0, "bits": 0}
    if of.window is not None:
        window = {"any": 1, "lane": of.digits[of.window[0]].lane, "bits": of.window[1]}
    fields: dict[str, Any] = {"find": find, "window": window}
    if d.network:
        split = of.local.split
        fields["split"] = {"lane": lanes if split is None else of.digits[split].lane, "bits": of.local.bits}
    join = {**fields, "inputs": inputs, "waits": int(of.waits), "merged": int(of.merged)}
    return {"join": {**join, "walks": walks}, "sum": {**fields, "modes": modes}}


def _row(of: NodeRanks, row: Row, d: Dimensions) -> dict[str, Any]:
    if row.ranges is None:
        # No instance: no index is between these bounds.
        least, greatest = 1, 0
        ranges: tuple[Range, ...] = ((0, 0),) * len(of.digits)
    else:
        ranges = row.ranges
        least, greatest = (sum(r[end] << digit.lane * LANE for r, digit in zip(ranges, of.digits, strict=True))
                           for end in (0, 1))  # fmt: skip
    none: dict[str, Any] = {"base": 0, "weights": [0] * lanes_of(d.tag_bits)}
    banks = [none if s is None else _space(of, s, ranges, d) for s in row.banks]
    gathers = [none if s is None else _space(of, s, ranges, d) for s in row.gathers]
    weights = next((g["weights"] for g in gathers if g is not none), none["weights"])
    rest = d.max_inputs - len(banks)
    return {
        "join": {"banks": banks + [none] * rest, "least": least, "greatest": greatest},
        "sum": {
            "bases": [g["base"] for g in gathers] + [0] * rest, "weights": weights, "least": least, "greatest": greatest,
        },
    }  # fmt: skip


def _space(of: NodeRanks, space: Space, ranges: Sequence[Range], d: Dimensions) -> dict[str, Any]:
    """A rank in the words of the rank unit: the bias of each digit goes into the base, all modulo the places."""
    size = 1 << d.set_bits
    weights = [0] * lanes_of(d.tag_bits)
    base = space.start
    for number, (digit, stride) in enumerate(zip(of.digits, space.strides, strict=True)):
        base -= stride * of.local.range(number, ranges[number])[0]
        for n in range(digit.lanes):
            # What is left out of the first lane is missing from the others, too.
            missing = of.local.bits if n and number == of.local.split else 0
            weights[digit.lane + n] = (stride << n * LANE - missing) % size
    return {"base": base % size, "weights": weights}
