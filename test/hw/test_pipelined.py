"""The pipelined units against the model by rationals: random operands, special values, every latency, and held pipelines."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

import gc
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.back import verilog
from amaranth.sim import Simulator

sys.path.insert(0, str(Path(__file__).resolve().parent))
import pipelined_bench
from floats_bench import operands
from pipelined_bench import canonical
from verilated import root, verilator

from upl_mlir.hw.fp import model
from upl_mlir.hw.fp.blocks import Block, block_verilog
from upl_mlir.hw.fp.conversions import Comparer, FromInteger, ToInteger
from upl_mlir.hw.fp.digits import Divider, SquareRoot
from upl_mlir.hw.fp.functions import Logistic, sigmoid
from upl_mlir.hw.fp.model import BINARY32, Format
from upl_mlir.hw.fp.pipe import Pipelined
from upl_mlir.hw.fp.pipelined import Adder, Multiplier
from upl_mlir.hw.fp.truths import Mask
from upl_mlir.hw.sim import build

MINI, BINARY16, BFLOAT16 = Format(4, 3), Format(5, 10), Format(8, 7)
SPECIAL = [0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x3F800001, 0x34000000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000,
           0x7F800001, 0x00400000, 0x33800000]  # fmt: skip
SPECIAL += [x | 1 << 31 for x in SPECIAL]
Pairs = list[tuple[int, int]]
Results = dict[str, int]


def compared(f: Format, a: int, b: int) -> Results:
    """What a comparer says."""
    return {
        "less": int(model.less(f, a, b)), "equal": int(model.equal(f, a, b)),
        "unordered": int(model.is_nan(f, a) or model.is_nan(f, b)),
        "least": model.least(f, a, b), "greatest": model.greatest(f, a, b),
    }  # fmt: skip


def whole(f: Format, a: int, _: int) -> Results:
    """What a conversion to integers says; where there is no integer it may be any."""
    value = model.to_integer(f, a)
    return {"failed": 1} if value is None else {"result": value & 0xFFFFFFFF, "failed": 0}


def real(f: Format, a: int, _: int) -> Results:
    return {"result": model.from_integer(f, (a & 0x7FFFFFFF) - (a & 1 << 31))}


REFERENCE: dict[type[Pipelined], Callable[[Format, int, int], Results]] = {
    Adder: lambda f, a, b: {"result": model.add(f, a, b)},
    Multiplier: lambda f, a, b: {"result": model.mul(f, a, b)},
    Divider: lambda f, a, b: {"result": model.div(f, a, b)},
    SquareRoot: lambda f, a, _: {"result": model.sqrt(f, a)},
    Comparer: compared,
    FromInteger: real,
    ToInteger: whole,
    Mask: lambda f, a, b: {"result": model.mul(f, a, (b & 1) * (f.bias << f.mantissa))},
}
KINDS = [pytest.param(kind, id=kind.__name__) for kind in REFERENCE]
CONVERSIONS = (FromInteger, ToInteger)
WIDE = (BINARY32, BFLOAT16)
"""Formats whose numbers are as great as integers are."""
SIZES = [pytest.param(kind, f, id=f"{kind.__name__}-{f.exponent}_{f.mantissa}")
         for kind in REFERENCE for f in (WIDE if kind in CONVERSIONS else (*WIDE, MINI, BINARY16))]  # fmt: skip


def results(unit: Pipelined, pairs: Pairs, held: random.Random | None = None) -> list[Results]:
    """What comes out for these operands, one after the other; `held`: now and then the pipeline stands still."""
    out: list[Results] = []
    ports = [getattr(unit, name) for name in unit.operands(unit.format)]
    shown = {name: getattr(unit, name) for name in unit.outputs}

    async def bench(ctx: Any) -> None:
        sent: list[int] = []
        for pair in [*pairs, *[(0, 0)] * unit.latency]:
            while held is not None and held.random() < 0.3:
                ctx.set(unit.enable, 0)
                ctx.set(ports[0], held.getrandbits(len(ports[0])))
                await ctx.tick()
            ctx.set(unit.enable, 1)
            for port, value in zip(ports, pair, strict=False):
                ctx.set(port, value & (1 << len(port)) - 1)
            ctx.set(unit.pass_in, len(sent) & 1)
            sent.append(len(sent) & 1)
            await ctx.tick()
            if len(sent) >= unit.latency:
                out.append({name: ctx.get(port) for name, port in shown.items()})
                assert ctx.get(unit.pass_out) == sent[len(sent) - unit.latency]

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return out[: len(pairs)]


def samples(kind: type[Pipelined], f: Format, count: int, seed: int) -> Pairs:
    """Any bits; nearly equal magnitudes of other signs; products near the least numbers; squares, which have roots; for
    conversions numbers of any size."""
    rng = random.Random(seed)
    top = f.exponent_ones
    out: Pairs = []
    if kind is FromInteger:
        signs = (1, -1)
        return [(rng.choice(signs) * rng.getrandbits(rng.randrange(1, 33)) & 0xFFFFFFFF, 0) for _ in range(count)]
    while len(out) < count:
        a = rng.getrandbits(f.bits)
        near = (a ^ f.sign) + rng.choice([0, 1, 2, -1, 1 << f.mantissa, 1 << (f.mantissa - 1)]) & (1 << f.bits) - 1
        e = rng.randrange(1, top)
        other = max(0, min(top - 1, f.bias - e + rng.randrange(-f.mantissa - 5, 4)))
        low = rng.getrandbits(f.mantissa), rng.getrandbits(f.mantissa)
        small = rng.getrandbits(rng.randrange(1, f.mantissa + 1))
        tiny = e << f.mantissa | low[0], other << f.mantissa | low[1]
        square = model.mul(f, a & -2 << f.mantissa // 2, a & -2 << f.mantissa // 2)
        medium = rng.getrandbits(1) << f.bits - 1 | min(top, f.bias + rng.randrange(-2, 34)) << f.mantissa | low[0]
        out += [(a, rng.getrandbits(f.bits)), (a, near), tiny, (small, a), (square, a), (a, a), (medium, 0)]
    return out


def wrong(unit: Pipelined, pairs: Pairs, held: random.Random | None = None) -> list[str]:
    """Operands, results and the model's, where they differ."""
    out: list[str] = []
    for (a, b), got in zip(pairs, results(unit, pairs, held), strict=True):
        right = REFERENCE[type(unit)](unit.format, a, b)
        if any(got[name] != value for name, value in right.items()):
            out.append(f"{a:#x} {b:#x}: {got}, not {right}")
    return out


