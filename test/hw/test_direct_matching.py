"""The direct matching unit: firings against the rule on random programs in any order, rates, failures."""

# pyright: reportIndexIssue=false, reportArgumentType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from upl_mlir.hw.core.layouts import Dimensions, Failure, Mode
from upl_mlir.hw.direct.domains import Domain
from upl_mlir.hw.direct.encode import direct_rows
from upl_mlir.hw.direct.lanes import aligned
from upl_mlir.hw.direct.layouts import direct_node_layout, rank_layout
from upl_mlir.hw.direct.matching import DirectMatching
from upl_mlir.hw.direct.ranks import Role, rank_program
from upl_mlir.hw.image import Input, Node, ProgramImage, layout_fields
from upl_mlir.hw.microcode import ValueType

sys.path.insert(0, str(Path(__file__).resolve().parent))
from matching_bench import FAULTS, SIDE, Firing, Run, bits, drive, program, token, write

X, Y = frozenset({0}), frozenset({1})
P, OVER_X, OVER_Y = Role(Mode.PLAIN), Role(Mode.COUNTED, X), Role(Mode.COUNTED, Y)
ROLES = [
    [P, P], [OVER_Y, P], [Role(Mode.ADD_F32)], [Role(Mode.ADD_I32), P], [OVER_Y, OVER_X], [OVER_Y, P, P],
    [OVER_Y, OVER_X, P], [P],
]  # fmt: skip
"""The nodes of the bench of the hashed unit, with index <x,y>."""
D = Dimensions(tag_bits=16, node_bits=3, sets=128, ways=5, add_cycles=4, mul_cycles=2, spill_words=0, rank_rows=32)
BOX = Domain(((0, SIDE - 1), (0, SIDE - 1)))


def in_lanes(t: dict[str, int]) -> dict[str, int]:
    """A token of the bench, whose fields have 4 bits each, with its fields in lanes."""
    return {**t, "tag": t["tag"] & 0xF | t["tag"] >> 4 << 8}


def rows(d: Dimensions, change: Callable[[list[int]], None] = lambda _: None) -> tuple[list[int], list[int]]:
    fields = layout_fields([("x", 0, SIDE - 1), ("y", 0, SIDE - 1)])
    made = [Node(f"N{n}", fields, tuple(Input(f"i{k}", ValueType.F32) for k in range(len(r)))) for n, r in enumerate(ROLES)]
    image = aligned(ProgramImage("bench", tuple(made), domains={n.name: BOX for n in made}), d.tag_bits)
    ranks = rank_program(image, ROLES, d)
    nodes, found = direct_rows(image, ROLES, ranks, d)
    change(found)
    return nodes, found


def play(
    tokens: list[dict[str, int]],
    *,
    d: Dimensions = D,
    ready: float = 1.0,
    seed: int = 0,
    limit: int = 60_000,
    change: Callable[[list[int]], None] = lambda _: None,
) -> Run:
    """As the bench of the hashed unit, on the direct one."""
    unit = DirectMatching(d)
    nodes, found = rows(d, change)

    async def begin(context: Any) -> None:
        await write(context, unit, "node", enumerate(map(direct_node_layout(d).from_bits, nodes)))
        await write(context, unit, "rank", enumerate(map(rank_layout(d).from_bits, found)))

    def fired(activation: Any) -> Firing:
        many = len(ROLES[activation.node])
        values = tuple(activation["values"][n] if n < many else 0 for n in range(d.max_inputs))
        return activation.node, activation.tag & 0xF | activation.tag >> 8 << 4, values

    return drive(unit, d, tokens, begin, fired, ready=ready, seed=seed, limit=limit)


@pytest.mark.parametrize(("seed", "ready"), [(0, 1.0), (1, 0.5), (2, 0.2), (3, 0.9)])
def test_every_instance_fires_once_in_any_order(seed: int, ready: float) -> None:
    tokens, wanted = program(seed)
    run = play([in_lanes(t) for t in tokens], ready=ready, seed=seed)
    assert run.failure is Failure.NONE
    assert Counter(run.firings) == wanted
    assert run.used == 0


