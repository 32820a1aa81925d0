"""The floating-point units: mini-floats on all pairs, binary32 on corners and at random, against an exact model; and the
model against NumPy."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from upl_mlir.hw.fp import model
from upl_mlir.hw.fp.fma import FusedMultiplyAdd
from upl_mlir.hw.fp.iterative import Divider, IntegerDivider, SquareRoot
from upl_mlir.hw.fp.model import BINARY32, Format
from upl_mlir.hw.fp.pipelined import Adder, Multiplier
from upl_mlir.hw.sim import build

sys.path.insert(0, str(Path(__file__).resolve().parent))
import floats_bench

MINI = Format(3, 2)
PAIRS = [(a, b) for a in range(1 << MINI.bits) for b in range(1 << MINI.bits)]
LONG = Format(4, 2)
"""The multiplier wants an exponent that is long beside the mantissa."""
LONG_PAIRS = [(a | a * b % 3 % 2 * LONG.sign, b | (a + b) % 3 % 2 * LONG.sign)
              for a in range(LONG.sign) for b in range(LONG.sign)]  # fmt: skip
POSITIVE = [0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x3F800001, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001,
           0x34000000, 0x33FFFFFF, 0x00FFFFFF, 0x4B800000, 0x3EAAAAAB]  # fmt: skip
CORNERS = [*POSITIVE, *(c | 1 << 31 for c in POSITIVE)]


def near(count: int, seed: int) -> list[tuple[int, int]]:
    """Random pairs, half of them close to each other's negative, where the most bits cancel."""
    r = random.Random(seed)
    out = [(r.getrandbits(32), r.getrandbits(32)) for _ in range(count // 2)]
    return out + [(a, ((a ^ 1 << 31) + r.randint(-70, 70)) & 0xFFFFFFFF) for a, _ in out]


def piped(unit: Any, pairs: list[tuple[int, int]]) -> list[int]:
    """The results of a pipelined unit that is given a pair every cycle."""
    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    out: list[int] = []

    async def bench(context: Any) -> None:
        for n in range(len(pairs) + unit.latency):
            if n < len(pairs):
                context.set(unit.a, pairs[n][0])
                context.set(unit.b, pairs[n][1])
            _, _, result = await context.tick().sample(unit.result)
            if n >= unit.latency:
                out.append(result)

    simulator.add_testbench(bench)
    simulator.run()
    return out


def iterated(unit: Any, pairs: list[tuple[int, int]], *ports: str) -> list[tuple[int, ...]]:
    """Results of an iterative unit, and its cycles from start to done, checked against what was asked for."""
    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    out: list[tuple[int, ...]] = []

    async def bench(context: Any) -> None:
        for a, b in pairs:
            context.set(unit.a, a)
            context.set(unit.b, b)
            context.set(unit.start, 1)
            await context.tick()
            context.set(unit.start, 0)
            cycles = 1
            while not context.get(unit.done):
                await context.tick()
                cycles += 1
            assert cycles <= unit.cycles
            out.append(tuple(context.get(getattr(unit, p)) for p in ports))
            await context.tick()

    simulator.add_testbench(bench)
    simulator.run()
    return out


def fused(unit: FusedMultiplyAdd, triples: list[tuple[int, int, int]]) -> list[int]:
    """The places of the triples, one given every cycle, for which the unit's result is not the model's."""
    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    out: list[int] = []

    async def bench(context: Any) -> None:
        for n in range(len(triples) + unit.latency):
            if n < len(triples):
                for name, value in zip("abc", triples[n], strict=True):
                    context.set(getattr(unit, name), value)
            _, _, result = await context.tick().sample(unit.result)
            if n >= unit.latency:
                out.append(result)

    simulator.add_testbench(bench)
    simulator.run()
    return [n for n, (t, got) in enumerate(zip(triples, out, strict=True)) if got != model.fma(unit.format, *t)]


def wrong(
    f: Format, pairs: list[tuple[int, int]], got: list[int], rule: Callable[[Format, int, int], int]
) -> list[str]:
    assert len(got) == len(pairs)
    return [
        f"{a:x} {b:x}: {g:x}, not {rule(f, a, b):x}" for (a, b), g in zip(pairs, got, strict=True) if g != rule(f, a, b)
    ]


@pytest.mark.parametrize("latency", [1, 3, 4, 6])
def test_addition_of_mini_floats(latency: int) -> None:
    assert not wrong(MINI, PAIRS, piped(Adder(MINI, latency), PAIRS), model.add)


@pytest.mark.parametrize("latency", [1, 4])
def test_multiplication_of_mini_floats(latency: int) -> None:
    assert not wrong(LONG, LONG_PAIRS, piped(Multiplier(LONG, latency), LONG_PAIRS), model.mul)


def test_division_of_mini_floats() -> None:
    got = [q for (q,) in iterated(Divider(MINI, 5), PAIRS, "result")]
    assert not wrong(MINI, PAIRS, got, model.div)


@pytest.mark.parametrize("f", [MINI, Format(4, 3), Format(3, 6)])
def test_roots_of_mini_floats(f: Format) -> None:
    values = [(a, 0) for a in range(1 << f.bits)]
    got = [q for (q,) in iterated(SquareRoot(f, 6), values, "result")]
    assert not wrong(f, values, got, lambda f, a, _: model.sqrt(f, a))


def test_fused_multiply_add_of_mini_floats() -> None:
    """All triples of a format of four bits; of one of six bits some, in pipelines of any length."""
    tiny = Format(2, 1)
    values = range(1 << tiny.bits)
    assert not fused(FusedMultiplyAdd(tiny, 1), [(a, b, c) for a in values for b in values for c in values])
    r = random.Random(6)
    for latency in (2, 5, 7):
        words = iter(r.choices(range(1 << MINI.bits), k=3000))
        assert not fused(FusedMultiplyAdd(MINI, latency), list(zip(words, words, words, strict=True)))


def test_fused_multiply_add_in_binary32() -> None:
    r = random.Random(7)
    triples = [(a, b, c) for a in CORNERS[::3] for b in CORNERS[::4] for c in CORNERS[::2]]
    for a, b in near(600, 8):
        product = model.mul(BINARY32, a, b)
        triples.append((a, b, ((product ^ 1 << 31) + r.randint(-70, 70) + (r.randint(-30, 30) << 23)) & 0xFFFFFFFF))
    assert not fused(FusedMultiplyAdd(BINARY32, 4), triples)


@pytest.mark.skipif(not build.available(), reason="no C++ compiler")
@pytest.mark.parametrize("unit", floats_bench.UNITS)
def test_compiled_units_in_binary32(unit: str) -> None:
    """Corners and random operands on machine code made from the RTL; `make soak` has a hundred times as many."""
    corners = np.array(CORNERS, np.uint32)
    grid = np.meshgrid(corners, corners, corners if unit == "fma" else corners[:1])
    for a, b, c in (tuple(g.ravel() for g in grid), floats_bench.operands(np.random.default_rng(9), 10_000)):
        bad = np.flatnonzero(floats_bench.compute(unit, a, b, c) != floats_bench.wanted(unit, a, b, c))
        assert not [f"{a[n]:x} {b[n]:x} {c[n]:x}" for n in bad[:5]]


@pytest.mark.parametrize(("unit", "rule"), [(Adder, model.add), (Multiplier, model.mul)])
def test_pipelines_in_binary32(unit: Any, rule: Callable[[Format, int, int], int]) -> None:
    pairs = [(a, b) for a in CORNERS for b in CORNERS] + near(10_000, 1)
    assert not wrong(BINARY32, pairs, piped(unit(BINARY32, 4), pairs), rule)


def test_division_in_binary32() -> None:
    pairs = [(a, b) for a in CORNERS for b in CORNERS[::3]] + near(200, 2)
    got = [q for (q,) in iterated(Divider(BINARY32, 16), pairs, "result")]
    assert not wrong(BINARY32, pairs, got, model.div)


def test_roots_in_binary32() -> None:
    values = [(a, 0) for a in CORNERS] + [(a & 0x7FFFFFFF, 0) for a, _ in near(400, 3)]
    got = [q for (q,) in iterated(SquareRoot(BINARY32, 16), values, "result")]
    assert not wrong(BINARY32, values, got, lambda f, a, _: model.sqrt(f, a))


def test_integers_divide_rounding_down() -> None:
    r = random.Random(4)
    pairs = [(a, b) for a in range(-9, 10) for b in (-5, -2, -1, 1, 2, 3, 7)]
    pairs += [(r.randint(-(2**31), 2**31 - 1), r.randint(1, 2**20) * r.choice([1, -1])) for _ in range(60)]
    got = iterated(IntegerDivider(32, 16), [(a & 0xFFFFFFFF, b & 0xFFFFFFFF) for a, b in pairs], "result", "rest")
    assert got == [(a // b & 0xFFFFFFFF, a % b & 0xFFFFFFFF) for a, b in pairs]


def test_the_model_is_numpys_binary32() -> None:
    pairs = [(a, b) for a in CORNERS for b in CORNERS] + near(10_000, 5)
    a = np.array([p[0] for p in pairs], np.uint32).view(np.float32)
    b = np.array([p[1] for p in pairs], np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        for rule, reference in ((model.add, a + b), (model.mul, a * b), (model.div, a / b)):
            assert [rule(BINARY32, x, y) for x, y in pairs] == _bits(reference)
        assert [model.sqrt(BINARY32, x) for x, _ in pairs] == _bits(np.sqrt(a))


def _bits(values: np.ndarray) -> list[int]:
    return np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32)).tolist()


def test_a_wrong_unit_is_noticed() -> None:
    """The comparison itself: a multiplier is no adder."""
    assert wrong(LONG, LONG_PAIRS[:500], piped(Multiplier(LONG, 1), LONG_PAIRS[:500]), model.add)
