"""A machine behind AXI-stream ports: a program is loaded, run twice, and fails, by beats alone; the Verilog of it all."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false
# Amaranth's components are untyped.

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from upl_mlir.hw.core.code.encode import encode
from upl_mlir.hw.core.layouts import Dimensions, Failure, token_layout
from upl_mlir.hw.execute import to_bits
from upl_mlir.hw.image import HostOutput, Input, Node, ProgramImage, layout_fields, pack, unpack
from upl_mlir.hw.machine import Machine, Matching, Organisation, Topology
from upl_mlir.hw.microcode import Instruction, Op, Send, ToHost, ToNode, ValueType
from upl_mlir.hw.system.board import Answer, Board, Command, failed_layout, finished_layout, stream_bits, write_layout
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.system.placement import placement_writes
from upl_mlir.hw.verilog import machine_verilog

sys.path.insert(0, str(Path(__file__).resolve().parent))
from verilated import lint

I32 = ValueType.I32
SMALL = Dimensions(
    tag_bits=8, node_bits=2, sets=4, ways=2, spill_words=15, queue_words=16, contexts=4, code_words=64, send_words=16,
    table_words=16, network=True,
)  # fmt: skip


def program() -> ProgramImage:
    """Y<i> = a<i> + 2 * b<i>: one node doubles, the other one adds."""
    step = Instruction
    double = Node("B", layout_fields([("i", 0, 15)]), (Input("b", I32),),
                  (step(0, Op.INPUT, (), 0), step(1, Op.FIELD, (), 0), step(2, Op.ADD_I32, (0, 0))),
                  (Send(ToNode(1, 1), 2, (1,)),))  # fmt: skip
    both = Node("A", layout_fields([("i", 0, 15)]), (Input("a", I32), Input("b", I32)),
                (step(0, Op.INPUT, (), 0), step(1, Op.INPUT, (), 1), step(2, Op.FIELD, (), 0), step(3, Op.ADD_I32, (0, 1))),
                (Send(ToHost(0), 3, (2,)),))  # fmt: skip
    return ProgramImage("board", (double, both), (HostOutput("Y", ("i",), I32),))


class Driver:
    """The other end of both streams: sends beats and keeps what comes, with gaps on either side."""

    def __init__(self, board: Board, seed: int):
        self.board = board
        self.r = random.Random(seed)
        self.beats: list[tuple[int, bool]] = []

    async def send(self, context: Any, beats: Iterator[int] | list[int], until_last: bool) -> None:
        """Give all beats; then go on until a beat with TLAST has come, if it is asked for."""
        board = self.board
        left = list(reversed(list(beats)))
        offered = False
        seen = len(self.beats)
        for _ in range(5000):
            # What was offered stays offered until it is taken: the rule of the protocol.
            offered = bool(left) and (offered or self.r.random() < 0.8)
            context.set(board.s_axis_tvalid, offered)
            if offered:
                context.set(board.s_axis_tdata, left[-1])
            ready = self.r.random() < 0.7
            context.set(board.m_axis_tready, ready)
            await context.delay(1e-8)
            if offered and context.get(board.s_axis_tready):
                left.pop()
                offered = False
            if ready and context.get(board.m_axis_tvalid):
                self.beats.append((context.get(board.m_axis_tdata), bool(context.get(board.m_axis_tlast))))
            await context.tick()
            if not left and (not until_last or any(last for _, last in self.beats[seen:])):
                context.set(board.s_axis_tvalid, 0)
                return
        raise AssertionError("the board does not answer")


def tokens(s: System, image: ProgramImage, values: list[tuple[int, int, int, int]]) -> list[int]:
    """Beats for tokens (node, input, index, value)."""
    out: list[int] = []
    for node, number, index, value in values:
        tag, _ = pack(image.nodes[node].fields, (index,), "")
        parts = {"kind": 0, "node": node, "input": number, "tag": tag, "multiplicity": 1, "value": to_bits(value, I32)}
        out.append(Command.TOKEN | token_layout(s.core).const(parts).as_bits() << 8)
    return out


def test_a_program_is_loaded_and_run_twice_by_beats() -> None:
    """Load; run; run again with other values without loading; then a token that breaks a rule."""
    s = System(SMALL, 2, Topology.CROSSBAR)
    image, machine = program(), Machine(cores=2)
    board = Board(s)
    driver = Driver(board, 1)
    words = encode(image, SMALL, [(0, 0, (0,), 1), (1, 0, (0,), 1)])
    writes = [*words.writes, *placement_writes(image, machine, SMALL, words)]
    load = [
        Command.WRITE | write_layout().const({"select": w.select, "address": w.address, "data": w.data}).as_bits() << 8
        for w in writes
    ]
    first = [(n, 0, i, 10 * i + n) for i in range(16) for n in (0, 1)]
    second = [(n, 0, i, i - 5) for i in range(15, -1, -1) for n in (1, 0)]
    stranded = [(1, 0, 3, 1)]
    twice = [(1, 0, 3, 2)]

    async def bench(context: Any) -> None:
        await driver.send(context, load, until_last=False)
        for run in (first, second, stranded):
            await driver.send(context, [Command.NOTHING, *tokens(s, image, run), Command.END], until_last=True)
        await driver.send(context, [*tokens(s, image, twice)], until_last=True)

    simulator = Simulator(board)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    runs = split(driver.beats)
    assert [r[-1] & 0xFF for r in runs] == [Answer.FINISHED, Answer.FINISHED, Answer.FINISHED, Answer.FAILED]
    for run, wanted in ((runs[0], {i: 30 * i + 1 for i in range(16)}), (runs[1], {i: 3 * (i - 5) for i in range(16)})):
        assert results(s, words, run) == wanted
        over: Any = finished_layout().from_bits(run[-1] >> 8 & (1 << 80) - 1)
        assert over.left == 0
        assert len(run) < over.cycles < 500
    over = finished_layout().from_bits(runs[2][-1] >> 8 & (1 << 80) - 1)
    assert (len(runs[2]), over.left) == (1, 1)
    why: Any = failed_layout(s).from_bits(runs[3][0] >> 8 & (1 << failed_layout(s).size) - 1)
    assert (why.failure, why.node, why.input, why.tag) == (Failure.DUPLICATE, 1, 0, 3)


def split(beats: list[tuple[int, bool]]) -> list[list[int]]:
    """Beats of each run: up to one with TLAST."""
    runs: list[list[int]] = [[]]
    for beat, last in beats:
        runs[-1].append(beat)
        if last:
            runs.append([])
    return runs[:-1]


def results(s: System, words: Any, run: list[int]) -> dict[int | None, int]:
    out: dict[int | None, int] = {}
    for beat in run[:-1]:
        assert beat & 0xFF == Answer.RESULT
        token: Any = token_layout(s.core).from_bits(beat >> 8 & (1 << token_layout(s.core).size) - 1)
        (index,) = unpack(words.outputs[token.node], token.tag)
        out[index] = int(np.int32(np.uint32(token.value)))
    return out


def test_the_verilog_has_no_warnings(tmp_path: Path) -> None:
    """All of Verilator's: none beyond those that the file waives at its top, with reasons; and each of these is needed."""
    text = machine_verilog(System(SMALL, 3, Topology.RING))
    assert lint(tmp_path, text) == set()
    waived = {line.split()[3] for line in text.splitlines() if line.startswith("/* verilator lint_off")}
    bare = "".join(f"{line}\n" for line in text.splitlines() if not line.startswith("/* verilator lint_off"))
    assert lint(tmp_path, bare) == waived
    assert stream_bits(System(SMALL)) == 128


@pytest.mark.parametrize("capacity", [20, 150])
def test_the_verilog_with_an_associative_memory_has_no_warnings(tmp_path: Path, capacity: int) -> None:
    """In one bank, and in three of which the last one is not full."""
    machine = Machine(matching=Matching(organisation=Organisation.CAM, capacity=capacity))
    text = machine_verilog(System.of(machine))
    assert "upl_cam #(" in text
    assert lint(tmp_path, text) == set()
