"""The hashed matching unit: firings against the rule on random programs, rates, overflow, failures."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Container
from pathlib import Path

import pytest

from upl_mlir.hw.core.layouts import Dimensions, Failure
from upl_mlir.hw.core.stores.hash import hash_masks

sys.path.insert(0, str(Path(__file__).resolve().parent))
from matching_bench import FAULTS, bits, play, program, token


def dimensions(sets: int = 64, ways: int = 4, *, add: int = 4, spill: int = 512) -> Dimensions:
    return Dimensions(
        tag_bits=16, node_bits=3, sets=sets, ways=ways, add_cycles=add, mul_cycles=2, spill_words=spill, backing_cycles=1
    )


@pytest.mark.parametrize(("seed", "add", "ready"), [(0, 4, 1.0), (1, 2, 0.5), (2, 6, 0.2), (3, 4, 0.9)])
def test_every_instance_fires_once_in_any_order(seed: int, add: int, ready: float) -> None:
    tokens, wanted = program(seed)
    run = play(dimensions(add=add), tokens, ready=ready, seed=seed)
    assert run.failure is Failure.NONE
    assert Counter(run.firings) == wanted
    assert run.used == 0


@pytest.mark.parametrize(("sets", "ways", "nodes"), [(1, 1, (2, 6)), (1, 2, (1, 3)), (2, 2, (2, 4, 5)), (8, 2, range(8))])
def test_overflow_changes_time_only(sets: int, ways: int, nodes: Container[int]) -> None:
    """Stores down to a single record: everything else waits in the backing memory, and still meets its partners."""
    tokens, wanted = program(sets + ways, nodes)
    run = play(dimensions(sets, ways), tokens)
    assert run.failure is Failure.NONE
    assert Counter(run.firings) == wanted
    assert run.used == 0
    assert run.spilled > 0


def test_overflow_beyond_the_backing_memory_is_reported() -> None:
    tokens = [token(0, 0, tag, tag) for tag in range(40)]
    run = play(dimensions(2, 2, spill=20), tokens)
    assert run.failure is Failure.FULL
    assert run.used == 24


def test_the_rate_of_exact_keys() -> None:
    """Half full, random keys: at least 0.95 tokens a cycle."""
    r = random.Random(0)
    keys = r.sample(range(1 << 16), 700)
    waiting: list[int] = []
    tokens: list[dict[str, int]] = []
    while keys or waiting:
        if keys and (len(waiting) < 100 or (len(waiting) < 128 and r.random() < 0.5)):
            waiting.append(keys.pop())
            tokens.append(token(0, 0, waiting[-1], 1))
        else:
            tokens.append(token(0, 1, waiting.pop(r.randrange(len(waiting))), 2))
    run = play(dimensions(64, 8), tokens)
    assert len(run.firings) == 700
    assert len(tokens) / run.cycles >= 0.95


@pytest.mark.parametrize(("node", "value"), [(2, bits(1.0)), (3, 1)])
def test_the_rate_of_one_gather(node: int, value: int) -> None:
    """All summands of one sum: at least 0.95 a cycle, real and integer."""
    count = 1000
    tokens = [token(node, 0, 5, value, count) for _ in range(count)]
    tokens += [token(3, 1, 5, 0)] if node == 3 else []
    run = play(dimensions(), tokens)
    assert [f[2][0] for f in run.firings] == [bits(count) if node == 2 else count]
    assert len(tokens) / run.cycles >= 0.95


@pytest.mark.parametrize("size", [2, 8, 32])
def test_the_rate_of_short_gathers_one_after_the_other(size: int) -> None:
    """Results of one sum come while the next one's summands do: at least 0.95 summands a cycle."""
    count = 640 // size
    tokens = [token(2, 0, tag, bits(1.0), size) for tag in range(count) for _ in range(size)]
    run = play(dimensions(), tokens)
    assert Counter(f[1:] for f in run.firings) == Counter((tag, (bits(size), 0, 0, 0)) for tag in range(count))
    assert len(tokens) / run.cycles >= 0.95


def test_the_rate_of_gathers_all_at_once() -> None:
    """A hundred sums, their summands in any order: at least 0.95 a cycle."""
    tokens = [token(2, 0, tag, bits(1.0), 8) for tag in range(100) for _ in range(8)]
    random.Random(1).shuffle(tokens)
    run = play(dimensions(), tokens)
    assert Counter(f[1:] for f in run.firings) == Counter((tag, (bits(8.0), 0, 0, 0)) for tag in range(100))
    assert len(tokens) / run.cycles >= 0.95


def test_summands_pass_a_walk() -> None:
    """While a token walks over its partners, a probe a cycle, the gather pipe takes a summand a cycle."""
    side, summands = 4, 30
    waiting = [token(1, 1, 3 | y << 4, y) for y in range(side)]
    sums = [token(2, 0, 5, bits(1.0), summands) for _ in range(summands)]
    walks = [token(1, 0, 3, 9, side)]
    alone = play(dimensions(), [*waiting, *sums]).cycles
    run = play(dimensions(), [*waiting, *walks, *sums])
    assert len(run.firings) == side + 1
    assert run.cycles - alone <= len(walks) + 1


