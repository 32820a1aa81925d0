"""Seeds each bug of `bugs` and runs its test: `make mutants`, or ``python -m mutation.seeded [WORD...]`` for some.

The result goes to ``seeded.json``, from which RELIABILITY.md takes its table.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mutation.bugs import BUGS, Bug
from mutation.overlay import PACKAGE, ROOT, Outcome, changed, run_tests

PLACE = Path(__file__).resolve().with_name("seeded.json")
SECONDS = 300  # of CPU time


def seeded_text(bug: Bug) -> str:
    """The file with the bug.  Raises ValueError if the line is not there, or not once."""
    text = (ROOT / PACKAGE / bug.file).read_text(encoding="utf-8")
    if text.count(bug.old) != 1:
        raise ValueError(f"{bug.name}: {bug.file} has {text.count(bug.old)} times: {bug.old}")
    return text.replace(bug.old, bug.new)


def try_bug(bug: Bug, folder: Path) -> dict[str, Any]:
    """What became of a bug."""
    start = time.monotonic()
    changed(folder, bug.file, seeded_text(bug))
    found = run_tests(folder, bug.test.split(), SECONDS)
    if found.caught and "::" in found.by:  # the same test on the package as it is
        changed(folder, bug.file, (ROOT / PACKAGE / bug.file).read_text(encoding="utf-8"))
        if run_tests(folder, [found.by], SECONDS).caught is not False:
            found = Outcome(None, f"{found.by}, which fails without the bug too", found.output)
    seconds = round(time.monotonic() - start)
    return {"name": bug.name, "file": bug.file, "caught": found.caught, "by": found.by, "seconds": seconds}


def main(argv: list[str]) -> int:
    """Try bugs; the exit status is 1 if one is not caught."""
    from agreement.ledger import commit

    options = argparse.ArgumentParser(prog="seeded", description=__doc__)
    options.add_argument("words", nargs="*", help="only bugs whose names have one of these words")
    options.add_argument("--missing", action="store_true", help="only those that have no result yet")
    options.add_argument("--place", type=Path, default=PLACE)
    given = options.parse_args(argv)
    known: dict[str, Any] = json.loads(given.place.read_text()) if given.place.exists() else {}
    known = {b.name: known[b.name] for b in BUGS if b.name in known}
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for bug in BUGS:
            if given.words and not any(w in bug.name for w in given.words):
                continue
            if given.missing and bug.name in known:
                continue
            found = try_bug(bug, Path(folder)) | {"commit": commit()}
            missed += not found["caught"]
            print(
                f"{'caught' if found['caught'] else 'MISSED'}  {bug.name}: {found['by']} ({found['seconds']} s)",
                flush=True,
            )
            known[bug.name] = found
            given.place.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
