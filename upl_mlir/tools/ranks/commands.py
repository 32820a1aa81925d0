"""Programs for several ranks: `upl run --ranks` and `--engine mpi`, `upl explain --distribute`, `upl check --ranks`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

from upl_mlir.diagnostics import Diagnostic, UplError
from upl_mlir.engines.names import EngineName
from upl_mlir.tools.boundary import UsageError, describe_exception
from upl_mlir.tools.explain import columns
from upl_mlir.tools.terminal.colour import complain

if TYPE_CHECKING:
    from upl_mlir.api.programs import Program
    from upl_mlir.passes.distribute.report import Report
    from upl_mlir.passes.distribute.schedule import Distributed


WAIT_S = 2.0
"""So long a rank that failed waits for the others to fail in the same way, before it ends them. Chosen: errors that all
ranks find come within milliseconds of each other."""


def start(args: argparse.Namespace) -> int:
    """`upl run --ranks N`: the same command with `--engine mpi` on N ranks; returns the exit status."""
    from upl_mlir.engines.mpi.world import start

    if args.engine not in (EngineName.INTERP, EngineName.MPI):
        raise UsageError(f"--ranks is of the engine mpi; --engine {args.engine} runs in one process")
    for option in ("why", "trace", "vcd", "breaks"):
        if getattr(args, option):
            raise UsageError(f"--{option.removesuffix('s')} runs in one process: leave out --ranks")
    return start(args.ranks, [*without(args.argv, ("--ranks", "--engine")), "--engine", "mpi"])


def without(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """Arguments without some options, each with its value."""
    out: list[str] = []
    rest = iter(arguments)
    for a in rest:
        if a in options:
            next(rest, None)
        elif a.partition("=")[0] not in options:
            out.append(a)
    return out


def alike(body: Callable[[], int]) -> int:
    """Run on each rank: what is printed and written is the first rank's.

    An error that all ranks find is told once.  One that some find ends all of them: the others may wait for a message that
    never comes.
    """
    from upl_mlir.engines.mpi.world import world

    comm = world()
    apart = comm.Dup()  # the other communicator may be in the middle of an exchange
    first = comm.Get_rank() == 0
    printed = nullcontext() if first else redirect_stdout(StringIO())
    try:
        with printed:
            return body()
    except Exception as e:
        together = apart.Ibarrier()
        end = time.monotonic() + WAIT_S
        while not together.Test() and time.monotonic() < end:
            time.sleep(0.01)
        if together.Test():
            if first:
                raise
            return 1
        complain(f"rank {comm.Get_rank()}: {describe_exception(e)}")
        sys.stderr.flush()
        comm.Abort(1)
        raise


def explain(p: Program, args: argparse.Namespace) -> int:
    """Print the owner maps, the exchanges and their bytes; returns the exit status."""
    from upl_mlir.passes.distribute.report import report

    with p.errors():
        found = report(_distributed(p, args.gather))
    print(json.dumps(dataclasses.asdict(found), indent=2, ensure_ascii=False) if args.json else text(found))
    return 0


def text(r: Report) -> str:
    """The tables in columns."""
    owners = [("array", "owner", "of"), *((o.array, o.map, o.divided) for o in r.owners)]
    parts = [columns(owners)]
    if r.whole:
        parts.append(f"every rank computes: {', '.join(r.whole)}")
    if r.inputs:
        parts.append(f"a rank reads its own block only of the inputs {', '.join(r.inputs)}")
    rows = [("needed of other ranks", "when", "by", "at", "kind", "bytes that a rank receives")]
    for row in r.rows:
        for n, (read, place, kind) in enumerate(row.reads):
            first = n == 0
            rows.append(
                (row.box if first else "", row.each if first else "", read, place, kind, (row.bytes or "?") if first else "")
            )
    parts.append(columns(rows) if r.rows else "the ranks need nothing of each other")
    if r.given_up:
        parts.append("\n".join(["not cut:", *(f"  {line}" for line in r.given_up)]))
    return "\n\n".join(parts)


def check(p: Program) -> str:
    """A line that says what is proved.

    Raises UplError: UPL2102 with a point where a rank has not what it reads, UPL2101 if there is no distribution."""
    from upl_mlir.passes.distribute.report import proofs

    with p.errors():
        d = _distributed(p, "relaxed")
        if wrong := proofs(d):
            places = d.program.places
            raise UplError(
                *(Diagnostic("UPL2102", str(f), places.get(f.statement.array) if f.statement else None) for f in wrong[:3])
            )
    reads = sum(len(x.needs) for x in d.exchanges)
    return (
        "ranks: proved for any number of ranks and any blocks: every rank owns or has received what it reads "
        f"({len(d.exchanges)} {'exchange' if len(d.exchanges) == 1 else 'exchanges'} for "
        f"{reads} {'read' if reads == 1 else 'reads'})"
    )


def _distributed(p: Program, gather: str) -> Distributed:
    from upl_mlir.passes.distribute.schedule import distribute
    from upl_mlir.passes.schedule import prepared

    return distribute(prepared(p.module.clone(), "f64", gather), gather=gather, proved=False)
