"""An example with random inputs on a machine: its figures, after its outputs were compared.  Used by tables of machines."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import upl_mlir as upl
from upl_mlir.explore.job import RANDOM, Job, Task, run_task
from upl_mlir.hw.machine import Host, Machine, Matching, Network, Topology

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Of the command line of a table, whose help is the text of its module."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def machine(
    cores: int, matching: Matching, *, window: int = 0, ports: int | None = None, topology: Topology = Topology.CROSSBAR
) -> Machine:
    """Everything else is the default; a port of the host for each core if nothing is said."""
    host = Host(window=window, ports=ports or cores)
    return Machine(cores=cores, matching=matching, network=Network(topology=topology), host=host)


def figures(example: str, sizes: dict[str, Any], on: Machine, *, audit: bool = True) -> dict[str, Any]:
    """Those of ``stats.json`` of an example: see `figures_of`."""
    return figures_of((EXAMPLES / f"{example}.upl").read_text(encoding="utf-8"), sizes, on, audit=audit)


def figures_of(text: str, sizes: dict[str, Any], on: Machine, *, audit: bool = True) -> dict[str, Any]:
    """Those of ``stats.json`` of a program.  Ends with a message if the machine does, or if an output is not the
    interpreter's (or, with `audit`, not that of the recorded additions)."""
    job = Job(text, text, dict.fromkeys(upl.load(text, **sizes).inputs, RANDOM))
    outcome = run_task(job, Task(sizes, on, audit=audit))
    if outcome.stats is None:
        raise SystemExit(outcome.error)
    return outcome.stats
