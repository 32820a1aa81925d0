"""Fixed-point units against rationals: all pairs of small formats, random and extreme operands of others, every latency."""

from __future__ import annotations

import random
from typing import Any

import pytest
from amaranth.sim import Simulator
from xdsl.dialects import arith

from upl_mlir.engines.reference.small import exactly, nearest
from upl_mlir.hw.fp import saturating
from upl_mlir.hw.fp.saturating import FixedDivider, FixedMultiplier, FixedProduct, FixedSum
from upl_mlir.hw.fp.truths import Combined
from upl_mlir.numbers.formats import FixedFormat

ALL = (FixedFormat(1, 1), FixedFormat(3, 0), FixedFormat(1, 3), FixedFormat(2, 2))
OTHERS = (
    FixedFormat(8, 8), FixedFormat(4, 14), FixedFormat(1, 17), FixedFormat(18, 0), FixedFormat(10, 9), FixedFormat(6, 20),
    FixedFormat(16, 16), FixedFormat(1, 31), FixedFormat(32, 0),
)  # fmt: skip


def steps(f: FixedFormat, word: int) -> int:
    """The number of steps that a word is."""
    return word - (1 << f.bits) if word >> f.bits - 1 else word


def words(f: FixedFormat) -> list[tuple[int, int]]:
    """All pairs of words of a small format; else extreme ones and random ones of all sizes."""
    if f.bits <= 4:
        return [(a, b) for a in range(1 << f.bits) for b in range(1 << f.bits)]
    rng, mask = random.Random(f.bits), (1 << f.bits) - 1
    ends = [0, 1, mask, 1 << f.bits - 1, (1 << f.bits - 1) - 1, (1 << f.bits - 1) + 1, f.scale & mask, 3]
    pairs = [(a, b) for a in ends for b in ends]
    for _ in range(250):
        a, b = (rng.getrandbits(rng.randint(1, f.bits)) * rng.choice((1, -1)) & mask for _ in "ab")
        pairs.append((a, b))
    return pairs


def results(
    unit: Any, names: str, operands: list[tuple[int, ...]], held: random.Random | None = None
) -> list[int]:  # fmt: skip
    """What comes out for these operands; `held`: now and then everything stands still."""
    out: list[int] = []

    async def bench(ctx):  # type: ignore[no-untyped-def]
        for n, given in enumerate([*operands, *[(0,) * len(names)] * max(0, unit.latency - 1)]):
            while held is not None and held.random() < 0.3:
                ctx.set(unit.enable, 0)
                ctx.set(unit.a, held.getrandbits(3))
                await ctx.tick()
            ctx.set(unit.enable, 1)
            for name, value in zip(names, given, strict=True):
                ctx.set(getattr(unit, name), value)
            await ctx.tick()
            if n >= unit.latency - 1:
                out.append(ctx.get(unit.result))

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return out


def wanted(f: FixedFormat, op: Any, a: int, b: int) -> int:
    """The word of the exact result's nearest number."""
    x, y = steps(f, a) / f.scale, steps(f, b) / f.scale
    exact: Any = exactly(op, x, y)
    if exact is None:
        exact = float("inf") * x if op is arith.DivfOp and x and not y else 0.0
    return int(nearest(exact, f) * f.scale) & ((1 << f.bits) - 1)


def check(f: FixedFormat, op: Any, unit: Any, pairs: list[tuple[int, int]], held: random.Random | None = None) -> None:
    found = results(unit, "ab", pairs, held)
    wrong = [(a, b, r, wanted(f, op, a, b)) for (a, b), r in zip(pairs, found, strict=True) if r != wanted(f, op, a, b)]
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("f", (*ALL, *OTHERS), ids=lambda f: f.name)
def test_products(f: FixedFormat) -> None:
    check(f, arith.MulfOp, FixedMultiplier(f), words(f))


