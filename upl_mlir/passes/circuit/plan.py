"""The plan of a circuit: processes with stages and schedules, channels between them, ports; how many cycles a run takes.

Everything but the schedules, the latencies of units and the orders of streams follows from the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from upl_mlir.diagnostics import UplError, error
from upl_mlir.passes.circuit.channels.buffers import Buffer, buffer
from upl_mlir.passes.circuit.channels.inner import Stream, checked, sent_by
from upl_mlir.passes.circuit.channels.inputs import Input, awaited, deadlines, inputs
from upl_mlir.passes.circuit.channels.links import Link, NoLink, links
from upl_mlir.passes.circuit.channels.orders import Order, elements
from upl_mlir.passes.circuit.channels.outputs import Output, leave, output, slots_of
from upl_mlir.passes.circuit.channels.ways import Ways, ways
from upl_mlir.passes.circuit.choose import Wish, asked
from upl_mlir.passes.circuit.fuse import fused
from upl_mlir.passes.circuit.nest import Ints, Nest, tight
from upl_mlir.passes.circuit.numbers import Numbers
from upl_mlir.passes.circuit.placed import Placed
from upl_mlir.passes.circuit.placing import Placing, Refusals, options
from upl_mlir.passes.circuit.process import Network
from upl_mlir.passes.circuit.share import Shared, group_of, latencies, sharers, spans
from upl_mlir.passes.circuit.stages import Site, sites, stages

MOST_INSTANCES = 1 << 23
"""Every instance is looked at: so many take some seconds and some hundred MiB."""
ARRIVES = 4
"""Clocks from the one in which a word is taken to that in which it counts."""
BEGINS = 1
"""Clocks from the first one to that in which the first slot passes, if no word is awaited."""
ENABLES = 2
"""Clocks from that in which a slot passes to that in which the first lane goes on."""
LEAVES = 6
"""Clocks from a slot of the first lane to the word at the port, less those for the lanes in between."""


@dataclass(frozen=True, eq=False)
class Part(Placed):
    """A placed process, and the channels from processes: delays and buffers by site; other sites read streams."""

    links: Mapping[Site, tuple[Link, ...]]
    buffers: Mapping[Site, Buffer]


@dataclass(frozen=True, eq=False)
class Plan:
    """A circuit: its processes, each after those whose arrays it reads."""

    network: Network
    units: Mapping[str, int]
    parts: tuple[Part, ...]
    streams: tuple[Stream, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    shared: Shared = ()
    """The sets of processes that use units in turn."""

    @property
    def name(self) -> str:
        """That of the program."""
        return self.network.name

    @property
    def numbers(self) -> Numbers:
        """The type of its reals."""
        return self.network.numbers

    @property
    def slots(self) -> int:
        """The slots of a run: so many clocks a further run takes."""
        return self.parts[0].nest.slots

    @property
    def lanes(self) -> int:
        """The most lanes of a process."""
        return max(p.nest.lanes for p in self.parts)


@dataclass(frozen=True)
class Fixed:
    """What a text gives: the schedules of processes by array, the orders of streams, and of ports, by name, and which
    processes share units."""

    nests: Mapping[str, Nest]
    orders: Mapping[str, Order] = field(default_factory=dict[str, Order])
    shared: Shared = ()


def plan(net: Network, wish: Wish, units: Mapping[str, int] | None = None) -> Plan:
    """The plan with the best schedules, with units of their highest clock unless others are given; with fewer lanes, if
    processes with as many cannot read of each other, unless they share units: then arrays lie as so many lanes need them.

    Raises UplError: UPL2003 where there is none, UPL2005 for too many instances.
    """
    units = net.numbers.latency if units is None else units
    _small_enough(net)
    asked(net.processes, wish)
    try:
        return _best(net, wish, units)
    except UplError:
        lanes = wish.lanes
        while (lanes := lanes // 2) and not wish.share:
            try:
                return _best(net, replace(wish, lanes=lanes), units)
            except UplError:
                continue
        raise


def _best(net: Network, wish: Wish, units: Mapping[str, int]) -> Plan:
    """The plan with the best schedules.  Raises UplError UPL2003."""
    shared = sharers(net) if wish.share else ()
    bare = {p.array: p for p in _unscheduled(net, units, shared)}
    if len(net.processes) > 1:
        return _as_said(net, units, Placing(net, wish, bare, shared).placed(), {}, shared)
    refused = Refusals(net.processes)
    for parts in options([*bare.values()], wish):
        with refused:
            return _connected(net, units, parts, {}, shared)
    raise refused.error()


def planned(net: Network, fixed: Fixed, units: Mapping[str, int]) -> Plan:
    """The plan with given schedules.  Raises UplError UPL2003."""
    _small_enough(net)
    parts = [replace(p, nest=fixed.nests[p.array]) for p in _unscheduled(net, units, fixed.shared)]
    return _as_said(net, units, parts, fixed.orders, fixed.shared)


def _as_said(
    net: Network, units: Mapping[str, int], parts: Sequence[Placed], orders: Mapping[str, Order], shared: Shared
) -> Plan:
    """The plan of processes with their schedules.  Raises UplError UPL2003."""
    try:
        return _connected(net, units, parts, orders, shared)
    except NoLink as e:
        what = f"the schedule of {', '.join(f'`{p.array}`' for p in parts)} does not keep its dependences: {e}"
        raise error("UPL2003", what, parts[0].process.span) from None


def _unscheduled(net: Network, units: Mapping[str, int], shared: Shared) -> list[Placed]:
    """All processes with what they read, one after the other in one lane."""
    processes = [p if group_of(p.name, shared) else fused(p, net.numbers) for p in net.processes]
    ats = {p.name: stages(p, latencies(units, bool(group_of(p.name, shared)))) for p in processes}
    written = {n: at.result for n, at in ats.items()}
    out: list[Placed] = []
    for p in processes:
        order = tuple(d.name for d in p.dims)
        every = tight([d.extent for d in p.dims], [0] * len(p.dims))
        slots = prod(d.extent for d in p.dims)
        nest = Nest(p.dims, order[-1] if order else "", 1, order, every, 0, slots)
        out.append(Placed(p, ats[p.name], tuple(sites(p, ats[p.name], written)), nest))
    return out


def _connected(
    net: Network, units: Mapping[str, int], parts: Sequence[Placed], orders: Mapping[str, Order], shared: Shared
) -> Plan:
    """The plan of processes with their schedules.  Raises UplError UPL2003, NoLink."""
    numbers = {p.array: n for n, p in enumerate(parts)}
    most = max(p.nest.lanes for p in parts)
    if all(p.nest.start for p in parts):
        raise NoLink("no process starts in the circuit's first slot")

    def outs(parts: Sequence[Placed], fixed: Mapping[str, Order]) -> list[Output]:
        return [
            output(d, numbers[d.array], parts[numbers[d.array]], fixed.get(n), most) for n, d in net.outputs.items()
        ]  # fmt: skip

    chosen: list[Ways] = []
    for n in range(len(parts)):
        made, short = ways(parts, n, orders)
        if (late := max(short.values(), default=0)) > 0:
            raise NoLink(f"a value is read {late} slots before it is there")
        chosen.append(made)
    found = outs(parts, orders)
    orders = {**orders, **{o.name: o.order for o in found}}
    words = [prod(d.extent for d in elements(net.sizes, h)) for h in net.inputs.values()]
    sends = [
        next(sent_by(numbers[array], parts[numbers[array]], order))
        for c in chosen for array, (order, _) in c.streamed.items()
    ]  # fmt: skip
    slots = max(spans(parts, shared), *(p.nest.slots for p in parts))
    slots = max(slots, *words, *(slots_of(o) for o in (*found, *sends)))
    parts = [replace(p, nest=replace(p.nest, slots=slots)) for p in parts]
    streams: list[Stream] = []
    whole: list[Part] = []
    for n, (c, p) in enumerate(zip(chosen, parts, strict=True)):
        delays = {s: tuple(links(p, parts[numbers[s.array]], s)) for s in c.linked}
        buffers = {s: buffer(p, parts[numbers[s.array]], s) for s in c.buffered}
        whole.append(Part(p.process, p.at, p.sites, p.nest, delays, buffers))
        for array, (order, read) in c.streamed.items():
            at = numbers[array]
            streams.append(checked(next(sent_by(at, parts[at], order)), parts[at], n, p, read))
    ins = tuple(inputs(net, parts, orders))
    return Plan(net, units, tuple(whole), tuple(streams), ins, tuple(outs(parts, orders)), shared)


def _small_enough(net: Network) -> None:
    for p in net.processes:
        n = prod(d.extent for d in p.dims)
        if n > MOST_INSTANCES:
            raise error("UPL2005", f"`{p.name}` has {n} instances; circuits are made of at most {MOST_INSTANCES}", p.span)


# -- times ------------------------------------------------------------------------------------------------------------
def due(plan_: Plan, i: Input) -> Ints:
    """The slot in which each word of an input must have come, in the order of the port; -1 is before the first one."""
    out = deadlines(plan_.parts[i.by].nest, i.need)
    begins = plan_.parts[i.by].nest.start - 1
    return np.where(out == begins, -1, out) if begins >= 0 and i in awaited(plan_.inputs, plan_.parts) else out


def leaves(plan_: Plan, o: Output) -> Ints:
    """The slot in which each word of an output leaves its lane, in the order of the port."""
    return leave(o, plan_.parts[o.part])


def stalls(plan_: Plan, runs: int = 1) -> int:
    """Clocks in which no slot passes: the slot in which the last awaited word is due comes so much later.

    For ports that always have words, from the first clock on: word n comes in clock n.
    """
    found = [BEGINS]
    for i in plan_.inputs:
        one = due(plan_, i)
        whole = np.concatenate([one + n * plan_.slots for n in range(runs)])
        found.append(int((np.arange(len(whole)) + ARRIVES - whole).max()))
    return max(found)


def cycles(plan_: Plan, runs: int = 1) -> int:
    """Clocks from the first word of an input to the last word of the last output, both included, for ports that never wait.

    The first run takes as long as its last word is under way; each further one `slots` more.
    """
    last = max(int(leaves(plan_, o).max()) + plan_.parts[o.part].nest.lanes for o in plan_.outputs)
    return last + (runs - 1) * plan_.slots + stalls(plan_, runs) + LEAVES + 1


def unseen(plan_: Plan) -> int:
    """Clocks of a run after its last word of an output: the next run begins no sooner than they are over."""
    return max(0, plan_.slots + stalls(plan_) - cycles(plan_))


def lanes_of(port: Input | Output) -> int:
    """The number of lanes by which the order of a port divides fields."""
    return port.lanes if isinstance(port, Input) else port.by


def at_sites(plan_: Plan) -> Iterator[tuple[Part, Site]]:
    """All sites, process after process."""
    for p in plan_.parts:
        for s in p.sites:
            yield p, s
