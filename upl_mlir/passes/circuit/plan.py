"""The plan of a circuit: process, stages, schedule, links and ports; and how many cycles a run takes.

Everything but the schedule, the latencies of units and the orders of streams follows from the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from upl_mlir.diagnostics import UplError, error
from upl_mlir.passes.circuit.body import LATENCY
from upl_mlir.passes.circuit.choose import Wish, candidates
from upl_mlir.passes.circuit.links import Link, NoLink, links
from upl_mlir.passes.circuit.nest import Nest
from upl_mlir.passes.circuit.ports import LEAD, Input, Order, Output, deadlines, inputs, outputs, padded, turns
from upl_mlir.passes.circuit.process import OTHER_ENGINES, Process
from upl_mlir.passes.circuit.stages import Site, Stages, sites, stages

MOST_INSTANCES = 1 << 23
"""Every instance is looked at: so many take some seconds and some hundred MiB."""
MOST_TRIED = 200
"""Schedules whose ports are looked at before the first reason is given."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A circuit."""

    process: Process
    units: Mapping[str, int]
    at: Stages
    sites: tuple[Site, ...]
    nest: Nest
    links: Mapping[Site, tuple[Link, ...]]
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class Fixed:
    """What a text gives: the schedule, and the orders of the streams."""

    nest: Nest
    orders: Mapping[str, Order] = field(default_factory=dict[str, Order])


def plan(p: Process, wish: Wish, units: Mapping[str, int] = LATENCY) -> Plan:
    """The plan with the best schedule.  Raises UplError: UPL2003 where there is none, UPL2005 for too many instances."""
    _small_enough(p)
    at = stages(p, units)
    reads = tuple(sites(p, at))
    first: str | None = None
    for nest in candidates(p, wish, reads)[:MOST_TRIED]:
        try:
            return _planned(p, units, at, reads, Fixed(nest))
        except NoLink as e:
            first = first or str(e)
        except UplError as e:
            first = first or e.diagnostics[0].message
    why = [f"the best one: {first}"] if first else ["every order of the loops goes against a dependence"]
    raise error("UPL2003", f"no static schedule was found for `{p.name}`", p.span, notes=why, help=OTHER_ENGINES)


def planned(p: Process, fixed: Fixed, units: Mapping[str, int]) -> Plan:
    """The plan with a given schedule.  Raises UplError UPL2003."""
    _small_enough(p)
    at = stages(p, units)
    try:
        return _planned(p, units, at, tuple(sites(p, at)), fixed)
    except NoLink as e:
        raise error("UPL2003", f"the schedule of `{p.name}` does not keep its dependences: {e}", p.span) from None


def _planned(p: Process, units: Mapping[str, int], at: Stages, reads: tuple[Site, ...], fixed: Fixed) -> Plan:
    nest = fixed.nest
    found = {s: tuple(links(p, nest, s)) for s in reads if s.written is not None}
    orders = dict(fixed.orders)
    outs = outputs(p, nest, at, orders)
    nest = padded(p, nest, outs)
    ins = inputs(p, nest, reads, at, orders)
    return Plan(p, units, at, reads, nest, found, tuple(ins), tuple(outs))


def _small_enough(p: Process) -> None:
    n = 1
    for d in p.dims:
        n *= d.extent
    if n > MOST_INSTANCES:
        raise error("UPL2005", f"`{p.name}` has {n} instances; circuits are made of at most {MOST_INSTANCES}", p.span)


ARRIVES = 2
"""Clocks from the one in which a word is taken to that in which it counts."""
LEAVES = 5
"""Clocks from a slot of the first lane to the word at the port, less those for the lanes in between."""
QUEUED = 2
"""Slots from a lane's turn to its word."""


def stalls(plan_: Plan, runs: int = 1) -> int:
    """Clocks in which no slot passes: the slot in which the last awaited word is due comes so much later.

    For ports that always have words, from the first clock on: word n comes in clock n.
    """
    found = [-1]
    for i in plan_.inputs:
        due = deadlines(plan_.nest, i.need)
        due = np.concatenate([due + n * plan_.nest.slots for n in range(runs)])
        found.append(int((np.arange(len(due)) + ARRIVES - due).max()))
    return max(found)


def leaves(plan_: Plan, o: Output) -> int:
    """The slot in which the last word of a run leaves its lane; the first iteration is slot 0."""
    nest = plan_.nest
    lane_starts = nest.skew * np.arange(nest.lanes)
    if len(o.lanes) > 1:
        at_once = o.when.reshape(-1, nest.lanes)
        final = int(np.flatnonzero(at_once[np.flatnonzero(at_once.any(axis=-1))[-1]])[-1])
        return LEAD + plan_.at.result + o.wait + (turns(o) - 1) * nest.lanes + final + QUEUED
    at = np.broadcast_to(nest.slot[..., None] + lane_starts, nest.shape)
    return LEAD + plan_.at.result + int(at[o.when].max())


def cycles(plan_: Plan, runs: int = 1) -> int:
    """Clocks from the first word of an input to the last word of the last output, both included, for ports that never wait.

    The first run takes as long as its last word is under way; each further one `nest.slots` more.
    """
    last = max(leaves(plan_, o) for o in plan_.outputs)
    return last + (runs - 1) * plan_.nest.slots + stalls(plan_, runs) + plan_.nest.lanes + LEAVES + 1
