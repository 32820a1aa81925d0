"""What is computed from results: the front of the best points, the energy proxy, reference lines."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import pytest

from upl_mlir.explore.dependences import Dependences, Unit
from upl_mlir.explore.energy import energy, ranking_changes
from upl_mlir.explore.job import Job, bind
from upl_mlir.explore.reference import list_schedule, reference_lines
from upl_mlir.explore.table import bottleneck, pareto, printed
from upl_mlir.hw.machine import Energy, Execution


def test_the_front_is_what_nothing_beats() -> None:
    r = random.Random(0)
    for _ in range(20):
        rows: list[dict[str, Any]] = [
            {"cycles": r.randrange(9), "lut": r.randrange(9), "fmax_mhz": float(r.randrange(9))} for _ in range(40)
        ]
        rows.append({"cycles": None, "lut": 0, "fmax_mhz": 99.0})

        def beats(a: dict[str, Any], b: dict[str, Any]) -> bool:
            better = (a["cycles"] <= b["cycles"], a["lut"] <= b["lut"], a["fmax_mhz"] >= b["fmax_mhz"])
            return all(better) and a != b

        there = rows[:-1]
        wanted = {n for n, row in enumerate(there) if not any(beats(other, row) for other in there)}
        assert pareto(rows, ("cycles", "lut", "fmax_mhz")) == wanted


def test_energy_is_events_times_weights_and_leakage() -> None:
    stats = {"cycles": 1000, "activity": {"ram_bit": 10, "mul_f32": 2}}
    weights = Energy(ram_bit=100, mul_f32=1000, leakage=5)
    assert energy(stats, weights, None) == pytest.approx(3.0)
    assert energy(stats, weights, 4) == pytest.approx(3.0 + 20.0)
    assert energy({"cycles": 1000}, weights, 4) is None


def test_a_ranking_that_hangs_on_a_weight_is_told() -> None:
    def run(ram: int, mul: int) -> tuple[dict[str, Any], Energy, None]:
        return {"cycles": 1, "activity": {"ram_bit": ram, "mul_f32": mul}}, Energy(ram_bit=1, mul_f32=1), None

    assert ranking_changes([run(10, 10), run(20, 20), run(30, 30)]) == {}
    found = ranking_changes([run(10, 12), run(13, 10)])
    assert found == {"ram_bit x0.5": 1, "mul_f32 x2": 1}


LATENCY = (4, 3, 16, 16, 1)


def chain(length: int, unit: Unit) -> Dependences:
    graph = Dependences(LATENCY)
    value = (0, -1)
    for _ in range(length):
        value = graph.add(unit, value)
    return graph


def test_a_chain_takes_its_length() -> None:
    for unit in Unit:
        graph = chain(5, unit)
        assert graph.ideal == list_schedule(graph, 1) == 5 * LATENCY[unit]


@pytest.mark.parametrize(("unit", "cores", "cycles"), [
    (Unit.ADD, 1, 50 - 1 + 4), (Unit.ADD, 2, 25 - 1 + 4), (Unit.DIV, 1, 100 * 16), (Unit.DIV, 4, 25 * 16),
    (Unit.LIGHT, 1, 1),
])  # fmt: skip
def test_independent_operations_take_their_number_over_the_units(unit: Unit, cores: int, cycles: int) -> None:
    graph = Dependences(LATENCY)
    for _ in range(100):
        graph.add(unit)
    assert graph.ideal == LATENCY[unit]
    assert list_schedule(graph, cores) == cycles


def test_summands_are_joined_as_they_come() -> None:
    graph = Dependences(LATENCY)
    assert graph.combine(Unit.ADD, [(0, -1)] * 8)[0] == 3 * 4
    assert graph.combine(Unit.ADD, [(0, -1)] * 4 + [(8, -1)])[0] == 12
    assert graph.combine(Unit.ADD, [(0, -1), (0, -1), (100, -1)])[0] == 104
    assert graph.combine(Unit.ADD, []) == (0, -1)


def test_schedules_keep_to_dependences_and_units() -> None:
    """On random graphs: never shorter than either bound, never longer than both together."""
    r = random.Random(1)
    for cores in (1, 2):
        graph = Dependences(LATENCY)
        values = [(0, -1)]
        for _ in range(300):
            values.append(graph.add(r.choice(list(Unit)), *r.sample(values, min(len(values), 2))))
        busy = {u: sum(x is u for x in graph.units) * (LATENCY[u] if u in (Unit.DIV, Unit.SQRT) else 1) for u in Unit}
        work = max(busy[Unit.ADD] / 2, busy[Unit.MUL] / 2, busy[Unit.DIV], busy[Unit.SQRT]) / cores
        found = list_schedule(graph, cores)
        assert max(graph.ideal, work) <= found <= graph.ideal + sum(busy[u] for u in Unit) / cores


PRODUCT = """program product
const n = 4
input X<i> in 1<=i<=n { -> M.x }
input Y<i> in 1<=i<=n { -> M.y }
output R
node M<i> { in x, y; x*y #n -> S.s }
node S { in @(+) s[#]; -> R }
"""


def test_the_lines_of_a_scalar_product() -> None:
    from upl_mlir.explore.dependences import dependences

    program, bound, dense = bind(Job("", PRODUCT, {"X": "random", "Y": "random"}), {})
    graph = dependences(program, bound, dense, Execution(add_cycles=4, mul_cycles=3))
    lines = reference_lines(graph, 1)
    assert lines["operations"] == {"add": 3, "mul": 4, "div": 0, "sqrt": 0, "light": 0}
    assert lines["ideal"] == 3 + 2 * 4
    # Two multiplications a cycle: the second pair of products is there a cycle later.
    assert lines["scheduled"] == 3 + 1 + 2 * 4
    # 7 operations; 8 operands and 4 summands loaded; 8 inputs, 4 products and the result stored.
    assert lines["scalar"] == 7 + 12 + 13


def test_the_seed_decides_random_inputs() -> None:
    def x(seed: int) -> list[float]:
        return bind(Job("", PRODUCT, {"X": "random", "Y": "random"}, seed), {})[2]["X"].tolist()

    assert x(0) == x(0) != x(1)
    first, second = (bind(Job("", PRODUCT, {"X": "random", "Y": "random"}), {})[2][n].tolist() for n in "XY")
    assert first != second
    assert len(set(itertools.chain(first, second))) == 8


@pytest.mark.parametrize(
    ("match", "execute", "expected"),
    [
        ({"busy": 3_561, "backing": 103_122}, {"busy": 30_000, "backing": 76_683}, ("backing", 103_122 / 106_683)),
        ({"busy": 60, "probe": 40}, {"busy": 50, "match": 50}, ("match", 0.6)),
        ({"busy": 10, "activation": 90}, {"busy": 70, "latency": 30}, ("execute", 0.7)),
        ({"busy": 10, "execute": 90}, {"busy": 20, "latency": 80}, ("latency", 0.8)),
        ({"busy": 10, "outside": 90}, {"busy": 20, "outside": 80}, ("outside", 0.9)),
    ],
)
def test_the_bottleneck_is_where_the_cycles_went(
    match: dict[str, int], execute: dict[str, int], expected: tuple[str, float]
) -> None:
    assert bottleneck({"match": match, "execute": execute}) == (expected[0], pytest.approx(expected[1]))


WIDE = [
    ["", "matching.organisation", "matching.backing_latency_cycles", "execution.mul_cycles", "cycles", "peak_waiting",
     "bottleneck"],
    ["*", "hashed", "30", "4", "106683", "285", "backing 97 %"],
    ["", "direct", "12345678901234567890123456789012345678", "123456789", "106683123456789", "285", "match 40 %"],
]  # fmt: skip


@pytest.mark.parametrize("width", [None, 200, 80, 60, 45])
def test_no_figure_is_cut_however_narrow_the_terminal(width: int | None) -> None:
    """Each row's cells stand whole and in order, and no line is wider than asked for; without a width a row is a line."""
    text = printed(WIDE, width)
    assert max(map(len, text.splitlines())) <= (width or 1000)
    parts = [part.splitlines() for part in text.split("\n\n")]
    for back, row in enumerate(reversed(WIDE[1:]), 1):
        found = " ".join(cell for part in parts for cell in part[-back].split() if cell != "*")
        assert found == " ".join(cell for cell in row if cell != "*" and cell)
    names = WIDE[0][1:]
    if width is None or width == 200:
        assert len(text.splitlines()) == 3
        assert text.splitlines()[0].split() == names
    else:
        head = "".join(line for part in parts for line in part[: -len(WIDE) + 1])
        assert all(piece in head for name in names for piece in re.split(r"[._]", name))
