"""The model of a circuit's area: what it counts, and how far it is off from what was synthesised."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections import Counter

import pytest
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from bench.circuit_model import CASES, UNITS, Case, Point, fit, load
from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.explore import estimate as model
from upl_mlir.explore.estimate import Estimate, estimate
from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.hw.circuit.contents import contents, counted, operation, unit_contents
from upl_mlir.hw.circuit.ram import Ram
from upl_mlir.hw.synth.figures import as_rtlil
from upl_mlir.passes.circuit.numbers import Numbers

POINTS = load()
CIRCUITS = {p.title: p for p in POINTS if not p.unit}
MOST_OFF = 0.2
"""LUT sites and flip-flops of a circuit may be off by so much."""


class Parts(wiring.Component):
    """A bit of everything, with widths that tell it apart."""

    def __init__(self) -> None:
        outs = {"out": Out(8), "flag": Out(3), "held": Out(5), "table": Out(7)}
        super().__init__({"a": In(8), "b": In(8), "c": In(2), **outs})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = Signal(5, reset_less=True)
        with m.If(self.c[0]):  # the enable of a register
            m.d.sync += held.eq(self.a)
        m.d.comb += [
            self.out.eq(Mux(self.c[1], self.a[:6], self.b[:6])), self.held.eq(held),
            self.table.eq(Mux(self.c[0], 77, 11)), self.flag[0].eq(self.a == self.b),
            self.flag[1].eq((self.a & self.b).any()), self.flag[2].eq(self.a < self.b),
        ]  # fmt: skip
        return m


def test_what_a_netlist_has() -> None:
    found = counted(as_rtlil(Parts()))
    assert found == Counter(choice=6, ff=5, table=7, equal=8, logic=8 + 8, arithmetic=8)


@pytest.mark.parametrize(("width", "depth", "blocks"), [(32, 16, 8), (33, 32, 18), (1, 20, 2)])
def test_memories_in_luts_are_of_16_words_of_4_bits(width: int, depth: int, blocks: int) -> None:
    found = counted(as_rtlil(Ram(width, depth, 2, target="ecp5")))
    assert (found["lut_ram"], found["block_ram"]) == (blocks, 0)


@pytest.mark.parametrize(("width", "depth", "blocks"), [(18, 1024, 1), (32, 64, 2), (18, 2048, 2), (16, 4096, 4)])
def test_memories_in_blocks(width: int, depth: int, blocks: int) -> None:
    found = counted(as_rtlil(Ram(width, depth, 2, target="ecp5")))
    assert (found["lut_ram"], found["block_ram"]) == (0, blocks)


@pytest.mark.parametrize("case", [
    Case("fir", {"K": 3, "n": 7}, 2), Case("matmul", {"m": 3, "n": 4, "r": 5}, 2, "q4.14"),
    Case("triangular_solve", {"n": 4}, 2, "f16"), Case("iris_batch", {"D": 2, "N": [3, 2, 2]}, 2, share=True),
], ids=lambda c: c.title)  # fmt: skip
def test_boxes_have_what_the_units_have(case: Case) -> None:
    plan = case.plan()
    assert sum(contents(plan).values(), Counter()) == counted(as_rtlil(Circuit(plan, target="ecp5")))


@pytest.mark.parametrize("title", [c.title for c in CASES if c.title in CIRCUITS])
def test_a_circuit_that_was_synthesised(title: str) -> None:
    """Also those that were not fitted."""
    p = CIRCUITS[title]
    assert (p.estimate.dsp, p.estimate.block_ram) == (p.measured["dsp"], p.measured["block_ram"])
    assert abs(p.off("luts")) <= MOST_OFF
    assert abs(p.off("ff")) <= MOST_OFF
    if p.mhz is not None:
        assert abs(p.estimate.fmax_mhz / p.mhz - 1) <= MOST_OFF


def test_many_were_not_fitted() -> None:
    checks = [p for p in CIRCUITS.values() if not p.fitted]
    assert len(checks) >= 10
    assert {"fixed add", "add"} <= {op for p in checks for op in p.contents}


def test_the_coefficients_are_those_of_the_fit() -> None:
    found = fit(POINTS)
    assert (found.luts, found.lut_factors, found.ff_factors) == (model.LUTS, model.LUT_FACTORS, model.FF_FACTORS)
    assert (found.period, found.root) == (model.PERIOD_NS, model.PERIOD_ROOT_BLOCK)


@pytest.mark.parametrize("case", [c for c in CASES if c.title in CIRCUITS][3:5], ids=lambda c: c.title)
def test_what_is_kept_of_a_circuit_is_what_it_has(case: Case) -> None:
    assert contents(case.plan()) == CIRCUITS[case.title].contents


@pytest.mark.parametrize(("real", "kind"), [("f32", "mul"), ("q4.14", "add"), ("q8.8", "by 3")])
def test_what_is_kept_of_a_unit_is_what_it_has(real: str, kind: str) -> None:
    assert kind in UNITS[real]
    (kept,) = [p for p in POINTS if p.title == f"{kind}, {real}"]
    numbers = Numbers(Kind.of_real(real))
    assert kept.contents == {operation(numbers, kind): unit_contents(numbers, tuple(numbers.latency.items()), kind)[0]}


def test_lanes_cost_in_proportion() -> None:
    """Sixteen lanes have sixteen times the units of one, and one head."""
    one, four = (estimate(Case("matmul", {"m": 4, "n": 4, "r": 4}, lanes).plan()) for lanes in (1, 4))
    assert (one.dsp, four.dsp) == (3, 12)
    assert 3 * one.luts < four.luts < 4.2 * one.luts
    assert four.fmax_mhz < one.fmax_mhz


def test_sharing_costs_fewer_multipliers() -> None:
    own, shared = (estimate(Case("iris_batch", {"D": 2, "N": [3, 2, 2]}, 2, share=s).plan()) for s in (False, True))
    assert shared.dsp < own.dsp
    assert shared.luts < own.luts


def test_what_does_not_fit_is_refused() -> None:
    Estimate(luts=83_640, ff=0, dsp=156, block_ram=208, fmax_mhz=100.0).require_room()
    for large in ({"luts": 83_641}, {"dsp": 157}, {"block_ram": 209}):
        with pytest.raises(UplError, match="UPL1745"):
            Estimate(**({"luts": 1, "ff": 0, "dsp": 1, "block_ram": 1, "fmax_mhz": 100.0} | large)).require_room()


def test_a_point_off_by_a_half_is_seen() -> None:
    """What the assertions above compare moves with the coefficients."""
    p = next(iter(CIRCUITS.values()))
    other = Point(p.title, p.fitted, p.contents, p.measured | {"luts": 2 * p.measured["luts"]})
    assert abs(other.off("luts")) > MOST_OFF
