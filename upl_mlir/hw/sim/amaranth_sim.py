"""A machine on Amaranth's simulator: slow, without a compiler, with waveforms."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# Amaranth's simulator is untyped.

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.hdl import Cat
from amaranth.sim import Simulator

from upl_mlir.hw.core.core import MOVES, Event, Machine
from upl_mlir.hw.core.encode import Write
from upl_mlir.hw.core.layouts import Dimensions, Failure
from upl_mlir.hw.sim.interface import PATIENCE, TOKEN, Ended, Record, Report, Tokens


class AmaranthSimulation:
    """A machine of these dimensions. `vcd`: a file for the waveforms of all signals."""

    def __init__(self, d: Dimensions, vcd: str | Path | None = None):
        self.d = d
        self.vcd = vcd
        self.writes: list[Write] = []
        self.records: dict[tuple[int, int, int], Record] = {}

    def configure(self, writes: Iterable[Write]) -> None:
        """Keep the words: the simulator runs a whole test bench at once."""
        self.writes += writes

    def look(self, set_: int, way: int, spilled: int = 0) -> Record:
        """A record as it was at the end of the run; none if the machine was empty."""
        return self.records.get((set_, way, spilled), Record(False, 0, 0, 0, 0, 0, 0))

    def run(self, tokens: Tokens, limit: int, checks: int = 0) -> Report:
        """As `Simulation` says; once."""
        machine = Machine(self.d)
        simulator = Simulator(machine)
        simulator.add_clock(1e-6)
        report = Report(0, 0, np.zeros(0, TOKEN), [0] * len(Event), [0] * (1 << self.d.node_bits),
                        [0] * (1 << self.d.node_bits), 0, 0, 0, 0, Ended.LIMIT)  # fmt: skip

        async def bench(context: Any) -> None:
            await self._load(context, machine)
            await self._run(context, machine, tokens, limit, checks, report)
            if report.ended is Ended.IDLE and context.get(machine.used):
                await self._look(context, machine)

        simulator.add_testbench(bench)
        with simulator.write_vcd(str(self.vcd)) if self.vcd is not None else nullcontext():
            simulator.run()
        return report

    async def _load(self, context: Any, machine: Machine) -> None:
        context.set(machine.config_en, 1)
        for write in self.writes:
            context.set(machine.config_select, write.select)
            context.set(machine.config_address, write.address)
            context.set(machine.config_data, write.data)
            await context.tick()
        context.set(machine.config_en, 0)

    async def _run(
        self, context: Any, machine: Machine, tokens: Tokens, limit: int, checks: int, report: Report
    ) -> None:
        rows = [tuple(int(v) for v in row) for row in tokens.tolist()]
        flags = Cat(machine.idle, machine.failure, machine.output_valid, machine.token_ready)
        out = Cat(machine.output_node, machine.output_tag, machine.output_value)
        nodes = Cat(machine.taken_node, machine.fired_node)
        node_bits, tag_bits = self.d.node_bits, self.d.tag_bits
        failure_bits = len(machine.failure)
        outputs: list[tuple[int, ...]] = []
        moved = 0
        context.set(machine.output_ready, 1)
        while report.cycles < limit:
            more = report.injected < len(rows)
            context.set(machine.token_valid, more)
            if more:
                tag, kind, node, number, multiplicity, value, _ = rows[report.injected]
                context.set(machine.token_tag, tag)
                context.set(machine.token_kind, kind)
                context.set(machine.token_node, node)
                context.set(machine.token_input, number)
                context.set(machine.token_multiplicity, multiplicity)
                context.set(machine.token_value, value)
            state = context.get(flags)
            if report.cycles < checks:
                report.checksums.append(context.get(machine.checksum))
            failure = state >> 1 & ((1 << failure_bits) - 1)
            if failure:
                report.ended, report.failure = Ended.FAILURE, Failure(failure)
                break
            if state & 1:
                report.ended = Ended.IDLE
                break
            if state >> 1 + failure_bits & 1:
                raw = context.get(out)
                node, tag = raw & ((1 << node_bits) - 1), raw >> node_bits & ((1 << tag_bits) - 1)
                outputs.append((tag, 0, node, 0, 0, raw >> (node_bits + tag_bits), 0))
            events = context.get(machine.events)
            if events & MOVES:
                moved = report.cycles
            elif report.cycles - moved > PATIENCE:
                report.ended = Ended.STUCK
                break
            raw = context.get(nodes)
            if events >> Event.TAKEN & 1:
                report.taken[raw & ((1 << node_bits) - 1)] += 1
            if events >> Event.FIRED & 1:
                report.fired[raw >> node_bits] += 1
            for event in Event:
                report.events[event] += events >> event & 1
            if more and state >> 2 + failure_bits & 1:
                report.injected += 1
                report.last_injection = report.cycles
            used = context.get(machine.used)
            report.used_sum += used
            report.used_peak = max(report.used_peak, used)
            report.queued_peak = max(report.queued_peak, context.get(machine.queued))
            await context.tick()
            report.cycles += 1
        report.spilled = context.get(machine.spilled)
        report.outputs = np.array(outputs, TOKEN)
        report.failing_node = context.get(machine.failing_node)
        report.failing_input = context.get(machine.failing_input)
        report.failing_tag = context.get(machine.failing_tag)

    async def _look(self, context: Any, machine: Machine) -> None:
        context.set(machine.token_valid, 0)
        places = [(s, w, 0) for s in range(self.d.sets) for w in range(self.d.ways)]
        if context.get(machine.spilled):
            places += [(0, 0, n) for n in range(1, self.d.spill_words + 1)]
        for set_, way, spilled in places:
            context.set(machine.look_set, set_)
            context.set(machine.look_way, way)
            context.set(machine.look_spilled, spilled)
            await context.tick()
            await context.tick()
            self.records[set_, way, spilled] = Record(
                bool(context.get(machine.look_valid)), context.get(machine.look_class), context.get(machine.look_node),
                context.get(machine.look_tag), context.get(machine.look_left), context.get(machine.look_present),
                context.get(machine.look_total),
            )  # fmt: skip
