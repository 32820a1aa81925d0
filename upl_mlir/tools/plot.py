"""`upl plot`: parallelism and waiting tokens of a recorded run."""

from __future__ import annotations

import argparse


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The options of the command."""
    p.add_argument("trace", metavar="T.json", help="a run, as `upl run --trace` writes it")
    p.add_argument("-o", dest="output", required=True, metavar="F.svg|F.png|F.pdf", help="where to write")
    p.add_argument("--debug", action="store_true", help="show the Python traceback of an error")


def run(args: argparse.Namespace) -> int:
    """Write the plot; returns the exit status."""
    from upl_mlir.observe.plots import save_plot
    from upl_mlir.observe.replay import load_trace

    save_plot(load_trace(args.trace), args.output)
    return 0