def refused(make: Callable[[], object], message: str) -> None:
    """`make` raises ValueError; Amaranth's complaint about the unit that nobody uses comes now, where it is expected."""
    with pytest.raises(ValueError, match=message):
        make()
    gc.collect()


@pytest.mark.parametrize(("kind", "f"), SIZES)
def test_results_are_the_models(kind: type[Pipelined], f: Format) -> None:
    assert not wrong(kind(f), samples(kind, f, 700, 1))


@pytest.mark.parametrize("f", [Format(3, 1), Format(4, 1)], ids=["3_1", "4_1"])
def test_all_products_of_the_shortest_numbers(f: Format) -> None:
    numbers = range(1 << f.bits)
    assert not wrong(Multiplier(f), [(a, b) for a in numbers for b in numbers])


@pytest.mark.parametrize("kind", KINDS)
def test_special_values(kind: type[Pipelined]) -> None:
    single = len(kind.operands(BINARY32)) == 1
    assert not wrong(kind(BINARY32), [(a, b) for a in SPECIAL for b in ([0] if single else SPECIAL)])


@pytest.mark.parametrize("value", [0, 1, -1, 2**31 - 1, -(2**31), 2**24 + 1, 2**24 + 3, 2**31 - 64, 2**31 - 65])
def test_integers(value: int) -> None:
    assert not wrong(FromInteger(BINARY32), [(value & 0xFFFFFFFF, 0)])
    bits = model.from_integer(BINARY32, value)
    near = [(bits + n & 0xFFFFFFFF, 0) for n in (-1, 0, 1)]
    assert not wrong(ToInteger(BINARY32), near)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("kind", KINDS)
def test_every_latency(kind: type[Pipelined]) -> None:
    f = BFLOAT16 if kind in CONVERSIONS else MINI
    for latency in range(1, kind.steps(f) + 2):
        assert not wrong(kind(f, latency), samples(kind, f, 150, latency)), latency
    refused(lambda: kind(f, 0), "latency=0: expected 1 at least")


