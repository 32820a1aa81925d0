"""Networks: whatever is sent arrives once, where it belongs, under any back pressure; routes; links."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false
# Amaranth's components are untyped.

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

from upl_mlir.hw.core.layouts import CORE_BITS
from upl_mlir.hw.machine import Topology
from upl_mlir.hw.network.network import Network, link_ends, may_turn, mesh_size, route
from upl_mlir.hw.network.parts import Link

WIDTH = 16


def carry(
    network: Network,
    sent: list[list[tuple[int, int]]],
    *,
    ready: list[float],
    seed: int = 0,
    limit: int = 20_000,
) -> tuple[list[list[int]], int, int]:
    """Send lists of (core, token) from each core; each core takes with probability `ready`. What each core got, cycles, and
    the tokens that went over links."""
    cores = len(sent)
    got: list[list[int]] = [[] for _ in sent]
    simulator = Simulator(network)
    simulator.add_clock(1e-6)
    done = 0
    cycles = moves = 0
    r = random.Random(seed)

    async def bench(context: Any) -> None:
        nonlocal done, cycles, moves
        left = [list(reversed(tokens)) for tokens in sent]
        total = sum(map(len, sent))
        while done < total and cycles < limit:
            for n in range(cores):
                context.set(getattr(network, f"sent_valid_{n}"), bool(left[n]))
                if left[n]:
                    home, token = left[n][-1]
                    context.set(getattr(network, f"sent_data_{n}"), token << CORE_BITS | home)
                context.set(getattr(network, f"token_ready_{n}"), r.random() < ready[n])
            await context.delay(1e-8)
            moves += context.get(network.moved).bit_count()
            for n in range(cores):
                if left[n] and context.get(getattr(network, f"sent_ready_{n}")):
                    left[n].pop()
                if context.get(getattr(network, f"token_valid_{n}")) and context.get(getattr(network, f"token_ready_{n}")):
                    got[n].append(context.get(getattr(network, f"token_data_{n}")))
                    done += 1
            await context.tick()
            cycles += 1

    simulator.add_testbench(bench)
    simulator.run()
    return got, cycles, moves


def traffic(cores: int, count: int, seed: int, homes: list[int] | None = None) -> list[list[tuple[int, int]]]:
    """Tokens with numbers of their own, to random cores, or to those in `homes` only."""
    r = random.Random(seed)
    sent: list[list[tuple[int, int]]] = [[] for _ in range(cores)]
    for number in range(count):
        start = r.randrange(cores)
        goals = [h for h in homes or range(cores) if h != start]
        if goals:
            sent[start].append((r.choice(goals), number))
    return sent


def check(sent: list[list[tuple[int, int]]], got: list[list[int]]) -> None:
    """Every core got what was for it, once."""
    for core, tokens in enumerate(got):
        assert Counter(tokens) == Counter(token for each in sent for home, token in each if home == core)


SHAPES = [(t, n) for t in Topology for n in (2, 3, 4, 6)]


@pytest.mark.parametrize(("topology", "cores"), SHAPES)
def test_tokens_arrive_once_where_they_belong(topology: Topology, cores: int) -> None:
    sent = traffic(cores, 150, cores)
    got, _, _ = carry(Network(WIDTH, cores, topology, 2, 1), sent, ready=[1.0] * cores)
    check(sent, got)


@settings(max_examples=12, deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    depth=st.integers(1, 4),
    link=st.integers(1, 3),
    seed=st.integers(0, 1000),
    pressure=st.sampled_from([0.05, 0.3, 0.9]),
    hot=st.booleans(),
)
def test_back_pressure_loses_nothing_and_blocks_nothing(
    shape: tuple[Topology, int], depth: int, link: int, seed: int, pressure: float, hot: bool
) -> None:
    """Short queues, long links, cores that seldom take, all tokens for one core or for two."""
    topology, cores = shape
    depth = max(depth, 2) if topology is Topology.RING else depth
    sent = traffic(cores, 60, seed, [0, cores - 1] if hot else None)
    got, cycles, _ = carry(
        Network(WIDTH, cores, topology, depth, link), sent, ready=[pressure] * (cores - 1) + [1.0], seed=seed
    )
    check(sent, got)
    assert cycles < 20_000


def test_one_core_that_takes_nothing_does_not_stop_the_others_of_a_crossbar() -> None:
    sent = [[], [(2, n) for n in range(40)], [(1, 100 + n) for n in range(40)]]
    sent[1].append((0, 99))
    got, _, _ = carry(Network(WIDTH, 3, Topology.CROSSBAR, 2, 1), sent, ready=[0.0, 1.0, 1.0], limit=400)
    assert (len(got[0]), len(got[1]), len(got[2])) == (0, 40, 40)


def test_a_crossbar_carries_a_token_a_cycle_to_each_core() -> None:
    sent = [[((n + 1) % 4, 100 * n + k) for k in range(100)] for n in range(4)]
    got, cycles, _ = carry(Network(WIDTH, 4, Topology.CROSSBAR, 4, 1), sent, ready=[1.0] * 4)
    check(sent, got)
    assert cycles <= 104


@pytest.mark.parametrize(("depth", "link"), [(4, 1), (2, 1), (1, 1), (2, 4), (8, 4), (1, 3)])
def test_the_rate_of_a_link_follows_from_its_depth_and_length(depth: int, link: int) -> None:
    """A place is taken from the sending to the news of the leaving: `depth` tokens in 2*cycles of them."""
    link_ = Link(WIDTH, depth, link)
    simulator = Simulator(link_)
    simulator.add_clock(1e-6)
    times: list[int] = []

    async def bench(context: Any) -> None:
        context.set(link_.w_valid, 1)
        context.set(link_.r_ready, 1)
        for cycle in range(200):
            if context.get(link_.r_valid):
                times.append(cycle)
            await context.tick()

    simulator.add_testbench(bench)
    simulator.run()
    assert times[0] == link
    rate = (len(times) - 1) / (times[-1] - times[0])
    assert rate == pytest.approx(min(1.0, depth / (2 * link)), abs=0.03)


@pytest.mark.parametrize("topology", [Topology.RING, Topology.MESH])
@pytest.mark.parametrize("cores", [2, 3, 4, 6, 9, 12, 16])
def test_routes_are_short_and_turn_only_where_they_may(topology: Topology, cores: int) -> None:
    rows, columns = mesh_size(cores)
    assert rows * columns == cores
    links = set(link_ends(topology, cores))
    for start in range(cores):
        for home in range(cores):
            at, before, hops = start, None, 0
            side = None
            while (link := route(topology, cores, at, home)) is not None:
                if topology is Topology.RING:
                    # On the way a token stays on the side it set out on (see `Network._node`).
                    side = link[2] if side is None else side
                    link = (at, (at + (-1 if side else 1)) % cores, side)
                assert link in links
                assert before is None or may_turn(topology, cores, before, link)
                at, before, hops = link[1], link, hops + 1
                assert hops <= cores
            ahead = (home - start) % cores
            across = abs(start // columns - home // columns) + abs(start % columns - home % columns)
            assert hops == (min(ahead, cores - ahead) if topology is Topology.RING else across)


def test_turns_of_a_mesh_make_no_circle() -> None:
    """Edges from each link to those that a token may go on to make no cycle: nothing can wait for itself."""
    for cores in (4, 6, 9, 12, 16):
        links = link_ends(Topology.MESH, cores)
        onward = {a: [b for b in links if b[0] == a[1] and may_turn(Topology.MESH, cores, a, b)] for a in links}
        while onward:
            ends = [a for a, after in onward.items() if not any(b in onward for b in after)]
            assert ends, onward
            for a in ends:
                del onward[a]
