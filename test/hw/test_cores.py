"""Machines of several cores: placement, the token queue and its backing memory, programs against the interpreter, both
simulators against each other, what stops a machine, and its description."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false
# Amaranth's components are untyped.

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl import Gather
from upl_mlir.engines.rtl.engine import RtlEngine
from upl_mlir.engines.rtl.run import run_machine
from upl_mlir.hw.core.code.encode import encode
from upl_mlir.hw.core.layouts import Dimensions, token_layout
from upl_mlir.hw.core.place import Placer, home_of
from upl_mlir.hw.core.queue import TokenQueue
from upl_mlir.hw.image import HostOutput, Input, Node, ProgramImage, layout_fields, pack
from upl_mlir.hw.machine import Machine, Matching, Organisation, load_machine, parse_machine, require_built
from upl_mlir.hw.microcode import Constant, FromRegister, Instruction, Loop, Op, Send, ToHost, ToNode, ValueType
from upl_mlir.hw.results import HostToken
from upl_mlir.hw.sim.amaranth_sim import AmaranthSimulation
from upl_mlir.hw.sim.compiled import CompiledSimulation, available
from upl_mlir.hw.sim.interface import Ended, Tokens
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.system.placement import placement_rows, placement_writes

sys.path.insert(0, str(Path(__file__).resolve().parent))
from programs_bench import rows_of, same_as_the_interpreter, small

F32 = ValueType.F32
SMALL = Machine(matching=Matching(organisation=Organisation.HASHED, capacity=64, spill_capacity=64, queue_capacity=128))
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# ------------------------------------------------------------------------------------------------------ the token queue


@settings(max_examples=15, deadline=None)
@given(
    front=st.integers(3, 8),
    words=st.integers(1, 20),
    latency=st.integers(1, 6),
    fill=st.floats(0.2, 1.0),
    drain=st.floats(0.05, 1.0),
    seed=st.integers(0, 99),
)
def test_the_token_queue_keeps_order_and_loses_nothing(
    front: int, words: int, latency: int, fill: float, drain: float, seed: int
) -> None:
    queue = TokenQueue(8, front, words, latency)
    r = random.Random(seed)
    sent, got, refused = list(range(1, 150)), [], 0

    async def bench(context: Any) -> None:
        nonlocal refused
        left = list(reversed(sent))
        for _ in range(6000):
            valid, ready = bool(left) and r.random() < fill, r.random() < drain
            context.set(queue.w_valid, valid)
            context.set(queue.r_ready, ready)
            if left:
                context.set(queue.w_data, left[-1])
            await context.delay(1e-8)
            assert context.get(queue.level) == len(sent) - len(left) - len(got)
            if ready and context.get(queue.r_valid):
                got.append(context.get(queue.r_data))
            if valid:
                assert context.get(queue.full) == (not context.get(queue.w_ready))
                refused += context.get(queue.full)
                if context.get(queue.w_ready):
                    left.pop()
                else:
                    # Refused only when the backing memory is full.
                    assert context.get(queue.level) >= words
            await context.tick()
            if len(got) == len(sent):
                return

    simulator = Simulator(queue)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert got == sent


def fan_out(count: int) -> ProgramImage:
    """One activation sends `count` summands to one gather."""
    step = Instruction
    body = (
        step(0, Op.INPUT, (), 0), step(1, Op.FIELD, (), 0), step(2, Op.CONST_I32, (), 0),
        step(3, Op.CONST_I32, (), count - 1), step(7, Op.CONST_I32, (), count),
    )  # fmt: skip
    many = Send(ToNode(1, 0), value=0, index=(1,), multiplicity=FromRegister(7), loops=(Loop(4, 2, 3),))
    first = Node("N", layout_fields([("i", 0, 7)]), (Input("a", F32),), body, (many,))
    gather = first_gather()
    return ProgramImage("fan", (first, gather), (HostOutput("Y", ("i",), F32),))


def first_gather() -> Node:
    body = (Instruction(0, Op.INPUT, (), 0), Instruction(1, Op.FIELD, (), 0))
    return Node("M", layout_fields([("i", 0, 7)]), (Input("s", F32, Gather.SUM),), body, (Send(ToHost(0), 0, (1,)),))


def test_many_tokens_at_once_go_to_one_core() -> None:
    """Many activations send at once to one core, which takes a token a cycle at most; all else waits in its queue."""
    image = fan_out(60)
    tokens = [HostToken(0, 0, (i,), 1.0) for i in range(8)]
    assert [o.value for o in run_machine(image, SMALL, tokens, simulator="amaranth").outputs] == [60.0] * 8


def test_a_full_backing_memory_of_the_queue_is_an_error_that_says_its_size() -> None:
    """A slow store: what is sent to it meanwhile waits in the unit (1024 tokens), then in the queue."""
    machine = changed(SMALL, capacity=4, spill_capacity=1023, queue_capacity=1, backing_latency_cycles=200)
    image = crowd()
    tokens = [HostToken(1, 1, (0, 0, 0), 1.0), *(HostToken(0, 0, (i,), 1.0) for i in range(32))]
    with pytest.raises(UplError) as caught:
        run_machine(image, machine, tokens, simulator="amaranth", max_cycles=30_000)
    assert "UPL1702]: the token queue is full when a token for M.x<" in str(caught.value)
    assert "64 and 1 of backing memory" in str(caught.value)
    assert "matching.queue_capacity" in str(caught.value)


def changed(machine: Machine, **changes: Any) -> Machine:
    return msgspec.structs.replace(machine, matching=msgspec.structs.replace(machine.matching, **changes))


def crowd() -> ProgramImage:
    """Activations that send 64 tokens each, which cover 4 indices and wait."""
    step = Instruction
    body = (step(0, Op.INPUT, (), 0), step(1, Op.FIELD, (), 0), step(2, Op.CONST_I32, (), 0), step(3, Op.CONST_I32, (), 63))
    wide = Send(ToNode(1, 0), value=0, index=(1, 4, None), multiplicity=Constant(4), loops=(Loop(4, 2, 3),))
    first = Node("N", layout_fields([("i", 0, 31)]), (Input("a", F32),), body, (wide,))
    second = Node("M", layout_fields([("i", 0, 31), ("j", 0, 63), ("k", 0, 3)]), (Input("x", F32), Input("y", F32)))
    return ProgramImage("crowd", (first, second))


# ----------------------------------------------------------------------------------------------------------- placement


def two_fields() -> ProgramImage:
    """A node whose inputs have <i,j> and <i,*>."""
    copies = (Send(ToNode(1, 0), 0, (1, None), Constant(8)),)
    body = (Instruction(0, Op.INPUT, (), 0), Instruction(1, Op.FIELD, (), 0))
    first = Node("A", layout_fields([("i", 1, 60)]), (Input("a", F32),), body, copies)
    second = Node("B", layout_fields([("i", 1, 60), ("j", -3, 4)]), (Input("x", F32), Input("y", F32)))
    return ProgramImage("two", (first, second))


def placed(text: str, cores: int = 4) -> tuple[ProgramImage, Machine, Dimensions]:
    machine = parse_machine(f'cores = {cores}\n[matching]\norganisation = "hashed"\n[placement]\n{text}\n', "m.toml")
    return two_fields(), machine, Dimensions.of(machine)


@pytest.mark.parametrize("cores", [2, 3, 4, 7, 16])
def test_tokens_of_one_instance_have_one_home_and_homes_are_even(cores: int) -> None:
    image, machine, d = placed("", cores)
    rows = placement_rows(image, machine, d, encode(image, d, []))
    node = image.nodes[1]
    homes: Counter[int] = Counter()
    for i in range(1, 61):
        at_open = home_of(rows[1], pack(node.fields, (i, None), "")[0], d.tag_bits)
        assert {home_of(rows[1], pack(node.fields, (i, j), "")[0], d.tag_bits) for j in range(-3, 5)} == {at_open}
        homes[at_open] += 1
    assert set(homes) <= set(range(cores))
    assert max(homes.values()) <= 60 / cores + 3


@settings(max_examples=60, deadline=None)
@given(
    bits=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    cores=st.sampled_from([2, 4, 8, 16]),
    data=st.data(),
)
def test_any_box_of_indices_spreads(bits: list[int], cores: int, data: st.DataObject) -> None:
    """Not much more than its share of a box falls to any core."""
    fields = layout_fields([(f"f{n}", 0, (1 << b) - 1) for n, b in enumerate(bits)])
    ends = [data.draw(st.integers(1, 1 << min(b, 5))) for b in bits]
    row = {"mask": (1 << 40) - 1, "hashed": 1, "shift": 0, "factor": 0, "constant": 0, "count": cores, "first": 0}
    points = [pack(fields, p, "")[0] for p in np.ndindex(*ends)]
    homes = Counter(home_of(row, tag, 40) for tag in points)
    share = len(points) / cores
    assert max(homes.values()) <= 2.0 * share + 3


EXPRESSIONS: list[tuple[str, int, Callable[[int], int]]] = [
    ("i mod 4", 4, lambda i: i % 4),
    ("i mod 3", 3, lambda i: i % 3),
    ("(i + 1) mod 2 + 1", 4, lambda i: (i + 1) % 2 + 1),
    ("i floordiv 16", 5, lambda i: i // 16),
    ("(3*i - 7) mod 5", 16, lambda i: (3 * i - 7) % 5),
    ("((i - 1) floordiv 6) mod 7", 7, lambda i: (i - 1) // 6 % 7),
    ("-i mod 4", 4, lambda i: -i % 4),
    ("2", 4, lambda _: 2),
]


@pytest.mark.parametrize(("text", "cores", "wanted"), EXPRESSIONS)
def test_expressions_of_placement(text: str, cores: int, wanted: Callable[[int], int]) -> None:
    image, machine, d = placed(f'B = "{text}"', cores)
    row = placement_rows(image, machine, d, encode(image, d, []))[1]
    for i in range(1, 61):
        assert home_of(row, pack(image.nodes[1].fields, (i, 2), "")[0], d.tag_bits) == wanted(i), i


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('C = "i"', "there is no node `C` in program `two`"),
        ('B = "i +"', "`i +`: this is no expression"),
        ('B = "j mod 4"', "some tokens of `B` have `*` in the field `j`"),
        ('B = "h mod 4"', "node `B` has no field `h`"),
        ('B = "i"', "is 4 for i = 4; there are cores 0..3"),
        ('B = "i mod 5"', "is 4 for i = 4"),
        ('B = "i * i"', "the hardware cannot do this"),
        ('B = "i mod 2 + i floordiv 40"', "the hardware cannot do this"),
    ],
)
def test_placements_that_cannot_be(text: str, message: str) -> None:
    image, machine, d = placed(text)
    with pytest.raises(UplError) as caught:
        placement_writes(image, machine, d, encode(image, d, []))
    assert message in str(caught.value)
    assert "m.toml:5" in str(caught.value)
    assert "UPL1722" in str(caught.value)


@pytest.mark.parametrize("organisation", [Organisation.HASHED, Organisation.DIRECT])
def test_the_placer_chooses_as_its_model_says(organisation: Organisation) -> None:
    """Rows of all kinds, random tags, and a taker that is not always ready."""
    d = Dimensions(tag_bits=20, node_bits=3, organisation=organisation)
    r = random.Random(1)
    rows = [
        {"mask": r.getrandbits(20), "hashed": n % 2, "shift": r.randrange(8), "factor": r.getrandbits(16),
         "constant": r.getrandbits(16), "count": r.randrange(1, 13), "first": r.randrange(4)}
        for n in range(8)
    ]  # fmt: skip
    placer = Placer(d)
    layout = token_layout(d)
    tokens = [{"node": r.randrange(8), "tag": r.getrandbits(20), "value": n} for n in range(200)]
    got: list[tuple[int, int]] = []

    async def bench(context: Any) -> None:
        context.set(placer.place_en, 1)
        for n, row in enumerate(rows):
            context.set(placer.place_address, n)
            context.set(placer.place_data, row)
            await context.tick()
        context.set(placer.place_en, 0)
        left = list(reversed(tokens))
        while len(got) < len(tokens):
            context.set(placer.token.valid, bool(left))
            if left:
                context.set(placer.token.payload, layout.const({"kind": 0, "input": 0, "multiplicity": 1, **left[-1]}))
            context.set(placer.flit.ready, r.random() < 0.7)
            await context.delay(1e-8)
            if left and context.get(placer.token.ready):
                left.pop()
            if context.get(placer.flit.valid) and context.get(placer.flit.ready):
                flit: Any = context.get(placer.flit.payload)
                got.append((flit.token.value, flit.home))
            await context.tick()

    simulator = Simulator(placer)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    lanes = organisation is Organisation.DIRECT
    wanted = [(t["value"], home_of(rows[t["node"]], t["tag"], 20, lanes=lanes) & 15) for t in tokens]
    assert got == wanted


# ------------------------------------------------------------------------------------------------ programs on two cores


def described(folder: Path, cores: int, more: str = "") -> Path:
    path = folder / "m.toml"
    path.write_text(f'cores = {cores}\n[matching]\norganisation = "hashed"\nspill_capacity = 1023\n{more}')
    return path


@pytest.mark.parametrize(
    ("name", "constants", "more"),
    [
        ("training", {"D": 2, "eta": 0.5}, '[network]\ntopology = "ring"\n'),
        ("training", {"D": 2, "eta": 0.5}, '[network]\ntopology = "crossbar"\nqueue_depth = 1\n[host]\nports = 2\n'),
        ("perceptron", {"D": 2}, '[network]\ntopology = "mesh"\nlink_cycles = 3\n[placement]\nLink = "d mod 2"\n'),
    ],
)
def test_programs_on_two_cores_give_what_the_interpreter_gives(
    tmp_path: Path, name: str, constants: dict[str, float], more: str
) -> None:
    """On data where binary32 is exact: bit for bit, with the same firings; and figures that add up."""
    if not available():
        pytest.skip("no C++ compiler")
    program = upl.load(EXAMPLES / f"{name}.upl", **constants)
    stats = same_as_the_interpreter(program, described(tmp_path, 2, more))
    cores = stats["cores"]
    assert len(cores) == 2
    for key in ("matches", "spills"):
        assert stats[key] == sum(core[key] for core in cores)
    assert all(core["matches"] > stats["matches"] / 5 for core in cores)
    for node, count in stats["firings"].items():
        assert count == sum(core["firings"][node] for core in cores)
    left = sum(round(core["utilisation"]["network_out"] * stats["cycles"]) for core in cores)
    assert left == sum(round(core["utilisation"]["network_in"] * stats["cycles"]) for core in cores) > 0
    assert left == sum(link["tokens"] for link in stats["links"])
    assert 0 < stats["injection_bound"] < stats["cycles"]


def test_both_simulators_agree_in_every_cycle_on_two_cores(tmp_path: Path) -> None:
    if not available():
        pytest.skip("no C++ compiler")
    machine = load_machine(described(tmp_path, 2, '[network]\ntopology = "ring"\n'))
    program = upl.vjp(upl.load(EXAMPLES / "perceptron.upl", D=2), of="R", wrt=["W"])
    engine = RtlEngine(program.infer_domains().module, {}, machine=machine)
    tokens = engine.inject({port: small(v.shape(), 2, 0) for port, v in program.inputs.items()})
    system = System.of(machine)
    d = system.core
    words = encode(engine.image, d, [(t.node, t.input, t.index, t.multiplicity) for t in tokens])
    writes = [*words.writes, *placement_writes(engine.image, machine, d, words)]
    rows = rows_of(engine.image, tokens)
    slow, fast = (both(simulation, writes, rows) for simulation in (AmaranthSimulation(system), CompiledSimulation(system)))
    assert slow.checksums == fast.checksums
    assert len(set(slow.checksums)) > 450
    assert replace(slow, outputs=0, seen=None) == replace(fast, outputs=0, seen=None)
    assert slow.outputs.tolist() == fast.outputs.tolist()
    assert slow.ended is Ended.LIMIT
    assert len(slow.seen) > 100
    assert slow.seen.tobytes() == fast.seen.tobytes()
    # A thread for each core changes nothing: neither one that is always waited for, nor one that may lose its turn. Nor do
    # more threads than cores, nor one for all.
    for late, threads, lanes in ((1 << 31, 2, 1), (0, 2, 1), (0, 2, None), (0, 1, None), (0, 3, 1)):
        threaded = both(CompiledSimulation(system, threads, late, lanes), writes, rows)
        assert threaded.checksums == fast.checksums
        assert replace(threaded, outputs=0, seen=None) == replace(fast, outputs=0, seen=None)
        assert threaded.seen.tobytes() == fast.seen.tobytes()


def both(simulation: Any, writes: list[Any], rows: Tokens) -> Any:
    simulation.configure(writes)
    return simulation.run(rows, 500, checks=500, watch=True)


# ------------------------------------------------------------------------------------------------------- how runs end


def two_cores(machine: Machine = SMALL, cores: int = 2) -> Machine:
    return msgspec.structs.replace(machine, cores=cores)


def test_what_is_stranded_on_any_core_is_named() -> None:
    node = Node("N", layout_fields([("i", 0, 15)]), (Input("a", F32), Input("b", F32)))
    tokens = [HostToken(0, n % 2, (n,), 1.0) for n in range(12)]
    with pytest.raises(UplError, match="12 tokens are stranded") as caught:
        run_machine(ProgramImage("left", (node,)), two_cores(), tokens, simulator="amaranth")
    assert "UPL1701" in str(caught.value)


def test_a_limit_of_cycles_ends_any_run() -> None:
    """A program that sends to itself for ever."""
    body = (Instruction(0, Op.INPUT, (), 0), Instruction(1, Op.FIELD, (), 0))
    node = Node("N", layout_fields([("i", 0, 15)]), (Input("a", F32),), body, (Send(ToNode(0, 0), 0, (1,)),))
    with pytest.raises(UplError, match=r"UPL1708.*not finished after 300 cycles"):
        run_machine(ProgramImage("ever", (node,)), two_cores(), [HostToken(0, 0, (3,), 1.0)], simulator="amaranth",
                    max_cycles=300)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('cores = 17\n[matching]\norganisation = "hashed"', "UPL1723.*cores = 17 is not built yet.*at most 16"),
        ('[token]\ntag_bits = 62\n[matching]\norganisation = "cam"', "UPL1723.*tag_bits = 62 is not built yet.*at most 58"),
    ],
)
def test_machines_that_are_not_built(text: str, message: str) -> None:
    with pytest.raises(UplError, match=f"(?s){message}"):
        require_built(parse_machine(text))


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(UplError, match=r"m.toml:3:1.*a ring needs 2"):
        parse_machine("cores = 2\n[network]\nqueue_depth = 1\n", "m.toml")
    with pytest.raises(UplError, match=r'm.toml:2:1.*placement.policy = "best" is unknown'):
        parse_machine('[placement]\npolicy = "best"\n', "m.toml")
