"""Lower bounds on the cycles of a run, one for each thing that may limit it: the greatest names the bottleneck."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from upl_mlir.explore.dependences import Dependences, Unit
from upl_mlir.explore.reference import PER_CORE, PIPELINED
from upl_mlir.hw.machine import Machine

HOP_CYCLES = 5
"""From the cycle in which a token is sent to the first instruction of the activation that it completes, at the least:
queue, fetch, probe, activation, choice of the context."""


def bounds(stats: Mapping[str, Any], machine: Machine, graph: Dependences) -> dict[str, int]:
    """Cycles that a run with these figures cannot go below, if nothing else limited it.

    `tokens`, `probes`, `instructions`, `sends`: spread evenly over the cores, one a cycle; `hottest_…` the same of the core
    that has most.  `add`, `mul`, `div`, `sqrt`: the operations over the units of all cores.  `host`: tokens over ports.
    `link`: the link with most tokens.  `latency`: the longest chain of operations, and a hop for every firing in the longest
    chain of firings.
    """
    cores: list[Mapping[str, Any]] = list(stats["cores"]) or [stats]
    cycles = stats["cycles"]
    out: dict[str, int] = {}
    for name, port in (("tokens", "match_in"), ("probes", "probe"), ("instructions", "alu"), ("sends", "send")):
        counts = [round(core["utilisation"].get(port, 0.0) * cycles) for core in cores]
        out[name] = -(-sum(counts) // len(counts))
        if len(counts) > 1:
            out[f"hottest_{name}"] = max(counts)
    for unit, number in PER_CORE.items():
        work = graph.units.count(unit) * (1 if unit in PIPELINED else graph.latency[unit])
        out[unit.name.lower()] = -(-work // (number * len(cores)))
    ports = machine.host.ports
    out["host"] = round(stats["utilisation"]["host"] * ports * cycles) // ports
    if stats["links"]:
        out["link"] = max(link["tokens"] for link in stats["links"])
    out["latency"] = _chain(graph) + HOP_CYCLES * graph.depth
    return out


def _chain(graph: Dependences) -> int:
    """The longest chain of real operations; what needs no unit is done within instructions that are counted elsewhere."""
    ends = [0] * len(graph.units)
    for n, (unit, before) in enumerate(zip(graph.units, graph.before, strict=True)):
        ends[n] = max((ends[b] for b in before), default=0) + (0 if unit is Unit.LIGHT else graph.latency[unit])
    return max(ends, default=0)
