"""What a store smaller than the program's peak costs: python -m bench.stores

For each program the most records that wait with room for all of them, and cycles at 1, 1/2, 1/4 and 1/8 of that: the store
alone; with the window that is proved to fit (`[host] fit`); and of the product with a field in strips (`--strip-mine`), too.
Outputs are compared with the interpreter's, and with the re-execution of the recorded additions; where cycles go is added up
and compared with the cycles.  Cycles do not depend on the computer.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

import upl_mlir as upl
from bench.example_run import EXAMPLES, figures_of, machine, parser
from upl_mlir.hw.machine import Machine, Matching
from upl_mlir.passes.strip_mine import strip_mine

PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "training": ("training", {"D": 32}),
    "mini-batch": ("iris_batch", {"D": 16}),
    "matmul": ("matmul", {"m": 12, "n": 12, "r": 12}),
}
PARTS = (1, 2, 4, 8)
ROOM = 8192
"""Records for which every program has room."""
STRIPS = {1: 6, 2: 4, 4: 2, 8: 1}
"""Rows of the first matrix in a strip, by the part of the peak that the store has: 12 records a row, with some room."""


def store(records: int) -> Matching:
    """The largest store of 4 to 8 ways with so many records at most."""
    size, ways = max((ways << k, -ways) for ways in range(4, 9) for k in range(13) if ways << k <= records)
    return Matching(capacity=size, ways=-ways, spill_capacity=4096, queue_capacity=4096)


def throttled(records: int, **host: Any) -> Machine:
    """One core whose host has these settings."""
    m = machine(1, store(records))
    return msgspec.structs.replace(m, host=msgspec.structs.replace(m.host, **host))


def text_of(example: str) -> str:
    """The program."""
    return (EXAMPLES / f"{example}.upl").read_text(encoding="utf-8")


def in_strips(text: str, rows: int) -> str:
    """The product, so many rows of the first matrix at a time."""
    p = upl.load(text).expanded().infer_domains()
    strip_mine(p.op, "Mul", "i", rows, "t")
    return str(p)


def cell(stats: dict[str, Any], first: int) -> str:
    """Cycles, how many times the first ones, records that waited and went to backing memory, the window and its bound."""
    for unit, causes in stats["attribution"].items():
        assert sum(causes.values()) == stats["cycles"], unit
    said = stats.get("throttle", {})
    window = f"; {said['window']} {said['along']}, {said['joins']}+{said['gathers']} proved" if said.get("joins") else ""
    return f"{stats['cycles']:,} = {stats['cycles'] / first:.2f} ({stats['peak_waiting']:,}; {stats['spills']:,}{window})"


def main() -> int:
    """Print the table as Markdown."""
    p = parser(__doc__)
    p.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    args = p.parse_args()
    print("| program | store | alone | fit | in strips |\n|---|---|---|---|---|")
    for name in args.programs:
        example, sizes = PROGRAMS[name]
        text = text_of(example)
        whole = figures_of(text, sizes, throttled(ROOM))
        peak, first = whole["peak_waiting"], whole["cycles"]
        for part in PARTS:
            records = peak // part
            cells = [f"`{name}`, {peak:,} at most" if part == 1 else "", f"1/{part}: {store(records).entries}"]
            cells.append(cell(figures_of(text, sizes, throttled(records)), first))
            cells.append(cell(figures_of(text, sizes, throttled(records, fit=True)), first))
            strips = throttled(records, window=1, along="t")
            cells.append(cell(figures_of(in_strips(text, STRIPS[part]), sizes, strips), first) if name == "matmul" else "–")
            print("| " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
