"""The building blocks of circuits against plain models: random data, and lanes that stand still at random."""

from __future__ import annotations

import gc
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

sys.path.insert(0, str(Path(__file__).resolve().parent / "formal"))
from prove import with_defect

from upl_mlir.hw.circuit import blocks, ram, streams
from upl_mlir.hw.circuit.blocks import BANK, Crossing, Delay, VariableDelay, Window
from upl_mlir.hw.circuit.control import Permits
from upl_mlir.hw.circuit.loops import LoopNest
from upl_mlir.hw.circuit.ram import LUT_WORDS
from upl_mlir.hw.circuit.streams import StreamIn, StreamOut
from upl_mlir.hw.synth import ecp5
from upl_mlir.passes.circuit.channels.inputs import Runs
from upl_mlir.passes.circuit.nest import Dim, Nest

WIDTH = 9
LENGTHS = [0, 1, 2, 3, 4, 5, BANK, BANK + 1, BANK + 5, LUT_WORDS, LUT_WORDS + 1, LUT_WORDS + 2, LUT_WORDS + 3, 65, 100]

Clock = dict[str, int]


@pytest.fixture(autouse=True)
def hazy(monkeypatch: pytest.MonkeyPatch) -> None:
    """From block RAM a word that is being written is read with all bits wrong: nobody may use it."""
    wrong = with_defect(
        ram, "registered(m, read.data,",
        "registered(m, read.data ^ (self.write_enable & (self.write_address == self.read_address)"
        " & (self.depth > LUT_WORDS)).replicate(self.width),",
    )  # fmt: skip
    for module in (blocks, streams):
        monkeypatch.setattr(module, "Ram", wrong.Ram)


def clocks(unit: Any, drive: Callable[[Clock], Clock], count: int, outputs: Iterable[str]) -> Iterator[Clock]:
    """Inputs and outputs clock by clock; `drive` gets the outputs as they are in a clock before its inputs are set."""
    seen: list[Clock] = []

    async def bench(ctx):  # type: ignore[no-untyped-def]
        for _ in range(count):
            given = drive({name: ctx.get(getattr(unit, name)) for name in outputs})
            for name, value in given.items():
                ctx.set(getattr(unit, name), value)
            seen.append(given | {name: ctx.get(getattr(unit, name)) for name in outputs})
            await ctx.tick()

    top = Module()
    top.submodules.unit = unit
    top.d.sync += Signal(name="clocked").eq(1)  # a wire has no clock
    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return iter(seen)


def refused(make: Callable[[], object], message: str) -> None:
    """`make` raises ValueError; Amaranth's complaint about the unit that nobody uses comes now, where it is expected."""
    with pytest.raises(ValueError, match=message):
        make()
    gc.collect()


# ---------------------------------------------------------------------------------------------------------------- delays


@pytest.mark.parametrize("length", LENGTHS)
def test_a_delay_counts_slots(length: int) -> None:
    rng = random.Random(length)
    drive = lambda _: {"data_in": rng.getrandbits(WIDTH), "enable": rng.random() < 0.7}  # noqa: E731
    sent = [0] * length
    for now in clocks(Delay(WIDTH, length), drive, 4 * length + 40, ["data_out"]):
        if now["enable"] or length:  # also while the lane stands still
            sent.append(now["data_in"])
            assert now["data_out"] == sent[len(sent) - 1 - length]
            if not now["enable"]:
                sent.pop()


@pytest.mark.parametrize(
    ("length", "lag"),
    [(3, 1), (4, 2), (9, 1), (20, 17), (25, 15), (18, 2), (33, 31), (34, 1), (35, 32), (80, 3), (90, 80)],
)
def test_a_crossing_goes_back_to_an_earlier_lane(length: int, lag: int) -> None:
    rng = random.Random(length)
    late: deque[int] = deque([0] * lag, lag)
    pace = [0.7]

    def drive(_: Clock) -> Clock:
        if rng.random() < 0.05:  # long stretches of waiting, and of none
            pace[0] = rng.choice([0.0, 0.1, 0.7, 1.0, 1.0])
        reads, writes = int(rng.random() < pace[0]), late[0]
        late.append(reads)
        return {"data_in": rng.getrandbits(WIDTH), "write_enable": writes, "read_enable": reads}

    sent: list[int] = [0] * length
    slot = 0
    for now in clocks(Crossing(WIDTH, length, lag), drive, 8 * length + 400, ["data_out"]):
        if now["read_enable"]:
            assert now["data_out"] == sent[slot]
            slot += 1
        if now["write_enable"]:
            sent.append(now["data_in"])
    assert slot > 3 * length


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_what_cannot_be_there_in_time_is_refused() -> None:
    assert [Crossing.least(lag) for lag in (1, 2, LUT_WORDS - 1, LUT_WORDS)] == [3, 4, LUT_WORDS + 1, LUT_WORDS + 3]
    for length, lag in ((2, 1), (5, 0), (LUT_WORDS + 2, LUT_WORDS)):
        refused(lambda length=length, lag=lag: Crossing(8, length, lag), f"length={length}, lag={lag}")
    refused(lambda: Delay(8, -1), "length=-1")
    refused(lambda: VariableDelay(8, 1), "longest=1")


