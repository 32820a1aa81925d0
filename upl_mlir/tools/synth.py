"""`upl synth`: area and clock of a machine, or of a program's circuit, by open synthesis tools."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from upl_mlir.tools.boundary import UsageError, definitions, write_whole
from upl_mlir.tools.circuits import add_wishes, given_wishes, wish_of

if TYPE_CHECKING:
    from upl_mlir.hw.synth.circuits import CircuitFigures
    from upl_mlir.hw.synth.figures import Figures
    from upl_mlir.hw.synth.tools import Say


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The options of the command."""
    p.add_argument("file", metavar="FILE", nargs="?",
                   help="a program that has to fit on the machine (may be left out), or that becomes a circuit")  # fmt: skip
    p.add_argument("-D", dest="define", action="append", default=[], metavar="NAME=VALUE",
                   help="bind a parameter of the program or override a constant")  # fmt: skip
    p.add_argument("--machine", metavar="M.toml", help="machine description; default: the default machine")
    p.add_argument("--circuit", action="store_true", help="the circuit of FILE in place of a machine")
    add_wishes(p, "of a circuit: ")
    p.add_argument("--place", action="store_true", help="the clock, too: a core is placed and its clock estimated (some "
                   "minutes), a circuit is placed and routed (minutes for each seed)")  # fmt: skip
    p.add_argument("--nextpnr", action="store_true", help="place and route a core, too (an hour or more)")
    p.add_argument("--seeds", type=int, default=3, metavar="N",
                   help="placements of a circuit, of which the worst counts (default 3)")  # fmt: skip
    p.add_argument("--json", action="store_true", help="the figures as JSON")
    p.add_argument("-q", "--quiet", action="store_true", help="do not say what is being done")
    p.add_argument("-o", dest="output", metavar="FILE", help="where to write; default: the standard output")
    p.add_argument("--debug", action="store_true", help="show the Python traceback of an error")


def run(args: argparse.Namespace) -> int:
    """Synthesise and print; returns the exit status."""
    if args.circuit:
        found = _circuit(args)
        shown = circuit_text(found)
    else:
        found = _machine(args)
        shown = text(found)
    write_whole(args.output, json.dumps(found.to_dict(), indent=2) + "\n" if args.json else shown)
    return 0


def _machine(args: argparse.Namespace) -> Figures:
    from upl_mlir.hw.machine import Machine, load_machine
    from upl_mlir.hw.synth.ecp5 import Clock
    from upl_mlir.hw.synth.figures import figures

    if given_wishes(args):
        raise UsageError("--lanes, --along, --share and --real are of circuits: expected --circuit")
    clock = Clock.ROUTED if args.nextpnr else Clock.PLACED if args.place else None
    machine = load_machine(args.machine) if args.machine else Machine()
    if args.file:
        _fits(args)
    with progress(args.quiet) as say:
        return figures(machine, clock=clock, say=say)


def _circuit(args: argparse.Namespace) -> CircuitFigures:
    from pathlib import Path

    from upl_mlir.api.programs import load
    from upl_mlir.hw.synth.circuits import circuit_figures
    from upl_mlir.passes.lower_to_circuit import planned_circuit

    if not args.file:
        raise UsageError("--circuit: expected the FILE of a program")
    if args.machine:
        raise UsageError("--machine is not of circuits, which are machines of their own")
    if args.seeds < 1:
        raise UsageError(f"--seeds {args.seeds}: expected 1 or more")
    program = load(Path(args.file), **definitions(args.define)).expanded().infer_domains()
    with program.errors():
        loops, plan = planned_circuit(program.module.clone(), {}, wish_of(args))
    seeds = range(1, args.seeds + 1) if args.place or args.nextpnr else ()
    with progress(args.quiet) as say:
        return circuit_figures(loops.name, plan, seeds=seeds, say=say)


