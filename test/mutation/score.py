"""The mutation score: a fixed random sample of small changes, each against the tests that execute the changed line.

    PYTHONPATH=test python -m mutation.covered                    which tests those are, once
    PYTHONPATH=test python -m mutation.score --minutes 30         goes on where it stopped; results in ``score.json``

The sample is in random order, so that the share caught of its first part is an estimate for all of it.  A change that alters
nothing that anybody can see (a bound on effort, the order of a list that is sorted later) counts as missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from itertools import accumulate
from pathlib import Path
from typing import Any

from mutation import covered
from mutation.covered import Recorded
from mutation.operators import Place, changed_text, places
from mutation.overlay import PACKAGE, ROOT, Outcome, changed, run_tests

PLACE = Path(__file__).resolve().with_name("score.json")
SAMPLE = 200
SECONDS = 450  # of CPU time, for the tests of one change
PARTS = ("passes", "poly", "hw/matching_unit")
MOST = 40.0
"""Seconds of tests, as recorded, that a change is shown to: of those that execute it the quickest ones."""


def tests_of(place: Place, source: str, known: Recorded) -> list[str]:
    """The tests that a change is shown to, in order."""
    found = known.tests_at(place, source)
    total = accumulate(known.seconds[t] for t in found)
    return [t for t, seconds in zip(found, total, strict=True) if seconds <= MOST]


def sample(size: int = SAMPLE, seed: int = 9) -> list[Place]:
    """The sample, in random order."""
    out: list[Place] = []
    for part in PARTS:
        for path in sorted((ROOT / PACKAGE / part).rglob("*.py")):
            file = path.relative_to(ROOT / PACKAGE).as_posix()
            out += places(file, path.read_text(encoding="utf-8"))
    return random.Random(seed).sample(out, size)


def main(argv: list[str]) -> int:
    """Try changes until the time is over."""
    from agreement.ledger import commit

    options = argparse.ArgumentParser(prog="score", description=__doc__)
    options.add_argument("--minutes", type=float, default=30.0)
    options.add_argument("--place", type=Path, default=PLACE)
    given = options.parse_args(argv)
    known = covered.load()
    if not known.seconds:
        print("nothing is recorded: run `python -m mutation.covered` first (it needs the package `coverage`)")
        return 1
    os.environ.update(covered.FEWER)
    end = time.monotonic() + 60 * given.minutes
    state: dict[str, Any] = json.loads(given.place.read_text()) if given.place.exists() else {"tried": []}
    if "sample" not in state:  # taken once: the numbers of places change with the files
        state["sample"] = [vars(p) for p in sample()]
        state["commit"] = commit()
    with tempfile.TemporaryDirectory() as folder:
        for entry in state["sample"][len(state["tried"]) :]:
            if time.monotonic() > end:
                break
            state["tried"].append(_try(Place(**entry), Path(folder), known))
            given.place.write_text(json.dumps(state, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    done = [t for t in state["tried"] if t["caught"] is not None]
    caught = sum(t["caught"] for t in done)
    print(
        f"{caught} of {len(done)} caught: {100 * caught / max(1, len(done)):.0f} %, of a sample of {len(state['sample'])}"
    )
    return 0


def _try(place: Place, folder: Path, known: Recorded) -> dict[str, Any]:
    start = time.monotonic()
    source = (ROOT / PACKAGE / place.file).read_text(encoding="utf-8")
    found: dict[str, Any] = {**vars(place), "caught": None, "by": "", "seconds": 0}
    if place not in places(place.file, source):
        found["by"] = "the file has changed since the sample was taken"
        return found
    found["source"] = source.splitlines()[place.line - 1].strip()
    tests = tests_of(place, source, known)
    if tests:
        changed(folder, place.file, changed_text(place, source))
        outcome = run_tests(folder, tests, SECONDS)
    else:
        outcome = Outcome(False, "no test executes it", "")
    found |= {"caught": outcome.caught, "by": outcome.by, "tests": len(tests), "seconds": round(time.monotonic() - start)}
    print(
        f"{'caught' if outcome.caught else 'MISSED'}  {place.file}:{place.line} {place.what}: {outcome.by}", flush=True
    )
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
