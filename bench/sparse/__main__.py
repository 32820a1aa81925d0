"""The table: python -m bench.sparse [--without-token] [part of a row's name]..., all its rows into RESULTS.md.

Each figure is the least of many calls, taken in turns in one process, on one processor.  Results are compared.  C has no
checks of indices, ours has all of them.  Indices have 32 bits, in one row 64.  Peers that are not installed are left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import date

from bench.report import update
from bench.sparse import chains, products
from bench.sparse.measure import PEERS, Row, measured

WITHOUT = "--without-token"
NOTE = (
    "Where C is ahead by a tenth or more: gradients of messages and of Viterbi's score in some runs; a call of native code "
    "takes 1 µs, which counts for 512 rows. In PageRank scipy was given the links sorted, which "
    "is not timed; ours puts them in order in each call. `docs/native.md` says what limits the rows."
)


def rows() -> Iterator[Row]:
    """All lines, each made when it is wanted."""
    yield from products.rows()
    yield from chains.rows()


def main() -> None:
    """Print it."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    lines: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    load = " to ".join(f"{x:.1f}" for x in sorted(os.getloadavg()))
    command = " ".join(["python -m bench.sparse", *sys.argv[1:]])
    say(f"`{command}`, {date.today()}: the least of many calls of each, in turns{_priority()}, on one processor; results "
        f"are compared. C is by hand, without checks (gcc -O3 -march=native -ffast-math). Indices have 32 bits. "
        f"{os.cpu_count()} cores, load {load}. ≈: of a smaller problem, times its size.")  # fmt: skip
    say(f"\n| kernel | native, ms | C, ms | C by native | {', ms | '.join(PEERS)}, ms | token engine, ms |")
    say("|" + "---|" * (5 + len(PEERS)))
    parts = [a for a in sys.argv[1:] if a != WITHOUT]
    for row in rows():
        if not parts or any(part in row.name for part in parts):
            say(measured(row, token=WITHOUT not in sys.argv))
    if not parts:
        update("sparse", {"text": "\n".join([*lines, "", NOTE])})


def _priority() -> str:
    """How the process is scheduled, if not as others are."""
    return "" if os.sched_getscheduler(0) == os.SCHED_OTHER else ", at real-time priority (`chrt -r 1`)"


if __name__ == "__main__":
    main()
