"""The matching unit's RTL against the gold model: random node tables, tokens and stalls; and its Verilog."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from upl_mlir.hw.image import IndexField, layout_fields, pack, unpack
from upl_mlir.hw.matching_unit import interface
from upl_mlir.hw.matching_unit.gold import CountError, Firing, GoldToken, GoldUnit, UndeterminedError, unify
from upl_mlir.hw.matching_unit.interface import Dimensions, Fault, InputMode, MatchingError
from upl_mlir.hw.matching_unit.unit import MatchingUnit

DIM = Dimensions(capacity=48, tag_bits=10, max_fields=4, max_inputs=4, node_bits=2, multiplicity_bits=5, adder_depth=3)
ORDINARY, F32, I32 = InputMode.ORDINARY, InputMode.GATHER_ADD_F32, InputMode.GATHER_ADD_I32


def bits_of(real: float) -> int:
    return int(np.float32(real).view(np.uint32))


def add_f32(a: int, b: int) -> int:
    return int((np.uint32(a).view(np.float32) + np.uint32(b).view(np.float32)).view(np.uint32))


def add_i32(a: int, b: int) -> int:
    return (a + b) & 0xFFFFFFFF


ADD = {F32: add_f32, I32: add_i32}


@dataclass(frozen=True)
class Shape:
    """A node of the table: its fields and its inputs' modes."""

    fields: tuple[IndexField, ...]
    modes: tuple[InputMode, ...]


@dataclass
class Log:
    """What a unit did: for each token that began to be joined, in order, the token and the firings until the next."""

    joined: list[tuple[GoldToken, list[Firing]]] = field(default_factory=list)
    occupied: int = 0
    peak: int = 0
    error: MatchingError = MatchingError.NONE
    matches: int = 0
    stalls: tuple[int, ...] = ()
    """Cycles that waited for the taker of activations, for the adder, for a sum to come back."""


def run(
    shapes: list[Shape],
    tokens: list[tuple[GoldToken, bool]],
    *,
    seed: int = 0,
    stall: float = 0.0,
    latency: int = 1,
    dim: Dimensions = DIM,
    fault: Fault | None = None,
) -> Log:
    """Send tokens (each with a flag: complete) through the RTL; each port stalls with the given probability."""
    chance = random.Random(seed)
    unit = MatchingUnit(dim, fault)
    log = Log()

    def decode(raw: Any) -> GoldToken:
        fields = shapes[raw.node].fields
        unbounded = raw.multiplicity == dim.unbounded
        return GoldToken(
            raw.node, raw.input, unpack(fields, raw.tag, raw.wild), raw.value, None if unbounded else raw.multiplicity
        )

    def encode(token: GoldToken, complete: bool) -> Any:
        fields = shapes[token.node].fields
        tag, wild = pack(fields, token.index, "a token")
        for number, place in enumerate(fields):
            if wild >> number & 1:
                tag |= chance.getrandbits(10) & place.mask  # what is under a `*` must not matter
        return interface.token_layout(dim).const(
            {
                "complete": complete,
                "node": token.node,
                "input": token.input,
                "tag": tag,
                "wild": wild,
                "multiplicity": dim.unbounded if token.multiplicity is None else token.multiplicity,
                "value": token.value,
            }
        )

    async def bench(context: Any) -> None:
        context.set(unit.config.valid, 1)
        for number, shape in enumerate(shapes):
            row = {
                "inputs": len(shape.modes),
                "modes": [int(m) for m in shape.modes] + [0] * (dim.max_inputs - len(shape.modes)),
                "field_bits": [f.mask for f in shape.fields] + [0] * (dim.max_fields - len(shape.fields)),
            }
            context.set(unit.config.payload, interface.config_layout(dim).const({"node": number, "row": row}))
            await context.tick()
        context.set(unit.config.valid, 0)
        waiting = list(reversed(tokens))
        sums: list[tuple[int, Any]] = []
        offered = answering = False
        for cycle in itertools.count():
            assert cycle < 8_000, "the unit does not come to rest"
            if waiting and not offered and chance.random() >= stall:
                context.set(unit.token.payload, encode(*waiting[-1]))
                context.set(unit.token.valid, 1)
                offered = True
            if sums and not answering and sums[0][0] <= cycle:
                context.set(unit.sum.payload, sums[0][1])
                context.set(unit.sum.valid, 1)
                answering = True
            take, add = chance.random() >= stall, chance.random() >= stall
            context.set(unit.activation.ready, take)
            context.set(unit.addition.ready, add)
            sample = context.tick().sample(
                unit.token.ready, unit.sum.ready, unit.joining, unit.failing, unit.idle, unit.error, unit.occupied
            ).sample(
                unit.activation.valid, unit.activation.payload.as_value(),
                unit.addition.valid, unit.addition.payload.as_value(),
            )  # fmt: skip
            _, _, ready, taken, joining, failing, idle, failed, occupied, fires, fired, asks, asked = await sample
            log.peak, log.occupied = max(log.peak, occupied), occupied
            if failed:
                log.error = MatchingError(failed)
                return
            if joining:
                log.joined.append((decode(failing), []))
            if fires and take:
                activation = interface.activation_layout(dim).from_bits(fired)
                shape = shapes[activation.node]
                index = tuple(i for i in unpack(shape.fields, activation.tag) if i is not None)
                values = tuple(activation.values[i] for i in range(len(shape.modes)))
                log.joined[-1][1].append(Firing(activation.node, index, values))
            if asks and add:
                request = interface.addition_layout(dim).from_bits(asked)
                total = add_f32(request.left, request.right)
                sums.append((cycle + latency, interface.sum_layout(dim).const({"entry": request.entry, "value": total})))
                assert len(sums) <= dim.adder_depth
            if answering and taken:
                sums.pop(0)
                answering = False
                context.set(unit.sum.valid, 0)
            if offered and ready:
                waiting.pop()
                offered = False
                context.set(unit.token.valid, 0)
            elif idle and not waiting and not sums and not offered:
                log.matches = context.get(unit.matches)
                stalls = (unit.stalls_activation, unit.stalls_addition, unit.stalls_credit)
                log.stalls = tuple(context.get(counter) for counter in stalls)
                return

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return log


