"""The options of commands that show or write a derivative or a Jacobian: `--of`, `--wrt`, `--mode`, `--total`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from upl_mlir.tools.boundary import UsageError

if TYPE_CHECKING:
    from upl_mlir.api.programs import Program

BY = "by what: an input or NODE.input; may be repeated or a list A,B"
TOTAL = "derivatives along all paths, also where a port of --wrt depends on another; without it, the others are held fixed"


def add_arguments(p: argparse.ArgumentParser, *, required: bool = False) -> None:
    """The options; if they are not `required`, the command also takes a program without them."""
    of = "what to differentiate: an output or NODE.input" + ("" if required else "; without it `adjoint of` is expanded")
    p.add_argument("--of", required=required, metavar="PORT", help=of)
    p.add_argument("--wrt", required=required, action="append", default=[], metavar="PORT", help=BY)
    p.add_argument("--mode", choices=["reverse", "forward"], default="reverse",
                   help="reverse: d_R in (not where R is one number), d_W out; forward: t_W in, t_R out")  # fmt: skip
    p.add_argument("--total", action="store_true", help=TOTAL)


def add_jacobian_arguments(p: argparse.ArgumentParser) -> None:
    """The options of a Jacobian."""
    of = "what to differentiate: an output or NODE.input; may be repeated or a list A,B"
    p.add_argument("--of", required=True, action="append", default=[], metavar="PORT", help=of)
    p.add_argument("--wrt", required=True, action="append", default=[], metavar="PORT", help=BY)
    p.add_argument("--mode", choices=["auto", "reverse", "forward", "mixed"], default="auto",
                   help="reverse: a pass for each element of --of; forward: one for each element of --wrt; mixed: cut where "
                   "the program is narrow, if that needs fewer instances than either; auto: what needs fewest")  # fmt: skip
    p.add_argument("--total", action="store_true", help=TOTAL)
    p.add_argument("-o", dest="output", metavar="FILE", help="where to write; default: the standard output")


def ports(items: Iterable[str]) -> tuple[str, ...]:
    """The ports of an option that may be repeated, or have a list."""
    return tuple(port for item in items for port in item.split(","))


def wrt_of(args: argparse.Namespace) -> tuple[str, ...]:
    """The ports of `--wrt`.  Raises UsageError where one of the options stands without the other."""
    wrt = ports(args.wrt)
    if (args.of is None) != (not wrt):
        raise UsageError("--of and --wrt go together: give both, or neither to expand `adjoint of`")
    if args.total and not wrt:
        raise UsageError("--total goes with --of and --wrt; in a program, write `adjoint of R wrt total A, B`")
    return wrt


def derived(p: Program, args: argparse.Namespace) -> Program:
    """The program, or its derivative where the command line asks for it."""
    from upl_mlir.api.programs import jvp, reverse

    wrt = wrt_of(args)
    if args.of is None:
        return p
    return (jvp if args.mode == "forward" else reverse)(p, of=args.of, wrt=wrt, total=args.total)
