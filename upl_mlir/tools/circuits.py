"""`--circuit`: programs as circuits on the command line, proved by `upl check`, drawn by `upl draw` and `upl view`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from upl_mlir.tools.boundary import UsageError, definitions, whole_file, write_whole

if TYPE_CHECKING:
    from upl_mlir.passes.circuit.choose import Wish
    from upl_mlir.passes.circuit.plan import Plan
    from upl_mlir.passes.circuit.prove import Proof


SHARE = "gathers of many summands use one array of lanes in turn"
"""What the option `--share` says."""
REAL = "the type of its reals: f32 (default), f16, bf16, or fixed point as q4.14"


def add_arguments(p: argparse.ArgumentParser, what: str) -> None:
    """The options that ask for the circuit of a program; `what` says what is done with it."""
    p.add_argument("--circuit", action="store_true", help=f"{what}; FILE may be a circuit (`ppn`), too")
    add_wishes(p, "of --circuit: ")


def add_wishes(p: argparse.ArgumentParser, of: str = "") -> None:
    """The options that say which circuit; the help of each begins with `of`."""
    add_lanes(p, of)
    p.add_argument("--real", metavar="TYPE", help=f"{of}{REAL}")


def add_lanes(p: argparse.ArgumentParser, of: str, lanes: int | None = None) -> None:
    """The options for lanes and what they share; `lanes` is how many there are if none are asked for."""
    p.add_argument("--lanes", type=int, default=lanes, metavar="N", help=f"{of}instances at a time (default 1)")
    p.add_argument("--along", metavar="FIELD", help=f"{of}the field along which the lanes lie")
    p.add_argument("--share", action="store_true", help=f"{of}{SHARE}")


def given_wishes(args: argparse.Namespace) -> bool:
    """Whether one of these options is given."""
    return args.share or any(value is not None for value in (args.lanes, args.along, args.real))


def wanted(args: argparse.Namespace) -> bool:
    """Whether the command is about a circuit.  Raises UsageError for options that only a circuit has."""
    if not args.circuit and given_wishes(args):
        raise UsageError("--lanes, --along, --share and --real go with --circuit")
    return args.circuit


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan that a command line asks for.  Raises UplError."""
    from upl_mlir.api.circuits import circuit_plan

    return circuit_plan(Path(args.file), definitions(args.define), wish_of(args))


def wish_of(args: argparse.Namespace) -> Wish:
    """What the options ask for.  Raises UplError UPL2004."""
    from upl_mlir.passes.lower_to_circuit import wish

    lanes = 1 if args.lanes is None else args.lanes
    return wish(lanes, args.along, share=args.share, real=args.real or "f32")


def check(args: argparse.Namespace) -> int:
    """Print the proofs; returns the exit status."""
    from upl_mlir.passes.circuit.prove import proofs

    found = proofs(plan_of(args))
    print(as_json(found) if args.json else as_text(args.file, found))
    return 0 if all(p.holds for p in found) else 1


def draw(args: argparse.Namespace) -> int:
    """Write the picture; returns the exit status."""
    from upl_mlir.diagnostics import error
    from upl_mlir.picture.circuit import svg_of_circuit
    from upl_mlir.picture.pdf import pdf_of
    from upl_mlir.picture.png import png_of
    from upl_mlir.picture.style import Theme

    if args.width is not None:
        raise UsageError("--width does not go with --circuit")
    output: str = args.output or "-"
    suffix = ".svg" if output == "-" else Path(output).suffix
    if suffix not in (".svg", ".png", ".pdf"):
        raise error("UPL1805", f"a circuit is drawn as .svg, .png or .pdf, not as `{suffix}`")
    theme = Theme.LIGHT if suffix != ".svg" and args.theme == "auto" else Theme(args.theme)
    svg = svg_of_circuit(plan_of(args), theme)
    if suffix == ".svg":
        write_whole(output, svg)
    else:
        with whole_file(output) as stream:
            stream.write(png_of(svg) if suffix == ".png" else pdf_of(svg))
    return 0


def view(args: argparse.Namespace) -> int:
    """Write the page with picture and replay; returns the exit status."""
    from upl_mlir.observe.circuit_trace import values_of
    from upl_mlir.observe.replay import load_trace
    from upl_mlir.picture.circuit import title_of
    from upl_mlir.picture.circuit_page import circuit_page

    plan = plan_of(args)
    values = values_of(load_trace(args.trace), plan) if args.trace else {}
    write_whole(args.output, circuit_page(plan, f"{title_of(plan)} of {Path(args.file).name}", values))
    return 0


def as_text(file: str, found: Sequence[Proof]) -> str:
    """A line for each proof, and how many there are."""
    refuted = sum(not p.holds for p in found)
    end = f", {refuted} refuted" if refuted else ""
    return "\n".join([*map(str, found), f"{file}: {len(found) - refuted} proved{end}"])


def as_json(found: Sequence[Proof]) -> str:
    """The proofs as JSON."""
    rows = [asdict(p) | {"counterexample": None if p.holds else p.counterexample} for p in found]
    return json.dumps({"ok": all(p.holds for p in found), "proofs": rows}, indent=2, ensure_ascii=False)
