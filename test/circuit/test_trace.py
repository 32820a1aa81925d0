"""Recorded runs of circuits: the trace and the waveforms have the words of the simulation and all instances of the plan."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from circuit.circuits import EXAMPLES
from vcd.reader import TokenKind, tokenize

from upl_mlir.observe.replay import Firing, Sending, load_trace
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


def test_the_waveforms_say_the_same(folder: Path) -> None:
    trace = load_trace(folder / "t.json")
    names: dict[str, str] = {}
    found: set[tuple[int, str, str]] = set()
    now = 0
    for token in tokenize(io.BytesIO((folder / "w.vcd").read_bytes())):
        if token.kind is TokenKind.VAR:
            names[token.var.id_code] = token.var.reference
        elif token.kind is TokenKind.CHANGE_TIME:
            now = token.time_change
        elif token.kind is TokenKind.CHANGE_STRING and token.string_change.value != "-":
            found.add((now, names[token.string_change.id_code], token.string_change.value))
    wanted: set[tuple[int, str, str]] = set()
    for e, (lane, clock) in zip(trace.events, trace.places, strict=True):
        if isinstance(e, Firing):
            wanted.add((clock, f"lane_{lane}", f"C<{','.join(map(str, e.index))}>"))
        else:
            name = "ABC"[e.target]
            wanted.add((clock, name, f"{name}<{','.join(map(str, e.tag))}>={e.value}"))
    assert found == wanted


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
