"""The whole machine: cores and what joins them."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.core import Core, configuration_ports, core_ports
from upl_mlir.hw.system.fabric import Fabric, fabric_ports, watch_ports
from upl_mlir.hw.system.layouts import System

SHARED = ("config_en", "config_select", "config_address", "config_data", "look_set", "look_way", "look_spilled")
"""Inputs of the machine that go to every core."""
JOINED = ("host", "network", "sent", "output")
"""Streams between a core and the fabric."""


def core_outputs(s: System) -> dict[str, object]:
    """The outputs of a core that are outputs of the machine, once for each core."""
    streams = tuple(f"{name}_" for name in JOINED)
    ports = core_ports(s.core).items()
    return {name: port for name, port in ports if port.flow is Out and not name.startswith(streams)}


class Machine(wiring.Component):
    """port_*, result_*: tokens of the host and to it, at each of its ports. config_*: see `configuration_ports`; one write
    reaches every core. look_*: as of a core, for all of them. moved, waits, under_way: see `Fabric`.

    idle: nothing is under way anywhere. Each core's outputs (see `Core`) have its number behind their names: failure_0.
    """

    def __init__(self, s: System):
        self.s = s
        outside = {k: v for k, v in fabric_ports(s).items() if k.startswith(("port_", "result_"))}
        looks = {name: port for name, port in core_ports(s.core).items() if name in SHARED and name.startswith("look")}
        each = {f"{name}_{n}": port for n in range(s.cores) for name, port in core_outputs(s).items()}
        super().__init__({**outside, **configuration_ports(), **looks, **watch_ports(s), **each})

    def elaborate(self, platform: object) -> Module:
        """Wires only."""
        s = self.s
        m = Module()
        m.submodules.fabric = fabric = Fabric(s)
        for name in fabric.signature.members:
            mine = getattr(self, name, None)
            if mine is not None:
                inward = fabric.signature.members[name].flow is In
                m.d.comb += getattr(fabric, name).eq(mine) if inward else mine.eq(getattr(fabric, name))
        for n in range(s.cores):
            m.submodules[f"core_{n}"] = core = Core(s.core)
            m.d.comb += [core.number.eq(n), *(getattr(core, name).eq(getattr(self, name)) for name in SHARED)]
            m.d.comb += [getattr(self, f"{name}_{n}").eq(getattr(core, name)) for name in core_outputs(s)]
            for name in JOINED:
                for signal in ("valid", "ready", "data"):
                    theirs = getattr(fabric, f"{name}_{signal}_{n}", None)
                    if theirs is None:
                        continue
                    ours = getattr(core, f"{name}_{signal}")
                    inward = core.signature.members[f"{name}_{signal}"].flow is In
                    m.d.comb += ours.eq(theirs) if inward else theirs.eq(ours)
        return m
