"""The table: python -m bench.ranks [name]..., all of it into RESULTS.md (the extra `mpi`).

Two ranks beside one thread and two threads of native code, in turns, the least of each; one MPI job for a program.  The
bytes that were sent are compared with those that were computed.  A model (`model.py`) says what two ranks should take, and
what many would.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import date

from bench.ranks.cases import MEASURED
from bench.report import apart, update
from upl_mlir.engines.mpi.world import launcher

LIMIT_S = 900
"""Seconds for a program."""


def main(names: Sequence[str]) -> None:
    """Print the tables; without names they go into RESULTS.md."""
    lines: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    load = " to ".join(f"{x:.1f}" for x in sorted(os.getloadavg()))
    priority = "" if os.sched_getscheduler(0) == os.SCHED_OTHER else "; at real-time priority (`chrt -r 1`)"
    say(f"`python -m bench.ranks`, {date.today()}: two ranks on one machine, relaxed sums, whole arrays in and whole "
        f"results on each rank; the least of several, in turns, each after a call of its own{priority}. "
        f"{os.cpu_count()} cores, load {load}.")
    say("\n| program | one thread, ms | two threads, ms | two ranks, ms | one thread / two ranks | model / two ranks | "
        "bytes sent | computed |")  # fmt: skip
    say("|" + "---|" * 8)
    models: dict[str, tuple[float, dict[str, float | None]]] = {}
    for name in names or MEASURED:
        found = apart([launcher(), "-n", "2", sys.executable, "-m", "bench.ranks.worker", name], LIMIT_S)
        if isinstance(found, str):
            say(f"| {name} | {found} |" + " |" * 6)
            continue
        one, two, ranks = found["one"], found["two"], found["ranks"]
        models[name] = (one, found["model"])
        predicted = "–" if found["model"]["2"] is None else f"{found['model']['2'] / ranks:.2f}"
        say(f"| {name} | {1e3 * one:.3g} | {1e3 * two:.3g} | {1e3 * ranks:.3g} | {one / ranks:.2f} | {predicted} | "
            f"{found['sent']} | {found['computed']} |")  # fmt: skip
    if models:
        counts = list(next(iter(models.values()))[1])
        say("\nSpeed-ups over one thread **by the model, not measured**: a rank's work is measured with the blocks that "
            "it would have, on two ranks at once; messages cost what they cost between two ranks of this machine. –: more "
            "ranks than indices.")
        say(f"\n| program | {' | '.join(f'{n} ranks' for n in counts)} |")
        say("|" + "---|" * (len(counts) + 1))
        for name, (one, model) in models.items():
            cells = ["–" if (s := model[n]) is None else f"{one / s:.3g}" for n in counts]
            say(f"| {name} | {' | '.join(cells)} |")
    if not names:
        update("ranks", {"text": "\n".join(lines)})


if __name__ == "__main__":
    main(sys.argv[1:])
