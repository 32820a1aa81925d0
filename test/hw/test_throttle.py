"""The throttle of the host: results stay the same, fewer records wait, nothing is lost, nothing is held for ever."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false
# Amaranth's components are untyped.

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from amaranth.sim import Simulator

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.engines.rtl.engine import RtlEngine, RtlResult
from upl_mlir.engines.rtl.run import run_machine
from upl_mlir.hw.core.code.encode import encode
from upl_mlir.hw.core.layouts import Dimensions, token_layout
from upl_mlir.hw.core.stages import Stages, stage_layout
from upl_mlir.hw.machine import Host, Machine, Matching, Organisation, parse_machine, require_built
from upl_mlir.hw.stages import by_stage, name_of, stage_rows, throttled_stream
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.system.throttle import QUIET, Throttle

SMALL = Dimensions(
    tag_bits=12, max_fields=3, max_inputs=2, node_bits=2, multiplicity_bits=4, sets=4, ways=2, spill_words=8, stages=4
)
ROWS = [
    {"has": 0b111, "shift": 2, "mask": 0b111, "constant": 0, "window": 2},
    {"has": 0b101, "shift": 0, "mask": 0b1111, "constant": 1, "window": 2},  # input 1 has `*` there
    {"has": 0, "shift": 0, "mask": 0, "constant": 0, "window": 0},
]


def stage(node: int, kind: int, tag: int) -> int | None:
    """What the hardware computes, computed in another way."""
    row = ROWS[node]
    return (tag // 2 ** row["shift"]) % (row["mask"] + 1) + row["constant"] if row["has"] >> kind & 1 else None


async def load(context: Any, unit: Stages | Throttle) -> None:
    """Write the table."""
    context.set(unit.row_en, 1)
    for node, row in enumerate(ROWS):
        context.set(unit.row_address, node)
        context.set(unit.row_data, stage_layout(SMALL).const(row))
        await context.tick()
    context.set(unit.row_en, 0)


@pytest.mark.parametrize("seed", range(2))
def test_live_stages_are_those_of_records(seed: int) -> None:
    unit, r = Stages(SMALL), random.Random(seed)
    present: list[tuple[int, int, int]] = []
    wanted: list[set[int]] = [set()]

    def modulo() -> set[int]:
        return {s % SMALL.stages for s in (stage(*record) for record in present) if s is not None}

    async def bench(context: Any) -> None:
        await load(context, unit)
        for cycle in range(400):
            for change in unit.changes:
                comes = r.random() < (0.6 if cycle < 200 else 0.3)
                happens = r.random() < 0.7 and (comes or bool(present))
                record = (r.randrange(3), r.randrange(3), r.randrange(1 << 12)) if comes else (0, 0, 0)
                if happens and comes:
                    present.append(record)
                elif happens:
                    record = present.pop(r.randrange(len(present)))
                node, kind, tag = record
                context.set(change, {"any": happens, "comes": comes, "key": {"node": node, "class": kind, "tag": tag}})
            wanted.append(modulo())
            await context.tick()
            live = context.get(unit.live)
            if cycle >= 3:
                assert {n for n in range(SMALL.stages) if live >> n & 1} == wanted[-3], cycle
        assert any(not w for w in wanted[-50:]) or len(present) > 0

    simulate(unit, bench)


def simulate(unit: Any, bench: Any) -> None:
    """Run a test bench to its end."""
    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


class Outside:
    """What surrounds a throttle: host ports that offer numbered tokens in the order of their stages, and a program that
    works on a token for some time, in which its stage is live."""

    def __init__(self, seed: int, ports: int):
        self.r = random.Random(seed)
        self.unit = Throttle(System(SMALL, cores=1, ports=ports))
        self.ports = ports
        tokens: list[tuple[int, int, int]] = []
        for _ in range(120):
            node = self.r.randrange(3)
            tokens.append((node, self.r.randrange(2), self.r.randrange(1 << (5 if node == 0 else 3))))
        self.tokens = sorted(tokens, key=lambda t: -1 if (at := stage(*t)) is None else at)
        self.taken: list[list[int]] = [[] for _ in range(ports)]
        self.gone: list[list[int]] = [[] for _ in range(ports)]
        self.cycles = 0
        self.early = 0
        """Tokens that went while one of a stage before their window was being worked on."""

    async def bench(self, context: Any) -> None:
        """Until all tokens have gone, for some thousand cycles at most."""
        unit, r = self.unit, self.r
        width = token_layout(SMALL)
        await load(context, unit)
        given = 0
        offered: list[int | None] = [None] * self.ports
        working: list[tuple[int, int]] = []  # stage, and the cycle of its end
        while sum(map(len, self.gone)) < len(self.tokens) and self.cycles < 20_000:
            working = [(s, end) for s, end in working if end > self.cycles]
            context.set(unit.live, sum(1 << n for n in {s % SMALL.stages for s, _ in working}))
            for p in range(self.ports):
                if offered[p] is None and given < len(self.tokens):
                    offered[p], given = given, given + 1
                context.set(getattr(unit, f"in_valid_{p}"), offered[p] is not None)
                number = offered[p]
                if number is not None:
                    node, kind, tag = self.tokens[number]
                    token = width.const({"node": node, "input": kind, "tag": tag, "value": number})
                    context.set(getattr(unit, f"in_data_{p}"), token.as_bits())
                context.set(getattr(unit, f"out_ready_{p}"), r.random() < 0.8)
            await context.delay(1e-8)
            goes = [context.get(getattr(unit, f"out_valid_{p}")) for p in range(self.ports)]
            context.set(unit.rest, not working and not any(goes))
            await context.delay(1e-8)
            for p in range(self.ports):
                if goes[p] and context.get(getattr(unit, f"out_ready_{p}")):
                    token = width.from_bits(context.get(getattr(unit, f"out_data_{p}")))
                    number = int(cast("Any", token.value))
                    self.gone[p].append(number)
                    at = stage(*self.tokens[number])
                    if at is not None:
                        self.early += any(s + 2 <= at for s, _ in working)
                        working.append((at, self.cycles + r.randrange(1, 60)))
                waiting = offered[p]
                if waiting is not None and context.get(getattr(unit, f"in_ready_{p}")):
                    self.taken[p].append(waiting)
                    offered[p] = None
            await context.tick()
            self.cycles += 1


@pytest.mark.parametrize("ports", [1, 2])
def test_every_token_goes_once_in_order_and_none_too_early(ports: int) -> None:
    for seed in range(2):
        outside = Outside(seed, ports)
        simulate(outside.unit, outside.bench)
        assert outside.gone == outside.taken
        assert sorted(n for port in outside.gone for n in port) == list(range(120))
        assert outside.early == 0
        assert outside.cycles > 200  # it did wait


def test_what_is_held_goes_when_nothing_else_does() -> None:
    """A stage whose records never go away would hold the host for ever, if rest did not end it."""
    unit = Throttle(System(SMALL))
    cycles: list[int] = []

    async def bench(context: Any) -> None:
        await load(context, unit)
        data = token_layout(SMALL).const({"node": 0, "input": 0, "tag": 7 << 2}).as_bits()
        context.set(unit.live, 1)  # stage 0
        context.set(unit.in_valid_0, 1)
        context.set(unit.in_data_0, data)
        context.set(unit.out_ready_0, 1)
        await context.tick()
        context.set(unit.in_valid_0, 0)
        for _ in range(5 * QUIET):
            assert not context.get(unit.out_valid_0)
            assert not context.get(unit.empty)
            await context.tick()
        context.set(unit.rest, 1)
        await context.tick()
        assert context.get(unit.out_valid_0)
        await context.tick()
        assert context.get(unit.empty)
        cycles.append(1)

    simulate(unit, bench)
    assert cycles


# -------------------------------------------------------------------------------------------------------- whole machines

PROGRAM = """program rows
const n = 6
const m = 3
input A<d,i> in 1<=d<=n, 1<=i<=m { #m -> Mul.a<d,i,*> }
input B<i,j> in 1<=i<=m, 1<=j<=m { #n -> Mul.b<*,i,j> }
input C<d,j> in 1<=d<=n, 1<=j<=m { -> Add.c }
output R<d,j>
node Mul<d,i,j> { in a, b; a*b #m -> Sum.s<d,j> }
node Sum<d,j> { in @(+) s[#]; s -> Add.s }
node Add<d,j> { in s, c; s + c -> R }
"""


def throttled(
    window: int, organisation: Organisation = Organisation.HASHED, capacity: int = 64, **host: Any
) -> Machine:
    """A machine with a window."""
    return Machine(matching=Matching(organisation=organisation, capacity=capacity), host=Host(window=window, **host))


@pytest.fixture(scope="module")
def rows() -> tuple[RtlEngine, tuple[Any, ...], dict[str, np.ndarray]]:
    """The program with its tokens, and its result."""
    program = upl.load(PROGRAM).infer_domains()
    r = np.random.default_rng(1)
    arrays = {name: r.integers(0, 4, v.shape()).astype(np.float32) for name, v in program.inputs.items()}
    engine = RtlEngine(program.module, {}, machine=throttled(1))
    return engine, tuple(engine.inject(arrays)), {"R": arrays["A"] @ arrays["B"] + arrays["C"]}


def run_on(engine: RtlEngine, machine: Machine, tokens: tuple[Any, ...]) -> RtlResult:
    """One run on Amaranth's simulator."""
    engine = engine.on(machine)
    result = run_machine(engine.image, machine, tokens, simulator="amaranth")
    return RtlResult(engine.collect(result.outputs), result.stats)


def test_a_machine_with_a_window_needs_fewer_records(rows: Any) -> None:
    engine, tokens, wanted = rows
    plain, narrow = (run_on(engine, throttled(w), tokens) for w in (0, 1))
    for result in (plain, narrow):
        assert np.array_equal(result.outputs["R"], wanted["R"])
    assert narrow.stats.throttle == {"along": "d", "window": 1}
    assert plain.stats.throttle == {}
    assert narrow.stats.peak_waiting < plain.stats.peak_waiting
    assert narrow.stats.firings == plain.stats.firings


def test_the_order_and_the_table(rows: Any) -> None:
    engine, tokens, _ = rows
    machine = throttled(1)
    image = engine.on(machine).image
    stream = throttled_stream(image, machine, tokens)
    assert name_of(image, stream) == "d"
    order = [tokens[n] for n in by_stage(image, stream, tokens)]
    names = [image.nodes[t.node].name for t in order]
    stages = [None if t.index[0] is None else t.index[0] for t in order]
    assert stages[:9] == [None] * 9  # B, which has no stage
    assert stages[9:] == sorted(s for s in stages if s is not None)
    assert Counter(names) == {"Mul": 18 + 9, "Add": 18}
    program = encode(image, Dimensions.of(machine), [(t.node, t.input, t.index, t.multiplicity) for t in tokens])
    table = stage_rows(image, Dimensions.of(machine), program, stream, 1)
    node = image.node("Mul")
    field = image.nodes[node].fields[0]
    assert table[node] == {"has": 0b10001, "shift": field.offset, "mask": 2**field.bits - 1, "constant": 0, "window": 1}


def test_no_window_no_hardware() -> None:
    assert Dimensions.of(Machine()).stages == 0
    assert Dimensions.of(throttled(2)).stages == 4
    assert replace(Dimensions.of(throttled(2)), stages=0) == Dimensions.of(throttled(0))
    assert System.of(throttled(1)) == System.of(throttled(4))  # one library serves all windows


@pytest.mark.parametrize(
    ("text", "code", "what"),
    [
        ("[host]\nwindow = 5\n", "UPL1722", "only 4 stages are told apart"),
        ("[host]\nwindow = 65\n", "UPL1722", "not in 0..64"),
        ("[host]\nwindow = 2.5\n", "UPL1722", "int"),
    ],
)
def test_impossible_windows(text: str, code: str, what: str) -> None:
    with pytest.raises(UplError, match=what) as caught:
        parse_machine(text)
    assert caught.value.diagnostics[0].code == code
    span = caught.value.diagnostics[0].span
    assert span is not None
    assert span.line == 2


def test_direct_has_windows_of_its_own() -> None:
    with pytest.raises(UplError, match="windows of their own"):
        require_built(throttled(2, Organisation.DIRECT))


def test_a_field_along_which_nothing_streams(rows: Any) -> None:
    engine, tokens, _ = rows
    machine = parse_machine('[host]\nwindow = 2\nalong = "k"\n')
    with pytest.raises(UplError, match="does not stream along `k`") as caught:
        run_machine(engine.on(machine).image, machine, tokens, simulator="amaranth")
    assert caught.value.diagnostics[0].code == "UPL1722"
    span = caught.value.diagnostics[0].span
    assert span is not None
    assert span.line == 3
