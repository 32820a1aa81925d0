"""The machine with the direct store: programs against the interpreter and the hashed machine, both simulators against each
other, leftovers, and what cannot be stored directly."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.engines.rtl.engine import RtlEngine
from upl_mlir.engines.rtl.run import run_machine
from upl_mlir.hw.core.code import encode as encoding
from upl_mlir.hw.core.code.encode import encode
from upl_mlir.hw.direct.lanes import aligned
from upl_mlir.hw.direct.ranks import Ranks, Row, Space, rank_program
from upl_mlir.hw.image import HostOutput, Input, Node, ProgramImage, layout_fields
from upl_mlir.hw.machine import Machine, Matching, Organisation
from upl_mlir.hw.microcode import Constant, Instruction, Op, Send, ToHost, ValueType
from upl_mlir.hw.results import HostToken
from upl_mlir.hw.sim.compiled import available
from upl_mlir.hw.system.layouts import System

sys.path.insert(0, str(Path(__file__).resolve().parent))
from programs_bench import rows_of, same_in_every_cycle

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DIRECT = Machine(matching=Matching(organisation=Organisation.DIRECT))
SMALL = Machine(matching=Matching(organisation=Organisation.DIRECT, capacity=64))
F32 = ValueType.F32
Arrays = dict[str, np.ndarray]


def exact_data(program: upl.Program) -> Arrays:
    """Small integers, with which every program here is exact in binary32: divisors are 1."""
    out: Arrays = {}
    for n, (port, v) in enumerate(program.inputs.items()):
        low = -1 if port == "X" else 0
        out[port] = np.random.default_rng(n).integers(low, 2, v.shape()).astype(np.float32)
    if "L" in out:
        np.fill_diagonal(out["L"], 1)
    return out


PROGRAMS = [
    ("training", {"D": 2, "eta": 0.5}),  # ragged, with counted tokens and gathers
    ("matmul", {"m": 3, "n": 4, "r": 2}),  # both inputs with `*`
    ("jacobi1d", {"T": 4, "n": 6}),  # a stencil, three inputs
    ("triangular_solve", {"n": 6}),  # triangular, gathers of no summands
    ("floyd_warshall", {"n": 4}),  # gathers by min
]


@pytest.mark.parametrize(("name", "constants"), PROGRAMS)
def test_programs_give_what_the_interpreter_and_the_hashed_machine_give(
    name: str, constants: dict[str, float], tmp_path: Path
) -> None:
    """On data where binary32 is exact: bit for bit, with the same firings, and nothing left in the store."""
    program = upl.load(EXAMPLES / f"{name}.upl", **constants)
    arrays = exact_data(program)
    soft = upl.compile(program, real="f32")
    wanted = soft(**arrays)
    runs: dict[str, Arrays] = {}
    for organisation in ("direct", "hashed"):
        path = tmp_path / f"{organisation}.toml"
        path.write_text(f'[matching]\norganisation = "{organisation}"\n')
        hard = upl.compile(program, engine="rtl", machine=path)
        runs[organisation] = hard(**arrays)
        assert hard.stats["firings"] == soft.stats["firings"]
    for port, values in wanted.items():
        assert runs["direct"][port].tobytes() == runs["hashed"][port].tobytes()
        exact = name != "jacobi1d"  # which divides by 3
        assert np.array_equal(values, runs["direct"][port]) if exact else np.allclose(values, runs["direct"][port])
    assert any(np.abs(a).max() > 0 for a in wanted.values())


def test_both_simulators_agree_in_every_cycle() -> None:
    if not available():
        pytest.skip("no C++ compiler")
    program = upl.vjp(upl.load(EXAMPLES / "perceptron.upl", D=2), of="R", wrt=["W"])
    engine = RtlEngine(program.infer_domains().module, {}, machine=DIRECT)
    tokens = engine.inject(exact_data(program))
    system = System.of(DIRECT)
    image = aligned(engine.image, system.core.tag_bits)
    words = encode(image, system.core, [(t.node, t.input, t.index, t.multiplicity) for t in tokens])
    same_in_every_cycle(system, words.writes, rows_of(image, tokens), 1500)


def test_a_wrong_stride_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bank's greatest stride one too small: outputs or the end of the run show it."""

    def wrong(space: Space | None) -> Space | None:
        if space is None or max(space.strides, default=0) < 2:
            return space
        at = space.strides.index(max(space.strides))
        return replace(space, strides=tuple(s - (n == at) for n, s in enumerate(space.strides)))

    def broken(*arguments: object) -> Ranks:
        ranks = rank_program(*arguments)  # pyright: ignore[reportArgumentType]
        for n, of in enumerate(ranks.nodes):
            if of is not None:
                rows = (Row(r.ranges, tuple(map(wrong, r.banks)), r.gathers) for r in of.rows)
                ranks.nodes[n] = replace(of, rows=tuple(rows))
        return ranks

    monkeypatch.setattr(encoding, "rank_program", broken)
    program = upl.load(EXAMPLES / "matmul.upl", m=3, n=4, r=2)
    arrays = {"A": np.arange(1, 7, dtype=np.float32).reshape(3, 2), "B": np.arange(1, 9, dtype=np.float32).reshape(2, 4)}
    engine = RtlEngine(program.infer_domains().module, {}, machine=DIRECT)
    try:
        got = engine.run(arrays).outputs["C"]
    except UplError as e:
        assert e.diagnostics[0].code in ("UPL1701", "UPL1714", "UPL1705")
    else:
        assert not np.array_equal(got, arrays["A"] @ arrays["B"])


