"""`upl wrap`: a program's circuit on a bus, as files for a system on a chip."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from upl_mlir.tools.boundary import UsageError, whole_file
from upl_mlir.tools.circuits import add_wishes, plan_of


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The options of the command, beside the FILE, which may be a circuit (`ppn`), too."""
    add_wishes(p)
    p.add_argument("--device", default="generic", metavar="NAME", help="generic (default), or ecp5 with its blocks")
    p.add_argument("--burst", type=int, metavar="N", help="words that pass at a time at most (default 16)")
    p.add_argument("--tile-of", action="append", default=[], metavar="ARRAY=MxN",
                   help="the array is a tile of one of this shape in memory; may be repeated")  # fmt: skip
    p.add_argument("-o", dest="output", required=True, metavar="DIR", help="the folder for upl_NAME.v, .h and .py")


def run(args: argparse.Namespace) -> int:
    """Write the files, all of them or none; returns the exit status."""
    from upl_mlir.hw.circuit.bus.files import wishbone_files
    from upl_mlir.hw.circuit.bus.layout import BURST, memory_of

    shapes = dict(map(_shape, args.tile_of))
    plan = plan_of(args)
    memory = memory_of(plan, BURST if args.burst is None else args.burst, shapes)
    texts = wishbone_files(plan, memory, args.device)
    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as files:
        for name, text in texts.items():
            files.enter_context(whole_file(folder / name)).write(text.encode("utf-8"))
    return 0


def _shape(item: str) -> tuple[str, tuple[int, ...]]:
    name, _, shape = item.partition("=")
    sizes = shape.split("x")
    if not name or not all(n.isascii() and n.isdigit() for n in sizes):
        raise UsageError(f"--tile-of {item}: expected ARRAY=MxN, as B=64x64")
    return name, tuple(map(int, sizes))
