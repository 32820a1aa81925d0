"""The pipelined functions: their arithmetic on arrays against the exact results, and the hardware against its bits."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from pipelined_bench import EXACT, FUNCTIONS, canonical, errors, wrong
from test_pipelined import SPECIAL, refused, results
from ulps import any_bits

from upl_mlir.hw.fp import functions
from upl_mlir.hw.fp.angles import Cosine, Sine
from upl_mlir.hw.fp.functions import ULP, Exponential, HyperbolicTangent, Logarithm, Logistic
from upl_mlir.hw.fp.model import BINARY32, Format
from upl_mlir.hw.fp.pipe import Pipelined
from upl_mlir.hw.sim import build

KINDS = [pytest.param(kind, id=kind.__name__) for kind in FUNCTIONS]
RANGES: dict[type[Pipelined], list[tuple[float, float]]] = {
    Exponential: [(-105, 90), (-1, 1), (-1e-6, 1e-6)],
    Logarithm: [(0, 4), (0.6, 1.45), (0.999, 1.001), (0, 1e-38)],
    HyperbolicTangent: [(-18, 18), (-1, 1), (0.9, 2.2), (-1e-3, 1e-3), (-1e-38, 1e-38)],
    Logistic: [(-105, 20), (-5, 5), (-1e-6, 1e-6)],
    Sine: [(-10, 10), (-1e6, 1e6), (3.1415, 3.1417), (-1e-3, 1e-3), (-1e-38, 1e-38)],
    Cosine: [(-10, 10), (-1e6, 1e6), (1.5707, 1.5709), (-1e-3, 1e-3)],
}
"""Where a function is looked at closely."""
SAMPLES = 200_000


def numbers(kind: type[Pipelined], count: int, seed: int) -> Any:
    """Any bits, evenly over ranges, and the neighbours of powers of two and of places where a row begins."""
    rng = np.random.default_rng(seed)
    edges = np.concatenate([np.ldexp(1.0, np.arange(-30, 8)), np.arange(64, 129) / 64, np.arange(1, 33) / 32])
    near = (edges.astype(np.float32).view(np.uint32)[:, None] + np.arange(-2, 3)).ravel().astype(np.uint32)
    parts = [rng.uniform(low, high, count).astype(np.float32) for low, high in RANGES[kind]]
    sides = [near.view(np.float32), -near.view(np.float32)]
    return np.concatenate([*parts, any_bits(rng, count), *(rng.permutation(s)[:count] for s in sides)])


@pytest.mark.parametrize("kind", KINDS)
def test_the_bounds(kind: type[Pipelined]) -> None:
    """The bound holds, and is not far from what is found."""
    x = numbers(kind, SAMPLES, 1)
    found = errors(kind, x)
    assert found.max() <= ULP, float(x[found.argmax()])
    assert found.max() > 0.85 * ULP


@pytest.mark.parametrize("kind", KINDS)
def test_special_values(kind: type[Pipelined]) -> None:
    """Zeros, infinities, NaN, subnormals, and the number nearest to a zero of the cosine: as C's functions, and every NaN is
    the canonical one."""
    x = np.array([*SPECIAL, 0x42B17218, 0x42B17217, 0xC2CFF1B4, 0xC2CFF1B5, 0x6F79BE45], np.uint32).view(np.float32)
    got = FUNCTIONS[kind](x)
    with np.errstate(all="ignore"):
        wanted = EXACT[kind](x.astype(np.float64))
        infinite = np.isinf(wanted.astype(np.float32))
    assert (errors(kind, x) <= ULP).all()
    assert set(got[np.isnan(got)].view(np.uint32)) <= {0x7FC00000}
    assert (np.isnan(got) | (np.signbit(got) == np.signbit(wanted))).all()
    assert (np.isinf(got) == infinite).all()


def same(unit: Pipelined, x: Any, held: random.Random | None = None) -> bool:
    """Whether a unit has the bits of its arithmetic on arrays."""
    found = results(unit, [(int(a), 0) for a in x.view(np.uint32)], held)
    return [r["result"] for r in found] == canonical(FUNCTIONS[type(unit)](x)).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_the_hardware_has_the_bits_of_the_arrays(kind: type[Pipelined]) -> None:
    x = np.concatenate([np.array(SPECIAL, np.uint32).view(np.float32), numbers(kind, 120, 2)])
    assert same(kind(BINARY32), x)
    assert same(kind(BINARY32), x[:200], random.Random(3)), "held"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_other_latencies(kind: type[Pipelined]) -> None:
    most = kind.steps(BINARY32)
    for latency in (1, 2, 3, most // 2, most - 5, most - 1, most + 1):
        assert same(kind(BINARY32, latency), numbers(kind, 12, latency)), latency
    refused(lambda: kind(Format(5, 10)), "expected binary32")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.skipif(not build.available(), reason="no C++ compiler")
def test_many_numbers(kind: type[Pipelined]) -> None:
    """On machine code made from the RTL, with the other units."""
    a = numbers(kind, 5000, 4).view(np.uint32)
    assert not wrong(a, a)


def test_a_wrong_coefficient_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measure itself: a number of one row is off by 2**-26."""
    table = functions.powers_of_two()
    rows = list(table.rows)
    rows[77] = (rows[77][0] + 16, *rows[77][1:])
    monkeypatch.setattr(functions, "powers_of_two", lambda: replace(table, rows=tuple(rows)))
    assert errors(Exponential, numbers(Exponential, SAMPLES, 1)).max() > ULP
