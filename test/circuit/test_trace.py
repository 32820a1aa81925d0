"""Recorded runs of circuits: the trace and the waveforms have the words of the simulation and all instances of the plan."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Signal
from amaranth.sim import Simulator
from circuit.circuits import CASES, EXAMPLES, data
from circuit.networks import NETS, TEXTS, Net
from vcd.reader import TokenKind, tokenize

from upl_mlir.engines.circuit.engine import run, to_stream
from upl_mlir.engines.circuit.simulation import Simulation
from upl_mlir.hw.circuit import circuit as hardware
from upl_mlir.hw.circuit.lane import Lane
from upl_mlir.observe.circuit_trace import instances
from upl_mlir.observe.replay import Firing, Sending, Trace, load_trace
from upl_mlir.passes.circuit.plan import Plan, cycles
from upl_mlir.tools.upl import main

A, B = np.arange(1.0, 13.0).reshape(4, 3), np.arange(6.0).reshape(3, 2) - 2
RUN = ["run", str(EXAMPLES / "matmul.upl"), "--engine", "circuit", "--lanes", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recorded run of a product of matrices."""
    here = tmp_path_factory.mktemp("run")
    np.savez(here / "ab.npz", A=A, B=B)
    told = ["--trace", str(here / "t.json"), "--vcd", str(here / "w.vcd"), "--output", str(here / "c.npz")]
    assert main([*RUN, "--input", str(here / "ab.npz"), *told, "--stats", str(here / "s.json")]) == 0
    return here


def test_the_trace_has_all_words_and_instances(folder: Path) -> None:
    trace = load_trace(folder / "t.json")
    np.testing.assert_array_equal(np.load(folder / "c.npz")["C"], A @ B)
    assert trace.nodes == ["C.process", "A", "B", "C"]
    words = [e for e in trace.events if isinstance(e, Sending)]
    sent = {k: {tuple(e.tag): float(e.value) for e in words if e.target == k} for k in range(3)}
    for k, array in enumerate((A, B, A @ B)):
        assert sent[k] == {tuple(map(int, at)): array[at] for at in np.ndindex(array.shape)}
    fired = [e for e in trace.events if isinstance(e, Firing)]
    assert {tuple(e.index) for e in fired} == set(np.ndindex(4, 2, 3))
    assert len(fired) == sum(trace.levels) == 24
    ends = [token for e in fired for token, _ in e.ends]
    assert len(ends) == len(set(ends)) == A.size + B.size  # every word of an input is used up by its last reader
    places = list(zip(trace.events, trace.places, strict=True))
    for e, (lane, clock) in places:
        assert (lane == -1) == isinstance(e, Sending)
        if isinstance(e, Firing):
            assert all(trace.places[token][1] < clock for token, _ in e.ends)
    assert [clock for _, (_, clock) in places] == sorted(clock for _, (_, clock) in places)


def waves(path: Path) -> set[tuple[int, str, str]]:
    """What waveforms say: clock, scope and signal, text."""
    names: dict[str, str] = {}
    found: set[tuple[int, str, str]] = set()
    now, scope = 0, ""
    for token in tokenize(io.BytesIO(path.read_bytes())):
        if token.kind is TokenKind.SCOPE:
            scope = token.scope.ident
        elif token.kind is TokenKind.VAR:
            names[token.var.id_code] = f"{scope}/{token.var.reference}"
        elif token.kind is TokenKind.CHANGE_TIME:
            now = token.time_change
        elif token.kind is TokenKind.CHANGE_STRING and token.string_change.value != "-":
            found.add((now, names[token.string_change.id_code], token.string_change.value))
    return found


def test_the_waveforms_say_the_same(folder: Path) -> None:
    trace = load_trace(folder / "t.json")
    wanted: set[tuple[int, str, str]] = set()
    for e, (lane, clock) in zip(trace.events, trace.places, strict=True):
        if isinstance(e, Firing):
            wanted.add((clock, f"lanes/lane_{lane}", f"C<{','.join(map(str, e.index))}>"))
        else:
            name = "ABC"[e.target]
            wanted.add((clock, f"ports/{name}", f"{name}<{','.join(map(str, e.tag))}>={e.value}"))
    assert waves(folder / "w.vcd") == wanted