def check_against_gold(shapes: list[Shape], tokens: list[tuple[GoldToken, bool]], log: Log) -> GoldUnit:
    """The firings are those of the rule in the order in which the unit joined; sums are those of the summands."""
    assert log.error is MatchingError.NONE
    modes = [s.modes for s in shapes]
    sums, expected = GoldUnit(modes, ADD), Counter[GoldToken]()
    for token, complete in tokens:
        if complete or modes[token.node][token.input] is ORDINARY:
            expected[token] += 1
        else:
            total = sums.gather(token)
            expected.update([] if total is None else [total])
    assert Counter(token for token, _ in log.joined) == expected
    gold = GoldUnit(modes, ADD)
    for token, firings in log.joined:
        gold.follow(token, firings)
    gold.sums = sums.sums
    assert log.occupied == len(gold.stored) + len(gold.sums)
    assert log.matches == sum(len(firings) for _, firings in log.joined)
    return gold


# ------------------------------------------------------------------------------------------------- programs at random


@st.composite
def legal_programs(draw: st.DrawFn) -> tuple[list[Shape], list[tuple[GoldToken, bool]], int]:
    """Node tables and tokens that the rule lets fire each instance once, with nothing left over; and how many fire."""
    shapes: list[Shape] = []
    tokens: list[tuple[GoldToken, bool]] = []
    fresh = itertools.count(1)
    instances_in_all = 0
    for node in range(draw(st.integers(1, 3))):
        sizes = draw(st.lists(st.integers(1, 3), max_size=3))
        low = draw(st.integers(-2, 2))
        modes = draw(st.lists(st.sampled_from([ORDINARY, ORDINARY, F32, I32]), min_size=1, max_size=4))
        fields = layout_fields([(f"f{n}", low, low + size) for n, size in enumerate(sizes)])
        shapes.append(Shape(fields, tuple(modes)))
        # Which fields are `*` on which input; never one field on all of them.
        wild = [
            {n for n in range(len(sizes)) if draw(st.booleans())} if mode is ORDINARY and len(modes) > 1 else set[int]()
            for mode in modes
        ]
        wild[0] -= set.intersection(*wild)
        box = list(itertools.product(*(range(low, low + size) for size in sizes)))
        some = not all(wild) and draw(st.booleans())
        instances = draw(st.lists(st.sampled_from(box), unique=True)) if some else box
        instances_in_all += len(instances)
        for number, mode in enumerate(modes):
            covered = Counter(
                tuple(None if n in wild[number] else i for n, i in enumerate(index)) for index in instances
            )
            for index, times in covered.items():
                if mode is ORDINARY:
                    unbounded = draw(st.integers(0, 7)) == 0 and bool(wild[number])
                    tokens.append((GoldToken(node, number, index, next(fresh), None if unbounded else times), False))
                    continue
                count = draw(st.integers(0, 4))
                for _ in range(count):
                    value = bits_of(next(fresh)) if mode is F32 else next(fresh)
                    tokens.append((GoldToken(node, number, index, value, count), False))
                if not count:
                    tokens.append((GoldToken(node, number, index, 0, 1), True))
    return shapes, draw(st.permutations(tokens)), instances_in_all


