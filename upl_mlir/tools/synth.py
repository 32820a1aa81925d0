"""`upl synth`: area and clock of a machine, by open synthesis tools."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from upl_mlir.tools.boundary import definitions, write_whole

if TYPE_CHECKING:
    from upl_mlir.hw.synth.figures import Figures


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The options of the command."""
    p.add_argument("file", metavar="FILE", nargs="?", help="a program that has to fit on the machine; may be left out")
    p.add_argument("-D", dest="define", action="append", default=[], metavar="NAME=VALUE",
                   help="bind a parameter of the program or override a constant")  # fmt: skip
    p.add_argument("--machine", metavar="M.toml", help="machine description; default: the default machine")
    p.add_argument("--place", action="store_true", help="place too, for an estimate of the clock (some minutes a core)")
    p.add_argument("--nextpnr", action="store_true", help="place and route too, for the clock (an hour or more a core)")
    p.add_argument("--json", action="store_true", help="the figures as JSON")
    p.add_argument("-o", dest="output", metavar="FILE", help="where to write; default: the standard output")
    p.add_argument("--debug", action="store_true", help="show the Python traceback of an error")


def run(args: argparse.Namespace) -> int:
    """Synthesise and print; returns the exit status."""
    from rich.console import Console

    from upl_mlir.hw.machine import Machine, load_machine
    from upl_mlir.hw.synth.ecp5 import Clock
    from upl_mlir.hw.synth.figures import figures

    clock = Clock.ROUTED if args.nextpnr else Clock.PLACED if args.place else None
    machine = load_machine(args.machine) if args.machine else Machine()
    if args.file:
        _fits(args)
    console = Console(stderr=True)
    with console.status("synthesis") as status:
        last = ""

        def say(what: str) -> None:
            nonlocal last
            status.update(what)
            part = what.partition(":")[0] + what.partition(":")[2].partition(":")[0]
            if not console.is_terminal and part != last:  # a log: one line for each tool and part
                print(what, file=sys.stderr, flush=True)
                last = part

        found = figures(machine, clock=clock, say=say)
    if args.json:
        write_whole(args.output, json.dumps(found.to_dict(), indent=2) + "\n")
    else:
        write_whole(args.output, text(found))
    return 0


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
        units = {u: c for u, c in p["units"].items() if c.get("block_ram") or c.get("dsp") or c.get("ff", 0) >= 100}
        lines += ["", f"{p['name']}: where its flip-flops, block RAMs and multipliers are"]
        lines += _table([["unit", "FF", "block RAM", "multipliers"],
                         *([u, *(_cell(c.get(k, 0)) for k in ("ff", "block_ram", "dsp"))] for u, c in units.items())])
    return "\n".join([*lines, ""])


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return ["  ".join(c.ljust(w) if n == 0 else c.rjust(w) for n, (c, w) in enumerate(zip(row, widths, strict=True)))
            for row in rows]  # fmt: skip
