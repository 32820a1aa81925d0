"""Comparisons, choices and logic as a body of a circuit has them, against plain Python."""

from __future__ import annotations

import math
import struct
from itertools import product
from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from upl_mlir.hw.circuit.units import OUTCOMES, Units
from upl_mlir.passes.circuit.numbers import F32

UNITS = Units(F32, F32.latency, "generic")
NUMBERS = (0.0, -0.0, 1.0, -1.0, 1.5, 1e-45, -1e-45, math.inf, -math.inf, math.nan)


def bits(x: float) -> int:
    return struct.unpack("<I", struct.pack("<f", x))[0]


def unordered(a: float, b: float) -> bool:
    return math.isnan(a) or math.isnan(b)


def results(kind: str, widths: tuple[int, ...], operands: list[tuple[int, ...]]) -> list[int]:
    """What an operation gives for these operands, one after the other."""
    m = Module()
    given = [Signal(width, name=f"given_{n}") for n, width in enumerate(widths)]
    value: Any = UNITS.wires(kind, given)
    latency = F32.latency[kind.partition(" ")[0]]
    if value is None:
        m.submodules.unit = made = UNITS.unit(kind)
        m.d.comb += [getattr(made, name).eq(g) for name, g in zip("abc", given, strict=False)]
        value = UNITS.result(kind, made)
    shown = Signal(len(value))
    m.d.comb += shown.eq(value)
    m.d.sync += Signal(name="clocked").eq(1)
    out: list[int] = []

    async def bench(ctx: Any) -> None:
        for n, row in enumerate([*operands, *[operands[-1]] * latency]):
            for g, value in zip(given, row, strict=True):
                ctx.set(g, value)
            if n >= latency:
                out.append(ctx.get(shown))
            await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return out


@pytest.mark.parametrize("predicate", OUTCOMES)
def test_comparisons(predicate: str) -> None:
    """All fourteen, of each pair of numbers."""
    pairs = list(product(NUMBERS, NUMBERS))
    ordered = {
        "eq": lambda a, b: a == b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b, "ne": lambda a, b: a < b or a > b, "rd": lambda a, b: not unordered(a, b),
        "no": lambda a, b: False,
    }[predicate[1:]]  # fmt: skip

    def right(a: float, b: float) -> bool:
        return ordered(a, b) or (predicate[0] == "u" and unordered(a, b))

    found = results(f"compare {predicate}", (32, 32), [(bits(a), bits(b)) for a, b in pairs])
    assert found == [int(right(a, b)) for a, b in pairs]


def test_logic_and_choices() -> None:
    both = list(product((0, 1), (0, 1)))
    assert results("and", (1, 1), both) == [a & b for a, b in both]
    assert results("or", (1, 1), both) == [a | b for a, b in both]
    assert results("xor", (1, 1), both) == [a ^ b for a, b in both]
    assert results("not", (1,), [(0,), (1,)]) == [1, 0]
    assert results("real", (1,), [(0,), (1,)]) == [bits(0.0), bits(1.0)]
    assert results("abs", (32,), [(bits(x),) for x in NUMBERS]) == [bits(x) & 0x7FFFFFFF for x in NUMBERS]
    assert results("choose", (1, 32, 32), [(1, 5, 9), (0, 5, 9)]) == [5, 9]
    assert results("choose bit", (1, 1, 1), [(1, 0, 1), (0, 0, 1)]) == [0, 1]
