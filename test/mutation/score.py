"""The mutation score: a fixed random sample of small changes, each against the tests that execute the changed line.

    PYTHONPATH=test python -m mutation.covered                    which tests those are, once for a sample
    PYTHONPATH=test python -m mutation.score --minutes 30         goes on where it stopped; results in ``score.json``
    … --share 0/2                                                 every other change; another process takes the rest

The sample is in random order, so that the share caught of its first part is an estimate for all of it.  A change that alters
nothing that anybody can see (a bound on effort, the order of a list that is sorted later) counts as missed, until somebody
looks at it: `survivors` says which are such, and which tests were written for the others.
"""

from __future__ import annotations

import argparse
import fcntl
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
SEED = 11
"""Another number takes another sample, and begins again."""
SECONDS = 450  # of CPU time, for the tests of one change
PARTS = ("passes", "poly", "hw/matching_unit")
ROUNDS = (10.0, 60.0, 160.0)
"""Seconds of tests, as recorded, that a change is shown to: of those that execute it the quickest ones, in the last round
random programs.  First all changes are shown to few tests, then those that are left to more."""


def tests_of(place: Place, known: Recorded, least: float = 0.0, most: float = ROUNDS[-1]) -> list[str]:
    """The tests that a change is shown to, in order: those of the first `most` seconds without those of the first `least`.

    The quickest one is shown in any case.
    """
    found: list[tuple[str, float]] = []
    for programs, start, end in ((False, 0.0, ROUNDS[-2]), (True, ROUNDS[-2], ROUNDS[-1])):
        tests = known.tests_at(place, programs=programs)
        ends = [start + e for e in accumulate(known.seconds[t] for t in tests)]
        ends[:1] = [min(e, ROUNDS[0]) for e in ends[:1]] if not programs else ends[:1]
        found += [(t, e) for t, e in zip(tests, ends, strict=True) if e <= end]
    return [t for t, end in found if least < end <= most]


def sample(size: int = SAMPLE, seed: int = SEED) -> list[Place]:
    """The sample, in random order."""
    out: list[Place] = []
    for part in PARTS:
        for path in sorted((ROOT / PACKAGE / part).rglob("*.py")):
            file = path.relative_to(ROOT / PACKAGE).as_posix()
            out += places(file, path.read_text(encoding="utf-8"))
    return random.Random(seed).sample(out, size)


def state(path: Path = PLACE) -> dict[str, Any]:
    """The sample and what was tried of it; taken now where there is none, or one of another seed."""
    from agreement.ledger import commit

    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if found.get("seed") != SEED:  # taken once: the numbers of places change with the files
        found = {"commit": commit(), "seed": SEED, "sample": [vars(p) for p in sample()], "tried": [None] * SAMPLE}
        _write(path, found)
    return found


def _write(path: Path, found: dict[str, Any]) -> None:
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _note(path: Path, n: int, entry: dict[str, Any]) -> None:
    """Keep what became of a change; other processes do so, too."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = state(path)
        found["tried"][n] = entry
        _write(path, found)


def main(argv: list[str]) -> int:
    """Try changes until the time is over."""
    import pytest

    from mutation.warm import Warm

    options = argparse.ArgumentParser(prog="score", description=__doc__)
    options.add_argument("--minutes", type=float, default=30.0)
    options.add_argument("--place", type=Path, default=PLACE)
    options.add_argument("--share", default="0/1", metavar="K/N")
    given = options.parse_args(argv)
    known = covered.load()
    if not known.seconds:
        print("nothing is recorded: run `python -m mutation.covered` first")
        return 1
    first, step = map(int, given.share.split("/"))
    turns = [n for n in range(len(state(given.place)["sample"])) if n % step == first]
    os.environ.update(covered.FEWER)
    end = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cache").mkdir(mode=0o700)
        os.environ["UPL_CACHE_DIR"] = str(folder / "cache")
        sys.path[:0] = [str(ROOT)]
        warm = Warm(folder, PARTS, lambda w: _all(Tries(folder, known, w), given.place, turns, end))
        files = sorted({t.partition("::")[0] for t in known.seconds})
        status = pytest.main(
            ["-n", "0", "-q", "-s", "-p", "no:cacheprovider", f"--basetemp={folder / 'tmp'}", *files], plugins=[warm]
        )
    print(summary(state(given.place)))
    return int(status)


def tried(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The changes of a sample of which it is known whether a test catches them."""
    return [t for t in found.get("tried", ()) if t is not None and t["caught"] is not None]


def summary(found: dict[str, Any]) -> str:
    """What was reached."""
    done = tried(found)
    caught = sum(t["caught"] for t in done)
    return f"{caught} of {len(done)} caught: {100 * caught / max(1, len(done)):.0f} %, of a sample of {len(found['sample'])}"


def _all(tries: Tries, place: Path, turns: Sequence[int], end: float) -> None:
    for most in ROUNDS:
        for n in turns:
            if time.monotonic() > end:
                return
            found = state(place)
            before = found["tried"][n]
            if before is None or (before["caught"] is False and before["shown"] < most):
                _note(place, n, tries.show(Place(**found["sample"][n]), before, most))


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
        tests = tests_of(place, self.known, before["shown"] if before else 0.0, most)
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
