"""The pipelined units against the model by rationals: random operands, special values, every latency, and held pipelines."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable

import pytest
from amaranth.sim import Simulator

from upl_mlir.hw.fp import model
from upl_mlir.hw.fp.model import BINARY32, Format
from upl_mlir.hw.fp.pipelined import Adder, Multiplier

MINI, BINARY16, BFLOAT16 = Format(4, 3), Format(5, 10), Format(8, 7)
REFERENCE = {Adder: model.add, Multiplier: model.mul}
SPECIAL = [0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x3F800001, 0x34000000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000,
           0x7F800001, 0x00400000, 0x33800000]  # fmt: skip
Pairs = list[tuple[int, int]]


def results(unit: Adder | Multiplier, pairs: Pairs, held: random.Random | None = None) -> list[int]:
    """What comes out for these operands, one after the other; `held`: now and then the pipeline stands still."""
    out: list[int] = []

    async def bench(ctx):  # type: ignore[no-untyped-def]
        sent: list[int] = []
        for a, b in [*pairs, *[(0, 0)] * unit.latency]:
            while held is not None and held.random() < 0.3:
                ctx.set(unit.enable, 0)
                ctx.set(unit.a, held.getrandbits(unit.format.bits))
                await ctx.tick()
            ctx.set(unit.enable, 1)
            ctx.set(unit.a, a)
            ctx.set(unit.b, b)
            ctx.set(unit.pass_in, len(sent) & 1)
            sent.append(len(sent) & 1)
            await ctx.tick()
            if len(sent) >= unit.latency:
                out.append(ctx.get(unit.result))
                assert ctx.get(unit.pass_out) == sent[len(sent) - unit.latency]

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return out[: len(pairs)]


def samples(f: Format, count: int, seed: int) -> Pairs:
    """Any bits; nearly equal magnitudes of other signs; products near the least numbers."""
    rng = random.Random(seed)
    top = f.exponent_ones
    out: Pairs = []
    while len(out) < count:
        a = rng.getrandbits(f.bits)
        near = (a ^ f.sign) + rng.choice([0, 1, 2, -1, 1 << f.mantissa, 1 << (f.mantissa - 1)]) & (1 << f.bits) - 1
        e = rng.randrange(1, top)
        other = max(0, min(top - 1, f.bias - e + rng.randrange(-f.mantissa - 5, 4)))
        low = rng.getrandbits(f.mantissa), rng.getrandbits(f.mantissa)
        small = rng.getrandbits(rng.randrange(1, f.mantissa + 1))
        tiny = e << f.mantissa | low[0], other << f.mantissa | low[1]
        out += [(a, rng.getrandbits(f.bits)), (a, near), tiny, (small, a)]
    return out


def wrong(unit: Adder | Multiplier, pairs: Pairs, held: random.Random | None = None) -> list[str]:
    """Operands, result and the model's, where they differ."""
    reference = REFERENCE[type(unit)]
    found = zip(pairs, results(unit, pairs, held), strict=True)
    return [f"{a:#x} {b:#x}: {r:#x}, not {reference(unit.format, a, b):#x}" for (a, b), r in found
            if r != reference(unit.format, a, b)]  # fmt: skip


def refused(make: Callable[[], object], message: str) -> None:
    """`make` raises ValueError; Amaranth's complaint about the unit that nobody uses comes now, where it is expected."""
    with pytest.raises(ValueError, match=message):
        make()
    gc.collect()


@pytest.mark.parametrize("kind", [Adder, Multiplier])
@pytest.mark.parametrize("f", [BINARY32, MINI, BINARY16, BFLOAT16], ids=lambda f: f"{f.exponent}_{f.mantissa}")
def test_results_are_the_models(kind: type[Adder | Multiplier], f: Format) -> None:
    assert not wrong(kind(f), samples(f, 2500, 1))


@pytest.mark.parametrize("kind", [Adder, Multiplier])
def test_special_values(kind: type[Adder | Multiplier]) -> None:
    values = [*SPECIAL, *(x | 1 << 31 for x in SPECIAL)]
    assert not wrong(kind(BINARY32), [(a, b) for a in values for b in values])


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("kind", [Adder, Multiplier])
def test_every_latency(kind: type[Adder | Multiplier]) -> None:
    most = kind.steps(MINI)
    for latency in range(1, most + 1):
        assert not wrong(kind(MINI, latency), samples(MINI, 150, latency)), latency
    for latency in (0, most + 1):
        refused(lambda latency=latency: kind(MINI, latency), f"latency={latency}: expected 1 to {most}")


@pytest.mark.parametrize("kind", [Adder, Multiplier])
def test_a_pipeline_that_is_held_keeps_what_it_has(kind: type[Adder | Multiplier]) -> None:
    assert not wrong(kind(BINARY32), samples(BINARY32, 300, 3), random.Random(4))


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_a_format_that_the_multiplier_cannot_round_is_refused() -> None:
    """Of two subnormal numbers the product may be more than half of the least number, if the exponent is short."""
    refused(lambda: Multiplier(Format(3, 4)), "a bias that is greater by 2")
