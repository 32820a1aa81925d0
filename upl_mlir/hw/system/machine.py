"""The whole machine: cores and what joins them."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.core import Core, configuration_ports, core_ports
from upl_mlir.hw.system.fabric import Fabric, fabric_members, fabric_ports, host_ports, watch_ports
from upl_mlir.hw.system.layouts import System

SHARED = ("config_en", "config_select", "config_address", "config_data", "look_set", "look_way", "look_spilled")
"""Inputs of the machine that go to every core."""
JOINED = ("host", "network", "sent", "output")
"""Streams between a core and the fabric."""
CLOSED = ("close", "close_rank", "run_over", "least")
"""Other signals between them, where there are open gathers."""


def core_outputs(s: System) -> dict[str, Any]:
    """The outputs of a core that are outputs of the machine, once for each core."""
    streams = tuple(f"{name}_" for name in JOINED)
    ports = core_ports(s.core).items()
    return {name: port for name, port in ports if port.flow is Out and not name.startswith((*streams, *CLOSED))}


def machine_ports(s: System) -> dict[str, Any]:
    """The ports of a machine."""
    outside = {k: v for k, v in fabric_ports(s).items() if k.startswith(("port_", "result_"))}
    looks = {name: port for name, port in core_ports(s.core).items() if name in SHARED and name.startswith("look")}
    each = {f"{name}_{n}": port for n in range(s.cores) for name, port in core_outputs(s).items()}
    return {**outside, **configuration_ports(), **looks, **host_ports(s), **watch_ports(s), **each}


class Machine(wiring.Component):
    """port_*, result_*: tokens of the host and to it, at each of its ports; host_over: see `Fabric`. config_*: see
    `configuration_ports`; one write reaches every core. look_*: as of a core, for all of them. moved, waits, under_way: see
    `Fabric`.

    idle: nothing is under way anywhere. Each core's outputs (see `Core`) have its number behind their names: failure_0.
    """

    def __init__(self, s: System, *, apart: bool = False):
        """`apart`: the cores and the fabric are instances of modules `core` and `fabric` whose Verilog is elsewhere."""
        self.s = s
        self.apart = apart
        super().__init__(machine_ports(s))

    def elaborate(self, platform: object) -> Module:
        """Wires only."""
        s = self.s
        m = Module()
        fabric = part(m, "fabric", "fabric", lambda: Fabric(s), fabric_members(s), apart=self.apart)
        for name, (signal, inward) in fabric.items():
            mine = getattr(self, name, None)
            if mine is not None:
                m.d.comb += signal.eq(mine) if inward else mine.eq(signal)
        for n in range(s.cores):
            core = part(m, f"core_{n}", "core", lambda: Core(s.core), core_ports(s.core), apart=self.apart)
            m.d.comb += [core["number"][0].eq(n), *(core[name][0].eq(getattr(self, name)) for name in SHARED)]
            m.d.comb += [getattr(self, f"{name}_{n}").eq(core[name][0]) for name in core_outputs(s)]
            for name in JOINED:
                for suffix in ("valid", "ready", "data"):
                    ours, inward = core[f"{name}_{suffix}"]
                    theirs = fabric.get(f"{name}_{suffix}_{n}")
                    if theirs is not None:
                        m.d.comb += ours.eq(theirs[0]) if inward else theirs[0].eq(ours)
            for name in CLOSED if s.core.closes else ():
                (ours, inward), (theirs, _) = core[name], fabric[f"{name}_{n}"]
                m.d.comb += ours.eq(theirs) if inward else theirs.eq(ours)
        return m


def part(
    m: Module, name: str, kind: str, make: Callable[[], wiring.Component], ports: dict[str, Any], *, apart: bool
) -> dict[str, tuple[Any, bool]]:
    """A submodule, or with `apart` an instance of the module `kind`, whose Verilog is elsewhere: its ports by name, and
    whether they are inputs."""
    if not apart:
        m.submodules[name] = made = make()
        return {port: (getattr(made, port), member.flow is In) for port, member in ports.items()}
    found = {port: (Signal(member.shape, name=f"{name}_{port}"), member.flow is In) for port, member in ports.items()}
    wires = {f"{'i' if inward else 'o'}_{port}": signal for port, (signal, inward) in found.items()}
    m.submodules[name] = Instance(kind, i_clk=ClockSignal(), i_rst=ResetSignal(), **wires)
    return found