def test_sums_of_any_data_are_those_of_their_order() -> None:
    """Data with which the order of additions changes bits: the run is re-executed, addition by addition, in binary32."""
    program = upl.load(EXAMPLES / "matmul.upl", m=3, n=2, r=20)
    random = np.random.default_rng(0)
    arrays = {name: random.standard_normal(v.shape()).astype(np.float32) for name, v in program.inputs.items()}
    engine = RtlEngine(program.infer_domains().module, {}, machine=DIRECT)
    result = run_machine(engine.image, DIRECT, engine.inject(arrays), audit=True)
    found = np.zeros((3, 2), np.float32)
    for _, index, value in result.outputs:
        found[index] = value
    np.testing.assert_allclose(found, arrays["A"] @ arrays["B"], rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "constants", "stages", "along"),
    [
        ("training", {"D": 4, "eta": 0.5}, 2, "d"),  # the host sends example by example
        ("upsample", {"m": 4, "n": 6}, 1, "q"),  # a place is free again while its last sum is under way: nothing is put off
        ("triangular_solve", {"n": 6}, 1, None),  # no windows: some gathers have no summands
        ("jacobi1d", {"T": 6, "n": 6}, 1, "t"),  # the ends run ahead: their tokens are put off
    ],
)
def test_windows_use_places_again(
    name: str, constants: dict[str, float], stages: int, along: str | None, tmp_path: Path
) -> None:
    """The same results with a fraction of the places, tokens of later values being put off."""
    program = upl.load(EXAMPLES / f"{name}.upl", **constants)
    arrays = exact_data(program)
    got: dict[int, Arrays] = {}
    stats: dict[int, dict[str, Any]] = {}
    for window in (64, stages):
        path = tmp_path / f"{window}.toml"
        path.write_text(f'[matching]\norganisation = "direct"\nstages = {window}\n')
        hard = upl.compile(program, engine="rtl", machine=path)
        got[window], stats[window] = hard(**arrays), hard.stats
    assert all(got[64][port].tobytes() == values.tobytes() for port, values in got[stages].items())
    assert stats[64]["firings"] == stats[stages]["firings"]
    few, many = (sum(stats[w]["store"]["places"]) for w in (stages, 64))
    found = {node.get("along") for node in stats[stages]["store"]["nodes"].values()} - {None}
    if along is None:
        assert few <= many
    else:
        assert found == {along}
        assert few < 0.8 * many
        assert (stats[stages]["store"]["put_off"] > 0) == (along != "q")
    assert stats[64]["store"]["put_off"] == 0


def two_inputs(fields: list[tuple[str, int, int]]) -> ProgramImage:
    body = tuple(Instruction(n, Op.FIELD, immediate=n) for n in range(len(fields)))
    value = Instruction(len(fields), Op.INPUT, immediate=0)
    send = Send(ToHost(0), len(fields), tuple(range(len(fields))), Constant(1))
    inputs = (Input("a", F32), Input("b", F32))
    node = Node("N", layout_fields(fields), inputs, (*body, value), (send,))
    return ProgramImage("two", (node,), (HostOutput("Y", tuple(f for f, _, _ in fields), F32),))


def test_leftovers_are_named_by_their_places() -> None:
    image = two_inputs([("i", 1, 4), ("j", 3, 6)])
    tokens = [HostToken(0, 0, (1, 3), 1.0), HostToken(0, 1, (1, 3), 1.0), HostToken(0, 1, (2, 5), 1.0)]
    with pytest.raises(UplError) as caught:
        run_machine(image, SMALL, tokens, simulator="amaranth")
    assert caught.value.diagnostics[0].code == "UPL1701"
    assert "N.b<2,5> waits for input `a`" in str(caught.value)


def test_leftover_walks_and_gathers_are_named() -> None:
    image = two_inputs([("i", 1, 4), ("j", 3, 6)])
    tokens = [HostToken(0, 0, (2, None), 1.0, 4), HostToken(0, 1, (2, 5), 1.0)]
    with pytest.raises(UplError) as caught:
        run_machine(image, SMALL, tokens, simulator="amaranth")
    assert "N.a<2,*> waits (for 3 activations) for input `b`" in str(caught.value)


def test_fields_that_do_not_fit_in_lanes_are_refused() -> None:
    wide = two_inputs([("i", 0, (1 << 17) - 1)])
    with pytest.raises(UplError) as caught:
        run_machine(wide, SMALL, [HostToken(0, 0, (1,), 1.0)], simulator="amaranth")
    assert caught.value.diagnostics[0].code == "UPL1715"
    assert "the 17 bits of its field `i`" in str(caught.value)


def test_more_places_than_there_are_are_refused() -> None:
    with pytest.raises(UplError) as caught:
        run_machine(two_inputs([("i", 0, 15), ("j", 0, 15)]), SMALL, [HostToken(0, 0, (1, 1), 1.0)], simulator="amaranth")
    assert caught.value.diagnostics[0].code == "UPL1710"
    assert "256 places for tokens in bank 0, the core has 64" in str(caught.value)