@pytest.mark.parametrize("longest", [2, 3, 5, 17, 33, 34, 70, 130])
def test_a_delay_of_variable_length(longest: int) -> None:
    rng = random.Random(longest)
    length = [longest]

    def drive(_: Clock) -> Clock:
        if rng.random() < 0.05:
            length[0] = rng.choice([2, 3, longest, rng.randint(2, longest)]) if longest > 2 else 2
        return {"data_in": rng.getrandbits(WIDTH), "enable": rng.random() < 0.8, "length": length[0]}

    sent: list[int] = []
    lengths: list[int] = []
    for now in clocks(VariableDelay(WIDTH, longest), drive, 6 * longest + 300, ["data_out"]):
        if now["enable"]:
            sent.append(now["data_in"])
            lengths.append(now["length"])
            slot = len(sent) - 1
            if slot >= VariableDelay.AHEAD:
                at = slot - lengths[slot - VariableDelay.AHEAD]
                assert at < 0 or now["data_out"] == sent[at]


@pytest.mark.parametrize("depth", [1, 2, 4, 16, 32, 64])
def test_a_window_has_the_last_words(depth: int) -> None:
    rng = random.Random(depth)

    def drive(_: Clock) -> Clock:
        address = rng.randrange(depth)
        return {"write": rng.random() < 0.5, "data_in": rng.getrandbits(WIDTH), "read_address": address,
                "read_enable": rng.random() < 0.7}  # fmt: skip

    words, writes = [0] * depth, 0
    found: deque[int | None] = deque([None] * Window.LATENCY, Window.LATENCY)
    for now in clocks(Window(WIDTH, depth), drive, 12 * depth + 100, ["data_out"]):
        assert found[0] in (None, now["data_out"])
        if now["read_enable"]:
            written = now["write"] and now["read_address"] == writes % depth
            found.append(None if written else words[now["read_address"]])
        if now["write"]:
            words[writes % depth] = now["data_in"]
            writes += 1


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_windows_are_powers_of_two() -> None:
    for depth in (0, 3, 12):
        refused(lambda depth=depth: Window(8, depth), f"depth={depth}")
    for depth, reserve in ((12, 1), (16, 0), (16, 17)):
        refused(lambda depth=depth, reserve=reserve: StreamOut(8, depth, reserve), f"depth={depth}, reserve={reserve}")


# ----------------------------------------------------------------------------------------------------------------- loops


def iterations(extents: list[int], idle: list[int], level: int = 0) -> list[tuple[int, ...] | None]:
    """The slots of a nest: the counters of an iteration, or None for a slot that is waited."""
    if level == len(extents):
        return [()]
    inner = iterations(extents, idle, level + 1)
    run = [None if one is None else (n, *one) for n in range(extents[level]) for one in inner]
    return run + [None] * idle[level]


NESTS = [([1], [0]), ([1], [2]), ([5], [0]), ([5], [1]), ([2], [0]), ([3, 4], [0, 0]), ([3, 4], [0, 3]), ([3, 4], [2, 0]),
         ([3, 4], [1, 1]), ([1, 4, 1, 2], [0, 1, 0, 2]), ([2, 1], [0, 1]), ([2, 3, 2, 3], [0, 5, 0, 1]), ([1, 1], [0, 0]),
         ([4, 1, 3], [7, 0, 0]), ([], [])]  # fmt: skip


