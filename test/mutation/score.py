"""The mutation score: a fixed random sample of small changes, each against the tests of its part of the package.

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
from pathlib import Path
from typing import Any

from mutation.operators import Place, changed_text, places
from mutation.overlay import PACKAGE, ROOT, changed, run_tests

PLACE = Path(__file__).resolve().with_name("score.json")
SAMPLE = 200
SECONDS = 300  # of CPU time, for the tests of one change
PARTS = ("passes", "poly", "hw/matching_unit")
AGREE = "test/agreement/test_agreement.py::test_valid_programs"
DERIVED = "test/agreement/test_agreement.py::test_derivatives"
MISTAKES = "test/agreement/test_agreement.py::test_mistakes_are_refuted"
_TESTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("hw/matching_unit", ("test/hw/test_matching_unit.py",)),
    ("poly", ("test/poly", "test/passes", AGREE, MISTAKES, "test/native/test_schedules.py")),
    (
        "passes/loops",
        ("test/native/test_schedules.py", AGREE, "test/native/test_gradients.py"),
    ),
    ("passes/lower_hw", ("test/hw/test_execute.py", "test/hw/test_image.py", AGREE)),
    ("passes/lower_to_loops", (AGREE)),
    ("passes/schedule", ("test/native/test_schedules.py", AGREE)),
    ("passes/storage", ("test/native/test_schedules.py", AGREE)),
    ("passes/windows", ("test/native/test_schedules.py", AGREE)),
    ("passes/check", ("test/passes", "test/autodiff/test_checkpoint.py", AGREE, MISTAKES)),
    ("passes", ("test/autodiff/test_rules.py", "test/passes", AGREE, DERIVED, MISTAKES, "test/autodiff")),
)
"""Tests by the beginning of a file's name; the first that fits."""


def tests_of(file: str) -> tuple[str, ...]:
    """The tests that a change in a file is shown to; those named after the file first."""
    found = next(tests for part, tests in _TESTS if file.startswith(part))
    own = [str(p.relative_to(ROOT)) for p in sorted((ROOT / "test").rglob(f"test_{Path(file).stem}.py"))]
    return (*own, *(t for t in found if t not in own))


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
    os.environ.setdefault("UPL_AGREEMENT", "0.3")
    end = time.monotonic() + 60 * given.minutes
    state: dict[str, Any] = json.loads(given.place.read_text()) if given.place.exists() else {"tried": []}
    if "sample" not in state:  # taken once: the numbers of places change with the files
        state["sample"] = [vars(p) for p in sample()]
        state["commit"] = commit()
    with tempfile.TemporaryDirectory() as folder:
        for entry in state["sample"][len(state["tried"]) :]:
            if time.monotonic() > end:
                break
            state["tried"].append(_try(Place(**entry), Path(folder)))
            given.place.write_text(json.dumps(state, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    done = [t for t in state["tried"] if t["caught"] is not None]
    caught = sum(t["caught"] for t in done)
    print(
        f"{caught} of {len(done)} caught: {100 * caught / max(1, len(done)):.0f} %, of a sample of {len(state['sample'])}"
    )
    return 0


def _try(place: Place, folder: Path) -> dict[str, Any]:
    start = time.monotonic()
    source = (ROOT / PACKAGE / place.file).read_text(encoding="utf-8")
    found: dict[str, Any] = {**vars(place), "caught": None, "by": "", "seconds": 0}
    if place not in places(place.file, source):
        found["by"] = "the file has changed since the sample was taken"
        return found
    changed(folder, place.file, changed_text(place, source))
    outcome = run_tests(folder, tests_of(place.file), SECONDS)
    found |= {"caught": outcome.caught, "by": outcome.by, "seconds": round(time.monotonic() - start)}
    found["source"] = source.splitlines()[place.line - 1].strip()
    print(
        f"{'caught' if outcome.caught else 'MISSED'}  {place.file}:{place.line} {place.what}: {outcome.by}", flush=True
    )
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
