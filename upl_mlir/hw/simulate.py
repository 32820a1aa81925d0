"""Runs a program image on the RTL, in Amaranth's simulator.

The matching unit is RTL.  Round it, the bench plays the execution unit (`execute.py`), the adder and the host; it
connects them by queues only: every token between nodes goes through the unit's ports, and the unit's memory is the
only place where a token waits for its partner.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportArgumentType=false
# Amaranth's simulator is untyped.

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from amaranth.hdl import Cat
from amaranth.sim import Simulator

from upl_mlir.diagnostics import UplError, error
from upl_mlir.hw.execute import Sent, from_bits, is_value, run_activation, to_bits
from upl_mlir.hw.image import Node, ProgramImage, input_mode, pack, unpack
from upl_mlir.hw.machine import Machine, Organisation, require_built
from upl_mlir.hw.matching_unit.interface import (
    Dimensions,
    Fault,
    MatchingError,
    activation_layout,
    addition_layout,
    config_layout,
    dump_layout,
    sum_layout,
    token_layout,
)
from upl_mlir.hw.matching_unit.unit import MatchingUnit
from upl_mlir.hw.microcode import ToHost, ToNode, ValueType
from upl_mlir.hw.results import HostToken, Occupancy, OutputElement, SimulationResult, Stats
from upl_mlir.hw.run import run_machine
from upl_mlir.hw.stranded import Leftover, place, stranded_error
from upl_mlir.hw.watch import Recorded

_PROGRESS_CYCLES = 1000
"""Cycles between two calls of `progress`."""


def simulate(
    image: ProgramImage,
    machine: Machine,
    host_tokens: Iterable[HostToken],
    *,
    add_latency_cycles: int | None = None,
    execute_latency_cycles: int = 8,
    fault: Fault | None = None,
    progress: Callable[[int, int], None] | None = None,
    max_cycles: int = 10_000_000,
    patience_cycles: int = 20_000,
    vcd: str | Path | None = None,
    watch: Callable[[Recorded], None] | None = None,
) -> SimulationResult:
    """Run a program to its end.

    `host_tokens` are sent one a cycle, in their order, whenever no token of the program itself waits; all of them are
    drawn when the simulation begins.  `add_latency_cycles` (default: the machine's) is the time of an addition,
    `execute_latency_cycles` the time from an activation to its first token.  `progress(cycles, firings)` is called now
    and then.  `fault` builds a defect in.  A machine whose store is `hashed` is RTL as a whole: there the latencies, `fault`
    and `progress` of the bench do not apply; `watch` is given what the cores did there, and nothing here.  `vcd` is a file
    for the waveforms of all signals of the matching unit.

    Raises `UplError`: UPL1701 tokens are stranded; UPL1702 the matching store is full; UPL1703 a fault of the machine
    (`patience_cycles` without progress); UPL1704 an activation whose index is open; UPL1705 summands that disagree on
    their number, or too many of them; UPL1706 arithmetic (see `run_activation`); UPL1707 an output element came twice;
    UPL1708 not finished after `max_cycles`; UPL1710 to UPL1712 the program or a token does not fit the machine;
    UPL1723 the machine is not built yet.
    """
    require_built(machine)
    image.validate(machine)
    if machine.matching.organisation is not Organisation.CAM:
        if fault is not None:
            raise ValueError("faults are built into the matching unit of organisation `cam` only")
        tokens = host_tokens if isinstance(host_tokens, tuple) else tuple(map(HostToken._make, host_tokens))
        return run_machine(image, machine, tokens, max_cycles=max_cycles, vcd=vcd, watch=watch)
    latency = machine.execution.add_cycles if add_latency_cycles is None else add_latency_cycles
    bench = _Bench(image, Dimensions.of(machine), latency, execute_latency_cycles, fault)
    bench.progress, bench.max_cycles, bench.patience_cycles = progress, max_cycles, patience_cycles
    for token in image.boot:
        raw = bench.encode(ToNode(token.node, token.input), token.index, token.value, 1, complete=1)
        bench.host.append(_Queued(None, raw))
    for token in map(HostToken._make, host_tokens):
        target = ToNode(token.node, token.input)
        raw = bench.encode(target, token.index, token.value, token.multiplicity)
        bench.host.append(_Queued(token.node, raw))
    started = time.perf_counter()
    bench.run(vcd)
    return SimulationResult(bench.outputs, bench.stats(time.perf_counter() - started))


class _Queued(NamedTuple):
    """A token in a queue: the number of its node (None for a boot token, which is not counted), and its bits."""

    node: int | None
    raw: int


@dataclass
class _Bench:
    """The machine round the matching unit, one step per cycle."""

    image: ProgramImage
    dim: Dimensions
    add_latency_cycles: int
    execute_latency_cycles: int
    fault: Fault | None
    progress: Callable[[int, int], None] | None = None
    max_cycles: int = 0
    patience_cycles: int = 0
    outputs: list[OutputElement] = field(default_factory=list[OutputElement])
    host: deque[_Queued] = field(default_factory=deque[_Queued])
    queue: deque[_Queued] = field(default_factory=deque[_Queued])
    executing: deque[tuple[int, deque[Sent]]] = field(default_factory=deque[tuple[int, deque[Sent]]])
    """Activations under way: the cycle in which the first token may leave, and the tokens."""
    adding: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    """Additions under way: the cycle in which the sum is there, and its bits."""
    seen: set[tuple[int, tuple[int, ...]]] = field(default_factory=set[tuple[int, tuple[int, ...]]])
    firings: Counter[str] = field(default_factory=Counter[str])
    received: Counter[str] = field(default_factory=Counter[str])
    cycles: int = 0
    occupied_sum: int = 0
    occupied_peak: int = 0
    queue_peak: int = 0
    sent_tokens: int = 0
    host_tokens: int = 0
    host_waits: int = 0
    counters: tuple[int, ...] = ()

    def encode(
        self,
        target: ToNode,
        index: tuple[int | None, ...],
        value: Any,
        multiplicity: int | None,
        complete: int = 0,
    ) -> int:
        """A token as the bits of the token port."""
        node = self.image.nodes[target.node]
        what = f"a token to {place(node, target.input, index)}"
        kind = node.inputs[target.input].type
        if not is_value(value, kind):
            raise error("UPL1712", f"{what} has the value {value}, which is no {kind.value}")
        tag, wild = pack(node.fields, index, what)
        if multiplicity is None:
            if node.inputs[target.input].gather is not None:
                message = f"{what} is one of as many summands as another input says"
                raise error("UPL1732", message, help='use [matching] organisation = "hashed"')
            multiplicity = self.dim.unbounded
        elif not 1 <= multiplicity < self.dim.unbounded:
            limit = f"1..{self.dim.unbounded - 1}"
            raise error("UPL1712", f"{what} has multiplicity {multiplicity}; the machine has {limit}")
        parts = {
            "complete": complete,
            "node": target.node,
            "input": target.input,
            "tag": tag,
            "wild": wild,
            "multiplicity": multiplicity,
            "value": to_bits(value, kind),
        }
        return token_layout(self.dim).const(parts).as_bits()

    def run(self, vcd: str | Path | None) -> None:
        """Simulate until the machine has come to rest; raises what `simulate` says."""
        unit = MatchingUnit(self.dim, self.fault)
        simulator = Simulator(unit)
        simulator.add_clock(1e-6)
        failures: list[UplError] = []

        async def bench(context: Any) -> None:
            try:
                await self._configure(context, unit)
                await self._cycles(context, unit)
                await self._inspect(context, unit)
            except UplError as failure:  # the simulator would wrap it
                failures.append(failure)

        simulator.add_testbench(bench)
        with simulator.write_vcd(str(vcd)) if vcd is not None else nullcontext():
            simulator.run()
        if failures:
            raise failures[0]

    async def _configure(self, context: Any, unit: MatchingUnit) -> None:
        """Load the node table."""
        context.set(unit.config.valid, 1)
        for number, node in enumerate(self.image.nodes):
            context.set(unit.config.payload, config_layout(self.dim).const({"node": number, "row": self._row(node)}))
            await context.tick()
        context.set(unit.config.valid, 0)

    def _row(self, node: Node) -> dict[str, Any]:
        modes = [input_mode(node, port) for port in node.inputs]
        masks = [f.mask for f in node.fields]
        return {
            "inputs": len(modes),
            "modes": [int(mode) for mode in modes] + [0] * (self.dim.max_inputs - len(modes)),
            "field_bits": masks + [0] * (self.dim.max_fields - len(masks)),
        }

    async def _cycles(self, context: Any, unit: MatchingUnit) -> None:
        """The main loop: look at the ports just before the clock edge, act just after it."""
        flags = Cat(unit.token.ready, unit.activation.valid, unit.addition.valid, unit.sum.ready, unit.idle, unit.error)
        activation, addition = unit.activation.payload.as_value(), unit.addition.payload.as_value()
        token_port, sum_port = unit.token.payload.as_value(), unit.sum.payload.as_value()
        activations, additions = activation_layout(self.dim), addition_layout(self.dim)
        context.set(unit.activation.ready, 1)
        context.set(unit.addition.ready, 1)
        offered: _Queued | None = None
        sum_offered = False
        last_progress = 0
        while True:
            if offered is None and (self.queue or self.host):
                from_host = not self.queue
                offered = (self.host if from_host else self.queue).popleft()
                self.host_tokens += from_host
                context.set(token_port, offered.raw)
                context.set(unit.token.valid, 1)
            if not sum_offered and self.adding and self.adding[0][0] <= self.cycles:
                sum_offered = self.fault is not Fault.ADDER_SILENT
                context.set(sum_port, self.adding[0][1])
                context.set(unit.sum.valid, sum_offered)
            sample = context.tick().sample(flags, activation, addition, unit.occupied)
            _, _, bits, fired, asked, occupied = await sample
            self.cycles += 1
            self.occupied_sum += occupied
            self.occupied_peak = max(self.occupied_peak, occupied)
            self.host_waits += bool(self.host)
            before = last_progress
            if bits >> 5:
                raise self._failure(MatchingError(bits >> 5), context.get(unit.failing))
            if bits & 1 and offered is not None:
                if offered.node is not None:
                    self.received[self.image.nodes[offered.node].name] += 1
                offered, last_progress = None, self.cycles
                context.set(unit.token.valid, 0)
            if bits & 2:
                last_progress = self.cycles
                self._fire(activations.from_bits(fired))
            if bits & 4:
                last_progress = self.cycles
                self._add(additions.from_bits(asked))
            if bits & 8 and sum_offered:
                self.adding.popleft()
                sum_offered, last_progress = False, self.cycles
                context.set(unit.sum.valid, 0)
            if self.executing and self.executing[0][0] <= self.cycles:
                last_progress = self.cycles
                self._send()
            busy = offered or self.queue or self.host or self.executing or self.adding
            if bits & 16 and before == last_progress and not busy:
                return
            if self.cycles - last_progress > self.patience_cycles + self.execute_latency_cycles:
                message = f"the machine is not at rest, but nothing has moved for {self.patience_cycles} cycles"
                raise error("UPL1703", message, notes=["this is a fault of the machine, not of the program"])
            if self.cycles >= self.max_cycles:
                raise error("UPL1708", f"the program has not finished after {self.cycles} cycles")
            if self.progress is not None and self.cycles % _PROGRESS_CYCLES == 0:
                self.progress(self.cycles, self.firings.total())

    def _fire(self, activation: Any) -> None:
        """The execution unit takes an activation."""
        node = self.image.nodes[activation.node]
        self.firings[node.name] += 1
        index = unpack(node.fields, activation.tag)
        values = [from_bits(activation.values[i], port.type) for i, port in enumerate(node.inputs)]
        tokens = deque(run_activation(self.image, node, [i for i in index if i is not None], values))
        if tokens:
            self.executing.append((self.cycles + self.execute_latency_cycles, tokens))

    def _send(self) -> None:
        """The oldest activation under way sends its next token."""
        tokens = self.executing[0][1]
        token = tokens.popleft()
        self.sent_tokens += 1
        if not tokens:
            self.executing.popleft()
        match token.target:
            case ToNode(node):
                raw = self.encode(token.target, token.index, token.value, token.multiplicity)
                self.queue.append(_Queued(node, raw))
                self.queue_peak = max(self.queue_peak, len(self.queue))
            case ToHost(number):
                self._output(number, token)

    def _output(self, number: int, token: Sent) -> None:
        output = self.image.outputs[number]
        index = tuple(i for i in token.index if i is not None)
        if (number, index) in self.seen:
            raise error("UPL1707", f"output {output.name}<{','.join(map(str, index))}> came twice")
        self.seen.add((number, index))
        value = from_bits(to_bits(token.value, output.type), output.type)
        self.outputs.append(OutputElement(output.name, index, value))

    def _add(self, request: Any) -> None:
        """The adder takes an addition."""
        left, right = (from_bits(bits, ValueType.F32) for bits in (request.left, request.right))
        with np.errstate(all="ignore"):
            total = to_bits(left + right, ValueType.F32)
        answer = sum_layout(self.dim).const({"entry": request.entry, "value": total}).as_bits()
        self.adding.append((self.cycles + self.add_latency_cycles, answer))

    async def _inspect(self, context: Any, unit: MatchingUnit) -> None:
        """At rest: read the counters, and what is left in the store, by the unit's dump port."""
        counters = (unit.matches, unit.stalls_activation, unit.stalls_addition, unit.stalls_credit)
        self.counters = tuple(context.get(c) for c in counters)
        if not context.get(unit.occupied):
            return
        leftovers: list[Leftover] = []
        layout = dump_layout(self.dim)
        for number in range(self.dim.capacity):
            context.set(unit.dump_entry, number)
            await context.tick()
            found: Any = layout.from_bits(context.get(unit.dump.as_value()))
            if found.occupied:
                entry, left = found.entry, found.content.left
                index = unpack(self.image.nodes[entry.node].fields, entry.tag, entry.wild)
                unbounded = not entry.gather and left == self.dim.unbounded
                count = entry.count if entry.gather else 0
                leftovers.append(Leftover(entry.node, entry.input, index, None if unbounded else left, count))
        failure = stranded_error(self.image, leftovers)
        if failure is not None:
            raise failure

    def _failure(self, why: MatchingError, failing: Any) -> UplError:
        """The error that the unit stopped with, about the token it was working on."""
        node = self.image.nodes[failing.node] if failing.node < len(self.image.nodes) else None
        if node is None:
            return error("UPL1703", f"the matching unit was given a token for node {failing.node}, which there is not")
        where = place(node, failing.input, unpack(node.fields, failing.tag, failing.wild))
        match why:
            case MatchingError.FULL:
                return error(
                    "UPL1702",
                    f"the matching store is full: all {self.dim.capacity} entries are in use when {where} arrives",
                    help="set matching.capacity higher in the machine description",
                )
            case MatchingError.UNDETERMINED:
                return error("UPL1704", f"an activation has no complete index when {where} arrives")
            case MatchingError.COUNT:
                message = f"{where}: a summand that states another number of summands than the first one, or is one"
                return error("UPL1705", f"{message} more than stated")
            case MatchingError.OVERFLOW:
                return error("UPL1706", f"{where}: the sum overflows a 32-bit integer")
            case _:
                return error("UPL1703", f"the matching unit was given a token that it cannot take: {where}")

    def stats(self, seconds: float) -> Stats:
        """The figures of the finished run."""
        cycles = max(1, self.cycles)
        matches, activation_stalls, addition_stalls, credit_stalls = self.counters
        taken = self.received.total()
        return Stats(
            cycles=self.cycles,
            matches=matches,
            firings={n.name: self.firings[n.name] for n in self.image.nodes},
            tokens={n.name: self.received[n.name] for n in self.image.nodes},
            peak_waiting=self.occupied_peak,
            occupancy=Occupancy(self.occupied_peak, self.occupied_sum / cycles),
            stalls={
                "match.activation": activation_stalls,
                "match.adder": addition_stalls,
                "match.adder_credit": credit_stalls,
                "host.wait": self.host_waits,
            },
            utilisation={
                "match_in": taken / cycles,
                "activation": matches / cycles,
                "send": self.sent_tokens / cycles,
                "host": self.host_tokens / cycles,
            },
            queue_peak=self.queue_peak,
            seconds=seconds,
        )
