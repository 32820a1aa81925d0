"""Which tests come to the places of the sample: recorded once for a sample, in ``build/covered``.

    PYTHONPATH=test python -m mutation.covered        the quick tests of `SUITE` and `PROGRAMS`, in two processes

A change is shown to these tests alone; another test does not come to see it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutation.operators import Place
from mutation.overlay import ROOT

PLACE = ROOT / "build" / "covered"
SUITE = (
    "poly", "passes", "autodiff", "hw", "native", "small", "ops", "frontend", "circuit", "agreement", "interp", "token",
    "reference", "mpi", "explore", "host", "nn", "picture", "tools", "examples", "interop", "lsp", "malformed",
    "test_api.py",
)  # fmt: skip
"""Folders and files of tests in which a change in `passes`, `poly` and `hw/matching_unit` may show."""
PROGRAMS = "mutation/seeds.py"
"""Random programs, a test each."""

FEWER = {"UPL_AGREEMENT": "0.3"}
"""The tests on random programs look at fewer: here, and when a change is tried."""


def record(places: Sequence[Place], tests: Iterable[str], folder: Path = PLACE, *, jobs: int = 2) -> bool:
    """Run tests (files, folders), and note in the folder which of them come to which places; whether that could be done.

    Tests may fail: those of this computer's clock, for one.  What such a test executes is noted as well.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "places.json").write_text(json.dumps([(p.file, p.number) for p in places]), encoding="utf-8")
    search = os.pathsep.join([str(ROOT), str(ROOT / "test"), *filter(None, [os.environ.get("PYTHONPATH")])])
    run = [sys.executable, "-P", "-m", "pytest", "-n", str(jobs), "-q", "-p", "no:cacheprovider", "-p", "mutation.recorder"]
    env = {**os.environ, **FEWER, "PYTHONPATH": search, "UPL_RECORD": str(folder)}
    done = subprocess.run([*run, *tests], cwd=ROOT, env=env, check=False)
    return done.returncode in (0, 1) and any(folder.glob("by_*.json"))


@dataclass(frozen=True)
class Recorded:
    """What was recorded: seconds by test, and tests by place (its file and number)."""

    seconds: dict[str, float]
    tests: dict[tuple[str, int], set[str]]

    def tests_at(self, place: Place, *, programs: bool = False) -> list[str]:
        """The tests of the suite that come to a place, or the random programs; the quickest first."""
        found = [t for t in self.tests.get((place.file, place.number), ()) if (PROGRAMS in t) is programs]
        return sorted(found, key=lambda t: (self.seconds[t], t))


def load(folder: Path = PLACE) -> Recorded:
    """All that is recorded; nothing if nothing is."""
    out = Recorded({}, {})
    if not (folder / "places.json").exists():
        return out
    places = [(file, n) for file, n in json.loads((folder / "places.json").read_text(encoding="utf-8"))]
    for path in sorted(folder.glob("by_*.json")):
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for test, (seconds, seen) in data.items():
            out.seconds[test] = seconds
            for n in seen:
                out.tests.setdefault(places[n], set()).add(test)
    return out


def main() -> int:
    """Record the sample of `score`; the exit status is 1 if that could not be done."""
    from mutation import score

    sample = [Place(**p) for p in score.state()["sample"]]
    return 0 if record(sample, [str(ROOT / "test" / name) for name in (*SUITE, PROGRAMS)]) else 1


if __name__ == "__main__":
    sys.exit(main())
