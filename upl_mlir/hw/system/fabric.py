"""What joins cores with each other and with the host: network, ports of the host, and the end of a run."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from upl_mlir.hw.core.core import configuration_ports, configuration_row
from upl_mlir.hw.core.layouts import CORE_BITS, Memory, flit_layout, token_layout
from upl_mlir.hw.core.place import Placer, place_layout
from upl_mlir.hw.core.stores.open_gathers import least_of
from upl_mlir.hw.network.network import Network
from upl_mlir.hw.network.parts import count_bits, turns
from upl_mlir.hw.system.layouts import System
from upl_mlir.hw.system.throttle import Throttle

TREE = 4
"""Inputs of each register of the tree that finds out whether all cores are idle."""


def fabric_ports(s: System) -> dict[str, Any]:
    """The ports of a fabric, by name; those for a core or a port of the host end with its number."""
    token, flit = token_layout(s.core).size, flit_layout(s.core).size
    ports: dict[str, Any] = {}
    for n in range(s.ports):
        ports |= {f"port_valid_{n}": In(1), f"port_ready_{n}": Out(1), f"port_data_{n}": In(token)}
        ports |= {f"result_valid_{n}": Out(1), f"result_ready_{n}": In(1), f"result_data_{n}": Out(token)}
    for n in range(s.cores):
        ports |= {f"host_valid_{n}": Out(1), f"host_ready_{n}": In(1), f"host_data_{n}": Out(token)}
        ports |= {f"output_valid_{n}": In(1), f"output_ready_{n}": Out(1), f"output_data_{n}": In(token)}
        ports |= {f"idle_{n}": In(1)}
        if s.core.stages:
            ports |= {f"live_{n}": In(s.core.stages)}
        if s.core.closes:
            bits = s.core.multiplicity_bits
            ports |= {f"least_{n}": In(bits), f"close_{n}": Out(1), f"close_rank_{n}": Out(bits), f"run_over_{n}": Out(1)}
        if s.cores > 1:
            ports |= {f"sent_valid_{n}": In(1), f"sent_ready_{n}": Out(1), f"sent_data_{n}": In(flit)}
            ports |= {f"network_valid_{n}": Out(1), f"network_ready_{n}": In(1), f"network_data_{n}": Out(token)}
    return ports


def host_ports(s: System) -> dict[str, Any]:
    """Where there are open gathers: the host has no more tokens, so that they may end."""
    return {"host_over": In(1)} if s.core.closes else {}


def watch_ports(s: System) -> dict[str, Any]:
    """The ports of a fabric that tell what it does."""
    links = max(1, s.links)
    return {"idle": Out(1), "moved": Out(links), "waits": Out(links), "under_way": Out(16)}


def fabric_members(s: System) -> dict[str, Any]:
    """All ports of a fabric."""
    return {**fabric_ports(s), **configuration_ports(), **host_ports(s), **watch_ports(s)}


class Fabric(wiring.Component):
    """port_*: tokens of the host, one a cycle each; result_*: tokens to the host. For each core, by its number: host_*
    tokens of the host to it, network_* tokens of other cores to it, sent_* and output_* from it to cores and host; idle_*;
    live_*, if there is a throttle (see `Throttle`). If there are open gathers, least_*, close_*, close_rank_*, run_over_*
    (see `OpenGathers`), and host_over (in): the host has no more tokens.

    idle (out): nothing is under way anywhere. moved, waits (out): what links do (see `Network`); under_way (out): tokens
    between cores.
    """

    def __init__(self, s: System):
        self.s = s
        super().__init__(fabric_members(s))

    def elaborate(self, platform: object) -> Module:
        """The three parts side by side."""
        m = Module()
        rows = self.s.cores > 1 or self.s.core.stages
        row = configuration_row(m, self, place_layout(self.s.core).size) if rows else Const(0)
        throttle = self._throttle(m, row) if self.s.core.stages else None
        came, left = self._hosts(m, row, throttle)
        if self.s.cores > 1:
            s, width = self.s, token_layout(self.s.core).size
            m.submodules.network = network = Network(width, s.cores, s.topology, s.queue_depth, s.link_cycles)
            for n in range(s.cores):
                for signal in ("valid", "ready", "data"):
                    for name, theirs in (("sent", "sent"), ("network", "token")):
                        mine, its = getattr(self, f"{name}_{signal}_{n}"), getattr(network, f"{theirs}_{signal}_{n}")
                        inward = (name == "sent") == (signal != "ready")
                        m.d.comb += its.eq(mine) if inward else mine.eq(its)
                came.append(getattr(self, f"sent_valid_{n}") & getattr(self, f"sent_ready_{n}"))
                left.append(getattr(self, f"network_valid_{n}") & getattr(self, f"network_ready_{n}"))
            m.d.comb += [self.moved.eq(network.moved), self.waits.eq(network.waits)]
            m.d.sync += self.under_way.eq(self.under_way + count_bits(came, "came", m) - count_bits(left, "left", m))
        self._end(m, throttle)
        return m

    def _throttle(self, m: Module, row: Value) -> Throttle:
        """What tokens of the host pass first."""
        s = self.s
        m.submodules.throttle = throttle = Throttle(s)
        live: Value = Const(0, s.core.stages)
        for n in range(s.cores):
            live = live | getattr(self, f"live_{n}")
        m.d.comb += [
            throttle.row_en.eq(self.config_en & (self.config_select == Memory.PLACE)),
            throttle.row_address.eq(self.config_address),
            throttle.row_data.eq(data.View(place_layout(s.core), row[: place_layout(s.core).size]).stage),
            throttle.live.eq(live),
        ]
        for n in range(s.ports):
            m.d.comb += [
                getattr(throttle, f"in_valid_{n}").eq(getattr(self, f"port_valid_{n}")),
                getattr(throttle, f"in_data_{n}").eq(getattr(self, f"port_data_{n}")),
                getattr(self, f"port_ready_{n}").eq(getattr(throttle, f"in_ready_{n}")),
            ]
        return throttle

    def _hosts(self, m: Module, row: Value, throttle: Throttle | None) -> tuple[list[Value], list[Value]]:
        """From each port to the cores, and back. The values: a token comes into what is between, or leaves it."""
        s = self.s
        came: list[Value] = []
        left: list[Value] = []
        offers: list[tuple[Value, Value, Value, Signal]] = []  # valid, home, token, taken; of each port
        for n in range(s.ports):
            source, prefix = (self, "port") if throttle is None else (throttle, "out")
            valid, ready, what = (getattr(source, f"{prefix}_{name}_{n}") for name in ("valid", "ready", "data"))
            if s.cores == 1:
                offers.append((valid, Const(0, CORE_BITS), what, ready))
                continue
            m.submodules[f"placer_{n}"] = placer = Placer(s.core)
            m.d.comb += [
                placer.token.valid.eq(valid),
                placer.token.payload.as_value().eq(what),
                ready.eq(placer.token.ready),
                placer.place_en.eq(self.config_en & (self.config_select == Memory.PLACE)),
                placer.place_address.eq(self.config_address),
                placer.place_data.as_value().eq(row),
            ]
            flit = placer.flit
            offers.append((flit.valid, flit.payload.home, flit.payload.token.as_value(), flit.ready))
            came.append(valid & ready)
            left.append(flit.valid & flit.ready)
        given: list[list[Value]] = [[] for _ in offers]
        for core in range(s.cores):
            asks = Signal(s.ports, name=f"asks_{core}")
            m.d.comb += asks.eq(Cat(*(valid & (home == core) for valid, home, _, _ in offers)))
            ready = getattr(self, f"host_ready_{core}")
            grants = turns(m, f"host_{core}", asks, ready)
            what = offers[0][2]
            for n in range(1, s.ports):
                what = Mux(grants[n], offers[n][2], what)
                given[n].append(grants[n] & ready)
            given[0].append(grants[0] & ready)
            m.d.comb += [
                getattr(self, f"host_valid_{core}").eq(asks.any()),
                getattr(self, f"host_data_{core}").eq(what),
            ]
        for (_, _, _, taken), by in zip(offers, given, strict=True):
            m.d.comb += taken.eq(Cat(*by).any())
        for n in range(s.ports):
            self._results(m, n, [core for core in range(s.cores) if core % s.ports == n])
        return came, left

    def _results(self, m: Module, port: int, cores: list[int]) -> None:
        """Tokens to the host, of those cores that a port serves, in turns."""
        if not cores:
            return
        asks = Signal(len(cores), name=f"result_asks_{port}")
        m.d.comb += asks.eq(Cat(*(getattr(self, f"output_valid_{core}") for core in cores)))
        ready = getattr(self, f"result_ready_{port}")
        grants = turns(m, f"result_{port}", asks, ready)
        what: Value = getattr(self, f"output_data_{cores[0]}")
        for k, core in enumerate(cores):
            m.d.comb += getattr(self, f"output_ready_{core}").eq(grants[k] & ready)
            what = Mux(grants[k], getattr(self, f"output_data_{core}"), what) if k else what
        m.d.comb += [
            getattr(self, f"result_valid_{port}").eq(asks.any()),
            getattr(self, f"result_data_{port}").eq(what),
        ]

    def _end(self, m: Module, throttle: Throttle | None) -> None:
        """Idle: no token between cores and all cores idle, seen at the root of a tree of registers for longer than a signal
        takes from its leaves, with no token of the host since then."""
        s = self.s
        level: list[Value] = [getattr(self, f"idle_{n}") for n in range(s.cores)]
        level[0] = level[0] & (self.under_way == 0)
        depth = 0
        while len(level) > 1:
            above: list[Value] = []
            for k in range(0, len(level), TREE):
                node = Signal(name=f"quiet_{depth}_{k // TREE}")
                m.d.sync += node.eq(Cat(*level[k : k + TREE]).all())
                above.append(node)
            level, depth = above, depth + 1
        held = Signal(bits_for(depth + 1))
        offered = Cat(*(getattr(self, f"port_valid_{n}") for n in range(s.ports))).any()
        begun = offered
        if throttle is not None:  # what it holds back has not begun
            begun = Cat(*(getattr(throttle, f"out_valid_{n}") for n in range(s.ports))).any()
        with m.If(begun | ~level[0]):
            m.d.sync += held.eq(0)
        with m.Elif(held != depth):
            m.d.sync += held.eq(held + 1)
        rest = level[0] & (held == depth) & ~begun
        idle: Value = rest
        if throttle is not None:
            m.d.comb += [throttle.rest.eq(rest), throttle.over.eq(self.idle)]
            idle = rest & ~offered & throttle.empty
        if s.core.closes:
            m.submodules.closing = closing = Closing(s)
            m.d.comb += [closing.rest.eq(idle), closing.host_over.eq(self.host_over)]
            for n in range(s.cores):
                m.d.comb += [
                    closing.least[n].eq(getattr(self, f"least_{n}")), getattr(self, f"close_{n}").eq(closing.close),
                    getattr(self, f"close_rank_{n}").eq(closing.rank), getattr(self, f"run_over_{n}").eq(self.idle),
                ]  # fmt: skip
            idle = idle & closing.none
        m.d.comb += self.idle.eq(idle)


class Closing(wiring.Component):
    """When nothing is under way any more, the open gathers of least rank end.

    rest (in): nothing is under way, and has not been for as long as `least` takes through the tree. host_over (in): no token
    of the host comes. least (in): of each core, see `OpenGathers`. close (out, 1), rank (out): they end. none (out): there
    are none.
    """

    def __init__(self, s: System):
        self.s = s
        bits = s.core.multiplicity_bits
        super().__init__(
            {
                "rest": In(1),
                "host_over": In(1),
                "least": In(bits).array(s.cores),
                "close": Out(1),
                "rank": Out(bits),
                "none": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The least one of all cores, by a tree of registers as deep as that of `Fabric._end`; one pulse for each rest."""
        m = Module()
        level: list[Value] = [self.least[n] for n in range(self.s.cores)]
        depth = 0
        while len(level) > 1:
            above: list[Value] = []
            for k in range(0, len(level), TREE):
                node = Signal(self.s.core.multiplicity_bits, name=f"least_{depth}_{k // TREE}")
                m.d.sync += node.eq(least_of(level[k : k + TREE]))
                above.append(node)
            level, depth = above, depth + 1
        told = Signal()  # in this rest it has been said
        m.d.comb += [
            self.rank.eq(level[0]), self.none.eq(level[0].all()),
            self.close.eq(self.rest & self.host_over & ~self.none & ~told),
        ]  # fmt: skip
        m.d.sync += told.eq(self.rest & (told | self.close))
        return m
