"""Which tests `make test` leaves out for their time, by measurement.

    python test/slow.py              # after `make test PYTEST_ARGS='--measure=build/seconds.txt'`: `slow.txt` anew

`slow.txt` has the tests that took more than `MOST` seconds of a processor, their own and those of the processes that they
started: seconds on a clock would depend on what else the machine does.  Such as have not run keep their line.
"""

from __future__ import annotations

import sys
from pathlib import Path

LIST = Path(__file__).with_name("slow.txt")
SECONDS = Path("build/seconds.txt")
MOST = 0.8
"""Seconds.  Chosen so that what is left takes about seven minutes on two cores."""
NEVER = ("test/test_house.py::",)
"""Tests that are never slow: the rules that any change may break are looked at in every run."""


def read(path: Path) -> dict[str, float]:
    """Seconds by the name of a test; the last line counts."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {name: float(seconds) for seconds, _, name in (line.partition(" ") for line in lines)}


def renewed(known: dict[str, float], measured: dict[str, float]) -> dict[str, float]:
    """The list with what was measured."""
    found = {name: t for name, t in sorted((known | measured).items()) if t > MOST or name not in measured}
    return {name: t for name, t in found.items() if not name.startswith(NEVER)}


def main() -> int:
    """Write the list; the exit status is 1 if nothing was measured."""
    measured = read(SECONDS)
    if not measured:
        print(f"nothing in {SECONDS}: run `make test PYTEST_ARGS='--measure={SECONDS}'` first", file=sys.stderr)
        return 1
    found = renewed(read(LIST), measured)
    LIST.write_text("".join(f"{t:.1f} {name}\n" for name, t in found.items()), encoding="utf-8")
    left = [t for t in measured.values() if t <= MOST]
    print(f"{len(found)} slow tests; {len(left)} others take {sum(left):.0f} s of a processor")
    return 0


if __name__ == "__main__":
    sys.exit(main())
