"""Traces of machines: firings and tokens with core and cycle, for the page, for Perfetto, as waveforms and as plots."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.observe.machine_trace import machine_trace, record_machine, save_waves, slices
from upl_mlir.observe.plots import over_cycles
from upl_mlir.observe.replay import Firing, Sending, Trace, lanes, load_trace, record
from upl_mlir.observe.viewing import view
from upl_mlir.tools.upl import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ARRAYS = {"A": np.array([[1.0, 2.0], [3.0, 4.0]]), "B": np.array([[5.0, 6.0], [7.0, 8.0]])}


@pytest.fixture
def machine(tmp_path: Path) -> str:
    path = tmp_path / "m.toml"
    path.write_text('[matching]\norganisation = "hashed"\nspill_capacity = 1023\n')
    return str(path)


def tokens(trace: Trace) -> list[tuple[str, str, bool]]:
    return sorted((trace.targets[e.target], str(e.tag), e.stuck) for e in trace.events if isinstance(e, Sending))


def fired(trace: Trace) -> list[tuple[str, tuple[int, ...]]]:
    return sorted((trace.nodes[e.node], tuple(e.index)) for e in trace.events if isinstance(e, Firing))


def test_the_same_firings_and_tokens_as_the_interpreter(machine: str) -> None:
    p = upl.load(EXAMPLES / "matmul.upl")
    run, result = record_machine(p, ARRAYS, machine)
    assert not isinstance(result, UplError)
    trace = machine_trace(p, run)
    soft, _ = record(p, ARRAYS)
    assert tokens(trace) == tokens(soft)
    assert fired(trace) == [f for f in fired(soft) if f[0] in ("Mul", "Acc")]
    assert sum(len(e.ends) for e in trace.events if isinstance(e, Firing)) == 16  # every token is used up once
    # Cycles go on, causes come before effects, and the last one is not after the end.
    cycles = [cycle for (core, cycle), e in zip(trace.places, trace.events, strict=True) if isinstance(e, Firing)]
    assert cycles == sorted(cycles)
    assert 0 < cycles[-1] < result.stats.cycles
    assert [sum(lane) for lane in lanes(trace)] == [12]
    _, per_cycle, records = over_cycles(trace, columns=10**6)  # cycle by cycle
    assert sum(per_cycle) == 12 and max(per_cycle) == 1
    assert max(records) == result.stats.occupancy.peak
    assert sum(records) / result.stats.cycles == pytest.approx(result.stats.occupancy.mean)


def test_units_have_tracks_of_their_own(machine: str, tmp_path: Path) -> None:
    run, result = record_machine(upl.load(EXAMPLES / "matmul.upl"), ARRAYS, machine)
    assert not isinstance(result, UplError)
    tracks: dict[str, list[str]] = {}
    for s in slices(run):
        assert s.track[0] == "core 0"
        assert s.end == s.begin + 1
        tracks.setdefault(s.track[1], []).append(f"{s.name} {dict(s.arguments)}")
    assert {name: len(done) for name, done in tracks.items()} == {
        "matching in": 16, "activations": 12, "reducer": 4, "send": 12,
    }  # fmt: skip
    assert "Mul.a<0,*,1> {'value': '2', 'multiplicity': '2'}" in tracks["matching in"]
    assert "C<1,1> {'value': '50'}" in tracks["send"]
    assert any(t.startswith("Acc.s<1,1> {'left': '") for t in tracks["reducer"])
    save_waves(run, str(tmp_path / "w.vcd"), "5:30")
    text = (tmp_path / "w.vcd").read_text()
    times = [int(t) for t in re.findall(r"^#(\d+)", text, re.MULTILINE)]
    assert times == sorted(times) and times[0] >= 5 and times[-1] <= 31
    assert re.search(r"^sMul<0,0,0> ", text, re.MULTILINE)
    with pytest.raises(UplError, match=r"UPL1503.*`5-30` is no window"):
        save_waves(run, str(tmp_path / "w.vcd"), "5-30")


STRANDS = """\
program strands
input A<i> in 0<=i<4 { -> M.a }
input B<i> in 1<=i<4 { -> M.b }
output Y<i>
node M<i> in 0<=i<4 { in a, b; a*b -> Y<i> }
"""


def test_a_run_that_strands_tokens_shows_which(machine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "s.upl", tmp_path / "s.json"
    source.write_text(STRANDS)
    arrays = ["--input", "A=[1,2,3,4]", "--input", "B=[1,2,3]"]
    command = ["run", str(source), "--engine", "rtl", "--machine", machine, *arrays, "--trace", str(target)]
    assert main(command) == 1 and not target.exists()
    assert "UPL1306" in capsys.readouterr().err
    assert main([*command, "--force"]) == 1
    assert "UPL1701" in capsys.readouterr().err
    trace = load_trace(target)
    assert trace.failed is not None and "UPL1701" in trace.failed
    stuck = [(trace.targets[e.target], e.tag) for e in trace.events if isinstance(e, Sending) and e.stuck]
    assert stuck == [("M.a", [0])]


def test_the_command(machine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("run.json", "run.json.gz", "run.pftrace"):
        inputs = ["--input", "A=[[1,2],[3,4]]", "--input", "B=[[5,6],[7,8]]"]
        files = ["--trace", str(tmp_path / name), "--vcd", str(tmp_path / "w.vcd")]
        assert main(["run", str(EXAMPLES / "matmul.upl"), "--engine", "rtl", "--machine", machine, *inputs, *files]) == 0
        assert "[43. 50.]" in capsys.readouterr().out
        assert (tmp_path / name).stat().st_size > 300
    trace = load_trace(tmp_path / "run.json.gz")
    page = view(upl.load(EXAMPLES / "matmul.upl"), trace=trace)
    assert '"lanes": [[' in page or '"lanes":[[' in page