@pytest.mark.parametrize(("extents", "idle"), NESTS, ids=str)
def test_a_nest_goes_through_its_iterations(extents: list[int], idle: list[int]) -> None:
    rng = random.Random(str(extents))
    nest = LoopNest(extents, idle)
    names = [f"c{k}" for k in range(len(extents))]
    slots = iterations(extents, idle)
    assert nest.slots == len(slots)
    eager = [False]

    def drive(_: Clock) -> Clock:
        if rng.random() < 0.02:
            eager[0] = not eager[0]
        return {"start": eager[0] or rng.random() < 0.05, "enable": rng.random() < 0.8}

    left: deque[tuple[int, ...] | None] = deque()
    runs = followed = 0
    for now in clocks(nest, drive, 12 * len(slots) + 600, ["running", "last", *names]):
        at = tuple(now[name] for name in names)
        assert now["running"] == (bool(left) and left[0] is not None)
        assert now["last"] == (len(left) == 1)
        if left and left[0] is not None:
            assert at == left[0]
        elif not left:
            assert not any(at)
        if not now["enable"]:
            continue
        if left:
            left.popleft()
        if now["start"] and not left:
            runs += 1
            followed += now["last"]
            left.extend(slots)
    assert runs > 2 and followed


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_a_nest_needs_extents_and_waits_for_each_loop() -> None:
    for extents, idle in (([3], []), ([0], [0]), ([3], [-1])):
        refused(lambda extents=extents, idle=idle: LoopNest(extents, idle), "extents=")


# --------------------------------------------------------------------------------------------------------------- streams


GROUPS = [
    Runs(0, ((1, 5),)), Runs(1, ((1, 3), (1, 2))), Runs(2, ((1, 2), (4, 1), (1, 0))), Runs(2, ((6, 1),)),
]  # fmt: skip
"""Of loops of 2 and 3 iterations: groups that are runs, or iterations of the outer loop, or of both."""


@pytest.mark.parametrize("came", [0.4, 1])
@pytest.mark.parametrize("need", GROUPS, ids=str)
@pytest.mark.parametrize(("every", "slots"), [((3, 1), 6), ((8, 2), 19)])
def test_a_slot_is_ready_when_its_words_are_there(every: tuple[int, int], slots: int, need: Runs, came: float) -> None:
    """Three clocks after the last of them came, whatever passed before: a slot can pass in each clock."""
    rng = random.Random(f"{every} {need} {came}")
    words, runs = sum(n * w for n, w in need.runs), 4
    nest = Nest((Dim("i", 0, 2), Dim("j", 0, 3)), "j", 1, ("i", "j"), every, 0, slots)
    size = words * runs
    each = iter(w for _ in range(runs) for n, w in need.runs for _ in range(n))
    firsts = [every[0] * i + every[1] * j for i in range(2 if need.level else 1) for j in range(3 if need.level > 1 else 1)]
    wanted = [0]  # so many words by each slot, from the one before a run on
    for slot in range(slots * runs):
        wanted.append(wanted[-1] + (next(each) if slot % slots in firsts else 0))

    def drive(out: Clock) -> Clock:
        left.append(left[-1] - (goes := left[-1] > 0 and rng.random() < came))
        return {"takes": goes, "passes": out["ready"] and rng.random() < 0.8}

    left = [size]
    passed, there = 0, [-1, 0, 0]
    for c in clocks(Permits(nest, slots, need, size), drive, 40 * slots, ("ready",)):
        if passed == slots * runs:
            break
        assert c["ready"] == (there[-3] >= wanted[passed + 1]), (passed, there[-3:])
        passed += c["passes"]
        there.append(there[-1] + c["takes"])
    assert passed == slots * runs


@pytest.mark.parametrize(("gives", "takes"), [(1.0, 1.0), (0.5, 1.0), (1.0, 0.5), (0.6, 0.6), (0.1, 0.9)])
def test_a_stream_in_loses_nothing(gives: float, takes: float) -> None:
    rng = random.Random(str(gives - takes))
    unit = StreamIn(WIDTH)
    given: list[tuple[int, int]] = []
    offer: Clock = {"tvalid": 0, "tdata": 0, "tlast": 0}

    def drive(was: Clock) -> Clock:
        if not offer["tvalid"] and rng.random() < gives:
            offer.update(tvalid=1, tdata=rng.getrandbits(WIDTH), tlast=rng.getrandbits(1))
        now = {**offer, "take": int(rng.random() < takes)}
        if was["tready"] and offer["tvalid"]:
            given.append((offer["tdata"], offer["tlast"]))
            offer["tvalid"] = 0
        return now

    taken: list[tuple[int, int]] = []
    for now in clocks(unit, drive, 500, ["tready", "valid", "data", "last"]):
        if now["valid"]:
            assert (now["data"], now["last"]) == given[len(taken)]
            if now["take"]:
                taken.append((now["data"], now["last"]))
    assert len(given) - len(taken) <= 2
    assert len(taken) >= (499 if gives == takes == 1 else 30)