@pytest.mark.parametrize("f", (*ALL, *OTHERS), ids=lambda f: f.name)
def test_sums(f: FixedFormat) -> None:
    for op, compute in ((arith.AddfOp, saturating.added), (arith.SubfOp, saturating.subtracted)):
        check(f, op, Combined((f.bits, f.bits), compute, 1), words(f))


@pytest.mark.parametrize("f", (*ALL, *OTHERS), ids=lambda f: f.name)
def test_a_number_and_the_bit_that_rounds_it(f: FixedFormat) -> None:
    """Their sum is the product, without going over."""
    pairs, mask = words(f), (1 << f.bits) - 1
    for (a, b), r in zip(pairs, results(FixedProduct(f), "ab", pairs), strict=True):
        number, bit = r & mask, r >> f.bits
        assert not (bit and number == mask >> 1), (a, b)
        assert number + bit & mask == wanted(f, arith.MulfOp, a, b), (a, b)


@pytest.mark.parametrize("latency", [1, 2])
@pytest.mark.parametrize("f", (*ALL, *OTHERS), ids=lambda f: f.name)
def test_steps_of_running_sums(f: FixedFormat, latency: int) -> None:
    """The sum of two numbers, of which the second one is rounded by a bit; without c the second one alone."""
    greatest = (1 << f.bits - 1) - 1
    given = [(a, b | bit << f.bits, keep) for a, b in words(f) for bit in (0, 1) for keep in (0, 1)
             if not (bit and b == greatest)]  # fmt: skip
    found = results(FixedSum(f, latency), "abc", given, random.Random(f.bits))
    for (a, b, keep), r in zip(given, found, strict=True):
        number = b + (b >> f.bits) & (1 << f.bits) - 1
        assert r == (wanted(f, arith.AddfOp, a, number) if keep else number), (a, b, keep)


@pytest.mark.parametrize("f", (*ALL, *OTHERS), ids=lambda f: f.name)
def test_quotients(f: FixedFormat) -> None:
    check(f, arith.DivfOp, FixedDivider(f), words(f))


@pytest.mark.parametrize("divisor", [1, 3, -3, 7, 255, 256, -256, 1000, -32768, 32767])
def test_quotients_by_a_constant(divisor: int) -> None:
    f = FixedFormat(8, 8)
    pairs = [(a, divisor & 0xFFFF) for a, _ in words(f)]
    check(f, arith.DivfOp, FixedDivider(f, divisor=divisor), pairs)


@pytest.mark.parametrize("latency", range(1, 9))
def test_every_latency(latency: int) -> None:
    f = FixedFormat(4, 14)
    check(f, arith.MulfOp, FixedMultiplier(f, latency), words(f), random.Random(latency))
    exact = results(FixedProduct(f), "ab", words(f))
    assert results(FixedProduct(f, latency), "ab", words(f), random.Random(latency)) == exact
    check(f, arith.DivfOp, FixedDivider(f, 3 * latency), words(f), random.Random(latency))


@pytest.mark.parametrize("f", (*ALL, *OTHERS), ids=lambda f: f.name)
def test_one_operand(f: FixedFormat) -> None:
    """The negative and the size; powers of two, which are products."""
    given = [(a,) for a, _ in words(f)]
    mask = (1 << f.bits) - 1
    for name, compute in (("-", saturating.negated), ("| |", saturating.sized)):
        for (a,), r in zip(given, results(Combined((f.bits,), compute, 1), "a", given), strict=True):
            value = -steps(f, a) if name == "-" else abs(steps(f, a))
            assert r == min(value, f.greatest_step) & mask, (name, a)
    for places in (1, 2, 5, f.bits + 3):
        for down in (False, True):
            move = saturating.moved_down if down else saturating.moved_up
            unit = Combined((f.bits,), lambda a, move=move, places=places: move(a, places), 1)
            for (a,), r in zip(given, results(unit, "a", given), strict=True):
                exact = steps(f, a) / f.scale * 2.0 ** (-places if down else places)
                assert r == int(nearest(exact, f) * f.scale) & mask, (places, down, a)
