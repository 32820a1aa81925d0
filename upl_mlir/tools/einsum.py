"""`upl einsum`: an einsum case as a UPL program, as the program of its gradient, or as C++; and the way back."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from upl_mlir.tools.boundary import UsageError, definitions, write_whole


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The command's options."""
    p.add_argument("file", metavar="CASE.json", help="the case; with --recognise a program, .upl or .mlir")
    p.add_argument("--grad", action="store_true", help="the gradients by `grad_to`, from d<out>")
    p.add_argument("-t", "--target", choices=["upl", "mlir", "c"], default="upl", help="what to write (default upl)")
    p.add_argument("--gather", choices=["ordered", "relaxed"], default="ordered",
                   help="of -t c: may products and sums be contracted (default ordered: no)")  # fmt: skip
    p.add_argument("--recognise", action="store_true", help="print a program of the affine class as an einsum case")
    p.add_argument("-D", dest="define", action="append", default=[], metavar="NAME=VALUE",
                   help="with --recognise: bind a parameter or override a constant")  # fmt: skip
    p.add_argument("-o", dest="output", metavar="FILE", help="where to write; default: the standard output")
    p.add_argument("--debug", action="store_true", help="show the Python traceback of an error")


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    write_whole(args.output, _recognised(args) if args.recognise else _written(args))
    return 0


def _written(args: argparse.Namespace) -> str:
    from upl_mlir.frontend import einsum

    if args.define:
        raise UsageError("-D belongs to --recognise: the sizes of a case are in its kernel")
    loaded = einsum.read(Path(args.file))
    if args.target == "c":
        return einsum.cpp_of(loaded, grad=args.grad, ordered=args.gather == "ordered")
    program = loaded.gradient().program if args.grad else loaded.program()
    return str(program) if args.target == "upl" else f"{program.to_mlir()}\n"


def _recognised(args: argparse.Namespace) -> str:
    import msgspec

    from upl_mlir.api.programs import load
    from upl_mlir.frontend.einsum import recognise

    if args.grad:
        raise UsageError("--recognise takes a program: differentiate it first, with `upl grad`")
    case = recognise(load(Path(args.file), **definitions(args.define)))
    return json.dumps(msgspec.to_builtins(case), indent=2, ensure_ascii=False) + "\n"
