"""The figures of a run on the machine in RTL, of each core and in all."""

from __future__ import annotations

from typing import Any

from upl_mlir.engines.rtl.observe.activity import activity
from upl_mlir.engines.rtl.observe.attribution import attribution
from upl_mlir.hw.core.core import Event
from upl_mlir.hw.image import ProgramImage
from upl_mlir.hw.machine import Machine, Topology
from upl_mlir.hw.results import Occupancy, Stats
from upl_mlir.hw.sim.interface import CoreReport, Report
from upl_mlir.hw.system.layouts import System, link_ends

_STALLS = {
    "match.activation": Event.WAIT_ACTIVATION,
    "match.backing": Event.WAIT_BACKING,
    "match.reducer": Event.WAIT_REDUCER,
    "execute.context": Event.WAIT_CONTEXT,
    "send.queue": Event.WAIT_QUEUE,
    "send.network": Event.WAIT_NETWORK,
    "host.wait": Event.WAIT_HOST,
}
_PORTS = {
    "match_in": Event.TAKEN,
    "probe": Event.PROBED,
    "activation": Event.FIRED,
    "alu": Event.ISSUED,
    "send": Event.SENT,
    "network_out": Event.LEFT,
    "network_in": Event.CAME,
    "host": Event.HOST_IN,
}


def stats(image: ProgramImage, machine: Machine, report: Report, seconds: float, simulator: str) -> Stats:
    """All of them; shares of utilisation in all are means over the cores, and over the ports of the host."""
    system = System.of(machine)
    cycles = max(1, report.cycles)
    cores = [_core(image, core, cycles) for core in report.cores]
    booted = [0] * len(image.nodes)
    for boot in image.boot:
        booted[boot.node] += 1

    def total(key: str) -> int:
        return sum(core[key] for core in cores)

    def merged(key: str) -> dict[str, Any]:
        return {name: sum(core[key][name] for core in cores) for name in cores[0][key]}

    utilisation = {name: share / len(cores) for name, share in merged("utilisation").items()}
    utilisation["host"] = sum(report.ports) / len(report.ports) / cycles
    links = _links(system, report, cycles)
    if links:
        utilisation["link"] = sum(link["utilisation"] for link in links) / len(links)
    tokens = merged("tokens")
    # The host's tokens for gathers without summands are no tokens of the program.
    tokens = {node.name: tokens[node.name] - booted[k] for k, node in enumerate(image.nodes)}
    return Stats(
        cycles=report.cycles,
        matches=total("matches"),
        firings=merged("firings"),
        tokens=tokens,
        peak_waiting=max(core["occupancy"]["peak"] for core in cores),
        occupancy=Occupancy(
            max(core["occupancy"]["peak"] for core in cores),
            sum(core["occupancy"]["mean"] for core in cores) / len(cores),
        ),
        stalls=merged("stalls"),
        utilisation=utilisation,
        queue_peak=max(core["queue_peak"] for core in cores),
        spills=total("spills"),
        queue_spills=total("queue_spills"),
        seconds=seconds,
        simulator=simulator,
        injection_bound=report.injection_bound,
        cores=cores if len(cores) > 1 else [],
        links=links,
        attribution=attribution(report.cores),
        activity=activity(image, system, report),
    )


def _core(image: ProgramImage, core: CoreReport, cycles: int) -> dict[str, Any]:
    """The figures of one core, as they stand in `stats.json`."""
    return {
        "matches": core.count(Event.FIRED),
        "firings": {node.name: core.fired[k] for k, node in enumerate(image.nodes)},
        "tokens": {node.name: core.taken[k] for k, node in enumerate(image.nodes)},
        "occupancy": {"peak": core.used_peak, "mean": core.used_sum / cycles},
        "stalls": {name: core.count(event) for name, event in _STALLS.items()},
        "spills": core.count(Event.SPILLED),
        "queue_spills": core.count(Event.QUEUE_SPILLED),
        "utilisation": {name: core.count(event) / cycles for name, event in _PORTS.items()},
        "queue_peak": core.queued_peak,
    }


def _links(system: System, report: Report, cycles: int) -> list[dict[str, Any]]:
    """The figures of each link: where it begins and ends, tokens, cycles in which one waited for it."""
    if system.cores == 1:
        return []
    out: list[dict[str, Any]] = []
    ends = link_ends(system.topology, system.cores)
    for (start, end, _), moved, waits in zip(ends, report.moved, report.waits, strict=True):
        begin = None if system.topology is Topology.CROSSBAR else start
        out.append({"from": begin, "to": end, "tokens": moved, "waits": waits, "utilisation": moved / cycles})
    return out
