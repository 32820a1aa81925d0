"""The mutation score: a fixed random sample of small changes, each against the tests that execute the changed line.

    PYTHONPATH=test python -m mutation.covered                    which tests those are, once
    PYTHONPATH=test python -m mutation.score --minutes 30         goes on where it stopped; results in ``score.json``

The sample is in random order, so that the share caught of its first part is an estimate for all of it.  A change that alters
nothing that anybody can see (a bound on effort, the order of a list that is sorted later) counts as missed, until somebody
looks at it: `survivors` says which are such, and which tests were written for the others.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from mutation import covered
from mutation.covered import Recorded
from mutation.operators import Place, changed_text, places
from mutation.overlay import PACKAGE, ROOT, Outcome, changed, run_tests

PLACE = Path(__file__).resolve().with_name("score.json")
SAMPLE = 200
SEED = 9
SECONDS = 450  # of CPU time, for the tests of one change
PARTS = ("passes", "poly", "hw/matching_unit")
ROUNDS = (10.0, 40.0)
"""Seconds of tests, as recorded, that a change is shown to: of those that execute it the quickest ones.  First all changes
are shown to few tests, then those that are left to more."""


def tests_of(place: Place, source: str, known: Recorded, least: float = 0.0, most: float = ROUNDS[-1]) -> list[str]:
    """The tests that a change is shown to, in order: those of the first `most` seconds without those of the first `least`.

    The quickest one is shown in any case.
    """
    found = known.tests_at(place, source)
    ends = list(accumulate(known.seconds[t] for t in found))
    ends[:1] = [min(end, ROUNDS[0]) for end in ends[:1]]
    return [t for t, end in zip(found, ends, strict=True) if least < end <= most]


def sample(size: int = SAMPLE, seed: int = SEED) -> list[Place]:
    """The sample, in random order."""
    out: list[Place] = []
    for part in PARTS:
        for path in sorted((ROOT / PACKAGE / part).rglob("*.py")):
            file = path.relative_to(ROOT / PACKAGE).as_posix()
            out += places(file, path.read_text(encoding="utf-8"))
    return random.Random(seed).sample(out, size)


def main(argv: list[str]) -> int:
    """Try changes until the time is over."""
    import pytest

    from mutation.warm import Warm

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
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cache").mkdir(mode=0o700)
        os.environ["UPL_CACHE_DIR"] = str(folder / "cache")
        sys.path[:0] = [str(ROOT)]
        warm = Warm(folder, PARTS, lambda w: _all(Tries(folder, known, w), given.place, end))
        files = sorted({t.partition("::")[0] for t in known.seconds})
        status = pytest.main(
            ["-n", "0", "-q", "-s", "-m", "", "-p", "no:cacheprovider", f"--basetemp={folder / 'tmp'}", *files],
            plugins=[warm],
        )
    print(summary(json.loads(given.place.read_text(encoding="utf-8"))))
    return int(status)


def summary(state: dict[str, Any]) -> str:
    """What was reached."""
    done = [t for t in state["tried"] if t["caught"] is not None]
    caught = sum(t["caught"] for t in done)
    return f"{caught} of {len(done)} caught: {100 * caught / max(1, len(done)):.0f} %, of a sample of {len(state['sample'])}"


def _all(tries: Tries, place: Path, end: float) -> None:
    from agreement.ledger import commit

    state: dict[str, Any] = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {"tried": []}
    if "sample" not in state:  # taken once: the numbers of places change with the files
        state = {"commit": commit(), "seed": SEED, "sample": [vars(p) for p in sample()], "tried": []}
    tried: list[dict[str, Any]] = state["tried"]
    for most in ROUNDS:
        for n, entry in enumerate(state["sample"]):
            if time.monotonic() > end:
                return
            if n < len(tried) and (tried[n]["caught"] is not False or tried[n]["shown"] >= most):
                continue
            tried[n : n + 1] = [tries.show(Place(**entry), tried[n] if n < len(tried) else None, most)]
            place.write_text(json.dumps(state, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


class Tries:
    """Shows changes to tests."""

    def __init__(self, folder: Path, known: Recorded, warm: Any):
        self.folder, self.known, self.warm = folder, known, warm

    def show(self, place: Place, before: dict[str, Any] | None, most: float) -> dict[str, Any]:
        """What becomes of a change on the quickest tests up to `most` seconds; `before` has passed some of them."""
        source = (ROOT / PACKAGE / place.file).read_text(encoding="utf-8")
        found: dict[str, Any] = before or {**vars(place), "caught": None, "by": "", "tests": 0, "seconds": 0.0}
        if place not in places(place.file, source):
            return {**found, "by": "the file has changed since the sample was taken"}
        start = _spent()
        tests = tests_of(place, source, self.known, before["shown"] if before else 0.0, most)
        tests = [t for t in tests if t in self.warm.items]
        outcome = self._outcome(place, source, tests)
        if outcome.caught and not self.warm.passes(outcome.by):
            outcome = Outcome(None, f"{outcome.by}, which fails without the change too", "")
        found = {
            **found, "source": source.splitlines()[place.line - 1].strip(), "caught": outcome.caught, "by": outcome.by,
            "tests": found["tests"] + len(tests), "seconds": round(found["seconds"] + _spent() - start, 1), "shown": most,
        }  # fmt: skip
        word = {True: "caught", False: "MISSED", None: "?"}[outcome.caught]
        print(f"{word}  {place.file}:{place.line} {place.what} ({found['seconds']} s): {outcome.by}", flush=True)
        return found

    def _outcome(self, place: Place, source: str, tests: Sequence[str]) -> Outcome:
        if not tests:
            return Outcome(False, "", "")
        new = self.warm.code_of(place, source)
        if new is not None:
            return self.warm.tried(new, {t: self.known.seconds[t] for t in tests})
        changed(self.folder, place.file, changed_text(place, source))
        return run_tests(self.folder, tests, SECONDS)


def _spent() -> float:
    """Seconds of CPU time of all processes that have ended."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
