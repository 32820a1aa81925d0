"""A network between cores: crossbar, ring or mesh, with the same ports."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.core.layouts import CORE_BITS
from upl_mlir.hw.machine import Topology
from upl_mlir.hw.network.parts import Link, Sink, Source, one_hot, switch


class Network(wiring.Component):
    """sent_*: from each core tokens, in front of them (the lowest bits) the number of the core that they are for, never
    its own; token_*: to each core tokens. What is sent arrives once, at its core, if cores take what arrives; tokens
    may overtake each other.

    moved, waits (out): for each link whether a token goes into it, or one wants to and there is no room.
    """

    def __init__(self, width: int, cores: int, topology: Topology, depth: int, cycles: int):
        assert cores > 1
        self.width, self.cores, self.topology, self.depth, self.cycles = width, cores, topology, depth, cycles
        ports: dict[str, object] = {}
        for n in range(cores):
            ports |= {f"sent_valid_{n}": In(1), f"sent_ready_{n}": Out(1), f"sent_data_{n}": In(width + CORE_BITS)}
            ports |= {f"token_valid_{n}": Out(1), f"token_ready_{n}": In(1), f"token_data_{n}": Out(width)}
        self.links = link_ends(topology, cores)
        super().__init__({**ports, "moved": Out(len(self.links)), "waits": Out(len(self.links))})

    def elaborate(self, platform: object) -> Module:
        """Links, and a switch at each core, or one for all."""
        m = Module()
        width = self.width + (0 if self.topology is Topology.CROSSBAR else CORE_BITS)
        links: dict[tuple[int, int, int], Link] = {}
        for end in self.links:
            links[end] = Link(width, self.depth, self.cycles)
            m.submodules["link_{}_{}_{}".format(*end)] = links[end]
        if self.topology is Topology.CROSSBAR:
            self._crossbar(m, list(links.values()))
        else:
            for node in range(self.cores):
                self._node(m, node, links)
        m.d.comb += [
            self.moved.eq(Cat(*(link.w_valid & link.w_ready for link in links.values()))),
            self.waits.eq(Cat(*(link.w_valid & ~link.w_ready for link in links.values()))),
        ]
        return m

    def _port(self, name: str, node: int) -> Signal:
        return getattr(self, f"{name}_{node}")

    def _crossbar(self, m: Module, links: list[Link]) -> None:
        """Every core to every other one; what has come waits in the link of its core."""
        sources = [
            self._local(m, n, one_hot(m, f"wants_{n}", self._home(n), self.cores), CORE_BITS) for n in range(self.cores)
        ]
        paths = {(a, b) for a in range(self.cores) for b in range(self.cores) if a != b}
        switch(m, "crossbar", sources, [_into(link) for link in links], paths)
        for n, link in enumerate(links):
            m.d.comb += [
                self._port("token_valid", n).eq(link.r_valid),
                self._port("token_data", n).eq(link.r_data),
                link.r_ready.eq(self._port("token_ready", n)),
            ]

    def _home(self, node: int) -> Value:
        return Value.cast(self._port("sent_data", node)[:CORE_BITS])

    def _local(self, m: Module, node: int, wants: Value, first: int) -> Source:
        """The source that a core is."""
        taken = Signal(name=f"taken_{node}")
        m.d.comb += self._port("sent_ready", node).eq(taken)
        return Source(self._port("sent_valid", node), self._port("sent_data", node)[first:], wants, taken)

    def _node(self, m: Module, node: int, links: dict[tuple[int, int, int], Link]) -> None:
        """A switch between the links that end here, those that begin here, and the core (the last one of either)."""
        ends = [end for end in links if end[1] == node]
        starts = [end for end in links if end[0] == node]
        eject = len(starts)
        ways = [route(self.topology, self.cores, node, home) for home in range(self.cores)]

        def wants(home: Value, name: str, reach: set[int]) -> Value:
            out = Signal(eject + 1, name=name)
            for n, start in enumerate([*starts, None]):
                if n in reach:
                    m.d.comb += out[n].eq(Cat(*(home == h for h in range(self.cores) if ways[h] == start)).any())
            return out

        sources: list[Source] = []
        paths: set[tuple[int, int]] = set()
        for k, end in enumerate(ends):
            link, taken = links[end], Signal(name=f"taken_{node}_{k}")
            reach = {n for n, start in enumerate(starts) if may_turn(self.topology, self.cores, end, start)} | {eject}
            m.d.comb += link.r_ready.eq(taken)
            home = link.r_data[:CORE_BITS]
            if self.topology is Topology.RING:
                # A token stays on its side: the way back would be as short where it goes half round.
                out = Signal(eject + 1, name=f"wants_{node}_{k}")
                (onward,) = reach - {eject}
                m.d.comb += [out[onward].eq(home != node), out[eject].eq(home == node)]
                asked: Value = out
            else:
                asked = wants(home, f"wants_{node}_{k}", reach)
            sources.append(Source(link.r_valid, link.r_data, asked, taken))
            paths |= {(k, n) for n in reach}
        reach = set(range(eject))
        sources.append(self._local(m, node, wants(self._home(node), f"wants_{node}", reach), 0))
        paths |= {(len(ends), n) for n in reach}
        sinks = [_into(links[start], {len(ends)} if self.topology is Topology.RING else set()) for start in starts]
        arriving = Signal(self.width + CORE_BITS, name=f"arriving_{node}")
        m.d.comb += self._port("token_data", node).eq(arriving[CORE_BITS:])
        sinks.append(Sink(self._port("token_valid", node), arriving, self._port("token_ready", node)))
        switch(m, f"node_{node}", sources, sinks, paths)


def _into(link: Link, modest: set[int] | None = None) -> Sink:
    return Sink(link.w_valid, link.w_data, link.w_ready, modest or set(), link.free > 1)


def mesh_size(cores: int) -> tuple[int, int]:
    """Rows and columns: as near to a square as the number of cores allows."""
    rows = next(r for r in range(int(cores**0.5), 0, -1) if cores % r == 0)
    return rows, cores // rows


def link_ends(topology: Topology, cores: int) -> list[tuple[int, int, int]]:
    """The links of a network, from a core to a core; the third number tells links apart that join the same two. Those of
    the crossbar begin in its middle, and have the number of their core twice."""
    match topology:
        case Topology.CROSSBAR:
            return [(n, n, 0) for n in range(cores)]
        case Topology.RING:
            return [(n, (n + way) % cores, side) for n in range(cores) for side, way in enumerate((1, -1))]
        case Topology.MESH:
            _, columns = mesh_size(cores)
            across = [(n, n + 1) for n in range(cores) if (n + 1) % columns]
            down = [(n, n + columns) for n in range(cores - columns)]
            return [(a, b, 0) for low, high in across + down for a, b in ((low, high), (high, low))]


def route(topology: Topology, cores: int, node: int, home: int) -> tuple[int, int, int] | None:
    """The link by which a token for `home` leaves `node`; None where it is at home. Ring: the shorter side, of equal ones
    the first for even cores. Mesh: along the row first, then along the column."""
    if node == home:
        return None
    if topology is Topology.RING:
        ahead = (home - node) % cores
        side = int(2 * ahead > cores or (2 * ahead == cores and node % 2 == 1))
        return (node, (node + (-1 if side else 1)) % cores, side)
    _, columns = mesh_size(cores)
    row, column = divmod(node, columns)
    home_row, home_column = divmod(home, columns)
    if column != home_column:
        return (node, node + (1 if home_column > column else -1), 0)
    return (node, node + (columns if home_row > row else -columns), 0)


def may_turn(topology: Topology, cores: int, end: tuple[int, int, int], start: tuple[int, int, int]) -> bool:
    """Whether a token that came by one link may leave by another: only so that no circle of waiting tokens can arise (the
    ring has circles, but never fills them: see `Sink.modest`)."""
    if topology is Topology.RING:
        return end[2] == start[2]
    came, goes = end[1] - end[0], start[1] - start[0]
    if came == -goes:
        return False
    _, columns = mesh_size(cores)
    if columns == 1:
        return came == goes
    return abs(came) == 1 or came == goes
