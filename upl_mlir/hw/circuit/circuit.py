"""A circuit: ports, head, the lanes of all processes; AXI4-Stream outside.

For a port `P`: `P_tdata` (the bits of a number: 32 of f32), `P_tvalid`, `P_tready` and `P_tlast`; `tlast` is 1 with a run's
last word (inputs may leave it at 0).  Runs follow each other without a reset; whatever waits at a port only adds clocks.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false
# Amaranth's values and components are untyped.

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import reduce
from operator import and_
from typing import Any

from amaranth.hdl import Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.circuit.fixed_units import units_of
from upl_mlir.hw.circuit.head import Head
from upl_mlir.hw.circuit.lane import Lane
from upl_mlir.hw.circuit.ram import Target
from upl_mlir.hw.circuit.streams import StreamIn, StreamOut
from upl_mlir.hw.circuit.turns import Turns, unit_name
from upl_mlir.hw.circuit.wires import Probe, Wires, wires_of
from upl_mlir.passes.circuit.channels.outputs import Output
from upl_mlir.passes.circuit.plan import Plan
from upl_mlir.passes.circuit.share import units_of as shared_units

BEHIND = 9
"""Words that may still come when the head stands still, less the lanes'."""
BACK = 3
"""Registers on the way from the outputs, which are behind the last lane, to the head, which is before the first one: it may
lead across the whole device."""


class Circuit(wiring.Component):
    """The hardware of a plan.  With `watched`, `watch_N` and `watch_N_word` show what each site of each lane reads.  `units`
    makes units; without it they are those of the plan's type."""

    def __init__(self, plan: Plan, target: Target = "generic", watched: bool = False, units: Any = None):
        self.plan, self.target, self.watched = plan, target, watched
        self.units = units or units_of(plan.numbers, plan.units, target)
        ports: dict[str, Any] = {}
        self.width = bits = plan.numbers.width
        self.names = port_names(plan)
        for i in plan.inputs:
            n = self.names[i.name]
            ports |= {f"{n}_tdata": In(bits), f"{n}_tvalid": In(1), f"{n}_tready": Out(1), f"{n}_tlast": In(1)}
        for o in plan.outputs:
            n = self.names[o.name]
            ports |= {f"{n}_tdata": Out(bits), f"{n}_tvalid": Out(1), f"{n}_tready": In(1), f"{n}_tlast": Out(1)}
        self.probes: list[Probe] = []
        self._module: Module | None = None
        if watched:
            self._module = self._made()
            for n in range(len(self.probes)):
                ports |= {f"watch_{n}": Out(1), f"watch_{n}_word": Out(bits)}
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        """Ports round the process."""
        m = self._module or self._made()
        for i, s in zip(self.plan.inputs, self._streams, strict=True):
            n = self.names[i.name]
            m.d.comb += [s.tdata.eq(getattr(self, f"{n}_tdata")), s.tvalid.eq(getattr(self, f"{n}_tvalid")),
                         s.tlast.eq(getattr(self, f"{n}_tlast")), getattr(self, f"{n}_tready").eq(s.tready)]  # fmt: skip
        for o, s in zip(self.plan.outputs, self._queues, strict=True):
            n = self.names[o.name]
            m.d.comb += [getattr(self, f"{n}_tdata").eq(s.tdata), getattr(self, f"{n}_tvalid").eq(s.tvalid),
                         getattr(self, f"{n}_tlast").eq(s.tlast), s.tready.eq(getattr(self, f"{n}_tready"))]  # fmt: skip
        for n, p in enumerate(self.probes):
            m.d.comb += [getattr(self, f"watch_{n}").eq(p.strobe), getattr(self, f"watch_{n}_word").eq(p.word)]
        return m

    def _made(self) -> Module:
        """Head, lanes and what is between them."""
        plan = self.plan
        m = Module()
        wires = wires_of(plan)
        self._streams, self._queues = [], []
        for i in plan.inputs:
            self._streams.append(StreamIn(self.width))
            m.submodules[f"in_{self.names[i.name]}"] = self._streams[-1]
        for o in plan.outputs:
            m.submodules[f"out_{self.names[o.name]}"] = self._queue(m, o, wires[o.part])
        room: Any = reduce(and_, [q.room for q in self._queues], Const(1))
        for n in range(BACK):
            register = Signal(init=1, name=f"room_{n}")
            m.d.sync += register.eq(room)
            room = register
        m.submodules.head = Head(plan, wires, self._streams, room, self.target).build()
        turns = Turns(plan, self.target, self.units)
        for k, part in enumerate(plan.parts):
            lane: Lane | None = None
            for n in range(part.nest.lanes):
                lane = Lane(plan, k, n, wires, turns, self.watched, lane)
                m.submodules[_lane_name(plan, k, n)] = lane.build()
                self.probes += lane.probes
        turns.build(m)
        return m

    def _queue(self, m: Module, o: Output, wires: Wires) -> StreamOut:
        """The queue of an output, with the mark of a run's last word."""
        reserve = self.plan.parts[o.part].nest.lanes + BEHIND + BACK
        queue = StreamOut(self.width, 1 << (reserve + 8 - 1).bit_length(), reserve, self.target)
        strobe, word = wires.sent[o][-1]
        count = Signal(range(o.words), name=f"{o.name}_count")
        last = Signal(init=o.words == 1, name=f"{o.name}_last")
        with m.If(strobe):
            m.d.sync += [count.eq(count + 1), last.eq(count == o.words - 2)]
            with m.If(last):
                m.d.sync += [count.eq(0), last.eq(o.words == 1)]
        m.d.comb += [queue.data.eq(word), queue.write.eq(strobe), queue.last.eq(last)]
        self._queues.append(queue)
        return queue


def _lane_name(plan: Plan, part: int, lane: int) -> str:
    """The name of the module of a lane of a process."""
    return f"process_{part}_lane_{lane}" if len(plan.parts) > 1 else f"lane_{lane}"


def lanes_by_module(plan: Plan) -> dict[str, int]:
    """The modules below the circuit that are of one of several lanes: of a process, and units, which are beside processes
    that share them."""
    several = {k: p.nest.lanes for k, p in enumerate(plan.parts) if p.nest.lanes > 1}
    out = {_lane_name(plan, k, n): n for k, lanes in several.items() for n in range(lanes)}
    for u in shared_units(plan.parts, plan.shared):
        lanes = max((several.get(x.part, 1) for x in u.uses), default=1)
        out |= {unit_name(u, n): n for n in range(lanes) if lanes > 1}
    return out


def port_names(plan: Plan) -> dict[str, str]:
    """The names of ports in Verilog."""
    return identifiers(port.name for port in (*plan.inputs, *plan.outputs))


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """The names of ports in other languages: those of the program, as far as they are identifiers there."""
    out: dict[str, str] = {}
    for given in names:
        name = re.sub(r"\W", "_", given)
        while name in out.values():
            name += "_"
        out[given] = name
    return out
