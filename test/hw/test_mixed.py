"""A direct store with a hashed one beside it: programs with nodes that have no places of their own, leftovers and failures
of either store, turns of firings, and what happens if tokens go to the wrong one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator
from msgspec.structs import replace as changed

import upl_mlir as upl
from upl_mlir.diagnostics import UplError
from upl_mlir.dialects.upl import Gather
from upl_mlir.engines.rtl.engine import RtlEngine
from upl_mlir.engines.rtl.run import run_machine
from upl_mlir.hw.core.code import encode as encoding
from upl_mlir.hw.core.code.encode import encode
from upl_mlir.hw.core.layouts import Dimensions, Failure
from upl_mlir.hw.core.place import home_of
from upl_mlir.hw.direct.encode import mixed_row
from upl_mlir.hw.direct.lanes import aligned
from upl_mlir.hw.direct.mixed import MixedMatching, mixed_node_layout
from upl_mlir.hw.image import HostOutput, IndexField, Input, Node, ProgramImage, layout_fields, pack
from upl_mlir.hw.machine import Machine, Matching, Network, Organisation, Token, Topology, parse_machine
from upl_mlir.hw.microcode import Constant, Instruction, Op, Send, ToHost, ValueType
from upl_mlir.hw.results import HostToken, SimulationResult
from upl_mlir.hw.sim.amaranth_sim import AmaranthSimulation
from upl_mlir.hw.sim.compiled import available
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.system.placement import placement_rows

F32 = ValueType.F32
MATCHING = Matching(
    organisation=Organisation.DIRECT, capacity=21, ways=2, beside=2, spill_capacity=6, queue_capacity=16,
    backing_latency_cycles=2,
)  # fmt: skip
MACHINE = Machine(token=Token(tag_bits=16, node_bits=2, multiplicity_bits=5, max_inputs=3), matching=MATCHING)
"""Two lanes: a field of 9 bits and one of another size do not fit. Records beside: two, so that others are spilled."""

PROGRAM = """\
program wide
param n >= 1
input X<i>   in 0<=i<n         { -> Wide.x<i,300*i>; -> Row.x<i> }
input Y<i,j> in 0<=i<n, 0<=j<3 { #3 -> Wide.y<i,300*i>; #3 -> Row.y<i> }
output R<i>
node Wide<i,p> { in x, @(+) y[3]; x*y -> Row.z<i> }
node Row<i>    { in x, @(+) y[3], z; x*y+z -> R<i> }
"""


@pytest.fixture(scope="module")
def simulation() -> AmaranthSimulation:
    return AmaranthSimulation(System.of(MACHINE))


def run(simulation: AmaranthSimulation, image: ProgramImage, tokens: Sequence[HostToken]) -> SimulationResult:
    simulation.writes.clear()
    return run_machine(image, MACHINE, tokens, simulation=simulation)


def wide(n: int, machine: Machine) -> tuple[RtlEngine, dict[str, np.ndarray], np.ndarray]:
    """The program, inputs that are exact in binary32, and what the interpreter makes of them."""
    program = upl.load(PROGRAM, n=n).infer_domains()
    arrays = {
        name: np.random.default_rng(k).integers(-8, 8, v.shape()).astype(np.float32) / 4
        for k, (name, v) in enumerate(program.inputs.items())
    }
    wanted: np.ndarray = upl.compile(program, real="f32")(**arrays)["R"]
    return RtlEngine(program.module, {}, machine=machine), arrays, wanted


def test_a_program_uses_both_stores(simulation: AmaranthSimulation) -> None:
    """Joins, gathers and records that are spilled, in both; the run is audited (conftest.py)."""
    engine, arrays, wanted = wide(4, MACHINE)
    result = run(simulation, engine.image, engine.inject(arrays))
    assert engine.collect(result.outputs)["R"].tobytes() == wanted.tobytes()
    assert np.abs(wanted).max() > 0
    nodes = result.stats.store["nodes"]
    assert nodes["Wide"] == {"store": "hashed", "because": "its 2 index fields do not fit in the 2 lanes of the tag"}
    assert nodes["Row"] == {"rows": 1, "by": None}
    assert result.stats.spills > 0


def test_tokens_in_the_wrong_store_are_not_silent(
    simulation: AmaranthSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bit of each node inverted."""

    def inverted(d: Dimensions, direct: int, hashed: int | None) -> int:
        return mixed_row(d, direct, hashed) ^ 1 << mixed_node_layout(d)["beside"].offset  # pyright: ignore[reportUnknownVariableType]

    monkeypatch.setattr(encoding, "mixed_row", inverted)
    engine, arrays, _ = wide(4, MACHINE)
    with pytest.raises(UplError) as caught:
        run(simulation, engine.image, engine.inject(arrays))
    assert caught.value.diagnostics[0].code in ("UPL1703", "UPL1709", "UPL1712")


def two_nodes() -> ProgramImage:
    """`Near` with places, `Far` without: each of inputs a, b and a sum s."""
    inputs = (Input("a", F32), Input("b", F32), Input("s", F32, Gather.SUM))

    def node(name: str, fields: tuple[IndexField, ...], output: int) -> Node:
        body = tuple(Instruction(n, Op.FIELD, immediate=n) for n in range(2))
        send = Send(ToHost(output), 2, (0, 1), Constant(1))
        return Node(name, fields, inputs, (*body, Instruction(2, Op.INPUT, immediate=0)), (send,))

    near = node("Near", layout_fields([("i", 1, 2), ("j", 3, 5)]), 0)
    far = node("Far", layout_fields([("i", 1, 2), ("j", 0, 300)]), 1)
    outputs = tuple(HostOutput(name, ("i", "j"), F32) for name in ("P", "Q"))
    return ProgramImage("two", (near, far), outputs)


def test_leftovers_of_either_store_are_named(simulation: AmaranthSimulation) -> None:
    """Tokens, sums, tokens with `*`, and records in backing memory (beside, two are not)."""
    far = [HostToken(1, 0, (1, j), 1.0) for j in (0, 7, 100, 299)]
    tokens = [
        HostToken(0, 0, (1, 4), 1.0), HostToken(0, 1, (2, None), 1.0, 3), HostToken(0, 2, (2, 5), 1.0, 4),
        *far, HostToken(1, 1, (None, 55), 1.0, 2), HostToken(1, 2, (2, 200), 1.0, 3),
    ]  # fmt: skip
    with pytest.raises(UplError) as caught:
        run(simulation, two_nodes(), tokens)
    text = str(caught.value)
    assert "UPL1701" in text
    assert "9 tokens are stranded" in text
    for left in (
        "Near.a<1,4> waits for input `b` and input `s`", "Near.b<2,*> waits (for 3 activations) for input `a`",
        "Near.s<2,5> has 1 of 4 summands", "Far.a<1,0> waits", "Far.a<1,7> waits", "Far.a<1,100> waits",
        "Far.a<1,299> waits", "Far.b<*,55> waits (for 2 activations)", "Far.s<2,200> has 1 of 3 summands",
    ):  # fmt: skip
        assert left in text


@pytest.mark.parametrize(
    ("tokens", "code", "message"),
    [
        ([(0, 1, 4)] * 2, "UPL1714", "two tokens wait at Near.a<1,4>"),
        ([(1, 1, 299)] * 2, "UPL1714", "two tokens wait at Far.a<1,299>"),
        ([(1, 1, j) for j in range(20)], "UPL1702", r"store beside .* full when Far.a<1,\d+> .*: 2 records and 6 of "),
    ],
)
def test_failures_of_either_store_are_reported(
    simulation: AmaranthSimulation, tokens: list[tuple[int, int, int]], code: str, message: str
) -> None:
    given = [HostToken(node, 0, (i, j), 1.0) for node, i, j in tokens]
    others = [HostToken(1 - tokens[0][0], 1, (2, 5), 1.0)]  # the other store is in use
    with pytest.raises(UplError, match=message) as caught:
        run(simulation, two_nodes(), [*others, *given])
    assert caught.value.diagnostics[0].code == code


def patterns(tokens: Sequence[HostToken]) -> list[tuple[int, int, tuple[int | None, ...], int | None]]:
    return [(t.node, t.input, t.index, t.multiplicity) for t in tokens]


def test_each_node_is_packed_as_its_store_wants_it() -> None:
    image = two_nodes()
    program = encode(aligned(image, 16), Dimensions.of(MACHINE), [])
    near, far = (tuple((f.offset, f.bits) for f in node.fields) for node in program.image.nodes)
    assert near == ((0, 1), (8, 2))
    assert far == ((0, 1), (1, 9))
    with pytest.raises(UplError, match=r"UPL1715.*node `Far`(.|\n)*matching\.beside"):
        encode(aligned(image, 16), Dimensions.of(changed(MACHINE, matching=changed(MATCHING, beside=0))), [])


@pytest.mark.parametrize(
    ("wild", "why"),
    [
        ((0,), "fields that share a lane are `*` in some of its tokens only"),
        ((0, 2, 4), "some have 3 `*` fields, and the direct store counts through 2"),
    ],
)
def test_patterns_of_open_fields_that_have_no_places(wild: tuple[int, ...], why: str) -> None:
    """Six fields in five lanes: the first two share one, which only one of them may leave open beside."""
    sizes = [3, 3] + [7] * 4 if len(wild) == 1 else [7] * 5
    fields = layout_fields([(name, 0, last) for name, last in zip("ijklmn", sizes, strict=False)])
    inputs = (Input("a", F32), Input("b", F32))
    image = ProgramImage("open", (Node("N", fields, inputs, (), ()),), ())
    index = tuple(None if n in wild else 1 for n in range(len(sizes)))
    host = patterns([HostToken(0, 0, index, 1.0, 4), HostToken(0, 1, (1,) * len(sizes), 1.0)])
    machine = Machine(matching=changed(MATCHING, ways=4, beside=64))
    d = Dimensions.of(machine)
    if len(wild) == 1:
        program = encode(aligned(image, 40), d, host)
        assert program.ranks is not None
        assert program.ranks.reasons == {"N": why}
        assert program.image.nodes[0].fields == fields
    else:  # too many for the hashed store, too, where they do not lie side by side
        with pytest.raises(UplError, match=r"UPL1710.*3 groups of `\*` fields"):
            encode(aligned(image, 40), d, host)
        with pytest.raises(UplError, match=r"UPL1715.*some have 3 `\*` fields"):
            encode(aligned(image, 40), replace(d, beside_sets=0), host)


def test_nodes_without_places_are_spread_over_the_cores() -> None:
    """By a hash of what all inputs have, so that tokens of an instance meet."""
    image = two_nodes()
    machine = changed(MACHINE, cores=4)
    d = Dimensions.of(machine)
    program = encode(aligned(image, 16), d, patterns([HostToken(1, 0, (None, 0), 1.0, 2)]))
    row = placement_rows(program.image, machine, d, program)[1]
    fields = program.image.nodes[1].fields
    homes = {j: {home_of(row, pack(fields, (i, j), "")[0], 16, lanes=True) for i in (1, 2)} for j in range(301)}
    assert all(len(found) == 1 for found in homes.values())
    shares = np.bincount([core for found in homes.values() for core in found], minlength=4)
    assert shares.min() > 60


def test_sizes_of_the_store_beside() -> None:
    text = '[matching]\norganisation = "direct"\nbeside = {}\n'
    assert Dimensions.of(parse_machine(text.format(0))).beside is None
    inner = Dimensions.of(parse_machine(text.format(64))).beside
    assert inner is not None
    assert (inner.organisation, inner.sets, inner.ways, inner.spill_words) == (Organisation.HASHED, 16, 4, 4096)
    with pytest.raises(UplError, match=r"(?s)UPL1722.*beside = 12 is not a power of two of sets of 4 ways.*for instance 8"):
        parse_machine(text.format(12))
    with pytest.raises(UplError, match=r"UPL1722.*beside = -1 is not in 0\.\."):
        parse_machine(text.format(-1))


def alone(tokens: Sequence[Mapping[str, int]], watch: Callable[[Any, Any], None]) -> None:
    """The unit alone is given tokens, and no firing is taken before all are there; `watch` sees every cycle after that.
    Node 0 has places, node 1 has none; both have one plain input."""
    unit: Any = MixedMatching(replace(Dimensions.of(MACHINE), joining=4, walkers=4))

    async def drive(context: Any) -> None:
        for number in range(2):
            context.set(unit.node_en, 1)
            context.set(unit.node_address, number)
            context.set(unit.node_data.beside, number)
            context.set(unit.node_data.direct.join.inputs, 1)
            context.set(unit.node_data.hashed.plain, 1)
            await context.tick()
        context.set(unit.node_en, 0)
        for token in tokens:
            context.set(unit.token.payload, {"multiplicity": 1, **token})
            context.set(unit.token.valid, 1)
            await context.tick().until(unit.token.ready)
        context.set(unit.token.valid, 0)
        context.set(unit.activation.ready, 1)
        for _ in range(2 * len(tokens) + 20):
            watch(context, unit)
            await context.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()


def test_firings_of_both_stores_take_turns() -> None:
    order: list[int] = []

    def watch(context: Any, unit: Any) -> None:
        if context.get(unit.activation.valid):
            order.append(context.get(unit.activation.payload.node))

    alone([{"node": 0}] * 6 + [{"node": 1}] * 5, watch)
    assert order == [0, 1] * 5 + [0]


def test_the_failure_that_came_first_is_reported() -> None:
    """Tokens that neither unit can take, the second one on its way when the first one has failed; nothing fires any more."""
    seen: list[tuple[int, int, int]] = []

    def watch(context: Any, unit: Any) -> None:
        failed = context.get(unit.failure) != Failure.NONE
        seen.append((failed, failed and context.get(unit.failing.node), context.get(unit.activation.valid)))

    bad = [{"node": node, "input": 1, "multiplicity": 0} for node in (1, 0)]
    alone(bad, watch)
    assert seen[-1] == (1, 1, 0)
    assert {node for failed, node, _ in seen if failed} == {1}
    seen.clear()
    alone([*bad[1:], {"node": 1}, {"node": 1}, bad[0]], watch)
    assert {node for failed, node, _ in seen if failed} == {0}
    assert not any(failed and fires for failed, _, fires in seen)


SIX = """\
program six
param n >= 1
input A<i,j>   in 0<=i<n, 0<=j<n           { #n -> Six.a<i,*,j,7*i,8*i+j,9*j> }
input B<i,k,j> in 0<=i<n, 0<=k<n, 0<=j<n   { -> Six.b<i,k,j,7*i,8*i+j,9*j> }
output C<i,k>
node Six<i,k,j,p,q,r> { in a, b; a*b #n -> Sum.s<i,k> }
node Sum<i,k> { in @(+) s[n]; -> C }
"""
"""Sums of products whose node has six fields, of 3 and of 6 bits."""


@pytest.mark.parametrize("cores", [1, 2])
def test_programs_on_the_whole_machine(cores: int) -> None:
    """Of default widths, compiled: the interpreter's result, bit for bit, on each number of cores."""
    if not available():
        pytest.skip("no C++ compiler")
    matching = Matching(organisation=Organisation.DIRECT, beside=64)
    machine = Machine(cores=cores, matching=matching, network=Network(topology=Topology.CROSSBAR))
    program = upl.load(SIX, n=7).infer_domains()
    arrays = {
        name: np.random.default_rng(k).integers(-4, 5, v.shape()).astype(np.float32) / 2
        for k, (name, v) in enumerate(program.inputs.items())
    }
    wanted = upl.compile(program, real="f32")(**arrays)
    engine = RtlEngine(program.module, {}, machine=machine)
    result = run_machine(engine.image, machine, engine.inject(arrays), simulator="compiled")
    for name, values in engine.collect(result.outputs).items():
        assert values.tobytes() == wanted[name].tobytes()
    assert {name: node.get("store") for name, node in result.stats.store["nodes"].items()} == {"Six": "hashed", "Sum": None}
    assert all(core["firings"]["Six"] > 100 for core in result.stats.cores)