SETTINGS = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
STALLS = st.sampled_from([0.0, 0.3, 0.7])
ROOMY = replace(DIM, capacity=160)


@given(program=legal_programs(), seed=st.integers(0, 999), stall=STALLS, latency=st.integers(1, 12))
@SETTINGS
def test_legal_programs_fire_each_instance_once(program: Any, seed: int, stall: float, latency: int) -> None:
    shapes, tokens, instances = program
    log = run(shapes, tokens, seed=seed, stall=stall, latency=latency, dim=ROOMY)
    gold = check_against_gold(shapes, tokens, log)
    assert gold.leftovers() == []
    assert log.matches == instances
    # The result does not depend on the order of acceptance: the plain replay fires the same.
    plain = GoldUnit([s.modes for s in shapes], ADD)
    fired = Counter(f for t, complete in tokens for f in (plain.join(t) if complete else plain.accept(t)))
    assert fired == Counter(f for _, firings in log.joined for f in firings)


@st.composite
def any_tokens(draw: st.DrawFn) -> tuple[list[Shape], list[tuple[GoldToken, bool]]]:
    """One node and tokens with arbitrary multiplicities and open fields: who meets whom depends on the order."""
    inputs = draw(st.integers(1, 4))
    fields = layout_fields([("i", 0, 0), ("j", 0, 1)])
    tokens: list[tuple[GoldToken, bool]] = []
    for value in range(draw(st.integers(4, 12))):
        number = draw(st.integers(0, inputs - 1))
        index: list[int | None] = [0, draw(st.integers(0, 1))]
        if number:
            index = [None if draw(st.booleans()) else i for i in index]
        multiplicity = draw(st.sampled_from([1, 1, 2, 3, 30, None]))
        tokens.append((GoldToken(0, number, tuple(index), value, multiplicity), False))
    return [Shape(fields, (ORDINARY,) * inputs)], tokens


@given(program=any_tokens(), seed=st.integers(0, 999), stall=STALLS)
@SETTINGS
def test_any_tokens_fire_as_the_rule_allows(program: Any, seed: int, stall: float) -> None:
    shapes, tokens = program
    check_against_gold(shapes, tokens, run(shapes, tokens, seed=seed, stall=stall))


# ------------------------------------------------------------------------------------------------------ chosen cases

IJK = layout_fields([("i", 0, 2), ("j", 0, 3), ("k", 0, 1)])


def full_tokens(tokens: list[GoldToken]) -> list[tuple[GoldToken, bool]]:
    return [(t, False) for t in tokens]


def test_two_open_inputs_determine_the_index_together() -> None:
    shapes = [Shape(IJK, (ORDINARY, ORDINARY))]
    x = [GoldToken(0, 0, (i, None, k), 10 * i + k, 4) for i in range(3) for k in range(2)]
    w = [GoldToken(0, 1, (None, j, k), 100 * j + k, 3) for j in range(4) for k in range(2)]
    log = run(shapes, full_tokens(x + w))
    assert check_against_gold(shapes, full_tokens(x + w), log).leftovers() == []
    assert log.matches == 24
    assert log.peak == 6
    assert log.occupied == 0


def test_a_stored_pair_is_not_joined_again() -> None:
    # r and w are stored before v comes; only v's arrival joins them, and a second v is stranded.
    shapes = [Shape(IJK, (ORDINARY,) * 3)]
    r, w = GoldToken(0, 0, (1, 2, 0), 5), GoldToken(0, 1, (1, 2, 0), 6)
    v = GoldToken(0, 2, (1, None, 0), 7, 2)
    log = run(shapes, full_tokens([r, w, v]))
    assert [f for _, firings in log.joined for f in firings] == [Firing(0, (1, 2, 0), (5, 6, 7))]
    assert check_against_gold(shapes, full_tokens([r, w, v]), log).leftovers() == [v]


def test_a_used_up_partner_is_left_in_the_middle_of_a_walk() -> None:
    # v could meet r with each of the two w; r is used up by the first.
    shapes = [Shape(IJK, (ORDINARY,) * 3)]
    r, v = GoldToken(0, 0, (1, 2, 0), 5), GoldToken(0, 2, (1, 2, 0), 7, 2)
    w = [GoldToken(0, 1, (1, 2, 0), value) for value in (8, 9)]
    log = run(shapes, full_tokens([r, *w, v]))
    gold = check_against_gold(shapes, full_tokens([r, *w, v]), log)
    assert log.matches == 1
    assert len(gold.leftovers()) == 2