def test_summands_that_do_not_say_how_many_there_are() -> None:
    """All ones stand for a number that another summand says, whenever that comes."""
    many = dimensions().unbounded
    for place in range(4):
        numbers = [many] * 3
        numbers.insert(place, 4)
        run = play(dimensions(), [token(2, 0, 5, bits(n + 1), number) for n, number in enumerate(numbers)])
        assert run.firings == [(2, 5, (bits(10), 0, 0, 0))]


def test_partners_that_wait_together_need_one_probe_a_token() -> None:
    """Plain tokens meet in their record before counted ones are looked for, and only then if there are any."""
    tags = [x | y << 4 for x in range(4) for y in range(4)]
    first = [token(5, 1, tag, 1) for tag in tags]
    second = [token(5, 2, tag, 2) for tag in tags]
    one, both = play(dimensions(), first).cycles, play(dimensions(), [*first, *second]).cycles
    assert both - one <= len(tags) + 1
    run = play(dimensions(), [*first, *second, *(token(5, 0, x, 3, 4) for x in range(4))])
    assert Counter(run.firings) == Counter((5, tag, (3, 1, 2, 0)) for tag in tags)
    assert run.cycles - both <= len(tags) + 4 + 1


def test_a_walk_finds_a_partner_a_cycle() -> None:
    waiting = [token(1, 1, 3 | y << 4, y) for y in range(4)]
    before = play(dimensions(), waiting).cycles
    run = play(dimensions(), [*waiting, token(1, 0, 3, 9, 4)])
    assert len(run.firings) == 4
    assert run.cycles - before <= 4 + 2


def test_a_walk_without_partners_ends_at_once() -> None:
    """The first index is tried, then the token is stored: two probes, whatever it covers. Others do not count. (A token that
    fires alone passes neither fetch nor probes.)"""
    alone = play(dimensions(), [token(7, 0, 1, 1)]).cycles
    others = [token(0, 0, 5, 1), token(5, 1, 3, 1)]
    base = play(dimensions(), [*others, token(7, 0, 1, 1)]).cycles
    assert play(dimensions(), [token(1, 0, 3, 9, 4)]).cycles <= alone + 3
    assert play(dimensions(), [*others, token(1, 0, 3, 9, 4)]).cycles <= base + 3


def test_partners_of_another_home_do_not_prolong_a_walk() -> None:
    """Those that a token may meet agree with it in x."""
    waiting = [token(1, 1, 2 | y << 4, y) for y in range(4)]
    before = play(dimensions(), waiting).cycles
    assert play(dimensions(), [*waiting, token(1, 0, 3, 9, 4)]).cycles <= before + 3


@pytest.mark.parametrize("roomy", [True, False])
def test_tokens_that_fire_often_wait_while_firings_are_not_wanted(roomy: bool) -> None:
    """They go before all others, or, while the execution unit has enough to do, when nothing else waits."""
    waiting = [token(1, 1, x | y << 4, y) for x in (1, 2, 3) for y in range(4)]
    often = [token(1, 0, x, 9, 4) for x in (1, 2, 3)]
    run = play(dimensions(), [*waiting, *often, token(0, 0, 5, 1), token(0, 1, 5, 2)], roomy=roomy)
    nodes = [node for node, _, _ in run.firings]
    assert nodes == ([1] * 12 + [0] if roomy else [0] + [1] * 12)


def test_a_token_without_partners_fires_by_itself() -> None:
    run = play(dimensions(), [token(7, 0, n & 0xFF, n) for n in range(200)])
    assert len(run.firings) == 200 and 200 / run.cycles >= 0.95


@pytest.mark.parametrize(
    ("tokens", "failure"),
    [
        *FAULTS,
        ([token(0, 0, 1, 1, 2)], Failure.BAD_TOKEN),
        ([token(2, 0, 1, 1, 0)], Failure.BAD_TOKEN),
    ],
)
def test_what_cannot_be_taken_stops_the_unit(tokens: list[dict[str, int]], failure: Failure) -> None:
    assert play(dimensions(), tokens, limit=200).failure is failure


def test_leftovers_stay() -> None:
    assert play(dimensions(), [token(0, 0, 1, 1), token(1, 0, 2, 1, 3), token(2, 0, 4, 1, 2)]).used == 3


def test_the_hash_spreads() -> None:
    """Dense boxes of indices of several nodes at one record a set: few sets get more than four."""
    masks = hash_masks(49, 8)
    keys = [n | k << 6 | i << 9 | j << 12 for n in range(4) for k in range(4) for i in range(4) for j in range(4)]
    sets = Counter(tuple((key & mask).bit_count() & 1 for mask in masks) for key in keys)
    assert sum(n for n in sets.values() if n > 4) <= 16
