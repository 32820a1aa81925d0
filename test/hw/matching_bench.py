"""A test bench for the hashed matching unit: node tables, random tokens of well-formed programs, counters."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from amaranth.sim import Simulator

from upl_mlir.hw.core.layouts import Dimensions, Failure, Mode, node_layout, token_layout, walk_layout
from upl_mlir.hw.core.matching import Matching

Firing = tuple[int, int, tuple[int, ...]]
"""Node, tag, values."""
FULL, X_ONLY, Y_ONLY = 0xFF, 0x0F, 0xF0
"""Keys of tokens whose index is <x,y>, 4 bits each."""
SIDE = 4
_NONE = {"mask": 0, "step": 0, "last": 0}
_OVER_X = {"mask": 0x0F, "step": 0x01, "last": SIDE - 1}
_OVER_Y = {"mask": 0xF0, "step": 0x10, "last": (SIDE - 1) << 4}


def row(modes: list[Mode], keys: list[int]) -> dict[str, Any]:
    """A row of the node table."""
    return {
        "plain": sum(1 << n for n, mode in enumerate(modes) if mode != Mode.COUNTED),
        "counted": sum(1 << n for n, mode in enumerate(modes) if mode == Mode.COUNTED),
        "modes": [int(mode) for mode in modes] + [0] * (4 - len(modes)),
        "keys": keys + [FULL] * (4 - len(keys)),
    }


P, C = Mode.PLAIN, Mode.COUNTED
NODES = [
    row([P, P], [FULL, FULL]),
    row([C, P], [X_ONLY, FULL]),
    row([Mode.ADD_F32], [FULL]),
    row([Mode.ADD_I32, P], [FULL, FULL]),
    row([C, C], [X_ONLY, Y_ONLY]),
    row([C, P, P], [X_ONLY, FULL, FULL]),
    row([C, C, P], [X_ONLY, Y_ONLY, FULL]),
    row([P], [FULL]),
]
WALKS = {(1, 0): _OVER_Y, (4, 0): _OVER_Y, (4, 1): _OVER_X, (5, 0): _OVER_Y, (6, 0): _OVER_Y, (6, 1): _OVER_X}


@dataclass
class Run:
    """What a run gave."""

    firings: list[Firing] = field(default_factory=list[Firing])
    cycles: int = 0
    used: int = 0
    failure: Failure = Failure.NONE
    spilled: int = 0


def token(node: int, port: int, tag: int, value: int, multiplicity: int = 1) -> dict[str, int]:
    """A token."""
    return {"kind": 0, "node": node, "input": port, "tag": tag, "multiplicity": multiplicity, "value": value}


def bits(value: float) -> int:
    """A real as binary32."""
    return int(np.float32(value).view(np.uint32))


FAULTS = [
    ([token(0, 0, 1, 1), token(0, 0, 1, 2)], Failure.DUPLICATE),
    ([token(1, 0, 1, 1, 4), token(1, 0, 1, 1, 4)], Failure.DUPLICATE),
    ([token(2, 0, 1, bits(1), 3), token(2, 0, 1, bits(1), 2)], Failure.COUNT),
    ([token(3, 0, 1, 0x7FFFFFFF, 3), token(3, 0, 1, 1, 3)], Failure.OVERFLOW),
]
"""Tokens that stop every matching unit, and why."""


async def write(context: Any, unit: Any, memory: str, words: Iterable[tuple[int, Any]]) -> None:
    """Write words, given with their addresses, to a memory of the unit."""
    enable, address, data = (getattr(unit, f"{memory}_{port}") for port in ("en", "address", "data"))
    context.set(enable, 1)
    for place, word in words:
        context.set(address, place)
        context.set(data, word)
        await context.tick()
    context.set(enable, 0)


def drive(
    unit: Any, d: Dimensions, tokens: list[dict[str, int]], begin: Callable[[Any], Awaitable[None]],
    fired: Callable[[Any], Firing], *, ready: float, seed: int, limit: int,
) -> Run:  # fmt: skip
    """Give a unit, once `begin` has filled its memories, a token whenever it takes one, until it is idle; it can give an
    activation away with probability `ready` in a cycle.  `fired` is the firing that an activation is."""
    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    out = Run()
    random_ = random.Random(seed)

    async def bench(context: Any) -> None:
        await begin(context)
        given = 0
        while out.cycles < limit:
            context.set(unit.token.valid, given < len(tokens))
            if given < len(tokens):
                context.set(unit.token.payload, token_layout(d).const(tokens[given]))
            context.set(unit.activation.ready, random_.random() < ready)
            sample = context.tick().sample(
                unit.token.ready, unit.activation.valid, unit.activation.ready, unit.activation.payload, unit.idle,
                unit.failure, unit.spilling,
            )  # fmt: skip
            _, _, took, fires, taken, activation, idle, failure, spilling = await sample
            out.cycles += 1
            out.spilled += spilling
            if fires and taken:
                out.firings.append(fired(activation))
            begun = given < len(tokens)
            given += took and begun
            if failure:
                out.failure = Failure(failure)
                break
            if given == len(tokens) and idle and not fires and not begun:
                break
        out.used = context.get(unit.used)

    simulator.add_testbench(bench)
    simulator.run()
    return out


def play(
    d: Dimensions, tokens: list[dict[str, int]], *,
    ready: float = 1.0, seed: int = 0, limit: int = 60_000, roomy: bool = True,
) -> Run:  # fmt: skip
    """Drive the hashed unit.  `roomy`: whether more activations are wanted."""
    unit = Matching(d)

    async def begin(context: Any) -> None:
        context.set(unit.roomy, roomy)
        await write(context, unit, "node", enumerate(map(node_layout(d).const, NODES)))
        walks = (({"levels": [level, _NONE]}, node << d.input_bits | port) for (node, port), level in WALKS.items())
        await write(context, unit, "walk", ((place, walk_layout(d).const(row)) for row, place in walks))

    def fired(activation: Any) -> Firing:
        return activation.node, activation.tag, tuple(activation["values"][n] for n in range(d.max_inputs))

    return drive(unit, d, tokens, begin, fired, ready=ready, seed=seed, limit=limit)


def program(seed: int, only: Container[int] = range(8)) -> tuple[list[dict[str, int]], Counter[Firing]]:
    """The tokens of every instance of the nodes, or of some of them, in random order, and the firings they make."""
    r = random.Random(seed)
    tokens: list[dict[str, int]] = []
    wanted: Counter[Firing] = Counter()
    names = iter(range(1, 1 << 20))
    box = [(x, y) for x in range(SIDE) for y in range(SIDE)]
    over_x = {(n, x): next(names) for n in (1, 4, 5, 6) for x in range(SIDE)}
    over_y = {(n, y): next(names) for n in (4, 6) for y in range(SIDE)}
    tokens += [token(n, 0, x, value, SIDE) for (n, x), value in over_x.items()]
    tokens += [token(n, 1, y << 4, value, SIDE) for (n, y), value in over_y.items()]
    for x, y in box:
        tag = x | y << 4
        a, b, c, w, p, q, s, t = (next(names) for _ in range(8))
        tokens += [token(0, 0, tag, a), token(0, 1, tag, b), token(1, 1, tag, w), token(5, 1, tag, p), token(5, 2, tag, q)]
        tokens += [token(6, 2, tag, s), token(7, 0, tag, t), token(3, 1, tag, c)]
        reals = [r.randint(-9, 9) for _ in range(r.randint(1, 6))]
        integers = [r.randint(-9, 9) for _ in range(r.randint(1, 4))]
        tokens += [token(2, 0, tag, bits(v), len(reals)) for v in reals]
        tokens += [token(3, 0, tag, v & 0xFFFFFFFF, len(integers)) for v in integers]
        for firing in (
            (0, (a, b, 0, 0)), (1, (over_x[1, x], w, 0, 0)), (2, (bits(sum(reals)), 0, 0, 0)),
            (3, (sum(integers) & 0xFFFFFFFF, c, 0, 0)), (4, (over_x[4, x], over_y[4, y], 0, 0)),
            (5, (over_x[5, x], p, q, 0)), (6, (over_x[6, x], over_y[6, y], s, 0)), (7, (t, 0, 0, 0)),
        ):  # fmt: skip
            wanted[firing[0], tag, firing[1]] += 1
    tokens = [t for t in tokens if t["node"] in only]
    r.shuffle(tokens)
    return tokens, Counter({f: n for f, n in wanted.items() if f[0] in only})