@contextmanager
def progress(quiet: bool = False) -> Generator[Say]:
    """What is being done: on a terminal a line that changes, with the seconds so far; in a log one line for each tool and
    part."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, quiet=quiet)
    last = ""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet) as bars:
        task = bars.add_task("synthesis", total=None)

        def say(what: str) -> None:
            nonlocal last
            if quiet:
                return
            bars.update(task, description=what)
            part = what.partition(":")[0] + what.partition(":")[2].partition(":")[0]
            if not console.is_terminal and part != last:
                print(what, file=sys.stderr, flush=True)
                last = part

        yield say


def _fits(args: argparse.Namespace) -> None:
    """Lower the program for the machine: what does not fit is an error before the long work begins."""
    from pathlib import Path

    from upl_mlir.api.programs import load
    from upl_mlir.engines.rtl.engine import RtlEngine

    program = load(Path(args.file), **definitions(args.define)).expanded()
    with program.errors():
        RtlEngine(program.module, {}, machine=args.machine)


_COLUMNS = ("part", "number", "LUT sites", "LUT4", "carry", "LUT RAM", "FF", "block RAM", "multipliers", "MHz")
_KEYS = ("luts", "lut4", "carry", "lut_ram", "ff", "block_ram", "dsp", "fmax_mhz")


def text(found: Figures) -> str:
    """The figures as a table, and where flip-flops, block RAMs and multipliers are."""
    from upl_mlir.hw.synth.ecp5 import Clock

    data = found.to_dict()
    rows = [[p["name"], p["count"], *(p[k] for k in _KEYS)] for p in data["parts"]]
    rows.append(["composed", "", *(data["composed"][k] for k in _KEYS)])
    table: list[list[str]] = [list(_COLUMNS), *([_cell(c) for c in row] for row in rows)]
    lines = [f"{found.machine}: {found.device}, {', '.join(found.tools)}", *_table(table)]
    if any(p["clock"] == Clock.PLACED.value for p in data["parts"]):
        lines.append("MHz: after placement, the delays of wires estimated from their lengths")
    for p in data["parts"]:
        lines += ["", f"{p['name']}: where its flip-flops, block RAMs and multipliers are", *_units(p["units"])]
    return "\n".join([*lines, ""])


def circuit_text(found: CircuitFigures) -> str:
    """The figures of a circuit as a table, its clocks, and where flip-flops, block RAMs and multipliers are."""
    area = [getattr(found.area, k) for k in _KEYS[:-1]]
    rows = [["circuit", "lanes", "units", *_COLUMNS[2:]],
            [found.name, *(_cell(v) for v in (found.lanes, found.units, *area, found.fmax_mhz))]]  # fmt: skip
    lines = [f"{found.name}: {found.device}, {', '.join(found.tools)}", *_table(rows), "units: those of floating point"]
    if found.timings:
        seeds = ", ".join(f"{t.fmax_mhz:.1f} with seed {seed}" for seed, t in found.timings.items())
        lines.append(f"MHz: placed and routed, the worst of {seeds}")
    lanes: dict[str, Counter[str]] = {}
    for name, counts in found.area.units.items():
        lanes.setdefault(re.sub(r"^lane_\d+", "lane_*", name), Counter()).update(counts)
    lines += ["", "where its flip-flops, block RAMs and multipliers are, lanes added up", *_units(lanes)]
    return "\n".join([*lines, ""])


def _units(units: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A table of the units that have something to show."""
    shown = {u: c for u, c in units.items() if c.get("block_ram") or c.get("dsp") or c.get("ff", 0) >= 100}
    return _table([["unit", "FF", "block RAM", "multipliers"],
                   *([u, *(_cell(c.get(k, 0)) for k in ("ff", "block_ram", "dsp"))] for u, c in shown.items())])  # fmt: skip


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return ["  ".join(c.ljust(w) if n == 0 else c.rjust(w) for n, (c, w) in enumerate(zip(row, widths, strict=True)))
            for row in rows]  # fmt: skip
