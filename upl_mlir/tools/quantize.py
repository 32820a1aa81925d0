"""`upl quantize`: the small type that a program needs, and what it loses against f64."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from upl_mlir.tools.boundary import UsageError

if TYPE_CHECKING:
    from upl_mlir.api.program import Program
    from upl_mlir.api.quantize import Quantization


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The options of the command."""
    p.add_argument("file", metavar="FILE", help="a program")
    p.add_argument("-D", dest="define", action="append", default=[], metavar="NAME=VALUE",
                   help="bind a parameter of the program or override a constant")  # fmt: skip
    p.add_argument("--input", action="append", default=[], metavar="NAME=VALUE",
                   help="an array: a .npy or .npz file, a number or a JSON list; or all at once: DATA.npz")  # fmt: skip
    p.add_argument("--range", action="append", default=[], metavar="NAME=LOW..HIGH",
                   help="what an input lies in; default: the range of its array")  # fmt: skip
    p.add_argument("--widths", default="", metavar="W,W,…", help="bits of fixed point to try (default 8,12,16,18,24,32)")
    p.add_argument("--error", default="1%", metavar="E", help="how far an output may be off, as a part of its greatest "
                   "number (default 1%%)")  # fmt: skip
    p.add_argument("--json", action="store_true", help="the findings as JSON")
    p.add_argument("--debug", action="store_true", help="show the Python traceback of an error")


def run(args: argparse.Namespace, p: Program, arrays: Mapping[str, Any]) -> int:
    """Print what was found; the exit status is 1 if no type is within the error."""
    from upl_mlir.api.quantize import WIDTHS, quantize

    widths = tuple(int(_number(w, "--widths")) for w in args.widths.split(",")) if args.widths else WIDTHS
    percent = args.error.endswith("%")
    error = _number(args.error.removesuffix("%"), "--error") / (100 if percent else 1)
    ranges = dict(_range(text) for text in args.range)
    params = {n: v for n, v in arrays.items() if n in p.params}
    given = {n: v for n, v in arrays.items() if n not in params}
    found = quantize(p, given, widths=widths, error=error, ranges=ranges, **params)
    print(json.dumps(asdict(found), indent=2) if args.json else as_text(found))
    return 0 if found.chosen is not None else 1


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{option}: `{text}` is no number") from None


def _range(text: str) -> tuple[str, tuple[float, float]]:
    name, equals, both = text.partition("=")
    low, dots, high = both.partition("..")
    if not (equals and dots):
        raise UsageError(f"--range {text}: expected NAME=LOW..HIGH, such as X=-1..1")
    return name, (_number(low, "--range"), _number(high, "--range"))


def as_text(found: Quantization) -> str:
    """Ranges, the choice, and a row for each type."""
    proved = found.proved
    lines = [f"results on these data: {found.seen[0]:.6g} to {found.seen[1]:.6g}"]
    if isinstance(proved, str):
        lines.append(f"for all inputs in their ranges: not known ({proved})")
    else:
        lines.append(f"for all inputs in their ranges: {proved[0]:.6g} to {proved[1]:.6g} (intervals)")
    how = "proved: nothing saturates" if found.by_proof else "one more than the data need, not proved"
    lines.append(f"bits before the point: {found.integer} ({how})")
    outputs = [x.output for x in found.tried[0].losses] if found.tried else []
    rows = [["type", "bits", *(f"{n}: error" for n in outputs), *(f"{n}: part" for n in outputs)]]
    for t in found.tried:
        off = [*(f"{x.absolute:.3g}" for x in t.losses), *(f"{x.relative:.2%}" for x in t.losses)]
        rows.append([t.real, str(t.bits), *off])
    wide = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
    lines += ["  ".join(cell.ljust(n) for cell, n in zip(r, wide, strict=True)).rstrip() for r in rows]
    within = f"within {found.error:.3g} of each output's greatest number"
    lines.append(f"--real {found.chosen}: the narrowest one {within}" if found.chosen else f"no type is {within}")
    return "\n".join(lines)
