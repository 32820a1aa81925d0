"""Random programs for as long as one likes: `make soak MINUTES=5`.

The state (the next seed, and all counts) is kept in ``build/agreement.json``: a later run goes on from there.  Failures are
made smaller and saved beside the tests, where they replay for ever.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from agreement.campaign import Tally, examine, examine_mutants
from agreement.properties import PROPERTIES

STATE = Path(__file__).resolve().parents[2] / "build" / "agreement.json"
FIRST = 1_000_000  # the tests' seeds lie below


def load(path: Path) -> tuple[int, Tally]:
    """The next seed, and what was reached so far."""
    if not path.exists():
        return FIRST, Tally()
    state = json.loads(path.read_text())
    return state["next"], Tally(Counter(state["reached"]), Counter(state["features"]))


def store(path: Path, seed: int, tally: Tally) -> None:
    """Write the state, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"next": seed, "reached": tally.reached, "features": tally.features}, sort_keys=True, indent=1)
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def main(argv: list[str]) -> int:
    """Run; the exit status is 1 if something failed."""
    options = argparse.ArgumentParser(prog="soak", description=__doc__)
    options.add_argument("--minutes", type=float, default=5.0)
    options.add_argument("--state", type=Path, default=STATE)
    options.add_argument("--mutants", type=int, default=4, help="of each program")
    options.add_argument("--fresh", action="store_true", help="begin anew")
    given = options.parse_args(argv)
    seed, tally = (FIRST, Tally()) if given.fresh else load(given.state)
    end = time.monotonic() + 60 * given.minutes
    start, shown = seed, time.monotonic()
    while time.monotonic() < end:
        before = len(tally.failures)
        examine(seed, list(PROPERTIES), tally)
        examine_mutants(seed, given.mutants, tally)
        for f in tally.failures[before:]:
            print(f"{f}\n", flush=True)
        seed += 1
        store(given.state, seed, tally)
        if time.monotonic() - shown > 15:
            shown = time.monotonic()
            left = max(0.0, (end - shown) / 60)
            print(f"{seed - start} programs, {len(tally.failures)} failures, {left:.1f} minutes left", flush=True)
    print("\n".join(tally.lines()))
    print(f"\n{seed - FIRST} programs in all, {seed - start} of them now; {len(tally.failures)} failures now")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