def test_a_page_with_the_values(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = ["view", str(EXAMPLES / "matmul.upl"), "--circuit", "--lanes", "2", "--trace", str(folder / "t.json")]
    assert main([*page, "-D", "m=4", "-D", "n=2", "-D", "r=3", "-o", str(folder / "p.html")]) == 0
    assert '"values": ["' in (folder / "p.html").read_text(encoding="utf-8")
    assert main([*page, "-D", "m=4", "-D", "n=4", "-D", "r=3", "-o", str(folder / "q.html")]) == 1
    assert "UPL1806" in capsys.readouterr().err
    assert not (folder / "q.html").exists()


def test_other_forms_and_a_wrong_window(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = [*RUN, "--input", str(folder / "ab.npz"), "--output", str(folder / "d.npz")]
    assert main([*told, "--trace", str(folder / "t.pftrace")]) == 0
    assert (folder / "t.pftrace").stat().st_size > 1000
    assert main([*told, "--vcd", str(folder / "x.vcd"), "--vcd-window", "a:b"]) == 1
    assert "UPL1503" in capsys.readouterr().err
    assert not (folder / "x.vcd").exists()


# ------------------------------------------------------------------------------------------------------ several processes

SEVERAL = [("chain-4", 2), ("transposed-4-6", 2), ("centred-4-6", 4), ("products-4", 4)]


def network(name: str) -> Net:
    """A program of several statements, with its sizes."""
    return next(n for n in NETS if str(n) == name)


@pytest.mark.parametrize(("name", "lanes"), [*SEVERAL, ("matmul-5-7-3", 2), ("jacobi1d-2-5", 2)])
def test_instances_begin_when_the_hardware_begins_them(
    name: str, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each clock, the counters of each lane of each process, against the instances and clocks that a trace gets."""
    plan = next(c for c in (*NETS, *CASES) if str(c) == name).planned(lanes)[1]
    made: list[Lane] = []

    class Watched(Lane):
        def __init__(self, *args: object):
            super().__init__(*args)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr(hardware, "Lane", Watched)
    circuit = hardware.Circuit(plan, watched=True)
    words = {circuit.names[i.name]: to_stream(plan, i, data(plan, 1)[i.name]) for i in plan.inputs}
    found: set[tuple[int, int, tuple[int, ...], int]] = set()

    async def bench(ctx):  # type: ignore[no-untyped-def]
        sent = dict.fromkeys(words, 0)
        for o in plan.outputs:
            ctx.set(getattr(circuit, f"{circuit.names[o.name]}_tready"), 1)
        for clock in range(cycles(plan)):
            for n, w in words.items():
                ctx.set(getattr(circuit, f"{n}_tvalid"), sent[n] < len(w))
                ctx.set(getattr(circuit, f"{n}_tdata"), int(w[sent[n] % len(w)]))
                sent[n] += sent[n] < len(w) and ctx.get(getattr(circuit, f"{n}_tready"))
            for lane in made:
                if ctx.get(lane.enable) and ctx.get(lane.nest.running):
                    counters = [ctx.get(c) if isinstance(c, Signal) else 0 for c in lane.nest.counters]
                    add(lane, counters, clock)
            await ctx.tick()

    def add(lane: Lane, counters: list[int], clock: int) -> None:
        nest = lane.part.nest
        at = (*counters[: len(nest.order)], lane.number)
        if lane.part.mask(lane.part.process.domain)[at]:
            index = tuple(int(np.broadcast_to(nest.grid[d.name], nest.shape)[at]) for d in nest.dims)
            found.add((lane.of, lane.number, index, clock))

    simulator = Simulator(circuit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == {(b.part, b.lane, b.index, b.clock) for b in instances(plan)}


def recorded(folder: Path, net: Net, lanes: int, trace: str = "t.json") -> tuple[Plan, dict[str, np.ndarray], list[str]]:
    """A run of a program, recorded; the command line that shows it."""
    plan = net.planned(lanes)[1]
    arrays = data(plan, 2)
    np.savez(folder / "in.npz", **arrays)
    (folder / "p.upl").write_text(TEXTS[net.name])
    sizes = [part for n, v in net.sizes for part in ("-D", f"{n}={v}")]
    told = ["run", str(folder / "p.upl"), "--engine", "circuit", "--lanes", str(lanes), "--input", str(folder / "in.npz")]
    told += ["--output", str(folder / "out.npz"), "--trace", str(folder / trace), "--vcd", str(folder / "w.vcd")]
    assert main(told) == 0
    return plan, arrays, ["view", str(folder / "p.upl"), "--circuit", "--lanes", str(lanes), *sizes]


@pytest.mark.parametrize(("name", "lanes"), SEVERAL)
def test_a_trace_of_several_processes(name: str, lanes: int, tmp_path: Path) -> None:
    """Words pass when the simulation says; each lane of each process has a place of its own; waveforms say the same."""
    plan, arrays, view = recorded(tmp_path, network(name), lanes)
    trace = load_trace(tmp_path / "t.json")
    (outputs,), streamed = run(Simulation(hardware.Circuit(plan)), [arrays])
    processes = [f"{p.process.name}.process" for p in plan.parts]
    assert trace.nodes == [*processes, *(port.name for port in (*plan.inputs, *plan.outputs))]
    both = list(zip(trace.events, trace.places, strict=True))
    for i in plan.inputs:
        for f in i.feeds:
            target = trace.targets.index(f"{processes[f.part]}.{i.name}")
            taken = [clock for e, (_, clock) in both if isinstance(e, Sending) and e.target == target]
            assert taken == list(streamed.taken[i.name])
    for o in plan.outputs:
        sent = [(e, clock) for e, (_, clock) in both if isinstance(e, Sending) and e.target == trace.targets.index(o.name)]
        assert [clock for _, clock in sent] == list(streamed.clocks[o.name])
        low = [d.low for d in o.dims]
        for e, _ in sent:
            value = outputs[o.name][tuple(n - m for n, m in zip(e.tag, low, strict=True))]  # type: ignore[operator]
            assert e.value == f"{float(value):.6g}"
    first = [sum(p.nest.lanes for p in plan.parts[:k]) for k in range(len(plan.parts))]
    begun = {(e.node, place - first[e.node], tuple(e.index), clock) for e, (place, clock) in both if isinstance(e, Firing)}
    assert begun == {(b.part, b.lane, b.index, b.clock) for b in instances(plan)}
    ends = [(token, at) for at, e in enumerate(trace.events) if isinstance(e, Firing) for token, _ in e.ends]
    assert len({token for token, _ in ends}) == len(ends)
    for token, at in ends:
        sending = trace.events[token]
        assert isinstance(sending, Sending)
        assert trace.targets[sending.target].startswith(f"{trace.nodes[trace.events[at].node]}.")  # type: ignore[union-attr]
        assert trace.places[token][1] < trace.places[at][1]
    compare_waves(tmp_path, trace, plan, first)
    assert main([*view, "--trace", str(tmp_path / "t.json"), "-o", str(tmp_path / "p.html")]) == 0


def compare_waves(folder: Path, trace: Trace, plan: Plan, first: list[int]) -> None:
    """The waveforms have what the trace has."""
    wanted: set[tuple[int, str, str]] = set()
    for e, (place, clock) in zip(trace.events, trace.places, strict=True):
        if isinstance(e, Firing):
            name = plan.parts[e.node].process.name
            scope = f"process_{e.node}_{name.replace('.', '_').replace(':', '_')}"
            wanted.add((clock, f"{scope}/lane_{place - first[e.node]}", f"{name}<{','.join(map(str, e.index))}>"))
        else:
            name = trace.targets[e.target].rpartition(".")[2]
            wanted.add((clock, f"ports/{name}", f"{name}<{','.join(map(str, e.tag))}>={e.value}"))
    assert waves(folder / "w.vcd") == wanted


def test_tracks_of_several_processes(tmp_path: Path) -> None:
    recorded(tmp_path, network("chain-4"), 2, "t.pftrace")
    found = (tmp_path / "t.pftrace").read_bytes()
    for name in (b"lanes of S.s", b"lanes of B", b"lanes of C"):
        assert found.count(name) == 1


def test_a_trace_of_another_circuit_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of fewer processes, with other elements, with a word or an instance less, or of other targets."""
    _, _, view = recorded(tmp_path, network("transposed-4-6"), 2)
    good = load_trace(tmp_path / "t.json")
    last_word = max(n for n, e in enumerate(good.events) if isinstance(e, Sending))
    last_firing = max(n for n, e in enumerate(good.events) if isinstance(e, Firing))
    sending = good.events[last_word]
    assert isinstance(sending, Sending)
    wrong = [
        {"nodes": good.nodes[1:]}, {"targets": good.targets[::-1]},
        *({"events": [e for k, e in enumerate(good.events) if k != n]} for n in (last_word, last_firing)),
        {"events": [*good.events[:last_word], Sending(sending.target, [99, 99], "1", False), *good.events[last_word + 1 :]]},
    ]  # fmt: skip
    for n, change in enumerate(wrong):
        Trace(**{f: getattr(good, f) for f in good.__struct_fields__} | change).save(tmp_path / f"{n}.json")
        assert main([*view, "--trace", str(tmp_path / f"{n}.json"), "-o", str(tmp_path / "p.html")]) == 1, change
        assert "UPL1806" in capsys.readouterr().err
        assert not (tmp_path / "p.html").exists()
