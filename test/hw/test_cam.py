"""The organisation `cam` on hand-written program images: results bit for bit, figures, the errors a program can cause."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as replace_struct

from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl import Gather
from upl_mlir.engines.rtl.run import run_machine
from upl_mlir.hw.core.code.encode import encode
from upl_mlir.hw.execute import to_bits
from upl_mlir.hw.image import BootToken, HostOutput, Input, Node, ProgramImage, Table, layout_fields, pack
from upl_mlir.hw.machine import Execution, Machine, Matching, Organisation, Token, parse_machine
from upl_mlir.hw.matching_unit import in_core
from upl_mlir.hw.matching_unit.interface import Fault
from upl_mlir.hw.matching_unit.unit import MatchingUnit
from upl_mlir.hw.microcode import (
    Constant,
    FromRegister,
    Instruction,
    Loop,
    Op,
    Send,
    ToHost,
    ToNode,
    Unbounded,
    ValueType,
)
from upl_mlir.hw.results import HostToken, SimulationResult
from upl_mlir.hw.sim import amaranth_sim
from upl_mlir.hw.sim.amaranth_sim import AmaranthSimulation
from upl_mlir.hw.sim.compiled import CompiledSimulation, available
from upl_mlir.hw.sim.interface import TOKEN, Ended, Report
from upl_mlir.hw.system.layouts import System

F32, I32, BOOL = ValueType.F32, ValueType.I32, ValueType.BOOL
CAM = Matching(organisation=Organisation.CAM)
SMALL = Machine(matching=Matching(organisation=Organisation.CAM, capacity=64))
ROWS, COLUMNS = 5, 4


def step(result: int, op: Op, *operands: int, immediate: float | None = None) -> Instruction:
    return Instruction(result, op, operands, immediate)


def matrix_vector(rows: int = ROWS, columns: int = COLUMNS) -> ProgramImage:
    """y[i] = Σ_j a[i,j]·x[j]: x<*,j> is sent once per j, with multiplicity `rows`; indices begin at 1."""
    mul, total = 0, 1
    product = Node(
        "Mul",
        layout_fields([("i", 1, rows), ("j", 1, columns)]),
        (Input("a", F32), Input("x", F32)),
        body=(
            step(0, Op.INPUT, immediate=0),
            step(1, Op.INPUT, immediate=1),
            step(2, Op.MUL_F32, 0, 1),
            step(3, Op.FIELD, immediate=0),
        ),
        sends=(Send(ToNode(total, 0), value=2, index=(3,), multiplicity=Constant(columns)),),
    )
    summing = Node(
        "Sum",
        layout_fields([("i", 1, rows)]),
        (Input("s", F32, Gather.SUM),),
        body=(step(0, Op.INPUT, immediate=0), step(1, Op.FIELD, immediate=0)),
        sends=(Send(ToHost(0), value=0, index=(1,)),),
    )
    assert mul == 0
    return ProgramImage("matvec", (product, summing), (HostOutput("Y", ("i",), F32),))


def matrix_vector_tokens(a: np.ndarray, x: np.ndarray, seed: int = 0) -> list[HostToken]:
    rows, columns = a.shape
    tokens = [HostToken(0, 0, (i + 1, j + 1), a[i, j]) for i in range(rows) for j in range(columns)]
    tokens += [HostToken(0, 1, (None, j + 1), x[j], rows) for j in range(columns)]
    order = np.random.default_rng(seed).permutation(len(tokens))
    return [tokens[k] for k in order]


def problem(rows: int = ROWS, columns: int = COLUMNS) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    a = random.integers(-8, 9, (rows, columns)).astype(np.float32)
    return a, random.integers(-8, 9, columns).astype(np.float32)


def simulate(image: ProgramImage, machine: Machine, tokens: list[HostToken], **options: Any) -> SimulationResult:
    """Every run that ends well is compared with its re-execution, too."""
    return run_machine(image, machine, tokens, audit=True, **options)


def failure(image: ProgramImage, tokens: list[HostToken], machine: Machine = SMALL, **options: Any) -> str:
    with pytest.raises(UplError) as caught:
        simulate(image, machine, tokens, **options)
    return str(caught.value)


def with_fault(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """A machine whose matching unit has a defect."""
    monkeypatch.setattr(in_core, "MatchingUnit", lambda dim: MatchingUnit(dim, fault))
    monkeypatch.setattr(amaranth_sim, "PATIENCE", 300)


@pytest.mark.parametrize(("seed", "add"), [(0, 1), (1, 4), (2, 40)])
def test_matrix_vector_product_is_bit_equal(seed: int, add: int) -> None:
    a, x = problem()
    tokens = matrix_vector_tokens(a, x, seed)
    machine = replace_struct(SMALL, execution=Execution(add_cycles=add))
    result = simulate(matrix_vector(), machine, tokens, simulator="amaranth" if add != 4 else None)
    y = np.zeros(ROWS, np.float32)
    for name, (i,), value in result.outputs:
        assert name == "Y"
        assert isinstance(value, np.float32)
        y[i - 1] = value
    assert len(result.outputs) == ROWS
    assert y.tobytes() == (a @ x).tobytes()
    stats = result.stats
    assert stats.firings == {"Mul": ROWS * COLUMNS, "Sum": ROWS}
    assert stats.tokens == {"Mul": ROWS * COLUMNS + COLUMNS, "Sum": ROWS * COLUMNS}
    assert stats.matches == ROWS * COLUMNS + ROWS
    assert 0 < stats.occupancy.mean <= stats.occupancy.peak == stats.peak_waiting <= 64
    assert stats.cycles > 2 * ROWS * COLUMNS


@pytest.mark.parametrize("cores", [2, 3])
def test_several_cores_find_all_partners(cores: int) -> None:
    """The row of `a` decides the core, as x<*,j> goes everywhere but is one token: all of a column must meet it."""
    a, x = problem(9, 5)
    machine = replace_struct(SMALL, cores=cores)
    result = simulate(matrix_vector(9, 5), machine, matrix_vector_tokens(a, x))
    assert [v for _, _, v in sorted(result.outputs)] == list(a @ x)
    assert len(result.stats.cores) == cores
    assert sum(core["matches"] for core in result.stats.cores) == 9 * 5 + 9
    assert all(core["matches"] for core in result.stats.cores)


def test_both_simulators_agree_in_every_cycle() -> None:
    """Amaranth's description of the associative memory, and the Verilog, in three banks of which the last one is not full.

    Nearly all of a waits for x, so that entries of two banks are in use, and tokens with many partners walk over them.
    """
    if not available():
        pytest.skip("no C++ compiler")
    side, capacity = 11, 150
    a, x = problem(side, side)
    image, machine = matrix_vector(side, side), Machine(matching=Matching(organisation=Organisation.CAM, capacity=capacity))
    tokens = sorted(matrix_vector_tokens(a, x), key=lambda t: (t.input == 1) != (t.index[1] == side))
    system = System.of(machine)
    words = encode(image, system.core, [(t.node, t.input, t.index, t.multiplicity) for t in tokens])
    rows = np.zeros(len(tokens), TOKEN)
    for n, t in enumerate(tokens):
        tag, wild = pack(image.nodes[t.node].fields, t.index, "")
        tag |= wild << system.core.index_bits
        rows[n] = (tag, 0, t.node, t.input, t.multiplicity, to_bits(t.value, F32), 0)
    slow, fast = AmaranthSimulation(system), CompiledSimulation(system)
    reports: list[Report] = []
    for simulation in (slow, fast):
        simulation.configure(words.writes)
        reports.append(simulation.run(rows, 10_000, checks=10_000))
    assert reports[0].checksums == reports[1].checksums
    assert len(set(reports[0].checksums)) == reports[0].cycles > 1000
    assert replace(reports[0], outputs=0) == replace(reports[1], outputs=0)
    assert reports[0].outputs.tolist() == reports[1].outputs.tolist()
    assert reports[0].ended is Ended.IDLE
    assert reports[0].cores[0].used_peak > 100


def test_figures_are_those_of_the_file_format() -> None:
    a, x = problem()
    stats = simulate(matrix_vector(), SMALL, matrix_vector_tokens(a, x)).stats.to_dict()
    assert {"engine", "firings", "tokens", "peak_waiting", "seconds", "cycles", "matches"} < set(stats)
    assert stats["engine"] == "rtl"
    assert set(stats["occupancy"]) == {"peak", "mean"}
    assert all("." in cause and cycles >= 0 for cause, cycles in stats["stalls"].items())
    assert all(0 <= part <= 1 for part in stats["utilisation"].values())


def test_waveforms_are_written(tmp_path: Path) -> None:
    file = tmp_path / "run.vcd"
    simulate(matrix_vector(), SMALL, [HostToken(1, 0, (1,), 1e300, 1)], vcd=file)
    text = file.read_text(encoding="utf-8")
    assert "activation__valid" in text
    assert "\n#" in text


# ----------------------------------------------------------------------------------------------------------- errors


def test_a_missing_token_strands_its_partners() -> None:
    a, x = problem()
    tokens = [t for t in matrix_vector_tokens(a, x) if t[:3] != (0, 0, (2, 3))]
    text = failure(matrix_vector(), tokens)
    assert "error[UPL1701]: the machine has come to rest and 2 tokens are stranded" in text
    assert "Mul.x<*,3> waits for input `a`: it never came" in text
    assert "Sum.s<2> has 3 of 4 summands" in text


def test_match_lines_stuck_at_0_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    a, x = problem()
    with_fault(monkeypatch, Fault.MATCH_STUCK_AT_0)
    text = failure(matrix_vector(), matrix_vector_tokens(a, x), simulator="amaranth")
    assert "error[UPL1701]" in text
    assert "and 4 more" in text


def test_too_large_a_multiplicity_is_stranded() -> None:
    a, x = problem()
    tokens = [t._replace(multiplicity=7) if t.index == (None, 1) else t for t in matrix_vector_tokens(a, x)]
    text = failure(matrix_vector(), tokens)
    assert "Mul.x<*,1> waits (for 2 activations) for input `a`" in text


def test_a_full_store_names_the_limit() -> None:
    a, x = problem()
    tiny = parse_machine('[matching]\norganisation = "cam"\ncapacity = 4', "m.toml")
    text = failure(matrix_vector(), matrix_vector_tokens(a, x), tiny)
    assert "m.toml:3:1: error[UPL1702]: the matching store is full: all 4 entries are in use when " in text
    assert "matching.capacity" in text


def test_an_open_index_is_an_error() -> None:
    image = matrix_vector()
    text = failure(image, [HostToken(0, 0, (None, 1), 1.0), HostToken(0, 1, (None, 1), 1.0)])
    assert "error[UPL1704]: an activation has no complete index when Mul.x<*,1> arrives" in text


def test_summands_must_agree_on_their_number() -> None:
    text = failure(matrix_vector(), [HostToken(1, 0, (1,), 1.0, 3), HostToken(1, 0, (1,), 1.0, 2)])
    assert "error[UPL1705]: Sum.s<1>: a summand that states another number" in text


def test_an_output_element_comes_once() -> None:
    tokens = [HostToken(1, 0, (1,), 1.0, 1), HostToken(1, 0, (1,), 2.0, 1)]
    assert "error[UPL1707]: output Y<1> came twice" in failure(matrix_vector(), tokens)


def test_a_run_may_be_cut_short() -> None:
    a, x = problem()
    assert "error[UPL1708]" in failure(matrix_vector(), matrix_vector_tokens(a, x), max_cycles=20)


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (HostToken(0, 0, (9, 1), 1.0), "a token to Mul.a<9,1>: i = 9 does not fit in its 3 bits (1..8)"),
        (HostToken(0, 0, (1, 1), 1.0, 0), "a token to Mul.a<1,1> has multiplicity 0; the machine has 1..65534"),
        (HostToken(0, 0, (1, 1), 1.0, 65535), "has multiplicity 65535"),
        (HostToken(0, 0, (1, 1), 10**400), "a token to Mul.a<1,1> has the value 1000"),
        (HostToken(2, 0, (), 2**31), "a token to Int.n<> has the value 2147483648, which is no i32"),
        (HostToken(2, 0, (), float("nan")), "a token to Int.n<> has the value nan, which is no i32"),
        (HostToken(2, 1, (), 2), "a token to Int.b<> has the value 2, which is no bool"),
    ],
)
def test_a_token_must_fit(token: HostToken, message: str) -> None:
    image = matrix_vector()
    image = replace(image, nodes=(*image.nodes, Node("Int", (), (Input("n", I32), Input("b", BOOL)))))
    text = failure(image, [token])
    assert "error[UPL1712]: " in text
    assert message in text


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (Machine(matching=CAM, token=Token(tag_bits=4)), "node `Mul` needs 5 bits of tag, the machine has 4"),
        (Machine(matching=CAM, token=Token(max_fields=1)), "node `Mul` needs 2 index fields, the machine has 1"),
        (Machine(matching=CAM, token=Token(max_inputs=1)), "node `Mul` needs 2 inputs, the machine has 1"),
        (
            Machine(matching=CAM, token=Token(multiplicity_bits=2)),
            "an arrow of node `Mul` needs 4 as multiplicity, the machine has 2",
        ),
    ],
)
def test_what_does_not_fit_is_stated_with_limit_and_need(machine: Machine, message: str) -> None:
    assert f"error[UPL1710]: {message}" in failure(matrix_vector(), [], machine)


def test_too_many_nodes() -> None:
    image = matrix_vector()
    text = failure(replace(image, nodes=image.nodes * 2), [], Machine(matching=CAM, token=Token(node_bits=1)))
    assert "error[UPL1710]: program `matvec` needs 4 nodes, the machine has 2" in text
    assert "token.node_bits = 2" in text


@pytest.mark.parametrize(
    ("machine", "key"),
    [
        (Machine(execution=Execution(units=2)), "execution.units = 2"),
    ],
)
def test_what_is_not_built_is_refused(machine: Machine, key: str) -> None:
    text = failure(matrix_vector(), [], machine)
    assert f"error[UPL1723]: machine `default`: {key} is not built yet" in text


@pytest.mark.parametrize(("organisation", "times"), [("hashed", 5), ("cam", 5), ("cam", 2)])
def test_one_input_may_get_tokens_with_different_stars(organisation: str, times: int) -> None:
    """x<*,1> for a whole column, x<i,2> one by one: `hashed` refuses it, `cam` takes it."""
    a, x = problem(5, 2)
    image = matrix_vector(5, 2)
    tokens = [t for t in matrix_vector_tokens(a, x) if t.index != (None, 2)]
    tokens += [HostToken(0, 1, (i, 2), x[1]) for i in range(1, 6)]
    machine = Machine(matching=Matching(organisation=Organisation(organisation)))
    if organisation == "hashed":
        assert "error[UPL1713]: the input `Mul.x` gets tokens with different `*` fields" in failure(image, tokens, machine)
        return
    tokens = [t._replace(multiplicity=times) if t.index == (None, 1) else t for t in tokens]
    if times < 5:
        assert "UPL1701" in failure(image, tokens, machine)
        return
    y = {i: value for _, (i,), value in simulate(image, machine, tokens).outputs}
    assert [y[i + 1] for i in range(5)] == list(a @ x)


def test_a_summand_must_state_how_many_there_are() -> None:
    image = matrix_vector()
    product = replace(image.nodes[0], sends=(replace(image.nodes[0].sends[0], multiplicity=Unbounded()),))
    text = failure(replace(image, nodes=(product, image.nodes[1])), [])
    assert "error[UPL1732]: a summand for `Sum.s` is one of as many as another input says" in text
    assert 'organisation = "hashed"' in text


def test_gathering_by_other_operators_is_refused() -> None:
    image = matrix_vector()
    product = replace(image.nodes[1], inputs=(Input("s", F32, Gather.MAX),))
    text = failure(replace(image, nodes=(image.nodes[0], product)), [])
    assert "error[UPL1711]: input `Sum.s`: gathering by `max` of f32 is not built yet" in text


# ------------------------------------------------------------------------------------------- loops, tables, boot, i32


def test_loops_conditions_tables_and_integers() -> None:
    """Src<n> sends, for a in 1..n, b in a..n, if a+b is even: T[a]·b to Acc.s<a>, as many as Acc is told."""
    source = Node(
        "Src",
        layout_fields([("n", 0, 15)]),
        (Input("go", I32),),
        body=(
            step(0, Op.FIELD, immediate=0),
            step(1, Op.CONST_I32, immediate=1),
            step(2, Op.CONST_I32, immediate=2),
            step(3, Op.CONST_I32, immediate=0),
            step(4, Op.GT_I32, 0, 3),
        ),
        sends=(
            Send(
                ToNode(1, 0),
                value=15,
                index=(10,),
                multiplicity=FromRegister(18),
                guard=4,
                loops=(Loop(10, 1, 0), Loop(11, 10, 0)),
                condition_code=(step(12, Op.ADD_I32, 10, 11), step(13, Op.MOD_I32, 12, 2), step(19, Op.EQ_I32, 13, 3)),
                predicate=19,
                code=(
                    step(14, Op.LDTAB, 10, immediate=0),
                    step(15, Op.MUL_I32, 14, 11),
                    step(16, Op.SUB_I32, 0, 10),
                    step(17, Op.FLOORDIV_I32, 16, 2),
                    step(18, Op.ADD_I32, 17, 1),
                ),
            ),
        ),
    )
    total = Node(
        "Acc",
        layout_fields([("a", -2, 13)]),
        (Input("s", I32, Gather.SUM),),
        body=(step(0, Op.INPUT, immediate=0), step(1, Op.FIELD, immediate=0)),
        sends=(Send(ToHost(0), value=0, index=(1,)),),
    )
    table = Table("T", I32, (1,), (6,), (3, -1, 4, -1, 5, -9))
    image = ProgramImage(
        "loops", (source, total), (HostOutput("S", ("a",), I32),), (table,), (BootToken(1, 0, (-2,), 0),)
    )
    n = 6
    result = simulate(image, SMALL, [HostToken(0, 0, (n,), 0), HostToken(0, 0, (0,), 0)])
    expected = {a: sum(table.values[a - 1] * b for b in range(a, n + 1) if (a + b) % 2 == 0) for a in range(1, n + 1)}
    assert {i: value for _, (i,), value in result.outputs} == {-2: 0, **expected}
    assert result.stats.firings == {"Src": 2, "Acc": 7}
    assert result.stats.tokens["Acc"] == sum(len(range(a, n + 1, 2)) for a in range(1, n + 1))


def test_an_integer_sum_that_overflows() -> None:
    total = Node("Acc", (), (Input("s", I32, Gather.SUM),))
    tokens = [HostToken(0, 0, (), 2**31 - 1, 2), HostToken(0, 0, (), 1, 2)]
    assert "error[UPL1706]: Acc<>: a result overflows a 32-bit integer" in failure(ProgramImage("sum", (total,)), tokens)


def test_three_inputs_and_unbounded_tokens() -> None:
    """N<i,j> with r<i,j>, w<i,*> (unbounded) and f (bool, exact multiplicity): sends f ? r : w."""
    node = Node(
        "N",
        layout_fields([("i", 0, 3), ("j", 0, 3)]),
        (Input("r", F32), Input("w", F32), Input("f", BOOL)),
        body=(
            step(0, Op.INPUT, immediate=0),
            step(1, Op.INPUT, immediate=1),
            step(2, Op.INPUT, immediate=2),
            step(3, Op.SELECT, 2, 0, 1),
            step(4, Op.FIELD, immediate=0),
            step(5, Op.FIELD, immediate=1),
        ),
        sends=(Send(ToHost(0), value=3, index=(4, 5)),),
    )
    image = ProgramImage("three", (node,), (HostOutput("O", ("i", "j"), F32),))
    tokens = [HostToken(0, 0, (i, j), 10.0 * i + j) for i in range(4) for j in range(4)]
    tokens += [HostToken(0, 1, (i, None), -1.0 - i, None) for i in range(4)]
    tokens += [HostToken(0, 2, (None, j), j % 2 == 0, 4) for j in range(4)]
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(tokens))
        result = simulate(image, SMALL, [tokens[k] for k in order])
        expected = {(i, j): 10.0 * i + j if j % 2 == 0 else -1.0 - i for i in range(4) for j in range(4)}
        assert {index: float(value) for _, index, value in result.outputs} == expected


def test_a_multicast_from_inside() -> None:
    """A<k> sends one token to B.y<k,*> for all of B's j; `##` likewise to C.z."""
    a = Node(
        "A",
        layout_fields([("k", 1, 2)]),
        (Input("v", I32),),
        body=(step(0, Op.INPUT, immediate=0), step(1, Op.FIELD, immediate=0)),
        sends=(
            Send(ToNode(1, 0), value=0, index=(1, None), multiplicity=Constant(3)),
            Send(ToNode(2, 0), value=0, index=(1, None), multiplicity=Unbounded()),
        ),
    )
    fields = layout_fields([("k", 1, 2), ("j", 1, 3)])
    body = (
        step(0, Op.INPUT, immediate=0),
        step(1, Op.INPUT, immediate=1),
        step(2, Op.SUB_I32, 0, 1),
        step(3, Op.FIELD, immediate=0),
        step(4, Op.FIELD, immediate=1),
    )
    b = Node("B", fields, (Input("y", I32), Input("q", I32)), body, (Send(ToHost(0), value=2, index=(3, 4)),))
    c = Node("C", fields, (Input("z", I32), Input("q", I32)), body, (Send(ToHost(1), value=2, index=(3, 4)),))
    outputs = (HostOutput("B_out", ("k", "j"), I32), HostOutput("C_out", ("k", "j"), I32))
    image = ProgramImage("multicast", (a, b, c), outputs)
    tokens = [HostToken(n, 1, (k, j), j) for n in (1, 2) for k in (1, 2) for j in (1, 2, 3)]
    tokens += [HostToken(0, 0, (k,), 100 * k) for k in (1, 2)]
    got = {(name, *index): value for name, index, value in simulate(image, SMALL, tokens).outputs}
    assert got == {(o.name, k, j): 100 * k - j for o in outputs for k in (1, 2) for j in (1, 2, 3)}