@pytest.mark.parametrize("kind", KINDS)
def test_a_pipeline_that_is_held_keeps_what_it_has(kind: type[Pipelined]) -> None:
    assert not wrong(kind(BINARY32), samples(kind, BINARY32, 300, 3), random.Random(4))


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_what_a_unit_cannot_do_is_refused() -> None:
    """Of two subnormal numbers the product may be more than half of the least number, if the exponent is short."""
    refused(lambda: Multiplier(Format(3, 4)), "a bias that is greater by 2")
    refused(lambda: FromInteger(BINARY16), "a bias above 32")
    refused(lambda: ToInteger(BINARY16), "a bias above 32")
    refused(lambda: Block(19, 2), "at most 18")


@pytest.mark.skipif(not build.available(), reason="no C++ compiler")
def test_compiled_units() -> None:
    """Special values and random operands on machine code made from the RTL; `make soak` has a hundred times as many."""
    grid = np.meshgrid(np.array(SPECIAL, np.uint32), np.array(SPECIAL, np.uint32))
    for a, b in (tuple(g.ravel() for g in grid), operands(np.random.default_rng(9), 10_000)[:2]):
        assert not pipelined_bench.wrong(a, b)


HARNESS = """
#include "Vtop.h"
#include <cstdio>
int main() {
    Vtop top;
    auto cycle = [&] { top.clk = 0, top.eval(), top.clk = 1, top.eval(); };
    top.rst = 0, top.enable = 1;
    unsigned a, b;
    while (scanf("%x %x", &a, &b) == 2) SET, cycle(), printf("%x\\n", top.result);
}
"""


@pytest.mark.skipif(not build.available(), reason="no C++ compiler")
@pytest.mark.parametrize("kind", [Multiplier, Logistic])
def test_the_verilog_with_the_block_of_ecp5(kind: type[Pipelined], tmp_path: Path) -> None:
    """By Verilator, with `mult18x18d.v` for the block: there both descriptions of it are run with products."""
    include = root() / "include"
    unit = kind(BINARY32, target="ecp5")
    ports = [*kind.operands(BINARY32)]
    latency = unit.latency
    (tmp_path / "top.v").write_text(verilog.convert(unit, name="top", emit_src=False) + block_verilog())
    (tmp_path / "main.cpp").write_text(HARNESS.replace("SET", ", ".join(f"top.{name} = {name}" for name in ports)))
    done = verilator("--cc", "-Wno-fatal", "-Wno-lint", "--top-module", "top", "--prefix", "Vtop", "-Mdir", tmp_path,
                     tmp_path / "top.v")  # fmt: skip
    assert not done.returncode, done.stderr
    files = [*tmp_path.glob("*.cpp"), include / "verilated.cpp", include / "verilated_threads.cpp"]
    compiler = shutil.which("g++") or build.compiler() or ""
    subprocess.run([compiler, "-O1", "-std=c++17", "-o", tmp_path / "run", "-I", tmp_path, "-I", include,
                    "-I", include / "vltstd", *files, "-lpthread"], check=True)  # fmt: skip
    pairs = [(a, b) for a in SPECIAL for b in SPECIAL] + samples(Multiplier, BINARY32, 3000, 5)
    text = "".join(f"{a:x} {b:x}\n" for a, b in [*pairs, *[(0, 0)] * (latency - 1)])
    lines = subprocess.run([tmp_path / "run"], input=text, capture_output=True, text=True, check=True).stdout.split()
    if kind is Multiplier:
        right = [model.mul(BINARY32, a, b) for a, b in pairs]
    else:
        right = canonical(sigmoid(np.array(pairs, np.uint32)[:, 0].view(np.float32))).tolist()
    assert [int(line, 16) for line in lines[latency - 1 :]] == right


def test_four_blocks_of_their_own_enables_fit_a_group() -> None:
    """Four of the device's blocks have four signals of each kind, and a constant is one, too: a block takes no constant."""
    text = verilog.convert(Block(18, 18, "ecp5"), name="top", emit_src=False)
    controls = dict(re.findall(r"\.((?:CLK|CE|RST)\d)\((.*)\)", text))
    assert controls == {"CLK0": "clk", "CE0": "enable", "RST0": "1'h0"}
