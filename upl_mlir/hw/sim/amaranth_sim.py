"""A machine on Amaranth's simulator: slow, without a compiler, with waveforms."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# Amaranth's simulator is untyped.

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.hdl import Cat, Fragment
from amaranth.sim import Simulator

from upl_mlir.hw.core.code.encode import Write
from upl_mlir.hw.core.core import CHECKSUM_BITS, MOVES, Event
from upl_mlir.hw.core.layouts import Failure, token_layout, watch_layout
from upl_mlir.hw.sim.interface import PATIENCE, TOKEN, CoreReport, Ended, Record, Report, Tokens, seen_dtype
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.system.machine import Machine

_STATE = ("idle", "failure", "events", "taken_node", "fired_node", "used", "queued", "checksum")
"""What is looked at in every cycle of a core."""


class AmaranthSimulation:
    """A machine with these parameters. `vcd`: a file for the waveforms of all signals."""

    def __init__(self, s: System, vcd: str | Path | None = None):
        self.s = s
        self.vcd = vcd
        self.writes: list[Write] = []
        self.records: dict[tuple[int, int, int, int], Record] = {}
        self.design: Fragment | None = None
        self._machine = Machine(s)
        self._simulator: Simulator | None = None
        self._job: tuple[Tokens, int, int, bool, Report] | None = None
        self.disturb: Callable[[Any, Fragment], Coroutine[Any, Any, None]] | None = None
        """Who else acts while the machine runs: fault injection, which changes what memories hold."""

    def configure(self, writes: Iterable[Write]) -> None:
        """Keep the words: the simulator runs a whole test bench at once."""
        self.writes += writes

    def look(self, core: int, set_: int, way: int, spilled: int = 0) -> Record:
        """A record as it was at the end of the run; none if the machine was empty."""
        return self.records.get((core, set_, way, spilled), Record(False, 0, 0, 0, 0, 0, 0))

    def run(self, tokens: Tokens, limit: int, checks: int = 0, watch: bool = False) -> Report:
        """As `Simulation` says; each time from reset."""
        self.records.clear()
        nodes = 1 << self.s.core.node_bits
        cores = [CoreReport(fired=[0] * nodes, taken=[0] * nodes) for _ in range(self.s.cores)]
        links = [0] * self.s.links
        report = Report(0, 0, np.zeros(0, TOKEN), 0, Ended.LIMIT, cores, [0] * self.s.ports, 0, links, list(links))

        self._job = (tokens, limit, checks, watch, report)
        if self._simulator is None:
            self.design = Fragment.get(self._machine, None)
            self._simulator = Simulator(self.design)
            self._simulator.add_clock(1e-6)
            self._simulator.add_testbench(self._bench)
            if self.disturb is not None:
                self._simulator.add_testbench(self._disturbance, background=True)
        else:
            self._simulator.reset()
        with self._simulator.write_vcd(str(self.vcd)) if self.vcd is not None else nullcontext():
            self._simulator.run()
        return report

    async def _bench(self, context: Any) -> None:
        assert self._job is not None
        machine = self._machine
        tokens, limit, checks, watch, report = self._job
        await self._load(context, machine)
        await _Run(self.s, context, machine, tokens, report, watch).run(limit, checks)
        if report.ended is Ended.IDLE and any(
            context.get(getattr(machine, f"used_{n}")) for n in range(self.s.cores)
        ):
            await self._look(context, machine)

    async def _disturbance(self, context: Any) -> None:
        assert self.disturb is not None
        assert self.design is not None
        await self.disturb(context, self.design)

    async def _load(self, context: Any, machine: Machine) -> None:
        context.set(machine.config_en, 1)
        for write in self.writes:
            context.set(machine.config_select, write.select)
            context.set(machine.config_address, write.address)
            context.set(machine.config_data, write.data)
            await context.tick()
        context.set(machine.config_en, 0)

    async def _look(self, context: Any, machine: Machine) -> None:
        d = self.s.core
        for n in range(self.s.cores):
            places = [(set_, way, 0) for set_ in range(d.look_sets) for way in range(d.ways)]
            if context.get(getattr(machine, f"spilled_{n}")):
                places += [(0, 0, place) for place in range(1, d.look_spilled + 1)]
            for set_, way, spilled in places:
                context.set(machine.look_set, set_)
                context.set(machine.look_way, way)
                context.set(machine.look_spilled, spilled)
                await context.tick().repeat(3)
                parts = ("valid", "class", "node", "tag", "left", "present", "total")
                valid, *rest = (context.get(getattr(machine, f"look_{part}_{n}")) for part in parts)
                self.records[n, set_, way, spilled] = Record(bool(valid), *rest)


class _Run:
    """One run: what the harness of the compiled simulator does."""

    def __init__(self, s: System, context: Any, machine: Machine, tokens: Tokens, report: Report, watch: bool):
        self.s, self.context, self.machine, self.report, self.watch = s, context, machine, report, watch
        self.rows = [tuple(int(v) for v in row) for row in tokens.tolist()]
        self.offered = [False] * s.ports
        self.outputs: list[tuple[int, ...]] = []
        self.seen: list[tuple[int, int, int, list[int]]] = []
        self.shown = [0] * s.cores  # records in each core's store, as `seen` has them last
        self.patterns: list[Counter[int]] = [Counter() for _ in report.cores]
        self.states = [Cat(*(getattr(machine, f"{name}_{n}") for name in _STATE)) for n in range(s.cores)]
        self.widths = [len(getattr(machine, f"{name}_0")) for name in _STATE]
        self.moved = 0

    def state(self, core: int) -> dict[str, int]:
        """What `_STATE` names."""
        raw = self.context.get(self.states[core])
        out: dict[str, int] = {}
        for name, width in zip(_STATE, self.widths, strict=True):
            out[name] = raw & ((1 << width) - 1)
            raw >>= width
        return out

    async def run(self, limit: int, checks: int) -> None:
        """Until it ends; see `harness.cpp`, whose order this is."""
        context, machine, report = self.context, self.machine, self.report
        for p in range(self.s.ports):
            context.set(getattr(machine, f"result_ready_{p}"), 1)
        while report.cycles < limit:
            self._offer()
            states = [self.state(n) for n in range(self.s.cores)]
            if report.cycles < checks:
                total = 0
                for state in states:
                    total = (total << 1 & (1 << CHECKSUM_BITS) - 1 | total >> CHECKSUM_BITS - 1) ^ state["checksum"]
                report.checksums.append(total)
            if any(state["failure"] for state in states):
                report.ended = Ended.FAILURE
                break
            if context.get(machine.idle):
                report.ended = Ended.IDLE
                break
            moves = any(state["events"] & MOVES for state in states)
            for n, state in enumerate(states):
                self._count(n, state)
            moves |= self._links()
            if self._ports() or moves:
                self.moved = report.cycles
            if report.cycles - self.moved > PATIENCE:
                report.ended = Ended.STUCK
                break
            await context.tick()
            report.cycles += 1
        self._finish()

    def _offer(self) -> None:
        token = token_layout(self.s.core)
        for p in range(self.s.ports):
            if not self.offered[p] and self.report.injected < len(self.rows):
                row = self.rows[self.report.injected]
                self.report.injected += 1
                names = ("tag", "kind", "node", "input", "multiplicity", "value")
                raw = token.const(dict(zip(names, row, strict=False))).as_bits()
                self.context.set(getattr(self.machine, f"port_data_{p}"), raw)
                self.offered[p] = True
            self.context.set(getattr(self.machine, f"port_valid_{p}"), self.offered[p])
        if self.s.core.closes:
            over = self.report.injected >= len(self.rows) and not any(self.offered)
            self.context.set(self.machine.host_over, over)

    def _count(self, n: int, state: dict[str, int]) -> None:
        core = self.report.cores[n]
        self.patterns[n][state["events"]] += 1
        if state["events"] >> Event.TAKEN & 1:
            core.taken[state["taken_node"]] += 1
        if state["events"] >> Event.FIRED & 1:
            core.fired[state["fired_node"]] += 1
        core.used_sum += state["used"]
        core.used_peak = max(core.used_peak, state["used"])
        core.queued_peak = max(core.queued_peak, state["queued"])
        if self.watch:
            layout = watch_layout(self.s.core)
            raw = self.context.get(getattr(self.machine, f"watch_{n}"))
            changed = state["used"] != self.shown[n]
            if changed or any(raw >> field.offset + field.shape["valid"].offset & 1 for _, field in layout):
                words = [raw >> bit & 0xFFFFFFFF for bit in range(0, layout.size, 32)]
                self.seen.append((self.report.cycles, n, state["used"], words))
                self.shown[n] = state["used"]

    def _links(self) -> bool:
        if self.s.cores == 1:
            return False
        report, get = self.report, self.context.get
        under_way, moved, waits = get(self.machine.under_way), get(self.machine.moved), get(self.machine.waits)
        report.under_way_sum += under_way
        report.under_way_peak = max(report.under_way_peak, under_way)
        for n in range(self.s.links):
            report.moved[n] += moved >> n & 1
            report.waits[n] += waits >> n & 1
        return moved != 0

    def _ports(self) -> bool:
        """The host's side; whether a token went through."""
        get, report, token = self.context.get, self.report, token_layout(self.s.core)
        used, came = 0, False
        for p in range(self.s.ports):
            if self.offered[p] and get(getattr(self.machine, f"port_ready_{p}")):
                self.offered[p] = False
                report.ports[p] += 1
                report.last_injection = report.cycles
                used += 1
            if get(getattr(self.machine, f"result_valid_{p}")):
                got: Any = token.from_bits(get(getattr(self.machine, f"result_data_{p}")))
                self.outputs.append((got.tag, 0, got.node, 0, 0, got.value, 0))
                came = True
        report.injection_bound += used == self.s.ports
        return came or used > 0

    def _finish(self) -> None:
        report, get = self.report, self.context.get
        report.outputs = np.array(self.outputs, TOKEN)
        if self.watch:
            words = -(-watch_layout(self.s.core).size // 32)
            report.seen = np.array(self.seen, seen_dtype(words))
        for n, core in enumerate(report.cores):
            core.patterns = dict(self.patterns[n])
            core.failure = Failure(get(getattr(self.machine, f"failure_{n}")))
            for name in ("spilled", "failing_node", "failing_input", "failing_tag"):
                setattr(core, name, get(getattr(self.machine, f"{name}_{n}")))
            core.left = get(getattr(self.machine, f"used_{n}"))