def test_a_wrong_stride_makes_wrong_firings() -> None:
    """One bit of one weight of bank 0 of the first node."""
    tokens, wanted = program(0)
    layout = rank_layout(D)

    def change(found: list[int]) -> None:
        content = layout.from_bits(found[0])
        weights = [content.join.banks[0].weights[n] for n in range(2)]
        assert sorted(weights) == [1, SIDE]
        place = layout["join"].offset + layout["join"].shape["banks"].offset + layout["join"].shape["banks"].shape[0].offset
        place += layout["join"].shape["banks"].shape.elem_shape["weights"].offset
        found[0] ^= 1 << place

    run = play([in_lanes(t) for t in tokens], change=change)
    assert run.failure is not Failure.NONE or Counter(run.firings) != wanted


@pytest.mark.parametrize(("node", "value"), [(2, bits(1.0)), (3, 1)])
def test_the_rate_of_one_gather(node: int, value: int) -> None:
    count = 1000
    tokens = [token(node, 0, 1, value, count) for _ in range(count)]
    tokens += [token(3, 1, 1, 0)] if node == 3 else []
    run = play([in_lanes(t) for t in tokens])
    assert [f[2][0] for f in run.firings] == [bits(count) if node == 2 else count]
    assert len(tokens) / run.cycles >= 0.95


def test_the_rate_of_joins() -> None:
    """Tokens with full indices in any order: one a cycle."""
    box = [x | y << 4 for x in range(SIDE) for y in range(SIDE)]
    tokens: list[dict[str, int]] = []
    for n in range(20):
        random.Random(n).shuffle(box)
        tokens += [token(0, 0, tag, 1) for tag in box]
        random.Random(n + 100).shuffle(box)
        tokens += [token(0, 1, tag, 2) for tag in box]
    run = play([in_lanes(t) for t in tokens])
    assert len(run.firings) == 20 * SIDE * SIDE
    assert len(tokens) / run.cycles >= 0.97


def test_a_walk_finds_a_partner_a_cycle() -> None:
    waiting = [in_lanes(token(1, 1, 3 | y << 4, y)) for y in range(SIDE)]
    before = play(waiting).cycles
    run = play([*waiting, in_lanes(token(1, 0, 3, 9, SIDE))])
    assert len(run.firings) == SIDE
    assert run.cycles - before <= SIDE + 1


def test_a_walk_without_partners_ends_at_once() -> None:
    alone = play([in_lanes(token(0, 0, 1, 1))]).cycles  # a token that waits
    others = [in_lanes(token(0, 0, 5, 1)), in_lanes(token(5, 1, 3, 1))]
    base = play([*others, in_lanes(token(0, 0, 1, 1))]).cycles
    assert play([in_lanes(token(1, 0, 3, 9, SIDE))]).cycles <= alone + 1
    assert play([*others, in_lanes(token(1, 0, 3, 9, SIDE))]).cycles <= base + 1


@pytest.mark.parametrize(
    ("tokens", "failure"),
    [
        *FAULTS,
        ([token(2, 0, 1, bits(1), 0)], Failure.BAD_TOKEN),
        ([token(0, 2, 1, 1)], Failure.BAD_TOKEN),
        ([token(0, 0, 5, 1)], Failure.INDEX),
        ([token(2, 0, 5 << 4, bits(1), 3)], Failure.INDEX),
    ],
)
def test_what_cannot_be_taken_stops_the_unit(tokens: list[dict[str, int]], failure: Failure) -> None:
    assert play([in_lanes(t) for t in tokens], limit=200).failure is failure


def test_summands_that_do_not_know_their_number_wait_for_one_that_does() -> None:
    unknown = D.unbounded
    tokens = [token(3, 1, 1, 7), token(3, 0, 1, 5, unknown), token(3, 0, 1, 6, 3), token(3, 0, 1, 8, unknown)]
    run = play([in_lanes(t) for t in tokens])
    assert run.firings == [(3, 1, (19, 7, 0, 0))]
    assert run.used == 0


def test_leftovers_stay() -> None:
    tokens = [token(0, 0, 1, 1), token(1, 0, 2, 1, 3), token(2, 0, 1, 1, 2)]
    assert play([in_lanes(t) for t in tokens]).used == 3