def test_a_slow_adder_is_never_given_more_than_it_can_hold() -> None:
    # Eight sums of two summands each; `run` checks that at most `adder_depth` additions are under way.
    shapes = [Shape(IJK[1:], (F32,))]
    tokens = full_tokens([GoldToken(0, 0, (j, k), bits_of(j + k), 2) for _ in "ab" for j in range(4) for k in range(2)])
    log = run(shapes, tokens, latency=200)
    assert check_against_gold(shapes, tokens, log).leftovers() == []
    assert log.matches == 8


SUMS = [GoldToken(0, 0, (i,), bits_of(8 * n + i), 4) for n in range(4) for i in range(8)]
SUMS_NODE = [Shape(layout_fields([("i", 0, 7)]), (F32,))]


def test_no_more_additions_are_under_way_than_the_adder_takes() -> None:
    log = run(SUMS_NODE, full_tokens(SUMS), latency=200)  # `run` checks the bound
    assert check_against_gold(SUMS_NODE, full_tokens(SUMS), log).leftovers() == []
    assert log.stalls[0] == log.stalls[1] == 0
    assert log.stalls[2] > 200


def test_stalls_are_counted() -> None:
    assert run(SUMS_NODE, full_tokens(SUMS), dim=replace(DIM, adder_depth=16)).stalls == (0, 0, 0)
    stalls = run(SUMS_NODE, full_tokens(SUMS), dim=replace(DIM, adder_depth=16), stall=0.5).stalls
    assert stalls[0] > 0
    assert stalls[1] > 0


def test_a_summand_too_many_while_the_sum_is_under_way() -> None:
    tokens = full_tokens([GoldToken(0, 0, (0,), bits_of(1), 2)] * 3)
    assert run(SUMS_NODE, tokens, latency=100).error is MatchingError.COUNT


def test_match_lines_stuck_at_0() -> None:
    shapes = [Shape(IJK, (ORDINARY, ORDINARY))]
    tokens = full_tokens([GoldToken(0, q, (0, 0, 0), q) for q in range(2)])
    assert run(shapes, tokens).matches == 1
    broken = run(shapes, tokens, fault=Fault.MATCH_STUCK_AT_0)
    assert (broken.matches, broken.occupied) == (0, 2)
    with pytest.raises(AssertionError, match="should also have fired"):
        check_against_gold(shapes, tokens, broken)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([GoldToken(0, 0, (i, 0, 0), i) for i in range(3)], MatchingError.FULL),
        ([GoldToken(0, q, (0, None, 0), q) for q in range(2)], MatchingError.UNDETERMINED),
        ([GoldToken(1, 0, (), 1, n) for n in (2, 3)], MatchingError.COUNT),
        ([GoldToken(1, 0, (), 0x7FFFFFFF, 2)] * 2, MatchingError.OVERFLOW),
        ([GoldToken(0, 2, (0, 0, 0), 1)], MatchingError.BAD_TOKEN),
        ([GoldToken(0, 0, (0, 0, 0), 1, 0)], MatchingError.BAD_TOKEN),
        ([GoldToken(1, 0, (), 1, None)], MatchingError.BAD_TOKEN),
    ],
)
def test_errors_stop_the_unit(tokens: list[GoldToken], expected: MatchingError) -> None:
    shapes = [Shape(IJK, (ORDINARY, ORDINARY)), Shape((), (I32,))]
    assert run(shapes, full_tokens(tokens), dim=replace(DIM, capacity=2)).error is expected


def test_the_gold_model_itself() -> None:
    assert unify((1, None, None), (1, 2, None)) == (1, 2, None)
    assert unify((1, 2), (1, 3)) is None
    gold = GoldUnit([(ORDINARY, ORDINARY), (I32,)], ADD)
    assert gold.accept(GoldToken(0, 0, (1, None), 5, 2)) == []
    assert gold.accept(GoldToken(0, 1, (None, 7), 6)) == [Firing(0, (1, 7), (5, 6))]
    assert gold.leftovers() == [GoldToken(0, 0, (1, None), 5, 2)]
    assert gold.accept(GoldToken(1, 0, (0, 0), 3, 2)) == []
    with pytest.raises(CountError):
        gold.accept(GoldToken(1, 0, (0, 0), 3, 3))
    assert gold.accept(GoldToken(1, 0, (0, 0), 4, 2)) == [Firing(1, (0, 0), (7,))]
    with pytest.raises(UndeterminedError):
        gold.accept(GoldToken(0, 1, (1, None), 6))
