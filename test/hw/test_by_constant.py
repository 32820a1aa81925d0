"""Division and scaling by constants against the model by rationals: random operands, special values, every latency."""

from __future__ import annotations

import gc
import random
from fractions import Fraction

import pytest
from amaranth.sim import Simulator

from upl_mlir.hw.fp import model
from upl_mlir.hw.fp.by_constant import DivideByConstant, ScaleByPowerOfTwo, Unary
from upl_mlir.hw.fp.model import BINARY32, Format

MINI, BINARY16, BFLOAT16 = Format(4, 3), Format(5, 10), Format(8, 7)
EXPONENTS = [0, 1, -1, 3, -3, 30, -30, 140, -140, 300, -300]


def results(unit: Unary, operands: list[int], held: random.Random | None = None) -> list[int]:
    """What comes out for these operands, one after the other; `held`: now and then the pipeline stands still."""
    out: list[int] = []

    async def bench(ctx):  # type: ignore[no-untyped-def]
        for n, a in enumerate([*operands, *[0] * (unit.latency - 1)]):
            while held is not None and held.random() < 0.3:
                ctx.set(unit.enable, 0)
                ctx.set(unit.a, held.getrandbits(unit.format.bits))
                await ctx.tick()
            ctx.set(unit.enable, 1)
            ctx.set(unit.a, a)
            ctx.set(unit.pass_in, n & 1)
            await ctx.tick()
            if n >= unit.latency - 1:
                out.append(ctx.get(unit.result))
                assert ctx.get(unit.pass_out) == (n - unit.latency + 1) & 1

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return out


def expected(unit: Unary, a: int) -> int:
    """The model's result: an infinity and a NaN stay, with the sign of the constant."""
    f = unit.format
    factor = Fraction(1, unit.divisor) if isinstance(unit, DivideByConstant) else Fraction(2) ** unit.exponent
    sign = a & f.sign ^ (f.sign if factor < 0 else 0)
    if model.is_nan(f, a):
        return f.nan
    if a & ~f.sign == f.infinity:
        return sign | f.infinity
    return model.rounded(f, model.exact(f, a) * factor, negative=bool(sign))


def wrong(unit: Unary, operands: list[int], held: random.Random | None = None) -> list[str]:
    """Operand, result and the model's, where they differ."""
    found = zip(operands, results(unit, operands, held), strict=True)
    return [f"{a:#x}: {r:#x}, not {expected(unit, a):#x}" for a, r in found if r != expected(unit, a)]


def samples(f: Format, count: int, seed: int) -> list[int]:
    """Special values, any bits, numbers near both ends of the range, subnormal ones, and some with few bits."""
    rng = random.Random(seed)
    out = [0, 1, 2, 3, f.infinity, f.infinity - 1, f.nan, f.infinity + 1, 1 << f.mantissa, (1 << f.mantissa) - 1]
    while len(out) < count // 2:
        low = rng.getrandbits(f.mantissa)
        small, great = rng.randrange(8), f.exponent_ones - 1 - rng.randrange(5)
        out += [rng.getrandbits(f.bits - 1), small << f.mantissa | low, great << f.mantissa | low]
        out += [rng.getrandbits(rng.randint(1, f.mantissa)), rng.randrange(f.exponent_ones) << f.mantissa | low & -4]
    return [a for x in out for a in (x, x | f.sign)]


def refused(make: object, message: str) -> None:
    """`make` raises ValueError; Amaranth's complaint about the unit that nobody uses comes now, where it is expected."""
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
    gc.collect()


@pytest.mark.parametrize("divisor", [3, 5, 7, 9, 11, 13, 15, 6, -3, 28, 9 << 6, 3 << 40, 13 << 140])
def test_quotients_are_the_models(divisor: int) -> None:
    assert not wrong(DivideByConstant(BINARY32, divisor), samples(BINARY32, 700, divisor))


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_scaled_numbers_are_the_models(exponent: int) -> None:
    assert not wrong(ScaleByPowerOfTwo(BINARY32, exponent), samples(BINARY32, 700, exponent))


@pytest.mark.parametrize("f", [MINI, BINARY16, BFLOAT16], ids=lambda f: f"{f.exponent}_{f.mantissa}")
@pytest.mark.parametrize("constant", [3, 5, 15, 12, 40])
def test_other_formats(f: Format, constant: int) -> None:
    operands = [*range(1 << f.bits)] if f is MINI else samples(f, 500, constant)
    assert not wrong(DivideByConstant(f, constant), operands)
    assert not wrong(ScaleByPowerOfTwo(f, constant - 10), operands)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_every_latency() -> None:
    for make, most in ((lambda n: DivideByConstant(BINARY32, 7, n), 9), (lambda n: ScaleByPowerOfTwo(BINARY32, -3, n), 5),
                       (lambda n: ScaleByPowerOfTwo(BINARY32, 3, n), 6)):  # fmt: skip
        for latency in range(1, most + 1):
            assert not wrong(make(latency), samples(BINARY32, 60, latency)), latency
        for latency in (0, most + 1):
            refused(lambda make=make, latency=latency: make(latency), f"latency={latency}: expected 1 to {most}")


def test_a_pipeline_that_is_held_keeps_what_it_has() -> None:
    for unit in (DivideByConstant(BINARY32, 5), ScaleByPowerOfTwo(BINARY32, -2), ScaleByPowerOfTwo(BINARY32, 2)):
        assert not wrong(unit, samples(BINARY32, 200, 3), random.Random(4))


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_divisors_with_a_greater_odd_part_are_refused() -> None:
    for divisor in (0, 1, 2, 16, 17, 34, -19):
        refused(lambda divisor=divisor: DivideByConstant(BINARY32, divisor), f"divisor={divisor}: expected")
