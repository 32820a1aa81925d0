"""Circuits on a bus: memory after a run is, bit for bit, what the interpreter gives; and nothing else of it was written."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from circuit.bus import Bus
from circuit.circuits import CASES, EXAMPLES, Case, data, wholes
from hw.verilated import lint

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.engines.circuit.engine import to_stream
from upl_mlir.hw.circuit.bus.files import header, litex_module, wishbone_files
from upl_mlir.hw.circuit.bus.layout import MOST_WORDS, host_of, memory_of, walk
from upl_mlir.hw.circuit.bus.wishbone import BASES, Wishbone
from upl_mlir.hw.sim.build import available
from upl_mlir.numbers.words import to_words
from upl_mlir.passes.circuit.choose import Wish
from upl_mlir.passes.circuit.plan import Plan
from upl_mlir.passes.lower_to_circuit import planned_circuit

compiled = pytest.mark.skipif(not available(), reason="no C++ compiler")
UNTOUCHED = 0xA5A5A5A5
MEMORIES = [(0, 0), (12, 0), (3, 150)]
"""Latency, and how often a word has to wait."""


def placed(bus: Bus, gap: int = 5) -> dict[str, int]:
    """Where arrays lie, one behind the other, and words between them that nobody may write."""
    bus.memory[:] = UNTOUCHED
    out, at = dict[str, int](), 7
    for name, a in bus.circuit.memory.arrays.items():
        out[name] = at
        at += a.words + gap
    assert at <= len(bus.memory)
    return out


def expected(bus: Bus, at: dict[str, int], made: dict[str, np.ndarray]) -> np.ndarray:
    """The memory after a run that gave these arrays."""
    out = bus.memory.copy()
    for name, array in made.items():
        words = np.ascontiguousarray(array, np.float32).view(np.uint32).ravel()
        out[at[name] : at[name] + len(words)] = words
    return out


def put(bus: Bus, at: dict[str, int], given: dict[str, np.ndarray]) -> None:
    """Arrays into memory."""
    for name, array in given.items():
        words = np.ascontiguousarray(array, np.float32).view(np.uint32).ravel()
        bus.memory[at[name] : at[name] + len(words)] = words


def small_case(name: str) -> Case:
    return next(c for c in CASES if str(c) == name)


@compiled
@pytest.mark.parametrize(
    ("name", "lanes", "burst"),
    [("matmul-5-7-3", 2, 4), ("jacobi1d-2-5", 4, 16), ("jacobi1d-6-100", 1, 8), ("conv2d-5-7", 1, 1)],
)
def test_memory_holds_what_the_interpreter_gives(name: str, lanes: int, burst: int) -> None:
    """Memories of several kinds; in each, two runs without a reset on different data."""
    case = small_case(name)
    _, plan = case.planned(lanes)
    bus = Bus(Wishbone(plan, memory_of(plan, burst)))
    interpreter = upl.compile(case.program, engine="interp", real="f32", gather="ordered")
    for latency, hold in MEMORIES:
        bus.reset(latency, hold)
        for seed in range(2):
            at = placed(bus)
            given = data(plan, seed)
            put(bus, at, given)
            wanted = expected(bus, at, dict(interpreter(**given, **case.params)))
            assert bus.runs([at]) == 1
            np.testing.assert_array_equal(bus.memory, wanted)
        every = sum(p.words for p in (*plan.inputs, *plan.outputs))
        assert bus.words == 2 * every
        assert bus.bursts == 2 * sum(
            len([*walk(plan, p, bus.circuit.memory).bursts()]) for p in (*plan.inputs, *plan.outputs)
        )


def training(lanes: int, share: bool) -> tuple[Plan, dict[str, int | list[int]]]:
    """The training step: three layers of unequal widths, each a piece of an array in memory."""
    sizes: dict[str, int | list[int]] = {"D": 2, "N": [3, 2, 2]}
    program = upl.load(EXAMPLES / "iris_batch.upl", **sizes)
    return planned_circuit(program.expanded().infer_domains().module.clone(), {}, Wish(lanes, share=share))[1], sizes


@compiled
@pytest.mark.parametrize(("lanes", "share"), [(1, False), (2, True)])
def test_a_training_step(lanes: int, share: bool) -> None:
    """Memory is what the streams of the circuit alone are, piece by piece, and near what the interpreter gives."""
    plan, sizes = training(lanes, share)
    bus = Bus(Wishbone(plan, memory_of(plan)))
    program = upl.load(EXAMPLES / "iris_batch.upl", **sizes)
    alone = upl.compile(program, engine="circuit", lanes=lanes, share=share)
    interpreter = upl.compile(program, engine="interp", real="f32", gather="ordered")
    for latency, hold in MEMORIES:
        bus.reset(latency, hold)
        at = placed(bus)
        given = wholes(plan, data(plan, 5, special=(0.0,)))
        given = {name: array / 100 for name, array in given.items()}
        put(bus, at, given)
        assert bus.runs([at]) == 1
        results = {n: bus.memory[at[n] : at[n] + a.words] for n, a in bus.circuit.memory.arrays.items() if a.output}
        for name, array in dict(alone(**given)).items():
            there = results[name] != UNTOUCHED  # the box of an array of layers has places without an element
            pieces = [o for o in plan.outputs if name == (host_of(plan, o).whole or host_of(plan, o)).name]
            assert there.sum() == sum(o.words for o in pieces)
            np.testing.assert_array_equal(results[name][there], array.astype(np.float32).view(np.uint32).ravel()[there])
            close = np.asarray(interpreter(**given)[name], np.float32).ravel()[there]
            np.testing.assert_allclose(results[name][there].view(np.float32), close, rtol=1e-4, atol=1e-6)


@compiled
def test_numbers_of_fixed_point_have_their_sign() -> None:
    case = small_case("matmul-5-7-3")
    _, plan = case.planned(1, "q4.14")
    bus = Bus(Wishbone(plan, memory_of(plan)))
    at = placed(bus)
    rng = np.random.default_rng(2)
    given = {i.name: rng.uniform(-1, 1, [d.extent for d in i.dims]) for i in plan.inputs}
    for name, array in given.items():
        whole = np.rint(array * (1 << 14)).astype(np.int32).view(np.uint32)
        bus.memory[at[name] : at[name] + array.size] = whole.ravel()
        given[name] = whole.view(np.int32) / (1 << 14)
    assert bus.runs([at]) == 1
    wanted = upl.compile(case.program, engine="interp", real="q4.14", gather="ordered")(**given, **case.params)["C"]
    found = bus.memory[at["C"] : at["C"] + wanted.size].view(np.int32)
    assert (found < 0).any()
    np.testing.assert_array_equal(found / (1 << 14), np.asarray(wanted).ravel())
    assert not np.array_equal(found.view(np.uint32), to_words(wanted, plan.numbers.kind.format).ravel())


@compiled
def test_tiles_of_larger_arrays() -> None:
    """A product of 8x6 and 6x9 by a circuit for 4x3 elements of the result, at a time."""
    case = Case("matmul", (("m", 4), ("n", 3), ("r", 6)))
    _, plan = case.planned(3)
    shapes = {"A": (8, 6), "B": (6, 9), "C": (8, 9)}
    bus = Bus(Wishbone(plan, memory_of(plan, 4, shapes)))
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=shapes[n]).astype(np.float32) for n in "AB")
    at = {"A": 3, "B": 3 + a.size + 1, "C": 3 + a.size + b.size + 2}
    bus.memory[:] = UNTOUCHED
    put(bus, at, {"A": a, "B": b})
    whole = upl.compile(case.program, engine="interp", real="f32", gather="ordered")(A=a, B=b, m=8, n=9, r=6)["C"]
    wanted = expected(bus, at, {"C": whole})
    tiles = [{"A": at["A"] + i * 6, "B": at["B"] + j, "C": at["C"] + i * 9 + j} for i in (0, 4) for j in (0, 3, 6)]
    bus.reset(5, 30)
    assert bus.runs(tiles) == len(tiles)
    np.testing.assert_array_equal(bus.memory, wanted)


@compiled
def test_errors_and_stops() -> None:
    """A run into an error of the bus, or one that is stopped at any clock, is no run; the next one is as the first."""
    case = small_case("matmul-5-7-3")
    _, plan = case.planned(2)
    bus = Bus(Wishbone(plan, memory_of(plan, 4)))
    at = placed(bus)
    given = data(plan, 1)
    put(bus, at, given)
    interpreter = upl.compile(case.program, engine="interp", real="f32", gather="ordered")
    wanted = expected(bus, at, dict(interpreter(**given, **case.params)))
    control, status, cycles, fault = range(0, 4 * BASES, 4)
    assert (bus.read(status), bus.read(control)) == (0, 0)
    assert bus.runs([at]) == 1
    took = bus.read(cycles)
    assert bus.read(status) == 2 and took > plan.slots

    for name, end in (("B", len(bus.memory) - 9), ("C", len(bus.memory) - 10)):  # the last words are not there
        before = bus.memory[:end].copy()
        assert bus.runs([at, at | {name: end}, at]) == 1
        bus.clocks(20)
        assert bus.read(status) == 4 and bus.read(fault) == 4 * len(bus.memory), name
        np.testing.assert_array_equal(bus.memory[:end], before)
        bus.memory[:] = np.where(bus.memory == wanted, bus.memory, wanted)

    for after in range(1, took, 13):
        put(bus, at, {"C": np.zeros((5, 7))})
        bus.write(control, 1)
        bus.clocks(after)
        bus.write(control, 2)
        bus.clocks(20)
        assert bus.read(status) == 0
        bus.write(control, 3)  # to stop counts more than to start
        bus.clocks(20)
        assert bus.read(status) == 0
        assert bus.runs([at]) == 1
        assert bus.read(status) == 2 and bus.read(cycles) == took
        np.testing.assert_array_equal(bus.memory, wanted)
    for n, name in enumerate(at):
        assert bus.read(4 * (BASES + n)) == 4 * at[name]
    assert bus.runs([at], limit=10) == 0  # the driver of the test gives up; the run goes on, and is not begun again
    bus.write(control, 1)
    bus.clocks(took + 50)
    assert bus.read(status) == 2 and bus.read(cycles) == took


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bursts_are_the_stream(case: Case) -> None:
    """The words of all bursts, one after the other, are those of the port, in its order."""
    for lanes in (1, 4):
        _, plan = case.planned(lanes)
        for burst in (1, 3, 16):
            for p in (*plan.inputs, *plan.outputs):
                bursts = [*walk(plan, p, memory_of(plan, burst)).bursts()]
                found = [first + n for first, length in bursts for n in range(length)]
                if p in plan.inputs:
                    numbered = np.arange(p.words, dtype=np.uint32).view(np.float32).reshape([d.extent for d in p.dims])
                    assert found == to_stream(plan, p, numbered).tolist()
                assert sorted(found) == [*range(p.words)]
                assert max(length for _, length in bursts) <= burst


def test_sizes_that_cannot_be() -> None:
    _, plan = small_case("matmul-5-7-3").planned(1)
    for what, burst, shapes in (
        ("burst=0: expected 1 to 256", 0, {}), ("burst=300", 300, {}), ("D: expected one of A, B, C", 4, {"D": (5, 7)}),
        ("A=4x9: expected at least 5x3", 4, {"A": (4, 9)}), ("A=5: expected at least 5x3", 4, {"A": (5,)}),
        (f"expected at most {MOST_WORDS}", 4, {"A": (5, 1 << 29)}),
    ):  # fmt: skip
        with pytest.raises(UplError, match=re.escape(what)) as e:
            memory_of(plan, burst, shapes)
        assert e.value.diagnostics[0].code == "UPL2004"


# ---------------------------------------------------------------------------------------------------------------- files


def test_the_lint_says_nothing(tmp_path: Path) -> None:
    _, plan = small_case("matmul-5-7-3").planned(2)
    assert lint(tmp_path, wishbone_files(plan, memory_of(plan))["upl_matmul.v"], "upl_matmul") == set()


def test_the_module_for_litex_has_the_ports_of_the_verilog() -> None:
    _, plan = small_case("jacobi1d-1-3").planned(1)
    texts = wishbone_files(plan, memory_of(plan))
    ((heads, body),) = re.findall(r"(?ms)^module upl_jacobi1d\((.*?)\);(.*?)^endmodule", texts["upl_jacobi1d.v"])
    directions = {name: kind[0] for kind, name in re.findall(r"(?m)^  (input|output) (?:\[\d+:0\] )?(\w+);", body)}
    assert {name.strip() for name in heads.split(",")} == directions.keys()
    tree = ast.parse(texts["upl_jacobi1d.py"])
    (made,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    (instance,) = [node for node in ast.walk(made) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Instance"]
    assert ast.literal_eval(instance.args[0]) == "upl_jacobi1d"
    assert {k.arg[2:]: k.arg[0] for k in instance.keywords if k.arg} == directions
    assert made.name == "UPLJacobi1d"
    plan, _ = training(1, False)
    assert "class UPLIrisBatch(LiteXModule):" in litex_module(plan, memory_of(plan))


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_header_is_plain_c(tmp_path: Path) -> None:
    plan, _ = training(1, False)
    (tmp_path / "upl_iris_batch.h").write_text(header(plan, memory_of(plan)))
    (tmp_path / "a.c").write_text('#include "upl_iris_batch.h"\nint main(void) { struct upl_iris_batch_arrays at = {0};\n'
                                  "return upl_iris_batch_runs(0, &at, 0) == UPL_IRIS_BATCH_WORDS_W; }\n")  # fmt: skip
    options = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    done = subprocess.run(["cc", *options, "a.c"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
