# pyright: reportPrivateUsage=false
"""What the checks of a run cost (`python -m bench.sparse.checks [part of a row's name]...`).

The rows of the table once more, by processes in turns: as they are, and without what notes that a token is left over, comes
twice or never.  Loads stay guarded in both, as an index out of bounds must not be read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from bench.sparse.measure import Row, least

TURNS = 4


def without_checks() -> None:
    """Compile programs from now on such that nothing is noted, nor counted for it."""
    from upl_mlir.passes.loops.terms import Fold, inner_first, made_of
    from upl_mlir.passes.loops.transform import unread
    from upl_mlir.passes.predicate.faults import Faults

    def nothing(*given: object, **named: object) -> None:
        del given, named

    Faults.note = nothing
    unread._may_go = lambda term: any(isinstance(t, Fold) for t in inner_first(term, made_of))


def rows(parts: list[str]) -> Iterator[Row]:
    """Those whose names have one of the parts; all, if none is given."""
    from bench.sparse.__main__ import rows as all_rows

    yield from (row for row in all_rows() if not parts or any(part in row.name for part in parts))


def times(parts: list[str]) -> dict[str, float]:
    """Milliseconds of the fastest call of each row."""
    found: dict[str, float] = {}
    for row in rows(parts):
        row.ours()
        found |= least({row.name: row.ours})
    return found


def child(what: str, parts: list[str], cache: str) -> dict[str, float]:
    """The times of a process of its own, whose cache no other kind of code gets into."""
    command = [sys.executable, "-m", "bench.sparse.checks", what, *parts]
    done = subprocess.run(command, env={**os.environ, "UPL_CACHE_DIR": cache}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print the table."""
    given = sys.argv[1:]
    if given and given[0] in ("--with", "--without"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        if given[0] == "--without":
            without_checks()
        print(json.dumps(times(given[1:])))
        return
    found: dict[str, list[dict[str, float]]] = {"--with": [], "--without": []}
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        for _ in range(TURNS):
            for what, cache in (("--with", one), ("--without", other)):
                found[what].append(child(what, given, cache))
    print("| kernel | with checks, ms | without, ms | cost |\n|---|---|---|---|")
    for name in found["--with"][0]:
        a, b = (min(turn[name] for turn in found[what]) for what in ("--with", "--without"))
        print(f"| {name.strip()} | {a:.3g} | {b:.3g} | {100 * (a / b - 1):+.0f} % |")


if __name__ == "__main__":
    main()
