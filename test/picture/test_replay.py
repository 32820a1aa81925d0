"""Recorded runs: what waits, what is used up and what is stuck, against what the engine itself says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.api.programs import Program
from upl_mlir.engines.interp.engine import RunResult
from upl_mlir.observe.replay import Firing, Sending, Trace, load_trace, overview, record, windows

STRANDS = (Path(__file__).resolve().parents[1] / "Inputs" / "strands.upl").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def perceptron(examples: Path) -> Program:
    return upl.load(examples / "perceptron.upl", K=3, N=[3, 4, 2])


def _arrays(p: Program, **params: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {n: rng.normal(size=v.shape(**params)) for n, v in p.inputs.items()}


@pytest.mark.parametrize("order", ["fifo", "random"])
def test_a_trace_agrees_with_the_statistics_of_its_run(perceptron: Program, order: str) -> None:
    trace, result = record(perceptron, _arrays(perceptron, D=2), order=order, seed=3)
    assert isinstance(result, RunResult) and trace.failed is None
    fired = dict.fromkeys(trace.nodes, 0)
    tokens = {n.partition(".")[0]: 0 for n in trace.targets}
    for e in trace.events:
        if isinstance(e, Firing):
            fired[trace.nodes[e.node]] += 1
        else:
            tokens[trace.targets[e.target].partition(".")[0]] += 1
    assert {n: fired[n] for n in result.stats.firings} == result.stats.firings
    assert tokens == result.stats.tokens
    assert sum(trace.levels) == sum(fired.values()), "every firing has a level"
    assert not any(e.stuck for e in trace.events if isinstance(e, Sending))


def test_every_token_is_used_up_once_and_nothing_waits_at_the_end(perceptron: Program) -> None:
    """Also the token of a multicast, which N[k] activations share."""
    trace, _ = record(perceptron, _arrays(perceptron, D=2))
    ended = [token for e in trace.events if isinstance(e, Firing) for token, _ in e.ends]
    inputs = len(trace.targets) - len(trace.outputs)
    sent = [i for i, e in enumerate(trace.events) if isinstance(e, Sending) and e.target < inputs]
    assert sorted(ended) == sent
    (link,) = [i for i, t in enumerate(trace.targets) if t == "Link.r"]
    multicast = next(i for i, e in enumerate(trace.events) if isinstance(e, Sending) and e.target == link)
    event = trace.events[multicast]
    assert isinstance(event, Sending) and event.tag[-1] is None
    node = trace.nodes.index("Link")
    uses = [
        i for i, e in enumerate(trace.events) if isinstance(e, Firing) and e.node == node and e.index[:3] == event.tag[:3]
    ]
    (end,) = [i for i, e in enumerate(trace.events) if isinstance(e, Firing) and (multicast, link) in e.ends]
    assert len(uses) == 4 and end == uses[-1], "used up by the last of its N[k] activations"


def test_levels_are_those_of_the_longest_chain(perceptron: Program) -> None:
    fifo, _ = record(perceptron, _arrays(perceptron, D=2))
    other, _ = record(perceptron, _arrays(perceptron, D=2), order="random", seed=9)
    assert fifo.levels == other.levels, "what must wait for what does not depend on the order of arrival"
    path = perceptron.check().critical_path
    assert len(fifo.levels) - 1 == (path if isinstance(path, int) else path.evaluate({"D": 2}, lambda *_: 0))  # type: ignore[union-attr]


def test_windows_begin_with_the_state_before_them(perceptron: Program) -> None:
    trace, _ = record(perceptron, _arrays(perceptron, D=2))
    inputs = len(trace.targets) - len(trace.outputs)
    for size in (1, 7, 50, 10_000):
        pieces = list(windows(trace, size))
        assert sum(len(p["events"]) for p in pieces) == len(trace.events)
        for piece in pieces:
            alive: dict[int, int] = {}
            for i, e in enumerate(trace.events[: piece["start"]]):
                if isinstance(e, Firing):
                    for token, _ in e.ends:
                        del alive[token]
                elif e.target < inputs:
                    alive[i] = e.target
            assert {a[0]: a[1] for a in piece["alive"]} == alive
            assert [list(alive.values()).count(t) for t in range(inputs)] == piece["waiting"][:inputs]
    most = max(waits for waits, _ in overview(trace))
    assert sum(f for _, f in overview(trace)) == sum(trace.levels) and most > 0


def test_a_run_that_fails_is_recorded_too_and_its_stuck_tokens_are_marked(tmp_path: Path) -> None:
    trace, result = record(upl.load(STRANDS), {"A": np.ones(4), "B": np.ones(3)})
    assert isinstance(result, upl.UplError) and "UPL1601" in (trace.failed or "")
    stuck = [(trace.targets[e.target], e.tag) for e in trace.events if isinstance(e, Sending) and e.stuck]
    assert stuck == [("M.a", [0])]


def test_a_token_with_too_many_activations_is_stuck() -> None:
    p = upl.load("program m\ninput S { #5 -> M.s<*> }\ninput A<i> in 0<=i<3 { -> M.a }\noutput Y<i>\n"
                 "node M<i> { in s, a; s*a -> Y<i> }\n")  # fmt: skip
    trace, result = record(p, {"S": 2.0, "A": np.arange(3.0)})
    assert isinstance(result, upl.UplError)
    stuck = [(trace.targets[e.target], e.tag) for e in trace.events if isinstance(e, Sending) and e.stuck]
    assert stuck == [("M.s", [None])]


def test_a_token_without_end_is_not_stuck() -> None:
    p = upl.load("program e\ninput S { ## -> M.s<*> }\ninput A<i> in 0<=i<3 { -> M.a }\noutput Y<i>\n"
                 "node M<i> { in s, a; s*a -> Y<i> }\n")  # fmt: skip
    trace, result = record(p, {"S": 2.0, "A": np.arange(3.0)})
    assert isinstance(result, RunResult)
    assert not any(e.stuck for e in trace.events if isinstance(e, Sending))
    assert sum(len(e.ends) for e in trace.events if isinstance(e, Firing)) == 3, "the three of A, not the one of S"


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_files(perceptron: Program, tmp_path: Path, name: str) -> None:
    trace, _ = record(perceptron, _arrays(perceptron, D=1))
    trace.save(tmp_path / name)
    assert load_trace(tmp_path / name) == trace


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "upl-trace"}', "\x1f\x8bnot zipped"])
def test_what_is_no_trace_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(upl.UplError, match="UPL1806"):
        load_trace(path)
    with pytest.raises(upl.UplError, match="UPL1001"):
        load_trace(tmp_path / "none.json")


def test_a_trace_of_another_version_is_an_error(tmp_path: Path) -> None:
    empty = Trace("upl-trace", 99, "p", [], [], [], [], [])
    empty.save(tmp_path / "t.json")
    with pytest.raises(upl.UplError, match=r"UPL1806.*version 99"):
        load_trace(tmp_path / "t.json")


def test_the_command_writes_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from upl_mlir.tools.upl import main

    program, trace = tmp_path / "s.upl", tmp_path / "t.json"
    program.write_text(STRANDS, encoding="utf-8")
    data = ["--force", "--input", "A=[1, 1, 1, 1]", "--input", "B=[1, 1, 1]"]
    assert main(["run", str(program), *data, "--trace", str(trace)]) == 1
    assert "UPL1601" in capsys.readouterr().err
    assert load_trace(trace).failed is not None, "the trace of a run that failed is what one wants to look at"
    assert main(["view", str(program), "--trace", str(trace), "-o", str(tmp_path / "v.html")]) == 0
    assert main(["run", str(program), *data, "--trace", str(trace), "--engine", "native"]) == 2
    assert main(["run", str(program), *data, "--trace", str(tmp_path / "t.txt")]) == 2
    other = tmp_path / "o.upl"
    other.write_text("program o\ninput A { -> Y }\noutput Y\n", encoding="utf-8")
    assert main(["view", str(other), "--trace", str(trace), "-o", str(tmp_path / "w.html")]) == 1
    assert "UPL1806" in capsys.readouterr().err and not (tmp_path / "w.html").exists()
    assert json.loads(trace.read_text(encoding="utf-8"))["program"] == "strands"


def test_perfetto(perceptron: Program, tmp_path: Path) -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Packets
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

    trace, _ = record(perceptron, _arrays(perceptron, D=1))
    trace.save(tmp_path / "t.pftrace")
    found = Packets.FromString((tmp_path / "t.pftrace").read_bytes())
    tracks = {p.track_descriptor.uuid: p.track_descriptor.name for p in found.packet if p.HasField("track_descriptor")}
    assert set(tracks.values()) == {trace.nodes[e.node] for e in trace.events if isinstance(e, Firing)} | {"tokens waiting"}
    events = [p.track_event for p in found.packet if p.HasField("track_event")]
    begun = [e for e in events if e.type == TrackEvent.TYPE_SLICE_BEGIN]
    assert len(begun) == sum(isinstance(e, Firing) for e in trace.events)
    assert all(e.name.startswith(tracks[e.track_uuid]) for e in begun)
    sent = {flow for e in events if e.type == TrackEvent.TYPE_INSTANT for flow in e.flow_ids}
    assert {flow for e in begun for flow in e.flow_ids} <= sent, "every token that was used was sent"
    counts = [e.counter_value for e in events if e.type == TrackEvent.TYPE_COUNTER]
    assert counts[-1] == 0 and max(counts) > 0
    with pytest.raises(upl.UplError, match=r"UPL1806.*\n.*Perfetto"):
        load_trace(tmp_path / "t.pftrace")


def test_plots(perceptron: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="the Python package `matplotlib` is not installed (extra `plot`)")
    from upl_mlir.observe.plots import waiting
    from upl_mlir.tools.upl import main

    trace, _ = record(perceptron, _arrays(perceptron, D=2))
    counts = waiting(trace)
    assert len(counts) == len(trace.events) and counts[-1] == 0 and min(counts) >= 0
    trace.save(tmp_path / "t.json")
    files = [tmp_path / n for n in ("a.svg", "b.svg", "c.png")]
    for path in files:
        assert main(["plot", str(tmp_path / "t.json"), "-o", str(path)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes() and b"Waiting tokens" in files[0].read_bytes()
    assert files[2].read_bytes().startswith(b"\x89PNG")
    assert main(["plot", str(tmp_path / "t.json"), "-o", str(tmp_path / "d.gif")]) == 1
    assert "UPL1805" in capsys.readouterr().err


def test_plots_of_machines_and_of_trainings(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="no Python package `matplotlib` here (extra `plot`)")
    from upl_mlir.observe.plots import over_cycles, save_plot, save_training
    from upl_mlir.observe.replay import lanes

    events = [Sending(0, [1], "1", False), Firing(0, [1], [(0, 0)]), Sending(1, [1], "2", False), Firing(0, [2], [])]
    places = [[-1, 0], [0, 40], [0, 40], [1, 79]]
    records = [[0, 10, 3], [1, 45, 2], [0, 45, 1], [0, 46, 3], [0, 49, 0], [1, 50, 1], [1, 70, 0]]
    trace = Trace("upl-trace", 1, "p", ["N"], ["N.a", "Y"], ["Y"], events, [2], None, places, records)
    starts, fired, waiting = over_cycles(trace, 8)
    assert starts == [0, 10, 20, 30, 40, 50, 60, 70]
    assert fired == [0, 0, 0, 0, 0.1, 0, 0, 0.1]
    assert waiting == [0, 3, 3, 3, 5, 1, 1, 0]
    starts, fired, _ = over_cycles(trace, 7)
    assert starts == [0, 12, 23, 35, 46, 58, 69] and fired == [0, 0, 0, 1 / 11, 0, 0, 1 / 11]
    assert lanes(trace, 4) == [[0, 0, 1, 0], [0, 0, 0, 1]]
    save_plot(trace, tmp_path / "run.svg")
    assert "firings per cycle" in (tmp_path / "run.svg").read_text()
    save_training([0.5, 0.25, 0.2], [0.1, 0.6, 0.9], tmp_path / "training.svg")
    assert ">Loss<" in (tmp_path / "training.svg").read_text()
