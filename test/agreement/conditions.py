"""The condition sweep: every kind of index condition, count and rearrangement, at every site, every way.

    PYTHONPATH=test python -m agreement.conditions [--sample N] [--only WORD] [--ways A;B] [--json FILE] [--jobs N]

Prints a table, class by way: how many programs are equal, refused (by code), WRONG, or ended in an exception that is no
diagnostic; then what failed, the smallest first.  The exit status is 1 if something failed.  What is looked at is a list in
`conditions_sites`; its order is mixed, so that a part of it is a fair sample.  The campaign "conditions" of `soak` goes
through it again and again, each time with other data.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from agreement.campaign import Failure, Tally
from agreement.conditions_cells import DEAR, EQUAL, UNNAMED, WAYS, WRONG, Cell, examine
from agreement.conditions_sites import Program, programs
from agreement.ledger import STARTS
from agreement.properties import Case

FIRST = STARTS["conditions"]
"""The seed of the first program with the first data."""


@cache
def everything() -> tuple[Program, ...]:
    """All programs, mixed."""
    out = list(programs())
    Random(1).shuffle(out)
    return tuple(out)


def looked_at(seed: int, ways: Sequence[str] = ()) -> list[Cell]:
    """The cells of a seed: the program with the number `seed` and, all having had their turn, other data."""
    turn, p = place(seed)
    return list(examine(p, ways or [w for w in WAYS if (seed + turn) % DEAR.get(w, 1) == 0], turn + 1))


def place(seed: int) -> tuple[int, Program]:
    """How often all programs have had their turn before a seed, and its program."""
    turn, number = divmod(seed - FIRST, len(everything()))
    return turn, everything()[number]


def sweep(seed: int, tally: Tally) -> None:
    """The campaign: what became of the cells of a seed, and what failed."""
    tally.reached["programs"] += 1
    for c in looked_at(seed):
        tally.reached[key(c)] += 1
        if c.bad:
            tally.reached["FAILED"] += 1
            case = Case(c.program.text, True, c.size or {}, seed)
            tally.failures.append(Failure("conditions", seed, f"{c.way}: {c.outcome} {c.detail}", case))


def key(cell: Cell) -> str:
    """A cell as the ledger counts it."""
    return f"conditions: {cell.way} | {cell.program.term.kind}: {cell.outcome}"


def text(c: Mapping[str, Any]) -> str:
    """A cell of `asdict` that failed, in full."""
    where = f" at {c['size']}" if c["size"] is not None else ""
    return f"{c['name']}\n{c['way']}: {c['outcome']}{where}: {c['detail']}\n{c['text']}"


def table(counts: Counter[str]) -> list[str]:
    """The lines of a Markdown table, class by way, from counts by `key`."""
    by: dict[tuple[str, str], Counter[str]] = {}
    for k, n in counts.items():
        head, _, outcome = k.removeprefix("conditions: ").rpartition(": ")
        if " | " in head:
            way, kind = head.split(" | ")
            by.setdefault((kind, way), Counter())[outcome] += n
    kinds = list(dict.fromkeys(k for k, _ in by))
    ways = [w for w in WAYS if any((k, w) in by for k in kinds)]
    out = ["| class | " + " | ".join(ways) + " |", "|---|" + "---|" * len(ways)]
    out += [f"| {k} | " + " | ".join(_short(by.get((k, w), Counter())) for w in ways) + " |" for k in sorted(kinds)]
    whole = [sum((c for (_, v), c in by.items() if v == w), Counter()) for w in ways]
    return [*out, "| **all** | " + " | ".join(map(_short, whole)) + " |"]


def _short(found: Counter[str]) -> str:
    """``12 =, 3 refused, **1 WRONG**``"""
    refused = sum(n for o, n in found.items() if o.startswith("refused"))
    parts = [f"{found[EQUAL]} ="] if found[EQUAL] else []
    parts += [f"{refused} refused"] if refused else []
    parts += [f"**{n} {o}**" for o, n in sorted(found.items()) if o != EQUAL and not o.startswith("refused")]
    return ", ".join(parts)


def refusals(counts: Counter[str]) -> list[str]:
    """The lines of a table: which codes refuse, how often, and how often without a part of the expression."""
    by = Counter[tuple[str, str, bool]]()
    for k, n in counts.items():
        head, _, outcome = k.removeprefix("conditions: ").rpartition(": ")
        if outcome.startswith("refused"):
            by[outcome.removeprefix("refused ").removesuffix(UNNAMED), head.split(" | ")[0], outcome.endswith(UNNAMED)] += n
    out = ["| code | way | refused | of these, not naming the expression |", "|---|---|---:|---:|"]
    for code, way in sorted({(c, w) for c, w, _ in by}):
        told, untold = by[code, way, False], by[code, way, True]
        out.append(f"| {code} | {way} | {told + untold} | {untold} |")
    return out


# -- the command ------------------------------------------------------------------------------------------------------
HANG_SECONDS = 240.0
WORKER = [sys.executable, "-m", "agreement.conditions", "--worker"]


def _part(seeds: Sequence[int], ways: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The cells of some seeds, looked at by a process; where it ends or hangs, that is a failure, and another goes on."""
    left = list(seeds)
    while left:
        command = [*WORKER, ",".join(map(str, left)), "--ways", ";".join(ways)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            watch = threading.Timer(HANG_SECONDS, child.kill)
            watch.start()
            for line in child.stdout or ():
                watch.cancel()
                found = json.loads(line)
                yield from found["cells"]
                left.remove(found["seed"])
                watch = threading.Timer(HANG_SECONDS, child.kill)
                watch.start()
            watch.cancel()
        if left:
            _, p = place(left.pop(0))
            yield asdict(Cell(p, "process", f"ended with {child.returncode}"))


def asdict(c: Cell) -> dict[str, Any]:
    """A cell as JSON has it."""
    return {
        "key": key(c), "way": c.way, "class": c.program.term.kind, "name": c.program.name, "outcome": c.outcome,
        "bad": c.bad, "size": c.size and dict(c.size), "detail": c.detail, "text": c.program.text,
    }  # fmt: skip


def _worker(seeds: Sequence[int], ways: Sequence[str]) -> None:
    from agreement.soak import keep_no_programs

    keep_no_programs()
    for seed in seeds:
        print(json.dumps({"seed": seed, "cells": [asdict(c) for c in looked_at(seed, ways)]}), flush=True)


def main(argv: list[str]) -> int:
    """Run; the exit status is 1 if something failed."""
    options = argparse.ArgumentParser(prog="conditions", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--sample", type=int, default=sys.maxsize, help="so many programs (all by default)")
    options.add_argument("--only", default="", help="programs whose name or class has this word")
    options.add_argument("--ways", default="", help="these, with ; between: " + "; ".join(WAYS))
    options.add_argument("--json", type=Path, help="where to write all cells to")
    options.add_argument("--jobs", type=int, default=1, help="processes at a time (default 1)")
    options.add_argument("--show", type=int, default=20, help="how many failures to print (default 20)")
    options.add_argument("--worker", help=argparse.SUPPRESS)
    given = options.parse_args(argv)
    ways = tuple(w.strip() for w in given.ways.split(";") if w.strip())
    if unknown := [w for w in ways if w not in WAYS]:
        options.error(f"no such way: {', '.join(unknown)}")
    if given.worker:
        _worker([int(s) for s in given.worker.split(",")], ways)
        return 0
    chosen = [
        FIRST + n for n, p in enumerate(everything()) if given.only in p.name or given.only in p.term.kind
    ][: given.sample]  # fmt: skip
    with ThreadPoolExecutor(given.jobs) as pool:
        parts = list(pool.map(lambda k: list(_part(chosen[k :: given.jobs], ways)), range(given.jobs)))
    found = [c for part in parts for c in part]
    counts = Counter(c["key"] for c in found)
    print("\n".join([f"{len(chosen)} programs, {len(found)} cells", "", *table(counts), "", *refusals(counts)]))
    bad = sorted((c for c in found if c["bad"]), key=lambda c: len(c["text"]))
    for c in bad[: given.show]:
        print(f"\n{text(c)}")
    print(f"\n{sum(c['outcome'] == WRONG for c in bad)} wrong, {len(bad)} failed in all")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