@pytest.mark.parametrize(("depth", "reserve"), [(2, 1), (8, 3), (16, 16), (32, 5), (64, 20)])
@pytest.mark.parametrize(("gives", "takes"), [(1.0, 1.0), (1.0, 0.4), (0.4, 1.0), (0.6, 0.6)])
def test_a_stream_out_loses_nothing(depth: int, reserve: int, gives: float, takes: float) -> None:
    """The writer notices that there is no room as late as it may."""
    rng = random.Random(f"{depth} {gives} {takes}")
    unit = StreamOut(WIDTH, depth, reserve)
    given: list[tuple[int, int]] = []
    taken: list[tuple[int, int]] = []
    credit, stalled, accepted = [0], [False], [0]
    rooms: list[tuple[int, int]] = []

    def drive(was: Clock) -> Clock:
        credit[0] = reserve if was["room"] else credit[0]
        rooms.append((was["room"], len(given) - accepted[0]))
        now = {
            "data": rng.getrandbits(WIDTH),
            "last": rng.getrandbits(1),
            "write": 0,
            "tready": int(rng.random() < takes),
        }
        if rng.random() < 0.02:
            stalled[0] = not stalled[0]
        if stalled[0]:
            now["tready"] = 0
        if credit[0] and rng.random() < gives:
            credit[0] -= 1
            now["write"] = 1
            given.append((now["data"], now["last"]))
        accepted[0] += was["tvalid"] and now["tready"]
        return now

    before: Clock | None = None
    for now in clocks(unit, drive, 800, ["tvalid", "tdata", "tlast", "room"]):
        if before is not None and before["tvalid"] and not before["tready"]:
            assert all(now[name] == before[name] for name in ("tvalid", "tdata", "tlast"))
        if now["tvalid"]:
            assert (now["tdata"], now["tlast"]) == given[len(taken)]
            if now["tready"]:
                taken.append((now["tdata"], now["tlast"]))
        before = now
    assert len(given) - len(taken) <= depth + 4
    assert all(room or waiting > depth - reserve for room, waiting in rooms)  # there is room whenever there may be


def test_a_stream_out_gives_a_word_in_each_clock() -> None:
    drive = lambda _: {"data": 1, "write": 1, "tready": 1}  # noqa: E731
    seen = [*clocks(StreamOut(WIDTH, 8, 4), drive, 60, ["tvalid", "room"])]
    assert all(now["room"] for now in seen)
    assert [now["tvalid"] for now in seen] == [0] * 4 + [1] * 56


# ---------------------------------------------------------------------------------------------------------------- memories


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_the_device_has_its_own_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    """In LUTs 16 words of 4 bits each; in block RAM nothing is left to flip-flops but the counters."""
    for module in (blocks, streams):
        monkeypatch.setattr(module, "Ram", ram.Ram)
    for unit, lut_ram, block_ram, flip_flops in (
        (Delay(8, BANK, "ecp5"), 2, 0, 8 + 5), (Window(4, 32, "ecp5"), 2, 0, 4 + 4 + 5), (Delay(18, 600, "ecp5"), 0, 1, 22),
        (Window(4, 1, "ecp5"), 0, 0, 12), (Crossing(20, 1500, 4, "ecp5"), 0, 3, 24),
        (StreamOut(17, 512, 9, "ecp5"), 0, 1, 42 + 2 * 18 + 3),
    ):  # fmt: skip
        text = rtlil.convert(unit, ports=[getattr(unit, name) for name in unit.signature.members])
        area = ecp5.area(text, "top", lambda _: None)
        assert (area.lut_ram, area.block_ram) == (lut_ram, block_ram), unit
        assert area.ff <= flip_flops, unit
    refused(lambda: ram.Ram(8, 33, 1), "block RAM has two registers")
    refused(lambda: ram.Ram(8, 16385, 2), "at most 16384 words")
