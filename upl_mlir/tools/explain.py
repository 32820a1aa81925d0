"""`upl explain`: each arrow of a derivative next to the arrow that it comes from and its rule; what is kept, and why."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from upl_mlir.diagnostics import error
from upl_mlir.tools import derivatives

if TYPE_CHECKING:
    from upl_mlir.api.programs import Program
    from upl_mlir.observe.explain import Explanation, Row


def add_arguments(p: argparse.ArgumentParser) -> None:
    """The options of the command, besides those of every command on a program."""
    derivatives.add_arguments(p)
    p.add_argument("--json", action="store_true", help="the tables as JSON")
    p.add_argument("--distribute", action="store_true", help="how the program or its derivative is divided among ranks: "
                   "who owns what, what they send each other, and how many bytes that is")  # fmt: skip
    gathers = ["relaxed", "ordered"]
    p.add_argument("--gather", choices=gathers, default="relaxed", help="of --distribute: how sums are folded")


def run(p: Program, args: argparse.Namespace) -> int:
    """Print the tables; returns the exit status."""
    from upl_mlir.dialects.upl.query import span_of
    from upl_mlir.observe.explain import explain

    found = explain(derivatives.derived(p, args))
    if not found.arrows:
        raise error(
            "UPL1401", "explain: the program has no derivative", span_of(p.read()),
            help="give --of and --wrt, or write `adjoint of R wrt X` in the program",
        )  # fmt: skip
    print(json.dumps(dataclasses.asdict(found), indent=2, ensure_ascii=False) if args.json else text(found))
    return 0


def text(e: Explanation) -> str:
    """The tables in columns."""
    arrows = [("derivative", "comes from", "rule"), *((_arrow(r), r.primal or r.where, r.rule) for r in e.arrows)]
    kept = [("kept forward value", "for", "because"), *((f"{k.node}: {k.value}", k.target, k.why) for k in e.kept)]
    return "\n\n".join(columns(rows) for rows in (arrows, kept) if len(rows) > 1)


def _arrow(r: Row) -> str:
    condition = f"if {r.condition}:" if r.condition else ""
    loops = f"for {r.iterators}" if r.iterators else ""
    return " ".join(p for p in (f"{r.source}:", condition, r.value, r.count, f"-> {r.target}", loops) if p)


def columns(rows: Sequence[tuple[str, ...]]) -> str:
    """A table: the first row is its head."""
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    rows = [rows[0], tuple("-" * w for w in widths), *rows[1:]]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows)
