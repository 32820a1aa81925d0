"""`upl draw`: the picture of a program in UPL's notation."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from upl_mlir.tools import derivatives

if TYPE_CHECKING:
    from upl_mlir.api.programs import Program


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The options of the command, besides those of every command on a program."""
    p.add_argument("-o", dest="output", metavar="F.svg|F.png|F.pdf|F.dot", help="where to write; default: SVG, printed")
    p.add_argument("--theme", choices=["auto", "light", "dark"], default="auto",
                   help="colours; auto follows the reader's system")  # fmt: skip
    p.add_argument("--width", type=int, metavar="PX", help="draw in rows, at most so many pixels wide if possible")
    derivatives.add_arguments(p)
    p.add_argument("--unroll", action="store_true", help="the instances of each node, as a grid by their fields, at the "
                   "sizes of -D (.svg, .png, .pdf, or .html with the replay)")  # fmt: skip
    p.add_argument("--colour", choices=["time", "core", "store", "critical"], default="time", help="of --unroll: when they "
                   "fire, on which core, how long their tokens wait in the store, the longest chain")  # fmt: skip
    p.add_argument("--trace", metavar="T.json", help="of --unroll: a run, as `upl run --trace` writes it")


def run(p: Program, args: argparse.Namespace) -> int:
    """Write the picture; returns the exit status."""
    from upl_mlir.api.drawing import draw
    from upl_mlir.tools.boundary import UsageError, whole_file

    if args.unroll:
        if args.width is not None:
            raise UsageError("--width does not go with --unroll")
        return _unroll(derivatives.derived(p, args), args)
    if args.trace is not None:
        raise UsageError("--trace goes with --unroll; `upl view` replays it on the program's picture")
    drawing = draw(derivatives.derived(p, args), theme=args.theme, width=args.width)
    if args.output in (None, "-"):
        sys.stdout.write(drawing.svg())
        return 0
    suffix = Path(args.output).suffix
    if args.width is not None and suffix == ".dot":
        raise UsageError("--width does not go with a .dot file: Graphviz lays it out")
    data = drawing.encoded(suffix)
    with whole_file(args.output) as stream:
        stream.write(data)
    return 0


def _unroll(p: Program, args: argparse.Namespace) -> int:
    """Write the picture of the instances; returns the exit status."""
    from upl_mlir.diagnostics import error
    from upl_mlir.observe.replay import load_trace
    from upl_mlir.observe.unroll import require_colour, unrolled
    from upl_mlir.picture.pdf import pdf_of
    from upl_mlir.picture.png import png_of
    from upl_mlir.picture.style import Theme
    from upl_mlir.picture.unrolled import page_of_unrolled, svg_of_unrolled
    from upl_mlir.tools.boundary import whole_file

    found = unrolled(p, load_trace(args.trace) if args.trace else None)
    require_colour(found, args.colour)
    theme = Theme(args.theme)
    if args.output in (None, "-"):
        sys.stdout.write(svg_of_unrolled(found, args.colour, theme))
        return 0
    match Path(args.output).suffix:
        case ".svg":
            data = svg_of_unrolled(found, args.colour, theme).encode()
        case ".png" | ".pdf" as suffix:
            svg = svg_of_unrolled(found, args.colour, Theme.LIGHT if theme is Theme.AUTO else theme)
            data = png_of(svg) if suffix == ".png" else pdf_of(svg)
        case ".html":
            data = page_of_unrolled(found, args.colour).encode()
        case suffix:
            raise error("UPL1805", f"a picture of instances has no form `{suffix}`", help="write .svg, .png, .pdf or .html")
    with whole_file(args.output) as stream:
        stream.write(data)
    return 0
