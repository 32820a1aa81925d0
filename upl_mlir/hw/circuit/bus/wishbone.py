"""A circuit between two Wishbone buses: a master reads its inputs from memory and writes its outputs there, a slave has the
registers that say where they lie, and start it.

Registers, of 32 bits, by their byte address; they are written as whole words:

| address | name | meaning |
|---|---|---|
| 0x00 | control | written: bit 0 starts a run if none is under way, bit 1 stops the one that is |
| 0x04 | status | read: bit 0: a run is under way; bit 1: the last one is complete in memory; bit 2: the bus gave an error |
| 0x08 | cycles | read: clocks of the run that is under way, or of the last one |
| 0x0c | fault | read: the byte address at which the bus gave the last error |
| 0x10 + 4 n | base n | the byte address of array n, a multiple of 4; it is taken over when a run starts |
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.circuit.bus.layout import Memory, host_of, walk
from upl_mlir.hw.circuit.bus.master import ADDRESS, SELECTS, WORD, Master, master_ports
from upl_mlir.hw.circuit.bus.port import Port
from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.hw.circuit.ram import Target
from upl_mlir.passes.circuit.plan import Plan

BASES = 4
"""The register, counted in words, that has the address of the first array; those before it are the table's above."""


def slave_ports() -> dict[str, Any]:
    """The bus as the registers see it; CTI and BTE are not looked at: each word has its address."""
    return {
        "adr": In(ADDRESS), "dat_w": In(WORD), "dat_r": Out(WORD), "sel": In(SELECTS), "cyc": In(1), "stb": In(1),
        "we": In(1), "ack": Out(1),
    }  # fmt: skip


class Wishbone(wiring.Component):
    """The circuit of a plan behind registers (ports `wbs_*`) and a master (`wbm_*`); addresses on the bus count words."""

    def __init__(self, plan: Plan, memory: Memory, target: Target = "generic"):
        self.memory, self.circuit = memory, Circuit(plan, target)
        slave = {f"wbs_{n}": port for n, port in slave_ports().items()}
        super().__init__(slave | {f"wbm_{n}": port for n, port in master_ports().items()})

    def elaborate(self, platform: object) -> Module:
        """Registers, bursts and queues of all ports, the circuit.

        A run that is stopped, or that meets an error, leaves words in the circuit and the queues: these and the bursts are
        reset once the master is at rest.
        """
        m = Module()
        plan = self.circuit.plan
        self._clear = Signal(name="clear")
        m.submodules.circuit = ResetInserter(self._clear)(self.circuit)
        m.submodules.master = master = Master(len(plan.inputs), len(plan.outputs), self.memory.burst)
        for n, port in master_ports().items():
            ours, theirs = getattr(self, f"wbm_{n}"), getattr(master, n)
            m.d.comb += ours.eq(theirs) if port.flow == Out else theirs.eq(ours)
        self._start = Signal(name="start")
        bases = {name: Signal(ADDRESS, name=f"base_{n}") for n, name in enumerate(self.memory.arrays)}
        left = self._ports(m, master, bases)
        self._run(m, master, left, bases)
        return m

    def _ports(self, m: Module, master: Master, bases: Mapping[str, Signal]) -> Any:
        """What is between master and circuit; whether there are bursts left is the result."""
        plan, bits = self.circuit.plan, self.circuit.width
        left: list[Any] = []
        for n, p in enumerate((*plan.inputs, *plan.outputs)):
            name, h, output = self.circuit.names[p.name], host_of(plan, p), n >= len(plan.inputs)
            port = Port(walk(plan, p, self.memory), output, bits, self.memory.burst, plan.numbers.fixed is not None)
            m.submodules[f"port_{name}"] = ResetInserter(self._clear)(port)
            data, valid, ready = (getattr(self.circuit, f"{name}_t{end}") for end in ("data", "valid", "ready"))
            if output:
                m.d.comb += [port.data.eq(data), port.valid.eq(valid), ready.eq(port.ready)]
                m.d.comb += getattr(master, f"word_{n}").eq(port.word)
            else:
                m.d.comb += [data.eq(port.data), valid.eq(port.valid), port.ready.eq(ready), port.word.eq(master.dat_r)]
            m.d.comb += [
                port.start.eq(self._start), port.base.eq(bases[(h.whole or h).name]),
                getattr(master, f"request_{n}").eq(port.request), getattr(master, f"address_{n}").eq(port.address),
                getattr(master, f"length_{n}").eq(port.length), port.begin.eq(getattr(master, f"begin_{n}")),
                port.passes.eq(getattr(master, f"pass_{n}")),
            ]  # fmt: skip
            left.append(port.left)
        return reduce(or_, left)

    def _run(self, m: Module, master: Master, left: Any, bases: Mapping[str, Signal]) -> None:
        """The registers, and from the start of a run to its end."""
        busy, done, failed, stopping = Signal(), Signal(), Signal(), Signal()
        cycles, fault = Signal(WORD), Signal(ADDRESS)
        asked = self.wbs_cyc & self.wbs_stb & ~self.wbs_ack
        written = Signal()
        shown = [Const(0, WORD), Cat(busy, done, failed), cycles, Cat(Const(0, 2), fault)]
        shown += [Cat(Const(0, 2), base) for base in bases.values()]
        at = self.wbs_adr[: (len(shown) - 1).bit_length()]
        m.d.comb += written.eq(asked & self.wbs_we & self.wbs_sel.all())
        m.d.sync += [self.wbs_ack.eq(asked), self.wbs_dat_r.eq(Array(shown)[at])]
        for n, base in enumerate(bases.values()):
            with m.If(written & (at == BASES + n)):
                m.d.sync += base.eq(self.wbs_dat_w[2:])
        control = Signal(2)
        m.d.comb += [
            control.eq(self.wbs_dat_w[:2] & (written & (at == 0)).replicate(2)),
            self._start.eq(control[0] & ~control[1] & ~busy & ~stopping),
            self._clear.eq(stopping & ~master.busy), master.hold.eq(stopping),
        ]  # fmt: skip
        with m.If(busy):
            m.d.sync += cycles.eq(cycles + 1)
            with m.If(~left & ~master.busy):
                m.d.sync += [busy.eq(0), done.eq(~stopping)]
        with m.If(self._clear):
            m.d.sync += [busy.eq(0), stopping.eq(0)]
        with m.If(self._start):
            m.d.sync += [busy.eq(1), done.eq(0), failed.eq(0), cycles.eq(0)]
        with m.If(control[1]):
            m.d.sync += [stopping.eq(1), done.eq(0)]
        with m.If(master.failed):
            m.d.sync += [stopping.eq(1), failed.eq(1), fault.eq(master.adr)]
